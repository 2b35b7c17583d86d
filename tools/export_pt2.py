#!/usr/bin/env python3
"""Exports models of the zoo (tests/accuracy/models.py) with torch.export as .pt2 archives without weights.

    python tools/export_pt2.py [NAME …] [--more] [--out DIR] [--ir training|core] [--keep-weights]

An archive of this tool holds the graph and the small texts beside it; the tensors below data/ stay behind. Paths in
stack traces are made relative. --keep-weights leaves the file as torch.export.save wrote it.
"""
import argparse
import json
import os
import sys
import tempfile
import time
import warnings
import zipfile

import torch

import export_models
import models  # found through export_models


def export(spec, module, ir):
    named = {"batch": torch.export.Dim("batch", min=2), "seq": torch.export.Dim("seq", min=2)}
    free = {"batch": torch.export.Dim.DYNAMIC, "seq": torch.export.Dim.DYNAMIC}

    def attempt(symbols):
        shapes = tuple({k: symbols[s] for k, s in enumerate(i.sizes) if isinstance(s, str)} for i in spec.inputs)
        return torch.export.export(module, export_models.example(spec), dynamic_shapes=shapes, strict=False)

    with export_models.as_eager(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = attempt(named)
        except torch._dynamo.exc.UserError:  # the model itself bounds a dimension (BERT: 512 positions)
            program = attempt(free)
        return program.run_decompositions() if ir == "core" else program


def tidy(value):
    """Stack traces name files as everybody has them."""
    if isinstance(value, dict):
        return {k: export_models.FRAME.sub(export_models.relative, v) if k == "stack_trace" else tidy(v) for k, v in value.items()}
    return [tidy(v) for v in value] if isinstance(value, list) else value


def strip(source, target):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for name in old.namelist():
            inner = name.split("/", 1)[-1]
            if (inner.startswith("data/") and not inner.endswith(".json")) or inner.startswith(".data/serialization_id"):
                continue
            data = old.read(name)
            if inner.startswith("models/"):
                data = json.dumps(tidy(json.loads(data)), separators=(",", ":")).encode()
            new.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED, 9)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--out", help="default data/models/pt2, with --more data/models/more")
    p.add_argument("--more", action="store_true", help="models of tests/accuracy/more_models.py (needs timm); without names all of them")
    p.add_argument("--ir", choices=["training", "core"], default="training")
    p.add_argument("--keep-weights", action="store_true")
    a = p.parse_args()
    if a.more:
        import more_models

        a.names = a.names or more_models.NAMES
    a.names = a.names or ["mlp", "resnet18", "gpt2"]
    a.out = a.out or os.path.join(export_models.HERE, "..", "data", "models", "more" if a.more else "pt2")
    failed = 0
    os.makedirs(a.out, exist_ok=True)
    for name in a.names:
        start = time.time()
        spec = models.REGISTRY[name]
        try:
            program = export(spec, export_models.build(spec), a.ir)
        except Exception as error:
            failed += 1
            print(f"{name}: not exported: {type(error).__name__}: {str(error).splitlines()[0][:200]}", flush=True)
            continue
        path = os.path.join(a.out, name + ("" if a.ir == "training" else ".core") + ".pt2")
        if a.keep_weights:
            torch.export.save(program, path)
        else:
            with tempfile.TemporaryDirectory() as folder:
                # The archive's root folder is named after the file.
                full = os.path.join(folder, name + ".pt2")
                torch.export.save(program, full)
                strip(full, path)
        print(f"{path}: {os.path.getsize(path)} bytes, {time.time() - start:.1f} s", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
