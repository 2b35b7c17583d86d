"""StyleGAN2, no custom CUDA ops. 64x64, both players in one forward pass."""
import math
import torch
from torch import nn
from torch.nn import functional as F


def bias_act(x, b=None, slope=0.2, gain=math.sqrt(2)):
    if b is not None:
        x = x + b.view(1, -1, *([1] * (x.ndim - 2)))
    return F.leaky_relu(x, slope) * gain


def make_kernel(k=(1, 3, 3, 1)):
    k = torch.tensor(k, dtype=torch.float32)
    k = torch.outer(k, k)
    return k / k.sum()


class Blur(nn.Module):
    def __init__(self, pad, up=1):
        super().__init__()
        self.pad = pad
        self.register_buffer("kernel", make_kernel() * up ** 2)

    def forward(self, x):
        c = x.shape[1]
        x = F.pad(x, (self.pad[0], self.pad[1], self.pad[0], self.pad[1]))
        return F.conv2d(x, self.kernel.expand(c, 1, -1, -1), groups=c)


class EqualLinear(nn.Module):
    def __init__(self, i, o, bias_init=0.0, lr_mul=1.0, activate=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i) / lr_mul)
        self.bias = nn.Parameter(torch.full((o,), float(bias_init)))
        self.scale = lr_mul / math.sqrt(i)
        self.lr_mul = lr_mul
        self.activate = activate

    def forward(self, x):
        if self.activate:
            return bias_act(F.linear(x, self.weight * self.scale), self.bias * self.lr_mul)
        return F.linear(x, self.weight * self.scale, self.bias * self.lr_mul)


class EqualConv2d(nn.Module):
    def __init__(self, i, o, k, stride=1, padding=0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i, k, k))
        self.scale = 1 / math.sqrt(i * k * k)
        self.stride, self.padding = stride, padding

    def forward(self, x):
        return F.conv2d(x, self.weight * self.scale, stride=self.stride, padding=self.padding)


class ModulatedConv2d(nn.Module):
    def __init__(self, i, o, k, w_dim, demodulate=True, up=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, o, i, k, k))
        self.scale = 1 / math.sqrt(i * k * k)
        self.affine = EqualLinear(w_dim, i, bias_init=1)
        self.demodulate = demodulate
        self.k, self.o, self.up = k, o, up
        if up:
            self.blur = Blur((2, 1))

    def forward(self, x, w):
        b, c, h, wd = x.shape
        s = self.affine(w).view(b, 1, c, 1, 1)
        weight = self.scale * self.weight * s
        if self.demodulate:
            d = torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8)
            weight = weight * d.view(b, self.o, 1, 1, 1)
        if self.up:
            x = self.blur(F.interpolate(x, scale_factor=2, mode="nearest"))
            h, wd = h * 2, wd * 2
        x = x.reshape(1, b * c, h, wd)
        weight = weight.reshape(b * self.o, c, self.k, self.k)
        out = F.conv2d(x, weight, padding=self.k // 2, groups=b)
        return out.reshape(b, self.o, h, wd)


class StyledConv(nn.Module):
    def __init__(self, i, o, w_dim, up=False):
        super().__init__()
        self.conv = ModulatedConv2d(i, o, 3, w_dim, up=up)
        self.noise_strength = nn.Parameter(torch.zeros([]))
        self.bias = nn.Parameter(torch.zeros(o))

    def forward(self, x, w):
        x = self.conv(x, w)
        noise = torch.randn(x.shape[0], 1, x.shape[2], x.shape[3], device=x.device)
        x = x + noise * self.noise_strength
        return bias_act(x, self.bias)


class ToRGB(nn.Module):
    def __init__(self, i, w_dim):
        super().__init__()
        self.conv = ModulatedConv2d(i, 3, 1, w_dim, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(1, 3, 1, 1))
        self.blur = Blur((2, 1))

    def forward(self, x, w, skip=None):
        y = self.conv(x, w) + self.bias
        if skip is not None:
            y = y + self.blur(F.interpolate(skip, scale_factor=2, mode="nearest"))
        return y


class Generator(nn.Module):
    def __init__(self, size, w_dim, ch, n_mlp=6):
        super().__init__()
        self.log_size = int(math.log2(size))
        self.mapping = nn.Sequential(*[EqualLinear(w_dim, w_dim, lr_mul=0.01, activate=True) for _ in range(n_mlp)])
        self.const = nn.Parameter(torch.randn(1, ch[4], 4, 4))
        self.conv1 = StyledConv(ch[4], ch[4], w_dim)
        self.rgb1 = ToRGB(ch[4], w_dim)
        self.convs, self.rgbs = nn.ModuleList(), nn.ModuleList()
        cin = ch[4]
        for i in range(3, self.log_size + 1):
            c = ch[2 ** i]
            self.convs.append(StyledConv(cin, c, w_dim, up=True))
            self.convs.append(StyledConv(c, c, w_dim))
            self.rgbs.append(ToRGB(c, w_dim))
            cin = c
        self.num_ws = self.log_size * 2 - 2
        self.register_buffer("w_avg", torch.zeros(w_dim))

    def map(self, z):
        z = z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8)
        return self.mapping(z)

    def forward(self, z, z2):
        w, w2 = self.map(z), self.map(z2)
        self.w_avg.lerp_(w.detach().mean(0), 0.005)
        # style mixing: crossover layer drawn per sample, 10% keep a single style
        cut = torch.randint(1, self.num_ws, (z.shape[0], 1), device=z.device)
        cut = torch.where(torch.rand_like(z[:, :1]) < 0.9, cut, torch.full_like(cut, self.num_ws))
        layer = torch.arange(self.num_ws, device=z.device)[None]
        ws = torch.where((layer < cut)[..., None], w[:, None], w2[:, None])

        x = self.const.repeat(z.shape[0], 1, 1, 1)
        x = self.conv1(x, ws[:, 0])
        img = self.rgb1(x, ws[:, 1])
        i = 1
        for c1, c2, rgb in zip(self.convs[::2], self.convs[1::2], self.rgbs):
            x = c1(x, ws[:, i])
            x = c2(x, ws[:, i + 1])
            img = rgb(x, ws[:, i + 2] if i + 2 < self.num_ws else ws[:, -1], img)
            i += 2
        return img


class ResBlock(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv1, self.b1 = EqualConv2d(i, i, 3, padding=1), nn.Parameter(torch.zeros(i))
        self.blur = Blur((2, 2))
        self.conv2, self.b2 = EqualConv2d(i, o, 3, stride=2), nn.Parameter(torch.zeros(o))
        self.blur_skip = Blur((1, 1))
        self.skip = EqualConv2d(i, o, 1, stride=2)

    def forward(self, x):
        y = bias_act(self.conv1(x), self.b1)
        y = bias_act(self.conv2(self.blur(y)), self.b2)
        return (y + self.skip(self.blur_skip(x))) / math.sqrt(2)


def minibatch_stddev(x, f=1):
    # one group spanning the whole batch
    b, c, h, w = x.shape
    y = x.reshape(b, f, c // f, h, w)
    y = (y - y.mean(0)).square().mean(0)
    y = (y + 1e-8).sqrt().mean([1, 2, 3])
    y = y.reshape(1, f, 1, 1).expand(b, -1, h, w)
    return torch.cat([x, y], 1)


class Discriminator(nn.Module):
    def __init__(self, size, ch):
        super().__init__()
        self.from_rgb, self.b0 = EqualConv2d(3, ch[size], 1), nn.Parameter(torch.zeros(ch[size]))
        blocks, cin = [], ch[size]
        for i in range(int(math.log2(size)), 2, -1):
            blocks.append(ResBlock(cin, ch[2 ** (i - 1)]))
            cin = ch[2 ** (i - 1)]
        self.blocks = nn.Sequential(*blocks)
        self.final, self.b1 = EqualConv2d(cin + 1, ch[4], 3, padding=1), nn.Parameter(torch.zeros(ch[4]))
        self.out = nn.Sequential(EqualLinear(ch[4] * 16, ch[4], activate=True), EqualLinear(ch[4], 1))

    def forward(self, img):
        x = bias_act(self.from_rgb(img), self.b0)
        x = minibatch_stddev(self.blocks(x))
        x = bias_act(self.final(x), self.b1)
        return self.out(x.flatten(1))


class Model(nn.Module):
    def __init__(self, size=64, w_dim=256):
        super().__init__()
        ch = {4: 256, 8: 256, 16: 192, 32: 128, 64: 64}
        self.w_dim = w_dim
        self.G = Generator(size, w_dim, ch)
        self.D = Discriminator(size, ch)

    def forward(self, real, z):
        fake = self.G(z, torch.randn_like(z))
        loss_d = F.softplus(self.D(fake.detach())).mean() + F.softplus(-self.D(real)).mean()
        loss_g = F.softplus(-self.D(fake)).mean()
        return loss_g, loss_d


def inputs(batch):
    return torch.rand(batch, 3, 64, 64) * 2 - 1, torch.randn(batch, 256)
