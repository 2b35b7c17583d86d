from dataclasses import dataclass, field
from typing import List

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint_sequential


@dataclass
class ConvNeXtArgs:
    in_chans: int = 3
    num_classes: int = 397
    depths: List[int] = field(default_factory=lambda: [2, 2, 8, 2])
    dims: List[int] = field(default_factory=lambda: [64, 128, 256, 512])
    drop_path_rate: float = 0.1
    layer_scale_init: float = 1e-6
    kernel: int = 7
    grad_ckpt: bool = True
    mixup_alpha: float = 0.4


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over channels of an NCHW tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class GRN(nn.Module):
    """Global Response Normalization (NHWC)."""

    def __init__(self, dim: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(1, 1, 1, dim))
        self.beta = nn.Parameter(torch.zeros(1, 1, 1, dim))

    def forward(self, x):
        gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        nx = gx / (gx.mean(dim=-1, keepdim=True) + 1e-6)
        return self.gamma * (x * nx) + self.beta + x


class DropPath(nn.Module):
    def __init__(self, drop_prob: float = 0.0):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep_prob = 1 - self.drop_prob
        random_tensor = x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(keep_prob)
        random_tensor.div_(keep_prob)
        return x * random_tensor

    def extra_repr(self):
        return f"p={self.drop_prob:.3f}"


class Block(nn.Module):
    def __init__(self, dim: int, kernel: int, drop_path: float, ls_init: float):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=kernel, padding=kernel // 2, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.grn = GRN(4 * dim)
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(ls_init * torch.ones(dim)) if ls_init > 0 else None
        self.drop_path = DropPath(drop_path)

    def forward(self, x):
        shortcut = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 1)  # NCHW -> NHWC
        x = self.norm(x)
        x = self.pwconv1(x)
        x = self.act(x)
        x = self.grn(x)
        x = self.pwconv2(x)
        if self.gamma is not None:
            x = self.gamma * x
        x = x.permute(0, 3, 1, 2)
        return shortcut + self.drop_path(x)


class AttentionPool(nn.Module):
    """A learned query pools the last feature map."""

    def __init__(self, dim: int, heads: int = 8):
        super().__init__()
        self.heads = heads
        self.query = nn.Parameter(torch.randn(1, heads, 1, dim // heads) * 0.02)
        self.kv = nn.Linear(dim, dim * 2)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, c, h, w = x.shape
        t = x.flatten(2).transpose(1, 2)
        k, v = self.kv(t).view(b, h * w, 2, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        o = F.scaled_dot_product_attention(self.query.expand(b, -1, -1, -1), k, v)
        return self.proj(o.reshape(b, c)) + t.mean(1)


class ConvNeXtV2(nn.Module):
    def __init__(self, args: ConvNeXtArgs):
        super().__init__()
        self.args = args
        dims, depths = args.dims, args.depths
        self.downsample_layers = nn.ModuleList()
        self.downsample_layers.append(nn.Sequential(
            nn.Conv2d(args.in_chans, dims[0], kernel_size=4, stride=4),
            LayerNorm2d(dims[0], eps=1e-6),
        ))
        for i in range(3):
            self.downsample_layers.append(nn.Sequential(
                LayerNorm2d(dims[i], eps=1e-6),
                nn.Conv2d(dims[i], dims[i + 1], kernel_size=2, stride=2),
            ))

        rates = iter(torch.linspace(0, args.drop_path_rate, sum(depths)).tolist())
        self.stages = nn.ModuleList(
            nn.Sequential(*[Block(dim, args.kernel, next(rates), args.layer_scale_init) for _ in range(depth)])
            for dim, depth in zip(dims, depths)
        )
        self.pool = AttentionPool(dims[-1])
        self.norm = nn.LayerNorm(dims[-1], eps=1e-6)
        self.head = nn.Linear(dims[-1], args.num_classes)
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(m.weight, std=0.02)
            if m.bias is not None:
                nn.init.constant_(m.bias, 0)

    def forward_features(self, x):
        for down, stage in zip(self.downsample_layers, self.stages):
            x = down(x)
            if self.args.grad_ckpt and self.training and len(stage) > 4:
                x = checkpoint_sequential(stage, 4, x, use_reentrant=False)
            else:
                x = stage(x)
        return self.norm(self.pool(x))

    def forward(self, x):
        return self.head(self.forward_features(x))


class MixupMixin:
    """Batch mixup with the flipped batch; lambda ~ U-shaped, per sample."""

    def mixup(self, x, y, num_classes):
        lam = torch.rand(x.shape[0], 1, device=x.device)
        lam = torch.sin(lam * torch.pi / 2) ** 2
        y = F.one_hot(y, num_classes).to(x.dtype)
        y = lam * y + (1 - lam) * y.flip(0)
        lam = lam[:, :, None, None]
        return lam * x + (1 - lam) * x.flip(0), y


class Model(MixupMixin, ConvNeXtV2):
    def __init__(self):
        super().__init__(ConvNeXtArgs())

    def forward(self, images, labels):
        if self.training:
            images, targets = self.mixup(images, labels, self.args.num_classes)
        else:
            targets = F.one_hot(labels, self.args.num_classes).to(images.dtype)
        logits = super().forward(images)
        loss = torch.sum(-targets * F.log_softmax(logits, dim=-1), dim=-1).mean()
        return {"loss": loss, "logits": logits}


def inputs(batch):
    return torch.randn(batch, 3, 160, 160), torch.randint(0, 397, (batch,))
