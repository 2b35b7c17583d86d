"""Mixed precision in fp16 with a GradScaler, gradients unscaled and clipped."""
import argparse

import torch
import torchvision

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=8)
p.add_argument("--optimizer", default="SGD")
a = p.parse_args()

model = torchvision.models.resnet18(num_classes=100).cuda()
words = dict(lr=0.1, momentum=0.9, nesterov=True) if a.optimizer == "SGD" else dict(lr=1e-3)
optimizer = getattr(torch.optim, a.optimizer)(model.parameters(), **words)
scaler = torch.amp.GradScaler("cuda")
for step in range(4):
    images, labels = torch.randn(a.batch, 3, 128, 128).cuda(), torch.randint(0, 100, (a.batch,)).cuda()
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        outputs = model(images)
        loss = torch.nn.functional.cross_entropy(outputs, labels, label_smoothing=0.1)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
