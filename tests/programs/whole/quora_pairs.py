#!/usr/bin/env python
# coding: utf-8
# # Quora question pairs - exp 037
# transformer tower + textcnn tower, concat -> projection, InfoNCE over in-batch negatives
# + BCE on the pair + small aux task (question type)   LB 0.1402

import torch
import torch.nn as nn
import torch.nn.functional as F

class CFG:
    vocab = 10000
    max_len = 48
    emb_dim = 256
    nhead = 8
    nlayers = 4
    n_prompt = 8
    filters = [2, 3, 4, 5]
    n_filters = 96
    proj_dim = 128
    n_types = 6
    tau = 0.07
    pad = 0
    dropout = 0.1
    w = {'nce': 1.0, 'bce': 1.0, 'qtype': 0.3}


class TransformerTower(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.prompt = nn.Parameter(torch.randn(1, cfg.n_prompt, cfg.emb_dim) * .02)
        self.pos = nn.Parameter(torch.zeros(1, cfg.max_len, cfg.emb_dim))
        layer = nn.TransformerEncoderLayer(d_model=cfg.emb_dim, nhead=cfg.nhead, dim_feedforward=cfg.emb_dim*4,
                                           dropout=cfg.dropout, activation='gelu', batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, cfg.nlayers, enable_nested_tensor=False)

    def forward(self, e, pad_mask):
        bs = e.shape[0]
        e = e + self.pos[:, :e.shape[1]]
        p = self.prompt.expand(bs, -1, -1)
        e = torch.cat([p, e], 1)
        m = F.pad(pad_mask, (p.shape[1], 0), value=False)
        h = self.enc(e, src_key_padding_mask=m)
        # masked mean pool
        keep = (~m).unsqueeze(-1).float()
        return (h * keep).sum(1) / keep.sum(1).clamp(min=1e-9)


class TextCNNTower(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.sd = nn.Dropout2d(0.2)
        self.convs = nn.ModuleList([nn.Conv1d(cfg.emb_dim, cfg.n_filters, k) for k in cfg.filters])
        self.bns = nn.ModuleList([nn.BatchNorm1d(cfg.n_filters) for _ in cfg.filters])

    def spatial_dropout(self, x):
        x = x.permute(0, 2, 1).unsqueeze(3)
        return self.sd(x).squeeze(3)

    def forward(self, e):
        e = self.spatial_dropout(e)
        outs = [F.relu(bn(conv(e))) for conv, bn in zip(self.convs, self.bns)]
        outs = [torch.cat([F.adaptive_max_pool1d(o, 1), F.adaptive_avg_pool1d(o, 1)], 1).squeeze(-1) for o in outs]
        return torch.cat(outs, 1)


class AttnPoolHead(nn.Module):
    """multi-sample dropout head"""
    def __init__(self, in_dim, out_dim, n=4):
        super().__init__()
        self.fc = nn.Linear(in_dim, out_dim)
        self.dropouts = nn.ModuleList([nn.Dropout(0.1 * (i + 1)) for i in range(n)])

    def forward(self, x):
        for i, d in enumerate(self.dropouts):
            if i == 0:
                out = self.fc(d(x))
            else:
                out += self.fc(d(x))
        return out / len(self.dropouts)


class Model(nn.Module):
    def __init__(self, cfg=CFG):
        super().__init__()
        self.cfg = cfg
        self.emb = nn.Embedding(cfg.vocab, cfg.emb_dim, padding_idx=cfg.pad)
        self.tt = TransformerTower(cfg)
        self.ct = TextCNNTower(cfg)
        d = cfg.emb_dim + 2 * cfg.n_filters * len(cfg.filters)
        self.ln = nn.LayerNorm(d)
        self.proj = nn.Sequential(nn.Linear(d, 512), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(512, cfg.proj_dim))
        self.heads = nn.ModuleDict({
            'dup': AttnPoolHead(4 * cfg.proj_dim, 1),
            'qtype': AttnPoolHead(d, cfg.n_types),
        })
        self.logit_scale = nn.Parameter(torch.tensor(1 / cfg.tau).log())

    def encode(self, ids):
        e = self.emb(ids)
        if self.training:
            # embedding noise helps a bit (+0.0008 CV)
            e = e + torch.randn_like(e) * 0.02
        f = torch.cat([self.tt(e, ids == self.cfg.pad), self.ct(e)], -1)
        f = self.ln(f)
        return f, self.proj(f)

    def forward(self, q1, q2, is_dup, qtype):
        f1, z1 = self.encode(q1)
        f2, z2 = self.encode(q2)

        # pair classification
        pair = torch.cat([z1, z2, (z1 - z2).abs(), z1 * z2], -1)
        logit = self.heads['dup'](pair).squeeze(-1)
        bce = F.binary_cross_entropy_with_logits(logit, is_dup)

        # in-batch contrastive, both directions
        z1, z2 = F.normalize(z1, dim=-1), F.normalize(z2, dim=-1)
        sim = z1 @ z2.T * self.logit_scale.exp().clamp(max=100.)
        tgt = torch.arange(sim.shape[0], device=sim.device)
        nce = F.cross_entropy(sim, tgt, reduction='none') + F.cross_entropy(sim.T, tgt, reduction='none')
        nce = (nce * is_dup).sum() / (is_dup.sum() + 1e-6) / 2

        typ = F.cross_entropy(self.heads['qtype'](f1), qtype, label_smoothing=0.1)
        typ += F.cross_entropy(self.heads['qtype'](f2), qtype, label_smoothing=0.1)

        L = {'nce': nce, 'bce': bce, 'qtype': typ}
        loss = sum(self.cfg.w[k] * L[k] for k in L)
        return loss, torch.sigmoid(logit)


def inputs(batch):
    q1 = torch.randint(1, CFG.vocab, (batch, CFG.max_len))
    q2 = torch.randint(1, CFG.vocab, (batch, CFG.max_len))
    q1[:, 30:] = 0
    q2[:, 36:] = 0
    return q1, q2, torch.randint(0, 2, (batch,)).float(), torch.randint(0, CFG.n_types, (batch,))
