"""How estimate() goes from a module to a file: by running the module on the emulated GPU, and by a plain export where that cannot be had."""
from __future__ import annotations

import os
import re
import sys
import tempfile
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from . import _binary, _export, _record
from ._errors import Error, InputError, UsageError
from ._recording import device, options, program

ROUTES = ("auto", "record", "export")
# What says how the file is run and not how the module is: an export answers it.
OF_GRAPHS = ("dim", "torch", "env", "runtime", "kv_cache", "cudnn", "input")
WORDS = {"train": "training", "infer": "inference"}
OPTIMIZERS: Dict[str, Dict[str, Any]] = {"sgd-momentum": dict(optimizer="sgd", momentum=0.9), "adamw-amsgrad": dict(optimizer="adamw", amsgrad=True)}


@dataclass
class Run:
    """What a module is asked to do, as record() takes it."""
    setup: Dict[str, Any]
    complete: bool  # nothing else was asked that PyTorch would have to do
    batch: Optional[int]
    gpu: str


class Impossible(Exception):
    """Why the module is not run; a plain export answers instead."""


def run_of(flags: Mapping[str, Any]) -> Run:
    """The setup that keywords ask for, as far as the reference program can run it by itself; the program works out the rest (checkpoints, sharding …)."""
    asked = {k: v for k, v in flags.items() if v is not None and v is not False}
    given = next((name for name in OF_GRAPHS if name in asked), None)
    if given:
        raise Impossible(f"{given}= is asked of a graph")
    setup: Dict[str, Any] = {}
    if "mode" in asked:
        setup["mode"] = WORDS.get(str(asked["mode"]), asked["mode"])
    if "precision" in asked or "amp" in asked:
        setup["precision"] = asked.get("precision", f"amp-{asked.get('amp')}")
    if "optimizer" in asked:
        setup.update(OPTIMIZERS.get(str(asked["optimizer"]), dict(optimizer=asked["optimizer"])))
    names = {"optimizer_impl": "impl", **{k: k for k in ("momentum", "accumulate", "clip", "zero_grad", "loss", "compile", "activation_memory_budget", "steps")}}
    setup.update({names[k]: v for k, v in asked.items() if k in names})
    complete = not set(asked) - set(names) - PLAIN
    try:
        options.checked(setup.get("compile", False))
    except ValueError as error:
        raise UsageError(str(error), code=2) from error
    try:
        program.complete(setup)
    except ValueError:  # an optimizer that only memplan knows: worked out from the calls of the default one
        setup, complete = {k: v for k, v in setup.items() if k == "mode" and v in program.CHOICES["mode"]}, False
    batch = asked.get("batch")
    return Run(setup, complete, int(batch) if batch is not None else None, _card(asked.get("gpu")))


# Keywords that change no byte that PyTorch asks for.
PLAIN = {"mode", "precision", "amp", "optimizer", "batch", "seq", "gpu", "margin", "utilization", "reserve", "fail_on", "no_search", "alloc_conf", "top", "timeline", "max_peak",
         "warn_peak", "baseline", "max_increase", "warn_increase"}


def _card(gpu: Any) -> str:
    """The card that stands for a class of cards: "80GB" is the smallest of that label."""
    return str(_binary.call_json(["devices", str(gpu)], None, 60)["key"]) if gpu else "h100-80gb"


def _guarded() -> bool:
    """Whether running the script again, as new processes do that look for its classes, leaves its work out."""
    if "cloudpickle" in sys.modules or _has("cloudpickle"):
        return True
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if not path:
        return True
    try:
        with open(path, encoding="utf-8") as f:
            return re.search(r"^if\s+__name__\s*==", f.read(), re.MULTILINE) is not None
    except (OSError, UnicodeDecodeError):
        return False


def _has(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def resized(args: Tuple[Any, ...], kwargs: Dict[str, Any], seq: Optional[int]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """The arguments with another number of tokens."""
    if seq is None:
        return args, kwargs
    import torch
    from torch.utils._pytree import tree_map_only

    axes, found = _export._open_axes(args, kwargs), []

    def with_tokens(t: Any) -> Any:
        mine = [a for a, role in axes(t).items() if role == "sequence"]
        found.extend(mine)
        shape = [seq if a in mine else n for a, n in enumerate(t.shape)]
        return torch.empty(shape, dtype=t.dtype, device="meta") if mine else t

    out = tree_map_only(torch.Tensor, with_tokens, (args, kwargs))
    if not found:
        raise Impossible("no argument has a sequence for seq=")
    return out  # type: ignore[no-any-return]


def record(module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], path: str, asked: Run, seq: Any, *, confirming: bool = False) -> Optional[int]:
    """Writes the recording that answers what was asked, and returns its batch; `confirming`: that setup alone, with nobody looking on. Impossible where there is no emulated GPU, or the module does not run there."""
    if device.library() is None:
        raise Impossible("the emulated GPU is not at hand")
    if confirming and not asked.complete:
        raise Impossible("the setup changes the program, and the module runs as it is")
    try:
        call = _record.Call(module, *resized(args, kwargs, int(seq) if seq is not None else None))
        batch = asked.batch or _record.size_of(call)
        # A compiled program is compiled anew for every size, which takes a while.
        sizes = ([batch] if confirming or asked.setup.get("compile") else _record.three_of(batch)) if batch else None
        _record.write(call, path, sizes, [program.complete(asked.setup)], asked.gpu, calls=not confirming, again=_guarded())
        return batch
    except (InputError, UsageError) as error:
        raise Impossible(_text(error)) from error


def record_into(module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], path: str) -> None:
    """Puts a recording of the usual setups into a file of the module. Impossible where it cannot be had."""
    if device.library() is None:
        raise Impossible("the emulated GPU is not at hand")
    try:
        call = _record.Call(module, args, kwargs)
        with tempfile.TemporaryDirectory(prefix="memplan-") as folder:
            made = _record.write(call, os.path.join(folder, "recording.memplan"), None, _record.completed(None), "h100-80gb", again=_guarded())
            _record.attach(made, path)
    except (InputError, UsageError) as error:
        raise Impossible(_text(error)) from error


def _text(error: Error) -> str:
    return f"{error.message}{f' ({error.where})' if error.where else ''}"
