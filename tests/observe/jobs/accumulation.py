"""Gradients of several micro-batches, a scheduler, a running loss on the device."""
import argparse

import torch
import transformers as t

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=4)
p.add_argument("--accumulate", type=int, default=4)
p.add_argument("--amp", action="store_true")
a = p.parse_args()

model = t.BertForSequenceClassification(t.BertConfig(vocab_size=4000, hidden_size=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
scheduler = t.get_linear_schedule_with_warmup(optimizer, 1, 10)
running = torch.zeros((), device="cuda")
for step in range(4 * a.accumulate):
    batch = dict(input_ids=torch.randint(0, 4000, (a.batch, 64)), attention_mask=torch.ones(a.batch, 64, dtype=torch.long), labels=torch.randint(0, 2, (a.batch,)))
    batch = {k: v.to("cuda") for k, v in batch.items()}
    with torch.autocast("cuda", torch.bfloat16, enabled=a.amp):
        loss = model(**batch).loss / a.accumulate
    loss.backward()
    running += loss.detach()
    if (step + 1) % a.accumulate == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
