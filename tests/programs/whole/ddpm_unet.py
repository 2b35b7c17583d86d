"""Tiny eps-prediction DDPM for chest-xray patches (1 channel, 64x64).

Usage in train.py:
    loss = model(x0, t, noise)
Timesteps and noise are drawn in the data loader so that the validation loss is reproducible.
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import einsum


def exists(x):
    return x is not None


def default(val, d):
    if exists(val):
        return val
    return d() if callable(d) else d


def extract(a, t, x_shape):
    b, *_ = t.shape
    out = a.gather(-1, t)
    return out.reshape(b, *((1,) * (len(x_shape) - 1)))


def cosine_beta_schedule(timesteps, s=0.008):
    steps = timesteps + 1
    x = torch.linspace(0, timesteps, steps, dtype=torch.float64)
    alphas_cumprod = torch.cos(((x / timesteps) + s) / (1 + s) * math.pi * 0.5) ** 2
    alphas_cumprod = alphas_cumprod / alphas_cumprod[0]
    betas = 1 - (alphas_cumprod[1:] / alphas_cumprod[:-1])
    return torch.clip(betas, 0, 0.999)


class ResPreNorm(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.fn = fn
        self.norm = nn.GroupNorm(1, dim)

    def forward(self, x, *args, **kwargs):
        return self.fn(self.norm(x), *args, **kwargs) + x


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half_dim = self.dim // 2
        emb = math.log(10000) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, device=time.device) * -emb)
        emb = time[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class Block(nn.Module):
    def __init__(self, dim, dim_out, groups=8):
        super().__init__()
        self.proj = nn.Conv2d(dim, dim_out, 3, padding=1)
        self.norm = nn.GroupNorm(groups, dim_out)
        self.act = nn.SiLU()

    def forward(self, x, scale_shift=None):
        x = self.norm(self.proj(x))
        if exists(scale_shift):
            scale, shift = scale_shift
            x = x * (scale + 1) + shift
        return self.act(x)


class ResnetBlock(nn.Module):
    def __init__(self, dim, dim_out, *, time_emb_dim=None, groups=8):
        super().__init__()
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_emb_dim, dim_out * 2)) if exists(time_emb_dim) else None
        self.block1 = Block(dim, dim_out, groups=groups)
        self.block2 = Block(dim_out, dim_out, groups=groups)
        self.res_conv = nn.Conv2d(dim, dim_out, 1) if dim != dim_out else nn.Identity()

    def forward(self, x, time_emb=None):
        scale_shift = None
        if exists(self.mlp) and exists(time_emb):
            time_emb = self.mlp(time_emb)[:, :, None, None]
            scale_shift = time_emb.chunk(2, dim=1)
        h = self.block1(x, scale_shift=scale_shift)
        h = self.block2(h)
        return h + self.res_conv(x)


class LinearAttention(nn.Module):
    def __init__(self, dim, heads=4, dim_head=32):
        super().__init__()
        self.scale = dim_head ** -0.5
        self.heads = heads
        hidden_dim = dim_head * heads
        self.to_qkv = nn.Conv2d(dim, hidden_dim * 3, 1, bias=False)
        self.to_out = nn.Sequential(nn.Conv2d(hidden_dim, dim, 1), nn.GroupNorm(1, dim))

    def forward(self, x):
        b, c, h, w = x.shape
        qkv = self.to_qkv(x).chunk(3, dim=1)
        q, k, v = map(lambda t: t.reshape(b, self.heads, -1, h * w), qkv)
        q = q.softmax(dim=-2) * self.scale
        k = k.softmax(dim=-1)
        context = einsum('b h d n, b h e n -> b h d e', k, v)
        out = einsum('b h d e, b h d n -> b h e n', context, q)
        return self.to_out(out.reshape(b, -1, h, w))


class Attention(LinearAttention):
    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = map(lambda t: t.reshape(b, self.heads, -1, h * w), self.to_qkv(x).chunk(3, dim=1))
        sim = einsum('b h d i, b h d j -> b h i j', q * self.scale, k)
        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        out = einsum('b h i j, b h d j -> b h i d', sim.softmax(dim=-1), v)
        return self.to_out(out.transpose(-1, -2).reshape(b, -1, h, w))


class Unet(nn.Module):
    def __init__(self, dim, init_dim=None, dim_mults=(1, 2, 4), channels=1, groups=8):
        super().__init__()
        init_dim = default(init_dim, dim)
        self.init_conv = nn.Conv2d(channels, init_dim, 7, padding=3)
        dims = [init_dim, *map(lambda m: dim * m, dim_mults)]
        in_out = list(zip(dims[:-1], dims[1:]))
        time_dim = dim * 4
        self.time_mlp = nn.Sequential(SinusoidalPosEmb(dim), nn.Linear(dim, time_dim), nn.GELU(),
                                      nn.Linear(time_dim, time_dim))
        block = lambda i, o: ResnetBlock(i, o, groups=groups, time_emb_dim=time_dim)
        self.downs, self.ups = nn.ModuleList([]), nn.ModuleList([])
        for ind, (dim_in, dim_out) in enumerate(in_out):
            is_last = ind >= len(in_out) - 1
            self.downs.append(nn.ModuleList([
                block(dim_in, dim_in), block(dim_in, dim_in),
                ResPreNorm(dim_in, LinearAttention(dim_in)),
                nn.Conv2d(dim_in, dim_out, 4, 2, 1) if not is_last else nn.Conv2d(dim_in, dim_out, 3, padding=1)]))
        mid = dims[-1]
        self.mid_block1 = block(mid, mid)
        self.mid_attn = ResPreNorm(mid, Attention(mid))
        self.mid_block2 = block(mid, mid)
        for ind, (dim_in, dim_out) in enumerate(reversed(in_out)):
            is_last = ind == len(in_out) - 1
            up = nn.Sequential(nn.Upsample(scale_factor=2, mode='nearest'), nn.Conv2d(dim_out, dim_in, 3, padding=1))
            self.ups.append(nn.ModuleList([
                block(dim_out + dim_in, dim_out), block(dim_out + dim_in, dim_out),
                ResPreNorm(dim_out, LinearAttention(dim_out)),
                up if not is_last else nn.Conv2d(dim_out, dim_in, 3, padding=1)]))
        self.final_res_block = block(init_dim * 2, dim)
        self.final_conv = nn.Conv2d(dim, channels, 1)

    def forward(self, x, time):
        x = self.init_conv(x)
        r = x.clone()
        t = self.time_mlp(time)
        h = []
        for block1, block2, attn, downsample in self.downs:
            x = block1(x, t)
            h.append(x)
            x = attn(block2(x, t))
            h.append(x)
            x = downsample(x)
        x = self.mid_block2(self.mid_attn(self.mid_block1(x, t)), t)
        for block1, block2, attn, upsample in self.ups:
            x = block1(torch.cat((x, h.pop()), dim=1), t)
            x = block2(torch.cat((x, h.pop()), dim=1), t)
            x = upsample(attn(x))
        return self.final_conv(self.final_res_block(torch.cat((x, r), dim=1), t))


class Model(nn.Module):
    def __init__(self, timesteps=1000, min_snr_gamma=5):
        super().__init__()
        self.model = Unet(dim=32)
        alphas_cumprod = torch.cumprod(1. - cosine_beta_schedule(timesteps), dim=0)
        register_buffer = lambda name, val: self.register_buffer(name, val.to(torch.float32))
        register_buffer('sqrt_ac', alphas_cumprod.sqrt())
        register_buffer('sqrt_om_ac', (1 - alphas_cumprod).sqrt())
        snr = alphas_cumprod / (1 - alphas_cumprod)
        register_buffer('loss_weight', snr.clone().clamp_(max=min_snr_gamma) / snr)

    def q_sample(self, x_start, t, noise):
        return extract(self.sqrt_ac, t, x_start.shape) * x_start + extract(self.sqrt_om_ac, t, x_start.shape) * noise

    def forward(self, img, t, noise):
        x_start = img * 2 - 1
        pred = self.model(self.q_sample(x_start, t, noise), t)
        loss = F.mse_loss(pred, noise, reduction='none').flatten(1).mean(1)
        return (loss * self.loss_weight.gather(0, t)).mean()


def inputs(batch):
    return (torch.rand(batch, 1, 64, 64), torch.randint(0, 1000, (batch,)), torch.randn(batch, 1, 64, 64))
