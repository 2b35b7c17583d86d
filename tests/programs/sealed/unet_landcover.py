# landcover comp, 4 bands (R,G,B,NIR) -> 7 classes + "no data" (255)
# v6: attention gates + deep supervision, LB 0.61 -> 0.634
import torch
import torch.nn as nn
import torch.nn.functional as F

N_BANDS = 4
N_CLASSES = 7
IGNORE = 255
SIZE = 192

# per band stats calculated in the EDA notebook
BAND_MEAN = [0.412, 0.389, 0.331, 0.507]
BAND_STD = [0.171, 0.143, 0.138, 0.192]
# inverse sqrt frequency
CLASS_W = [0.8, 0.6, 1.1, 0.7, 1.9, 1.4, 2.3]


def conv_bn_relu(i, o, k=3, s=1, d=1):
    return nn.Sequential(
        nn.Conv2d(i, o, k, s, padding=d * (k // 2), dilation=d, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(inplace=True),
    )


class DoubleConv(nn.Module):
    def __init__(self, i, o, p=0.0):
        super().__init__()
        self.c1 = conv_bn_relu(i, o)
        self.c2 = conv_bn_relu(o, o)
        self.drop = nn.Dropout2d(p) if p > 0 else nn.Identity()

    def forward(self, x):
        return self.drop(self.c2(self.c1(x)))


class AttGate(nn.Module):
    """additive attention gate (Oktay et al). g = decoder signal, x = skip"""

    def __init__(self, cg, cx, ci):
        super().__init__()
        self.wg = nn.Sequential(nn.Conv2d(cg, ci, 1, bias=False), nn.BatchNorm2d(ci))
        self.wx = nn.Sequential(nn.Conv2d(cx, ci, 2, stride=2, bias=False), nn.BatchNorm2d(ci))
        self.psi = nn.Sequential(nn.Conv2d(ci, 1, 1), nn.BatchNorm2d(1))

    def forward(self, g, x):
        a = F.relu(self.wg(g) + self.wx(x), inplace=True)
        a = torch.sigmoid(self.psi(a))
        a = F.interpolate(a, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return x * a, a


class Up(nn.Module):
    def __init__(self, cin, cskip, cout):
        super().__init__()
        self.gate = AttGate(cin, cskip, max(cskip // 2, 8))
        self.up = nn.ConvTranspose2d(cin, cout, 2, 2)
        self.conv = DoubleConv(cout + cskip, cout)

    def forward(self, x, skip):
        s, att = self.gate(x, skip)
        x = self.up(x)
        x = self.conv(torch.cat([x, s], 1))
        return x, att


class ASPPLite(nn.Module):
    def __init__(self, c, o, rates=(1, 3, 6)):
        super().__init__()
        self.br = nn.ModuleList([conv_bn_relu(c, o, 1 if r == 1 else 3, d=r) for r in rates])
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, o, 1), nn.ReLU())
        self.proj = conv_bn_relu(o * (len(rates) + 1), c, 1)

    def forward(self, x):
        outs = [b(x) for b in self.br]
        p = self.pool(x)
        outs.append(p.expand(-1, -1, x.shape[2], x.shape[3]))
        return self.proj(torch.cat(outs, 1)) + x


def masked_ce(logits, target, valid, w):
    t = torch.where(valid, target, torch.zeros_like(target))
    ce = F.cross_entropy(logits, t, weight=w, reduction="none")
    return (ce * valid).sum() / valid.sum().clamp(min=1)


def soft_dice(logits, target, valid, eps=1.0):
    p = logits.softmax(1) * valid.unsqueeze(1)
    t = torch.where(valid, target, torch.zeros_like(target))
    oh = F.one_hot(t, N_CLASSES).permute(0, 3, 1, 2).to(p.dtype) * valid.unsqueeze(1)
    inter = (p * oh).sum((0, 2, 3))
    den = p.sum((0, 2, 3)) + oh.sum((0, 2, 3))
    return 1 - ((2 * inter + eps) / (den + eps)).mean()


class Model(nn.Module):
    def __init__(self, base=28, ds_weights=(1.0, 0.5, 0.25, 0.125)):
        super().__init__()
        ch = [base, base * 2, base * 4, base * 8, base * 12]
        self.register_buffer("mean", torch.tensor(BAND_MEAN).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(BAND_STD).view(1, -1, 1, 1))
        self.register_buffer("cw", torch.tensor(CLASS_W))
        self.ds_weights = ds_weights

        # +2 for NDVI / NDWI
        self.e1 = DoubleConv(N_BANDS + 2, ch[0])
        self.e2 = DoubleConv(ch[0], ch[1])
        self.e3 = DoubleConv(ch[1], ch[2])
        self.e4 = DoubleConv(ch[2], ch[3], 0.1)
        self.e5 = DoubleConv(ch[3], ch[4], 0.2)
        self.aspp = ASPPLite(ch[4], base * 4)
        self.pool = nn.MaxPool2d(2)

        self.u4 = Up(ch[4], ch[3], ch[3])
        self.u3 = Up(ch[3], ch[2], ch[2])
        self.u2 = Up(ch[2], ch[1], ch[1])
        self.u1 = Up(ch[1], ch[0], ch[0])

        self.heads = nn.ModuleList([nn.Conv2d(c, N_CLASSES, 1) for c in (ch[0], ch[1], ch[2], ch[3])])

        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
                if m.bias is not None:
                    nn.init.zeros_(m.bias)

    @torch.no_grad()
    def add_indices(self, x):
        r, g, nir = x[:, 0:1], x[:, 1:2], x[:, 3:4]
        ndvi = (nir - r) / (nir + r + 1e-4)
        ndwi = (g - nir) / (g + nir + 1e-4)
        xn = (x - self.mean) / self.std
        return torch.cat([xn, ndvi.clamp(-1, 1), ndwi.clamp(-1, 1)], 1)

    def forward(self, img, mask):
        x = self.add_indices(img)
        s1 = self.e1(x)
        s2 = self.e2(self.pool(s1))
        s3 = self.e3(self.pool(s2))
        s4 = self.e4(self.pool(s3))
        b = self.e5(self.pool(s4))
        b = self.aspp(b)

        d4, _ = self.u4(b, s4)
        d3, _ = self.u3(d4, s3)
        d2, _ = self.u2(d3, s2)
        d1, att = self.u1(d2, s1)

        logits = [h(d) for h, d in zip(self.heads, (d1, d2, d3, d4))]

        valid = mask != IGNORE
        total = 0.0
        parts = []
        for w, lg in zip(self.ds_weights, logits):
            # upsample the side outputs, tried downsampling the mask - roads vanish
            if lg.shape[-1] != mask.shape[-1]:
                lg = F.interpolate(lg, size=mask.shape[-2:], mode="bilinear", align_corners=False)
            l = masked_ce(lg, mask, valid, self.cw) + soft_dice(lg, mask, valid)
            parts.append(l)
            total = total + w * l
        total = total / sum(self.ds_weights)

        with torch.no_grad():
            pred = logits[0].argmax(1)
            acc = ((pred == mask) & valid).sum() / valid.sum().clamp(min=1)
        return {"loss": total, "main": parts[0].detach(), "logits": logits[0], "acc": acc, "att": att.detach()}


def inputs(batch):
    img = torch.rand(batch, N_BANDS, SIZE, SIZE)
    mask = torch.randint(0, N_CLASSES, (batch, SIZE, SIZE))
    mask[:, :6, :6] = IGNORE
    return img, mask
