"""Two batch sizes: the second one makes PyTorch compile again with a batch that may be any."""
import common
import torch

model = common.GPT().cuda()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for batch in (8, 12, 10, 16):
    loss = compiled(*common.tokens(batch))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
