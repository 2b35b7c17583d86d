#!/usr/bin/env python3
"""Rules for workspaces of convolutions (data/cudnn/rules.txt) against cuDNN itself, on random convolutions.

    python tests/accuracy/workspaces.py --build build/release [--torch PYTHON] [--count 20000] [--cards t4,…] [--seed 7] [--near]

The convolutions are drawn by other distributions than those that the rules were learnt from (tools/cudnn_workspaces/draw.py), and none is in the table.
With --near they are those of the table at other image sizes (0.4 to 1.4 times) and batches (1 to 24). Each is asked once, for one pass, type and
layout. Needs the emulated GPU's library and conv_workspaces (cmake --build … --target conv_workspaces).
"""
import argparse
import collections
import glob
import math
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import build_tree

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
CARDS = {"t4": 75, "a100": 80, "rtx3060-12gb": 86, "l4": 89, "h100": 90, "b200": 100, "rtx5090": 120}
PASSES = ("forward", "data gradient", "weight gradient")
MOST = 2**31  # elements of a tensor


def drawn(r):
    """Numbers of a question (emulated_gpu/cudnn_convolutions.cpp) without pass, type and layout."""
    while True:
        dimensions = r.choice((1, 2, 2, 2, 2, 2, 3))
        rank = max(dimensions, 2)
        odd = r.random() < .5
        channels = lambda: r.randint(1, 700) if odd else 16 * r.randint(1, 64)
        c, k, kind = channels(), channels(), r.random()
        groups = 1
        if kind < .1:
            groups, k = c, c * r.choice((1, 1, 2))
        elif kind < .2:
            groups = r.choice((2, 3, 4, 6, 8, 12, 16, 32))
            c, k = groups * r.randint(1, 64), groups * r.randint(1, 64)
        side = r.randint(5, {1: 4000, 2: 300, 3: 48}[dimensions])
        image = [max(1, side + (r.randint(-4, 60) if r.random() < .3 else 0)) for _ in range(rank)]
        kernel = [r.choice((1, 1, 2, 3, 3, 3, 3, 4, 5, 7, 9))] * rank
        if r.random() < .15:
            kernel = [r.choice((1, 3, 5, 7)) for _ in range(rank)]
        stride = [r.choice((1, 1, 1, 2, 2, 3, 4))] * rank
        dilation = [r.choice((1,) * 8 + (2, 3, 6))] * rank
        padding = [d * (s // 2) if r.random() < .7 else 0 for d, s in zip(dilation, kernel)]
        if dimensions == 1:
            image[0] = kernel[0] = stride[0] = dilation[0] = 1
            padding[0] = 0
        out = [(i + 2 * p - d * (s - 1) - 1) // t + 1 for i, p, d, s, t in zip(image, padding, dilation, kernel, stride)]
        if any(i + 2 * p < d * (s - 1) + 1 for i, p, d, s in zip(image, padding, dilation, kernel)):
            continue
        batch = r.randint(1, 12) if r.random() < .4 else round(math.exp(r.uniform(0, math.log(400))))
        if max(batch * c * math.prod(image), batch * k * math.prod(out)) < MOST:
            return [rank, batch, c, *image, k, *kernel, *padding, *stride, *dilation, groups]


def near(r, table):
    """One of the table's (C H W K R S, padding, stride, dilation, groups) on another image."""
    while True:
        c, h, w, k, *rest = r.choice(table)
        factor = r.uniform(.4, 1.4)
        image = [max(1, round(side * factor)) for side in (h, w)]
        kernel, padding, stride, dilation = (rest[i:i + 2] for i in (0, 2, 4, 6))
        if image != [h, w] and all(i + 2 * p > d * (s - 1) for i, p, d, s in zip(image, padding, dilation, kernel)):
            return [2, r.randint(1, 24), c, *image, k, *rest]


def questions(seed, count, of_table):
    r = random.Random(seed)
    table = []
    if of_table:
        with open(os.path.join(ROOT, "data", "cudnn", "workspaces.txt")) as f:
            table = [[int(n) for n in line.split("|")[0].split()[1:]] for line in f if line.startswith("90 ")]
    out = []
    for _ in range(count):
        shape = near(r, table) if of_table else drawn(r)
        out.append([r.randrange(3), r.choice((0, 2, 9)), r.randrange(2), 0, *shape])
    return out


def asked(a, card, lines):
    """cuDNN's own answers."""
    nvidia = glob.glob(os.path.join(os.path.dirname(os.path.dirname(a.torch)), "lib", "python3*", "site-packages", "nvidia"))[0]
    cudnn = glob.glob(os.path.join(nvidia, "cudnn", "lib", "libcudnn.so.9"))[0]
    libraries = os.pathsep.join([os.path.dirname(cudnn), *glob.glob(os.path.join(nvidia, "cu1?", "lib"))])
    env = {**os.environ, "LD_PRELOAD": os.path.abspath(a.emulated), "EMULATED_GPU": card, "LD_LIBRARY_PATH": libraries}
    done = subprocess.run([a.torch, "-I", os.path.join(ROOT, "estimators", "cudnn", "ask.py"), cudnn], input=lines, stdout=subprocess.PIPE, text=True, env=env, check=True)
    version, *answers = done.stdout.split("\n")
    if version.startswith("no:"):
        sys.exit(version)
    return [int(v) for v in answers if v]


def compared(said, truth):
    """Exact, range holds, the width of the range in bytes; none where a table has it or cuDNN has no engine."""
    if truth < 0 or said.endswith("table"):
        return None
    usual, least, most = map(int, said.split())
    return usual == truth, least <= truth <= most, most - least


def group_names(q, card):
    """The rows of the printed table that a question counts in."""
    flat = q[4] == 2 and q[7] == 1 and q[10] == 1
    yield card
    yield "float32" if q[1] == 0 else "half types"
    yield "1-d" if flat else f"{q[4]}-d"
    yield "channels last" if q[2] else "contiguous"
    yield "depthwise" if 1 < q[-1] == q[6] else "grouped" if q[-1] > 1 else "groups 1"


def row_of(name, rows):
    share = lambda values: f"{100 * sum(values) / len(values):.1f} %" if values else "-"
    inexact = [r for _, r in rows if not r[0]]
    widths = sorted(r[2] for r in inexact)
    passes = [share([r[0] for op, r in rows if op == number]) for number in range(len(PASSES))]
    cells = [name, str(len(rows)), share([r[0] for _, r in rows]), *passes, share([r[1] for _, r in rows]), share([r[1] for r in inexact]),
             f"{widths[len(widths) // 2] / 2**20 if widths else 0:.0f} MiB"]
    return "| " + " | ".join(cells) + " |"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/release")
    p.add_argument("--torch", help="Python with PyTorch (default: the one that the build was configured with)")
    p.add_argument("--emulated", help="libemulated_gpu.so (default: that of the build)")
    p.add_argument("--count", type=int, default=20000)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--near", action="store_true", help="convolutions of the table on other images")
    p.add_argument("--cards", default=",".join(CARDS))
    a = p.parse_args()
    a.torch = a.torch or build_tree.cached(a.build, "MEMPLAN_TORCH_PYTHON")
    a.emulated = a.emulated or os.path.join(a.build, "emulated_gpu", "libemulated_gpu.so")
    asked_for = questions(a.seed, a.count, a.near)
    lines = "".join(" ".join(map(str, q)) + "\n" for q in asked_for)
    found = collections.defaultdict(list)
    for card in a.cards.split(","):
        ours = subprocess.run([os.path.join(a.build, "tests", "conv_workspaces")], input="".join(f"{CARDS[card]} {line}\n" for line in lines.splitlines()),
                              stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        for q, said, truth in zip(asked_for, ours, asked(a, card, lines)):
            result = compared(said, truth)
            if result and not (q[1] == 9 and CARDS[card] < 80):  # PyTorch does not ask cuDNN there
                for name in group_names(q, card):
                    found[name].append((q[0], result))
    print("| convolutions | n | exact | " + " | ".join(f"exact: {name}" for name in PASSES) + " | range holds | of those not exact | their range, median |")
    print("|" + "---|" * 9)
    for name in sorted(found, key=lambda name: list(CARDS).index(name) if name in CARDS else len(CARDS)):
        print(row_of(name, found[name]))


if __name__ == "__main__":
    main()
