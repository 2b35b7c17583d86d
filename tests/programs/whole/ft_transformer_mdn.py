"""Demand forecasting, tabular branch: FT-Transformer with periodic numeric embeddings, multi-hash
embeddings for the high-cardinality ids, and a mixture-density head over log1p(sales)."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import List, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class FTConfig:
    n_numeric: int = 120
    cardinalities: List[int] = field(default_factory=lambda: [2, 4, 7, 12, 31, 53, 10, 24, 100, 365])
    n_hashed: int = 4
    hash_buckets: int = 4096
    n_hashes: int = 3
    d_token: int = 192
    n_blocks: int = 5
    n_heads: int = 8
    ffn_mult: float = 4 / 3
    attn_dropout: float = 0.2
    ffn_dropout: float = 0.1
    n_mixtures: int = 5
    n_freq: int = 16

    @property
    def d_hidden(self) -> int:
        return int(self.d_token * self.ffn_mult)


class PeriodicEmbedding(nn.Module):
    def __init__(self, cfg: FTConfig, sigma: float = 0.1):
        super().__init__()
        self.coef = nn.Parameter(torch.randn(cfg.n_numeric, cfg.n_freq) * sigma)
        self.weight = nn.Parameter(torch.empty(cfg.n_numeric, 2 * cfg.n_freq, cfg.d_token))
        self.bias = nn.Parameter(torch.zeros(cfg.n_numeric, cfg.d_token))
        nn.init.uniform_(self.weight, -1 / math.sqrt(2 * cfg.n_freq), 1 / math.sqrt(2 * cfg.n_freq))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        v = 2 * math.pi * self.coef[None] * x[..., None]
        v = torch.cat([torch.cos(v), torch.sin(v)], -1)
        return F.relu(torch.einsum("bnf,nfd->bnd", v, self.weight) + self.bias)


class HashEmbedding(nn.Module):
    """Each id is looked up in `n_hashes` tables' rows and combined with importance weights."""

    PRIME = 2_147_483_647

    def __init__(self, cfg: FTConfig):
        super().__init__()
        self.buckets = cfg.hash_buckets
        self.table = nn.Embedding(cfg.hash_buckets, cfg.d_token)
        self.importance = nn.Embedding(cfg.hash_buckets * 4, cfg.n_hashes)
        g = torch.Generator().manual_seed(17)
        self.register_buffer("a", torch.randint(1, 2**20, (cfg.n_hashed, cfg.n_hashes), generator=g))
        self.register_buffer("b", torch.randint(0, 2**20, (cfg.n_hashed, cfg.n_hashes), generator=g))
        nn.init.normal_(self.table.weight, std=0.02)
        nn.init.constant_(self.importance.weight, 1 / cfg.n_hashes)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h = (ids.unsqueeze(-1) * self.a + self.b) % self.PRIME % self.buckets
        p = self.importance(ids % self.importance.num_embeddings)
        return (self.table(h) * p.unsqueeze(-1)).sum(-2)


class ReGLU(nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        return a * F.relu(b)


class Attention(nn.Module):
    def __init__(self, d: int, n_heads: int, dropout: float):
        super().__init__()
        self.n_heads = n_heads
        self.W_q, self.W_k, self.W_v = (nn.Linear(d, d) for _ in range(3))
        self.W_out = nn.Linear(d, d)
        self.dropout = nn.Dropout(dropout)

    def _reshape(self, x):
        b, n, d = x.shape
        return (
            x.reshape(b, n, self.n_heads, d // self.n_heads)
            .transpose(1, 2)
            .reshape(b * self.n_heads, n, d // self.n_heads)
        )

    def forward(self, x_q, x_kv):
        q, k, v = self.W_q(x_q), self.W_k(x_kv), self.W_v(x_kv)
        bs, n_q = q.shape[0], q.shape[1]
        q, k, v = map(self._reshape, (q, k, v))
        attn = F.softmax(q @ k.transpose(1, 2) / math.sqrt(k.shape[-1]), dim=-1)
        x = self.dropout(attn) @ v
        x = x.reshape(bs, self.n_heads, n_q, -1).transpose(1, 2).reshape(bs, n_q, -1)
        return self.W_out(x)


class Block(nn.Module):
    def __init__(self, cfg: FTConfig, prenorm: bool = True):
        super().__init__()
        d = cfg.d_token
        self.norm0 = nn.LayerNorm(d) if prenorm else nn.Identity()
        self.attn = Attention(d, cfg.n_heads, cfg.attn_dropout)
        self.norm1 = nn.LayerNorm(d)
        self.ffn = nn.Sequential(
            nn.Linear(d, cfg.d_hidden * 2), ReGLU(), nn.Dropout(cfg.ffn_dropout), nn.Linear(cfg.d_hidden, d)
        )

    def forward(self, x, query: Optional[slice] = None):
        r = self.norm0(x)
        if query is not None:
            x, r_q = x[:, query], r[:, query]
        else:
            r_q = r
        x = x + self.attn(r_q, r)
        return x + self.ffn(self.norm1(x))


class MDNHead(nn.Module):
    def __init__(self, d: int, k: int):
        super().__init__()
        self.proj = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, 3 * k))

    def forward(self, x):
        pi, mu, raw = self.proj(x).chunk(3, -1)
        return F.log_softmax(pi, -1), mu, F.softplus(raw) + 1e-3

    @staticmethod
    def nll(params, y):
        log_pi, mu, sigma = params
        z = (y.unsqueeze(-1) - mu) / sigma
        logp = -0.5 * z**2 - sigma.log() - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(log_pi + logp, dim=-1)


class Model(nn.Module):
    def __init__(self, cfg: Optional[FTConfig] = None):
        super().__init__()
        self.cfg = cfg = cfg or FTConfig()
        self.num = PeriodicEmbedding(cfg)
        offsets = torch.tensor([0] + cfg.cardinalities[:-1]).cumsum(0)
        self.register_buffer("category_offsets", offsets)
        self.cat = nn.Embedding(sum(cfg.cardinalities), cfg.d_token)
        self.hashed = HashEmbedding(cfg)
        self.cls = nn.Parameter(torch.zeros(cfg.d_token).uniform_(-0.07, 0.07))
        self.blocks = nn.ModuleList([Block(cfg, prenorm=i > 0) for i in range(cfg.n_blocks)])
        self.head = MDNHead(cfg.d_token, cfg.n_mixtures)

    def forward(self, x_num, x_cat, x_id, y):
        tokens = [
            self.cls.expand(x_num.size(0), 1, -1),
            self.num(x_num),
            self.cat(x_cat + self.category_offsets[None]),
            self.hashed(x_id),
        ]
        x = torch.cat(tokens, dim=1)
        for i, block in enumerate(self.blocks):
            x = block(x, slice(0, 1) if i == len(self.blocks) - 1 else None)
        params = self.head(x[:, 0])
        nll = self.head.nll(params, torch.log1p(y))
        log_pi, mu, _ = params
        return {"loss": nll.mean(), "nll": nll.detach(), "pred": torch.expm1((log_pi.exp() * mu).sum(-1))}


def inputs(batch: int):
    cfg = FTConfig()
    cats = torch.stack([torch.randint(0, c, (batch,)) for c in cfg.cardinalities], dim=1)
    return torch.randn(batch, cfg.n_numeric), cats, torch.randint(0, 10**9, (batch, cfg.n_hashed)), torch.rand(batch) * 20
