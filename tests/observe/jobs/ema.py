"""An exponential moving average of the weights on the device, updated after each step."""
import argparse
import copy

import torch
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=32)
p.add_argument("--amp", action="store_true")
p.add_argument("--optimizer", default="AdamW")
a = p.parse_args()

model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 64)).cuda()
ema = copy.deepcopy(model).requires_grad_(False)
optimizer = getattr(torch.optim, a.optimizer)(model.parameters(), lr=1e-3)
for step in range(4):
    x, y = torch.randn(a.batch, 512).cuda(), torch.randn(a.batch, 64).cuda()
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=a.amp):
        loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for e, w in zip(ema.parameters(), model.parameters()):
            e.lerp_(w, 0.01)
