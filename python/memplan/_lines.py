"""Where an exception comes from, for people who wrote only a part of its stack."""
from __future__ import annotations

import os
import traceback


def own_line(error: BaseException) -> str:
    """"model.py:12, in forward: if x.sum() > 0:" of the innermost line that is not PyTorch's, Python's or memplan's; empty where there is none."""
    import torch

    while error.__cause__ is not None:
        error = error.__cause__
    here, python = os.path.dirname(os.path.abspath(__file__)) + os.sep, os.path.dirname(os.__file__) + os.sep
    own = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(("<", here, os.path.dirname(torch.__file__) + os.sep))
           and (not f.filename.startswith(python) or "-packages" + os.sep in f.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}, in {own[-1].name}: {own[-1].line}" if own else ""
