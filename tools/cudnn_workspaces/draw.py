"""Random convolutions to ask cuDNN about, as lines of numbers that emulated_gpu/cudnn_convolutions.cpp takes.

    python draw.py SEED COUNT DIMENSIONS > questions        DIMENSIONS: 1, 2 or 3; those of one are images of height 1
    python draw.py SEED COUNT near [0] > questions          those of data/cudnn/workspaces.txt on other images; 0: none has its channels last

Each is asked for one pass, type and layout, half of them in float32. data/cudnn/rules.txt was learnt from 1,500,000 of seed 201 with two
dimensions, 300,000 of seed 202 with one (in the same file), 300,000 of seed 203 with three; for the T4, RTX 3060, L4 and H100 from 1,000,000 more of
seed 301 with two dimensions, for the H100 from 1,000,000 of seed 302 and 300,000 of seed 303 with three as well; and from 2,000,000 near the table:
400,000 each of seeds 401 to 404, and of seed 405 with no channels last.
"""
import math
import os
import random
import sys

CHANNELS = [1, 3, 4, 8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 240, 256, 320, 384, 480, 512, 640, 768, 1024, 1280, 2048]
IMAGES = [1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224, 256, 512]
BATCHES = [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
MOST_ELEMENTS, MOST_WEIGHTS = 2**31, 2**28  # more fits on no card


def log_uniform(r, octaves):
    return round(2 ** r.uniform(0, octaves))


def side(r, most):
    return r.choice(IMAGES) if r.random() < .4 else log_uniform(r, math.log2(most))


def channels(r):
    u = r.random()
    if u < .4:
        return r.choice(CHANNELS)
    return 8 * max(1, log_uniform(r, 8)) if u < .65 else r.randint(1, 1024) if u < .85 else max(1, log_uniform(r, 11))


def grouping(r, c, k):
    u = r.random()
    if u < .12:
        return c, c * r.choice([1, 1, 1, 1, 2]), c
    if u >= .27:
        return c, k, 1
    g = r.choice([2, 3, 4, 8, 16, 32, 64])
    if c % g or k % g:
        c, k = g * max(1, c // g), g * max(1, k // g)
    return c, k, g


def strides(r, rank, kernel):
    u = r.random()
    return [1] * rank if u < .6 else [2] * rank if u < .8 else [kernel] * rank if u < .87 else [r.choice([1, 2, 3, 4]) for _ in range(rank)]


def kernels(r, rank):
    size = r.choice([1, 1, 1, 2, 3, 3, 3, 3, 3, 4, 5, 5, 7, 7, 9, 11]) if r.random() < .95 else r.randint(1, 16)
    return size, [size] * rank if r.random() < .85 else [r.choice([1, 2, 3, 5, 7]) for _ in range(rank)]


def usual(r, rank):
    """Kernels, padding, strides and dilation as most models have them."""
    size = r.choice([1, 1, 1, 3, 3, 3, 3, 3, 5, 7])
    stride = r.choice([1, 1, 1, 2]) if size > 1 else r.choice([1, 1, 1, 1, 2])
    return [size] * rank, [size // 2] * rank, [stride] * rank, [1] * rank


def one(r, dimensions):
    """A convolution's sizes, or None where it is none or fits on no card."""
    c, k = channels(r), channels(r)
    c, k, g = grouping(r, c, k)
    rank, most = max(dimensions, 2), {1: 16384, 2: 1024, 3: 128}[dimensions]
    image = [side(r, most)] * rank if r.random() < .75 or dimensions == 1 else [side(r, most) for _ in range(rank)]
    size, kernel = kernels(r, rank)
    if dimensions == 3 and size > 7:
        return None
    stride = strides(r, rank, size)
    dilation = [1] * rank if r.random() < .87 else [r.choice([2, 2, 3, 4, 6, 12, 18])] * rank
    u = r.random()
    pad = [d * (s - 1) // 2 for d, s in zip(dilation, kernel)] if u < .65 else [0] * rank if u < .85 else [min(s - 1, r.choice([0, 1, 2, 3])) for s in kernel]
    if r.random() < .3:
        kernel, pad, stride, dilation = usual(r, rank)
    if dimensions == 1:
        image[0] = kernel[0] = stride[0] = dilation[0] = 1
        pad[0] = 0
    out = [(i + 2 * p - d * (s - 1) - 1) // t + 1 for i, p, d, s, t in zip(image, pad, dilation, kernel, stride)]
    if any(o < 1 or i + 2 * p < d * (s - 1) + 1 for o, i, p, d, s in zip(out, image, pad, dilation, kernel)):
        return None
    n = r.choice(BATCHES) if r.random() < .65 else log_uniform(r, 9)
    if max(n * c * math.prod(image), n * k * math.prod(out)) > MOST_ELEMENTS or k * c // g * math.prod(kernel) > MOST_WEIGHTS:
        return None
    return [rank, n, c, *image, k, *kernel, *pad, *stride, *dilation, g]


def near(r, table):
    """One of the table's (C H W K R S, padding, stride, dilation, groups) on another image, a quarter of them with other channels."""
    c, h, w, k, *rest = r.choice(table)
    high = 2 ** r.uniform(-1.5, .8)
    wide = high if r.random() < .8 else 2 ** r.uniform(-1.5, .8)
    image = [max(1, round(h * high)), max(1, round(w * wide))]
    kernel, pad, stride, dilation = (rest[i:i + 2] for i in (0, 2, 4, 6))
    if r.random() < .25 and rest[8] == 1:
        factor = r.choice((.5, .75, 1.25, 1.5, 2))
        c = max(8, round(c * factor / 8) * 8) if c > 4 else c
        factor = r.choice((.5, .75, 1, 1, 1.25, 1.5, 2))
        k = max(8, round(k * factor / 8) * 8) if k > 4 else k
    if not all(i + 2 * p > d * (s - 1) for i, p, d, s in zip(image, pad, dilation, kernel)):
        return None
    n = r.choice((1, 2, 4, 8, 16, 32, 64)) if r.random() < .3 else r.randint(1, 32) if r.random() < .8 else r.randint(1, 256)
    if n * max(c, k) * math.prod(image) >= MOST_ELEMENTS:
        return None
    return [2, n, c, *image, k, *kernel, *pad, *stride, *dilation, rest[8]]


def main():
    seed, count = map(int, sys.argv[1:3])
    table = []
    if sys.argv[3] == "near":
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data", "cudnn", "workspaces.txt")) as f:
            table = [[int(n) for n in line.split("|")[0].split()[1:]] for line in f if line.startswith("90 ")]
    r, made = random.Random(seed), 0
    while made < count:
        numbers = near(r, table) if table else one(r, int(sys.argv[3]))
        if not numbers:
            continue
        made += 1
        op, dtype, layout = r.randrange(3), r.choice((0, 0, 2, 9)), r.randrange(2)
        print(op, dtype, layout if len(sys.argv) < 5 else int(sys.argv[4]), 0, *numbers)


if __name__ == "__main__":
    main()
