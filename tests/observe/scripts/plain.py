"""A training script as people write them: a Hugging Face model, AdamW, autocast, a data loader. Nothing in it knows of memplan."""
import argparse

import torch
import transformers
from torch.utils.data import DataLoader, TensorDataset

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=4)
p.add_argument("--layers", type=int, default=4)
p.add_argument("--steps", type=int, default=4)
a = p.parse_args()

config = transformers.GPT2Config(n_layer=a.layers, use_cache=False)
model = transformers.GPT2LMHeadModel(config).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
ids = torch.randint(0, config.vocab_size, (a.batch * a.steps, 256))
for step, (batch,) in enumerate(DataLoader(TensorDataset(ids), batch_size=a.batch, shuffle=True)):
    batch = batch.to("cuda", non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3f}")
    if loss.isnan():
        raise RuntimeError("the loss is not a number")
stats = torch.cuda.memory_stats()
print("own counters:", *(stats[f"{c}_bytes.all.peak"] for c in ("requested", "allocated", "reserved")))
