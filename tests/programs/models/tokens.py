"""More models of sequences. Each function gives a module and what it is called with."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class NonLocal(nn.Module):
    def __init__(self, c=64):
        super().__init__()
        self.t, self.p, self.g, self.o = (nn.Linear(c, c // 2), nn.Linear(c, c // 2), nn.Linear(c, c // 2), nn.Linear(c // 2, c))
        self.inp, self.head = (nn.Linear(16, c), nn.Linear(c, 10))
        self.norm = nn.BatchNorm1d(c)

    def block(self, x):
        t, p, g = (self.t(x), self.p(x), self.g(x))
        f = torch.matmul(t, p.transpose(1, 2))
        f = f / f.size(-1)
        y = self.o(torch.matmul(f, g))
        return self.norm(y.transpose(1, 2)).transpose(1, 2) + x

    def forward(self, x):
        x = F.relu(self.inp(x))
        for _ in range(2):
            x = self.block(x)
        return self.head(x.mean(1))


class SASRec(nn.Module):
    def __init__(self, n=1000, d=64, t=50):
        super().__init__()
        self.item, self.pos = (nn.Embedding(n, d, padding_idx=0), nn.Embedding(t, d))
        self.ln = nn.ModuleList((nn.LayerNorm(d) for _ in range(2)))
        self.att = nn.ModuleList((nn.MultiheadAttention(d, 2, 0.2) for _ in range(2)))
        self.ff = nn.ModuleList((nn.Sequential(nn.Conv1d(d, d, 1), nn.ReLU(), nn.Dropout(0.2), nn.Conv1d(d, d, 1)) for _ in range(2)))
        self.last = nn.LayerNorm(d)

    def log2feats(self, x):
        seqs = self.item(x) * self.item.embedding_dim ** 0.5
        seqs = seqs + self.pos(torch.arange(x.shape[1], device=x.device).unsqueeze(0).expand(x.shape[0], -1))
        mask = x == 0
        seqs *= ~mask.unsqueeze(-1)
        causal = ~torch.tril(torch.ones((x.shape[1], x.shape[1]), dtype=torch.bool, device=x.device))
        for l, a, f in zip(self.ln, self.att, self.ff):
            seqs = seqs.transpose(0, 1)
            q = l(seqs)
            o, _ = a(q, seqs, seqs, attn_mask=causal)
            seqs = (q + o).transpose(0, 1)
            seqs = seqs + f(seqs.transpose(-1, -2)).transpose(-1, -2)
            seqs *= ~mask.unsqueeze(-1)
        return self.last(seqs)

    def forward(self, x, pos, neg):
        h = self.log2feats(x)
        p = (h * self.item(pos)).sum(-1)
        n = (h * self.item(neg)).sum(-1)
        return F.softplus(-p).mean() + F.softplus(n).mean()


class RMS(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = 1e-06

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        out = self._norm(x.float()).type_as(x)
        return out * self.weight


class Llama(nn.Module):
    def __init__(self, d=128, h=4, kv=2, v=500, t=64):
        super().__init__()
        self.e = nn.Embedding(v, d)
        self.h, self.kv, self.hd = (h, kv, d // h)
        self.n1, self.n2, self.n = (RMS(d), RMS(d), RMS(d))
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False), nn.Linear(d, kv * self.hd, bias=False), nn.Linear(d, kv * self.hd, bias=False), nn.Linear(d, d, bias=False))
        self.w1, self.w2, self.w3 = (nn.Linear(d, 256, bias=False), nn.Linear(256, d, bias=False), nn.Linear(d, 256, bias=False))
        self.out = nn.Linear(d, v, bias=False)
        f = 1.0 / 10000 ** (torch.arange(0, self.hd, 2).float() / self.hd)
        a = torch.outer(torch.arange(t).float(), f)
        self.register_buffer("cos", a.cos(), persistent=False)
        self.register_buffer("sin", a.sin(), persistent=False)

    def rope(self, x, cos, sin):
        x1, x2 = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
        out = torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1)
        return out.flatten(-2).type_as(x)

    def attention(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.h, self.hd).transpose(1, 2)
        k = self.k(x).view(b, t, self.kv, self.hd).transpose(1, 2)
        v = self.v(x).view(b, t, self.kv, self.hd).transpose(1, 2)
        q, k = (self.rope(q, self.cos[:t], self.sin[:t]), self.rope(k, self.cos[:t], self.sin[:t]))
        k, v = (k.repeat_interleave(self.h // self.kv, dim=1), v.repeat_interleave(self.h // self.kv, dim=1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).contiguous().view(b, t, -1))

    def forward(self, x):
        h = self.e(x)
        h = h + self.attention(self.n1(h))
        y = self.n2(h)
        h = h + self.w2(F.silu(self.w1(y)) * self.w3(y))
        return self.out(self.n(h)).float()


class Alibi(nn.Module):
    def __init__(self, d=128, h=4):
        super().__init__()
        self.h = h
        self.qkv, self.o = (nn.Linear(d, 3 * d), nn.Linear(d, d))
        self.register_buffer("m", 2.0 ** (-8.0 * torch.arange(1, h + 1) / h))
        self.inp, self.head = (nn.Linear(16, d), nn.Linear(d, 10))

    def bias(self, t, dev):
        r = torch.arange(t, device=dev)
        rel = (r[None, :] - r[:, None]).clamp(max=0)
        return rel[None] * self.m[:, None, None]

    def forward(self, x):
        x = self.inp(x)
        b, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = [z.reshape(b, t, self.h, -1).transpose(1, 2) for z in (q, k, v)]
        a = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + self.bias(t, x.device)
        a = a + torch.triu(torch.full((t, t), float("-inf"), device=x.device), diagonal=1)
        y = F.softmax(a.float(), dim=-1).type_as(q) @ v
        return self.head((x + self.o(y.transpose(1, 2).flatten(2))).mean(1))


class S4D(nn.Module):
    def __init__(self, d=64, n=16):
        super().__init__()
        self.la = nn.Parameter(torch.log(0.5 * torch.ones(d, n)))
        self.im = nn.Parameter(torch.arange(n).float().repeat(d, 1))
        self.C = nn.Parameter(torch.randn(d, n, 2))
        self.ld = nn.Parameter(torch.zeros(d))
        self.D = nn.Parameter(torch.randn(d))
        self.inp, self.out = (nn.Linear(8, d), nn.Linear(d, 10))

    def kernel(self, L):
        dt = torch.exp(self.ld)
        a = -torch.exp(self.la) * dt[:, None]
        k = torch.exp(a.unsqueeze(-1) * torch.arange(L, device=a.device)) * torch.cos(self.im.unsqueeze(-1) * torch.arange(L, device=a.device))
        return (self.C[..., 0].unsqueeze(-1) * k).sum(1)

    def forward(self, x):
        u = self.inp(x).transpose(1, 2)
        L = u.shape[-1]
        k = self.kernel(L)
        y = F.conv1d(F.pad(u, (L - 1, 0)), k.flip(-1).unsqueeze(1), groups=u.shape[1]) + u * self.D.unsqueeze(-1)
        return self.out(F.gelu(y).mean(-1))


class RWKV(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.mk, self.mv, self.mr = (nn.Parameter(torch.ones(1, 1, d) * 0.5) for _ in range(3))
        self.w, self.u = (nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d)))
        self.k, self.v, self.r, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.inp, self.head = (nn.Embedding(100, d), nn.Linear(d, 100))

    def wkv(self, k, v):
        num, den, outs = (torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0]), [])
        dec = torch.exp(-torch.exp(self.w))
        for t in range(k.shape[1]):
            e = torch.exp(self.u + k[:, t])
            outs.append((num + e * v[:, t]) / (den + e))
            e = torch.exp(k[:, t])
            num, den = (dec * num + e * v[:, t], dec * den + e)
        return torch.stack(outs, dim=1)

    def forward(self, x):
        x = self.inp(x)
        xx = F.pad(x, (0, 0, 1, -1))
        k = self.k(x * self.mk + xx * (1 - self.mk))
        v = self.v(x * self.mv + xx * (1 - self.mv))
        r = self.r(x * self.mr + xx * (1 - self.mr))
        return self.head(x + self.o(torch.sigmoid(r) * self.wkv(k, v)))


class Swi(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.e = nn.Linear(16, d)
        self.blocks = nn.ModuleList((nn.TransformerEncoderLayer(d, 4, 128, 0.1, "gelu", batch_first=True, norm_first=True) for _ in range(2)))
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.zeros(1, 65, d))
        self.h = nn.Linear(d, 10)

    def forward(self, x):
        x = self.e(x)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
        mask = torch.zeros(x.shape[0], x.shape[1], dtype=torch.bool, device=x.device)
        for b in self.blocks:
            x = b(x, src_key_padding_mask=mask)
        return self.h(x[:, 0])


class Perf(nn.Module):
    def __init__(self, d=64, m=32):
        super().__init__()
        self.register_buffer("proj", torch.randn(m, d))
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.inp, self.head = (nn.Linear(16, d), nn.Linear(d, 10))

    def feat(self, x):
        x = x * x.shape[-1] ** (-0.25)
        u = x @ self.proj.t()
        n = (x ** 2).sum(-1, keepdim=True) / 2
        return torch.exp(u - n - u.amax(dim=-1, keepdim=True).detach()) + 0.0001

    def forward(self, x):
        x = self.inp(x)
        q, k, v = (self.feat(self.q(x)), self.feat(self.k(x)), self.v(x))
        kv = torch.einsum("bnm,bnd->bmd", k, v)
        z = 1 / torch.einsum("bnm,bm->bn", q, k.sum(1))
        y = torch.einsum("bnm,bmd,bn->bnd", q, kv, z)
        return self.head((x + self.o(y)).mean(1))


class Hyena(nn.Module):
    def __init__(self, d=64, L=64):
        super().__init__()
        self.p = nn.Linear(d, 3 * d)
        self.f = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, d))
        self.register_buffer("t", torch.linspace(0, 1, L).unsqueeze(-1) ** torch.arange(8))
        self.e, self.o = (nn.Embedding(100, d), nn.Linear(d, 100))

    def fftconv(self, u, k):
        n = 2 * u.shape[1]
        return torch.fft.irfft(torch.fft.rfft(u.float(), n=n, dim=1) * torch.fft.rfft(k.float(), n=n, dim=0), n=n, dim=1)[:, :u.shape[1]]

    def forward(self, x):
        v, a, c = self.p(self.e(x)).chunk(3, -1)
        y = self.fftconv(v * a, self.f(self.t)) * c
        return self.o(y)


class Memory(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.inp = nn.Linear(16, d)
        self.register_buffer("mem", torch.randn(1024, d))
        self.register_buffer("pe", torch.randn(1, 5000, d))
        self.o = nn.Linear(2 * d, 10)

    def read(self, q):
        a = F.softmax(q @ self.mem.t() / 8.0, dim=-1)
        return a @ self.mem

    def forward(self, x):
        h = self.inp(x) + self.pe[:, :x.shape[1]]
        r = self.read(h)
        return self.o(torch.cat([h, r], dim=-1)).mean(1)


def nonlocal_block(batch):
    return NonLocal(), (torch.randn(batch, 64, 16),)


def sasrec(batch):
    return SASRec(), (torch.zeros(batch, 50, dtype=torch.long), torch.zeros(batch, 50, dtype=torch.long), torch.zeros(batch, 50, dtype=torch.long))


def llama_own(batch):
    return Llama(), (torch.zeros(batch, 64, dtype=torch.long),)


def alibi(batch):
    return Alibi(), (torch.randn(batch, 48, 16),)


def s4d(batch):
    return S4D(), (torch.randn(batch, 64, 8),)


def rwkv(batch):
    return RWKV(), (torch.zeros(batch, 16, dtype=torch.long),)


def vit_masked(batch):
    return Swi(), (torch.randn(batch, 64, 16),)


def performer(batch):
    return Perf(), (torch.randn(batch, 64, 16),)


def hyena(batch):
    return Hyena(), (torch.zeros(batch, 64, dtype=torch.long),)


def memory(batch):
    return Memory(), (torch.randn(batch, 40, 16),)
