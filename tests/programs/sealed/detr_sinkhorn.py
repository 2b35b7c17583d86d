# Small DETR variant. The bipartite matcher of the paper is replaced by an entropic
# (Sinkhorn) assignment so that everything stays on device and no scipy is needed.
# Backbone: ResNet with frozen batch norm, stem + layer1 frozen as in the original repo.
import copy
import math
from typing import Optional

import torch
import torch.nn.functional as F
from torch import nn, Tensor


class FrozenBatchNorm2d(nn.Module):
    """BatchNorm2d where the statistics and the affine parameters are fixed."""

    def __init__(self, n):
        super().__init__()
        self.register_buffer("weight", torch.ones(n))
        self.register_buffer("bias", torch.zeros(n))
        self.register_buffer("running_mean", torch.zeros(n))
        self.register_buffer("running_var", torch.ones(n))

    def forward(self, x):
        # move reshapes to the beginning to make it fuser-friendly
        w = self.weight.reshape(1, -1, 1, 1)
        b = self.bias.reshape(1, -1, 1, 1)
        rv = self.running_var.reshape(1, -1, 1, 1)
        rm = self.running_mean.reshape(1, -1, 1, 1)
        scale = w * (rv + 1e-5).rsqrt()
        bias = b - rm * scale
        return x * scale + bias


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = FrozenBatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = FrozenBatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), FrozenBatchNorm2d(cout))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out += identity
        return F.relu(out, inplace=True)


class Backbone(nn.Module):
    def __init__(self, widths=(64, 128, 256, 384)):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), FrozenBatchNorm2d(64),
                                  nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        c = 64
        for i, w in enumerate(widths):
            s = 1 if i == 0 else 2
            self.add_module(f"layer{i + 1}", nn.Sequential(BasicBlock(c, w, s), BasicBlock(w, w)))
            c = w
        self.num_channels = c
        for name, p in self.named_parameters():
            if name.startswith("stem") or name.startswith("layer1"):
                p.requires_grad_(False)

    def forward(self, x):
        x = self.stem(x)
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return x


class PositionEmbeddingSine(nn.Module):
    def __init__(self, num_pos_feats=128, temperature=10000):
        super().__init__()
        self.num_pos_feats = num_pos_feats
        self.temperature = temperature

    def forward(self, x: Tensor):
        not_mask = torch.ones_like(x[:, 0])
        y_embed = not_mask.cumsum(1)
        x_embed = not_mask.cumsum(2)
        y_embed = y_embed / (y_embed[:, -1:, :] + 1e-6) * 2 * math.pi
        x_embed = x_embed / (x_embed[:, :, -1:] + 1e-6) * 2 * math.pi
        dim_t = torch.arange(self.num_pos_feats, dtype=torch.float32, device=x.device)
        dim_t = self.temperature ** (2 * torch.div(dim_t, 2, rounding_mode="floor") / self.num_pos_feats)
        px = x_embed[..., None] / dim_t
        py = y_embed[..., None] / dim_t
        px = torch.stack((px[..., 0::2].sin(), px[..., 1::2].cos()), dim=4).flatten(3)
        py = torch.stack((py[..., 0::2].sin(), py[..., 1::2].cos()), dim=4).flatten(3)
        return torch.cat((py, px), dim=3).permute(0, 3, 1, 2)


def with_pos(t, pos: Optional[Tensor]):
    return t if pos is None else t + pos


class EncoderLayer(nn.Module):
    def __init__(self, d, nhead, ff, dropout=0.1):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d, nhead, dropout=dropout)
        self.linear1, self.linear2 = nn.Linear(d, ff), nn.Linear(ff, d)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.dropout = nn.Dropout(dropout)
        self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, src, pos):
        q = k = with_pos(src, pos)
        src = self.norm1(src + self.dropout1(self.self_attn(q, k, value=src)[0]))
        src2 = self.linear2(self.dropout(F.relu(self.linear1(src))))
        return self.norm2(src + self.dropout2(src2))


class DecoderLayer(EncoderLayer):
    def __init__(self, d, nhead, ff, dropout=0.1):
        super().__init__(d, nhead, ff, dropout)
        self.multihead_attn = nn.MultiheadAttention(d, nhead, dropout=dropout)
        self.norm3, self.dropout3 = nn.LayerNorm(d), nn.Dropout(dropout)

    def forward(self, tgt, memory, pos, query_pos):
        q = k = with_pos(tgt, query_pos)
        tgt = self.norm1(tgt + self.dropout1(self.self_attn(q, k, value=tgt)[0]))
        t2 = self.multihead_attn(with_pos(tgt, query_pos), with_pos(memory, pos), value=memory)[0]
        tgt = self.norm2(tgt + self.dropout2(t2))
        t2 = self.linear2(self.dropout(F.relu(self.linear1(tgt))))
        return self.norm3(tgt + self.dropout3(t2))


def _get_clones(m, n):
    return nn.ModuleList([copy.deepcopy(m) for _ in range(n)])


class MLP(nn.Module):
    def __init__(self, i, h, o, n):
        super().__init__()
        dims = [i] + [h] * (n - 1)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims, dims[1:] + [o]))

    def forward(self, x):
        for i, l in enumerate(self.layers):
            x = F.relu(l(x)) if i < len(self.layers) - 1 else l(x)
        return x


def box_cxcywh_to_xyxy(b):
    cx, cy, w, h = b.unbind(-1)
    return torch.stack([cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h], dim=-1)


def pairwise_giou(a, b):
    """a [B,Q,4], b [B,T,4] in xyxy -> [B,Q,T]"""
    area_a = (a[..., 2] - a[..., 0]) * (a[..., 3] - a[..., 1])
    area_b = (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
    lt = torch.max(a[:, :, None, :2], b[:, None, :, :2])
    rb = torch.min(a[:, :, None, 2:], b[:, None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    union = area_a[:, :, None] + area_b[:, None] - inter
    iou = inter / (union + 1e-6)
    lt = torch.min(a[:, :, None, :2], b[:, None, :, :2])
    rb = torch.max(a[:, :, None, 2:], b[:, None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    hull = wh[..., 0] * wh[..., 1]
    return iou - (hull - union) / (hull + 1e-6)


class SinkhornCriterion(nn.Module):
    def __init__(self, num_classes, eos_coef=0.1, eps=0.1, iters=10):
        super().__init__()
        self.num_classes, self.eps, self.iters = num_classes, eps, iters
        w = torch.ones(num_classes + 1)
        w[-1] = eos_coef
        self.register_buffer("empty_weight", w)

    @torch.no_grad()
    def assign(self, cost, valid):
        # every (valid) target gets mass 1, no query may carry more than 1
        log_p = -cost / self.eps
        log_p = log_p.masked_fill(~valid[:, None, :], -1e4)
        for _ in range(self.iters):
            log_p = log_p - torch.logsumexp(log_p, dim=1, keepdim=True)
            log_p = log_p - torch.logsumexp(log_p, dim=2, keepdim=True).clamp(min=0)
        return log_p.exp() * valid[:, None, :]

    def forward(self, logits, boxes, labels, tboxes):
        valid = labels >= 0
        lab = labels.clamp(min=0)
        logp = logits.log_softmax(-1)
        cls = -logp.gather(2, lab[:, None, :].expand(-1, logits.shape[1], -1))
        l1 = torch.cdist(boxes, tboxes, p=1)
        giou = 1 - pairwise_giou(box_cxcywh_to_xyxy(boxes), box_cxcywh_to_xyxy(tboxes))
        plan = self.assign((1 - (-cls).exp()) + 5 * l1 + 2 * giou, valid)
        n = valid.sum().clamp(min=1)
        w = self.empty_weight
        no_obj = (1 - plan.sum(-1)).clamp(min=0)
        loss_ce = (plan * cls).sum() + w[-1] * (no_obj * -logp[..., -1]).sum()
        loss_ce = loss_ce / (plan.sum() + w[-1] * no_obj.sum())
        return {"loss_ce": loss_ce, "loss_bbox": (plan * l1).sum() / n, "loss_giou": (plan * giou).sum() / n}


class Model(nn.Module):
    def __init__(self, num_classes=20, num_queries=50, hidden_dim=256, nheads=8, enc=3, dec=4):
        super().__init__()
        self.backbone = Backbone()
        self.input_proj = nn.Conv2d(self.backbone.num_channels, hidden_dim, 1)
        self.pos = PositionEmbeddingSine(hidden_dim // 2)
        self.encoder = _get_clones(EncoderLayer(hidden_dim, nheads, 1024), enc)
        self.decoder = _get_clones(DecoderLayer(hidden_dim, nheads, 1024), dec)
        self.dec_norm = nn.LayerNorm(hidden_dim)
        self.query_embed = nn.Embedding(num_queries, hidden_dim)
        self.class_embed = nn.Linear(hidden_dim, num_classes + 1)
        self.bbox_embed = MLP(hidden_dim, hidden_dim, 4, 3)
        self.criterion = SinkhornCriterion(num_classes)

    def forward(self, images, labels, boxes):
        feat = self.backbone(images)
        pos = self.pos(feat).flatten(2).permute(2, 0, 1)
        src = self.input_proj(feat).flatten(2).permute(2, 0, 1)
        for layer in self.encoder:
            src = layer(src, pos)
        query_pos = self.query_embed.weight.unsqueeze(1).repeat(1, images.shape[0], 1)
        tgt = torch.zeros_like(query_pos)
        hs = []
        for layer in self.decoder:
            tgt = layer(tgt, src, pos, query_pos)
            hs.append(self.dec_norm(tgt))
        hs = torch.stack(hs).transpose(1, 2)
        out_cls = self.class_embed(hs)
        out_box = self.bbox_embed(hs).sigmoid()
        losses = self.criterion(out_cls[-1], out_box[-1], labels, boxes)
        for i in range(out_cls.shape[0] - 1):
            aux = self.criterion(out_cls[i], out_box[i], labels, boxes)
            losses.update({f"{k}_{i}": v for k, v in aux.items()})
        weight = {"loss_ce": 1.0, "loss_bbox": 5.0, "loss_giou": 2.0}
        total = sum(v * weight[k.rsplit("_", 1)[0] if k[-1].isdigit() else k] for k, v in losses.items())
        return {"loss": total, "pred_logits": out_cls[-1].detach(), "pred_boxes": out_box[-1].detach()}


def inputs(batch):
    labels = torch.randint(-1, 20, (batch, 12))
    cxy = torch.rand(batch, 12, 2) * 0.6 + 0.2
    wh = torch.rand(batch, 12, 2) * 0.3 + 0.05
    return torch.randn(batch, 3, 224, 224), labels, torch.cat([cxy, wh], -1)
