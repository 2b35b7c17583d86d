"""A small transformer under torch.compile, in one of several ways: whole, break, blocks, dynamic, overhead, checkpoint."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

HOW = sys.argv[1]
WORDS, WIDTH = 1003, 128  # no multiple of 8: PyTorch would measure whether to pad the last product


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width))
        if HOW == "break":
            torch._dynamo.graph_break()
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.blocks, self.head = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Block() for _ in range(2)), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if HOW == "checkpoint" else block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


model = Net().cuda()
if HOW == "blocks":
    for block in model.blocks:
        block.compile()
    step = model
else:
    step = torch.compile(model, **{"dynamic": dict(dynamic=True), "overhead": dict(mode="reduce-overhead"), "whole": dict(fullgraph=True)}.get(HOW, {}))
optimizer = torch.optim.AdamW(model.parameters())
for i in range(5 if HOW == "overhead" else 3):
    ids = torch.randint(0, WORDS, (4, 128 + (64 * i if HOW == "dynamic" else 0)), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = step(ids)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
print("own counters:", *(stats[f"{c}_bytes.all.peak"] for c in ("requested", "allocated", "reserved")))
