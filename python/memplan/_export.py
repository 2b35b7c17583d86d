"""From a torch.nn.Module to a .pt2 archive without weights. The only part that imports torch."""
from __future__ import annotations

import copy
import os
import re
import warnings
from typing import Any, Dict, Optional, Tuple

from ._errors import InputError


def is_module(model: object) -> bool:
    """Whether it is a torch.nn.Module, told without importing torch: whoever has a module has imported it."""
    import sys
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _fake(module: Any, mode: Any) -> Any:
    """A copy of the module whose parameters and buffers have sizes but no memory, on the CPU: an exporter that sees the
    meta device mixes it up with tensors that the forward pass makes."""
    import torch
    replaced: Dict[int, Any] = {}
    for tensor in [*module.parameters(), *module.buffers()]:
        with mode:
            fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        if isinstance(tensor, torch.nn.Parameter):
            fake = torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
        replaced[id(tensor)] = fake
    # deepcopy takes what is in its memo for copied: tied parameters stay tied, and no weight is copied.
    return copy.deepcopy(module, replaced)


def export(module: Any, args: Tuple[Any, ...], kwargs: Optional[Dict[str, Any]], dynamic_shapes: Any, folder: str) -> str:
    """The path of the archive. Raises InputError where torch.export cannot follow the module."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.utils._pytree import tree_map_only

    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)

    def example(tensor: Any) -> Any:
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu", requires_grad=tensor.requires_grad)

    try:
        hollow = _fake(module, mode)
    except Exception as error:
        raise InputError(f"the module cannot be copied: {error}", hint="save it with torch.export.save and pass the path", code=3) from error
    args, kwargs = tree_map_only(torch.Tensor, example, (tuple(args), dict(kwargs or {})))
    first: Optional[Exception] = None
    for strict in (False, True):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = torch.export.export(hollow, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
            break
        except Exception as error:
            first = first or error
    else:
        raise InputError(f"torch.export cannot follow {type(module).__name__}: {first}",
                         hint="https://docs.pytorch.org/docs/stable/export.html says what it needs; an ONNX file or another .pt2 archive does as well", code=3) from first
    # The name is in the report.
    path = os.path.join(folder, re.sub(r"\W", "_", type(module).__name__) + ".pt2")
    torch.export.save(program, path)
    return path
