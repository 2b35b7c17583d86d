"""The loop of PyTorch's tutorials: gradients go between the forward and the backward pass."""
import argparse

import torch
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=64)
p.add_argument("--optimizer", default="SGD")
p.add_argument("--amp", action="store_true")
a = p.parse_args()

model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
                      nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 16 * 16, 256), nn.ReLU(), nn.Linear(256, 10)).to("cuda")
loss_fn = nn.CrossEntropyLoss()
words = dict(lr=1e-3, momentum=0.9) if a.optimizer == "SGD" else dict(lr=1e-3)
optimizer = getattr(torch.optim, a.optimizer)(model.parameters(), **words)
data = [(torch.randn(a.batch, 3, 64, 64), torch.randint(0, 10, (a.batch,))) for _ in range(4)]
for batch, (X, y) in enumerate(data):
    X, y = X.to("cuda"), y.to("cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=a.amp):
        pred = model(X)
        loss = loss_fn(pred, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(batch, loss.item())
