#!/usr/bin/env python3
"""Writes the small archives beside this file, with whatever PyTorch runs it:

    python3 tests/torchscript/versions/make.py [--out FOLDER]

torch-VERSION.script.pt, .trace.pt and (from 2.6 on) .pt2 of one model with an embedding, batch norm, dropout and a loop. What
PyTorch itself says of the model (its reference program on the emulated device) is in expected.json, written with

    LD_PRELOAD=build/release/emulated_gpu/libemulated_gpu.so EMULATED_GPU=h100-80gb python3 tests/torchscript/versions/make.py --record
"""
import argparse
import json
import os
import runpy
import subprocess
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", "..", ".."))
BATCH = 64


def small():
    """The class of small.py, named as everybody has it: from the root of the repository, where traces look for its lines."""
    os.chdir(ROOT)
    return runpy.run_path(os.path.relpath(os.path.join(HERE, "small.py"), ROOT), run_name="small")["Small"]


def run(mode):
    """Prints what PyTorch requested for the set-up and in three steps, at the most."""
    sys.path.insert(0, os.path.join(HERE, "..", "..", "accuracy"))
    import models
    import reference_program

    models.REGISTRY["small"] = models.Spec("small", "tuning", "text", "", small(), (models.Input("x", "int64", ("batch", 12)),), batch=BATCH)
    row = reference_program.run({**reference_program.DEFAULTS, "model": "small", "batch": BATCH, "mode": mode}, None, False)
    print(json.dumps({"parameters": row["parameters"], "requested": [row["setup"]["requested"], *(s["requested"] for s in row["steps"])], "torch": row["torch"]}))


def record():
    """Each run in a process of its own: workspaces stay with a process."""
    found = {}
    for name, mode in (("training", "train"), ("inference", "inference")):
        found[name] = json.loads(subprocess.run([sys.executable, os.path.join(HERE, "make.py"), "--run", mode], check=True, capture_output=True, text=True).stdout)
    with open(os.path.join(HERE, "expected.json"), "w") as f:
        json.dump(found, f, indent=1)
        f.write("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", default=HERE)
    p.add_argument("--record", action="store_true")
    p.add_argument("--run", choices=["train", "inference"], help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.run:
        return run(a.run)
    if a.record:
        return record()
    torch.manual_seed(0)
    model, example = small()().train(), torch.zeros(BATCH, 12, dtype=torch.long)
    version = torch.__version__.partition("+")[0]
    torch.jit.script(model).save(os.path.join(a.out, f"torch-{version}.script.pt"))
    torch.jit.trace(model, example, check_trace=False).save(os.path.join(a.out, f"torch-{version}.trace.pt"))
    if tuple(int(n) for n in version.split(".")[:2]) >= (2, 6):
        batch = torch.export.Dim("batch", min=2)
        torch.export.save(torch.export.export(model, (example,), dynamic_shapes=({0: batch},)), os.path.join(a.out, f"torch-{version}.pt2"))


if __name__ == "__main__":
    main()
