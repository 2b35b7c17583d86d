#!/usr/bin/env python3
"""Prints the convolutions of models as query.cpp wants them, without those that the table has for an architecture.

    python tools/cudnn_workspaces/problems.py --sm 90 [--torchvision] [NAME …] > problems.txt

NAMEs are of the zoo (tests/accuracy/models.py, more_models.py); --torchvision adds every classifier of torchvision at the
smallest size that weights of it were made for. Models run on meta tensors, so that no weight is allocated.
"""
import argparse
import os
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
TABLE = os.path.join(ROOT, "data", "cudnn", "workspaces.txt")


class Convolutions(TorchDispatchMode):
    """Notes "C H W K R S pad_h pad_w stride_h stride_w dilation_h dilation_w groups" of every convolution of images."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default and args[0].dim() in (3, 4) and not args[6]:
            x, w, _, stride, padding, dilation, _, _, groups = args
            # PyTorch makes images of height one of sequences.
            one = [] if x.dim() == 4 else [1]
            of = lambda v, filler: ([filler] if one else []) + list(v)
            shape = [x.shape[1], *one, *x.shape[2:], w.shape[0], *one, *w.shape[2:], *of(padding, 0), *of(stride, 1), *of(dilation, 1), groups]
            self.found[" ".join(str(int(v)) for v in shape)] = True
        return func(*args, **(kwargs or {}))


def zoo(names):
    import export_models
    import models
    import more_models  # noqa: F401

    for name in names:
        spec = models.REGISTRY[name]
        yield name, spec.build, tuple(a.to("meta") for a in export_models.example(spec))


def torchvision():
    from torchvision import models

    for name in models.list_models(module=models):
        size = min(w.transforms().crop_size[0] for w in models.get_model_weights(name))
        yield name, lambda name=name: models.get_model(name, weights=None), (torch.empty(2, 3, size, size, device="meta"),)


def built(build):
    try:
        with torch.device("meta"):
            return build()
    except RuntimeError:  # rates of stochastic depth are read from a tensor
        return build()


def known(sm):
    with open(TABLE) as f:
        return {line.split("|")[0].split(" ", 1)[1] for line in f if line.startswith(f"{sm} ")}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--sm", type=int, default=90)
    p.add_argument("--torchvision", action="store_true")
    a = p.parse_args()
    seen = Convolutions()
    for source in (zoo(a.names), torchvision() if a.torchvision else ()):
        for name, build, inputs in source:
            before = len(seen.found)
            model = built(build).to("meta").eval()
            with torch.no_grad(), seen:
                model(*inputs)
            print(f"{name}: {len(seen.found) - before} convolutions not seen before", file=sys.stderr)
    there = known(a.sm)
    print("\n".join(s for s in seen.found if s not in there))


if __name__ == "__main__":
    main()
