"""Networks whose blocks begin with nn.ReLU(True) and change what they are given. Each function gives a module and what it is called with."""
import torch
from torch import nn


class Skip(nn.Module):
    """One level of a U-Net, around the next one: what is joined in the end is what the first activation left of x."""

    def __init__(self, width, inside=None):
        super().__init__()
        inner = 2 * width
        down = [nn.LeakyReLU(0.2, True), nn.Conv2d(width, inner, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(inner)]
        up = [nn.ReLU(True), nn.ConvTranspose2d(2 * inner if inside else inner, width, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(width)]
        self.model = nn.Sequential(*down, *([inside] if inside else []), *up)

    def forward(self, x):
        return torch.cat([x, self.model(x)], 1)


class Translator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        middle = Skip(width, Skip(2 * width, Skip(4 * width)))
        self.model = nn.Sequential(nn.Conv2d(3, width, 4, stride=2, padding=1), middle, nn.ReLU(True), nn.ConvTranspose2d(2 * width, 3, 4, stride=2, padding=1), nn.Tanh())

    def forward(self, picture):
        return self.model(picture)


class Bottleneck(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.conv = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(width, inner, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(inner, width, 1))

    def forward(self, x):
        out = self.conv(x)
        out += x
        return out


class Autoencoder(nn.Module):
    """The encoder and decoder of a VQ-VAE, without the codes."""

    def __init__(self, width=48, inner=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 4, stride=2, padding=1), nn.ReLU(inplace=True), nn.Conv2d(width, width, 3, padding=1), Bottleneck(width, inner), Bottleneck(width, inner),
                                     nn.ReLU(inplace=True))
        self.decoder = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), Bottleneck(width, inner), Bottleneck(width, inner), nn.ReLU(inplace=True), nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1))

    def forward(self, picture):
        return self.decoder(self.encoder(picture))


def translator(batch):
    return Translator(), (torch.rand(batch, 3, 64, 64),)


def autoencoder(batch):
    return Autoencoder(), (torch.rand(batch, 3, 64, 64),)
