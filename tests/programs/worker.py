"""Exports or records generated programs, or runs them on the emulated GPU: python worker.py export|record|truth FOLDER < names. One JSON line per program."""
import functools
import json
import logging
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", suite) for suite in ("zoo", "recording", "accuracy", os.path.join("..", "python"))]
import torch

import forked
import maker
import naming
from maker import parts_of

BATCH = 8


def export(stem):
    (model, args), batch = parts_of(stem, 2), torch.export.Dim("batch")
    open_batch = tuple({0: batch} for _ in args)
    program = torch.export.export(model.train(), args, dynamic_shapes=open_batch, strict=False)
    torch.export.save(program, stem + ".pt2")
    torch.onnx.export(model, args, stem + ".onnx", dynamo=True, dynamic_shapes=open_batch, verbose=False, external_data=False)


def record(stem):
    """The set-ups that run: not every op has a kernel for bfloat16."""
    import memplan

    args, every = parts_of(stem, BATCH)[1], list(naming.SETUPS)
    for names in (every, [n for n in every if n != "amp"], ["infer"]):
        try:
            memplan.record(functools.partial(maker.model_of, stem), args, {}, stem + ".memplan", setups=[dict(naming.SETUPS[n][0]) for n in names], gpu=naming.GPU, batches=[BATCH])
            return
        except memplan.InputError as error:
            refused = error
    raise refused


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
        if task == "truth":
            answer = {k: forked.row_of(lambda: truth(stem, v[0])) for k, v in naming.SETUPS.items()}
        else:
            answer = forked.row_of(lambda: {"export": export, "record": record}[task](stem))
        print(json.dumps([name, answer]), file=out, flush=True)


if __name__ == "__main__":
    main()
