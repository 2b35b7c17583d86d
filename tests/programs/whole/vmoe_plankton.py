# V-MoE style classifier, plankton images (kaggle). Dense dispatch because we only have 4 experts
# and boolean gather was slower on my 2080.

from dataclasses import dataclass, field
from typing import List, Optional
import math, torch
from torch import nn
from torch.nn import functional as F


@dataclass
class MoEStats:
    balance: List[torch.Tensor] = field(default_factory=list)
    z_loss: List[torch.Tensor] = field(default_factory=list)

    def add(self, balance, z):
        self.balance.append(balance); self.z_loss.append(z)

    def total(self, wb=1e-2, wz=1e-3):
        return wb * torch.stack(self.balance).mean() + wz * torch.stack(self.z_loss).mean()


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.g = nn.Parameter(torch.ones(d)); self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.g


class SwiGLU(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.w12 = nn.Linear(d, 2 * h, bias=False)
        self.w3 = nn.Linear(h, d, bias=False)

    def forward(self, x):
        a, b = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(a) * b)


class Experts(nn.Module):
    """all experts' weights in one tensor"""
    def __init__(self, e, d, h):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(e, d, h))
        self.b1 = nn.Parameter(torch.zeros(e, 1, h))
        self.w2 = nn.Parameter(torch.empty(e, h, d))
        for w in (self.w1, self.w2):
            for i in range(e): nn.init.xavier_uniform_(w[i])

    def forward(self, x):             # (tokens, d) -> (e, tokens, d)
        h = torch.matmul(x, self.w1) + self.b1
        return torch.matmul(F.gelu(h, approximate="tanh"), self.w2)


class MoE(nn.Module):
    def __init__(self, d, h, e=4, k=2):
        super().__init__()
        self.e, self.k = e, k
        self.router = nn.Linear(d, e, bias=False)
        self.experts = Experts(e, d, h)

    def forward(self, x, stats: Optional[MoEStats] = None):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        logits = self.router(x)
        p = logits.softmax(-1)
        top_p, top_i = p.topk(self.k, dim=-1)
        top_p = top_p / top_p.sum(-1, keepdim=True)
        gates = torch.zeros_like(p).scatter(-1, top_i, top_p)
        y = torch.einsum("end,ne->nd", self.experts(x), gates)
        if stats is not None:
            frac = F.one_hot(top_i[:, 0], self.e).to(p.dtype).mean(0)
            stats.add(self.e * (frac * p.mean(0)).sum(), logits.logsumexp(-1).square().mean())
        return y.view(shape)


class RelPosAttention(nn.Module):
    def __init__(self, d, heads, grid):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(d, d); self.kv = nn.Linear(d, 2 * d); self.out = nn.Linear(d, d)
        self.table = nn.Parameter(torch.zeros((2 * grid - 1) ** 2, heads))
        c = torch.stack(torch.meshgrid(torch.arange(grid), torch.arange(grid), indexing="ij")).flatten(1)
        r = (c[:, :, None] - c[:, None]).permute(1, 2, 0) + grid - 1
        self.register_buffer("idx", r[..., 0] * (2 * grid - 1) + r[..., 1])

    def forward(self, x):
        b, n, d = x.shape
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q, (k, v) = split(self.q(x)), (split(t) for t in self.kv(x).chunk(2, -1))
        att = q @ k.mT
        att = att.div(math.sqrt(q.size(-1))) + self.table[self.idx].permute(2, 0, 1)
        x = att.softmax(-1) @ v
        return self.out(x.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, d, heads, grid, moe):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(d), RMSNorm(d)
        self.attn = RelPosAttention(d, heads, grid)
        self.ffn = MoE(d, 3 * d) if moe else SwiGLU(d, 2 * d)
        self.skip = nn.Parameter(torch.full((2,), 0.5))

    def forward(self, x, stats):
        s1, s2 = self.skip
        x = x + s1 * self.attn(self.norm1(x))
        h = self.norm2(x)
        h = self.ffn(h, stats) if isinstance(self.ffn, MoE) else self.ffn(h)
        return x + s2 * h


class ConvStem(nn.Sequential):
    def __init__(self, d, act=nn.Hardswish):
        ch = [1, d // 8, d // 4, d // 2, d]
        super().__init__(*(m for i, o in zip(ch, ch[1:]) for m in
                           (nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.GroupNorm(4, o), act())))


class Model(nn.Module):
    def __init__(self, d=192, depth=6, heads=6, n_cls=121, img=112):
        super().__init__()
        self.stem = ConvStem(d)
        grid = img // 16
        self.blocks = nn.ModuleList([Block(d, heads, grid, moe=bool(i % 2)) for i in range(depth)])
        self.norm = RMSNorm(d)
        self.pool_q = nn.Parameter(torch.randn(d) * .02)
        self.head = nn.Linear(d + 2, n_cls)

    def forward(self, img, meta, target):
        x = self.stem(img).flatten(2).mT
        stats = MoEStats()
        for blk in self.blocks: x = blk(x, stats)
        x = self.norm(x)
        w = F.softmax(x @ self.pool_q, dim=1)
        feat = (w.unsqueeze(-1) * x).sum(1)
        # original size of the crop is very predictive
        logits = self.head(torch.cat([feat, meta.log1p()], -1))
        ce = F.cross_entropy(logits, target, label_smoothing=0.1)
        return ce + stats.total(), logits


def inputs(batch):
    return torch.rand(batch, 1, 112, 112), torch.rand(batch, 2) * 200, torch.randint(121, (batch,))
