"""activation_memory_budget: the compiler recomputes what it can to keep half of what it would."""
import common
import torch
import torch._functorch.config

torch._functorch.config.activation_memory_budget = 0.5
model = common.GPT().cuda()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = compiled(*common.tokens())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
