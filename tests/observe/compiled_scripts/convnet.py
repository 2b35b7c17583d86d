"""A network of timm under bf16 autocast, in channels-last order, with an average of its weights."""
import common  # noqa: F401
import timm
import timm.utils
import torch

model = timm.create_model("resnet10t", num_classes=10).cuda().to(memory_format=torch.channels_last)
average = timm.utils.ModelEmaV3(model, decay=0.99)
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    x, y = torch.randn(4, 3, 64, 64).cuda().to(memory_format=torch.channels_last), torch.randint(0, 10, (4,)).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(compiled(x), y, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update(model)
