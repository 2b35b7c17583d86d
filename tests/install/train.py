"""A script that needs PyTorch alone: convolution, normalization, attention and products, three steps."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 256, 16, 16), nn.BatchNorm2d(256)
        self.qkv, self.out = nn.Linear(256, 768), nn.Linear(256, 1000)

    def forward(self, images):
        x = self.norm(self.patches(images)).flatten(2).transpose(1, 2)
        q, k, v = (t.unflatten(-1, (4, 64)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2).mean(1))


model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(model(torch.randn(32, 3, 224, 224, device="cuda")), torch.zeros(32, dtype=torch.long, device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
stats = torch.cuda.memory_stats()
print("own counters:", *(stats[f"{c}_bytes.all.peak"] for c in ("requested", "allocated", "reserved")))
