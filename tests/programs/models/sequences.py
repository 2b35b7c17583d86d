"""Models of sequences, graphs and trajectories. Each function gives a module and what it is called with."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class WaveNet(nn.Module):
    def __init__(self, c=64):
        super().__init__()
        self.inp = nn.Conv1d(1, c, 1)
        self.dil = nn.ModuleList((nn.Conv1d(c, 2 * c, 2, dilation=2 ** i) for i in range(6)))
        self.res = nn.ModuleList((nn.Conv1d(c, c, 1) for _ in range(6)))
        self.skip = nn.ModuleList((nn.Conv1d(c, c, 1) for _ in range(6)))
        self.o1, self.o2 = (nn.Conv1d(c, c, 1), nn.Conv1d(c, 256, 1))

    def layer(self, i, x):
        y = self.dil[i](F.pad(x, (2 ** i, 0)))
        a, g = y.chunk(2, 1)
        z = torch.tanh(a) * torch.sigmoid(g)
        return (x + self.res[i](z), self.skip[i](z))

    def forward(self, x):
        x = self.inp(x)
        total = 0
        for i in range(6):
            x, k = self.layer(i, x)
            total = total + k
        return self.o2(F.relu(self.o1(F.relu(total)))).transpose(1, 2)


class Scan(nn.Module):
    def __init__(self, d=64, n=16):
        super().__init__()
        self.inp, self.dt, self.bc, self.out = (nn.Linear(d, 2 * d), nn.Linear(d, d), nn.Linear(d, 2 * n), nn.Linear(d, d))
        self.A = nn.Parameter(torch.ones(d, n))
        self.D = nn.Parameter(torch.ones(d))
        self.conv = nn.Conv1d(d, d, 4, groups=d, padding=3)
        self.head = nn.Linear(d, 10)

    def scan(self, u, dt, B, C):
        A = -torch.exp(self.A)
        h = u.new_zeros(u.shape[0], u.shape[2], A.shape[1])
        ys = []
        dA = torch.exp(dt.unsqueeze(-1) * A)
        dBu = dt.unsqueeze(-1) * B.unsqueeze(2) * u.unsqueeze(-1)
        for t in range(u.shape[1]):
            h = dA[:, t] * h + dBu[:, t]
            ys.append((h * C[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(ys, 1) + u * self.D

    def forward(self, x):
        u, z = self.inp(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))
        B, C = self.bc(u).chunk(2, -1)
        y = self.scan(u, F.softplus(self.dt(u)), B, C) * F.silu(z)
        return self.head(self.out(y).mean(1))


class GPT(nn.Module):
    def __init__(self, v=1000, d=128, h=4, n=64):
        super().__init__()
        self.tok, self.pos = (nn.Embedding(v, d), nn.Embedding(n, d))
        self.register_buffer("mask", torch.tril(torch.ones(n, n)).view(1, 1, n, n))
        self.h = h
        self.ln = nn.ModuleList((nn.LayerNorm(d) for _ in range(4)))
        self.qkv = nn.ModuleList((nn.Linear(d, 3 * d) for _ in range(2)))
        self.o = nn.ModuleList((nn.Linear(d, d) for _ in range(2)))
        self.f1 = nn.ModuleList((nn.Linear(d, 4 * d) for _ in range(2)))
        self.f2 = nn.ModuleList((nn.Linear(4 * d, d) for _ in range(2)))
        self.lnf = nn.LayerNorm(d)
        self.drop = nn.Dropout(0.1)

    def attn(self, i, x):
        B, T, C = x.size()
        q, k, v = self.qkv[i](x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.h, C // self.h).transpose(1, 2) for t in (q, k, v))
        att = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        att = self.drop(F.softmax(att, dim=-1))
        y = att @ v
        return self.o[i](y.transpose(1, 2).contiguous().view(B, T, C))

    def forward(self, idx, targets):
        T = idx.shape[1]
        x = self.drop(self.tok(idx) + self.pos(torch.arange(T, device=idx.device)))
        for i in range(2):
            x = x + self.attn(i, self.ln[2 * i](x))
            x = x + self.drop(self.f2[i](F.gelu(self.f1[i](self.ln[2 * i + 1](x)))))
        logits = F.linear(self.lnf(x), self.tok.weight)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class Tacotron(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(60, 128)
        self.pre1, self.pre2 = (nn.Linear(80, 128), nn.Linear(128, 128))
        self.cell = nn.GRUCell(256, 256)
        self.q, self.k, self.v = (nn.Linear(256, 64), nn.Linear(128, 64), nn.Linear(64, 1))
        self.out = nn.Linear(384, 80)

    def prenet(self, x):
        return F.dropout(F.relu(self.pre2(F.dropout(F.relu(self.pre1(x)), 0.5, True))), 0.5, True)

    def forward(self, text, mel):
        m = self.emb(text)
        keys = self.k(m)
        h = m.new_zeros(m.shape[0], 256)
        ctx = m.new_zeros(m.shape[0], 128)
        outs = []
        for t in range(mel.shape[1]):
            h = self.cell(torch.cat([self.prenet(mel[:, t]), ctx], -1), h)
            w = torch.softmax(self.v(torch.tanh(self.q(h).unsqueeze(1) + keys)).squeeze(-1), -1)
            ctx = torch.bmm(w.unsqueeze(1), m).squeeze(1)
            outs.append(self.out(torch.cat([h, ctx], -1)))
        return F.l1_loss(torch.stack(outs, 1), mel)


class MoE(nn.Module):
    def __init__(self, d=128, e=4):
        super().__init__()
        self.gate = nn.Linear(d, e, bias=False)
        self.w1 = nn.Parameter(torch.randn(e, d, 256) * 0.02)
        self.w2 = nn.Parameter(torch.randn(e, 256, d) * 0.02)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, 10)

    def route(self, x):
        p = self.gate(x).softmax(-1)
        v, i = p.topk(2, -1)
        v = v / v.sum(-1, keepdim=True)
        m = torch.zeros_like(p).scatter(-1, i, v)
        return (m, p)

    def forward(self, x):
        m, p = self.route(self.norm(x))
        h = torch.einsum("btd,edh->beth", x, self.w1)
        h = F.gelu(h)
        y = torch.einsum("beth,ehd->betd", h, self.w2)
        x = x + torch.einsum("betd,bte->btd", y, m)
        return self.head(x.mean(1))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(3000, 128)
        self.l = nn.LSTM(128, 128, batch_first=True)
        self.fc = nn.Linear(128, 64)

    def encode(self, x):
        o, (h, c) = self.l(self.e(x))
        return F.normalize(self.fc(h[-1]), dim=-1)

    def forward(self, a, p, n):
        return F.triplet_margin_loss(self.encode(a), self.encode(p), self.encode(n), margin=0.3)


class Linformer(nn.Module):
    def __init__(self, d=128, h=4, n=64, k=16):
        super().__init__()
        self.h = h
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.E, self.Fp = (nn.Parameter(torch.randn(n, k) * 0.1), nn.Parameter(torch.randn(n, k) * 0.1))
        self.head = nn.Linear(d, 10)

    def heads(self, x):
        b, n, d = x.shape
        return x.reshape(b, n, self.h, d // self.h).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.q(x), self.k(x), self.v(x))
        k = torch.einsum("bnd,nk->bkd", k, self.E)
        v = torch.einsum("bnd,nk->bkd", v, self.Fp)
        a = torch.softmax(self.heads(q) @ self.heads(k).transpose(-1, -2) / math.sqrt(32), -1)
        y = (a @ self.heads(v)).transpose(1, 2).flatten(2)
        return self.head((x + self.o(y)).mean(1))


class ODE(nn.Module):
    def __init__(self, d=128):
        super().__init__()
        self.inp, self.f, self.out = (nn.Linear(32, d), nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, d)), nn.Linear(d, 10))

    def rk4(self, z, h):
        k1 = self.f(z)
        k2 = self.f(z + h / 2 * k1)
        k3 = self.f(z + h / 2 * k2)
        k4 = self.f(z + h * k3)
        return z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def forward(self, x):
        z = self.inp(x)
        for _ in range(5):
            z = self.rk4(z, 0.2)
        return self.out(z)


class EGNN(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.emb = nn.Linear(16, d)
        self.edge = nn.ModuleList((nn.Sequential(nn.Linear(2 * d + 1, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU()) for _ in range(3)))
        self.node = nn.ModuleList((nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d)) for _ in range(3)))
        self.coord = nn.ModuleList((nn.Linear(d, 1, bias=False) for _ in range(3)))
        self.out = nn.Linear(d, 10)

    def layer(self, i, h, x):
        n = h.shape[1]
        diff = x.unsqueeze(2) - x.unsqueeze(1)
        d2 = (diff ** 2).sum(-1, keepdim=True)
        m = self.edge[i](torch.cat([h.unsqueeze(2).expand(-1, -1, n, -1), h.unsqueeze(1).expand(-1, n, -1, -1), d2], -1))
        x = x + (diff / (d2 + 1).sqrt() * self.coord[i](m)).mean(2)
        h = h + self.node[i](torch.cat([h, m.sum(2)], -1))
        return (h, x)

    def forward(self, f, x):
        h = self.emb(f)
        for i in range(3):
            h, x = self.layer(i, h, x)
        return self.out(h.mean(1))


def wavenet(batch):
    return WaveNet(), (torch.randn(batch, 1, 512),)


def mamba_loop(batch):
    return Scan(), (torch.randn(batch, 24, 64),)


def gpt_tied(batch):
    return GPT(), (torch.zeros(batch, 64, dtype=torch.long), torch.zeros(batch, 64, dtype=torch.long))


def tacotron(batch):
    return Tacotron(), (torch.zeros(batch, 20, dtype=torch.long), torch.randn(batch, 12, 80))


def moe_dense(batch):
    return MoE(), (torch.randn(batch, 64, 128),)


def siamese_triplet(batch):
    return Siamese(), (torch.zeros(batch, 30, dtype=torch.long), torch.zeros(batch, 30, dtype=torch.long), torch.zeros(batch, 30, dtype=torch.long))


def linformer(batch):
    return Linformer(), (torch.randn(batch, 64, 128),)


def neural_ode(batch):
    return ODE(), (torch.randn(batch, 64, 32),)


def egnn(batch):
    return EGNN(), (torch.randn(batch, 20, 16), torch.randn(batch, 20, 3))


class Recurrent(nn.Module):
    """nn.RNN, its last states read or not."""

    def __init__(self, states=False, d=96, **how):
        super().__init__()
        self.embed = nn.Linear(40, d)
        self.rnn = nn.RNN(d, d, **how)
        self.states, self.turn = states, not how.get("batch_first", False)
        self.head = nn.Linear(d * (2 if how.get("bidirectional") and not states else 1), 12)

    def forward(self, x):
        x = torch.relu(self.embed(x))
        if self.turn:
            x = x.transpose(0, 1)
        y, h = self.rnn(x)
        return self.head(h[-1] if self.states else y)


def rnn_relu(batch):
    return Recurrent(nonlinearity="relu"), (torch.randn(batch, 24, 40),)


def rnn_both_ways(batch):
    return Recurrent(bidirectional=True, batch_first=True), (torch.randn(batch, 24, 40),)


def rnn_states(batch):
    return Recurrent(states=True, num_layers=2, batch_first=True), (torch.randn(batch, 24, 40),)


def rnn_dropout(batch):
    return Recurrent(num_layers=3, dropout=0.1, bias=False, nonlinearity="relu", bidirectional=True), (torch.randn(batch, 24, 40),)


class WideScores(nn.Module):
    """Scores of attention in fp32, with autocast off; norms and positions that follow the input's type."""

    class Norm(nn.LayerNorm):
        def forward(self, x):
            kept = x.dtype
            return F.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias, self.eps).to(kept)

    def __init__(self, d=128, h=4):
        super().__init__()
        self.h = h
        self.embed, self.norm = nn.Linear(48, d), self.Norm(d)
        self.positions = nn.Parameter(torch.randn(1, 64, d) * 0.02)
        self.qkv, self.out, self.head = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 10)

    def place(self, x):
        x = self.embed(x)
        return x + self.positions.to(x.dtype)

    def scores(self, q, k):
        with torch.autocast(q.device.type, enabled=False):
            return (q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)

    def forward(self, x):
        x = self.place(x)
        y = self.norm(x)
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in self.qkv(y).chunk(3, -1))
        a = self.scores(q, k).to(v.dtype)
        x = x + self.out((a @ v).transpose(1, 2).flatten(2))
        return self.head(x.mean(1))


def wide_scores(batch):
    return WideScores(), (torch.randn(batch, 64, 48),)
