"""Temporal Fusion Transformer (Lim et al., 2019) for retail demand forecasting.

Inputs are split into static, known (past + future) and observed (past only) variables, each either
categorical or continuous, described by a list of ``Var``.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Var:
    name: str
    kind: str  # "static" | "known" | "observed"
    cardinality: int = 0  # 0 -> continuous


def _default_vars() -> List[Var]:
    return [
        Var("store", "static", 54), Var("item", "static", 4100), Var("family", "static", 33),
        Var("city", "static", 22), Var("cluster", "static", 17),
        Var("onpromo", "known"), Var("dow", "known", 7), Var("month", "known", 12),
        Var("dom", "known"), Var("holiday", "known", 6),
        Var("log_sales", "observed"), Var("transactions", "observed"), Var("oil", "observed"),
    ]


@dataclass
class TFTConfig:
    hidden: int = 160
    heads: int = 4
    dropout: float = 0.1
    encoder_steps: int = 90
    horizon: int = 30
    lstm_layers: int = 2
    quantiles: Tuple[float, ...] = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
    variables: List[Var] = field(default_factory=_default_vars)

    def of(self, kind: str) -> List[Var]:
        return [v for v in self.variables if v.kind == kind]


class GLU(nn.Module):
    def __init__(self, d_in: int, d_out: int, dropout: float):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(d_in, d_out * 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.fc(self.drop(x)), dim=-1)


class GateAddNorm(nn.Module):
    def __init__(self, d: int, dropout: float):
        super().__init__()
        self.glu = GLU(d, d, dropout)
        self.norm = nn.LayerNorm(d)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.norm(self.glu(x) + skip)


class GRN(nn.Module):
    """Gated residual network, eq. 2-5."""

    def __init__(self, d_in: int, d_hidden: int, d_out: int, dropout: float, d_ctx: Optional[int] = None):
        super().__init__()
        self.skip = nn.Linear(d_in, d_out) if d_in != d_out else nn.Identity()
        self.fc1 = nn.Linear(d_in, d_hidden)
        self.ctx = nn.Linear(d_ctx, d_hidden, bias=False) if d_ctx is not None else None
        self.fc2 = nn.Linear(d_hidden, d_hidden)
        self.glu = GLU(d_hidden, d_out, dropout)
        self.norm = nn.LayerNorm(d_out)

    def forward(self, x: Tensor, c: Optional[Tensor] = None) -> Tensor:
        h = self.fc1(x)
        if self.ctx is not None and c is not None:
            h = h + self.ctx(c)
        h = self.fc2(F.elu(h))
        return self.norm(self.glu(h) + self.skip(x))


class VariableSelection(nn.Module):
    def __init__(self, names: List[str], d: int, dropout: float, d_ctx: Optional[int] = None):
        super().__init__()
        self.names = names
        self.grns = nn.ModuleDict({n: GRN(d, d, d, dropout) for n in names})
        self.weight_grn = GRN(d * len(names), d, len(names), dropout, d_ctx)

    def forward(self, embs: Dict[str, Tensor], c: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        flat = torch.cat([embs[n] for n in self.names], dim=-1)
        w = torch.softmax(self.weight_grn(flat, c), dim=-1)
        h = torch.stack([self.grns[n](embs[n]) for n in self.names], dim=-1)
        return (h * w.unsqueeze(-2)).sum(-1), w


class VariableEmbedding(nn.Module):
    """One embedding table or one scalar projection for each variable."""

    def __init__(self, variables: List[Var], d: int):
        super().__init__()
        self.variables = variables
        self.maps = nn.ModuleDict({
            v.name: nn.Embedding(v.cardinality, d) if v.cardinality else nn.Linear(1, d) for v in variables
        })

    def forward(self, cat: Tensor, cont: Optional[Tensor]) -> Dict[str, Tensor]:
        out: Dict[str, Tensor] = {}
        i = j = 0
        for v in self.variables:
            if v.cardinality:
                out[v.name] = self.maps[v.name](cat[..., i])
                i += 1
            else:
                out[v.name] = self.maps[v.name](cont[..., j:j + 1])
                j += 1
        return out


class InterpretableAttention(nn.Module):
    """Multi-head attention whose heads share the value projection, so that the weights are additive."""

    def __init__(self, d: int, heads: int, dropout: float):
        super().__init__()
        self.h, self.dk = heads, d // heads
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, d)
        self.v = nn.Linear(d, self.dk)
        self.out = nn.Linear(self.dk, d, bias=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, q: Tensor, kv: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        b, tq, tk = q.size(0), q.size(1), kv.size(1)
        qs = self.q(q).view(b, tq, self.h, self.dk).transpose(1, 2)
        ks = self.k(kv).view(b, tk, self.h, self.dk).transpose(1, 2)
        score = qs @ ks.transpose(-1, -2) / self.dk ** 0.5
        attn = self.drop(torch.softmax(score.masked_fill(mask, -1e9), dim=-1))
        mean_attn = attn.mean(1)
        return self.out(mean_attn @ self.v(kv)), mean_attn


class QuantileLoss(nn.Module):
    def __init__(self, quantiles: Tuple[float, ...]):
        super().__init__()
        self.register_buffer("q", torch.tensor(quantiles))

    def forward(self, pred: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        err = target.unsqueeze(-1) - pred
        loss = torch.maximum(self.q * err, (self.q - 1) * err).sum(-1)
        return (loss * weight).sum() / weight.sum().clamp(min=1.0)


class Model(nn.Module):
    def __init__(self, cfg: Optional[TFTConfig] = None):
        super().__init__()
        self.cfg = cfg = cfg or TFTConfig()
        d, p = cfg.hidden, cfg.dropout
        static, known, observed = cfg.of("static"), cfg.of("known"), cfg.of("observed")
        self.emb_static = VariableEmbedding(static, d)
        self.emb_known = VariableEmbedding(known, d)
        self.emb_observed = VariableEmbedding(observed, d)

        self.vsn_static = VariableSelection([v.name for v in static], d, p)
        self.vsn_past = VariableSelection([v.name for v in known + observed], d, p, d)
        self.vsn_future = VariableSelection([v.name for v in known], d, p, d)
        self.context = nn.ModuleDict({k: GRN(d, d, d, p) for k in ("select", "enrich", "h", "c")})

        self.encoder = nn.LSTM(d, d, cfg.lstm_layers, batch_first=True, dropout=p)
        self.decoder = nn.LSTM(d, d, cfg.lstm_layers, batch_first=True, dropout=p)
        self.post_lstm = GateAddNorm(d, p)
        self.enrich = GRN(d, d, d, p, d)
        self.attn = InterpretableAttention(d, cfg.heads, p)
        self.post_attn = GateAddNorm(d, p)
        self.ff = GRN(d, d, d, p)
        self.post_ff = GateAddNorm(d, p)
        self.head = nn.Linear(d, len(cfg.quantiles))
        self.loss = QuantileLoss(cfg.quantiles)

        total = cfg.encoder_steps + cfg.horizon
        mask = torch.ones(total, total, dtype=torch.bool).triu(1)[cfg.encoder_steps:]
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, static_cat: Tensor, known_cat: Tensor, known_cont: Tensor, observed_cont: Tensor,
                target: Tensor, weight: Tensor) -> Dict[str, Tensor]:
        cfg, n = self.cfg, self.cfg.encoder_steps
        known = self.emb_known(known_cat, known_cont)
        observed = self.emb_observed(known_cat, observed_cont)
        s, w_static = self.vsn_static(self.emb_static(static_cat, None))

        c_sel = self.context["select"](s).unsqueeze(1)
        past = {k: v[:, :n] for k, v in known.items()}
        past.update(observed)
        future = {k: v[:, n:] for k, v in known.items()}
        x_past, w_past = self.vsn_past(past, c_sel)
        x_future, w_future = self.vsn_future(future, c_sel)

        h0 = self.context["h"](s).unsqueeze(0).expand(cfg.lstm_layers, -1, -1).contiguous()
        c0 = self.context["c"](s).unsqueeze(0).expand(cfg.lstm_layers, -1, -1).contiguous()
        enc, state = self.encoder(x_past, (h0, c0))
        state = tuple(t.reshape(cfg.lstm_layers, -1, cfg.hidden) for t in state)
        dec, _ = self.decoder(x_future, state)
        temporal = self.post_lstm(torch.cat([enc, dec], 1), torch.cat([x_past, x_future], 1))

        enriched = self.enrich(temporal, self.context["enrich"](s).unsqueeze(1))
        a, attn = self.attn(enriched[:, n:], enriched, self.mask)
        x = self.post_attn(a, enriched[:, n:])
        x = self.post_ff(self.ff(x), temporal[:, n:])
        q = self.head(x)
        return {
            "loss": self.loss(q, target, weight),
            "quantiles": q,
            "attention": attn.detach(),
            "w_static": w_static.detach(),
            "w_past": w_past.mean(1).detach(),
            "w_future": w_future.mean(1).detach(),
        }


def inputs(batch: int):
    cfg = TFTConfig()
    t = cfg.encoder_steps + cfg.horizon

    def cats(kind, *lead):
        cols = [torch.randint(0, v.cardinality, lead) for v in cfg.of(kind) if v.cardinality]
        return torch.stack(cols, -1)

    return (cats("static", batch), cats("known", batch, t), torch.randn(batch, t, 2),
            torch.randn(batch, cfg.encoder_steps, 3), torch.randn(batch, cfg.horizon),
            torch.ones(batch, cfg.horizon))
