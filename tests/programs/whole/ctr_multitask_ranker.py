"""Feed ranker: one row is a request (user, context, history) with a slate of candidates.

DIN attention over the history, FM + CIN + DCN-v2 on the fields, two task towers
(click, like) + watch-time regression, homoscedastic uncertainty weighting.
"""
from typing import Dict, List, Tuple

import torch
from torch import nn
import torch.nn.functional as F

EMB = 24
SLATE = 30
HIST = 50

USER_FIELDS: Dict[str, int] = {"user_id": 20000, "country": 200, "device": 50, "age_bucket": 12, "hour": 24, "network": 6}
ITEM_FIELDS: Dict[str, int] = {"item_id": 30000, "author_id": 8000, "category": 300, "lang": 60, "duration_bucket": 20}


class Dice(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-8):
        super().__init__()
        self.bn = nn.BatchNorm1d(dim, eps=eps, affine=False)
        self.alpha = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        p = torch.sigmoid(self.bn(x))
        return (p * x + (1 - p) * self.alpha * x).reshape(shape)


class TargetAttention(nn.Module):
    def __init__(self, dim: int, hidden: Tuple[int, ...] = (64, 32)):
        super().__init__()
        layers: List[nn.Module] = []
        prev = 4 * dim
        for h in hidden:
            layers += [nn.Linear(prev, h), Dice(h)]
            prev = h
        layers.append(nn.Linear(prev, 1))
        self.score = nn.Sequential(*layers)

    def forward(self, query, keys, mask):
        # query B,S,D   keys B,H,D   mask B,H
        q = query.unsqueeze(2).expand(-1, -1, keys.size(1), -1)
        k = keys.unsqueeze(1).expand(-1, query.size(1), -1, -1)
        s = self.score(torch.cat([q, k, q - k, q * k], dim=-1)).squeeze(-1)
        s = torch.where(mask.unsqueeze(1), s, torch.zeros_like(s))     # no softmax, as in the paper
        return torch.matmul(s, keys)


class CrossNetMix(nn.Module):
    """DCN-v2 with low-rank experts."""

    def __init__(self, dim: int, layers: int = 3, rank: int = 32, experts: int = 4):
        super().__init__()
        self.U = nn.ParameterList([nn.Parameter(nn.init.xavier_normal_(torch.empty(experts, dim, rank))) for _ in range(layers)])
        self.V = nn.ParameterList([nn.Parameter(nn.init.xavier_normal_(torch.empty(experts, dim, rank))) for _ in range(layers)])
        self.C = nn.ParameterList([nn.Parameter(nn.init.xavier_normal_(torch.empty(experts, rank, rank))) for _ in range(layers)])
        self.bias = nn.ParameterList([nn.Parameter(torch.zeros(dim)) for _ in range(layers)])
        self.gate = nn.Linear(dim, experts, bias=False)

    def forward(self, x0):
        x = x0
        for u, v, c, b in zip(self.U, self.V, self.C, self.bias):
            g = self.gate(x).softmax(-1)
            h = torch.tanh(torch.einsum("nd,edr->ner", x, v))
            h = torch.tanh(torch.einsum("ner,ers->nes", h, c))
            h = torch.einsum("nes,eds->ned", h, u) + b
            x = x + torch.einsum("ne,ned->nd", g, x0.unsqueeze(1) * h)
        return x


class CIN(nn.Module):
    def __init__(self, fields: int, sizes=(64, 64)):
        super().__init__()
        self.convs = nn.ModuleList()
        prev, self.out_dim = fields, 0
        for i, s in enumerate(sizes):
            self.convs.append(nn.Conv1d(prev * fields, s, 1))
            last = i == len(sizes) - 1
            self.out_dim += s if last else s // 2
            prev = s // 2

    def forward(self, x):
        h, outs = x, []
        for i, conv in enumerate(self.convs):
            z = (h.unsqueeze(2) * x.unsqueeze(1)).flatten(1, 2)
            z = conv(z).relu_()
            if i < len(self.convs) - 1:
                h, z = z.chunk(2, dim=1)
            outs.append(z)
        return torch.cat(outs, 1).sum(-1)


def fm(x):
    return 0.5 * (x.sum(1).pow(2) - x.pow(2).sum(1)).sum(-1, keepdim=True)


def mlp(dims, drop=0.1):
    mods = []
    for a, b in zip(dims[:-1], dims[1:]):
        mods.extend((nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(inplace=True), nn.Dropout(drop)))
    return nn.Sequential(*mods)


class Model(nn.Module):
    TASKS = ("click", "like", "watch")

    def __init__(self):
        super().__init__()
        self.user_emb = nn.ModuleDict({k: nn.Embedding(v, EMB) for k, v in USER_FIELDS.items()})
        self.item_emb = nn.ModuleDict({k: nn.Embedding(v, EMB, padding_idx=0) for k, v in ITEM_FIELDS.items()})
        for m in self.modules():
            if isinstance(m, nn.Embedding):
                nn.init.normal_(m.weight, std=1e-2)
        n_fields = len(USER_FIELDS) + len(ITEM_FIELDS) + 1
        self.din = TargetAttention(2 * EMB)
        self.din_proj = nn.Linear(2 * EMB, EMB)
        self.cross = CrossNetMix(n_fields * EMB)
        self.cin = CIN(n_fields)
        self.deep = mlp([n_fields * EMB, 512, 256])
        width = n_fields * EMB + self.cin.out_dim + 256 + 1
        self.towers = nn.ModuleDict({t: nn.Sequential(mlp([width, 128]), nn.Linear(128, 1)) for t in self.TASKS})
        self.log_vars = nn.ParameterDict({t: nn.Parameter(torch.zeros(())) for t in self.TASKS})

    def forward(self, user, slate, history, labels):
        B, S, _ = slate.shape
        u = [self.user_emb[name](user[:, i]) for i, name in enumerate(USER_FIELDS)]
        it = [self.item_emb[name](slate[..., i]) for i, name in enumerate(ITEM_FIELDS)]

        hist = torch.cat([self.item_emb["item_id"](history[..., 0]), self.item_emb["category"](history[..., 1])], -1)
        target = torch.cat([it[0], it[2]], dim=-1)
        interest = self.din_proj(self.din(target, hist, history[..., 0] != 0))

        u = torch.stack(u, 1)[:, None].expand(B, S, len(u), EMB)
        fields = torch.cat([u, torch.stack(it + [interest], dim=2)], dim=2).reshape(B * S, -1, EMB)
        flat = fields.flatten(1)
        feats = torch.cat([self.cross(flat), self.cin(fields), self.deep(flat), fm(fields)], dim=1)
        out = {t: tower(feats).view(B, S) for t, tower in self.towers.items()}

        click, like, watch = labels.unbind(-1)
        losses = {
            "click": F.binary_cross_entropy_with_logits(out["click"], click),
            "like": (F.binary_cross_entropy_with_logits(out["like"], like, reduction="none") * click).sum() / (click.sum() + 1),
            "watch": F.huber_loss(out["watch"], watch, delta=2.0),
        }
        total = sum(torch.exp(-self.log_vars[t]) * l + 0.5 * self.log_vars[t] for t, l in losses.items())
        return {"loss": total, **{f"loss_{t}": l.detach() for t, l in losses.items()}}


def inputs(batch):
    user = torch.stack([torch.randint(n, (batch,)) for n in USER_FIELDS.values()], -1)
    slate = torch.stack([torch.randint(1, n, (batch, SLATE)) for n in ITEM_FIELDS.values()], -1)
    hist = torch.stack([torch.randint(0, 30000, (batch, HIST)), torch.randint(0, 300, (batch, HIST))], -1)
    labels = torch.cat([torch.randint(0, 2, (batch, SLATE, 2)).float(), torch.rand(batch, SLATE, 1) * 3], -1)
    return user, slate, hist, labels
