"""mode="max-autotune-no-cudagraphs": the compiler measures kernels against each other."""
import common
import torch

model = common.GPT().cuda()
compiled = torch.compile(model, mode="max-autotune-no-cudagraphs")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    with torch.autocast("cuda", torch.bfloat16):
        loss = compiled(*common.tokens())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
