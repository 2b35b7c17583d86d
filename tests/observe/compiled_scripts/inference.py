"""Inference under no_grad, weights in bf16."""
import common
import torch

model = common.GPT().cuda().to(torch.bfloat16).eval()
compiled = torch.compile(model)
with torch.no_grad():
    for _ in range(3):
        best = compiled(common.tokens()[0]).argmax(-1)
