"""Two losses of one encoder: added, or each with a backward pass of its own."""
import argparse

import torch
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=64)
p.add_argument("--apart", action="store_true")
a = p.parse_args()

encoder = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 128)).cuda()
decoder = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 784), nn.Sigmoid()).cuda()
classifier = nn.Linear(128, 10).cuda()
optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters(), *classifier.parameters()])
for step in range(4):
    x, y = torch.rand(a.batch, 784).cuda(), torch.randint(0, 10, (a.batch,)).cuda()
    z = encoder(x)
    restored, told = nn.functional.binary_cross_entropy(decoder(z), x), nn.functional.cross_entropy(classifier(z), y)
    optimizer.zero_grad()
    if a.apart:
        restored.backward(retain_graph=True)
        told.backward()
    else:
        (restored + told).backward()
    optimizer.step()
