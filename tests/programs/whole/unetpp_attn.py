# UNet++ w/ deep supervision + attention gates on the skip connections
# kaggle: UW-Madison GI tract segmentation (2.5D: 3 slices, 3 organs)
import torch
import torch.nn as nn
import torch.nn.functional as F


class CFG:
    in_ch = 3
    n_cls = 3
    img = 128
    nf = [24, 48, 96, 192, 320]
    bce_w = 0.5
    ds_w = [0.1, 0.2, 0.3, 1.0]


class VGGBlock(nn.Module):
    def __init__(self, in_channels, middle_channels, out_channels, drop=0.0):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(in_channels, middle_channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(middle_channels)
        self.conv2 = nn.Conv2d(middle_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.drop = nn.Dropout2d(drop) if drop > 0 else nn.Identity()

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.drop(out)
        return self.relu(self.bn2(self.conv2(out)))


class ResVGGBlock(VGGBlock):
    """same but with a residual, used in the encoder"""
    def __init__(self, i, m, o, drop=0.0):
        super().__init__(i, m, o, drop)
        self.short = nn.Conv2d(i, o, 1)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(self.drop(out)))
        out += self.short(x)
        return self.relu(out)


class AttentionGate(nn.Module):
    def __init__(self, F_g, F_l, F_int):
        super().__init__()
        self.W_g = nn.Sequential(nn.Conv2d(F_g, F_int, 1, bias=False), nn.BatchNorm2d(F_int))
        self.W_x = nn.Sequential(nn.Conv2d(F_l, F_int, 1, bias=False), nn.BatchNorm2d(F_int))
        self.psi = nn.Sequential(nn.Conv2d(F_int, 1, 1), nn.BatchNorm2d(1), nn.Sigmoid())

    def forward(self, g, x):
        a = F.relu(self.W_g(g) + self.W_x(x), inplace=True)
        return x * self.psi(a)


class ASPPLite(nn.Module):
    def __init__(self, c, rates=(1, 2, 3)):
        super().__init__()
        self.br = nn.ModuleList(nn.Conv2d(c, c // 4, 3, padding=r, dilation=r) for r in rates)
        self.gp = nn.Conv2d(c, c // 4, 1)
        self.fuse = nn.Sequential(nn.Conv2d(c // 4 * (len(rates) + 1), c, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(True))

    def forward(self, x):
        ys = [b(x) for b in self.br]
        g = self.gp(F.adaptive_avg_pool2d(x, 1))
        ys.append(g.expand(-1, -1, x.shape[2], x.shape[3]))
        return self.fuse(torch.cat(ys, 1)) + x


# --------------------------------------------------------------- losses
def dice_per_class(logit, y, smooth=1.):
    p = torch.sigmoid(logit)
    inter = (p * y).sum((2, 3))
    den = p.sum((2, 3)) + y.sum((2, 3))
    return 1 - (2 * inter + smooth) / (den + smooth)


def tversky(logit, y, a=0.3, b=0.7):
    p = torch.sigmoid(logit)
    tp = (p * y).sum((0, 2, 3))
    fp = (p * (1 - y)).sum((0, 2, 3))
    fn = ((1 - p) * y).sum((0, 2, 3))
    return (1 - (tp + 1) / (tp + a * fp + b * fn + 1)).mean()


def criterion(logit, y, pos_weight):
    bce = F.binary_cross_entropy_with_logits(logit, y, pos_weight=pos_weight)
    return CFG.bce_w * bce + 0.5 * tversky(logit, y) + 0.25 * dice_per_class(logit, y).mean()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        nb = CFG.nf
        self.pool = nn.MaxPool2d(2, 2)
        self.up = nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True)

        self.conv0_0 = ResVGGBlock(CFG.in_ch, nb[0], nb[0])
        self.conv1_0 = ResVGGBlock(nb[0], nb[1], nb[1])
        self.conv2_0 = ResVGGBlock(nb[1], nb[2], nb[2])
        self.conv3_0 = ResVGGBlock(nb[2], nb[3], nb[3], drop=0.1)
        self.conv4_0 = ResVGGBlock(nb[3], nb[4], nb[4], drop=0.2)
        self.aspp = ASPPLite(nb[4])

        # nested decoder nodes X_{i,j}
        for j in range(1, 5):
            for i in range(0, 5 - j):
                setattr(self, f'conv{i}_{j}', VGGBlock(nb[i] * j + nb[i + 1], nb[i], nb[i]))
                setattr(self, f'gate{i}_{j}', AttentionGate(nb[i + 1], nb[i], max(nb[i] // 2, 8)))

        self.final1 = nn.Conv2d(nb[0], CFG.n_cls, 1)
        self.final2 = nn.Conv2d(nb[0], CFG.n_cls, 1)
        self.final3 = nn.Conv2d(nb[0], CFG.n_cls, 1)
        self.final4 = nn.Conv2d(nb[0], CFG.n_cls, 1)
        self.cls = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(nb[4], CFG.n_cls))
        self.register_buffer('pos_weight', torch.tensor([1.5, 1.2, 1.8]).view(-1, 1, 1))

        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, nonlinearity='relu')

    def node(self, X, i, j):
        g = self.up(X[i + 1, j - 1])
        skips = [X[i, k] for k in range(j)]
        # gate only the newest skip, gating all of them was slower and not better
        skips[-1] = getattr(self, f'gate{i}_{j}')(g, skips[-1])
        return getattr(self, f'conv{i}_{j}')(torch.cat(skips + [g], 1))

    def forward(self, image, mask):
        X = {}
        X[0, 0] = self.conv0_0(image)
        X[1, 0] = self.conv1_0(self.pool(X[0, 0]))
        X[0, 1] = self.node(X, 0, 1)

        X[2, 0] = self.conv2_0(self.pool(X[1, 0]))
        X[1, 1] = self.node(X, 1, 1)
        X[0, 2] = self.node(X, 0, 2)

        X[3, 0] = self.conv3_0(self.pool(X[2, 0]))
        X[2, 1] = self.node(X, 2, 1)
        X[1, 2] = self.node(X, 1, 2)
        X[0, 3] = self.node(X, 0, 3)

        X[4, 0] = self.aspp(self.conv4_0(self.pool(X[3, 0])))
        X[3, 1] = self.node(X, 3, 1)
        X[2, 2] = self.node(X, 2, 2)
        X[1, 3] = self.node(X, 1, 3)
        X[0, 4] = self.node(X, 0, 4)

        outs = [self.final1(X[0, 1]), self.final2(X[0, 2]), self.final3(X[0, 3]), self.final4(X[0, 4])]
        seg_loss = 0
        for w, o in zip(CFG.ds_w, outs):
            seg_loss = seg_loss + w * criterion(o, mask, self.pos_weight)

        has = mask.amax((2, 3))
        c = self.cls(X[4, 0])
        cls_loss = F.binary_cross_entropy_with_logits(c, has)

        with torch.no_grad():
            final = torch.sigmoid(torch.stack(outs).mean(0))
            final *= (torch.sigmoid(c) > 0.2).float()[:, :, None, None]
            dice = 1 - dice_per_class(torch.logit(final.clamp(1e-4, 1 - 1e-4)), mask)
        return seg_loss + 0.2 * cls_loss, outs, dice.mean(0)


def inputs(batch):
    return torch.randn(batch, CFG.in_ch, CFG.img, CFG.img), (torch.rand(batch, CFG.n_cls, CFG.img, CFG.img) > 0.9).float()
