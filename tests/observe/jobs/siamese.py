"""One encoder for anchors, positives and negatives."""
import argparse

import torch
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=16)
p.add_argument("--amp", action="store_true")
a = p.parse_args()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolutions = nn.Sequential(nn.Conv1d(1, 64, 7, 2, 3), nn.BatchNorm1d(64), nn.ELU(), nn.Conv1d(64, 128, 5, 2, 2), nn.BatchNorm1d(128), nn.ELU())
        self.out = nn.Linear(128, 64)

    def forward(self, x):
        return nn.functional.normalize(self.out(self.convolutions(x).amax(-1)), dim=-1)


model = Encoder().cuda()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
criterion = nn.TripletMarginLoss()
for step in range(4):
    anchor, positive, negative = (torch.randn(a.batch, 1, 512).cuda() for _ in range(3))
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=a.amp):
        loss = criterion(model(anchor), model(positive), model(negative))
    loss.backward()
    optimizer.step()
