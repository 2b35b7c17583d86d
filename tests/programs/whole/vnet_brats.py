"""3D residual U-Net for brain tumour segmentation (4 MR modalities, 4 labels), deep supervision."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class WSConv3d(nn.Conv3d):
    """Weight-standardised convolution."""

    def forward(self, x):
        w = self.weight
        mean = w.mean(dim=(1, 2, 3, 4), keepdim=True)
        var = w.var(dim=(1, 2, 3, 4), keepdim=True, unbiased=False)
        w = (w - mean) * torch.rsqrt(var + 1e-6)
        return F.conv3d(x, w, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ConvNormAct(nn.Sequential):
    def __init__(self, cin, cout, stride=1, act=True):
        mods = [WSConv3d(cin, cout, 3, stride=stride, padding=1, bias=False),
                nn.InstanceNorm3d(cout, affine=True)]
        if act:
            mods.append(nn.LeakyReLU(1e-2, inplace=True))
        super().__init__(*mods)


class ResidualUnit(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = ConvNormAct(cin, cout, stride)
        self.conv2 = ConvNormAct(cout, cout, act=False)
        if stride != 1 or cin != cout:
            self.skip = nn.Sequential()
            if stride != 1:
                self.skip.add_module("pool", nn.AvgPool3d(stride, stride))
            self.skip.add_module("proj", nn.Conv3d(cin, cout, 1, bias=False))
            self.skip.add_module("norm", nn.InstanceNorm3d(cout, affine=True))
        else:
            self.skip = nn.Identity()

    def forward(self, x):
        out = self.conv2(self.conv1(x))
        out += self.skip(x)
        return F.leaky_relu_(out, 1e-2)


class AttentionGate(nn.Module):
    """Oktay et al. 2018. The gating signal is at the same resolution as the skip here."""

    def __init__(self, c_skip, c_gate):
        super().__init__()
        inter = max(c_skip // 2, 8)
        self.theta = nn.Conv3d(c_skip, inter, 1, bias=False)
        self.phi = nn.Conv3d(c_gate, inter, 1)
        self.psi = nn.Conv3d(inter, 1, 1)

    def forward(self, skip, gate):
        a = torch.sigmoid(self.psi(F.relu(self.theta(skip) + self.phi(gate))))
        return skip * a


class Up(nn.Module):
    def __init__(self, cin, cskip):
        super().__init__()
        self.up = nn.ConvTranspose3d(cin, cskip, kernel_size=2, stride=2)
        self.gate = AttentionGate(cskip, cskip)
        self.conv = ResidualUnit(2 * cskip, cskip)

    def forward(self, x, skip):
        x = self.up(x)
        return self.conv(torch.cat([self.gate(skip, x), x], dim=1))


class DiceCELoss(nn.Module):
    def __init__(self, n_classes, class_weights=None, smooth=1e-5, batch_dice=True):
        super().__init__()
        self.n_classes = n_classes
        self.smooth = smooth
        self.batch_dice = batch_dice
        w = torch.ones(n_classes) if class_weights is None else torch.tensor(class_weights)
        self.register_buffer("w", w)

    def dice(self, probs, onehot):
        axes = [2, 3, 4]
        if self.batch_dice:
            axes = [0] + axes
        tp = (probs * onehot).sum(axes)
        fp = (probs * (1 - onehot)).sum(axes)
        fn = ((1 - probs) * onehot).sum(axes)
        dc = (2 * tp + self.smooth) / (2 * tp + fp + fn + self.smooth)
        return 1 - dc[..., 1:].mean()      # no background

    def forward(self, logits, target):
        ce = F.cross_entropy(logits, target, weight=self.w)
        onehot = torch.zeros_like(logits)
        onehot.scatter_(1, target.unsqueeze(1), 1)
        return ce + self.dice(logits.softmax(1), onehot)


class ResUNet3D(nn.Module):
    def __init__(self, in_channels=4, n_classes=4, features=(12, 24, 48, 96), dropout=0.1):
        super().__init__()
        self.stem = ConvNormAct(in_channels, features[0])
        self.encoders = nn.ModuleList()
        prev = features[0]
        for i, f in enumerate(features):
            self.encoders.append(nn.Sequential(
                ResidualUnit(prev, f, stride=1 if i == 0 else 2),
                *[ResidualUnit(f, f) for _ in range(0 if i == 0 else 1)],
            ))
            prev = f
        self.drop = nn.Dropout3d(dropout)
        rev = features[::-1]
        self.decoders = nn.ModuleList(Up(a, b) for a, b in zip(rev[:-1], rev[1:]))
        self.heads = nn.ModuleList(nn.Conv3d(f, n_classes, 1) for f in rev[1:])

    def forward(self, x):
        x = self.stem(x)
        skips = []
        for enc in self.encoders:
            x = enc(x)
            skips.append(x)
        x = self.drop(skips.pop())
        outputs = []
        for dec, head in zip(self.decoders, self.heads):
            x = dec(x, skips.pop())
            outputs.append(head(x))
        return outputs[::-1]      # full resolution first


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = ResUNet3D()
        self.criterion = DiceCELoss(4, class_weights=[0.25, 1.0, 1.0, 1.5])
        weights = [1 / 2 ** i for i in range(3)]
        self.ds_weights = [w / sum(weights) for w in weights]

    def forward(self, volume, label):
        # robust-ish z-score per modality
        mu = volume.mean((2, 3, 4), keepdim=True)
        sd = volume.std((2, 3, 4), keepdim=True)
        volume = ((volume - mu) / (sd + 1e-6)).clamp(-5, 5)
        outs = self.net(volume)
        total = 0
        for w, o in zip(self.ds_weights, outs):
            if o.shape[2:] != label.shape[1:]:
                t = F.interpolate(label[:, None].float(), size=o.shape[2:], mode="nearest")[:, 0].long()
            else:
                t = label
            total = total + w * self.criterion(o, t)
        return total, outs[0]


def inputs(batch):
    return torch.randn(batch, 4, 32, 32, 32), torch.randint(0, 4, (batch, 32, 32, 32))
