"""Graphormer-style molecular property regression.

Everything is dense: atoms are padded to ``max_nodes`` and bonds come as an (N, N) matrix of
bond ids (0 = no bond).  Shortest path distances and multi-hop edge encodings are computed on the fly.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Dict, List, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


@dataclass
class GraphormerConfig:
    atom_vocab: List[int] = field(default_factory=lambda: [120, 12, 12, 8, 8])
    bond_vocab: int = 16
    max_nodes: int = 36
    max_degree: int = 12
    max_dist: int = 6
    dim: int = 320
    ffn_dim: int = 640
    heads: int = 16
    layers: int = 6
    dropout: float = 0.1
    attn_dropout: float = 0.1
    drop_path: float = 0.1


def init_bert(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            module.bias.data.zero_()
    elif isinstance(module, nn.Embedding):
        module.weight.data.normal_(mean=0.0, std=0.02)
        if module.padding_idx is not None:
            module.weight.data[module.padding_idx].zero_()


@torch.no_grad()
def shortest_paths(adj: Tensor, max_dist: int) -> Tensor:
    """BFS by repeated boolean matmul. Returns ids in [0, max_dist + 1]; the last one is 'unreachable'."""
    n = adj.size(-1)
    eye = torch.eye(n, device=adj.device, dtype=adj.dtype).expand_as(adj)
    dist = torch.full_like(adj, max_dist + 1)
    dist = torch.where(eye > 0, torch.zeros_like(dist), dist)
    reach = eye
    for d in range(1, max_dist + 1):
        nxt = (torch.bmm(reach, adj) + reach).clamp_(max=1.0)
        newly = (nxt > 0) & (reach == 0)
        dist = dist.masked_fill(newly, float(d))
        reach = nxt
    return dist.long()


class DropPath(nn.Module):
    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if self.p == 0.0 or not self.training:
            return x
        keep = 1.0 - self.p
        mask = torch.empty(x.shape[0], 1, 1, device=x.device, dtype=x.dtype).bernoulli_(keep)
        return x * mask.div_(keep)


class AtomEncoder(nn.Module):
    def __init__(self, cfg: GraphormerConfig):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(v, cfg.dim, padding_idx=0) for v in cfg.atom_vocab)
        self.degree = nn.Embedding(cfg.max_degree + 1, cfg.dim)
        self.graph_token = nn.Parameter(torch.randn(1, 1, cfg.dim) * 0.02)
        self.max_degree = cfg.max_degree

    def forward(self, atoms: Tensor, adj: Tensor) -> Tensor:
        h = self.degree(adj.sum(-1).long().clamp(max=self.max_degree))
        for i, table in enumerate(self.tables):
            h = h + table(atoms[..., i])
        token = self.graph_token.expand(h.size(0), -1, -1)
        return torch.cat([token, h], dim=1)


class StructuralBias(nn.Module):
    """Spatial encoding + edge encoding + virtual distance of the graph token."""

    def __init__(self, cfg: GraphormerConfig):
        super().__init__()
        self.cfg = cfg
        self.spatial = nn.Embedding(cfg.max_dist + 2, cfg.heads)
        self.edge = nn.Embedding(cfg.bond_vocab, cfg.heads, padding_idx=0)
        self.edge_dis = nn.Parameter(torch.randn(cfg.max_dist, cfg.heads, cfg.heads) * 0.02)
        self.token_dist = nn.Parameter(torch.zeros(cfg.heads))

    def multi_hop(self, bonds: Tensor, adj: Tensor, dist: Tensor) -> Tensor:
        e = self.edge(bonds)                                    # B N N H
        trans = adj / adj.sum(-1, keepdim=True).clamp(min=1.0)  # random walk
        acc, hop = 0.0, e
        for k in range(self.cfg.max_dist):
            acc = acc + torch.einsum("bijh,hg->bijg", hop, self.edge_dis[k])
            hop = torch.einsum("bik,bkjh->bijh", trans, hop)
        return acc / dist.clamp(min=1).unsqueeze(-1)

    def forward(self, bonds: Tensor, adj: Tensor, pad: Tensor) -> Tensor:
        dist = shortest_paths(adj, self.cfg.max_dist)
        inner = self.spatial(dist) + self.multi_hop(bonds, adj, dist)
        inner = inner.permute(0, 3, 1, 2)
        b, h, n, _ = inner.shape
        bias = inner.new_zeros(b, h, n + 1, n + 1)
        bias[:, :, 1:, 1:] = inner
        t = self.token_dist.view(1, h, 1)
        bias[:, :, 1:, 0] += t
        bias[:, :, 0, :] += t
        full_pad = F.pad(pad, (1, 0), value=False)
        return bias.masked_fill(full_pad[:, None, None, :], -1e9)


class BiasedAttention(nn.Module):
    def __init__(self, cfg: GraphormerConfig):
        super().__init__()
        self.h, self.hd = cfg.heads, cfg.dim // cfg.heads
        self.in_proj = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.out_proj = nn.Linear(cfg.dim, cfg.dim)
        self.drop = nn.Dropout(cfg.attn_dropout)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.in_proj(x).view(b, n, 3, self.h, self.hd).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (1.0 / math.sqrt(self.hd))) @ k.transpose(-2, -1) + bias
        probs = self.drop(scores.softmax(dim=-1))
        return self.out_proj((probs @ v).transpose(1, 2).reshape(b, n, d))


class GraphormerLayer(nn.Module):
    def __init__(self, cfg: GraphormerConfig, drop_path: float):
        super().__init__()
        self.ln_attn = nn.LayerNorm(cfg.dim)
        self.attn = BiasedAttention(cfg)
        self.ln_ffn = nn.LayerNorm(cfg.dim)
        self.ffn = nn.Sequential(nn.Linear(cfg.dim, cfg.ffn_dim), nn.GELU(), nn.Dropout(cfg.dropout),
                                 nn.Linear(cfg.ffn_dim, cfg.dim), nn.Dropout(cfg.dropout))
        self.path = DropPath(drop_path)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = x + self.path(self.attn(self.ln_attn(x), bias))
        return x + self.path(self.ffn(self.ln_ffn(x)))


class Model(nn.Module):
    def __init__(self, cfg: GraphormerConfig | None = None):
        super().__init__()
        self.cfg = cfg = cfg or GraphormerConfig()
        self.atoms = AtomEncoder(cfg)
        self.bias = StructuralBias(cfg)
        rates = torch.linspace(0, cfg.drop_path, cfg.layers).tolist()
        self.layers = nn.ModuleList(GraphormerLayer(cfg, r) for r in rates)
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Sequential(nn.Linear(cfg.dim, cfg.dim), nn.GELU(), nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, 1))
        # denoising auxiliary task: predict the atom type of masked atoms
        self.mask_embed = nn.Parameter(torch.zeros(cfg.dim))
        self.atom_head = nn.Linear(cfg.dim, cfg.atom_vocab[0])
        self.apply(init_bert)

    def forward(self, atoms: Tensor, bonds: Tensor, target: Tensor) -> Dict[str, Tensor]:
        pad = atoms[..., 0] == 0
        bonds = torch.maximum(bonds, bonds.transpose(1, 2))
        adj = (bonds > 0).float()
        x = self.atoms(atoms, adj)
        corrupt = (torch.rand_like(pad, dtype=torch.float) < 0.15) & ~pad
        full = F.pad(corrupt, (1, 0), value=False).unsqueeze(-1)
        x = torch.where(full, self.mask_embed.to(x.dtype), x)
        bias = self.bias(bonds, adj, pad)
        for layer in self.layers:
            x = layer(x, bias)
        x = self.norm(x)
        pred = self.head(x[:, 0]).squeeze(-1)
        ce = F.cross_entropy(self.atom_head(x[:, 1:]).transpose(1, 2), atoms[..., 0], reduction="none")
        aux = (ce * corrupt).sum() / corrupt.sum().clamp(min=1)
        loss = F.l1_loss(pred, target)
        return {"loss": loss + 0.2 * aux, "mae": loss.detach(), "pred": pred}


def inputs(batch: int) -> Tuple[Tensor, Tensor, Tensor]:
    cfg = GraphormerConfig()
    n = cfg.max_nodes
    atoms = torch.stack([torch.randint(1, v, (batch, n)) for v in cfg.atom_vocab], dim=-1)
    atoms[:, 30:] = 0
    bonds = torch.randint(1, cfg.bond_vocab, (batch, n, n)) * (torch.rand(batch, n, n) < 0.05)
    bonds[:, 30:] = 0
    bonds[:, :, 30:] = 0
    return atoms, bonds, torch.randn(batch)
