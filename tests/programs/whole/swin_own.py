# Swin transformer, written from the paper (windows + shift + relative position bias).
# NHWC all the way, only the patch embed is a conv.

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint as cp


class Config:
    img = 160
    patch = 4
    dim = 72
    depths = [2, 2, 6, 2]
    heads = [3, 6, 12, 24]
    window = 5
    mlp_ratio = 4
    classes = 200
    path_drop = 0.1
    ckpt_stages = (2,)


def to_windows(x, ws):
    B, H, W, C = x.shape
    x = x.view(B, H // ws, ws, W // ws, ws, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, ws * ws, C)


def from_windows(w, ws, H, W):
    C = w.shape[-1]
    x = w.view(-1, H // ws, W // ws, ws, ws, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, H, W, C)


def relative_index(ws):
    c = torch.stack(torch.meshgrid(torch.arange(ws), torch.arange(ws), indexing="ij")).flatten(1)
    rel = (c[:, :, None] - c[:, None, :]).permute(1, 2, 0) + ws - 1
    return rel[..., 0] * (2 * ws - 1) + rel[..., 1]


def shift_mask(H, W, ws, shift):
    region = torch.zeros(1, H, W, 1)
    cuts = (slice(0, -ws), slice(-ws, -shift), slice(-shift, None))
    n = 0
    for a in cuts:
        for b in cuts:
            region[:, a, b] = n
            n += 1
    r = to_windows(region, ws).squeeze(-1)
    diff = r[:, None, :] - r[:, :, None]
    return torch.zeros_like(diff).masked_fill(diff != 0, -100.0)


class PathDrop(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        m = torch.empty(x.shape[0], 1, 1, 1, dtype=x.dtype, device=x.device).bernoulli_(1 - self.p)
        return x * m / (1 - self.p)


class WindowAttention(nn.Module):
    def __init__(self, dim, heads, ws):
        super().__init__()
        self.h = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.table = nn.Parameter(torch.zeros((2 * ws - 1) ** 2, heads))
        nn.init.trunc_normal_(self.table, std=0.02)
        self.register_buffer("index", relative_index(ws), persistent=False)

    def forward(self, x, mask=None):
        N, T, C = x.shape
        q, k, v = self.qkv(x).reshape(N, T, 3, self.h, C // self.h).permute(2, 0, 3, 1, 4)
        att = (q * self.scale) @ k.transpose(-2, -1)
        att = att + self.table[self.index].permute(2, 0, 1)
        if mask is not None:
            nw = mask.shape[0]
            att = att.view(-1, nw, self.h, T, T) + mask[None, :, None]
            att = att.view(-1, self.h, T, T)
        att = att.softmax(-1)
        return self.out((att @ v).transpose(1, 2).reshape(N, T, C))


class Block(nn.Module):
    def __init__(self, dim, heads, res, ws, shift, mlp_ratio, pd):
        super().__init__()
        if res <= ws:
            ws, shift = res, 0
        self.ws, self.shift, self.res = ws, shift, res
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, heads, ws)
        self.fc1 = nn.Linear(dim, dim * mlp_ratio)
        self.fc2 = nn.Linear(dim * mlp_ratio, dim)
        self.pd = PathDrop(pd)
        self.register_buffer("mask", shift_mask(res, res, ws, shift) if shift else None, persistent=False)

    def forward(self, x):
        y = self.n1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), dims=(1, 2))
        y = self.attn(to_windows(y, self.ws), self.mask)
        y = from_windows(y, self.ws, self.res, self.res)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), dims=(1, 2))
        x = x + self.pd(y)
        return x + self.pd(self.fc2(F.gelu(self.fc1(self.n2(x)))))


class Merge(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.red = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        x = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        return self.red(self.norm(x))


class Model(nn.Module):
    def __init__(self, cfg=Config):
        super().__init__()
        self.cfg = cfg
        self.embed = nn.Conv2d(3, cfg.dim, cfg.patch, cfg.patch)
        self.embed_norm = nn.LayerNorm(cfg.dim)
        rates = torch.linspace(0, cfg.path_drop, sum(cfg.depths)).tolist()
        res, dim = cfg.img // cfg.patch, cfg.dim
        self.stages, self.merges = nn.ModuleList(), nn.ModuleList()
        for s, (d, h) in enumerate(zip(cfg.depths, cfg.heads)):
            self.stages.append(nn.ModuleList(
                Block(dim, h, res, cfg.window, 0 if i % 2 == 0 else cfg.window // 2,
                      cfg.mlp_ratio, rates[sum(cfg.depths[:s]) + i])
                for i in range(d)))
            if s < len(cfg.depths) - 1:
                self.merges.append(Merge(dim))
                dim, res = dim * 2, res // 2
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, cfg.classes)
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, nn.Linear):
            nn.init.trunc_normal_(m.weight, std=0.02)
            if m.bias is not None:
                nn.init.zeros_(m.bias)

    def forward(self, img):
        x = self.embed_norm(self.embed(img).permute(0, 2, 3, 1))
        for s, blocks in enumerate(self.stages):
            for blk in blocks:
                if s in self.cfg.ckpt_stages and self.training:
                    x = cp.checkpoint(blk, x, use_reentrant=False)
                else:
                    x = blk(x)
            if s < len(self.merges):
                x = self.merges[s](x)
        x = self.norm(x).mean((1, 2))
        return self.head(x)


def inputs(batch):
    return (torch.randn(batch, 3, Config.img, Config.img),)
