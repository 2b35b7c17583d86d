"""fp16 autocast with a GradScaler, unscaling and clipping."""
import common
import torch

model = common.GPT().cuda()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for _ in range(3):
    ids, targets = common.tokens()
    with torch.autocast("cuda", torch.float16):
        loss = compiled(ids, targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
