import torch
import torch.nn as nn
import torch.nn.functional as F


class CharCNN(nn.Module):
    def __init__(self, n_chars, char_dim, filters, out_dim):
        super(CharCNN, self).__init__()
        self.embed = nn.Embedding(n_chars, char_dim, padding_idx=0)
        self.convs = nn.ModuleList([nn.Conv1d(char_dim, n, kernel_size=k) for k, n in filters])
        total = sum(n for _, n in filters)
        self.highways = nn.ModuleList([Highway(total) for _ in range(2)])
        self.projection = nn.Linear(total, out_dim)

    def forward(self, chars):
        # chars: (batch, words, letters)
        b, w, c = chars.shape
        x = self.embed(chars.view(b * w, c))
        x = x.transpose(1, 2)
        feats = []
        for conv in self.convs:
            f = F.relu(conv(x), inplace=True)
            f, _ = torch.max(f, dim=-1)
            feats.append(f)
        x = torch.cat(feats, dim=-1)
        for hw in self.highways:
            x = hw(x)
        return self.projection(x).view(b, w, -1)


class Highway(nn.Module):
    def __init__(self, size):
        super(Highway, self).__init__()
        self.fc = nn.Linear(size, size * 2)
        self.fc.bias[size:].data.fill_(1)

    def forward(self, x):
        nonlin, gate = self.fc(x).chunk(2, dim=-1)
        nonlin = F.relu(nonlin)
        gate = torch.sigmoid(gate)
        return gate * x + (1 - gate) * nonlin


class SpatialDropout(nn.Dropout2d):
    def forward(self, x):
        x = x.unsqueeze(2)  # (N, T, 1, K)
        x = x.permute(0, 3, 2, 1)  # (N, K, 1, T)
        x = super(SpatialDropout, self).forward(x)
        x = x.permute(0, 3, 2, 1)
        return x.squeeze(2)


class Attention(nn.Module):
    """Kaggle attention (Quora / Toxic kernels)"""

    def __init__(self, feature_dim, step_dim, bias=True):
        super(Attention, self).__init__()
        self.bias = bias
        self.feature_dim = feature_dim
        self.step_dim = step_dim
        weight = torch.zeros(feature_dim, 1)
        nn.init.xavier_uniform_(weight)
        self.weight = nn.Parameter(weight)
        if bias:
            self.b = nn.Parameter(torch.zeros(step_dim))

    def forward(self, x, mask=None):
        eij = torch.mm(x.contiguous().view(-1, self.feature_dim), self.weight).view(-1, self.step_dim)
        if self.bias:
            eij = eij + self.b
        eij = torch.tanh(eij)
        a = torch.exp(eij)
        if mask is not None:
            a = a * mask
        a = a / (torch.sum(a, 1, keepdim=True) + 1e-10)
        weighted_input = x * torch.unsqueeze(a, -1)
        return torch.sum(weighted_input, 1)


class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0, alpha=0.25):
        super(FocalLoss, self).__init__()
        self.gamma = gamma
        self.alpha = alpha

    def forward(self, logits, target):
        bce = F.binary_cross_entropy_with_logits(logits, target, reduction='none')
        pt = torch.exp(-bce)
        alpha_t = self.alpha * target + (1 - self.alpha) * (1 - target)
        return (alpha_t * (1 - pt) ** self.gamma * bce).mean()


class Model(nn.Module):
    def __init__(self, vocab=30000, emb=200, n_chars=120, maxlen=128, n_classes=6, hidden=192):
        super(Model, self).__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=0)
        # glove vectors stay fixed
        self.embedding.weight.requires_grad = False
        self.char_cnn = CharCNN(n_chars, 48, [(1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)], 200)
        self.embedding_dropout = SpatialDropout(0.3)
        self.lstm = nn.LSTM(emb + 200, hidden, bidirectional=True, batch_first=True)
        self.lstm_attention = Attention(hidden * 2, maxlen)
        self.linear = nn.Linear(hidden * 2 * 3, 128)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(128, n_classes)
        self.aux_out = nn.Linear(128, 1)
        self.criterion = FocalLoss()

    def forward(self, words, chars, y):
        mask = (words > 0).float()
        h_embedding = torch.cat([self.embedding(words), self.char_cnn(chars)], dim=-1)
        h_embedding = self.embedding_dropout(h_embedding)
        h_lstm, _ = self.lstm(h_embedding)
        h_lstm_atten = self.lstm_attention(h_lstm, mask)
        avg_pool = torch.mean(h_lstm, 1)
        max_pool, _ = torch.max(h_lstm, 1)
        conc = torch.cat((h_lstm_atten, avg_pool, max_pool), 1)
        conc = self.relu(self.linear(conc))
        conc = self.dropout(conc)
        logits = self.out(conc)
        any_toxic = self.aux_out(conc).squeeze(-1)
        loss = self.criterion(logits, y)
        loss = loss + 0.2 * F.binary_cross_entropy_with_logits(any_toxic, y.max(dim=1)[0])
        return loss, torch.sigmoid(logits)


def inputs(batch):
    w = torch.randint(1, 30000, (batch, 128))
    w[:, 100:] = 0
    c = torch.randint(1, 120, (batch, 128, 24))
    c[:, 100:] = 0
    return w, c, (torch.rand(batch, 6) > 0.8).float()
