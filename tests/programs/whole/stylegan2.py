import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class PixelNorm(nn.Module):
    def forward(self, input):
        return input * torch.rsqrt(torch.mean(input ** 2, dim=1, keepdim=True) + 1e-8)


class EqualLinear(nn.Module):
    def __init__(self, in_dim, out_dim, bias_init=0.0, lr_mul=1.0, activation=None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_dim, in_dim).div_(lr_mul))
        self.bias = nn.Parameter(torch.zeros(out_dim).fill_(bias_init))
        self.activation = activation
        self.scale = (1 / math.sqrt(in_dim)) * lr_mul
        self.lr_mul = lr_mul

    def forward(self, input):
        out = F.linear(input, self.weight * self.scale, bias=self.bias * self.lr_mul)
        if self.activation:
            out = F.leaky_relu(out, 0.2) * math.sqrt(2)
        return out


class EqualConv2d(nn.Module):
    def __init__(self, in_ch, out_ch, kernel_size, stride=1, padding=0, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_ch, in_ch, kernel_size, kernel_size))
        self.scale = 1 / math.sqrt(in_ch * kernel_size ** 2)
        self.stride = stride
        self.padding = padding
        self.bias = nn.Parameter(torch.zeros(out_ch)) if bias else None

    def forward(self, x):
        return F.conv2d(x, self.weight * self.scale, bias=self.bias, stride=self.stride, padding=self.padding)


class Blur(nn.Module):
    def __init__(self, kernel=(1, 3, 3, 1), pad=(2, 1), gain=1.0):
        super().__init__()
        k = torch.tensor(kernel, dtype=torch.float32)
        k = k[None, :] * k[:, None]
        k /= k.sum()
        self.register_buffer("kernel", k * gain)
        self.pad = pad

    def forward(self, x):
        c = x.shape[1]
        p0, p1 = self.pad
        x = F.pad(x, (p0, p1, p0, p1))
        return F.conv2d(x, self.kernel[None, None].repeat(c, 1, 1, 1), groups=c)


class FusedLeakyReLU(nn.Module):
    def __init__(self, channel, negative_slope=0.2, scale=2 ** 0.5):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, channel, 1, 1))
        self.negative_slope = negative_slope
        self.scale = scale

    def forward(self, x):
        return F.leaky_relu(x + self.bias, self.negative_slope) * self.scale


class ModulatedConv2d(nn.Module):
    """ the unfused variant: scale the input, convolve with the shared weight, scale the output """

    def __init__(self, in_channel, out_channel, kernel_size, style_dim, demodulate=True, upsample=False):
        super().__init__()
        self.eps = 1e-8
        self.upsample = upsample
        self.demodulate = demodulate
        self.padding = kernel_size // 2
        self.scale = 1 / math.sqrt(in_channel * kernel_size ** 2)
        self.weight = nn.Parameter(torch.randn(out_channel, in_channel, kernel_size, kernel_size))
        self.modulation = EqualLinear(style_dim, in_channel, bias_init=1.0)
        if upsample:
            self.blur = Blur(pad=(1, 1), gain=4.0)

    def forward(self, x, style):
        style = self.modulation(style)
        w = self.weight * self.scale
        x = x * style[:, :, None, None]
        if self.upsample:
            x = F.conv_transpose2d(x, w.transpose(0, 1), stride=2, padding=0)
            x = self.blur(x)
        else:
            x = F.conv2d(x, w, padding=self.padding)
        if self.demodulate:
            wsq = w.pow(2).sum(dim=[2, 3])                      # O, I
            dcoef = torch.rsqrt(style.pow(2) @ wsq.t() + self.eps)
            x = x * dcoef[:, :, None, None]
        return x


class NoiseInjection(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, image, noise=None):
        if noise is None:
            noise = torch.randn_like(image[:, :1])
        return image + self.weight * noise


class StyledConv(nn.Module):
    def __init__(self, in_ch, out_ch, style_dim, upsample=False):
        super().__init__()
        self.conv = ModulatedConv2d(in_ch, out_ch, 3, style_dim, upsample=upsample)
        self.noise = NoiseInjection()
        self.activate = FusedLeakyReLU(out_ch)

    def forward(self, x, style):
        out = self.conv(x, style)
        out = self.noise(out)
        return self.activate(out)


class ToRGB(nn.Module):
    def __init__(self, in_ch, style_dim, upsample=True):
        super().__init__()
        if upsample:
            self.upsample = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.conv = ModulatedConv2d(in_ch, 3, 1, style_dim, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(1, 3, 1, 1))

    def forward(self, x, style, skip=None):
        out = self.conv(x, style)
        out = out + self.bias
        if skip is not None:
            out = out + self.upsample(skip)
        return out


CHANNELS = {4: 256, 8: 256, 16: 256, 32: 256, 64: 96, 128: 48}


class Generator(nn.Module):
    def __init__(self, size=128, style_dim=256, n_mlp=6):
        super().__init__()
        layers = [PixelNorm()]
        for _ in range(n_mlp):
            layers.append(EqualLinear(style_dim, style_dim, lr_mul=0.01, activation="fused_lrelu"))
        self.style = nn.Sequential(*layers)

        self.const = nn.Parameter(torch.randn(1, CHANNELS[4], 4, 4))
        self.conv1 = StyledConv(CHANNELS[4], CHANNELS[4], style_dim)
        self.to_rgb1 = ToRGB(CHANNELS[4], style_dim, upsample=False)

        self.log_size = int(math.log(size, 2))
        self.convs = nn.ModuleList()
        self.to_rgbs = nn.ModuleList()
        in_ch = CHANNELS[4]
        for i in range(3, self.log_size + 1):
            out_ch = CHANNELS[2 ** i]
            self.convs.append(StyledConv(in_ch, out_ch, style_dim, upsample=True))
            self.convs.append(StyledConv(out_ch, out_ch, style_dim))
            self.to_rgbs.append(ToRGB(out_ch, style_dim))
            in_ch = out_ch
        self.n_latent = self.log_size * 2 - 2

    def forward(self, z1, z2, inject_index=4):
        w1, w2 = self.style(z1), self.style(z2)
        latent = torch.cat([
            w1.unsqueeze(1).repeat(1, inject_index, 1),
            w2.unsqueeze(1).repeat(1, self.n_latent - inject_index, 1)], 1)

        out = self.const.expand(latent.shape[0], -1, -1, -1)
        out = self.conv1(out, latent[:, 0])
        skip = self.to_rgb1(out, latent[:, 1])
        i = 1
        for conv1, conv2, to_rgb in zip(self.convs[::2], self.convs[1::2], self.to_rgbs):
            out = conv1(out, latent[:, i])
            out = conv2(out, latent[:, i + 1])
            skip = to_rgb(out, latent[:, i + 2], skip)
            i += 2
        return skip, latent


class ConvLayer(nn.Sequential):
    def __init__(self, in_ch, out_ch, k, downsample=False, bias=True, activate=True):
        layers = []
        if downsample:
            layers.append(Blur(pad=(2, 2) if k == 3 else (1, 1)))
            stride, padding = 2, 0
        else:
            stride, padding = 1, k // 2
        layers.append(EqualConv2d(in_ch, out_ch, k, stride=stride, padding=padding, bias=bias and not activate))
        if activate:
            layers.append(FusedLeakyReLU(out_ch))
        super().__init__(*layers)


class DResBlock(nn.Module):
    def __init__(self, in_ch, out_ch):
        super().__init__()
        self.conv1 = ConvLayer(in_ch, in_ch, 3)
        self.conv2 = ConvLayer(in_ch, out_ch, 3, downsample=True)
        self.skip = ConvLayer(in_ch, out_ch, 1, downsample=True, activate=False, bias=False)

    def forward(self, x):
        out = self.conv2(self.conv1(x))
        return (out + self.skip(x)) / math.sqrt(2)


class Discriminator(nn.Module):
    def __init__(self, size=128):
        super().__init__()
        convs = [ConvLayer(3, CHANNELS[size], 1)]
        in_ch = CHANNELS[size]
        for i in range(int(math.log(size, 2)), 2, -1):
            out_ch = CHANNELS[2 ** (i - 1)]
            convs.append(DResBlock(in_ch, out_ch))
            in_ch = out_ch
        self.convs = nn.Sequential(*convs)
        self.final_conv = ConvLayer(in_ch + 1, CHANNELS[4], 3)
        self.final_linear = nn.Sequential(
            EqualLinear(CHANNELS[4] * 4 * 4, CHANNELS[4], activation="fused_lrelu"),
            EqualLinear(CHANNELS[4], 1),
        )

    def forward(self, x):
        out = self.convs(x)
        stddev = torch.sqrt(out.var(0, unbiased=False) + 1e-8).mean()
        stddev = stddev.view(1, 1, 1, 1).expand(out.shape[0], 1, out.shape[2], out.shape[3])
        out = torch.cat([out, stddev], 1)
        out = self.final_conv(out)
        return self.final_linear(out.flatten(1))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = Generator()
        self.discriminator = Discriminator()
        self.g_ema = Generator()
        self.g_ema.load_state_dict(self.generator.state_dict())
        for p in self.g_ema.parameters():
            p.requires_grad_(False)

    def forward(self, real, z1, z2):
        fake, latents = self.generator(z1, z2)

        fake_pred = self.discriminator(fake.detach())
        real_pred = self.discriminator(real)
        d_loss = F.softplus(-real_pred).mean() + F.softplus(fake_pred).mean()

        g_loss = F.softplus(-self.discriminator(fake)).mean()
        with torch.no_grad():
            sample, _ = self.g_ema(z1, z2)
        return g_loss + d_loss, {"d": d_loss.detach(), "g": g_loss.detach(), "sample": sample[:, :, ::4, ::4]}


def inputs(batch):
    return torch.randn(batch, 3, 128, 128), torch.randn(batch, 256), torch.randn(batch, 256)
