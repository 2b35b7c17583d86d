#!/usr/bin/env python3
"""Where the models of the zoo lie: `python tests/accuracy/zoo.py t5-small` prints the path of a readable .onnx file.

The largest files are stored compressed (data/models/*.onnx.gz) and are unpacked below build/models on first use.
Needs no PyTorch."""
import gzip
import json
import os
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
MODELS = os.path.join(ROOT, "data", "models")


def index():
    with open(os.path.join(MODELS, "index.json")) as f:
        return json.load(f)


def model_file(name):
    """None when the repository has no file for the model (those are exported on demand)."""
    plain = os.path.join(MODELS, name + ".onnx")
    if os.path.exists(plain):
        return plain
    packed = plain + ".gz"
    if not os.path.exists(packed):
        return None
    out = os.path.join(ROOT, "build", "models", name + ".onnx")
    if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(packed):
        os.makedirs(os.path.dirname(out), exist_ok=True)
        with gzip.open(packed, "rb") as f:
            data = f.read()
        part = f"{out}.{os.getpid()}"
        with open(part, "wb") as f:
            f.write(data)
        os.replace(part, out)
    return out


def more_file(name):
    """The .pt2 archive of a model of more_models.py, or None."""
    path = os.path.join(MODELS, "more", name + ".pt2")
    return path if os.path.exists(path) else None


if __name__ == "__main__":
    for name in sys.argv[1:] or index():
        print(model_file(name) or f"{name}: no file (python tools/export_models.py {name})")
