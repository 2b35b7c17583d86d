"""torchvision's ResNet, in fp32, with SGD."""
import common  # noqa: F401
import torch
import torchvision

model = torchvision.models.resnet18(num_classes=10).cuda()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for _ in range(3):
    x, y = torch.randn(4, 3, 64, 64).cuda(), torch.randint(0, 10, (4,)).cuda()
    loss = torch.nn.functional.cross_entropy(compiled(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
