"""mode="reduce-overhead" in inference, for two batch sizes: one CUDA graph for each."""
import common
import torch

model = common.GPT().cuda().eval()
compiled = torch.compile(model, mode="reduce-overhead", dynamic=False)
with torch.inference_mode():
    for batch in (8, 8, 8, 16, 16, 16, 8):
        scores = compiled(common.tokens(batch)[0]).clone()
