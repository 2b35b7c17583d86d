"""Models whose parts stay in evaluation mode, whose modules return results in another order, and what writes into parts of parts."""
import torch
import torch.nn.functional as F
from torch import nn


def block(channels, width, stride=1):
    return nn.Sequential(nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


class Evaluated(nn.Module):
    """A backbone that came trained, below a head of convolutions."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(block(3, 32), block(32, 64, 2), block(64, 64))
        self.backbone.requires_grad_(False)
        self.head = nn.Sequential(block(64, 64), nn.Conv2d(64, 10, 1))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        return self.head(self.backbone(x)).mean((2, 3))


def shifted_in_time(x, frames):
    x = x.view(-1, frames, *x.shape[1:])
    fold = x.shape[2] // 8
    out = torch.zeros_like(x)
    out[:, :-1, :fold] = x[:, 1:, :fold]
    out[:, 1:, fold:2 * fold] = x[:, :-1, fold:2 * fold]
    out[:, :, 2 * fold:] = x[:, :, 2 * fold:]
    return out.flatten(0, 1)


class Shifted(nn.Module):
    """Channels of neighbouring frames change places before a convolution."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.inner = nn.Conv2d(32, 32, 3, padding=1)
        self.out = nn.Linear(32, 5)

    def forward(self, clip):
        x = F.gelu(self.stem(clip.flatten(0, 1)))
        x = F.gelu(self.inner(shifted_in_time(x, 4)))
        return self.out(x.mean((2, 3))).view(-1, 4, 5).mean(1)


class Adaptive(nn.Module):
    """Returns what it made last as the first of several."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.linear = nn.Linear(width, 4 * width)

    def forward(self, x, t):
        shift, scale, gate, scale_mlp = self.linear(F.silu(t)).unsqueeze(1).chunk(4, dim=-1)
        x = self.norm(x) * (1 + scale) + shift
        return x, gate, scale_mlp


class Modulated(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.adaptive = Adaptive(width)
        self.mix = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, t):
        normed, gate, scale_mlp = self.adaptive(x, t)
        mixed = self.mix(normed)
        x = x + gate * mixed
        normed = self.norm(x)
        normed = normed * (1 + scale_mlp)
        return x + self.mlp(normed)


class Noted(nn.Module):
    """Attention that softens its scores in fp32 and gives them the type that they had."""

    def __init__(self, width=64):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        score = self.q(x) @ self.k(x).transpose(1, 2)
        dtype = score.dtype
        score = score.float()
        prob = torch.softmax(score, dim=-1, dtype=dtype)
        return prob @ self.v(x)


class Gathered(nn.Module):
    """Messages along fixed edges, summed by nodes in the second dimension."""

    def __init__(self, nodes=64, edges=256):
        super().__init__()
        self.register_buffer("source", torch.arange(edges) % nodes)
        self.register_buffer("goal", (torch.arange(edges) * 7) % nodes)
        self.message = nn.Linear(32, 32)
        self.out = nn.Linear(32, 32)

    def forward(self, x):
        m = F.relu(self.message(x[:, self.source]))
        out = x.new_zeros(x.shape)
        out = out.index_add(1, self.goal, m)
        return self.out(out)


def evaluated(batch):
    return Evaluated(), (torch.rand(batch, 3, 32, 32),)


def shifted(batch):
    return Shifted(), (torch.rand(batch, 4, 3, 16, 16),)


def modulated(batch):
    return Modulated(), (torch.randn(batch, 48, 64), torch.randn(batch, 64))


def noted(batch):
    return Noted(), (torch.randn(batch, 96, 64),)


def gathered(batch):
    return Gathered(), (torch.randn(batch, 64, 32),)
