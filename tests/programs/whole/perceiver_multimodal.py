from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn
import torch.nn.functional as F

# Perceiver IO for video-clip emotion recognition: frames + log-mel + transcript.
# ISAB / PMA blocks from the Set Transformer reduce each modality first.


@dataclass
class Cfg:
    d_latent: int = 384
    n_latents: int = 96
    d_mod: int = 192
    n_inducing: int = 32
    self_per_cross: int = 3
    n_cross: int = 2            # cross-attend repeats, weights shared after the first
    heads: int = 6
    p_modality: float = 0.25
    vocab: int = 16000
    n_frames: int = 4
    img: int = 64
    patch: int = 8
    mel_bins: int = 64
    mel_len: int = 200
    text_len: int = 48
    n_classes: int = 7
    bands: int = 8


def fourier(coords: Tensor, bands: int) -> Tensor:
    freq = torch.linspace(1.0, 16.0, bands, device=coords.device) * math.pi
    ang = coords.unsqueeze(-1) * freq
    return torch.cat([ang.sin().flatten(-2), ang.cos().flatten(-2), coords], dim=-1)


class CrossAttn(nn.Module):
    """Pre-norm attention block; queries may have another width than the context."""

    def __init__(self, dq: int, dkv: Optional[int] = None, heads: int = 6, mult: int = 2, drop: float = 0.1):
        super().__init__()
        dkv = dkv or dq
        self.heads = heads
        self.nq, self.nkv = nn.LayerNorm(dq), nn.LayerNorm(dkv)
        self.q = nn.Linear(dq, dq, bias=False)
        self.kv = nn.Linear(dkv, 2 * dq, bias=False)
        self.o = nn.Linear(dq, dq)
        self.ff = nn.Sequential(nn.LayerNorm(dq), nn.Linear(dq, 2 * mult * dq), GEGLU(), nn.Dropout(drop),
                                nn.Linear(mult * dq, dq))
        self.drop = drop

    def forward(self, x: Tensor, ctx: Tensor, keep: Optional[Tensor] = None) -> Tensor:
        ctx = self.nkv(ctx)
        q = self.q(self.nq(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.kv(ctx).chunk(2, -1))
        bias = None
        if keep is not None:
            bias = torch.zeros_like(keep, dtype=x.dtype).masked_fill(~keep, -1e4)[:, None, None, :]
            bias = bias.expand(-1, self.heads, q.size(2), -1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=self.drop if self.training else 0.0)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.ff(x)


class GEGLU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a, g = x.chunk(2, -1)
        return a * F.gelu(g)


class SelfAttn(CrossAttn):
    def forward(self, x: Tensor, keep: Optional[Tensor] = None) -> Tensor:  # type: ignore[override]
        return super().forward(x, x, keep)


class ISAB(nn.Module):
    def __init__(self, d: int, m: int, heads: int):
        super().__init__()
        self.inducing = nn.Parameter(torch.randn(1, m, d) * 0.02)
        self.down, self.up = CrossAttn(d, heads=heads), CrossAttn(d, heads=heads)

    def forward(self, x: Tensor, keep: Optional[Tensor] = None) -> Tensor:
        h = self.down(self.inducing.expand(x.size(0), -1, -1), x, keep)
        return self.up(x, h)


class PMA(nn.Module):
    def __init__(self, d: int, k: int, heads: int):
        super().__init__()
        self.seed = nn.Parameter(torch.randn(1, k, d) * 0.02)
        self.block = CrossAttn(d, heads=heads)

    def forward(self, x: Tensor, keep: Optional[Tensor] = None) -> Tensor:
        return self.block(self.seed.expand(x.size(0), -1, -1), x, keep)


class Modality(nn.Module, ABC):
    """Turns raw input to (B, N, d_mod) tokens + keep mask, adds a modality code, has a learned 'missing' token."""

    def __init__(self, c: Cfg):
        super().__init__()
        self.code = nn.Parameter(torch.randn(1, 1, c.d_mod) * 0.02)
        self.missing = nn.Parameter(torch.zeros(1, 1, c.d_mod))
        self.isab = ISAB(c.d_mod, c.n_inducing, c.heads)

    @abstractmethod
    def tokens(self, x: Tensor) -> tuple[Tensor, Optional[Tensor]]: ...

    def forward(self, x: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        t, keep = self.tokens(x)
        t = self.isab(t, keep) + self.code
        t = torch.where(present.view(-1, 1, 1), t, self.missing.expand_as(t))
        if keep is None:
            keep = torch.ones(t.shape[:2], dtype=torch.bool, device=t.device)
        return t, keep


class Frames(Modality):
    def __init__(self, c: Cfg):
        super().__init__(c)
        self.p = c.patch
        self.stem = nn.Conv3d(3, c.d_mod, (1, c.patch, c.patch), (1, c.patch, c.patch))
        g = c.img // c.patch
        axes = [torch.linspace(-1, 1, n) for n in (c.n_frames, g, g)]
        pos = fourier(torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 2), c.bands)
        self.register_buffer("pos", pos, persistent=False)
        self.pos_proj = nn.Linear(pos.size(-1), c.d_mod)

    def tokens(self, x):
        return self.stem(x.transpose(1, 2)).flatten(2).transpose(1, 2) + self.pos_proj(self.pos), None


class Mel(Modality):
    def __init__(self, c: Cfg):
        super().__init__(c)
        self.conv = nn.Sequential(nn.Conv1d(c.mel_bins, c.d_mod, 5, 2, 2), nn.GELU(), nn.GroupNorm(8, c.d_mod))
        pos = fourier(torch.linspace(-1, 1, c.mel_len // 2).unsqueeze(-1), c.bands)
        self.register_buffer("pos", pos, persistent=False)
        self.pos_proj = nn.Linear(pos.size(-1), c.d_mod)

    def tokens(self, x):
        return self.conv(x).transpose(1, 2) + self.pos_proj(self.pos), None


class Text(Modality):
    def __init__(self, c: Cfg):
        super().__init__(c)
        self.emb = nn.Embedding(c.vocab, c.d_mod, padding_idx=0)
        self.pos = nn.Parameter(torch.randn(c.text_len, c.d_mod) * 0.02)

    def tokens(self, x):
        return self.emb(x) + self.pos, x.ne(0)


class Model(nn.Module):
    def __init__(self, c: Cfg = Cfg()):
        super().__init__()
        self.c = c
        self.mods = nn.ModuleDict({"video": Frames(c), "audio": Mel(c), "text": Text(c)})
        self.latents = nn.Parameter(torch.empty(c.n_latents, c.d_latent))
        nn.init.trunc_normal_(self.latents, std=0.02, a=-2.0, b=2.0)
        self.cross = nn.ModuleList([CrossAttn(c.d_latent, c.d_mod, c.heads) for _ in range(2)])
        self.towers = nn.ModuleList([
            nn.ModuleList([SelfAttn(c.d_latent, heads=c.heads) for _ in range(c.self_per_cross)]) for _ in range(2)])
        self.pool = PMA(c.d_latent, 2, c.heads)
        self.cls = nn.Linear(c.d_latent, c.n_classes)
        self.va = nn.Linear(c.d_latent, 2)          # valence / arousal
        # output queries: rebuild the spectrogram frames from the latents
        self.mel_query = nn.Linear(self.mods["audio"].pos.size(-1), c.d_mod)
        self.mel_dec = CrossAttn(c.d_mod, c.d_latent, c.heads)
        self.mel_out = nn.Linear(c.d_mod, c.mel_bins * 2)

    def modality_dropout(self, batch, device) -> Tensor:
        """(B, 3) bool; never drops all three."""
        keep = torch.rand(batch, len(self.mods), device=device) > self.c.p_modality
        if not self.training:
            keep = torch.ones_like(keep)
        lucky = torch.rand(batch, len(self.mods), device=device).argmax(1, keepdim=True)
        return keep.scatter(1, lucky, True)

    def forward(self, frames: Tensor, mel: Tensor, text: Tensor, label: Tensor, va: Tensor):
        b = frames.size(0)
        present = self.modality_dropout(b, frames.device)
        toks, keeps = [], []
        for i, (mod, x) in enumerate(zip(self.mods.values(), (frames, mel, text))):
            t, k = mod(x, present[:, i])
            toks.append(t)
            keeps.append(k)
        data, keep = torch.cat(toks, 1), torch.cat(keeps, 1)

        z = self.latents.expand(b, -1, -1)
        for i in range(self.c.n_cross + 1):
            j = min(i, 1)                           # shared from the second pass on
            z = self.cross[j](z, data, keep)
            for blk in self.towers[j]:
                z = blk(z)

        pooled = self.pool(z)
        logits, va_hat = self.cls(pooled[:, 0]), torch.tanh(self.va(pooled[:, 1]))
        q = self.mel_query(self.mods["audio"].pos).expand(b, -1, -1)
        mel_hat = self.mel_out(self.mel_dec(q, z)).unflatten(-1, (2, -1)).flatten(1, 2).transpose(1, 2)

        ccc = self.ccc(va_hat, va)
        ce = F.cross_entropy(logits, label, label_smoothing=0.05)
        rec = F.l1_loss(mel_hat, mel)
        return ce + (1 - ccc).mean() + 0.3 * rec, logits, va_hat, mel_hat

    @staticmethod
    def ccc(p: Tensor, t: Tensor) -> Tensor:
        pm, tm = p.mean(0), t.mean(0)
        cov = ((p - pm) * (t - tm)).mean(0)
        return 2 * cov / (p.var(0, unbiased=False) + t.var(0, unbiased=False) + (pm - tm) ** 2 + 1e-6)


def inputs(batch: int):
    c = Cfg()
    text = torch.randint(1, c.vocab, (batch, c.text_len))
    text = text * (torch.arange(c.text_len) < torch.randint(6, c.text_len + 1, (batch, 1)))
    return (torch.randn(batch, c.n_frames, 3, c.img, c.img), torch.randn(batch, c.mel_bins, c.mel_len), text,
            torch.randint(0, c.n_classes, (batch,)), torch.rand(batch, 2) * 2 - 1)
