"""A policy and its frozen reference, as in DPO: two modules of one class."""
import copy

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(512, 2048), nn.Linear(2048, 512)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


policy = Net().cuda()
reference = copy.deepcopy(policy).requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters())
for _ in range(2):
    x = torch.randn(64, 512, device="cuda")
    with torch.no_grad():
        wanted = reference(x)
    loss = ((policy(x) - wanted) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
