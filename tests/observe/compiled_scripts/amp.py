"""bf16 autocast outside of the compiled module, the loss outside, too."""
import common
import torch

model = common.GPT().cuda()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    ids, targets = common.tokens()
    with torch.autocast("cuda", torch.bfloat16):
        scores = compiled(ids)
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
