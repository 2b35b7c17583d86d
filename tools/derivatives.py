#!/usr/bin/env python3
"""Writes data/aten/derivatives-<version>.json: what autograd keeps of each ATen op, from the derivatives.yaml of the
installed torch wheel, as torch's own code generator reads it.

    python tools/derivatives.py [--out data/aten]

Per op: its arguments in order, the differentiable ones, and the tensors kept for the backward pass. A kept tensor maps to
the input whose gradient needs it where it is kept only if that input wants one, else to "". Sizes, dtypes and options that
formulas read without the tensor are not listed; results are "result", "result0", …
"""
import argparse
import json
import os

import torch
import torchgen
from torchgen.api.types import BaseCType, OptionalCType, VectorCType, tensorT
from torchgen.packaged.autograd.load_derivatives import load_derivatives

PACKAGED = os.path.join(os.path.dirname(torchgen.__file__), "packaged")


def is_tensor(nctype):
    t = nctype.type
    while hasattr(t, "elem"):
        t = t.elem
    return str(t).find("Tensor") >= 0 or str(t) == str(BaseCType(tensorT))


def entry(info):
    differentiable = [n for d in info.derivatives for n in d.var_names]
    readers = {}
    for d in info.derivatives:
        for saved in list(d.saved_inputs) + list(d.saved_outputs):
            if is_tensor(saved.nctype):
                readers.setdefault(str(getattr(saved.nctype.name, "name", saved.nctype.name)), []).append(d)
    kept = {}
    for name, by in readers.items():
        guarded = len(by) == 1 and len(by[0].var_names) == 1 and len(info.derivatives) > 1 and not name.startswith("result")
        kept[name] = by[0].var_names[0] if guarded else ""
    arguments = [a.name for a in info.func.func.arguments.flat_all]
    outputs = [r.name or "" for r in info.func.func.returns]
    return {"args": arguments, "outputs": outputs, "differentiable": differentiable, "kept": dict(sorted(kept.items()))}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "aten"))
    a = p.parse_args()
    infos, _ = load_derivatives(os.path.join(PACKAGED, "autograd", "derivatives.yaml"), os.path.join(PACKAGED, "ATen", "native", "native_functions.yaml"),
                                os.path.join(PACKAGED, "ATen", "native", "tags.yaml"))
    ops = {}
    for schema, by_key in infos.items():
        info = by_key.get("Default") or next(iter(by_key.values()))
        name = str(info.func.func.name)
        if info.derivatives and not name.endswith("_out") and ".out" not in name:
            ops[f"aten::{name}"] = entry(info)
    version = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    path = os.path.join(a.out, f"derivatives-{version}.json")
    os.makedirs(a.out, exist_ok=True)
    with open(path, "w") as f:
        f.write('{"torch": "%s", "ops": {\n' % torch.__version__.split("+")[0])
        f.write(",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in sorted(ops.items())))
        f.write("\n}}\n")
    print(f"{path}: {len(ops)} ops, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
