"""The optimizer's step is compiled, too, with a learning rate that changes."""
import common
import torch

model = common.GPT().cuda()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3))


@torch.compile
def step():
    optimizer.step()


scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=3)
for _ in range(3):
    loss = compiled(*common.tokens())
    loss.backward()
    step()
    scheduler.step()
    optimizer.zero_grad()
