# -*- coding: utf-8 -*-
"""
Deep Interest Evolution Network (Zhou et al., AAAI 2019)
   interest extractor : GRU + auxiliary next-click loss on sampled negatives
   interest evolution : AUGRU conditioned on the target item
sparse features: user, item, category; history of (item, category) with its length
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Dice(nn.Module):
    def __init__(self, emb_size, dim=2, epsilon=1e-8):
        super(Dice, self).__init__()
        assert dim in (2, 3)
        self.bn = nn.BatchNorm1d(emb_size, eps=epsilon)
        self.sigmoid = nn.Sigmoid()
        self.dim = dim
        self.alpha = nn.Parameter(torch.zeros((emb_size,)))

    def forward(self, x):
        if self.dim == 2:
            x_p = self.sigmoid(self.bn(x))
            out = self.alpha * (1 - x_p) * x + x_p * x
        else:
            x = torch.transpose(x, 1, 2)
            x_p = self.sigmoid(self.bn(x))
            a = self.alpha.unsqueeze(-1)
            out = a * (1 - x_p) * x + x_p * x
            out = torch.transpose(out, 1, 2)
        return out


class DNN(nn.Module):
    def __init__(self, inputs_dim, hidden_units, activation='relu', dropout_rate=0.0, use_bn=False, act_dim=2):
        super(DNN, self).__init__()
        sizes = [inputs_dim] + list(hidden_units)
        self.dropout = nn.Dropout(dropout_rate)
        self.use_bn = use_bn
        self.linears = nn.ModuleList([nn.Linear(sizes[i], sizes[i + 1]) for i in range(len(sizes) - 1)])
        if use_bn:
            self.bn = nn.ModuleList([nn.BatchNorm1d(s) for s in sizes[1:]])
        if activation == 'dice':
            self.acts = nn.ModuleList([Dice(s, act_dim) for s in sizes[1:]])
        elif activation == 'sigmoid':
            self.acts = nn.ModuleList([nn.Sigmoid() for _ in sizes[1:]])
        else:
            self.acts = nn.ModuleList([nn.ReLU(inplace=True) for _ in sizes[1:]])
        for name, tensor in self.linears.named_parameters():
            if 'weight' in name:
                nn.init.normal_(tensor, mean=0, std=0.05)

    def forward(self, inputs):
        deep_input = inputs
        for i in range(len(self.linears)):
            fc = self.linears[i](deep_input)
            if self.use_bn:
                fc = self.bn[i](fc)
            fc = self.acts[i](fc)
            fc = self.dropout(fc)
            deep_input = fc
        return deep_input


class AUGRUCell(nn.Module):
    """GRU with the update gate scaled by the attention score"""

    def __init__(self, input_size, hidden_size, bias=True):
        super(AUGRUCell, self).__init__()
        self.hidden_size = hidden_size
        self.weight_ih = nn.Parameter(torch.randn(3 * hidden_size, input_size) * 0.05)
        self.weight_hh = nn.Parameter(torch.randn(3 * hidden_size, hidden_size) * 0.05)
        if bias:
            self.bias_ih = nn.Parameter(torch.zeros(3 * hidden_size))
            self.bias_hh = nn.Parameter(torch.zeros(3 * hidden_size))
        else:
            self.register_parameter('bias_ih', None)
            self.register_parameter('bias_hh', None)

    def forward(self, inputs, hx, att_score):
        gi = F.linear(inputs, self.weight_ih, self.bias_ih)
        gh = F.linear(hx, self.weight_hh, self.bias_hh)
        i_r, i_z, i_n = gi.chunk(3, 1)
        h_r, h_z, h_n = gh.chunk(3, 1)
        reset_gate = torch.sigmoid(i_r + h_r)
        update_gate = torch.sigmoid(i_z + h_z)
        new_state = torch.tanh(i_n + reset_gate * h_n)
        update_gate = att_score.view(-1, 1) * update_gate
        return (1. - update_gate) * hx + update_gate * new_state


class InterestExtractor(nn.Module):
    def __init__(self, input_size, neg_size=1):
        super(InterestExtractor, self).__init__()
        self.gru = nn.GRU(input_size=input_size, hidden_size=input_size, batch_first=True)
        self.auxiliary_net = DNN(input_size * 2, [100, 50, 1], 'sigmoid')

    def forward(self, keys, neg_keys, mask):
        interests, _ = self.gru(keys)
        aux = self._cal_auxiliary_loss(interests[:, :-1], keys[:, 1:], neg_keys[:, 1:], mask[:, 1:])
        return interests, aux

    def _cal_auxiliary_loss(self, states, click_seq, noclick_seq, mask):
        click_p = self.auxiliary_net(torch.cat([states, click_seq], dim=-1)).squeeze(-1)
        noclick_p = self.auxiliary_net(torch.cat([states, noclick_seq], dim=-1)).squeeze(-1)
        eps = 1e-7
        loss = -(torch.log(click_p.clamp(eps, 1 - eps)) + torch.log((1 - noclick_p).clamp(eps, 1 - eps)))
        return (loss * mask).sum() / mask.sum().clamp(min=1.0)


class AttentionScore(nn.Module):
    def __init__(self, dim):
        super(AttentionScore, self).__init__()
        self.proj = nn.Linear(dim, dim, bias=False)
        self.dnn = DNN(4 * dim, (80, 40), activation='dice', act_dim=3)
        self.dense = nn.Linear(40, 1)

    def forward(self, query, keys, mask):
        q = self.proj(query).unsqueeze(1).expand(-1, keys.size(1), -1)
        att_in = torch.cat([q, keys, q - keys, q * keys], dim=-1)
        score = self.dense(self.dnn(att_in)).squeeze(-1)
        paddings = torch.ones_like(score) * (-2 ** 32 + 1)
        score = torch.where(mask > 0, score, paddings)
        return F.softmax(score, dim=1)


class Model(nn.Module):
    N_USER, N_ITEM, N_CATE, MAXLEN = 40000, 60000, 1500, 60

    def __init__(self, emb=32, hidden=(256, 128), dropout=0.1, aux_weight=1.0, l2=1e-6):
        super(Model, self).__init__()
        self.aux_weight = aux_weight
        self.l2 = l2
        self.embedding_dict = nn.ModuleDict({
            'user': nn.Embedding(self.N_USER, emb),
            'item': nn.Embedding(self.N_ITEM, emb, padding_idx=0),
            'cate': nn.Embedding(self.N_CATE, emb, padding_idx=0),
        })
        for tensor in self.embedding_dict.values():
            nn.init.normal_(tensor.weight, mean=0, std=0.01)
        d = 2 * emb
        self.extractor = InterestExtractor(d)
        self.attention = AttentionScore(d)
        self.evolution = AUGRUCell(d, d)
        self.dnn = DNN(emb + d * 4, hidden, activation='dice', dropout_rate=dropout, use_bn=True)
        self.out = nn.Linear(hidden[-1], 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(1))

    def lookup(self, item, cate):
        return torch.cat([self.embedding_dict['item'](item), self.embedding_dict['cate'](cate)], dim=-1)

    def evolve(self, interests, scores, mask):
        h = torch.zeros_like(interests[:, 0])
        for t in range(interests.size(1)):
            nh = self.evolution(interests[:, t], h, scores[:, t])
            m = mask[:, t].unsqueeze(-1)
            h = m * nh + (1 - m) * h          # keep the last valid state
        return h

    def forward(self, user, item, cate, hist_item, hist_cate, neg_item, neg_cate, hist_len, label):
        user_emb = self.embedding_dict['user'](user)
        query = self.lookup(item, cate)
        keys = self.lookup(hist_item, hist_cate)
        negs = self.lookup(neg_item, neg_cate)
        mask = (torch.arange(self.MAXLEN, device=user.device)[None, :] < hist_len[:, None]).to(keys.dtype)
        keys = keys * mask.unsqueeze(-1)

        interests, aux_loss = self.extractor(keys, negs, mask)
        scores = self.attention(query, interests, mask)
        final_state = self.evolve(interests, scores, mask)
        hist_sum = keys.sum(dim=1)

        feats = torch.cat([user_emb, query, hist_sum, query * hist_sum, final_state], dim=-1)
        logit = self.out(self.dnn(feats)).squeeze(-1) + self.bias
        bce = F.binary_cross_entropy_with_logits(logit, label)
        reg = sum((p ** 2).sum() for n, p in self.dnn.named_parameters() if 'linears' in n and 'weight' in n)
        return {'loss': bce + self.aux_weight * aux_loss + self.l2 * reg,
                'prob': torch.sigmoid(logit).detach(),
                'aux_loss': aux_loss.detach()}


def inputs(batch):
    L = Model.MAXLEN
    ri = lambda hi, *s: torch.randint(1, hi, s)
    return (ri(Model.N_USER, batch), ri(Model.N_ITEM, batch), ri(Model.N_CATE, batch),
            ri(Model.N_ITEM, batch, L), ri(Model.N_CATE, batch, L),
            ri(Model.N_ITEM, batch, L), ri(Model.N_CATE, batch, L),
            ri(L + 1, batch), torch.randint(0, 2, (batch,)).float())
