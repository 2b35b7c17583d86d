import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalConv1d(nn.Conv1d):
    """Conv1d that only looks left."""

    def __init__(self, in_channels, out_channels, kernel_size, dilation=1, **kw):
        super().__init__(in_channels, out_channels, kernel_size, dilation=dilation, padding=0, **kw)
        self.left = (kernel_size - 1) * dilation

    def forward(self, x):
        return super().forward(F.pad(x, (self.left, 0)))


class UpsampleMel(nn.Module):
    def __init__(self, n_mels, scales=(4, 4, 5)):
        super().__init__()
        self.scales = scales
        self.pre = nn.Conv1d(n_mels, n_mels, 3, padding=1, bias=False)
        self.smooth = nn.ModuleList(
            [nn.Conv2d(1, 1, (1, 2 * s + 1), padding=(0, s), bias=False) for s in scales])
        for c, s in zip(self.smooth, scales):
            nn.init.constant_(c.weight, 1. / (2 * s + 1))

    def forward(self, c):
        c = self.pre(c).unsqueeze(1)
        for s, conv in zip(self.scales, self.smooth):
            c = F.interpolate(c, scale_factor=(1, s), mode="nearest")
            c = conv(c)
        return c.squeeze(1)


class ResBlock(nn.Module):
    def __init__(self, residual, gate, skip, cond, dilation, k=2):
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(CausalConv1d(residual, gate, k, dilation))
        self.cond = nn.Conv1d(cond, gate, 1, bias=False)
        self.gcond = nn.Linear(32, gate, bias=False)
        self.skip_out = nn.Conv1d(gate // 2, skip, 1)
        self.res_out = nn.Conv1d(gate // 2, residual, 1)

    def forward(self, x, c, g):
        h = self.conv(x) + self.cond(c)
        h += self.gcond(g)[..., None]
        a, b = h.chunk(2, dim=1)
        h = torch.tanh(a) * torch.sigmoid(b)
        s = self.skip_out(h)
        return (self.res_out(h) + x) * math.sqrt(.5), s


class Model(nn.Module):
    """Mel conditioned WaveNet vocoder on 8 bit mu-law audio, multi speaker."""
    mu = 255

    def __init__(self, layers=16, stacks=2, residual=64, gate=128, skip=80, n_mels=40, n_speakers=11):
        super().__init__()
        assert layers % stacks == 0
        per = layers // stacks
        self.first = nn.Conv1d(1, residual, 1)
        self.spk = nn.Embedding(n_speakers, 32)
        self.up = UpsampleMel(n_mels)
        self.blocks = nn.ModuleList()
        for i in range(layers):
            self.blocks.append(ResBlock(residual, gate, skip, n_mels, 2 ** (i % per)))
        self.last = nn.Sequential(
            nn.ReLU(inplace=True), nn.Conv1d(skip, 512, 1),
            nn.ReLU(inplace=True), nn.Conv1d(512, self.mu + 1, 1))

    def encode(self, wav):
        y = wav.sign() * torch.log1p(self.mu * wav.abs()) / math.log1p(self.mu)
        return ((y + 1) / 2 * self.mu + .5).long()

    def decode(self, q):
        y = 2 * q.float() / self.mu - 1
        return y.sign() * ((1 + self.mu) ** y.abs() - 1) / self.mu

    @property
    def receptive_field(self):
        return sum(b.conv.left for b in self.blocks) + 1

    def forward(self, wav, mel, speaker):
        q = self.encode(wav.clamp(-1, 1))
        x = self.decode(q)[:, None, :-1]
        c = self.up(mel)[:, :, 1:]
        g = self.spk(speaker)

        x = self.first(x)
        skips = 0.
        for f in self.blocks:
            x, h = f(x, c, g)
            skips += h
        skips *= math.sqrt(1.0 / len(self.blocks))
        logits = self.last(skips)

        # don't train on samples that see mostly zero padding
        rf = self.receptive_field
        return F.cross_entropy(logits[..., rf:], q[:, 1:][..., rf:])


def inputs(batch):
    frames, hop = 40, 80
    return (torch.rand(batch, frames * hop).mul_(2).sub_(1) * .8,
            torch.randn(batch, 40, frames),
            torch.randint(0, 11, (batch,)))
