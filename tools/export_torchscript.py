#!/usr/bin/env python3
"""Saves models of the zoo (tests/accuracy/models.py) as TorchScript files without weights, for tests.

    python tools/export_torchscript.py NAME … --out FOLDER [--kind trace|script|frozen] [--keep-weights]

A traced model is run once on the CPU (batch 2, sequence 64); its weights are then moved to the meta device, so that a file
holds the program alone. Writes FOLDER/NAME.KIND.pt.
"""
import argparse
import os
import sys
import warnings

import torch

import export_models
import models  # found through export_models


def to_meta(script):
    """Without contents. Module.to() to another kind of device gives every use of a tied weight a tensor of its own, so ties are put
    back: the model's first use of a weight is the one that stays."""
    uses = {}
    for path, module in script.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            uses.setdefault(id(parameter) if parameter.data_ptr() == 0 else (parameter.data_ptr(), parameter.shape), []).append((module, name))
    script = script.to("meta")
    for (first, name), *others in uses.values():
        for module, other in others:
            setattr(module, other, getattr(first, name))
    return script


def make(spec, kind, keep_weights):
    with export_models.as_eager(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = export_models.build(spec)
        if kind == "trace":
            script = torch.jit.trace(module, export_models.example(spec), check_trace=False)
        else:
            # Modules with lists of their parameters (nn.LSTM) move as a whole only before they are scripted.
            script = torch.jit.script(module if keep_weights or kind == "frozen" else module.to("meta"))
        if kind == "frozen":
            script = torch.jit.freeze(script.eval())
        return to_meta(script) if kind == "trace" and not keep_weights else script


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="+")
    p.add_argument("--out", required=True)
    p.add_argument("--kind", choices=["trace", "script", "frozen"], default="trace")
    p.add_argument("--keep-weights", action="store_true")
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    failed = 0
    for name in a.names:
        path = os.path.join(a.out, f"{name}.{a.kind}.pt")
        try:
            script = make(models.REGISTRY[name], a.kind, a.keep_weights)
        except Exception as error:
            failed += 1
            print(f"{name}: no {a.kind}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}", flush=True)
            continue
        part = f"{path}.{os.getpid()}"
        script.save(part)
        os.replace(part, path)
        print(f"{path}: {os.path.getsize(path)} bytes", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
