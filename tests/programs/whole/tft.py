import math
import torch
from torch import nn
import torch.nn.functional as F

CONFIG = {
    'encoder_length': 168,
    'example_length': 192,
    'static_cards': [369, 12],
    'hist_cat_cards': [24, 7, 32],
    'n_known_cont': 6,
    'n_obs_cont': 10,
    'hidden': 160,
    'heads': 4,
    'dropout': 0.1,
    'quantiles': [0.1, 0.5, 0.9],
}


class GLU(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out * 2)

    def forward(self, x):
        return F.glu(self.lin(x), dim=-1)


class GRN(nn.Module):
    def __init__(self, d_in, d_hid, d_out=None, d_ctx=None, dropout=0.0):
        super().__init__()
        self.layer_norm = nn.LayerNorm(d_out or d_hid, eps=1e-3)
        self.lin_a = nn.Linear(d_in, d_hid)
        self.lin_c = nn.Linear(d_ctx, d_hid, bias=False) if d_ctx is not None else None
        self.lin_i = nn.Linear(d_hid, d_hid)
        self.glu = GLU(d_hid, d_out or d_hid)
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(d_in, d_out) if d_out else None

    def forward(self, a, c=None):
        x = self.lin_a(a)
        if c is not None:
            x = x + self.lin_c(c).unsqueeze(1)
        x = F.elu(x)
        x = self.lin_i(x)
        x = self.dropout(x)
        x = self.glu(x)
        y = a if self.out_proj is None else self.out_proj(a)
        x = x + y
        return self.layer_norm(x)


class VSN(nn.Module):
    def __init__(self, n_inp, hidden, dropout, ctx=True):
        super().__init__()
        self.joint = GRN(hidden * n_inp, hidden, d_out=n_inp, d_ctx=hidden if ctx else None, dropout=dropout)
        self.vars = nn.ModuleList([GRN(hidden, hidden, dropout=dropout) for _ in range(n_inp)])

    def forward(self, x, context=None):
        Xi = x.reshape(*x.shape[:-2], -1)
        weights = self.joint(Xi, c=context)
        weights = F.softmax(weights, dim=-1)
        tr = torch.stack([m(x[..., i, :]) for i, m in enumerate(self.vars)], dim=-1)
        ctx = torch.matmul(tr, weights.unsqueeze(-1)).squeeze(-1)
        return ctx, weights


class InterpretableMHA(nn.Module):
    def __init__(self, hidden, n_head, length, dropout):
        super().__init__()
        self.n_head = n_head
        self.d_head = hidden // n_head
        self.qkv = nn.Linear(hidden, (2 * n_head + 1) * self.d_head, bias=False)
        self.out = nn.Linear(self.d_head, hidden, bias=False)
        self.attn_dropout = nn.Dropout(dropout)
        self.out_dropout = nn.Dropout(dropout)
        self.register_buffer('_mask', torch.triu(torch.full((length, length), float('-inf')), 1).unsqueeze(0))

    def forward(self, x):
        bs, t, h = x.shape
        q, k, v = self.qkv(x).split((self.n_head * self.d_head, self.n_head * self.d_head, self.d_head), dim=-1)
        q = q.view(bs, t, self.n_head, self.d_head)
        k = k.view(bs, t, self.n_head, self.d_head)
        score = torch.matmul(q.permute((0, 2, 1, 3)), k.permute((0, 2, 3, 1)))
        score.mul_(self.d_head ** -0.5)
        score = score + self._mask
        prob = F.softmax(score, dim=3)
        prob = self.attn_dropout(prob)
        vec = torch.matmul(prob, v.unsqueeze(1))
        m_vec = torch.mean(vec, dim=1)
        return self.out_dropout(self.out(m_vec)), prob


class QuantileLoss(nn.Module):
    def __init__(self, q):
        super().__init__()
        self.register_buffer('q', torch.tensor(q))

    def forward(self, pred, target):
        diff = pred - target
        ql = (1 - self.q) * F.relu(diff) + self.q * F.relu(-diff)
        return ql.view(-1, ql.shape[-1]).mean(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        c = CONFIG
        h, dr = c['hidden'], c['dropout']
        self.enc_len = c['encoder_length']
        self.s_emb = nn.ModuleList([nn.Embedding(n, h) for n in c['static_cards']])
        self.k_cat = nn.ModuleList([nn.Embedding(n, h) for n in c['hist_cat_cards']])
        self.k_vec = nn.Parameter(torch.empty(c['n_known_cont'], h))
        self.k_bias = nn.Parameter(torch.zeros(c['n_known_cont'], h))
        self.o_vec = nn.Parameter(torch.empty(c['n_obs_cont'], h))
        self.o_bias = nn.Parameter(torch.zeros(c['n_obs_cont'], h))
        self.t_vec = nn.Parameter(torch.empty(1, h))
        self.t_bias = nn.Parameter(torch.zeros(1, h))
        for p in (self.k_vec, self.o_vec, self.t_vec):
            nn.init.xavier_normal_(p)
        n_known = c['n_known_cont'] + len(c['hist_cat_cards'])
        n_hist = n_known + c['n_obs_cont'] + 1
        self.static_vsn = VSN(len(c['static_cards']), h, dr, ctx=False)
        self.ctx_grns = nn.ModuleList([GRN(h, h, dropout=dr) for _ in range(4)])
        self.history_vsn = VSN(n_hist, h, dr)
        self.history_encoder = nn.LSTM(h, h, batch_first=True)
        self.future_vsn = VSN(n_known, h, dr)
        self.future_encoder = nn.LSTM(h, h, batch_first=True)
        self.input_gate, self.input_ln = GLU(h, h), nn.LayerNorm(h, eps=1e-3)
        self.enrichment_grn = GRN(h, h, d_ctx=h, dropout=dr)
        self.attention = InterpretableMHA(h, c['heads'], c['example_length'], dr)
        self.attention_gate, self.attention_ln = GLU(h, h), nn.LayerNorm(h, eps=1e-3)
        self.positionwise_grn = GRN(h, h, dropout=dr)
        self.decoder_gate, self.decoder_ln = GLU(h, h), nn.LayerNorm(h, eps=1e-3)
        self.quantile_proj = nn.Linear(h, len(c['quantiles']))
        self.criterion = QuantileLoss(c['quantiles'])

    @staticmethod
    def _cont(x, vec, bias):
        e = torch.mul(x.unsqueeze(-1), vec)
        e = e + bias
        return e

    def forward(self, s_cat, k_cat, k_cont, o_cont, target):
        E = self.enc_len
        s = torch.stack([e(s_cat[:, i]) for i, e in enumerate(self.s_emb)], dim=1)
        known = torch.cat([torch.stack([e(k_cat[:, :, i]) for i, e in enumerate(self.k_cat)], dim=-2),
                           self._cont(k_cont, self.k_vec, self.k_bias)], dim=-2)
        obs = self._cont(o_cont[:, :E], self.o_vec, self.o_bias)
        tgt = self._cont(target[:, :E, None], self.t_vec, self.t_bias)

        s_ctx, _ = self.static_vsn(s)
        cs, ce, ch, cc = [m(s_ctx) for m in self.ctx_grns]
        ch, cc = ch.unsqueeze(0), cc.unsqueeze(0)

        hist = torch.cat([obs, known[:, :E], tgt], dim=-2)
        hist, w_hist = self.history_vsn(hist, cs)
        history, (hn, cn) = self.history_encoder(hist, (ch, cc))
        state = (hn.view(ch.shape), cn.view(cc.shape))
        fut, _ = self.future_vsn(known[:, E:], cs)
        future, _ = self.future_encoder(fut, state)

        inp_emb = torch.cat([hist, fut], dim=1)
        temporal = torch.cat([history, future], dim=1)
        temporal = self.input_gate(temporal)
        temporal = temporal + inp_emb
        temporal = self.input_ln(temporal)

        enriched = self.enrichment_grn(temporal, c=ce)
        x, _ = self.attention(enriched)
        x = x[:, E:, :]
        temporal = temporal[:, E:, :]
        enriched = enriched[:, E:, :]
        x = self.attention_gate(x)
        x = x + enriched
        x = self.attention_ln(x)
        x = self.positionwise_grn(x)
        x = self.decoder_gate(x)
        x = x + temporal
        x = self.decoder_ln(x)
        out = self.quantile_proj(x)
        loss = self.criterion(out, target[:, E:, None]).sum()
        return loss, out


def inputs(batch):
    c = CONFIG
    T = c['example_length']
    s = torch.stack([torch.randint(0, n, (batch,)) for n in c['static_cards']], 1)
    k = torch.stack([torch.randint(0, n, (batch, T)) for n in c['hist_cat_cards']], 2)
    return s, k, torch.randn(batch, T, c['n_known_cont']), torch.randn(batch, T, c['n_obs_cont']), torch.randn(batch, T)
