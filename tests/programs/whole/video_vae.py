from dataclasses import dataclass, field
from typing import List, Optional, Tuple, Union

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


@dataclass
class VideoVAEConfig:
    in_channels: int = 3
    latent_channels: int = 8
    base: int = 32
    channel_mult: Tuple[int, ...] = (1, 2, 4)
    temporal_down: Tuple[bool, ...] = (False, True)
    num_res_blocks: int = 1
    kl_weight: float = 1e-6
    lpips_weight: float = 0.5
    disc_start_weight: float = 0.05
    gradient_checkpointing: bool = True


def nonlinearity(x, inplace=False):
    return F.silu(x, inplace=inplace)


class CausalConv3d(nn.Conv3d):
    """Causal 3d convolution: pads only towards the past in time."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._padding = (self.padding[2], self.padding[2], self.padding[1], self.padding[1], 2 * self.padding[0], 0)
        self.padding = (0, 0, 0)

    def forward(self, x):
        x = F.pad(x, self._padding)
        return super().forward(x)


class RMS_norm(nn.Module):
    def __init__(self, dim, images=False, bias=False):
        super().__init__()
        shape = (dim, 1, 1) if images else (dim, 1, 1, 1)
        self.scale = dim ** 0.5
        self.gamma = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape)) if bias else 0.

    def forward(self, x):
        return F.normalize(x, dim=1) * self.scale * self.gamma + self.bias


class Resample(nn.Module):
    def __init__(self, dim, mode):
        super().__init__()
        self.mode = mode
        if mode.startswith('upsample'):
            self.resample = nn.Sequential(
                nn.Upsample(scale_factor=(2., 2.), mode='nearest-exact'),
                nn.Conv2d(dim, dim // 2, 3, padding=1))
            if mode == 'upsample3d':
                self.time_conv = CausalConv3d(dim, dim * 2, (3, 1, 1), padding=(1, 0, 0))
        else:
            self.resample = nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(dim, dim, 3, stride=(2, 2)))
            if mode == 'downsample3d':
                self.time_conv = nn.Conv3d(dim, dim, (3, 1, 1), stride=(2, 1, 1))

    def forward(self, x):
        b, c, t, h, w = x.size()
        if self.mode == 'upsample3d':
            first, rest = x[:, :, :1], x[:, :, 1:]
            y = self.time_conv(x)[:, :, 1:]
            y = y.reshape(b, 2, c, t - 1, h, w)
            y = torch.stack((y[:, 0], y[:, 1]), 3).reshape(b, c, (t - 1) * 2, h, w)
            x = torch.cat([first, y], 2)
        t = x.shape[2]
        x = x.permute(0, 2, 1, 3, 4).reshape(b * t, c, h, w)
        x = self.resample(x)
        x = x.view(b, t, x.size(1), x.size(2), x.size(3)).permute(0, 2, 1, 3, 4)
        if self.mode == 'downsample3d':
            head, tail = x[:, :, :1], x
            tail = self.time_conv(tail)
            x = torch.cat([head, tail], 2)
        return x


class ResidualBlock(nn.Module):
    def __init__(self, in_dim, out_dim, dropout=0.0):
        super().__init__()
        self.residual = nn.Sequential(
            RMS_norm(in_dim), nn.SiLU(),
            CausalConv3d(in_dim, out_dim, 3, padding=1),
            RMS_norm(out_dim), nn.SiLU(), nn.Dropout(dropout),
            CausalConv3d(out_dim, out_dim, 3, padding=1))
        self.shortcut = CausalConv3d(in_dim, out_dim, 1) if in_dim != out_dim else nn.Identity()

    def forward(self, x):
        h = self.shortcut(x)
        for layer in self.residual:
            x = layer(x)
        return x + h


class AttentionBlock(nn.Module):
    """ per-frame single head attention """

    def __init__(self, dim):
        super().__init__()
        self.norm = RMS_norm(dim, images=True)
        self.to_qkv = nn.Conv2d(dim, dim * 3, 1)
        self.proj = nn.Conv2d(dim, dim, 1)
        nn.init.zeros_(self.proj.weight)

    def forward(self, x):
        identity = x
        b, c, t, h, w = x.size()
        x = x.transpose(1, 2).reshape(b * t, c, h, w)
        x = self.norm(x)
        q, k, v = self.to_qkv(x).reshape(b * t, 1, c * 3, -1).permute(0, 1, 3, 2).contiguous().chunk(3, dim=-1)
        x = F.scaled_dot_product_attention(q, k, v)
        x = x.squeeze(1).permute(0, 2, 1).reshape(b * t, c, h, w)
        x = self.proj(x)
        x = x.view(b, t, c, h, w).transpose(1, 2)
        return x + identity


class Encoder3d(nn.Module):
    def __init__(self, cfg: VideoVAEConfig):
        super().__init__()
        dims = [cfg.base * m for m in (1,) + tuple(cfg.channel_mult)]
        self.conv1 = CausalConv3d(cfg.in_channels, dims[0], 3, padding=1)
        downsamples = []
        for i, (a, b) in enumerate(zip(dims[:-1], dims[1:])):
            for _ in range(cfg.num_res_blocks):
                downsamples.append(ResidualBlock(a, b))
                a = b
            if i != len(cfg.channel_mult) - 1:
                downsamples.append(Resample(b, 'downsample3d' if cfg.temporal_down[i] else 'downsample2d'))
        self.downsamples = nn.ModuleList(downsamples)
        d = dims[-1]
        self.middle = nn.Sequential(ResidualBlock(d, d), AttentionBlock(d), ResidualBlock(d, d))
        self.head = nn.Sequential(RMS_norm(d), nn.SiLU(), CausalConv3d(d, 2 * cfg.latent_channels, 3, padding=1))

    def forward(self, x):
        x = self.conv1(x)
        for layer in self.downsamples:
            x = layer(x)
        return self.head(self.middle(x))


class Decoder3d(nn.Module):
    def __init__(self, cfg: VideoVAEConfig):
        super().__init__()
        self.use_ckpt = cfg.gradient_checkpointing
        mult = list(cfg.channel_mult)[::-1]
        d = cfg.base * mult[0]
        self.conv1 = CausalConv3d(cfg.latent_channels, d, 3, padding=1)
        self.middle = nn.Sequential(ResidualBlock(d, d), AttentionBlock(d), ResidualBlock(d, d))
        ups = []
        temporal_up = list(cfg.temporal_down)[::-1]
        for i, m in enumerate(mult):
            out = cfg.base * m
            for _ in range(cfg.num_res_blocks + 1):
                ups.append(ResidualBlock(d, out))
                d = out
            if i != len(mult) - 1:
                ups.append(Resample(d, 'upsample3d' if temporal_up[i] else 'upsample2d'))
                d = d // 2
        self.upsamples = nn.ModuleList(ups)
        self.head = nn.Sequential(RMS_norm(d), nn.SiLU(), CausalConv3d(d, cfg.in_channels, 3, padding=1))

    def forward(self, z):
        x = self.middle(self.conv1(z))
        for layer in self.upsamples:
            if self.use_ckpt and self.training and isinstance(layer, ResidualBlock):
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        return self.head(x)


class DiagonalGaussianDistribution:
    def __init__(self, parameters: torch.Tensor):
        self.mean, self.logvar = torch.chunk(parameters, 2, dim=1)
        self.logvar = torch.clamp(self.logvar, -30.0, 20.0)
        self.std = torch.exp(0.5 * self.logvar)
        self.var = torch.exp(self.logvar)

    def sample(self):
        return self.mean + self.std * torch.randn_like(self.mean)

    def kl(self):
        return 0.5 * torch.sum(torch.pow(self.mean, 2) + self.var - 1.0 - self.logvar, dim=[1, 2, 3, 4])


class FrozenFeatures(nn.Module):
    """stand-in for LPIPS: vgg-ish trunk, weights frozen, channel-normalised differences"""

    def __init__(self, widths=(32, 64, 128)):
        super().__init__()
        self.slices = nn.ModuleList()
        c = 3
        for i, w in enumerate(widths):
            mods = [nn.MaxPool2d(2)] if i else []
            mods += [nn.Conv2d(c, w, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(w, w, 3, padding=1), nn.ReLU(inplace=True)]
            self.slices.append(nn.Sequential(*mods))
            c = w
        self.lin = nn.ModuleList([nn.Conv2d(w, 1, 1, bias=False) for w in widths])
        self.register_buffer('shift', torch.tensor([-.030, -.088, -.188])[None, :, None, None])
        self.register_buffer('scale', torch.tensor([.458, .448, .450])[None, :, None, None])
        for p in self.parameters():
            p.requires_grad = False

    def forward(self, x, y):
        x, y = (x - self.shift) / self.scale, (y - self.shift) / self.scale
        val = 0
        for s, lin in zip(self.slices, self.lin):
            x, y = s(x), s(y)
            nx = x / (x.pow(2).sum(1, keepdim=True).sqrt() + 1e-10)
            ny = y / (y.pow(2).sum(1, keepdim=True).sqrt() + 1e-10)
            val = val + lin((nx - ny) ** 2).mean([2, 3], keepdim=True)
        return val


class Model(nn.Module):
    def __init__(self, cfg: Optional[VideoVAEConfig] = None):
        super().__init__()
        self.cfg = cfg or VideoVAEConfig()
        self.encoder = Encoder3d(self.cfg)
        self.quant_conv = CausalConv3d(2 * self.cfg.latent_channels, 2 * self.cfg.latent_channels, 1)
        self.post_quant_conv = CausalConv3d(self.cfg.latent_channels, self.cfg.latent_channels, 1)
        self.decoder = Decoder3d(self.cfg)
        self.perceptual_loss = FrozenFeatures()
        self.logvar = nn.Parameter(torch.ones(size=()) * 0.0)

    def forward(self, video):
        posterior = DiagonalGaussianDistribution(self.quant_conv(self.encoder(video)))
        z = posterior.sample()
        rec = self.decoder(self.post_quant_conv(z))

        rec_loss = torch.abs(video.contiguous() - rec.contiguous())
        b, c, t, h, w = video.shape
        flat = lambda v: v.permute(0, 2, 1, 3, 4).reshape(b * t, c, h, w)
        p_loss = self.perceptual_loss(flat(video), flat(rec))
        p_loss = p_loss.view(b, t, 1, 1, 1).transpose(1, 2)
        rec_loss = rec_loss + self.cfg.lpips_weight * p_loss
        nll_loss = rec_loss / torch.exp(self.logvar) + self.logvar
        nll_loss = nll_loss.flatten(1).sum(1).mean()
        kl_loss = posterior.kl().mean()
        loss = nll_loss + self.cfg.kl_weight * kl_loss
        return {"loss": loss, "kl": kl_loss.detach(), "nll": nll_loss.detach()}


def inputs(batch):
    return (torch.rand(batch, 3, 9, 64, 64) * 2 - 1,)
