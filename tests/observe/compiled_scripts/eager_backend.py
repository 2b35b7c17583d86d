"""backend="aot_eager": autograd's graphs without a compiler behind them."""
import common
import torch

model = common.GPT().cuda()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = compiled(*common.tokens())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
