"""All of the model in bfloat16, its state too; a fused optimizer."""
import argparse

import torch
import transformers as t

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=4)
p.add_argument("--checkpoint", action="store_true")
a = p.parse_args()

config = t.Qwen2Config(vocab_size=4000, hidden_size=256, intermediate_size=688, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2)
model = t.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).cuda().train()
if a.checkpoint:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(4):
    ids = torch.randint(0, 4000, (a.batch, 96)).cuda()
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
