"""A denoiser: times and noise are drawn on the device, in the model there are skip connections and an embedding of time."""
import argparse
import math

import torch
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=8)
p.add_argument("--amp", action="store_true")
p.add_argument("--optimizer", default="AdamW")
a = p.parse_args()


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.c1, self.c2, self.time, self.skip = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1), nn.Linear(128, o), nn.Conv2d(i, o, 1)
        self.n1, self.n2 = nn.GroupNorm(8, i), nn.GroupNorm(8, o)

    def forward(self, x, t):
        h = self.c1(nn.functional.silu(self.n1(x))) + self.time(nn.functional.silu(t))[:, :, None, None]
        return self.c2(nn.functional.silu(self.n2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.out = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
        self.down = nn.ModuleList([Block(32, 64), Block(64, 128)])
        self.middle = Block(128, 128)
        self.up = nn.ModuleList([Block(256, 64), Block(128, 32)])

    def forward(self, x, t):
        frequencies = torch.exp(-math.log(10000) * torch.arange(64, device=x.device) / 64)
        t = t[:, None].float() * frequencies[None]
        t = torch.cat([t.sin(), t.cos()], -1)
        x, skips = self.stem(x), []
        for block in self.down:
            x = block(x, t)
            skips.append(x)
            x = nn.functional.avg_pool2d(x, 2)
        x = self.middle(x, t)
        for block in self.up:
            x = block(torch.cat([nn.functional.interpolate(x, scale_factor=2), skips.pop()], 1), t)
        return self.out(x)


model = UNet().cuda()
optimizer = getattr(torch.optim, a.optimizer)(model.parameters(), lr=2e-4)
alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device="cuda"), 0)
for step in range(4):
    x = torch.randn(a.batch, 3, 32, 32).cuda()
    t = torch.randint(0, 1000, (a.batch,), device="cuda")
    noise = torch.randn_like(x)
    scale = alphas[t][:, None, None, None]
    with torch.autocast("cuda", torch.bfloat16, enabled=a.amp):
        loss = nn.functional.mse_loss(model(scale.sqrt() * x + (1 - scale).sqrt() * noise, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
