"""Conformer encoder trained with CTC + intermediate CTC (InterCTC). Log-mel frontend on the device.

Notation: B batch, T frames, C channels, V vocab (0 = blank)
"""
import math
from typing import List, Tuple

import torch
from torch import Tensor, nn
import torch.nn.functional as F


def mel_filterbank(n_freqs: int, n_mels: int, sr: int, fmin: float = 20.0) -> Tensor:
    def hz2mel(f):
        return 2595.0 * math.log10(1.0 + f / 700.0)

    all_freqs = torch.linspace(0, sr // 2, n_freqs)
    m_pts = torch.linspace(hz2mel(fmin), hz2mel(sr / 2), n_mels + 2)
    f_pts = 700.0 * (10 ** (m_pts / 2595.0) - 1.0)
    diff = f_pts[1:] - f_pts[:-1]
    slopes = f_pts[None, :] - all_freqs[:, None]
    down = -slopes[:, :-2] / diff[:-1]
    up = slopes[:, 2:] / diff[1:]
    return torch.clamp(torch.min(down, up), min=0.0)


class LogMel(nn.Module):
    def __init__(self, sr: int = 16000, n_fft: int = 400, hop: int = 160, n_mels: int = 80) -> None:
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("fb", mel_filterbank(n_fft // 2 + 1, n_mels, sr))

    @torch.no_grad()
    def forward(self, wav: Tensor) -> Tensor:
        spec = torch.stft(wav, self.n_fft, self.hop, window=self.window, center=True, return_complex=True)
        power = spec.real ** 2 + spec.imag ** 2
        mel = torch.matmul(power.transpose(1, 2), self.fb).add(1e-6).log()
        return (mel - mel.mean(1, keepdim=True)) / (mel.std(1, keepdim=True) + 1e-5)


class ConvSubsampling(nn.Module):
    def __init__(self, idim: int, odim: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 64, 3, stride=2), nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, 3, stride=2), nn.ReLU(inplace=True),
        )
        self.out = nn.Linear(64 * (((idim - 1) // 2 - 1) // 2), odim)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x.unsqueeze(1))
        b, c, t, f = x.size()
        return self.out(x.transpose(1, 2).contiguous().view(b, t, c * f))

    @staticmethod
    def out_len(n):
        for _ in range(2):
            n = (n - 3) // 2 + 1
        return n


class ConvModule(nn.Module):
    def __init__(self, d: int, kernel: int = 15) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.pw1 = nn.Conv1d(d, 2 * d, 1)
        self.dw = nn.Conv1d(d, d, kernel, padding=(kernel - 1) // 2, groups=d)
        self.bn = nn.BatchNorm1d(d)
        self.pw2 = nn.Conv1d(d, d, 1)

    def forward(self, x: Tensor, pad_mask: Tensor) -> Tensor:
        x = self.norm(x).transpose(1, 2)
        x = F.glu(self.pw1(x), dim=1)
        x = x.masked_fill(pad_mask.unsqueeze(1), 0.0)
        return self.pw2(F.silu(self.bn(self.dw(x)), inplace=True)).transpose(1, 2)


class ConformerBlock(nn.Module):
    def __init__(self, d: int, heads: int, ff_mult: int = 4, p: float = 0.1) -> None:
        super().__init__()

        def ffn():
            return nn.Sequential(nn.LayerNorm(d), nn.Linear(d, ff_mult * d), nn.SiLU(), nn.Dropout(p),
                                 nn.Linear(ff_mult * d, d), nn.Dropout(p))

        self.ff1, self.ff2 = ffn(), ffn()
        self.attn_norm = nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, dropout=p, batch_first=True)
        self.conv = ConvModule(d)
        self.drop = nn.Dropout(p)
        self.final = nn.LayerNorm(d)

    def forward(self, x: Tensor, pad_mask: Tensor) -> Tensor:
        x = x + 0.5 * self.ff1(x)
        y = self.attn_norm(x)
        x = x + self.drop(self.attn(y, y, y, key_padding_mask=pad_mask, need_weights=False)[0])
        x = x + self.drop(self.conv(x, pad_mask))
        x = x + 0.5 * self.ff2(x)
        return self.final(x)


def ctc_loss(logits: Tensor, y: Tensor, in_len: Tensor, y_len: Tensor, blank: int = 0, neg: float = -1e30) -> Tensor:
    """Log-space alpha recursion. Same value as F.ctc_loss(reduction="mean"), but deterministic on GPU."""
    logp = logits.log_softmax(-1)
    b, t_max, _ = logp.shape
    ext = torch.stack([torch.full_like(y, blank), y], dim=2).flatten(1)
    ext = F.pad(ext, (0, 1), value=blank)                       # (B, 2U+1)  _ a _ b _ ... _
    emit = logp.gather(2, ext[:, None, :].expand(-1, t_max, -1))
    can_skip = F.pad((ext[:, 2:] != blank) & (ext[:, 2:] != ext[:, :-2]), (2, 0), value=False)

    first = torch.arange(ext.size(1), device=y.device) < 2
    alpha = emit[:, 0].masked_fill(~first, neg)
    for t in range(1, t_max):
        step1 = F.pad(alpha, (1, 0), value=neg)[:, :-1]
        step2 = F.pad(alpha, (2, 0), value=neg)[:, :-2].masked_fill(~can_skip, neg)
        new = torch.logsumexp(torch.stack([alpha, step1, step2]), dim=0) + emit[:, t]
        alpha = torch.where((t < in_len)[:, None], new, alpha)

    last = torch.stack([2 * y_len, 2 * y_len - 1], dim=1)
    nll = -alpha.gather(1, last).logsumexp(dim=1)
    return (nll / y_len).mean()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.d, self.vocab = 192, 96
        self.frontend = LogMel()
        self.subsample = ConvSubsampling(80, self.d)
        self.blocks = nn.ModuleList([ConformerBlock(self.d, 4) for _ in range(6)])
        self.inter_at = {2, 4}
        self.ctc_out = nn.Linear(self.d, self.vocab)
        self.cond = nn.Linear(self.vocab, self.d)  # self-conditioning
        self.inter_weight = 0.3

    def posenc(self, x: Tensor) -> Tensor:
        t = torch.arange(x.size(1), device=x.device, dtype=x.dtype).unsqueeze(1)
        div = torch.exp(torch.arange(0, self.d, 2, device=x.device, dtype=x.dtype) * (-math.log(1e4) / self.d))
        pe = torch.cat([torch.sin(t * div), torch.cos(t * div)], dim=1)
        return x * math.sqrt(self.d) + pe

    def forward(self, wav: Tensor, wav_len: Tensor, y: Tensor, y_len: Tensor) -> Tuple[Tensor, Tensor]:
        feats = self.frontend(wav)
        x = self.posenc(self.subsample(feats))
        lens = ConvSubsampling.out_len(wav_len // self.frontend.hop + 1)
        pad_mask = torch.arange(x.size(1), device=x.device)[None, :] >= lens[:, None]

        inter: List[Tensor] = []
        for i, block in enumerate(self.blocks, 1):
            x = block(x, pad_mask)
            if i in self.inter_at:
                logits = self.ctc_out(x)
                inter.append(ctc_loss(logits, y, lens, y_len))
                x = x + self.cond(logits.softmax(-1))
        main = ctc_loss(self.ctc_out(x), y, lens, y_len)
        loss = (1 - self.inter_weight) * main + self.inter_weight * torch.stack(inter).mean()
        return loss, main.detach()


def inputs(batch: int):
    wav = torch.randn(batch, 32000) * 0.1
    wav_len = torch.randint(24000, 32001, (batch,))
    y = torch.randint(1, 96, (batch, 14))
    y_len = torch.randint(6, 15, (batch,))
    return wav, wav_len, y, y_len
