"""mark_dynamic and dynamic=True: one graph for all lengths."""
import common
import torch

model = common.GPT().cuda()
compiled = torch.compile(model, dynamic=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for length in (192, 320, 256):
    ids, targets = common.tokens(16, length)
    for t in (ids, targets):
        torch._dynamo.mark_dynamic(t, 1)
    loss = compiled(ids, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
