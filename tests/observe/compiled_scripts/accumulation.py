"""Four micro-batches for one step."""
import common
import torch

model = common.GPT().cuda()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(3):
    optimizer.zero_grad()
    for _ in range(4):
        (compiled(*common.tokens(4)) / 4).backward()
    optimizer.step()
