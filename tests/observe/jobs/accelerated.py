"""Accelerate: prepare, accumulate, backward, clipping."""
import argparse

import accelerate
import torch
import transformers as t

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=4)
p.add_argument("--precision", default="bf16")
a = p.parse_args()

accelerator = accelerate.Accelerator(mixed_precision=a.precision)
model = t.ViTForImageClassification(t.ViTConfig(hidden_size=192, num_hidden_layers=4, num_attention_heads=3, intermediate_size=768, image_size=96, patch_size=16, num_labels=10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(6 * a.batch, 3, 96, 96), torch.randint(0, 10, (6 * a.batch,)))
loader = torch.utils.data.DataLoader(data, batch_size=a.batch)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for pixels, labels in loader:
    loss = model(pixel_values=pixels, labels=labels).loss
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
