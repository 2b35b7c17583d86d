"""A frozen backbone, in evaluation mode, under a head that is trained."""
import argparse

import torch
import torchvision
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=16)
p.add_argument("--optimizer", default="Adam")
a = p.parse_args()

backbone = torchvision.models.resnet18()
features, backbone.fc = backbone.fc.in_features, nn.Identity()
backbone = backbone.requires_grad_(False).eval()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = backbone, nn.Sequential(nn.Linear(features, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 37))

    def forward(self, x):
        with torch.no_grad():
            x = self.backbone(x)
        return self.head(x)


model = Classifier().cuda()
optimizer = getattr(torch.optim, a.optimizer)([w for w in model.parameters() if w.requires_grad], lr=1e-3)
for step in range(4):
    x, y = torch.randn(a.batch, 3, 96, 96).cuda(), torch.randint(0, 37, (a.batch,)).cuda()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
