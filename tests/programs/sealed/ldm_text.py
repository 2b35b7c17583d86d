"""Text-conditional latent diffusion (epsilon / v prediction) with an EMA copy of the denoiser.

Latents come precomputed from a frozen VAE (4 x 32 x 32), text as token ids.
"""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def timestep_embedding(t, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32, device=t.device) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


def zero_module(module):
    for p in module.parameters():
        p.detach().zero_()
    return module


def norm(c):
    return nn.GroupNorm(32, c, eps=1e-6)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb, dropout=0.0):
        super().__init__()
        self.in_layers = nn.Sequential(norm(cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, 2 * cout))
        self.out_norm = norm(cout)
        self.out_layers = nn.Sequential(nn.SiLU(), nn.Dropout(dropout),
                                        zero_module(nn.Conv2d(cout, cout, 3, padding=1)))
        self.skip = nn.Identity() if cin == cout else nn.Conv2d(cin, cout, 1)

    def forward(self, x, emb):
        h = self.in_layers(x)
        scale, shift = self.emb_layers(emb)[:, :, None, None].chunk(2, dim=1)
        h = self.out_norm(h) * (1 + scale) + shift
        return self.skip(x) + self.out_layers(h)


class GEGLU(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.proj = nn.Linear(dim, inner * 2)

    def forward(self, x):
        x, gate = self.proj(x).chunk(2, dim=-1)
        return x * F.gelu(gate)


class CrossAttention(nn.Module):
    def __init__(self, dim, ctx_dim=None, heads=4):
        super().__init__()
        ctx_dim = ctx_dim or dim
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(ctx_dim, dim, bias=False)
        self.to_v = nn.Linear(ctx_dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x, context=None, mask=None):
        context = x if context is None else context
        b, n, d = x.shape
        q, k, v = (t.view(b, -1, self.heads, d // self.heads).transpose(1, 2)
                   for t in (self.to_q(x), self.to_k(context), self.to_v(context)))
        sim = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale
        if mask is not None:
            sim = sim.masked_fill(~mask[:, None, None, :], -torch.finfo(sim.dtype).max)
        attn = sim.softmax(dim=-1)
        out = torch.einsum("bhij,bhjd->bhid", attn, v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, d))


class SpatialTransformer(nn.Module):
    def __init__(self, ch, ctx_dim, heads=4):
        super().__init__()
        self.norm = norm(ch)
        self.proj_in = nn.Conv2d(ch, ch, 1)
        self.attn1, self.attn2 = CrossAttention(ch, heads=heads), CrossAttention(ch, ctx_dim, heads)
        self.ff = nn.Sequential(GEGLU(ch, ch * 4), nn.Linear(ch * 4, ch))
        self.n1, self.n2, self.n3 = nn.LayerNorm(ch), nn.LayerNorm(ch), nn.LayerNorm(ch)
        self.proj_out = zero_module(nn.Conv2d(ch, ch, 1))

    def forward(self, x, context, mask):
        b, c, h, w = x.shape
        y = self.proj_in(self.norm(x)).flatten(2).transpose(1, 2)
        y = self.attn1(self.n1(y)) + y
        y = self.attn2(self.n2(y), context, mask) + y
        y = self.ff(self.n3(y)) + y
        return x + self.proj_out(y.transpose(1, 2).reshape(b, c, h, w))


class CondSequential(nn.Sequential):
    def forward(self, x, emb, context, mask):
        for layer in self:
            if isinstance(layer, ResBlock):
                x = layer(x, emb)
            elif isinstance(layer, SpatialTransformer):
                x = layer(x, context, mask)
            else:
                x = layer(x)
        return x


class UNet(nn.Module):
    def __init__(self, in_ch=4, ch=96, mult=(1, 2, 3), n_res=1, attn_levels=(1, 2), ctx_dim=256):
        super().__init__()
        emb = ch * 4
        self.ch = ch
        self.time = nn.Sequential(nn.Linear(ch, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.input_blocks = nn.ModuleList([CondSequential(nn.Conv2d(in_ch, ch, 3, padding=1))])
        chans, cur = [ch], ch
        for lvl, m in enumerate(mult):
            for _ in range(n_res):
                layers = [ResBlock(cur, ch * m, emb)]
                cur = ch * m
                if lvl in attn_levels:
                    layers.append(SpatialTransformer(cur, ctx_dim))
                self.input_blocks.append(CondSequential(*layers))
                chans.append(cur)
            if lvl != len(mult) - 1:
                self.input_blocks.append(CondSequential(nn.Conv2d(cur, cur, 3, 2, 1)))
                chans.append(cur)
        self.middle = CondSequential(ResBlock(cur, cur, emb), SpatialTransformer(cur, ctx_dim), ResBlock(cur, cur, emb))
        self.output_blocks = nn.ModuleList()
        for lvl, m in reversed(list(enumerate(mult))):
            for i in range(n_res + 1):
                layers = [ResBlock(cur + chans.pop(), ch * m, emb)]
                cur = ch * m
                if lvl in attn_levels:
                    layers.append(SpatialTransformer(cur, ctx_dim))
                if lvl and i == n_res:
                    layers += [nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(cur, cur, 3, padding=1)]
                self.output_blocks.append(CondSequential(*layers))
        self.out = nn.Sequential(norm(cur), nn.SiLU(), zero_module(nn.Conv2d(cur, in_ch, 3, padding=1)))

    def forward(self, x, t, context, mask):
        emb = self.time(timestep_embedding(t, self.ch))
        hs = []
        for blk in self.input_blocks:
            x = blk(x, emb, context, mask)
            hs.append(x)
        x = self.middle(x, emb, context, mask)
        for blk in self.output_blocks:
            x = blk(torch.cat([x, hs.pop()], dim=1), emb, context, mask)
        return self.out(x)


class TextEncoder(nn.Module):
    def __init__(self, vocab=8192, dim=256, length=32, layers=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim, padding_idx=0)
        self.pos = nn.Parameter(torch.randn(1, length, dim) * 0.01)
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 4, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.ln = nn.LayerNorm(dim)

    def forward(self, ids):
        return self.ln(self.enc(self.tok(ids) + self.pos))


class Model(nn.Module):
    def __init__(self, timesteps=1000, ema_decay=0.9999, p_uncond=0.1, min_snr=5.0, scale_factor=0.18215):
        super().__init__()
        self.text = TextEncoder()
        self.unet = UNet()
        self.ema = copy.deepcopy(self.unet).requires_grad_(False)
        self.null_ctx = nn.Parameter(torch.zeros(1, 1, 256))
        self.decay, self.p_uncond, self.min_snr, self.scale_factor = ema_decay, p_uncond, min_snr, scale_factor
        self.T = timesteps
        betas = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, timesteps, dtype=torch.float64) ** 2
        acp = torch.cumprod(1 - betas, 0)
        self.register_buffer("sqrt_acp", acp.sqrt().float())
        self.register_buffer("sqrt_1macp", (1 - acp).sqrt().float())
        self.register_buffer("snr", (acp / (1 - acp)).float())
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def update_ema(self):
        self.step += 1
        decay = torch.clamp((1 + self.step) / (10 + self.step), max=self.decay)
        for e, p in zip(self.ema.parameters(), self.unet.parameters()):
            e.sub_((1 - decay) * (e - p.detach()))

    def forward(self, latents, ids):
        self.update_ema()
        b = latents.shape[0]
        x0 = latents * self.scale_factor
        t = torch.randint(0, self.T, (b,), device=x0.device)
        noise = torch.randn_like(x0)
        a, s = self.sqrt_acp[t].view(-1, 1, 1, 1), self.sqrt_1macp[t].view(-1, 1, 1, 1)
        xt = a * x0 + s * noise
        v = a * noise - s * x0

        mask = ids != 0
        ctx = self.text(ids)
        drop = torch.rand(b, 1, 1, device=ids.device) < self.p_uncond
        ctx = torch.where(drop, self.null_ctx.expand_as(ctx), ctx)
        mask = mask | drop.squeeze(-1)

        pred = self.unet(xt, t, ctx, mask)
        w = self.snr[t].clamp(max=self.min_snr) / (self.snr[t] + 1)
        loss = (w * F.mse_loss(pred, v, reduction="none").mean((1, 2, 3))).mean()

        # how far is the averaged net, logged only
        with torch.no_grad():
            ema_pred = self.ema(xt, t, ctx, mask)
            ema_loss = (w * (ema_pred - v).square().mean((1, 2, 3))).mean()
        return {"loss": loss, "ema_loss": ema_loss}


def inputs(batch):
    ids = torch.randint(1, 8192, (batch, 32))
    ids[:, 20:] = 0
    return torch.randn(batch, 4, 32, 32) / 0.18215, ids
