"""The programs once more with tensors that are laid out otherwise: what kernels copy, and how their results lie, goes by strides.

A model's tensors are transposed, cut and permuted; the families have few of those. Each of a program's first three tensors is in turn
turned (its last two dimensions change places in memory), swapped (the first two do), cut from a longer one, and cut from a
channels_last one that is three times as wide. float32 alone, on one card with the base version.
"""
import json
import os
import re

DEVICE = "h100"


def are_for(device, name):
    """Whether a program is recorded and compared there: those of this file on one card alone."""
    return device == DEVICE or not re.search(r" \(\w+ (?:turned|swapped|cut(?: from channels_last)?)\)$", name)


def known_differences():
    """Programs of this file whose copies are not PyTorch's yet; each must differ."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "layout_differences.txt")) as f:
        return {line.strip() for line in f if line.strip() and not line.startswith("#")}


def contiguous(sizes):
    strides, step = [0] * len(sizes), 1
    for i in reversed(range(len(sizes))):
        strides[i], step = step, step * max(1, sizes[i])
    return strides


def layouts(sizes):
    """{word: strides} of a tensor with at least two dimensions."""
    if sizes[-1] > 1 and sizes[-2] > 1:
        *rest, a, b = contiguous([*sizes[:-2], sizes[-1], sizes[-2]])
        yield "turned", [*rest, b, a]
    if len(sizes) > 2 and sizes[0] > 1:
        a, b, *rest = contiguous([sizes[1], sizes[0], *sizes[2:]])
        yield "swapped", [b, a, *rest]
    yield "cut", contiguous([*sizes[:-1], sizes[-1] + 8])
    if len(sizes) == 4 and sizes[1] > 1:
        _, c, h, w = sizes
        yield "cut from channels_last", [h * w * c * 3, 1, w * c * 3, c * 3]


def variants(programs):
    for program in programs:
        if "float32" not in program["name"] or program.get("autocast"):
            continue
        for at, value in enumerate(program["values"][:3]):
            if value.get("strides") or value.get("host") or len(value["sizes"]) < 2 or not value["dtype"].startswith("float"):
                continue
            for word, strides in layouts(value["sizes"]):
                other = json.loads(json.dumps(program))
                other["values"][at]["strides"] = strides
                other["name"] += f" ({value['name']} {word})"
                yield other
