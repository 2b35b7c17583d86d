"""Hierarchical VQ-VAE tokenizer for 12-lead ECG (10 s @ 250 Hz, cropped to 2048 samples)."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        return g


class Quantize(nn.Module):
    """EMA codebook (rosinality), dead codes re-seeded from the batch."""

    def __init__(self, dim, n_embed, decay=0.99, eps=1e-5, threshold=0.5):
        super().__init__()
        self.dim = dim
        self.n_embed = n_embed
        self.decay = decay
        self.eps = eps
        self.threshold = threshold
        embed = torch.randn(dim, n_embed)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.ones(n_embed))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, input):
        flatten = input.reshape(-1, self.dim)
        # a snapshot: the buffer is changed below and backward would complain
        embed = self.embed.clone()
        dist = (
            flatten.pow(2).sum(1, keepdim=True)
            - 2 * flatten @ embed
            + embed.pow(2).sum(0, keepdim=True)
        )
        _, embed_ind = (-dist).max(1)
        embed_onehot = F.one_hot(embed_ind, self.n_embed).type(flatten.dtype)
        embed_ind = embed_ind.view(*input.shape[:-1])
        quantize = F.embedding(embed_ind, embed.transpose(0, 1))

        if self.training:
            with torch.no_grad():
                embed_onehot_sum = embed_onehot.sum(0)
                embed_sum = flatten.detach().transpose(0, 1) @ embed_onehot
                self.cluster_size.mul_(self.decay).add_(embed_onehot_sum, alpha=1 - self.decay)
                self.embed_avg.mul_(self.decay).add_(embed_sum, alpha=1 - self.decay)
                n = self.cluster_size.sum()
                cluster_size = (self.cluster_size + self.eps) / (n + self.n_embed * self.eps) * n
                embed_normalized = self.embed_avg / cluster_size.unsqueeze(0)
                # revive
                pick = torch.randint(0, flatten.shape[0], (self.n_embed,), device=flatten.device)
                fresh = flatten.detach()[pick].t()
                dead = (self.cluster_size < self.threshold).unsqueeze(0)
                self.embed.copy_(torch.where(dead, fresh, embed_normalized))

        diff = (quantize.detach() - input).pow(2).mean()
        quantize = input + (quantize - input).detach()
        avg = embed_onehot.mean(0)
        perplexity = torch.exp(-(avg * torch.log(avg + 1e-10)).sum())
        return quantize, diff, embed_ind, perplexity


class FSQ(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.register_buffer("levels", torch.tensor(levels, dtype=torch.float))
        basis = torch.cumprod(torch.tensor([1] + levels[:-1]), 0)
        self.register_buffer("basis", basis)

    def forward(self, z):
        half = (self.levels - 1) * (1 + 1e-3) / 2
        offset = torch.where(self.levels % 2 == 0, 0.5, 0.0)
        shift = torch.atanh(offset / half)
        z = torch.tanh(z + shift) * half - offset
        q = RoundSTE.apply(z)
        half_w = torch.div(self.levels, 2, rounding_mode="floor")
        ids = ((q.detach() + half_w).long() * self.basis).sum(-1)
        return q / half_w, ids


def WNConv1d(*a, **k):
    return weight_norm(nn.Conv1d(*a, **k))


class Snake(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x):
        return x + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * x).pow(2)


class ResUnit(nn.Module):
    def __init__(self, dim, dilation=1):
        super().__init__()
        pad = ((7 - 1) * dilation) // 2
        self.block = nn.Sequential(
            Snake(dim),
            WNConv1d(dim, dim, kernel_size=7, dilation=dilation, padding=pad),
            Snake(dim),
            WNConv1d(dim, dim, kernel_size=1),
        )

    def forward(self, x):
        return x + self.block(x)


class Encoder(nn.Module):
    def __init__(self, in_ch, ch, strides):
        super().__init__()
        layers = [WNConv1d(in_ch, ch, 7, padding=3)]
        for s in strides:
            layers += [ResUnit(ch, 1), ResUnit(ch, 3), ResUnit(ch, 9), Snake(ch),
                       WNConv1d(ch, ch * 2, 2 * s, stride=s, padding=s // 2)]
            ch *= 2
        self.out_ch = ch
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


class Decoder(nn.Module):
    def __init__(self, in_ch, ch, out_ch, strides):
        super().__init__()
        layers = [WNConv1d(in_ch, ch, 7, padding=3)]
        for s in strides:
            layers += [Snake(ch), weight_norm(nn.ConvTranspose1d(ch, ch // 2, 2 * s, stride=s, padding=s // 2)),
                       ResUnit(ch // 2, 1), ResUnit(ch // 2, 3)]
            ch //= 2
        layers += [Snake(ch), WNConv1d(ch, out_ch, 7, padding=3)]
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


def stft_loss(x, y, sizes=(64, 128, 256)):
    x, y = x.flatten(0, 1), y.flatten(0, 1)
    total = 0.0
    for n in sizes:
        win = torch.hann_window(n, device=x.device)
        fx = x.unfold(-1, n, n // 4) * win
        fy = y.unfold(-1, n, n // 4) * win
        mx = torch.fft.rfft(fx).abs().clamp(min=1e-5)
        my = torch.fft.rfft(fy).abs().clamp(min=1e-5)
        total = total + (mx - my).norm() / my.norm() + F.l1_loss(mx.log(), my.log())
    return total / len(sizes)


class Model(nn.Module):
    def __init__(self, leads=12, ch=32, dim=64, n_embed=1024, levels=(8, 8, 6, 5)):
        super().__init__()
        self.enc_b = Encoder(leads, ch, [2, 4])             # /8
        self.enc_t = Encoder(self.enc_b.out_ch, 128, [4])   # /32
        self.to_t = nn.Conv1d(self.enc_t.out_ch, dim, 1)
        self.quant_t = Quantize(dim, n_embed)
        self.dec_t = Decoder(dim, 128, dim, [4])
        self.to_b = nn.Conv1d(dim + self.enc_b.out_ch, dim, 1)
        self.quant_b = Quantize(dim, n_embed // 2)
        self.to_fine = nn.Conv1d(dim, len(levels), 1)
        self.fsq = FSQ(list(levels))
        self.from_fine = nn.Conv1d(len(levels), dim, 1)
        self.up_t = nn.ConvTranspose1d(dim, dim, 4, stride=4)
        self.dec = Decoder(2 * dim, 256, leads, [4, 2])
        # rhythm classifier on the tokens, keeps them meaningful
        self.probe = nn.Sequential(nn.Linear(2 * dim, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 71))

    def encode(self, x):
        eb = self.enc_b(x)
        et = self.enc_t(eb)
        qt, diff_t, id_t, ppl_t = self.quant_t(self.to_t(et).transpose(1, 2))
        qt = qt.transpose(1, 2)
        eb = torch.cat([self.dec_t(qt), eb], 1)
        eb = self.to_b(eb)
        qb, diff_b, id_b, ppl_b = self.quant_b(eb.transpose(1, 2))
        qb = qb.transpose(1, 2)
        # residual left by the bottom codebook goes through fsq
        fine, id_f = self.fsq(self.to_fine(eb - qb.detach()).transpose(1, 2))
        qb = qb + self.from_fine(fine.transpose(1, 2))
        return qt, qb, diff_t + diff_b, (id_t, id_b, id_f), (ppl_t, ppl_b)

    def decode(self, qt, qb):
        return self.dec(torch.cat([self.up_t(qt), qb], 1))

    def forward(self, ecg, labels):
        mu = ecg.mean(-1, keepdim=True)
        sd = ecg.std(-1, keepdim=True) + 1e-4
        x = (ecg - mu) / sd
        qt, qb, diff, ids, ppl = self.encode(x)
        rec = self.decode(qt, qb)
        l_rec = F.smooth_l1_loss(rec, x)
        l_grad = F.l1_loss(rec.diff(dim=-1), x.diff(dim=-1))
        l_stft = stft_loss(rec, x)
        logits = self.probe(torch.cat([qt.mean(-1), qb.amax(-1)], 1))
        l_cls = F.binary_cross_entropy_with_logits(logits, labels)
        loss = l_rec + 0.5 * l_grad + 0.1 * l_stft + 0.25 * diff + 0.1 * l_cls
        return {"loss": loss, "rec": rec * sd + mu, "top": ids[0], "bottom": ids[1], "fine": ids[2],
                "ppl_top": ppl[0].detach(), "ppl_bottom": ppl[1].detach()}


def inputs(batch):
    return torch.randn(batch, 12, 2048), (torch.rand(batch, 71) < 0.05).float()
