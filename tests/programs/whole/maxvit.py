"""MaxViT-nano-ish: MBConv + block attention + grid attention, single file."""
import math
from dataclasses import dataclass, field
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn
import torch.nn.functional as F


@dataclass
class MaxxCfg:
    img: int = 224
    stem: int = 32
    dims: Tuple[int, ...] = (48, 96, 192, 384)
    depths: Tuple[int, ...] = (1, 2, 2, 1)
    head_dim: int = 24
    window: int = 7
    expand: int = 4
    se_ratio: float = 0.0625
    mlp_ratio: float = 4.0
    attn_drop: float = 0.0
    sd_p: float = 0.1
    classes: int = 120
    blocks: List[str] = field(default_factory=lambda: ["block", "grid"])


class StochasticDepth(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        survival = 1.0 - self.p
        size = [x.shape[0]] + [1] * (x.ndim - 1)
        noise = torch.empty(size, dtype=x.dtype, device=x.device)
        noise = noise.bernoulli_(survival)
        noise.div_(survival)
        return x * noise


class SqueezeExcite(nn.Module):
    def __init__(self, ch: int, rd: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(ch, rd, 1)
        self.fc2 = nn.Conv2d(rd, ch, 1)

    def forward(self, x: Tensor) -> Tensor:
        s = x.mean((2, 3), keepdim=True)
        s = F.silu(self.fc1(s), inplace=True)
        return x * self.fc2(s).sigmoid_()


class MBConv(nn.Module):
    def __init__(self, cin: int, cout: int, cfg: MaxxCfg, stride: int, p: float) -> None:
        super().__init__()
        self.shortcut: nn.Module
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(nn.AvgPool2d(3, stride, 1), nn.Conv2d(cin, cout, 1))
        else:
            self.shortcut = nn.Identity()
        mid = cout * cfg.expand
        self.pre_norm = nn.BatchNorm2d(cin, eps=1e-3, momentum=0.01)
        self.conv1 = nn.Conv2d(cin, mid, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(mid, eps=1e-3, momentum=0.01)
        self.conv2 = nn.Conv2d(mid, mid, 3, stride, 1, groups=mid, bias=False)
        self.norm2 = nn.BatchNorm2d(mid, eps=1e-3, momentum=0.01)
        self.act = nn.GELU(approximate="tanh")
        self.se = SqueezeExcite(mid, max(4, int(mid * cfg.se_ratio)))
        self.conv3 = nn.Conv2d(mid, cout, 1)
        self.sd = StochasticDepth(p)

    def forward(self, x: Tensor) -> Tensor:
        res = self.shortcut(x)
        x = self.conv1(self.pre_norm(x))
        x = self.act(self.norm1(x))
        x = self.act(self.norm2(self.conv2(x)))
        x = self.conv3(self.se(x))
        return res + self.sd(x)


def rel_index(h: int, w: int) -> Tensor:
    ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    c = torch.stack([ys, xs]).flatten(1)
    r = c[:, :, None] - c[:, None, :]
    r = r + torch.tensor([h - 1, w - 1])[:, None, None]
    return r[0] * (2 * w - 1) + r[1]


class RelAttn(nn.Module):
    bias_idx: Tensor

    def __init__(self, dim: int, cfg: MaxxCfg) -> None:
        super().__init__()
        w = cfg.window
        self.heads = dim // cfg.head_dim
        self.hd = cfg.head_dim
        self.to_qkv = nn.Linear(dim, 3 * dim)
        self.merge = nn.Linear(dim, dim)
        self.bias = nn.Parameter(torch.empty((2 * w - 1) ** 2, self.heads))
        nn.init.trunc_normal_(self.bias, std=0.02)
        self.register_buffer("bias_idx", rel_index(w, w), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        B, G, P, D = x.shape
        q, k, v = self.to_qkv(x).chunk(3, dim=-1)
        q = q.reshape(B, G, P, self.heads, self.hd).permute(0, 1, 3, 2, 4)
        k = k.reshape(B, G, P, self.heads, self.hd).permute(0, 1, 3, 2, 4)
        v = v.reshape(B, G, P, self.heads, self.hd).permute(0, 1, 3, 2, 4)
        dot = torch.einsum("BGHID,BGHJD->BGHIJ", q, k * self.hd ** -0.5)
        pos = self.bias[self.bias_idx.flatten()].view(P, P, -1).permute(2, 0, 1).contiguous()
        dot = F.softmax(dot + pos.unsqueeze(0), dim=-1)
        out = torch.einsum("BGHIJ,BGHJD->BGHID", dot, v)
        out = out.permute(0, 1, 3, 2, 4).reshape(B, G, P, D)
        return self.merge(out)


class PartitionAttn(nn.Module):
    def __init__(self, dim: int, kind: str, cfg: MaxxCfg, p: float) -> None:
        super().__init__()
        self.kind, self.w = kind, cfg.window
        self.norm1 = nn.LayerNorm(dim)
        self.attn = RelAttn(dim, cfg)
        self.norm2 = nn.LayerNorm(dim)
        hid = int(dim * cfg.mlp_ratio)
        self.mlp = nn.Sequential(nn.Linear(dim, hid), nn.GELU(), nn.Dropout(0.0), nn.Linear(hid, dim))
        self.sd = StochasticDepth(p)

    def forward(self, x: Tensor) -> Tensor:
        B, C, H, W = x.shape
        w = self.w
        gh, gw = H // w, W // w
        if self.kind == "block":
            t = x.reshape(B, C, gh, w, gw, w).permute(0, 2, 4, 3, 5, 1).reshape(B, gh * gw, w * w, C)
        else:
            t = x.reshape(B, C, w, gh, w, gw).permute(0, 3, 5, 2, 4, 1).reshape(B, gh * gw, w * w, C)
        t = t + self.sd(self.attn(self.norm1(t)))
        t = t + self.sd(self.mlp(self.norm2(t)))
        if self.kind == "block":
            t = t.reshape(B, gh, gw, w, w, C).permute(0, 5, 1, 3, 2, 4)
        else:
            t = t.reshape(B, gh, gw, w, w, C).permute(0, 5, 3, 1, 4, 2)
        return t.reshape(B, C, H, W)


class MaxVitLayer(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int, cfg: MaxxCfg, p: float) -> None:
        super().__init__()
        self.mb = MBConv(cin, cout, cfg, stride, p)
        self.parts = nn.ModuleDict({k: PartitionAttn(cout, k, cfg, p) for k in cfg.blocks})

    def forward(self, x: Tensor) -> Tensor:
        x = self.mb(x)
        for part in self.parts.values():
            x = part(x)
        return x


class Model(nn.Module):
    def __init__(self, cfg: Optional[MaxxCfg] = None) -> None:
        super().__init__()
        cfg = cfg or MaxxCfg()
        self.cfg = cfg
        self.stem = nn.Sequential(
            nn.Conv2d(3, cfg.stem, 3, 2, 1, bias=False), nn.BatchNorm2d(cfg.stem), nn.GELU(),
            nn.Conv2d(cfg.stem, cfg.stem, 3, 1, 1))
        probs = torch.linspace(0, cfg.sd_p, sum(cfg.depths)).tolist()
        cin, n = cfg.stem, 0
        stages = []
        for d, reps in zip(cfg.dims, cfg.depths):
            stage = []
            for r in range(reps):
                stage.append(MaxVitLayer(cin, d, 2 if r == 0 else 1, cfg, probs[n]))
                cin, n = d, n + 1
            stages.append(nn.Sequential(*stage))
        self.stages = nn.ModuleList(stages)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(cin), nn.Linear(cin, cin), nn.Tanh(),
            nn.Linear(cin, cfg.classes, bias=False))
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, std=0.02)
            elif isinstance(m, nn.Conv2d):
                nn.init.normal_(m.weight, std=math.sqrt(2.0 / (m.weight[0].numel())))

    def forward(self, images: Tensor, soft_targets: Tensor) -> Tensor:
        x = self.stem(images)
        for s in self.stages:
            x = s(x)
        logits = self.head(x)
        # distillation from cached teacher logits
        T = 2.0
        return F.kl_div(F.log_softmax(logits / T, 1), F.softmax(soft_targets / T, 1), reduction="batchmean") * T * T


def inputs(batch):
    return torch.randn(batch, 3, 224, 224), torch.randn(batch, 120)
