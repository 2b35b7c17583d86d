# Residual 3D U-Net (nnU-Net flavoured) with activation checkpointing, deep supervision, Dice + CE
from __future__ import annotations

from typing import List, Sequence

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class ConvDropoutNormNonlin(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int | Sequence[int] = 1, nonlin: bool = True):
        super().__init__()
        self.conv = nn.Conv3d(cin, cout, 3, stride=stride, padding=1, bias=True)
        self.norm = nn.InstanceNorm3d(cout, eps=1e-5, affine=True)
        self.lrelu = nn.LeakyReLU(1e-2, inplace=True) if nonlin else nn.Identity()

    def forward(self, x):
        return self.lrelu(self.norm(self.conv(x)))


class BasicResBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = ConvDropoutNormNonlin(cin, cout, stride)
        self.conv2 = ConvDropoutNormNonlin(cout, cout, nonlin=False)
        self.skip = nn.Sequential()
        if stride != 1:
            self.skip.append(nn.AvgPool3d(stride, stride))
        if cin != cout:
            self.skip.append(nn.Conv3d(cin, cout, 1, bias=False))
            self.skip.append(nn.InstanceNorm3d(cout, affine=True))
        self.out = nn.LeakyReLU(1e-2, inplace=True)

    def forward(self, x):
        res = self.skip(x)
        x = self.conv2(self.conv1(x))
        x += res
        return self.out(x)


class AttentionGate(nn.Module):
    def __init__(self, c_skip, c_gate, inter):
        super().__init__()
        self.theta = nn.Conv3d(c_skip, inter, 1, bias=False)
        self.phi = nn.Conv3d(c_gate, inter, 1)
        self.psi = nn.Conv3d(inter, 1, 1)

    def forward(self, skip, gate):
        g = F.interpolate(self.phi(gate), size=skip.shape[2:], mode='trilinear', align_corners=False)
        a = torch.sigmoid(self.psi(F.relu(self.theta(skip) + g, inplace=True)))
        return skip * a


class SoftDiceLoss(nn.Module):
    def __init__(self, smooth=1e-5, do_bg=False):
        super().__init__()
        self.smooth, self.do_bg = smooth, do_bg

    def forward(self, logits, y):
        p = torch.softmax(logits, 1)
        with torch.no_grad():
            y_onehot = torch.zeros_like(p)
            y_onehot.scatter_(1, y.unsqueeze(1), 1)
        axes = (2, 3, 4)
        tp = (p * y_onehot).sum(axes)
        denom = p.sum(axes) + y_onehot.sum(axes)
        if not self.do_bg:
            tp, denom = tp[:, 1:], denom[:, 1:]
        dc = (2 * tp + self.smooth) / (denom + self.smooth)
        return 1 - dc.mean()


class Model(nn.Module):
    def __init__(self, in_ch=4, classes=4, base=16, use_checkpoint=True):
        super().__init__()
        self.use_checkpoint = use_checkpoint
        feats: List[int] = [base, base * 2, base * 4, base * 8, base * 16]
        self.stem = ConvDropoutNormNonlin(in_ch, feats[0])
        self.enc = nn.ModuleList()
        for i, f in enumerate(feats):
            self.enc.append(BasicResBlock(feats[max(i - 1, 0)], f, 1 if i == 0 else 2))
        self.up, self.gates, self.dec, self.seg = nn.ModuleList(), nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for hi, lo in zip(feats[:0:-1], feats[-2::-1]):
            self.up.append(nn.ConvTranspose3d(hi, lo, 2, 2, bias=False))
            self.gates.append(AttentionGate(lo, hi, lo // 2))
            self.dec.append(BasicResBlock(2 * lo, lo))
            self.seg.append(nn.Conv3d(lo, classes, 1, bias=False))
        self.dice = SoftDiceLoss()
        self.ce = nn.CrossEntropyLoss()
        self.ds_weights = [0.0, 0.25, 0.5, 1.0]
        for m in self.modules():
            if isinstance(m, (nn.Conv3d, nn.ConvTranspose3d)):
                nn.init.kaiming_normal_(m.weight, a=1e-2)

    def run(self, block, x):
        if self.use_checkpoint and self.training:
            return checkpoint(block, x, use_reentrant=False)
        return block(x)

    def forward(self, x, y):
        x = self.stem(x)
        skips = []
        for stage in self.enc:
            x = self.run(stage, x)
            skips.append(x)
        x = skips.pop()
        outs = []
        for up, gate, dec, seg in zip(self.up, self.gates, self.dec, self.seg):
            s = gate(skips.pop(), x)
            x = torch.cat((up(x), s), dim=1)
            x = self.run(dec, x)
            outs.append(seg(x))
        loss = 0
        for w, o in zip(self.ds_weights, outs):
            if w == 0:
                continue
            t = y
            if o.shape[2:] != y.shape[1:]:
                t = F.interpolate(y.unsqueeze(1).float(), size=o.shape[2:], mode='nearest').squeeze(1).long()
            loss = loss + w * (self.dice(o, t) + self.ce(o, t))
        return loss, outs[-1].argmax(1)


def inputs(batch):
    return torch.randn(batch, 4, 48, 64, 64), torch.randint(0, 4, (batch, 48, 64, 64))
