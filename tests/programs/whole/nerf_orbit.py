#!/usr/bin/env python3
# NeRF for turntable captures.  Each batch item is a bundle of rays from one camera.
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm


class _TruncExp(torch.autograd.Function):
    """exp() whose gradient is clamped, as in instant-ngp."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.exp(x)

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * torch.exp(x.clamp(-15, 15))


trunc_exp = _TruncExp.apply


class FourierFeatures(nn.Module):
    def __init__(self, n_freqs, include_input=True):
        super().__init__()
        self.register_buffer("freqs", 2.0 ** torch.arange(n_freqs) * math.pi)
        self.include_input = include_input

    def out_dim(self, d=3):
        return d * (2 * self.freqs.numel() + int(self.include_input))

    def forward(self, x):
        proj = (x[..., None] * self.freqs).flatten(-2)
        feats = [proj.sin(), proj.cos()]
        if self.include_input:
            feats = [x] + feats
        return torch.cat(feats, -1)


class Sine(nn.Module):
    def __init__(self, w0=1.0):
        super().__init__()
        self.w0 = w0

    def forward(self, x):
        return torch.sin(self.w0 * x)


class TriPlane(nn.Module):
    """three learned feature planes sampled bilinearly"""

    def __init__(self, c=16, res=96):
        super().__init__()
        self.planes = nn.Parameter(0.1 * torch.randn(3, c, res, res))

    def forward(self, xyz):
        b, r, s, _ = xyz.shape
        feats = 0
        for plane, (i, j) in zip(self.planes, ((0, 1), (0, 2), (1, 2))):
            grid = torch.stack([xyz[..., i], xyz[..., j]], dim=-1)
            f = F.grid_sample(plane[None].expand(b, -1, -1, -1), grid, align_corners=True, padding_mode="border")
            feats = feats + f
        return feats.permute(0, 2, 3, 1)


class Field(nn.Module):
    def __init__(self, width=128, depth=5, skip=3, n_cams=32, app_dim=8):
        super().__init__()
        self.pe_x, self.pe_d = FourierFeatures(6), FourierFeatures(3)
        self.planes = TriPlane()
        d_in = self.pe_x.out_dim() + 16
        self.skip = skip
        self.trunk = nn.ModuleList()
        for i in range(depth):
            n = d_in if i == 0 else width + (d_in if i == skip else 0)
            self.trunk.append(weight_norm(nn.Linear(n, width)))
        self.sigma = nn.Linear(width, 1)
        self.bottleneck = nn.Linear(width, width // 2)
        self.appearance = nn.Embedding(n_cams, app_dim)
        self.rgb = nn.Sequential(nn.Linear(width // 2 + self.pe_d.out_dim() + app_dim, width // 2), Sine(), nn.Linear(width // 2, 3))
        nn.init.constant_(self.sigma.bias, -1.0)

    def forward(self, xyz, dirs, cam):
        inp = torch.cat([self.pe_x(xyz), self.planes(xyz)], dim=-1)
        h = inp
        for i, lin in enumerate(self.trunk):
            if i == self.skip:
                h = torch.cat([h, inp], -1)
            h = F.softplus(lin(h), beta=10.)
        sigma = trunc_exp(self.sigma(h).squeeze(-1))
        b, r, s = sigma.shape
        d = self.pe_d(dirs).unsqueeze(2).expand(b, r, s, -1)
        a = self.appearance(cam)[:, None, None].expand(b, r, s, -1)
        rgb = self.rgb(torch.cat([self.bottleneck(h), d, a], -1)).sigmoid()
        return sigma, rgb


def composite(sigma, rgb, t):
    delta = torch.diff(t, dim=-1, append=t[..., -1:] + 1e-2)
    alpha = 1. - torch.exp(-sigma * delta)
    trans = torch.cumprod(1. - alpha + 1e-10, dim=-1).roll(1, -1)
    trans[..., 0] = 1.
    w = alpha * trans
    color = (w.unsqueeze(-1) * rgb).sum(-2)
    acc = w.sum(-1)
    depth = (w * t).sum(-1) / acc.clamp_min(1e-6)
    return color + (1 - acc)[..., None], depth, w      # white background


def sample_pdf(t, w, u):
    """inverse-CDF resampling; gradients do not flow through the sample positions"""
    mids = .5 * (t[..., 1:] + t[..., :-1])
    pdf = w[..., 1:-1].detach() + 1e-5
    pdf = pdf / pdf.sum(-1, keepdim=True)
    cdf = F.pad(pdf.cumsum(-1), (1, 0))
    idx = torch.searchsorted(cdf, u.contiguous(), right=True)
    lo, hi = (idx - 1).clamp(min=0), idx.clamp(max=cdf.shape[-1] - 1)
    c0, c1 = cdf.gather(-1, lo), cdf.gather(-1, hi)
    m0, m1 = mids.gather(-1, lo), mids.gather(-1, hi)
    den = torch.where(c1 - c0 < 1e-5, torch.ones_like(c0), c1 - c0)
    return m0 + (u - c0) / den * (m1 - m0)


class Model(nn.Module):
    near, far = 0.5, 2.5

    def __init__(self, n_coarse=24, n_fine=24):
        super().__init__()
        self.field = Field()
        self.register_buffer("t_base", torch.linspace(self.near, self.far, n_coarse))
        self.register_buffer("u_fine", (torch.arange(n_fine) + .5) / n_fine)

    def render(self, o, d, cam, t):
        pts = o.unsqueeze(2) + d.unsqueeze(2) * t.unsqueeze(-1)
        return composite(*self.field(pts, d, cam), t)

    def forward(self, origins, dirs, target, cam):
        dirs = F.normalize(dirs, dim=-1)
        b, r, _ = origins.shape
        t = self.t_base.expand(b, r, -1)
        rgb_c, _, w = self.render(origins, dirs, cam, t)
        t_f = sample_pdf(t, w, self.u_fine.expand(b, r, -1))
        t_all, _ = torch.sort(torch.cat([t, t_f], -1), dim=-1)
        rgb_f, depth, w = self.render(origins, dirs, cam, t_all)
        # distortion-ish: keep weights compact around the mean depth
        reg = (w * (t_all - depth[..., None].detach()).square()).sum(-1).mean()
        mse = F.mse_loss(rgb_f, target)
        psnr = -10. * torch.log10(mse.detach())
        return {"loss": mse + 0.3 * F.mse_loss(rgb_c, target) + 1e-3 * reg, "psnr": psnr, "depth": depth}


def inputs(batch, rays=96):
    o = F.normalize(torch.randn(batch, 1, 3), dim=-1).mul(1.5).expand(-1, rays, -1).contiguous()
    d = -o + 0.2 * torch.randn(batch, rays, 3)
    return o, d, torch.rand(batch, rays, 3), torch.randint(0, 32, (batch,))
