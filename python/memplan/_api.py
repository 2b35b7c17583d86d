"""estimate(), assert_fits() and the searches: suggest(), size(), sweep(), check()."""
from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Tuple, Union

from . import _binary, _export, _record, _route
from ._errors import DoesNotFit, InputError, UsageError
from ._planner import Check, Size, Suggestion, Sweep
from ._report import Report
from ._source import Source
from ._words import keywords, list_words, words

if TYPE_CHECKING:
    import torch

Model = Union[str, "os.PathLike[str]", "torch.nn.Module"]
Shapes = Union[None, str, Any]
# Which sizes the keywords choose needs open dimensions.
OPEN = ("batch", "seq", "dim")


def _of_line(flags: Dict[str, Any]) -> Dict[str, Any]:
    """The recording says how it was compiled."""
    return {**flags, "compile": True} if isinstance(flags.get("compile"), dict) else flags


def _recorded(module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], flags: Dict[str, Any]) -> Source:
    """The module's own run. Impossible where it cannot be had."""
    scratch = tempfile.TemporaryDirectory(prefix="memplan-")
    name = _export.file_name(module).removesuffix(".pt2") + ".memplan"
    batch = _route.record(module, args, kwargs, os.path.join(scratch.name, name), _route.run_of(flags), flags.get("seq"))
    # The sizes of the arguments are those of the step, and no choice of ours.
    return Source(["estimate", name, *words({**_of_line(flags), "batch": batch})], scratch.name, scratch, type(module).__name__)


def _confirmed(source: Source, module: Any, args: Any, kwargs: Optional[Dict[str, Any]], flags: Dict[str, Any]) -> Source:
    """The same question, to be held against a run of its own with nobody looking on."""
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    module, compiled = _record.eager(module)
    flags = {**flags, "compile": compiled} if compiled else flags
    assert source.folder
    try:
        _route.record(module, args, dict(kwargs or {}), os.path.join(source.folder, "run.memplan"), _route.run_of(flags), flags.get("seq"), confirming=True)
    except _route.Impossible as error:
        raise InputError(f"PyTorch cannot confirm it: {error}", hint="leave confirm=True out", code=3) from error
    return Source([*source.words, "--confirm-with=run.memplan"], source.folder, source.scratch, source.name)


def _source(command: str, model: Model, args: Any, kwargs: Optional[Dict[str, Any]], dynamic_shapes: Shapes, flags: Dict[str, Any], route: str = "auto") -> Source:
    if route not in _route.ROUTES:
        raise UsageError(f"route cannot be '{route}'", hint='give "auto", "record" or "export"', code=2)
    to_words = list_words if command == "sweep" else words
    if isinstance(model, (str, os.PathLike)):
        if args or kwargs or dynamic_shapes is not None:
            raise TypeError("a file brings its own inputs: args, kwargs and dynamic_shapes go with a torch.nn.Module")
        if isinstance(flags.get("compile"), dict):
            raise UsageError("torch.compile's keywords go with a torch.nn.Module; of a file compile= is True or left out", code=2)
        path = os.fspath(model)
        # A path is never a flag.
        return Source([command, os.path.join(os.curdir, path) if path.startswith("-") else path, *to_words(flags, command)])
    if not _export.is_module(model):
        raise TypeError(f"a path or a torch.nn.Module is needed, not {type(model).__name__}")
    model, compiled = _record.eager(model)
    if compiled:
        flags = {**flags, "compile": compiled}
    if not isinstance(args, (tuple, list)):
        args = (args,)
    to_words(_of_line(flags), command)  # before the export, which takes seconds
    why = ""
    if command == "estimate" and route != "export" and dynamic_shapes is None:
        try:
            return _recorded(model, tuple(args), dict(kwargs or {}), flags)
        except _route.Impossible as error:
            if route == "record" or flags.get("compile"):
                hint = "only a run tells what a compiled step needs" if flags.get("compile") else 'route="export" estimates its graph'
                raise InputError(f"the module cannot be recorded: {error}", hint=hint, code=3) from error
            why = str(error)
    if dynamic_shapes is None and (command != "estimate" or any(flags.get(name) is not None for name in OPEN)):
        dynamic_shapes = "auto"
    traced = _export.trace(model, tuple(args), dict(kwargs or {}), dynamic_shapes)
    if why:
        traced.notes["MP025"] = f"estimated from a plain export, weaker evidence than a recording: {why}"
    scratch = tempfile.TemporaryDirectory(prefix="memplan-")
    name = _export.file_name(model)
    _export.save(traced, os.path.join(scratch.name, name))
    return Source([command, name, *to_words(flags, command)], scratch.name, scratch, type(model).__name__)


def _answer(source: Source, timeout: Optional[float]) -> Any:
    return _binary.call_json(source.words, source.folder, timeout, {source.words[1]: source.name} if source.name else {})


def estimate(model: Model, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None, *, gpu: Optional[str] = None,
             dynamic_shapes: Any = None, route: str = "auto", confirm: bool = False, timeout: Optional[float] = None, **setup: Any) -> Report:
    """Estimates one setup.

    model: a path (.onnx, .pt2, .memplan …), or a torch.nn.Module; args and kwargs are those of its forward pass, of which only shapes and dtypes
        count. Tensors may be on "meta". With labels= among them a Hugging Face model computes its own loss.
    route: how a module is read. "record" runs its own Python with the setup on the emulated GPU, without memory and without weights; "export" takes its graph
        by torch.export; "auto" records, and exports where that cannot be had: then the report says why (MP025).
    confirm: PyTorch runs the module once more, on the emulated GPU with nobody looking on, and the report says whether it asked for the same, event by
        event (Report.confirmed). Of a path, where the file says what makes its module.
    gpu: a card, a class of cards or a size, as --gpu. Without it there is no verdict.
    dynamic_shapes: of torch.export.export, or "auto" to open batch and sequence, which is the default where batch=, seq= or dim= is given. The sizes of
        `args` are those of the step unless these keywords choose others.
    timeout: seconds for the estimate, None for no limit.
    setup: flags of the command line with underscores: batch=8, precision="amp-bf16", optimizer="sgd", clip=True,
        checkpoint=["blocks"], dim={"seq": 1024}. docs/cli.md lists them.

    Raises UsageError for unknown keywords and values, InputError for models that cannot be read or exported.
    """
    source = _source("estimate", model, args, kwargs, dynamic_shapes, {"gpu": gpu, **setup}, route)
    if confirm and source.scratch:
        source = _confirmed(source, model, args, kwargs, {"gpu": gpu, **setup})
    elif confirm:
        source = Source([*source.words, "--confirm"], source.folder, source.scratch, source.name)
    return Report(_answer(source, timeout), source)


def assert_fits(model: Model, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None, *, gpu: str,
                dynamic_shapes: Any = None, route: str = "auto", timeout: Optional[float] = None, **setup: Any) -> Report:
    """estimate(), and DoesNotFit with the reason unless it fits. `fail_on` chooses the verdicts that raise: a list of
    "no-fit", "unknown" and "tight" (default no-fit and unknown)."""
    report = estimate(model, args, kwargs, gpu=gpu, dynamic_shapes=dynamic_shapes, route=route, timeout=timeout, **setup)
    if report.exit_code == 0:
        return report
    gib = 2.0**30
    text = f"{report.verdict} on {report.device}: {report.peak / gib:.2f} GiB needed, {(report.limit or 0) / gib:.2f} GiB usable; {report.why}"
    helps = [", ".join(f"{k}={v!r}" for k, v in keywords(c.flags).items()) for c in report.changes if c.verdict in ("fits", "tight")]
    if helps:
        text += f"; with {' or '.join(helps[:3])} it does"
    raise DoesNotFit(text, report)


def suggest(model: Model, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None, *, gpu: str,
            dynamic_shapes: Any = None, timeout: Optional[float] = None, **setup: Any) -> Suggestion:
    """Searches setups that fit, fastest first; arguments as of estimate(). `framework="hf"` chooses what `settings` is written for."""
    if "framework" in setup:
        setup["for"] = setup.pop("framework")
    source = _source("suggest", model, args, kwargs, dynamic_shapes, {"gpu": gpu, **setup})
    return Suggestion(_answer(source, timeout), source)


def size(model: Model, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None, *, gpu: Optional[str] = None,
         dynamic_shapes: Any = None, timeout: Optional[float] = None, **setup: Any) -> Size:
    """The largest batch, sequence and KV cache, the fewest GPUs and the smallest cards; arguments as of estimate()."""
    source = _source("size", model, args, kwargs, dynamic_shapes, {"gpu": gpu, **setup})
    return Size(_answer(source, timeout), source)


def sweep(model: Model, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None, *,
          dynamic_shapes: Any = None, timeout: Optional[float] = None, **setup: Any) -> Sweep:
    """A table over lists of values: sweep("model.pt2", gpu=["l4", "a10"], batch=[1, 2, 4]); arguments as of estimate()."""
    source = _source("sweep", model, args, kwargs, dynamic_shapes, setup)
    return Sweep(_answer(source, timeout), source)


def check(targets: Sequence[str] = (), *, config: Union[None, str, "os.PathLike[str]"] = None, timeout: Optional[float] = None, **flags: Any) -> Check:
    """The gate: targets of memplan.toml (default: all) against their limits and the baseline. Raises nothing for a target that fails."""
    settings: Mapping[str, Any] = {"config": config, **flags}
    source = Source(["check", *targets, *words(settings, "check")])
    return Check(_binary.call_json(source.words, None, timeout), source)
