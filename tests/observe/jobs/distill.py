"""A student learns a teacher's outputs, which are computed without gradients."""
import argparse

import torch
import torchvision
from torch.nn import functional as F

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=8)
p.add_argument("--optimizer", default="SGD")
a = p.parse_args()

teacher = torchvision.models.resnet34(num_classes=50).cuda().eval()
student = torchvision.models.resnet18(num_classes=50).cuda()
optimizer = getattr(torch.optim, a.optimizer)(student.parameters(), lr=0.01)
for step in range(4):
    images, labels = torch.randn(a.batch, 3, 96, 96).cuda(), torch.randint(0, 50, (a.batch,)).cuda()
    with torch.no_grad():
        wanted = teacher(images)
    told = student(images)
    loss = F.kl_div(F.log_softmax(told / 4, -1), F.softmax(wanted / 4, -1), reduction="batchmean") * 16 + F.cross_entropy(told, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
