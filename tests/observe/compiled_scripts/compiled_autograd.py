"""Compiled autograd: the whole backward pass is one graph."""
import common
import torch

torch._dynamo.config.compiled_autograd = True
model = common.GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


@torch.compile
def train(ids, targets):
    loss = model(ids, targets)
    loss.backward()
    return loss


for _ in range(3):
    train(*common.tokens())
    optimizer.step()
    optimizer.zero_grad()
