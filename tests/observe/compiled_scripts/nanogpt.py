"""A GPT with its loss inside, a loop as nanoGPT has it: fused AdamW, micro-batches, clipping."""
import common
import torch

model = common.GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
compiled = torch.compile(model)
for step in range(3):
    for group in optimizer.param_groups:
        group["lr"] = 6e-4 * (step + 1) / 3
    for _ in range(2):
        ids, targets = common.tokens()
        with torch.amp.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(ids, targets) / 2
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"step {step}: {loss.item():.3f}")
