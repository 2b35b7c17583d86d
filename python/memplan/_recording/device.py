"""Where the emulated GPU is: the library that answers PyTorch's CUDA calls on a machine without one."""
from __future__ import annotations

import os
from typing import Optional

from .. import _binary
from .._errors import Error, UsageError


def library() -> Optional[str]:
    """Its path as the command line looks for it (MEMPLAN_EMULATED_GPU, beside the program, in lib/memplan), or None."""
    named = os.environ.get("MEMPLAN_EMULATED_GPU")
    if named:
        if not os.access(named, os.R_OK):
            raise UsageError("the library of the emulated GPU is not there", named, "correct or unset MEMPLAN_EMULATED_GPU", 2)
        return os.path.abspath(named)
    try:
        here = os.path.dirname(os.path.realpath(_binary.program()))
    except Error:
        return None
    for place in ("emulated_gpu", ".", "../lib/memplan", "../lib64/memplan", "../lib/x86_64-linux-gnu/memplan"):
        path = os.path.normpath(os.path.join(here, place, "libemulated_gpu.so"))
        if os.access(path, os.R_OK):
            return path
    return None
