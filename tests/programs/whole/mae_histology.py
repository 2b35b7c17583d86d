# Masked autoencoder pretraining on histology tiles.
# Shuffle noise comes in from the dataloader (same mask for two augmentations of a tile).
import dataclasses
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Cfg:
    img: int = 112
    patch: int = 8
    in_ch: int = 3
    dim: int = 256
    depth: int = 6
    heads: int = 8
    dec_dim: int = 160
    dec_depth: int = 2
    dec_heads: int = 5
    mask_ratio: float = 0.625
    mlp_ratio: float = 4.0
    drop_path: float = 0.1
    ls_init: float = 1e-1
    norm_pix: bool = True

    @property
    def grid(self):
        return self.img // self.patch

    @property
    def n(self):
        return self.grid ** 2


def sincos_2d(dim, grid):
    omega = 1.0 / 10000 ** (torch.arange(dim // 4, dtype=torch.float32) / (dim / 4.0))
    pos = torch.arange(grid, dtype=torch.float32)
    out = torch.outer(pos, omega)
    emb = torch.cat([out.sin(), out.cos()], dim=1)                 # grid, dim/2
    h = emb[:, None].expand(grid, grid, -1)
    w = emb[None].expand(grid, grid, -1)
    return torch.cat([h, w], -1).reshape(1, grid * grid, dim).contiguous()


class DropPath(nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.p = p

    def forward(self, x):
        if self.p == 0.0 or not self.training:
            return x
        keep = 1 - self.p
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * mask.div_(keep)


class LayerScale(nn.Module):
    def __init__(self, dim, init):
        super().__init__()
        self.gamma = nn.Parameter(init * torch.ones(dim))

    def forward(self, x):
        return x.mul(self.gamma)


class Attn(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.h = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.q_norm = nn.LayerNorm(dim // heads)
        self.k_norm = nn.LayerNorm(dim // heads)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.h, C // self.h).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Layer(nn.Module):
    def __init__(self, dim, heads, cfg: Cfg, dp=0.0):
        super().__init__()
        hidden = int(dim * cfg.mlp_ratio)
        self.n1, self.n2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attn(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.ls1, self.ls2 = LayerScale(dim, cfg.ls_init), LayerScale(dim, cfg.ls_init)
        self.dp = DropPath(dp)

    def forward(self, x):
        x = x + self.dp(self.ls1(self.attn(self.n1(x))))
        x = x + self.dp(self.ls2(self.mlp(self.n2(x))))
        return x


class Model(nn.Module):
    def __init__(self, cfg: Cfg = Cfg()):
        super().__init__()
        self.cfg = cfg
        c = cfg
        self.embed = nn.Conv2d(c.in_ch, c.dim, c.patch, c.patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, c.dim))
        self.register_buffer("pos", sincos_2d(c.dim, c.grid), persistent=False)
        self.enc = nn.ModuleList(
            Layer(c.dim, c.heads, c, dp=c.drop_path * i / (c.depth - 1)) for i in range(c.depth))
        self.enc_norm = nn.LayerNorm(c.dim, eps=1e-6)

        self.to_dec = nn.Linear(c.dim, c.dec_dim)
        self.mask_tok = nn.Parameter(torch.zeros(1, 1, c.dec_dim))
        self.register_buffer("dec_pos", sincos_2d(c.dec_dim, c.grid), persistent=False)
        self.dec = nn.Sequential(*[Layer(c.dec_dim, c.dec_heads, c) for _ in range(c.dec_depth)],
                                 nn.LayerNorm(c.dec_dim, eps=1e-6))
        self.head = nn.Linear(c.dec_dim, c.patch ** 2 * c.in_ch)
        for p in (self.cls, self.mask_tok):
            nn.init.normal_(p, std=0.02)
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)

    def patchify(self, x):
        p, g = self.cfg.patch, self.cfg.grid
        x = x.reshape(x.shape[0], self.cfg.in_ch, g, p, g, p)
        return torch.einsum("nchpwq->nhwpqc", x).reshape(x.shape[0], g * g, -1)

    @property
    def n_keep(self):
        return int(self.cfg.n * (1 - self.cfg.mask_ratio))

    def encode(self, x, noise):
        x = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        order = noise.argsort(dim=1)
        restore = order.argsort(dim=1)
        keep = order[:, :self.n_keep]
        x = x.gather(1, keep.unsqueeze(-1).expand(-1, -1, x.size(-1)))
        mask = torch.ones_like(noise)
        mask[:, :self.n_keep] = 0
        mask = mask.gather(1, restore)
        x = torch.cat([self.cls.expand(x.size(0), -1, -1), x], 1)
        for layer in self.enc:
            x = layer(x)
        return self.enc_norm(x), mask, restore

    def decode(self, z, restore):
        z = self.to_dec(z)
        cls, z = z[:, :1], z[:, 1:]
        fill = self.mask_tok.repeat(z.shape[0], self.cfg.n - self.n_keep, 1)
        z = torch.cat([z, fill], dim=1)
        z = torch.gather(z, 1, restore[..., None].repeat(1, 1, z.shape[2]))
        z = self.dec(torch.cat([cls, z + self.dec_pos], 1))
        return self.head(z)[:, 1:]

    def forward(self, imgs, noise):
        latent, mask, restore = self.encode(imgs, noise)
        pred = self.decode(latent, restore)
        target = self.patchify(imgs)
        if self.cfg.norm_pix:
            mu = target.mean(-1, keepdim=True)
            var = target.var(-1, keepdim=True)
            target = (target - mu) / (var + 1e-6) ** 0.5
        loss = (pred - target).square().mean(-1)
        return {"loss": (loss * mask).sum() / mask.sum(), "mask": mask, "cls": latent[:, 0]}


def inputs(batch):
    cfg = Cfg()
    return torch.randn(batch, 3, cfg.img, cfg.img), torch.rand(batch, cfg.n)
