#!/usr/bin/env python3
"""Compares what each row keeps for the backward pass with PyTorch's derivatives.yaml (data/aten/derivatives-2.11.json).

    python tests/op_oracle/kept.py [--build build/release]

Every op program of one call whose op, or the primitive behind it, stands in derivatives.yaml is run on paper; the
arguments and outputs that its node keeps must be those that the generated code of PyTorch keeps. Exceptions, with their
reasons, are in kept_exceptions.txt. Ends with "N passed, N failed".
"""
import argparse
import fnmatch
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import programs
import run

# Composite ops whose row stands for the primitive that leaves the node.
PRIMITIVE = {
    "softmax.int": "_softmax", "log_softmax.int": "_log_softmax", "layer_norm": "native_layer_norm", "group_norm": "native_group_norm",
    "rms_norm": "_fused_rms_norm", "max_pool2d": "max_pool2d_with_indices", "max_pool3d": "max_pool3d_with_indices",
    "adaptive_avg_pool2d": "_adaptive_avg_pool2d", "adaptive_avg_pool3d": "_adaptive_avg_pool3d", "prelu": "_prelu_kernel", "dropout": "native_dropout",
    "embedding_bag": "_embedding_bag", "log_sigmoid": "log_sigmoid_forward", "square": "pow.Tensor_Scalar",
}

ARGUMENTS = {"group_norm": ["input", "num_groups", "weight", "bias"]}  # where they are not the primitive's


def exceptions():
    with open(os.path.join(HERE, "kept_exceptions.txt")) as f:
        return [line.strip().split(" : ", 1) for line in f if line.strip() and not line.startswith("#")]


def expected(entry, program, call):
    """Names that PyTorch keeps, given which inputs want a gradient."""
    wants = {v["name"] for v in program["values"] if v.get("requires_grad")}
    given = dict(zip(entry["args"], call["args"])) | call.get("kwargs", {})

    def wanting(name):
        arg = given.get(name)
        return any(isinstance(x, dict) and x.get("v") in wants for x in (arg if isinstance(arg, list) else [arg]))

    out = set()
    for name, needed_by in entry["kept"].items():
        arg = given.get(name)
        present = name.startswith("result") or name in entry["outputs"] or any(isinstance(x, dict) and "v" in x for x in (arg if isinstance(arg, list) else [arg]))
        if present and (needed_by == "" or wanting(needed_by)):
            out.add(name)
    return out


def found(entry, places):
    names = set()
    for place in places:
        kind, _, index = place.partition(".")
        if kind == "args":
            names.add(entry["args"][int(index.split(".")[0])])
        elif kind == "outputs":
            several = len(entry["outputs"]) > 1
            names.add(entry["outputs"][int(index)] or (f"result{index}" if several else "result"))
        else:
            names.add(place)
    return names


def check(build):
    """(passed, failed)"""
    with open(os.path.join(HERE, "..", "..", "data", "aten", "derivatives-2.11.json")) as f:
        table = json.load(f)["ops"]
    chosen = [x for x in programs.all_programs() if len(x["calls"]) == 1 and x.get("backward") and "autocast" not in x]
    listed, used, ops = exceptions(), set(), set()
    passed = failed = apart = 0
    for program, answer in zip(chosen, run.on_paper(os.path.join(build, "tests", "trace_program"), chosen, "h100")):
        call = program["calls"][0]
        op = call["op"].removeprefix("aten::")
        entry = table.get("aten::" + PRIMITIVE.get(op, op))
        if entry is None or "error" in answer:
            continue
        ops.add(op)
        entry = dict(entry, args=ARGUMENTS.get(op, entry["args"]))
        want, have = expected(entry, program, call), found(entry, answer["kept"][0])
        # Outputs that the call does not return ("made by the op") stand for results that PyTorch's primitive returns.
        hidden = len(have & {"made by the op"})
        have.discard("made by the op")
        missing = {w for w in want - have if not (hidden and w.startswith(("result", "total_weight", "mask", "buffer")))}
        excess = have - want
        reason = next((i for i, (name, _) in enumerate(listed) if fnmatch.fnmatchcase(op, name)), None)
        if not missing and not excess:
            passed += 1
        elif reason is not None:
            used.add(reason)
            apart += 1
        else:
            failed += 1
            print(f"FAILED {program['name']}: PyTorch keeps {sorted(want)}, the row {answer['kept'][0]} = {sorted(have)}")
    for i, (name, reason) in enumerate(listed):
        if i in used:
            print(f"exception {name}: {reason}")
        else:
            failed += 1
            print(f"FAILED exception {name}: no program needs it")
    print(f"kept for backward: {len(ops)} ops compared with derivatives.yaml, {passed} programs agree, {apart} are listed exceptions")
    return passed, failed


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"))
    passed, failed = check(p.parse_args().build)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
