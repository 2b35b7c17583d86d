import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class QuantizerOutput(NamedTuple):
    quantized: Tensor
    indices: Tensor
    commitment: Tensor
    perplexity: Tensor


class EMAVectorQuantizer(nn.Module):
    """VQ layer with exponential-moving-average codebook (no gradients to the codes)."""

    embedding: Tensor
    cluster_size: Tensor
    embed_avg: Tensor

    def __init__(self, num_codes: int, dim: int, decay: float = 0.99, eps: float = 1e-5) -> None:
        super().__init__()
        self.num_codes = num_codes
        self.dim = dim
        self.decay = decay
        self.eps = eps
        embed = torch.randn(num_codes, dim) / math.sqrt(dim)
        self.register_buffer("embedding", embed)
        self.register_buffer("cluster_size", torch.ones(num_codes))
        self.register_buffer("embed_avg", embed.clone())

    @torch.no_grad()
    def _update(self, flat: Tensor, onehot: Tensor) -> None:
        self.cluster_size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
        self.embed_avg.mul_(self.decay).add_(onehot.t() @ flat, alpha=1 - self.decay)
        n = self.cluster_size.sum()
        smoothed = (self.cluster_size + self.eps) / (n + self.num_codes * self.eps) * n
        self.embedding.copy_(self.embed_avg / smoothed.unsqueeze(1))

    def forward(self, z: Tensor) -> QuantizerOutput:
        b, c, h, w = z.shape
        flat = z.permute(0, 2, 3, 1).reshape(-1, c)
        codes = self.embedding.clone()
        distances = (
            flat.pow(2).sum(1, keepdim=True)
            - 2 * flat @ codes.t()
            + codes.pow(2).sum(1)
        )
        indices = distances.argmin(dim=1)
        onehot = F.one_hot(indices, self.num_codes).type_as(flat)
        quantized = F.embedding(indices, codes).view(b, h, w, c).permute(0, 3, 1, 2).contiguous()
        if self.training:
            self._update(flat.detach(), onehot)
        commitment = F.mse_loss(z, quantized.detach())
        quantized = z + (quantized - z).detach()
        probs = onehot.mean(0)
        perplexity = torch.exp(-(probs * (probs + 1e-10).log()).sum())
        return QuantizerOutput(quantized, indices.view(b, h, w), commitment, perplexity)


class ResBlock(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.ELU(),
            nn.Conv2d(channels, hidden, kernel_size=3, padding=1),
            nn.ELU(),
            nn.Conv2d(hidden, channels, kernel_size=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x)


def make_encoder(in_ch: int, ch: int, n_res: int, res_hidden: int, stride: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    if stride == 4:
        layers += [
            nn.Conv2d(in_ch, ch // 2, 4, stride=2, padding=1),
            nn.ELU(),
            nn.Conv2d(ch // 2, ch, 4, stride=2, padding=1),
            nn.ELU(),
            nn.Conv2d(ch, ch, 3, padding=1),
        ]
    elif stride == 2:
        layers += [
            nn.Conv2d(in_ch, ch // 2, 4, stride=2, padding=1),
            nn.ELU(),
            nn.Conv2d(ch // 2, ch, 3, padding=1),
        ]
    layers.extend(ResBlock(ch, res_hidden) for _ in range(n_res))
    layers.append(nn.ELU())
    return nn.Sequential(*layers)


def make_decoder(in_ch: int, out_ch: int, ch: int, n_res: int, res_hidden: int, stride: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(in_ch, ch, 3, padding=1)]
    layers.extend(ResBlock(ch, res_hidden) for _ in range(n_res))
    layers.append(nn.ELU())
    if stride == 4:
        layers += [
            nn.ConvTranspose2d(ch, ch // 2, 4, stride=2, padding=1),
            nn.ELU(),
            nn.ConvTranspose2d(ch // 2, out_ch, 4, stride=2, padding=1),
        ]
    else:
        layers.append(nn.ConvTranspose2d(ch, out_ch, 4, stride=2, padding=1))
    return nn.Sequential(*layers)


class VQVAE2Output(NamedTuple):
    loss: Tensor
    recon: Tensor
    codes_top: Tensor
    codes_bottom: Tensor


class VQVAE2(nn.Module):
    def __init__(self, ch: int = 128, n_res: int = 2, res_hidden: int = 48, dim: int = 64, num_codes: int = 512) -> None:
        super().__init__()
        self.enc_b = make_encoder(3, ch, n_res, res_hidden, stride=4)
        self.enc_t = make_encoder(ch, ch, n_res, res_hidden, stride=2)
        self.pre_t = nn.Conv2d(ch, dim, 1)
        self.vq_t = EMAVectorQuantizer(num_codes, dim)
        self.dec_t = make_decoder(dim, dim, ch, n_res, res_hidden, stride=2)
        self.pre_b = nn.Conv2d(dim + ch, dim, 1)
        self.vq_b = EMAVectorQuantizer(num_codes, dim)
        self.upsample_t = nn.ConvTranspose2d(dim, dim, 4, stride=2, padding=1)
        self.dec = make_decoder(dim * 2, 3, ch, n_res, res_hidden, stride=4)

    def encode(self, x: Tensor) -> tuple[QuantizerOutput, QuantizerOutput]:
        bottom = self.enc_b(x)
        top = self.enc_t(bottom)
        q_top = self.vq_t(self.pre_t(top))
        bottom = torch.cat([self.dec_t(q_top.quantized), bottom], dim=1)
        return q_top, self.vq_b(self.pre_b(bottom))

    def decode(self, top: Tensor, bottom: Tensor) -> Tensor:
        return self.dec(torch.cat([self.upsample_t(top), bottom], dim=1))

    def forward(self, x: Tensor, beta: float = 0.25) -> VQVAE2Output:
        q_top, q_bottom = self.encode(x)
        recon = self.decode(q_top.quantized, q_bottom.quantized)
        loss = F.mse_loss(recon, x) + beta * sum(q.commitment for q in (q_top, q_bottom))
        return VQVAE2Output(loss, recon, q_top.indices, q_bottom.indices)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vqvae = VQVAE2()

    def forward(self, images: Tensor) -> Tensor:
        out = self.vqvae(images.mul(2.0).sub(1.0))
        return out.loss


def inputs(batch: int) -> tuple[Tensor, ...]:
    return (torch.rand(batch, 3, 96, 96),)
