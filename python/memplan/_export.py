"""From a torch.nn.Module to a .pt2 archive without weights (docs/export.md)."""
from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import os
import re
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from . import _checkpoints
from ._errors import InputError, UsageError
from ._lines import own_line

NO_CACHE = ("MP020", "exported with use_cache=False, since torch.export cannot return the cache of keys and values; "
                     "set model.config.use_cache = False in the training loop too, where the cache takes memory as well")
EXTRA = "memplan.json"  # beside the program in the archive; estimators/frontends/torch_export/reader.cpp reads it


class ExportWarning(UserWarning):
    """What export() had to change, or could not keep. Begins with its code."""


@dataclass
class Traced:
    """An exported program and what memplan should know beside it."""
    program: Any
    notes: Dict[str, str] = field(default_factory=dict)
    sizes: Dict[str, int] = field(default_factory=dict)  # of open dimensions, as the arguments have them
    roles: Dict[str, str] = field(default_factory=dict)  # "batch" or "sequence"
    checkpointed: List[str] = field(default_factory=list)  # modules that the model itself checkpoints
    tied: List[List[str]] = field(default_factory=list)  # names of one parameter; without weights the archive does not tell


def is_module(model: object) -> bool:
    """Whether it is a torch.nn.Module, told without importing torch: whoever has a module has imported it."""
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


def _without_cache(module: Any) -> bool:
    """Turns the cache of keys and values off, on a copy that is ours. Whether there was one."""
    found = False
    for part in module.modules():
        config = getattr(part, "config", None)
        if getattr(config, "use_cache", None) is True:
            config.use_cache = False
            found = True
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch prints whole graphs where it cannot go on; the error says what is wrong."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _own_line(error: BaseException) -> str:
    """Of the stack, or of the one that torch has put into its text."""
    import torch

    told = [m for m in re.finditer(r'File "([^"]+)", line (\d+), in (\w+)', str(error)) if not m[1].startswith(os.path.dirname(torch.__file__) + os.sep)]
    return own_line(error) or (f"{told[-1][1]}:{told[-1][2]}, in {told[-1][3]}" if told else "")


def _first_words(error: BaseException) -> str:
    """The first line of torch's text, without its markup."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = re.sub(r"\s+", " ", lines[0]) if lines else type(error).__name__
    return first if len(first) <= 240 else first[:first.rfind(" ", 0, 240)] + " …"


def _enlarged(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Dimensions of size 1 are never open for torch.export, so a batch or sequence of 1 becomes 2."""
    import torch
    from torch.utils._pytree import tree_map_only

    axes = _open_axes(args, kwargs)

    def larger(t: Any) -> Any:
        shape = [2 if axis in axes(t) and size == 1 else size for axis, size in enumerate(t.shape)]
        return t if shape == list(t.shape) else torch.empty(shape, dtype=t.dtype, device="meta", requires_grad=t.requires_grad)

    return tree_map_only(torch.Tensor, larger, (args, kwargs))  # type: ignore[no-any-return]


def _open_axes(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """tensor -> its dimensions that are the batch ({axis: "batch"}) or a sequence of tokens: those that are as large as the first tensor's."""
    import torch
    from torch.utils._pytree import tree_leaves

    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.dim()]
    batch = tensors[0].shape[0] if tensors else None
    tokens = next((t.shape[1] for t in tensors if _is_tokens(t)), None)

    def axes(t: Any) -> Dict[int, str]:
        found = {0: "batch"} if t.dim() and t.shape[0] == batch else {}
        if _is_tokens(t) and t.shape[1] == tokens and 0 in found:
            found[1] = "sequence"
        return found

    return axes


def _is_tokens(t: Any) -> bool:
    return t.dim() == 2 and not t.is_floating_point() and not t.is_complex()


def _automatic(module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """dynamic_shapes that open the batch and the sequence."""
    import inspect

    import torch
    from torch.utils._pytree import tree_map

    axes = _open_axes(args, kwargs)
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return tree_map(lambda t: {axis: torch.export.Dim.AUTO for axis in axes(t)} if isinstance(t, torch.Tensor) else None, dict(given))


def _described(traced: Traced, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
    """Sizes and roles of the symbols, from the arguments that each stands for."""
    import torch
    from torch.utils._pytree import tree_leaves

    axes = _open_axes(args, kwargs)
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    user = set(traced.program.graph_signature.user_inputs)
    values = [n.meta.get("val") for n in traced.program.graph.nodes if n.op == "placeholder" and n.name in user]
    values = [v for v in values if isinstance(v, torch.Tensor)]
    if len(values) != len(tensors):
        return
    for value, tensor in zip(values, tensors):
        for axis, size in enumerate(value.shape):
            name = str(size)
            if isinstance(size, int) or not name.isidentifier():
                continue
            traced.sizes.setdefault(name, int(tensor.shape[axis]))
            # A name that somebody gave tells by itself.
            if re.fullmatch(r"s\d+", name) and axis in axes(tensor):
                traced.roles.setdefault(name, axes(tensor)[axis])


def _run(hollow: Any, args: Any, kwargs: Any, dynamic_shapes: Any, mode: Any) -> Tuple[Any, Optional[BaseException], List[_checkpoints.Region]]:
    """The program, or the first error."""
    import torch
    from torch.utils._pytree import tree_map_only

    def example(tensor: Any) -> Any:
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu", requires_grad=tensor.requires_grad)

    args, kwargs = tree_map_only(torch.Tensor, example, (args, kwargs))
    first: Optional[BaseException] = None
    for strict in (False, True):
        try:
            with _quiet(), _checkpoints.watch(hollow) as regions:
                return torch.export.export(hollow, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict), None, regions
        except Exception as error:
            first = first or error
    return None, first, []


def trace(module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], dynamic_shapes: Any) -> Traced:
    """Raises InputError where torch.export cannot follow the module. dynamic_shapes: of torch.export.export, "auto" or None."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    def attempt(args: Any, kwargs: Any, shapes: Any) -> Tuple[Any, Optional[BaseException], List[_checkpoints.Region], bool]:
        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        try:
            hollow = _fake(module, mode)
        except Exception as error:
            raise InputError(f"the module cannot be copied: {error}", hint="save it with torch.export.save and pass the path", code=3) from error
        cached = _without_cache(hollow)
        return (*_run(hollow, args, kwargs, shapes, mode), cached)

    program = None
    if isinstance(dynamic_shapes, str):
        if dynamic_shapes != "auto":
            raise UsageError(f"dynamic_shapes cannot be '{dynamic_shapes}'", hint='give "auto", None, or what torch.export.export takes', code=2)
        larger = _enlarged(args, kwargs)
        try:
            program, error, regions, cached = attempt(*larger, _automatic(module, *larger))
        except TypeError:  # arguments that the forward pass does not take: the export below says so
            program = None
        # What the module has fixed must have the size of the arguments.
        if program is not None and not _still_open(program, larger, (args, kwargs)):
            program = None
        dynamic_shapes = None
    if program is None:
        program, error, regions, cached = attempt(args, kwargs, dynamic_shapes)
    if program is None:
        assert error
        raise InputError(f"torch.export cannot follow {type(module).__name__}: {_first_words(error)}", _own_line(error),
                         "neither of these needs an export: memplan.record(module, args, kwargs, \"model.memplan\") runs the module's own code, "
                         "memplan observe -- python train.py the whole script", 3) from error
    traced = Traced(program)
    _described(traced, args, kwargs)
    traced.tied = _tied(module)
    if cached:
        traced.notes.update([NO_CACHE])
    if regions:
        traced.checkpointed = _checkpoints.patterns(_checkpoints.modules(regions), module)
        traced.notes["MP021"] = _checkpoints.note(regions, module)
    return traced


def _tied(module: Any) -> List[List[str]]:
    names: Dict[int, List[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _still_open(program: Any, larger: Any, given: Any) -> bool:
    import torch
    from torch.utils._pytree import tree_leaves

    user = set(program.graph_signature.user_inputs)
    values = [v for v in (n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder" and n.name in user) if isinstance(v, torch.Tensor)]
    pairs = zip(values, *([t for t in tree_leaves(x) if isinstance(t, torch.Tensor)] for x in (larger, given)))
    return all(a == b or not isinstance(v, int) for value, big, small in pairs for v, a, b in zip(value.shape, big.shape, small.shape))


def save(traced: Traced, path: str) -> None:
    import torch

    extra = json.dumps(dict(notes=traced.notes, roles=traced.roles, sizes=traced.sizes, checkpointed=traced.checkpointed, tied=traced.tied))
    with _quiet():
        torch.export.save(traced.program, path, extra_files={EXTRA: extra})


def file_name(module: Any) -> str:
    """It is in the report."""
    return re.sub(r"\W", "_", type(module).__name__) + ".pt2"


def export(module: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None, path: Union[str, "os.PathLike[str]", None] = None, *,
           dynamic_shapes: Any = "auto", recorded: Optional[bool] = None) -> str:
    """Writes the graph of a module to `path` (default: the class's name, with the ending .pt2), for memplan and memplan.estimate(path, …). Returns the path.

    module: a torch.nn.Module, whose weights are neither read nor written. args, kwargs: of its forward pass; of tensors only shapes and dtypes count, and
        both may be on "meta". With labels=… among them a Hugging Face model computes its own loss.
    dynamic_shapes: "auto" opens the batch (the first dimension of every tensor that is as large there as the first one) and the sequence (the second one
        of tokens), with the sizes of `args` as defaults; None fixes every dimension; else what torch.export.export takes.
    path: of a .pt2 archive, or of an ONNX file (needs onnxscript). recorded: the module is recorded as well, and the file takes that along, so that
        the recorded setups are answered by their own steps. Default: for ONNX files, where the emulated GPU is at hand.

    Raises InputError with the first cause where torch.export cannot follow the module; record() runs its code instead. Warns (ExportWarning) of what it changed.
    """
    if not is_module(module):
        raise TypeError(f"a torch.nn.Module is needed, not {type(module).__name__}")
    to = os.fspath(path) if path is not None else file_name(module)
    if not to.endswith((".pt2", ".onnx")):
        raise UsageError("export() writes a .pt2 archive or an ONNX file", to, "end the path with .pt2 or .onnx; a .memplan is written by memplan.record()", 2)
    args, kwargs = tuple(args) if isinstance(args, (tuple, list)) else (args,), dict(kwargs or {})
    traced = trace(module, args, kwargs, dynamic_shapes)
    if to.endswith(".onnx"):
        from . import _onnx

        _onnx.save(traced, to)
    else:
        save(traced, to)
    if recorded or (recorded is None and to.endswith(".onnx")):
        from . import _route

        try:
            _route.record_into(module, args, kwargs, to)
        except _route.Impossible as error:
            if recorded:
                raise InputError(f"the module cannot be recorded: {error}", to, "leave recorded=True out for the graph alone", 3) from error
            traced.notes["MP025"] = f"the file has no recording of the module, which would make its figures surer: {error}"
    for code, text in traced.notes.items():
        warnings.warn(f"{code}: {text}", ExportWarning, stacklevel=2)
    return to
