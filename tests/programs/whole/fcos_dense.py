"""One-stage anchor-free detector (FCOS) for aerial vehicles.

Targets are assigned inside ``forward``; ground truth is padded to a fixed
number of boxes per image, label 0 marks padding.
"""
import math
from dataclasses import dataclass
from typing import Dict, List, Tuple

import torch
from torch import Tensor, nn
import torch.nn.functional as F

INF = 1e8


@dataclass
class DetConfig:
    num_classes: int = 12
    image_size: int = 256
    stem: int = 32
    widths: Tuple[int, ...] = (48, 96, 192, 320)
    depths: Tuple[int, ...] = (1, 2, 3, 2)
    fpn_dim: int = 128
    head_convs: int = 3
    strides: Tuple[int, ...] = (8, 16, 32, 64)
    ranges: Tuple[Tuple[float, float], ...] = ((-1, 48), (48, 96), (96, 192), (192, INF))
    center_radius: float = 1.5
    focal_alpha: float = 0.25
    focal_gamma: float = 2.0
    prior: float = 0.01


class ConvAct(nn.Sequential):
    def __init__(self, cin, cout, k=3, s=1, act=True):
        layers = [nn.Conv2d(cin, cout, k, s, k // 2, bias=False), nn.BatchNorm2d(cout)]
        if act:
            layers.append(nn.SiLU(inplace=True))
        super().__init__(*layers)


class Bottleneck(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = ConvAct(c, c // 2, 1)
        self.b = ConvAct(c // 2, c, 3)

    def forward(self, x):
        return x + self.b(self.a(x))


class CSPStage(nn.Module):
    def __init__(self, cin, cout, n):
        super().__init__()
        self.down = ConvAct(cin, cout, 3, 2)
        self.split = ConvAct(cout, cout, 1)
        self.blocks = nn.Sequential(*[Bottleneck(cout // 2) for _ in range(n)])
        self.fuse = ConvAct(cout, cout, 1)

    def forward(self, x):
        a, b = self.split(self.down(x)).chunk(2, dim=1)
        return self.fuse(torch.cat((a, self.blocks(b)), dim=1))


class Backbone(nn.Module):
    def __init__(self, cfg: DetConfig):
        super().__init__()
        self.stem = ConvAct(3, cfg.stem, 3, 2)
        cin, stages = cfg.stem, []
        for w, d in zip(cfg.widths, cfg.depths):
            stages.append(CSPStage(cin, w, d))
            cin = w
        self.stages = nn.ModuleList(stages)

    def forward(self, x) -> List[Tensor]:
        x, feats = self.stem(x), []
        for s in self.stages:
            x = s(x)
            feats.append(x)
        return feats[1:]  # C3..C5


class FPN(nn.Module):
    def __init__(self, chans, dim):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(c, dim, 1) for c in chans)
        self.smooth = nn.ModuleList(nn.Conv2d(dim, dim, 3, padding=1) for _ in chans)
        self.p6 = nn.Conv2d(dim, dim, 3, 2, 1)

    def forward(self, feats):
        lat = [l(f) for l, f in zip(self.lateral, feats)]
        for i in range(len(lat) - 2, -1, -1):
            lat[i] = lat[i] + F.interpolate(lat[i + 1], scale_factor=2.0, mode="nearest")
        outs = [s(x) for s, x in zip(self.smooth, lat)]
        outs.append(self.p6(F.relu(outs[-1])))
        return outs


class Scale(nn.Module):
    def __init__(self, v=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(v))

    def forward(self, x):
        return x * self.scale


class FCOSHead(nn.Module):
    def __init__(self, cfg: DetConfig):
        super().__init__()
        d = cfg.fpn_dim

        def tower():
            mods = []
            for _ in range(cfg.head_convs):
                mods += [nn.Conv2d(d, d, 3, padding=1, bias=False), nn.GroupNorm(16, d), nn.ReLU(inplace=True)]
            return nn.Sequential(*mods)

        self.cls_tower, self.reg_tower = tower(), tower()
        self.cls = nn.Conv2d(d, cfg.num_classes, 3, padding=1)
        self.reg = nn.Conv2d(d, 4, 3, padding=1)
        self.ctr = nn.Conv2d(d, 1, 3, padding=1)
        self.scales = nn.ModuleList(Scale() for _ in cfg.strides)
        self.strides = cfg.strides
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.normal_(m.weight, std=0.01)
                if m.bias is not None:
                    nn.init.zeros_(m.bias)
        nn.init.constant_(self.cls.bias, -math.log((1 - cfg.prior) / cfg.prior))

    def forward(self, feats):
        cls, reg, ctr = [], [], []
        for f, sc, s in zip(feats, self.scales, self.strides):
            c, r = self.cls_tower(f), self.reg_tower(f)
            cls.append(self.cls(c).flatten(2).transpose(1, 2))
            reg.append((F.relu(sc(self.reg(r))) * s).flatten(2).transpose(1, 2))
            ctr.append(self.ctr(r).flatten(2).squeeze(1))
        return torch.cat(cls, 1), torch.cat(reg, 1), torch.cat(ctr, 1)


def sigmoid_focal_loss(logits, targets, alpha, gamma):
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    loss = ce * (1 - p_t) ** gamma
    return (alpha * targets + (1 - alpha) * (1 - targets)) * loss


def giou_loss(pred, tgt, eps=1e-7):
    """l, t, r, b distances from the same location."""
    pl, pt, pr, pb = pred.unbind(-1)
    tl, tt, tr, tb = tgt.unbind(-1)
    area_p, area_t = (pl + pr) * (pt + pb), (tl + tr) * (tt + tb)
    iw = torch.min(pl, tl) + torch.min(pr, tr)
    ih = torch.min(pt, tt) + torch.min(pb, tb)
    inter = iw * ih
    union = area_p + area_t - inter
    cw = torch.max(pl, tl) + torch.max(pr, tr)
    ch = torch.max(pt, tt) + torch.max(pb, tb)
    enclose = cw * ch
    giou = inter / (union + eps) - (enclose - union) / (enclose + eps)
    return 1 - giou


class Model(nn.Module):
    def __init__(self, cfg: DetConfig = DetConfig()):
        super().__init__()
        self.cfg = cfg
        self.backbone = Backbone(cfg)
        self.fpn = FPN(cfg.widths[1:], cfg.fpn_dim)
        self.head = FCOSHead(cfg)

        points, lo_hi, strides = [], [], []
        for s, r in zip(cfg.strides, cfg.ranges):
            n = cfg.image_size // s
            g = (torch.arange(n) + 0.5) * s
            yy, xx = torch.meshgrid(g, g, indexing="ij")
            points.append(torch.stack((xx, yy), -1).reshape(-1, 2))
            lo_hi.append(torch.tensor(r).expand(n * n, 2))
            strides.append(torch.full((n * n,), float(s)))
        self.register_buffer("points", torch.cat(points), persistent=False)
        self.register_buffer("lo_hi", torch.cat(lo_hi), persistent=False)
        self.register_buffer("pt_stride", torch.cat(strides), persistent=False)

    @torch.no_grad()
    def assign(self, boxes: Tensor, labels: Tensor):
        px, py = self.points[:, 0].view(1, -1, 1), self.points[:, 1].view(1, -1, 1)
        x1, y1, x2, y2 = boxes[:, None].unbind(-1)                      # B,1,M
        ltrb = torch.stack((px - x1, py - y1, x2 - px, y2 - py), -1)    # B,P,M,4
        rad = self.pt_stride.view(1, -1, 1) * self.cfg.center_radius
        cx, cy = (x1 + x2) / 2, (y1 + y2) / 2
        near = ((px - cx).abs() < rad) & ((py - cy).abs() < rad)
        inside = ltrb.min(-1).values > 0
        biggest = ltrb.max(-1).values
        in_range = (biggest >= self.lo_hi[None, :, None, 0]) & (biggest <= self.lo_hi[None, :, None, 1])
        ok = near & inside & in_range & (labels > 0)[:, None]
        area = ((x2 - x1) * (y2 - y1)).expand_as(biggest)
        best, idx = torch.where(ok, area, torch.full_like(area, INF)).min(-1)
        pos = best < INF
        lab = torch.gather(labels, 1, idx) * pos                        # 0 = background
        reg = torch.gather(ltrb, 2, idx[..., None, None].expand(-1, -1, 1, 4)).squeeze(2)
        return lab, reg, pos

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor) -> Dict[str, Tensor]:
        cls, reg, ctr = self.head(self.fpn(self.backbone(images)))
        lab, tgt, pos = self.assign(boxes, labels)
        posf = pos.to(reg.dtype)
        n_pos = posf.sum().clamp(min=1.0)

        onehot = F.one_hot(lab, self.cfg.num_classes + 1)[..., 1:].to(cls.dtype)
        loss_cls = sigmoid_focal_loss(cls, onehot, self.cfg.focal_alpha, self.cfg.focal_gamma).sum() / n_pos

        tgt = torch.where(pos[..., None], tgt, torch.ones_like(tgt))
        lr, tb = tgt[..., 0::2], tgt[..., 1::2]
        centerness = torch.sqrt((lr.amin(-1) / lr.amax(-1)) * (tb.amin(-1) / tb.amax(-1)))
        loss_reg = (giou_loss(reg, tgt) * centerness * posf).sum() / (centerness * posf).sum().clamp(min=1e-3)
        loss_ctr = (F.binary_cross_entropy_with_logits(ctr, centerness, reduction="none") * posf).sum() / n_pos
        return {"loss_cls": loss_cls, "loss_reg": loss_reg, "loss_ctr": loss_ctr,
                "loss": loss_cls + loss_reg + loss_ctr}


def inputs(batch: int):
    cfg = DetConfig()
    m = 24
    xy = torch.rand(batch, m, 2) * 180
    wh = torch.rand(batch, m, 2) * 70 + 6
    boxes = torch.cat((xy, xy + wh), -1)
    labels = torch.randint(0, cfg.num_classes + 1, (batch, m))
    return torch.randn(batch, 3, cfg.image_size, cfg.image_size), boxes, labels
