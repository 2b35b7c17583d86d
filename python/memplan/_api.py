"""estimate() and assert_fits()."""
from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple, Union

from . import _binary, _export
from ._errors import DoesNotFit
from ._report import Report
from ._source import Source
from ._words import words

if TYPE_CHECKING:
    import torch

Model = Union[str, "os.PathLike[str]", "torch.nn.Module"]


def _source(model: Model, args: Tuple[Any, ...], kwargs: Optional[Dict[str, Any]], dynamic_shapes: Any, flags: Dict[str, Any]) -> Source:
    if isinstance(model, (str, os.PathLike)):
        if args or kwargs or dynamic_shapes is not None:
            raise TypeError("a file brings its own inputs: args, kwargs and dynamic_shapes go with a torch.nn.Module")
        path = os.fspath(model)
        # A path is never a flag.
        return Source(["estimate", os.path.join(os.curdir, path) if path.startswith("-") else path, *words(flags)])
    if not _export.is_module(model):
        raise TypeError(f"a path or a torch.nn.Module is needed, not {type(model).__name__}")
    if not isinstance(args, (tuple, list)):
        args = (args,)
    given = words(flags)  # before the export, which takes seconds
    scratch = tempfile.TemporaryDirectory(prefix="memplan-")
    path = _export.export(model, tuple(args), kwargs, dynamic_shapes, scratch.name)
    return Source(["estimate", os.path.basename(path), *given], scratch.name, scratch)


def estimate(model: Model, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None, *, gpu: Optional[str] = None,
             dynamic_shapes: Any = None, timeout: Optional[float] = None, **setup: Any) -> Report:
    """Estimates one setup.

    model: a path (.onnx, .pt2, …), or a torch.nn.Module, which is exported with torch.export on tensors without memory;
        args and kwargs are those of its forward pass, of which only shapes and dtypes count. Tensors may be on "meta".
    gpu: a card, a class of cards or a size, as --gpu. Without it there is no verdict.
    dynamic_shapes: of torch.export.export; without it the sizes of `args` are those of the step.
    timeout: seconds for the estimate, None for no limit.
    setup: flags of the command line with underscores: batch=8, precision="amp-bf16", optimizer="sgd", clip=True,
        checkpoint=["blocks"], dim={"seq": 1024}. docs/cli.md lists them.

    Raises UsageError for unknown keywords and values, InputError for models that cannot be read or exported.
    """
    source = _source(model, args, kwargs, dynamic_shapes, {"gpu": gpu, **setup})
    return Report(_binary.call_json(source.words, source.folder, timeout), source)


def assert_fits(model: Model, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None, *, gpu: str,
                dynamic_shapes: Any = None, timeout: Optional[float] = None, **setup: Any) -> Report:
    """estimate(), and DoesNotFit with the reason unless it fits. `fail_on` chooses the verdicts that raise: a list of
    "no-fit", "unknown" and "tight" (default no-fit and unknown)."""
    report = estimate(model, args, kwargs, gpu=gpu, dynamic_shapes=dynamic_shapes, timeout=timeout, **setup)
    if report.exit_code == 0:
        return report
    gib = 2.0**30
    text = f"{report.verdict} on {report.device}: {report.peak / gib:.2f} GiB needed, {(report.limit or 0) / gib:.2f} GiB usable; {report.why}"
    helps = [c.flags for c in report.changes if c.verdict in ("fits", "tight")]
    if helps:
        text += f"; with {' or '.join(helps[:3])} it does"
    raise DoesNotFit(text, report)
