#!/usr/bin/env python3
"""Convolutional models at odd image sizes and batches, where no table has their convolutions, against PyTorch on emulated cards.

    python tests/accuracy/odd_sizes.py --build build/release [--torch PYTHON] [--models resnet18,…] [--cards t4,…] [--seed 5]

Reserved bytes of a training step are compared, with cuDNN asked and without it. The aim: p95 of the error of at most 1 % and 3 %. Needs
memplan-torch, torchvision and the emulated GPU (-DMEMPLAN_TORCH_PYTHON).
"""
import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import build_tree

CARDS = ("rtx3060-12gb", "rtx4060ti-16gb", "t4", "a100-80gb", "h100-80gb")
MODELS = ("resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "vgg11_bn", "mobilenet_v2", "mobilenet_v3_large",
          "efficientnet_b0", "regnet_y_400mf", "shufflenet_v2_x1_0", "squeezenet1_1")
AIMS = {"auto": 1.0, "none": 3.0}  # percent

EXPORT = r"""
import sys, torch, torchvision
class Loss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
    def forward(self, x):
        return self.model(x).mean()
name, side, batch, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
model = Loss(torchvision.models.get_model(name)).train().to("meta")
program = torch.export.export(model, (torch.empty(batch, 3, side, side, device="meta"),))
program._example_inputs = None
torch.export.save(program, path)
"""


def drawn(seed):
    """{model: (side, batch)}, both odd."""
    r = random.Random(seed)
    return {name: (2 * r.randint(48, 140) + 1, 2 * r.randint(1, 8) + 1) for name in MODELS}


def error(build, python, path, card, cudnn):
    """Of the peak's reserved bytes, in percent."""
    done = subprocess.run([os.path.join(build, "memplan"), "validate", path, "--torch", "2.11", "--on", "emulated:" + card, "--cudnn", cudnn, "--format", "json"],
                          stdout=subprocess.PIPE, env={**os.environ, "MEMPLAN_PYTHON": python}, timeout=600)
    peak = json.loads(done.stdout)["peak"]["reserved"]
    return 100 * (peak["predicted_bytes"] - peak["measured_bytes"]) / peak["measured_bytes"]


def p95(values):
    return sorted(map(abs, values))[math.ceil(.95 * len(values)) - 1]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/release")
    p.add_argument("--torch", help="Python with PyTorch (default: the one that the build was configured with)")
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--cards", default=",".join(CARDS))
    p.add_argument("--seed", type=int, default=5)
    a = p.parse_args()
    a.torch = a.torch or build_tree.cached(a.build, "MEMPLAN_TORCH_PYTHON")
    sizes, cards = drawn(a.seed), a.cards.split(",")
    found = {cudnn: [] for cudnn in AIMS}
    print("| model | image | batch | " + " | ".join(f"{card}: asked, not" for card in cards) + " |\n" + "|---" * (3 + len(cards)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name in a.models.split(","):
            side, batch = sizes[name]
            path = os.path.join(folder, name + ".pt2")
            subprocess.run([a.torch, "-c", EXPORT, name, str(side), str(batch), path], check=True, stderr=subprocess.DEVNULL)
            cells = []
            for card in cards:
                errors = {cudnn: error(a.build, a.torch, path, card, cudnn) for cudnn in AIMS}
                for cudnn, value in errors.items():
                    found[cudnn].append(value)
                cells.append(f"{errors['auto']:+.2f} %, {errors['none']:+.2f} %")
            print(f"| {name} | {side} | {batch} | " + " | ".join(cells) + " |", flush=True)
    for cudnn, aim in AIMS.items():
        print(f"cuDNN {'asked' if cudnn == 'auto' else 'not at hand'}: p95 of {len(found[cudnn])} runs {p95(found[cudnn]):.2f} %, aim {aim} %")
    return int(any(p95(found[cudnn]) > aim for cudnn, aim in AIMS.items()))


if __name__ == "__main__":
    sys.exit(main())
