"""RealNVP on 32x32 images (multi-scale, checkerboard + channel-wise couplings)."""
import math
from enum import IntEnum

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint


class MaskType(IntEnum):
    CHECKERBOARD = 0
    CHANNEL_WISE = 1


def checkerboard_mask(height, width, reverse=False):
    yy = torch.arange(height).view(-1, 1)
    xx = torch.arange(width).view(1, -1)
    mask = ((yy + xx) % 2).float()
    if reverse:
        mask = 1 - mask
    return mask.view(1, 1, height, width)


def squeeze_2x2(x, reverse=False, alt_order=False):
    """Trade spatial extent for channels (and back)."""
    b, c, h, w = x.size()
    if alt_order:
        # the alternate order puts the checkerboard in the first half of the channels
        n = c // 4 if reverse else c
        weights = torch.zeros(4 * n, n, 2, 2, device=x.device, dtype=x.dtype)
        for i, (dy, dx) in enumerate([(0, 0), (1, 1), (0, 1), (1, 0)]):
            weights[i * n + torch.arange(n, device=x.device), torch.arange(n, device=x.device), dy, dx] = 1.0
        if reverse:
            return F.conv_transpose2d(x, weights, stride=2)
        return F.conv2d(x, weights, stride=2)
    if reverse:
        return F.pixel_shuffle(x, 2)
    return F.pixel_unshuffle(x, 2)


class WNConv2d(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, padding, bias=True):
        super().__init__()
        self.conv = weight_norm(nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, bias=bias))

    def forward(self, x):
        return self.conv(x)


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.in_norm = nn.BatchNorm2d(channels)
        self.in_conv = WNConv2d(channels, channels, 3, 1, bias=False)
        self.out_norm = nn.BatchNorm2d(channels)
        self.out_conv = WNConv2d(channels, channels, 3, 1, bias=True)

    def forward(self, x):
        skip = x
        x = self.in_conv(F.relu(self.in_norm(x)))
        x = self.out_conv(F.relu(self.out_norm(x)))
        return x + skip


class STResNet(nn.Module):
    """Predicts scale and translation."""

    def __init__(self, in_channels, mid_channels, out_channels, num_blocks):
        super().__init__()
        self.in_norm = nn.BatchNorm2d(in_channels)
        self.in_conv = WNConv2d(2 * in_channels, mid_channels, 3, 1)
        self.in_skip = WNConv2d(mid_channels, mid_channels, 1, 0)
        self.blocks = nn.ModuleList([ResidualBlock(mid_channels) for _ in range(num_blocks)])
        self.skips = nn.ModuleList([WNConv2d(mid_channels, mid_channels, 1, 0) for _ in range(num_blocks)])
        self.out_norm = nn.BatchNorm2d(mid_channels)
        self.out_conv = WNConv2d(mid_channels, out_channels, 1, 0)

    def forward(self, x):
        x = self.in_norm(x)
        x = x * 2.0
        x = torch.cat((x, -x), dim=1)
        x = F.relu(x)
        x = self.in_conv(x)
        x_skip = self.in_skip(x)
        for block, skip in zip(self.blocks, self.skips):
            x = block(x)
            x_skip += skip(x)
        x = F.relu(self.out_norm(x_skip))
        return self.out_conv(x)


class Rescale(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x):
        return self.weight * x


class CouplingLayer(nn.Module):
    def __init__(self, in_channels, mid_channels, num_blocks, mask_type, reverse_mask, size):
        super().__init__()
        self.mask_type = mask_type
        self.reverse_mask = reverse_mask
        if mask_type == MaskType.CHANNEL_WISE:
            in_channels //= 2
        else:
            self.register_buffer("mask", checkerboard_mask(size, size, reverse_mask), persistent=False)
        self.st_net = STResNet(in_channels, mid_channels, 2 * in_channels, num_blocks)
        self.rescale = Rescale(in_channels)

    def forward(self, x, sldj):
        if self.mask_type == MaskType.CHECKERBOARD:
            st = checkpoint(self.st_net, x * self.mask, use_reentrant=False)
            s, t = st.chunk(2, dim=1)
            s = self.rescale(torch.tanh(s))
            s = s * (1 - self.mask)
            t = t * (1 - self.mask)
            x = (x + t) * s.exp()
            sldj = sldj + s.flatten(1).sum(-1)
        else:
            if self.reverse_mask:
                x_id, x_change = x.chunk(2, dim=1)
            else:
                x_change, x_id = x.chunk(2, dim=1)
            s, t = self.st_net(x_id).chunk(2, dim=1)
            s = self.rescale(torch.tanh(s))
            x_change = (x_change + t) * s.exp()
            sldj = sldj + s.flatten(1).sum(-1)
            x = torch.cat((x_id, x_change) if self.reverse_mask else (x_change, x_id), dim=1)
        return x, sldj


class Scale(nn.Module):
    """One scale; recursive like in the tensorflow code."""

    def __init__(self, scale_idx, num_scales, in_channels, mid_channels, num_blocks, size):
        super().__init__()
        self.is_last_block = scale_idx == num_scales - 1
        mk = lambda c, m, t, r, s: CouplingLayer(c, m, num_blocks, t, r, s)
        self.in_couplings = nn.ModuleList([
            mk(in_channels, mid_channels, MaskType.CHECKERBOARD, r, size) for r in (False, True, False)])
        if self.is_last_block:
            self.in_couplings.append(mk(in_channels, mid_channels, MaskType.CHECKERBOARD, True, size))
        else:
            self.out_couplings = nn.ModuleList([
                mk(4 * in_channels, 2 * mid_channels, MaskType.CHANNEL_WISE, r, None) for r in (False, True, False)])
            self.next_block = Scale(scale_idx + 1, num_scales, 2 * in_channels, 2 * mid_channels, num_blocks, size // 2)

    def forward(self, x, sldj):
        for coupling in self.in_couplings:
            x, sldj = coupling(x, sldj)
        if not self.is_last_block:
            x = squeeze_2x2(x)
            for coupling in self.out_couplings:
                x, sldj = coupling(x, sldj)
            x = squeeze_2x2(x, reverse=True)
            # factor out half of the variables
            x = squeeze_2x2(x, alt_order=True)
            x, x_split = x.chunk(2, dim=1)
            x, sldj = self.next_block(x, sldj)
            x = torch.cat((x, x_split), dim=1)
            x = squeeze_2x2(x, reverse=True, alt_order=True)
        return x, sldj


class Model(nn.Module):
    def __init__(self, num_scales=2, in_channels=3, mid_channels=48, num_blocks=4, k=256):
        super().__init__()
        self.register_buffer("data_constraint", torch.tensor([0.9], dtype=torch.float32))
        self.k = k
        self.flows = Scale(0, num_scales, in_channels, mid_channels, num_blocks, 32)

    def _pre_process(self, x):
        """Dequantize and logit transform."""
        y = (x * (self.k - 1) + torch.rand_like(x)) / self.k
        y = (2 * y - 1) * self.data_constraint
        y = (y + 1) / 2
        y = y.log() - (1.0 - y).log()
        ldj = F.softplus(y) + F.softplus(-y) - F.softplus((1.0 - self.data_constraint).log() - self.data_constraint.log())
        return y, ldj.flatten(1).sum(-1)

    def forward(self, x):
        x, sldj = self._pre_process(x)
        z, sldj = self.flows(x, sldj)
        prior_ll = -0.5 * (z ** 2 + math.log(2 * math.pi))
        prior_ll = prior_ll.flatten(1).sum(-1) - math.log(self.k) * (z.size(1) * z.size(2) * z.size(3))
        nll = -(prior_ll + sldj).mean()
        bpd = nll.detach() / (math.log(2) * z.size(1) * z.size(2) * z.size(3))
        # l2 on the weight norm gains only, as in the paper
        reg = sum((p ** 2).sum() for n, p in self.named_parameters() if n.endswith("original0"))
        return {"loss": nll + 5e-5 * reg, "bpd": bpd, "z": z}


def inputs(batch):
    return (torch.rand(batch, 3, 32, 32),)
