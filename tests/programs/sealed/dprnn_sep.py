"""Dual-path RNN (Luo et al. 2020) for two speaker separation, 8 kHz, trained with uPIT SI-SNR."""
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class DPRNNConfig:
    n_src: int = 2
    n_filters: int = 128
    kernel: int = 16
    stride: int = 8
    bottleneck: int = 64
    hidden: int = 96
    chunk: int = 80
    n_blocks: int = 4
    n_samples: int = 12000


# ------------------------------------------------------------------ losses
def si_snr(est, ref, eps=1e-8):
    """(..., T), (..., T) -> (...)"""
    est = est - est.mean(-1, keepdim=True)
    ref = ref - ref.mean(-1, keepdim=True)
    proj = (est * ref).sum(-1, keepdim=True) * ref / (ref.pow(2).sum(-1, keepdim=True) + eps)
    noise = est - proj
    ratio = proj.pow(2).sum(-1) / (noise.pow(2).sum(-1) + eps)
    return 10 * torch.log10(ratio + eps)


def upit(est, ref):
    S = ref.size(1)
    pw = si_snr(est.unsqueeze(2), ref.unsqueeze(1))  # B, S_est, S_ref
    perms = list(permutations(range(S)))
    scores = torch.stack([sum(pw[:, i, j] for i, j in enumerate(p)) / S for p in perms], dim=-1)
    best, which = scores.max(dim=-1)
    return -best.mean(), which


# ------------------------------------------------------------------ layers
class GlobLN(nn.Module):
    """Global layer norm over (channel, everything else), as in Conv-TasNet."""

    def __init__(self, channels):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        dims = list(range(1, x.dim()))
        mean = x.mean(dims, keepdim=True)
        var = (x - mean).pow(2).mean(dims, keepdim=True)
        shape = [1, -1] + [1] * (x.dim() - 2)
        return self.gamma.view(shape) * (x - mean) / (var + 1e-8).sqrt() + self.beta.view(shape)


class SingleRNN(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.rnn = nn.LSTM(dim, hidden, batch_first=True, bidirectional=True)
        self.proj = nn.Linear(2 * hidden, dim)

    def forward(self, x):
        y, _ = self.rnn(x)
        return self.proj(y)


class DPRNNBlock(nn.Module):
    def __init__(self, cfg: DPRNNConfig):
        super().__init__()
        self.intra = SingleRNN(cfg.bottleneck, cfg.hidden)
        self.intra_norm = GlobLN(cfg.bottleneck)
        self.inter = SingleRNN(cfg.bottleneck, cfg.hidden)
        self.inter_norm = GlobLN(cfg.bottleneck)

    def forward(self, x):
        B, N, K, L = x.shape  # N channels, K inside a chunk, L chunks
        y = x.permute(0, 3, 2, 1).reshape(B * L, K, N)
        y = self.intra(y).reshape(B, L, K, N).permute(0, 3, 2, 1)
        x = x + self.intra_norm(y)
        y = x.permute(0, 2, 3, 1).reshape(B * K, L, N)
        y = self.inter(y).reshape(B, K, L, N).permute(0, 3, 1, 2)
        return x + self.inter_norm(y)


class Segmenter:
    """50 % overlapping chunks. Kept out of nn.Module on purpose, it has no state."""

    def __init__(self, size):
        self.size, self.hop = size, size // 2

    def split(self, x):
        B, N, T = x.shape
        gap = self.size - (self.hop + T % self.size) % self.size
        x = F.pad(x, (self.hop, gap + self.hop))
        left = x[:, :, :-self.hop].reshape(B, N, -1, self.size)
        right = x[:, :, self.hop:].reshape(B, N, -1, self.size)
        out = torch.cat([left, right], dim=3).reshape(B, N, -1, self.size)
        return out.transpose(2, 3).contiguous(), gap

    def merge(self, x, gap):
        B, N, K, L = x.shape
        x = x.transpose(2, 3).reshape(B, N, -1, K * 2)
        a = x[..., :K].reshape(B, N, -1)[:, :, self.hop:]
        b = x[..., K:].reshape(B, N, -1)[:, :, :-self.hop]
        y = a + b
        return y[:, :, :-gap] if gap > 0 else y


class MaskNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.norm = GlobLN(cfg.n_filters)
        self.bottleneck = nn.Conv1d(cfg.n_filters, cfg.bottleneck, 1)
        self.seg = Segmenter(cfg.chunk)
        self.blocks = nn.Sequential(*[DPRNNBlock(cfg) for _ in range(cfg.n_blocks)])
        self.first_out = nn.Sequential(nn.PReLU(), nn.Conv2d(cfg.bottleneck, cfg.n_src * cfg.bottleneck, 1))
        self.out = nn.Sequential(nn.Conv1d(cfg.bottleneck, cfg.bottleneck, 1), nn.Tanh())
        self.gate = nn.Sequential(nn.Conv1d(cfg.bottleneck, cfg.bottleneck, 1), nn.Sigmoid())
        self.mask = nn.Conv1d(cfg.bottleneck, cfg.n_filters, 1, bias=False)

    def forward(self, w):
        B = w.size(0)
        x, gap = self.seg.split(self.bottleneck(self.norm(w)))
        x = self.first_out(self.blocks(x))
        x = x.reshape(B * self.cfg.n_src, self.cfg.bottleneck, x.size(2), x.size(3))
        x = self.seg.merge(x, gap)
        x = self.out(x) * self.gate(x)
        return F.relu(self.mask(x)).reshape(B, self.cfg.n_src, self.cfg.n_filters, -1)


class Model(nn.Module):
    def __init__(self, cfg: DPRNNConfig = None):
        super().__init__()
        self.cfg = cfg = cfg or DPRNNConfig()
        self.encoder = nn.Conv1d(1, cfg.n_filters, cfg.kernel, cfg.stride, bias=False)
        self.masker = MaskNet(cfg)
        self.decoder = nn.ConvTranspose1d(cfg.n_filters, 1, cfg.kernel, cfg.stride, bias=False)
        self.reset_parameters()

    def reset_parameters(self):
        for name, p in self.named_parameters():
            if "rnn.weight_hh" in name:
                nn.init.orthogonal_(p)
            elif "rnn.bias" in name:
                nn.init.zeros_(p)
        nn.init.xavier_normal_(self.encoder.weight)
        nn.init.xavier_normal_(self.decoder.weight)

    def separate(self, mix):
        w = F.relu(self.encoder(mix.unsqueeze(1)))
        m = self.masker(w)
        masked = w.unsqueeze(1) * m
        est = self.decoder(masked.flatten(0, 1))
        est = est.reshape(mix.size(0), self.cfg.n_src, -1)
        return F.pad(est, (0, mix.size(-1) - est.size(-1)))

    def forward(self, mix, sources):
        scale = mix.std(dim=-1, keepdim=True) + 1e-8
        est = self.separate(mix / scale) * scale.unsqueeze(1)
        loss, which = upit(est, sources)
        with torch.no_grad():
            base = si_snr(mix.unsqueeze(1).expand_as(sources), sources).mean()
        return {"loss": loss, "si_snri": -loss.detach() - base, "perm": which, "est": est}


def inputs(batch):
    src = torch.randn(batch, 2, DPRNNConfig.n_samples) * 0.1
    return src.sum(1), src
