"""A user's script with torch.compile: python compiled_script.py MODEL SETUP. Prints PyTorch's requested peak of all steps but the first,
which may hold trials of the compiler."""
import contextlib
import sys

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(x)


class Language(nn.Module):
    """With its loss inside, as nanoGPT has it: what a compiler gains most from."""

    def __init__(self, words=1000, width=64, layers=2):
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(words, width), nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.stem(x).mean((2, 3)))


class Broken(nn.Module):
    """A graph break in the middle."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = torch.relu(self.a(x))
        torch._dynamo.graph_break()
        return self.b(torch.relu(x) + 1)


def language():
    return Language(), (torch.zeros(4, 64, dtype=torch.long), torch.zeros(4, 64, dtype=torch.long))


def images():
    return Images(), (torch.zeros(8, 3, 32, 32),)


def broken():
    return Broken(), (torch.zeros(16, 64),)


WORDS = {"dynamic": dict(dynamic=True), "autotune": dict(mode="max-autotune-no-cudagraphs", fullgraph=True)}  # setups that are keywords of torch.compile


def main(name, setup):
    model, host = globals()[name]()
    model.train(setup != "inference").to("cuda")
    compiled = torch.compile(model, **WORDS.get(setup, {}))
    x, y, output, loss = [None] * len(host), None, None, None
    labels = None if name == "language" else torch.zeros(host[0].shape[0], dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters()) if setup != "inference" else None
    half = torch.autocast("cuda", dtype=torch.bfloat16) if setup == "amp" else contextlib.nullcontext()
    for step in range(3):
        if step == 1:
            torch.cuda.reset_peak_memory_stats()
        for i, t in enumerate(host):
            x[i] = t.to("cuda")
        if optimizer is None:
            with torch.no_grad():
                output = compiled(*x)
            continue
        if labels is not None:
            y = labels.to("cuda")
        optimizer.zero_grad()
        with half:
            output = compiled(*x)
            loss = output if labels is None else F.cross_entropy(output, y)
        loss.backward()
        optimizer.step()
    print("later steps", torch.cuda.memory_stats()["requested_bytes.all.peak"])


if __name__ == "__main__":
    main(*sys.argv[1:])
