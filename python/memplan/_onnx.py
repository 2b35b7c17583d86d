"""From an exported program to an ONNX file without weights: they stand in it as contents of another file, which there need not be."""
from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from typing import Any

from ._errors import InputError

WEIGHTS = "weights.bin"  # never written, never read


def save(traced: Any, path: str) -> None:
    """Raises InputError where torch.onnx cannot say the program."""
    try:
        import onnx_ir
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError("ONNX files need onnxscript, which is not installed in this Python", sys.executable, "pip install onnxscript, or end the path with .pt2", 3) from error
    import torch

    try:
        # The optimizer would rewrite nodes so that they no longer say which op of the program they are.
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            made = torch.onnx.export(traced.program, dynamo=True, optimize=False, verbose=False)
    except Exception as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(f"torch.onnx cannot export the program: {first[:240]}", hint="end the path with .pt2, which keeps the program as it is", code=3) from error
    for name, value in made.model.graph.initializers.items():
        held = value.const_value
        if held is not None and _without_memory(getattr(held, "raw", None)):
            value.const_value = onnx_ir.ExternalTensor(WEIGHTS, None, None, held.dtype, shape=onnx_ir.Shape(held.shape), name=name)
    # What an archive has in its extra file (docs/export.md).
    graph = {**{f"memplan.size.{k}": str(v) for k, v in traced.sizes.items()}, **{f"memplan.role.{k}": v for k, v in traced.roles.items()}}
    made.model.graph.metadata_props.update(graph)
    made.model.metadata_props.update({"memplan.exported": "checkpoints seen", **{f"memplan.note.{code}": text for code, text in traced.notes.items()}})
    if traced.checkpointed:
        made.model.metadata_props["memplan.checkpointed"] = " ".join(traced.checkpointed) + " "
    part = f"{path}.{os.getpid()}.tmp"
    try:
        onnx_ir.save(made.model, part, format="protobuf")
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def _without_memory(tensor: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor) or (hasattr(tensor, "device") and tensor.device.type == "meta")
