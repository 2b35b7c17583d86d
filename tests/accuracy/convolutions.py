#!/usr/bin/env python3
"""Workspaces of random convolutions, asked of cuDNN and by the rules for it, against PyTorch on emulated cards.

    python tests/accuracy/convolutions.py --build build/release [--torch PYTHON] [--models 5] [--cards t4,…]

Each model has 25 convolutions of one to three dimensions: strided, dilated, grouped, depthwise, transposed, at sizes drawn by a fixed
seed. `memplan validate` runs each on the emulated card and compares a training step; errors are those of the peak, signed. Needs
memplan-torch and the emulated GPU (-DMEMPLAN_TORCH_PYTHON).
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import build_tree

CARDS = ("t4", "rtx3060-12gb", "l4", "a100-80gb", "h100-80gb", "rtx5090")
COUNTERS = ("requested", "allocated", "reserved")
COUNT = 25

EXPORT = r"""
import json, sys, torch
from torch import nn
class Many(nn.Module):
    def __init__(self, convolutions):
        super().__init__()
        self.convolutions = nn.ModuleList(convolutions)
    def forward(self, *inputs):
        return sum(c(x).mean() for c, x in zip(self.convolutions, inputs))
made, inputs = [], []
while len(made) < int(sys.argv[2]):
    drawn = json.loads(sys.stdin.readline())
    kind = getattr(nn, ("ConvTranspose" if drawn["transposed"] else "Conv") + f"{len(drawn['size'])}d")
    c = kind(drawn["in"], drawn["out"], tuple(drawn["kernel"]), stride=drawn["stride"], padding=drawn["padding"], dilation=drawn["dilation"],
             groups=drawn["groups"], bias=drawn["bias"], device="meta")
    x = torch.empty(drawn["batch"], drawn["in"], *drawn["size"], device="meta")
    try:
        c(x)
    except RuntimeError:
        continue  # the kernel is larger than the input
    made.append(c)
    inputs.append(x)
program = torch.export.export(Many(made), tuple(inputs))
program._example_inputs = None
torch.export.save(program, sys.argv[1])
"""


def drawn(r):
    """A convolution as the words of its constructor."""
    dimensions = r.choice((1, 2, 2, 2, 2, 2, 3))
    inputs, outputs = r.choice((3, 8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256)), r.choice((8, 16, 24, 32, 48, 64, 96, 128, 256))
    groups = r.choice((1, 1, 1, 1, 2, 4, 8, inputs))
    if groups == inputs:
        outputs = inputs * r.choice((1, 1, 2))
    elif inputs % groups or outputs % groups:
        groups = 1
    size = [r.randint(17, {1: 900, 2: 90, 3: 20}[dimensions]) for _ in range(dimensions)]
    kernel = [r.choice((1, 3, 3, 3, 5, 7))] * dimensions if r.random() < .8 else [r.choice((1, 2, 3, 5, 7)) for _ in range(dimensions)]
    return {"in": inputs, "out": outputs, "size": size, "kernel": kernel, "stride": r.choice((1, 1, 1, 2, 2, 3)), "padding": r.choice((0, 1, kernel[0] // 2)),
            "dilation": r.choice((1, 1, 1, 1, 2)), "groups": groups, "bias": r.random() < .3, "transposed": r.random() < .15, "batch": r.choice((1, 2, 3, 5, 8))}


def export(python, seed, path):
    r = random.Random(seed)
    words = "\n".join(json.dumps(drawn(r)) for _ in range(20 * COUNT))
    subprocess.run([python, "-c", EXPORT, path, str(COUNT)], input=words, text=True, check=True, stderr=subprocess.DEVNULL)


def compared(build, python, path, card, cudnn):
    """{counter: error in percent} of the peak."""
    done = subprocess.run([os.path.join(build, "memplan"), "validate", path, "--torch", "2.11", "--on", "emulated:" + card, "--cudnn", cudnn, "--format", "json"],
                          stdout=subprocess.PIPE, env={**os.environ, "MEMPLAN_PYTHON": python}, timeout=600)
    peak = json.loads(done.stdout)["peak"]
    return {c: 100 * (peak[c]["predicted_bytes"] - peak[c]["measured_bytes"]) / peak[c]["measured_bytes"] for c in COUNTERS}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/release")
    p.add_argument("--torch", help="Python with PyTorch (default: the one that the build was configured with)")
    p.add_argument("--models", type=int, default=5)
    p.add_argument("--cards", default=",".join(CARDS))
    a = p.parse_args()
    a.torch = a.torch or build_tree.cached(a.build, "MEMPLAN_TORCH_PYTHON")
    print("| card | asked: peaks exact in all counters | asked: reserved, worst | rules alone: requested, worst | rules alone: reserved, worst |\n|---|---|---|---|---|")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{seed}.pt2") for seed in range(a.models)]
        for seed, path in enumerate(paths):
            export(a.torch, seed, path)
        for card in a.cards.split(","):
            asked = [compared(a.build, a.torch, path, card, "auto") for path in paths]
            alone = [compared(a.build, a.torch, path, card, "none") for path in paths]
            worst = lambda rows, counter: max((r[counter] for r in rows), key=abs)
            exact = sum(not any(r.values()) for r in asked)
            wrong += exact < len(asked)
            print(f"| {card} | {exact} of {len(asked)} | {worst(asked, 'reserved'):+.2f} % | {worst(alone, 'requested'):+.1f} % | {worst(alone, 'reserved'):+.1f} % |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
