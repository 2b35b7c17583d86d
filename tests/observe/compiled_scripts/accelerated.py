"""Accelerate with dynamo_backend="inductor"."""
import accelerate
import common
import torch

accelerator = accelerate.Accelerator(mixed_precision="bf16", dynamo_backend="inductor")
model = common.GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randint(0, common.WORDS, (48, common.LENGTH)))
model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=16))
for (ids,) in loader:
    loss = model(ids, ids)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
