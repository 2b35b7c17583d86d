"""Sequences get longer, so the largest step is not among the first."""
import argparse

import torch
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=8)
a = p.parse_args()

model = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for length in (32, 32, 32, 48, 96, 40, 128, 64, 32):
    ids = torch.randint(0, 1000, (a.batch, length)).cuda()
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    print(nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).item())
