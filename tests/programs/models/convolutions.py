"""More networks of convolutions. Each function gives a module and what it is called with."""
import torch
import torch.nn.functional as F
from torch import nn


class CBAM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(c, c // 8), nn.ReLU(), nn.Linear(c // 8, c))
        self.conv = nn.Conv2d(2, 1, 7, padding=3)

    def channel(self, x):
        a = self.mlp(x.mean(dim=(2, 3)))
        m = self.mlp(x.amax(dim=(2, 3)))
        return torch.sigmoid(a + m)[:, :, None, None]

    def spatial(self, x):
        a = x.mean(dim=1, keepdim=True)
        m, _ = x.max(dim=1, keepdim=True)
        return torch.sigmoid(self.conv(torch.cat([a, m], dim=1)))

    def forward(self, x):
        x = x * self.channel(x)
        return x * self.spatial(x)


class CbamNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.a1, self.c2, self.a2 = (nn.Conv2d(3, 32, 1), CBAM(32), nn.Conv2d(32, 64, 1), CBAM(64))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.a1(F.relu(self.c1(x)))
        x = F.max_pool2d(x, 2)
        x = self.a2(F.relu(self.c2(x)))
        return self.fc(F.adaptive_avg_pool2d(x, (1, 1)).squeeze(-1).squeeze(-1))


class BiFPN(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.c3, self.c4, self.c5 = (nn.Conv2d(3, c, 1), nn.Conv2d(c, c, 1, 2), nn.Conv2d(c, c, 1, 2))
        self.w1 = nn.Parameter(torch.ones(2))
        self.w2 = nn.Parameter(torch.ones(3))
        self.f1, self.f2 = (nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1))
        self.out = nn.Conv2d(c, 5, 1)

    def fuse(self, w, *xs):
        w = F.relu(w)
        w = w / (w.sum() + 0.0001)
        out = 0
        for i, x in enumerate(xs):
            out = out + w[i] * x
        return out * torch.sigmoid(out)

    def forward(self, x):
        p3 = self.c3(x)
        p4 = self.c4(F.relu(p3))
        p5 = self.c5(F.relu(p4))
        m4 = self.f1(self.fuse(self.w1, p4, F.interpolate(p5, scale_factor=2.0)))
        o4 = self.f2(self.fuse(self.w2, p4, m4, F.max_pool2d(p3, 2)))
        return self.out(o4)


class Detr(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.b = nn.Conv2d(3, d, 8, 8)
        self.row, self.col = (nn.Parameter(torch.rand(8, d // 2)), nn.Parameter(torch.rand(8, d // 2)))
        self.q = nn.Parameter(torch.rand(10, d))
        self.t = nn.Transformer(d, 4, 1, 1, 128, dropout=0.0, batch_first=True)
        self.cls, self.box = (nn.Linear(d, 6), nn.Linear(d, 4))

    def forward(self, x):
        h = self.b(x)
        H, W = h.shape[-2:]
        pos = torch.cat([self.col[:W].unsqueeze(0).repeat(H, 1, 1), self.row[:H].unsqueeze(1).repeat(1, W, 1)], dim=-1).flatten(0, 1).unsqueeze(0)
        out = self.t(pos + h.flatten(2).permute(0, 2, 1), self.q.unsqueeze(0).expand(x.shape[0], -1, -1))
        return (self.cls(out), self.box(out).sigmoid())


class SpecGan(nn.Module):
    def __init__(self):
        super().__init__()
        sn = nn.utils.spectral_norm
        self.a, self.b, self.c = (sn(nn.Linear(128, 256)), sn(nn.Linear(256, 256)), sn(nn.Linear(256, 1)))
        self.e = nn.Embedding(10, 256)

    def forward(self, x, y):
        h = F.leaky_relu(self.a(x), 0.2)
        h = F.leaky_relu(self.b(h), 0.2)
        return F.softplus(-(self.c(h) + (self.e(y) * h).sum(1, keepdim=True))).mean()


class ConvLSTM(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.c = c
        self.g = nn.Conv2d(3 + c, 4 * c, 1)
        self.o = nn.Conv2d(c, 5, 1)

    def step(self, x, h, c):
        i, f, o, g = torch.split(self.g(torch.cat([x, h], dim=1)), self.c, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return (torch.sigmoid(o) * torch.tanh(c), c)

    def forward(self, x):
        h = torch.zeros(x.shape[0], self.c, *x.shape[-2:], device=x.device)
        c = torch.zeros_like(h)
        for t in range(x.shape[1]):
            h, c = self.step(x[:, t], h, c)
        return self.o(h)


class Ssim(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 16, 1)
        self.d = nn.Conv2d(16, 3, 1)
        g = torch.exp(-(torch.arange(5).float() - 2) ** 2 / 4.5)
        g = g[:, None] * g[None] / g.sum() ** 2
        self.register_buffer("k", g.expand(3, 1, 5, 5).contiguous())

    def ssim(self, x, y):
        f = lambda z: F.conv2d(z, self.k, padding=2, groups=3)
        mx, my = (f(x), f(y))
        vx, vy, cxy = (f(x * x) - mx ** 2, f(y * y) - my ** 2, f(x * y) - mx * my)
        return ((2 * mx * my + 0.0001) * (2 * cxy + 0.0009) / ((mx ** 2 + my ** 2 + 0.0001) * (vx + vy + 0.0009))).mean()

    def forward(self, x, y):
        h = torch.sigmoid(self.d(F.relu(self.c(x))))
        return 0.85 * (1 - self.ssim(h, y)) / 2 + 0.15 * (h - y).abs().mean()


class Ghost(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Conv2d(3, 16, 1)
        self.cheap = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.bn = nn.BatchNorm2d(32)
        self.fc = nn.Linear(32, 10)

    def shuffle(self, x):
        b, c, h, w = x.shape
        return x.view(b, 4, c // 4, h, w).transpose(1, 2).contiguous().view(b, c, h, w)

    def forward(self, x):
        a = F.relu(self.p(x))
        x = torch.cat([a, F.relu(self.cheap(a))], dim=1)
        x = F.hardswish(self.bn(self.shuffle(x)))
        return self.fc(x.mean([2, 3]))


class Canvas(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.o = (nn.Linear(32, 64), nn.Linear(32, 64), nn.Linear(64, 10))

    def forward(self, x):
        out = x.new_zeros(x.shape[0], x.shape[1], 64)
        out[:, ::2] = self.a(x[:, ::2])
        out[:, 1::2] = F.relu(self.b(x[:, 1::2]))
        out[:, 0] += 1.0
        out = out.clone()
        out.mul_(0.5)
        return self.o(out).mean(1)


def cbam(batch):
    return CbamNet(), (torch.randn(batch, 3, 32, 32),)


def bifpn(batch):
    return BiFPN(), (torch.randn(batch, 3, 32, 32),)


def detr(batch):
    return Detr(), (torch.randn(batch, 3, 64, 64),)


def spectral(batch):
    return SpecGan(), (torch.randn(batch, 128), torch.zeros(batch, dtype=torch.long))


def convlstm(batch):
    return ConvLSTM(), (torch.randn(batch, 5, 3, 24, 24),)


def ssim(batch):
    return Ssim(), (torch.randn(batch, 3, 32, 32), torch.rand(batch, 3, 32, 32))


def ghost(batch):
    return Ghost(), (torch.randn(batch, 3, 32, 32),)


def canvas2(batch):
    return Canvas(), (torch.randn(batch, 40, 32),)


class Vocoder(nn.Module):
    """Weights that a hook or a parametrization of weight_norm makes; some small enough for an exporter to fold."""

    def __init__(self, wn):
        super().__init__()
        self.a = wn(nn.Conv1d(40, 64, 7, padding=3))
        self.up = nn.ModuleList([wn(nn.ConvTranspose1d(64 >> i, 32 >> i, 8, stride=4, padding=2)) for i in range(2)])
        self.res = nn.ModuleList([nn.ModuleList([wn(nn.Conv1d(32 >> i, 32 >> i, 3, dilation=d, padding=d)) for d in (1, 3)]) for i in range(2)])
        self.b = wn(nn.Conv1d(16, 1, 7, padding=3))

    def forward(self, mel):
        x = self.a(mel)
        for up, res in zip(self.up, self.res):
            x = up(F.leaky_relu(x, 0.1))
            for c in res:
                x = c(F.leaky_relu(x, 0.1)) + x
        return torch.tanh(self.b(F.leaky_relu(x)))


class Spectrograms(nn.Module):
    """Windows as columns, and images put together from columns."""

    def __init__(self):
        super().__init__()
        self.p, self.o = nn.Linear(27, 48), nn.Linear(48, 27)

    def forward(self, x):
        h = self.p(F.unfold(x, 3, stride=2, padding=1).transpose(1, 2))
        h = self.o(F.gelu(h))
        return F.fold(h.transpose(1, 2), x.shape[-2:], 3, stride=2, padding=1)


def vocoder(batch):
    return Vocoder(nn.utils.weight_norm), (torch.randn(batch, 40, 64),)


def vocoder_parametrized(batch):
    return Vocoder(nn.utils.parametrizations.weight_norm), (torch.randn(batch, 40, 64),)


def unfolded(batch):
    return Spectrograms(), (torch.randn(batch, 3, 64, 64),)


def spectral_images(batch):
    sn = nn.utils.spectral_norm
    layers = [sn(nn.Conv2d(3, 32, 4, 2, 1)), nn.LeakyReLU(0.2), sn(nn.Conv2d(32, 64, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(), sn(nn.Linear(64 * 64, 1))]
    return nn.Sequential(*layers), (torch.randn(batch, 3, 32, 32),)


def spectral_parametrized(batch):
    sn = nn.utils.parametrizations.spectral_norm
    layers = [sn(nn.Conv2d(3, 32, 4, 2, 1)), nn.LeakyReLU(0.2), sn(nn.Conv2d(32, 64, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(), sn(nn.Linear(64 * 64, 1))]
    return nn.Sequential(*layers), (torch.randn(batch, 3, 32, 32),)
