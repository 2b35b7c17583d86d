"""Bi-encoder for dense passage retrieval (DPR / E5 like), hard negatives + in-batch negatives."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Dict

import torch
from torch import nn
import torch.nn.functional as F


@dataclass
class EncoderConfig:
    vocab_size: int = 20000
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    ffn: int = 1024
    dropout: float = 0.1
    max_len: int = 128
    pad_id: int = 0


@dataclass
class RetrieverConfig:
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    proj_dim: int = 128
    pooling: str = "mean"
    init_temperature: float = 0.05
    margin_weight: float = 0.2
    symmetric: bool = True


class PoolerMixin:
    """masked pooling helpers"""

    def mean_pool(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        m = mask.unsqueeze(-1).to(states.dtype)
        return (states * m).sum(dim=1) / m.sum(dim=1).clamp(min=1e-6)

    def cls_pool(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return states[:, 0]


class TextEncoder(PoolerMixin, nn.Module):
    def __init__(self, cfg: EncoderConfig, pooling: str):
        super().__init__()
        self.cfg = cfg
        self.tok = nn.Embedding(cfg.vocab_size, cfg.hidden, padding_idx=cfg.pad_id)
        self.pos = nn.Parameter(torch.zeros(1, cfg.max_len, cfg.hidden))
        nn.init.trunc_normal_(self.pos, std=0.02)
        layer = nn.TransformerEncoderLayer(
            d_model=cfg.hidden,
            nhead=cfg.heads,
            dim_feedforward=cfg.ffn,
            dropout=cfg.dropout,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(
            layer, cfg.layers, norm=nn.LayerNorm(cfg.hidden), enable_nested_tensor=False
        )
        self.drop = nn.Dropout(cfg.dropout)
        self.pool = {"mean": self.mean_pool, "cls": self.cls_pool}[pooling]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = ids.ne(self.cfg.pad_id)
        x = self.tok(ids) * math.sqrt(self.cfg.hidden)
        x = self.drop(x + self.pos[:, : ids.size(1)])
        x = self.layers(x, src_key_padding_mask=~mask)
        return self.pool(x, mask)


class ProjectionHead(nn.Module):
    def __init__(self, d_in: int, d_out: int, dropout: float = 0.1):
        super().__init__()
        self.projection = nn.Linear(d_in, d_out)
        self.gelu = nn.GELU()
        self.fc = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.layer_norm = nn.LayerNorm(d_out)

    def forward(self, x):
        projected = self.projection(x)
        x = self.gelu(projected)
        x = self.fc(x)
        x = self.dropout(x)
        x = x + projected
        return self.layer_norm(x)


class Model(nn.Module):
    def __init__(self, cfg: RetrieverConfig | None = None):
        super().__init__()
        cfg = cfg or RetrieverConfig()
        self.cfg = cfg
        self.query_encoder = TextEncoder(cfg.encoder, cfg.pooling)
        self.passage_encoder = TextEncoder(cfg.encoder, cfg.pooling)
        # word embeddings are shared by the towers, everything else is separate
        self.passage_encoder.tok = self.query_encoder.tok
        self.query_proj = ProjectionHead(cfg.encoder.hidden, cfg.proj_dim)
        self.passage_proj = ProjectionHead(cfg.encoder.hidden, cfg.proj_dim)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1.0 / cfg.init_temperature)))

    def encode_query(self, ids):
        return F.normalize(self.query_proj(self.query_encoder(ids)), dim=-1)

    def encode_passage(self, ids):
        return F.normalize(self.passage_proj(self.passage_encoder(ids)), dim=-1)

    def forward(
        self,
        query_ids: torch.Tensor,
        positive_ids: torch.Tensor,
        negative_ids: torch.Tensor,
        teacher_margin: torch.Tensor,
    ) -> Dict[str, torch.Tensor]:
        """
        query_ids      (B, Lq)
        positive_ids   (B, Lp)
        negative_ids   (B, K, Lp)   mined with BM25
        teacher_margin (B, K)       cross-encoder score(pos) - score(neg)
        """
        bsz, k, lp = negative_ids.shape
        q = self.encode_query(query_ids)
        # one pass for the positives and all the negatives
        passages = torch.cat([positive_ids, negative_ids.reshape(bsz * k, lp)], dim=0)
        p_all = self.encode_passage(passages)
        p = p_all[:bsz]
        n = p_all[bsz:].view(bsz, k, -1)

        scale = self.logit_scale.clamp(max=math.log(100.0)).exp()
        in_batch = q @ p.t()                                  # (B, B)
        hard = q @ n.flatten(0, 1).t()                        # (B, B*K): also other queries' negatives

        # false-negative filter: identical passage ids inside the batch
        with torch.no_grad():
            same = (positive_ids.unsqueeze(0) == positive_ids.unsqueeze(1)).all(dim=-1)
            eye = torch.eye(bsz, dtype=torch.bool, device=q.device)
            dup = same & ~eye
        logits = torch.cat([in_batch.masked_fill(dup, -1e4), hard], dim=1) * scale
        labels = torch.arange(bsz, device=q.device)
        loss_q = F.cross_entropy(logits, labels)
        if self.cfg.symmetric:
            loss_p = F.cross_entropy(in_batch.masked_fill(dup, -1e4).t() * scale, labels)
            nce = 0.5 * (loss_q + loss_p)
        else:
            nce = loss_q

        pos_score = torch.diagonal(in_batch).unsqueeze(1)
        neg_score = torch.einsum("bd,bkd->bk", q, n)
        margin = F.mse_loss((pos_score - neg_score) * scale, teacher_margin)

        with torch.no_grad():
            acc = (logits.argmax(dim=1) == labels).float().mean()
            rank = (logits > logits.gather(1, labels.unsqueeze(1))).sum(dim=1) + 1
            mrr = (1.0 / rank.float()).mean()
        return {
            "loss": nce + self.cfg.margin_weight * margin,
            "nce": nce.detach(),
            "margin": margin.detach(),
            "accuracy": acc,
            "mrr": mrr,
            "query_embedding": q,
        }


def inputs(batch):
    q = torch.randint(1, 20000, (batch, 32))
    q[1:, 20:] = 0
    pos = torch.randint(1, 20000, (batch, 128))
    neg = torch.randint(1, 20000, (batch, 3, 128))
    neg[:, :, 110:] = 0
    return q, pos, neg, torch.rand(batch, 3) * 5
