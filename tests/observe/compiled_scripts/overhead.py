"""mode="reduce-overhead": passes are recorded as CUDA graphs, whose memory lies in pools of their own."""
import common
import torch

model = common.GPT().cuda()
compiled = torch.compile(model, mode="reduce-overhead")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(6):
    ids, targets = common.tokens()
    torch.compiler.cudagraph_mark_step_begin()
    with torch.autocast("cuda", torch.bfloat16):
        loss = compiled(ids, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
