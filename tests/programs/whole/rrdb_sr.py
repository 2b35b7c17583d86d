"""
x4 super-resolution for satellite tiles (ESRGAN generator, small).
Pixel + frequency loss, no GAN stage yet.
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def default_init(m, scale=0.1):
    for mod in m.modules():
        if isinstance(mod, nn.Conv2d):
            nn.init.kaiming_normal_(mod.weight, a=0.2)
            mod.weight.data *= scale
            if mod.bias is not None:
                mod.bias.data.zero_()


class ResidualDenseBlock(nn.Module):
    def __init__(self, nf=48, gc=24, beta=0.2):
        super().__init__()
        self.conv1 = nn.Conv2d(nf, gc, 3, 1, 1)
        self.conv2 = nn.Conv2d(nf + gc, gc, 3, 1, 1)
        self.conv3 = nn.Conv2d(nf + 2 * gc, gc, 3, 1, 1)
        self.conv4 = nn.Conv2d(nf + 3 * gc, gc, 3, 1, 1)
        self.conv5 = nn.Conv2d(nf + 4 * gc, nf, 3, 1, 1)
        self.lrelu = nn.LeakyReLU(negative_slope=0.2, inplace=True)
        self.beta = beta
        default_init(self)

    def forward(self, x):
        x1 = self.lrelu(self.conv1(x))
        x2 = self.lrelu(self.conv2(torch.cat((x, x1), 1)))
        x3 = self.lrelu(self.conv3(torch.cat((x, x1, x2), 1)))
        x4 = self.lrelu(self.conv4(torch.cat((x, x1, x2, x3), 1)))
        x5 = self.conv5(torch.cat((x, x1, x2, x3, x4), 1))
        return x5 * self.beta + x


class RRDB(nn.Module):
    def __init__(self, nf, gc):
        super().__init__()
        self.RDB1 = ResidualDenseBlock(nf, gc)
        self.RDB2 = ResidualDenseBlock(nf, gc)
        self.RDB3 = ResidualDenseBlock(nf, gc)

    def forward(self, x):
        out = self.RDB1(x)
        out = self.RDB2(out)
        out = self.RDB3(out)
        return out * 0.2 + x


class ChannelGate(nn.Module):
    """ECA style gate, 1d conv over the channel axis"""
    def __init__(self, channels):
        super().__init__()
        k = int(abs((math.log2(channels) + 1) / 2))
        k = k if k % 2 else k + 1
        self.conv = nn.Conv1d(1, 1, k, padding=k // 2, bias=False)

    def forward(self, x):
        y = F.adaptive_avg_pool2d(x, 1)
        y = self.conv(y.squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
        return x * y.sigmoid().expand_as(x)


class RRDBNet(nn.Module):
    def __init__(self, in_nc=3, out_nc=3, nf=48, nb=3, gc=24, use_ckpt=False):
        super().__init__()
        self.use_ckpt = use_ckpt
        self.conv_first = nn.Conv2d(in_nc, nf, 3, 1, 1)
        self.body = nn.ModuleList([RRDB(nf, gc) for _ in range(nb)])
        self.gate = ChannelGate(nf)
        self.trunk_conv = nn.Conv2d(nf, nf, 3, 1, 1)
        # first x2 by nearest (ESRGAN), second x2 by pixelshuffle
        self.upconv1 = nn.Conv2d(nf, nf, 3, 1, 1)
        self.upconv2 = nn.Conv2d(nf, nf * 4, 3, 1, 1)
        self.ps = nn.PixelShuffle(2)
        self.HRconv = nn.Conv2d(nf, nf // 2, 3, 1, 1)
        self.conv_last = nn.Conv2d(nf // 2, out_nc, 3, 1, 1)

    def forward(self, x):
        fea = self.conv_first(x)
        trunk = fea
        for block in self.body:
            if self.use_ckpt and self.training:
                trunk = checkpoint(block, trunk, use_reentrant=False)
            else:
                trunk = block(trunk)
        fea = fea + self.trunk_conv(self.gate(trunk))
        fea = F.leaky_relu(self.upconv1(F.interpolate(fea, scale_factor=2, mode='nearest')), 0.2, True)
        fea = F.leaky_relu(self.ps(self.upconv2(fea)), 0.2, True)
        out = self.conv_last(F.leaky_relu(self.HRconv(fea), 0.2, True))
        return out + F.interpolate(x, scale_factor=4, mode='bicubic', align_corners=False)


class CharbonnierLoss(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, x, y):
        diff = x - y
        return torch.mean(torch.sqrt(diff * diff + self.eps))


def focal_freq_loss(pred, target, alpha=1.0):
    pf = torch.fft.rfft2(pred, norm='ortho')
    tf = torch.fft.rfft2(target, norm='ortho')
    pf, tf = torch.view_as_real(pf), torch.view_as_real(tf)
    dist = (pf - tf).pow(2).sum(-1)
    with torch.no_grad():
        w = dist.sqrt() ** alpha
        w = w / w.amax(dim=(-2, -1), keepdim=True).clamp(min=1e-8)
        w = w.clamp_(0.0, 1.0)
    return (w * dist).mean()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.netG = RRDBNet(use_ckpt=True)
        self.cri_pix = CharbonnierLoss()
        self.l_pix_w = 1.0
        self.l_fft_w = 5e-2

    def forward(self, lq, gt):
        sr = self.netG(lq)
        l_total = self.l_pix_w * self.cri_pix(sr, gt)
        l_total += self.l_fft_w * focal_freq_loss(sr, gt)
        return l_total, sr.detach()


def inputs(batch):
    g = torch.Generator().manual_seed(0)
    gt = torch.rand(batch, 3, 96, 96, generator=g)
    lq = F.avg_pool2d(gt, 4)
    return lq, gt
