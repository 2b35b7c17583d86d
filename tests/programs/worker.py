"""Exports generated programs, or runs them on the emulated GPU: python worker.py export|truth FOLDER < names. One JSON line per program."""
import importlib.util
import json
import logging
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", suite) for suite in ("zoo", "recording", "accuracy")]
import torch

import forked
import naming

BATCH = 8


def program_of(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path).removesuffix(".py"), path)
    program = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = program
    spec.loader.exec_module(program)
    return program


def parts_of(stem, batch):
    """The module, and what it is called with."""
    program = program_of(stem + ".py")
    torch.manual_seed(0)
    return program.Model(), program.inputs(batch) if hasattr(program, "inputs") else (torch.randn(batch, 64, 128),)


def export(stem):
    (model, args), batch = parts_of(stem, 2), torch.export.Dim("batch")
    open_batch = tuple({0: batch} for _ in args)
    program = torch.export.export(model.train(), args, dynamic_shapes=open_batch, strict=False)
    torch.export.save(program, stem + ".pt2")
    torch.onnx.export(model, args, stem + ".onnx", dynamo=True, dynamic_shapes=open_batch, verbose=False, external_data=False)


def truth(stem, setup):
    import truth as program

    model, args = parts_of(stem, BATCH)
    target = program.target_of(*parts_of(stem, BATCH), {}) if setup["mode"] == "training" else None
    rows = program.steps(model, args, {}, setup, target)
    return [max(step[c] for step in rows) for c in range(3)]


def main():
    task, folder = sys.argv[1:3]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    for name in sys.stdin.read().split():
        stem = os.path.join(folder, name)
        answer = forked.row_of(lambda: export(stem)) if task == "export" else {k: forked.row_of(lambda: truth(stem, v[0])) for k, v in naming.SETUPS.items()}
        print(json.dumps([name, answer]), file=out, flush=True)


if __name__ == "__main__":
    main()
