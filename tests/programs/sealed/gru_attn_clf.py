# %% [code]
# Toxic comments - BiGRU + attention + max pool.  LB 0.9861 (single fold)
# regularization borrowed from AWD-LSTM: embedding dropout, variational (locked) dropout, weight drop
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import _VF

MAX_LEN = 180
MAX_FEATURES = 40000
EMBED_SIZE = 300
HIDDEN = 160
N_CLASSES = 6
N_AUX = 5

# %% [code]
def embedded_dropout(embed, words, dropout=0.1, training=True):
    # drops whole words of the vocabulary
    if training and dropout > 0:
        mask = embed.weight.new_empty((embed.weight.size(0), 1)).bernoulli_(1 - dropout)
        mask = mask.expand_as(embed.weight) / (1 - dropout)
        masked_weight = mask * embed.weight
    else:
        masked_weight = embed.weight
    return F.embedding(words, masked_weight, embed.padding_idx, embed.max_norm,
                       embed.norm_type, embed.scale_grad_by_freq, embed.sparse)


class LockedDropout(nn.Module):
    def __init__(self, p=0.3):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or not self.p:
            return x
        m = x.new_empty(x.size(0), 1, x.size(2)).bernoulli_(1 - self.p)
        m.div_(1 - self.p)
        return x * m


class SpatialDropout(nn.Dropout2d):
    def forward(self, x):
        x = x.unsqueeze(2)            # (N, T, 1, K)
        x = x.permute(0, 3, 2, 1)     # (N, K, 1, T)
        x = super(SpatialDropout, self).forward(x)
        x = x.permute(0, 3, 2, 1)
        return x.squeeze(2)


class WeightDropGRU(nn.GRU):
    """ DropConnect on hidden-to-hidden matrices """
    def __init__(self, *args, weight_dropout=0.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.weight_dropout = weight_dropout

    def forward(self, x):
        ws = []
        for n in self._flat_weights_names:
            w = getattr(self, n)
            if n.startswith('weight_hh'):
                w = F.dropout(w, p=self.weight_dropout, training=self.training)
            ws.append(w)
        ndir = 2 if self.bidirectional else 1
        h0 = x.new_zeros(self.num_layers * ndir, x.size(0), self.hidden_size)
        out, h = _VF.gru(x, h0, ws, self.bias, self.num_layers, self.dropout,
                         self.training, self.bidirectional, self.batch_first)
        return out, h


class Attention(nn.Module):
    def __init__(self, feature_dim, step_dim, bias=True, **kwargs):
        super(Attention, self).__init__(**kwargs)
        self.bias = bias
        self.feature_dim = feature_dim
        self.step_dim = step_dim
        weight = torch.zeros(feature_dim, 1)
        nn.init.xavier_uniform_(weight)
        self.weight = nn.Parameter(weight)
        if bias:
            self.b = nn.Parameter(torch.zeros(step_dim))

    def forward(self, x, mask=None):
        eij = torch.mm(
            x.contiguous().view(-1, self.feature_dim),
            self.weight
        ).view(-1, self.step_dim)

        if self.bias:
            eij = eij + self.b

        eij = torch.tanh(eij)
        a = torch.exp(eij)
        if mask is not None:
            a = a * mask
        a = a / (torch.sum(a, 1, keepdim=True) + 1e-10)

        weighted_input = x * torch.unsqueeze(a, -1)
        return torch.sum(weighted_input, 1)


# %% [code]
class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.embedding = nn.Embedding(MAX_FEATURES, EMBED_SIZE, padding_idx=0)
        # self.embedding.weight = nn.Parameter(torch.tensor(embedding_matrix, dtype=torch.float32))
        self.embedding_dropout = SpatialDropout(0.3)

        self.gru1 = WeightDropGRU(EMBED_SIZE, HIDDEN, bidirectional=True, batch_first=True, weight_dropout=0.4)
        self.lockdrop = LockedDropout(0.25)
        self.gru2 = WeightDropGRU(HIDDEN * 2, HIDDEN, bidirectional=True, batch_first=True, weight_dropout=0.4)

        self.att1 = Attention(HIDDEN * 2, MAX_LEN)
        self.att2 = Attention(HIDDEN * 2, MAX_LEN)

        n_feat = HIDDEN * 2 * 4 + 3
        self.bn = nn.BatchNorm1d(n_feat)
        self.linear = nn.Linear(n_feat, 256)
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(256, N_CLASSES)
        self.aux_out = nn.Linear(256, N_AUX)
        self.init_weights()

    def init_weights(self):
        ih = (p for n, p in self.named_parameters() if 'weight_ih' in n)
        hh = (p for n, p in self.named_parameters() if 'weight_hh' in n)
        b = (p for n, p in self.named_parameters() if 'bias_' in n)
        for k in ih:
            nn.init.xavier_uniform_(k)
        for k in hh:
            nn.init.orthogonal_(k)
        for k in b:
            nn.init.constant_(k, 0)

    def forward(self, x, feats, y, y_aux):
        mask = (x > 0).float()
        emb = embedded_dropout(self.embedding, x, dropout=0.05, training=self.training)
        emb = self.embedding_dropout(emb)

        h_gru1, _ = self.gru1(emb)
        h_gru1 = self.lockdrop(h_gru1)
        h_gru2, hn = self.gru2(h_gru1)

        h1_atten = self.att1(h_gru1, mask)
        h2_atten = self.att2(h_gru2, mask)

        # masked pooling
        avg_pool = (h_gru2 * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        max_pool, _ = torch.max(h_gru2.masked_fill(mask.unsqueeze(-1) == 0, -1e4), 1)

        conc = torch.cat((h1_atten, h2_atten, avg_pool, max_pool, feats), 1)
        conc = self.bn(conc)
        conc = F.relu(self.linear(conc))
        conc = self.dropout(conc)
        out = self.out(conc)
        aux = self.aux_out(conc)

        loss = F.binary_cross_entropy_with_logits(out, y)
        loss_aux = F.binary_cross_entropy_with_logits(aux, y_aux)
        # AR / TAR from AWD-LSTM
        ar = 2.0 * h_gru2.pow(2).mean()
        tar = 1.0 * (h_gru2[:, 1:] - h_gru2[:, :-1]).pow(2).mean()
        return out, loss + 0.5 * loss_aux + 0.01 * (ar + tar)


# %% [code]
def inputs(batch):
    x = torch.randint(1, MAX_FEATURES, (batch, MAX_LEN))
    x[:, 150:] = 0
    feats = torch.randn(batch, 3)  # caps ratio, uniq words ratio, num exclamations
    y = torch.randint(0, 2, (batch, N_CLASSES)).float()
    y_aux = torch.rand(batch, N_AUX)
    return x, feats, y, y_aux
