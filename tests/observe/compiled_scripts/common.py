"""What the scripts share: a small language model with its loss inside, and the counters that a script prints of itself."""
import atexit

import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS, LENGTH = 1003, 256


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self, layers=2, width=128, heads=4, words=WORDS):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids, targets=None):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return scores if targets is None else F.cross_entropy(scores.flatten(0, 1), targets.flatten())


def tokens(batch=16, length=LENGTH):
    """(ids, targets) on the device."""
    ids = torch.randint(0, WORDS, (batch, length + 1)).cuda()
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


@atexit.register
def print_counters():
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    print("own counters:", *(stats[f"{c}_bytes.all.peak"] for c in ("requested", "allocated", "reserved")), flush=True)
