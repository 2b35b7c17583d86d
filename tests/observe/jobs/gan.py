"""A generator and a discriminator, each with its optimizer."""
import argparse

import torch
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=64)
a = p.parse_args()

G = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh()).cuda()
D = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)).cuda()
opt_g, opt_d = torch.optim.Adam(G.parameters(), 2e-4), torch.optim.Adam(D.parameters(), 2e-4)
loss_fn = nn.BCEWithLogitsLoss()
for step in range(4):
    real, ones, zeros = torch.rand(a.batch, 784).cuda(), torch.ones(a.batch, 1, device="cuda"), torch.zeros(a.batch, 1, device="cuda")
    fake = G(torch.randn(a.batch, 64, device="cuda"))
    opt_d.zero_grad()
    (loss_fn(D(real), ones) + loss_fn(D(fake.detach()), zeros)).backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_fn(D(fake), ones).backward()
    opt_g.step()
