"""An alignment engineer: DPO with a frozen reference model. python dpo.py CHECKPOINT"""
import copy
import os
import sys

import torch
import torch.nn.functional as F
import transformers

PAIRS, TOKENS = 2, 512


class Preference(torch.nn.Module):
    """The loss of a batch: chosen answers in its first half, rejected ones in the second."""

    def __init__(self, policy):
        super().__init__()
        self.policy, self.reference = policy, copy.deepcopy(policy).requires_grad_(False)

    @staticmethod
    def score(model, ids):
        logits = model(input_ids=ids).logits[:, :-1].float()
        return torch.gather(logits.log_softmax(-1), 2, ids[:, 1:, None]).squeeze(2).sum(1)

    def forward(self, ids):
        with torch.no_grad():
            before = self.score(self.reference, ids)
        gain = self.score(self.policy, ids) - before
        chosen, rejected = gain.chunk(2)
        return -F.logsigmoid(0.1 * (chosen - rejected)).mean()


def make():
    config = transformers.AutoConfig.from_pretrained(os.environ.get("CHECKPOINT") or sys.argv[1])
    config.use_cache = False
    return Preference(transformers.AutoModelForCausalLM.from_config(config)).train()


def make_step():
    """For memplan: the module, and its arguments."""
    return make(), torch.zeros(2 * PAIRS, TOKENS, dtype=torch.long)


def main():
    step = make().cuda()
    optimizer = torch.optim.AdamW(step.policy.parameters(), lr=1e-6)
    for _ in range(3):
        ids = torch.randint(0, 1000, (2 * PAIRS, TOKENS)).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = step(ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
