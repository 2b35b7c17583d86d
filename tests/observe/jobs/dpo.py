"""Direct preference optimization: a policy and its frozen reference, log probabilities of chosen and rejected answers."""
import argparse
import copy

import torch
import transformers as t

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=2)
p.add_argument("--amp", action="store_true")
a = p.parse_args()

config = t.GPT2Config(vocab_size=4000, n_embd=256, n_layer=3, n_head=4, n_positions=128)
policy = t.GPT2LMHeadModel(config).cuda()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5)


def log_probabilities(model, ids, mask):
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
    logps = torch.gather(logits.log_softmax(-1), 2, ids[:, 1:].unsqueeze(2)).squeeze(2)
    return (logps * mask[:, 1:]).sum(-1)


for step in range(4):
    chosen, rejected = (torch.randint(0, 4000, (a.batch, 96)) for _ in range(2))
    ids = torch.cat([chosen, rejected]).to("cuda")
    mask = torch.ones_like(ids)
    with torch.autocast("cuda", torch.bfloat16, enabled=a.amp):
        with torch.no_grad():
            ref = log_probabilities(reference, ids, mask)
        logp = log_probabilities(policy, ids, mask)
        difference = (logp - ref).view(2, a.batch)
        loss = -torch.nn.functional.logsigmoid(0.1 * (difference[0] - difference[1])).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
