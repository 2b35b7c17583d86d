"""A researcher: a small U-Net that learns to remove noise, and an average of its weights."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, SIDE = 16, 64


class Block(nn.Module):
    def __init__(self, width, out, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, width), nn.Conv2d(width, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.norm2, self.conv2 = nn.GroupNorm(32, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(width, out, 1) if width != out else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(32, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).unflatten(2, (-1, 64)).transpose(1, 2).chunk(3, 1)
        h = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(h.transpose(1, 2).flatten(2).transpose(1, 2).unflatten(2, x.shape[2:]))


class UNet(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        time = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.register_buffer("frequencies", torch.logspace(0, -4, width // 2))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down1, self.half1 = Block(width, width, time), nn.Conv2d(width, width, 3, 2, 1)
        self.down2, self.half2 = Block(width, 2 * width, time), nn.Conv2d(2 * width, 2 * width, 3, 2, 1)
        self.middle1, self.attention, self.middle2 = Block(2 * width, 2 * width, time), Attention(2 * width), Block(2 * width, 2 * width, time)
        self.up2, self.up1 = Block(4 * width, width, time), Block(2 * width, width, time)
        self.norm, self.last = nn.GroupNorm(32, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        angles = t[:, None] * self.frequencies
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        one = self.down1(self.first(x), t)
        two = self.down2(self.half1(one), t)
        x = self.middle2(self.attention(self.middle1(self.half2(two), t)), t)
        x = self.up2(torch.cat([F.interpolate(x, scale_factor=2), two], 1), t)
        x = self.up1(torch.cat([F.interpolate(x, scale_factor=2), one], 1), t)
        return self.last(F.silu(self.norm(x)))


class Denoise(nn.Module):
    """The loss of a batch. The average stands beside the network and is not trained."""

    def __init__(self):
        super().__init__()
        self.net = UNet()
        self.average = copy.deepcopy(self.net).requires_grad_(False)

    def forward(self, images, noise, t):
        noisy = images * (1 - t)[:, None, None, None] + noise * t[:, None, None, None]
        return F.mse_loss(self.net(noisy, t), noise)


def make_step():
    """For memplan: the module, and its arguments."""
    return Denoise(), (torch.zeros(BATCH, 3, SIDE, SIDE), torch.zeros(BATCH, 3, SIDE, SIDE), torch.zeros(BATCH))


def main():
    model = Denoise().cuda()
    optimizer = torch.optim.AdamW(model.net.parameters(), lr=1e-4)
    for _ in range(4):
        images = torch.randn(BATCH, 3, SIDE, SIDE).cuda()
        loss = model(images, torch.randn_like(images), torch.rand(BATCH, device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for average, weight in zip(model.average.parameters(), model.net.parameters()):
                average.lerp_(weight, 0.001)


if __name__ == "__main__":
    main()
