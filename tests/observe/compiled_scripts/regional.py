"""Every block compiled by itself, as large models do to save compile time."""
import common
import torch

model = common.GPT(layers=4).cuda()
for block in model.blocks:
    block.compile(fullgraph=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = model(*common.tokens())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
