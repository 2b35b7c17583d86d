"""Networks of convolutions and of patches, as people write them. Each function gives a module and what it is called with."""
import torch
import torch.nn.functional as F
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, i, o, stride=1):
        super().__init__()
        self.c1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(o)
        self.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(o)
        self.down = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride != 1 or i != o else None

    def shortcut(self, x):
        return x if self.down is None else self.down(x)

    def body(self, x):
        out = F.relu(self.b1(self.c1(x)), inplace=True)
        return self.b2(self.c2(out))

    def forward(self, x):
        out = self.body(x)
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.layers = nn.Sequential(ResBlock(32, 32), ResBlock(32, 64, 2), ResBlock(64, 128, 2))
        self.fc = nn.Linear(128, 10)

    def features(self, x):
        x = F.relu_(self.stem(x))
        x = self.layers(x)
        return F.adaptive_avg_pool2d(x, 1).flatten(1)

    def forward(self, x):
        return self.fc(self.features(x))


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = ResNet()
        self.backbone.fc = nn.Identity()
        self.head = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 10))
        for p in self.backbone.parameters():
            p.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            f = self.backbone(x)
        return self.head(f)


class SimCLR(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = ResNet()
        self.backbone.fc = nn.Identity()
        self.proj = nn.Sequential(nn.Linear(128, 128), nn.ReLU(inplace=True), nn.Linear(128, 64))
        self.t = 0.5

    def loss(self, a, b):
        z = F.normalize(torch.cat([a, b]), dim=1)
        n = z.shape[0]
        sim = z @ z.t() / self.t
        sim = sim.masked_fill(torch.eye(n, dtype=torch.bool, device=z.device), -10000.0)
        half = n // 2
        target = torch.cat([torch.arange(half, device=z.device) + half, torch.arange(half, device=z.device)])
        return F.cross_entropy(sim, target)

    def forward(self, x1, x2):
        return self.loss(self.proj(self.backbone(x1)), self.proj(self.backbone(x2)))


class RelBias(nn.Module):
    def __init__(self, d=128, h=4, n=64):
        super().__init__()
        self.h = h
        self.qkv, self.out = (nn.Linear(d, 3 * d), nn.Linear(d, d))
        self.table = nn.Parameter(torch.zeros(2 * n - 1, h))
        i = torch.arange(n)
        self.register_buffer("index", i[:, None] - i[None] + n - 1)
        self.n1, self.n2 = (nn.LayerNorm(d), nn.LayerNorm(d))
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * d, d))

    def attention(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4).unbind(0)
        a = q * (d // self.h) ** (-0.5) @ k.transpose(-2, -1)
        a = a + self.table[self.index].permute(2, 0, 1).unsqueeze(0)
        a = F.dropout(a.softmax(-1), 0.1, self.training)
        return self.out((a @ v).transpose(1, 2).reshape(b, n, d))

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class RelViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 128, 4, 4)
        self.blocks = nn.ModuleList((RelBias() for _ in range(3)))
        self.norm, self.head = (nn.LayerNorm(128), nn.Linear(128, 10))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x).mean(1))


class DoubleConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.net(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2, self.d3 = (DoubleConv(3, 32), DoubleConv(32, 64), DoubleConv(64, 128))
        self.u1, self.c1, self.u2, self.c2 = (nn.ConvTranspose2d(128, 64, 2, 2), DoubleConv(128, 64), nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), DoubleConv(96, 32))
        self.out = nn.Conv2d(32, 4, 1)

    def dice(self, logits, target):
        p = logits.softmax(1)
        t = F.one_hot(target, 4).permute(0, 3, 1, 2).float()
        inter = (p * t).sum((2, 3))
        return 1 - ((2 * inter + 1) / (p.sum((2, 3)) + t.sum((2, 3)) + 1)).mean()

    def forward(self, x, target):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        x = self.c1(torch.cat([self.u1(c), b], 1))
        x = self.c2(torch.cat([self.u2(x), a], 1))
        y = self.out(x)
        return F.cross_entropy(y, target) + self.dice(y, target)


class SE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(c, c // 4), nn.ReLU(), nn.Linear(c // 4, c), nn.Sigmoid())

    def forward(self, x):
        b, c = x.shape[:2]
        return x * self.fc(F.adaptive_avg_pool2d(x, 1).view(b, c)).view(b, c, 1, 1)


class SENet(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3 if i == 0 else 64, 64, 3, padding=1) for i in range(4)])
        self.bns = nn.ModuleList((nn.BatchNorm2d(64) for _ in range(4)))
        self.se = nn.ModuleList((SE(64) for _ in range(4)))
        self.fc = nn.Linear(64, 10)
        self.gamma = nn.Parameter(torch.ones(4))

    def forward(self, x):
        for i, (c, n, e) in enumerate(zip(self.convs, self.bns, self.se)):
            y = e(n(c(x))) * self.gamma[i]
            x = F.leaky_relu(y, 0.1) if i == 0 else F.leaky_relu(x + y, 0.1)
        return self.fc(x.mean((2, 3)))


class Mixer(nn.Module):
    def __init__(self, n=64, d=128):
        super().__init__()
        self.p = nn.Conv2d(3, d, 4, 4)
        self.bl = nn.ModuleList((nn.ModuleDict(dict(n1=nn.LayerNorm(d), t1=nn.Linear(n, 4 * n), t2=nn.Linear(4 * n, n), n2=nn.LayerNorm(d), c1=nn.Linear(d, 4 * d), c2=nn.Linear(4 * d, d))) for _ in range(3)))
        self.h = nn.Linear(d, 10)

    def block(self, m, x):
        y = m["n1"](x).transpose(1, 2)
        y = m["t2"](F.gelu(m["t1"](y))).transpose(1, 2)
        x = x + y
        return x + m["c2"](F.gelu(m["c1"](m["n2"](x))))

    def forward(self, x):
        x = self.p(x).flatten(2).transpose(1, 2)
        for m in self.bl:
            x = self.block(m, x)
        return self.h(x.mean(1))


class Yolo(nn.Module):
    def __init__(self, nc=4):
        super().__init__()
        cb = lambda i, o, st: nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU(inplace=True))
        self.b = nn.Sequential(cb(3, 16, 2), cb(16, 32, 2), cb(32, 64, 2))
        self.det = nn.Conv2d(64, 3 * (5 + nc), 1)
        self.register_buffer("anchors", torch.ones(3, 2))
        self.nc = nc

    def decode(self, p):
        b, _, h, w = p.shape
        p = p.view(b, 3, 5 + self.nc, h, w).permute(0, 1, 3, 4, 2).contiguous()
        gy, gx = torch.meshgrid(torch.arange(h, device=p.device), torch.arange(w, device=p.device), indexing="ij")
        grid = torch.stack([gx, gy], -1).float()
        xy = (torch.sigmoid(p[..., :2]) + grid) * 8
        wh = torch.exp(p[..., 2:4]) * self.anchors.view(1, 3, 1, 1, 2)
        return torch.cat([xy, wh, torch.sigmoid(p[..., 4:])], -1)

    def forward(self, x):
        return self.decode(self.det(self.b(x))).flatten(1, 3)


class FocalDet(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.GroupNorm(8, 32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.GroupNorm(8, 64), nn.ReLU())
        self.hm, self.wh = (nn.Conv2d(64, 5, 1), nn.Conv2d(64, 2, 1))

    def focal(self, p, t):
        pos = t.eq(1).float()
        neg = 1 - pos
        p = p.sigmoid().clamp(0.0001, 1 - 0.0001)
        pl = torch.log(p) * torch.pow(1 - p, 2) * pos
        nl = torch.log(1 - p) * torch.pow(p, 2) * torch.pow(1 - t, 4) * neg
        return -(pl.sum() + nl.sum()) / (pos.sum() + 1)

    def forward(self, x, hm, wh, mask):
        f = self.b(x)
        return self.focal(self.hm(f), hm) + (torch.abs(self.wh(f) - wh) * mask).sum() / (mask.sum() + 0.0001)


class StdConvNet(nn.Module):
    class Conv(nn.Conv2d):
        def forward(self, x):
            w = self.weight
            m = w.mean(dim=(1, 2, 3), keepdim=True)
            v = w.var(dim=(1, 2, 3), keepdim=True, unbiased=False)
            return F.conv2d(x, (w - m) / torch.sqrt(v + 1e-05), self.bias, self.stride, self.padding)

    def __init__(self):
        super().__init__()
        self.c = nn.ModuleList([StdConvNet.Conv(3, 64, 3, padding=1), StdConvNet.Conv(64, 128, 3, 2, 1), StdConvNet.Conv(128, 128, 3, padding=1)])
        self.n = nn.ModuleList([nn.GroupNorm(8, 64), nn.GroupNorm(8, 128), nn.GroupNorm(8, 128)])
        self.fc = nn.Linear(128, 10)

    def forward(self, x):
        for c, n in zip(self.c, self.n):
            x = F.relu(n(c(x)))
        return self.fc(x.mean([2, 3]))


def resnet_helpers(batch):
    return ResNet(), (torch.randn(batch, 3, 32, 32),)


def frozen_backbone(batch):
    return Frozen(), (torch.randn(batch, 3, 32, 32),)


def simclr(batch):
    return SimCLR(), (torch.randn(batch, 3, 32, 32), torch.randn(batch, 3, 32, 32))


def relvit(batch):
    return RelViT(), (torch.randn(batch, 3, 32, 32),)


def unet_dice(batch):
    return UNet(), (torch.randn(batch, 3, 48, 48), torch.zeros(batch, 48, 48, dtype=torch.long))


def senet_gamma(batch):
    return SENet(), (torch.randn(batch, 3, 32, 32),)


def mixer(batch):
    return Mixer(), (torch.randn(batch, 3, 32, 32),)


def yolo(batch):
    return Yolo(), (torch.randn(batch, 3, 64, 64),)


def centernet(batch):
    return FocalDet(), (torch.randn(batch, 3, 64, 64), torch.zeros(batch, 5, 16, 16), torch.randn(batch, 2, 16, 16), torch.zeros(batch, 1, 16, 16))


def weight_standard(batch):
    return StdConvNet(), (torch.randn(batch, 3, 32, 32),)
