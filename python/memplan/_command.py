"""`memplan export` and `memplan record`."""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import warnings
from typing import Any, Callable, Dict, Iterator, List

from ._errors import Error

# What a wrong configuration may take: a billion layers end here.
MOST_MEMORY = 16 << 30

ABOUT = {
    "export": "Writes the graph of a model, without weights, as a .pt2 archive: every setup can be asked of it.",
    "record": "Runs a model's own code on the emulated GPU and writes what it allocates as a .memplan file: exact for the setups that were recorded.",
}
SOURCES = """SOURCE is one of
  train.py:make_model      a function that returns a module, (module, args) or (module, args, kwargs), or a module
  path/to/folder           a folder or config.json of transformers, whose own code builds the model on the meta device
  hf:org/name              a model whose config.json is in the Hugging Face cache (--download fetches it)
  timm:NAME, torchvision:NAME

No weight is read or written."""


def _parser(command: str) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog=f"memplan {command}", description=ABOUT[command] + "\n\n" + SOURCES, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source", metavar="SOURCE")
    p.add_argument("-o", "--output", metavar="FILE", help="default: the model's name")
    p.add_argument("--batch", type=int, metavar="N", help="batch size of the inputs (default 2)")
    p.add_argument("--seq", type=int, metavar="N", help="tokens of the inputs (default 512, or the model's longest)")
    p.add_argument("--image", type=int, metavar="N", help="height and width of the images (default: the model's)")
    p.add_argument("--input", action="append", default=[], metavar="NAME:DTYPE:SHAPE", help="an input, as in x:float32:4,3,224,224; may be repeated")
    p.add_argument("--class", dest="model_class", metavar="NAME", help="class of transformers (default: the configuration's)")
    from ._sources import TASKS

    p.add_argument("--task", choices=list(TASKS), help="instead of a class")
    p.add_argument("--no-labels", dest="labels", action="store_false", help="leave the model's own loss out")
    p.add_argument("--dtype", metavar="D", help="dtype of the parameters")
    p.add_argument("--eval", action="store_true", help="in evaluation mode (default: training mode)")
    p.add_argument("--gradient-checkpointing", action="store_true", help="call the model's gradient_checkpointing_enable()")
    p.add_argument("--trust-remote-code", action="store_true", help="run code that a model of transformers brings along")
    p.add_argument("--download", action="store_true", help="fetch the configuration of org/name where the cache does not have it")
    p.add_argument("--for-program", action="store_true", help=argparse.SUPPRESS)
    if command == "export":
        p.add_argument("--static", action="store_true", help="fix every size (default: batch and sequence stay open)")
    else:
        p.add_argument("--setup", action="append", metavar="KEY=VALUE,…", help="a setup to record, as in precision=amp-bf16,optimizer=sgd; may be repeated")
        p.add_argument("--batches", metavar="N,N,N", help="batch sizes to record (default: three)")
        p.add_argument("--gpu", default="h100-80gb", help="the card whose kernels PyTorch chooses (default h100-80gb)")
        p.add_argument("--into", metavar="FILE", help="an ONNX file or .pt2 archive of the same module that the recording goes into")
    return p


def _setups(texts: List[str]) -> List[dict]:  # type: ignore[type-arg]
    out = []
    for text in texts:
        row = {}
        for part in filter(None, text.split(",")):
            key, _, value = part.partition("=")
            row[key] = _typed(value)
        out.append(row)
    return out


def _typed(value: str) -> Any:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        return int(value) if value.isdigit() else float(value)
    except ValueError:
        return value


def run(command: str, words: List[str]) -> int:
    o = _parser(command).parse_args(words)
    try:
        if o.for_program:
            return _answer_program(o, _export_for_program if command == "export" else _record_for_program)
        return _run(command, o)
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print(f"error: PyTorch is not installed in this Python ({sys.executable}). Use the Python that the model runs in: pip install memplan there", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


def _choice(o: argparse.Namespace) -> Any:
    from ._sources import Choice

    return Choice(o.batch, o.seq, o.image, o.model_class, o.task, o.labels, o.dtype, o.trust_remote_code, o.input, o.download)


def _make(o: argparse.Namespace) -> Any:
    from . import _sources
    from ._errors import UsageError

    made = _sources.make(o.source, _choice(o))
    if o.gradient_checkpointing:
        enable = next((f for f in (getattr(made.module, n, None) for n in ("activation_checkpointing_enable", "gradient_checkpointing_enable", "set_grad_checkpointing")) if f), None)
        if enable is None:
            raise UsageError(f"{type(made.module).__name__} has no gradient_checkpointing_enable()", "--gradient-checkpointing", "name the modules: --checkpoint blocks", 2)
        enable()
    if o.eval:
        made.module.eval()
    return made


def _run(command: str, o: argparse.Namespace) -> int:
    from . import _export, _record

    made = _make(o)
    to = o.output or made.name + (".pt2" if command == "export" else ".memplan")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if command == "export":
            _export.export(made.module, made.args, made.kwargs, to, dynamic_shapes=None if o.static else "auto")
        else:
            _recorded(o, made, to, [int(n) for n in o.batches.split(",")] if o.batches else None)
            if o.into:
                to = _record.attach(to, o.into)
    print(f"{to}  {os.path.getsize(to) / 1024:.0f} KiB  {'; '.join(made.said or [type(made.module).__name__])}")
    for w in caught:
        if issubclass(w.category, _export.ExportWarning):
            print(f"note: {w.message}")
    print(f"next: memplan {to} --gpu 24GB")
    return 0


@contextlib.contextmanager
def _own_stdout() -> Iterator[Any]:
    """The real standard output; what a model's code prints goes to the other one."""
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        yield answer


def _recorded(o: argparse.Namespace, made: Any, to: str, batches: Any, calls: bool = True) -> None:
    """What makes the module stands in the file."""
    from . import _record, _route

    args, kwargs = made.args, made.kwargs
    if o.seq and ".py:" in o.source:  # whose own arguments they are
        args, kwargs = _route.resized(args, kwargs, o.seq)
    setups = _record.completed(_setups(o.setup) if o.setup else None)
    _record.write(_record.Call(made.module, args, kwargs, source=_source_of(o)), to, batches, setups, o.gpu, calls)


def _source_of(o: argparse.Namespace) -> Dict[str, Any]:
    """The argument and the flags that make the model; none that lets code of others run or fetches something."""
    flags: List[str] = []
    for name, value in (("--image", o.image), ("--class", o.model_class), ("--task", o.task), ("--dtype", o.dtype), *(("--input", i) for i in o.input)):
        if value:
            flags += [name, str(value)]
    flags += [name for name, given in (("--no-labels", not o.labels), ("--eval", o.eval), ("--gradient-checkpointing", o.gradient_checkpointing)) if given]
    return dict(argument=os.path.abspath(o.source) if os.path.exists(o.source) else o.source, flags=flags)


def _record_for_program(o: argparse.Namespace) -> str:
    """One run with nobody looking on."""
    from ._route import Impossible

    try:
        _recorded(o, _make(o), o.output, [int(o.batches)] if o.batches else (), calls=False)
    except Impossible as error:
        raise Error(str(error), o.source, "leave --seq out", 2) from error
    return str(o.output)


def _export_for_program(o: argparse.Namespace) -> str:
    from . import _cache, _export

    kept = _cache.place(o.source, _choice(o), [o.gradient_checkpointing, o.eval, o.static])
    if kept and _cache.used(kept):
        return kept
    made = _make(o)
    traced = _export.trace(made.module, made.args, made.kwargs, None if o.static else "auto")
    if made.said:
        traced.notes["MP023"] = "; ".join(made.said)
        if not o.batch:  # nobody has chosen it, so the program does, and says so
            traced.sizes = {name: size for name, size in traced.sizes.items() if traced.roles.get(name) != "batch"}
    _export.save(traced, o.output)
    if kept:
        _cache.keep(o.output, kept)
    return str(o.output)


def _answer_program(o: argparse.Namespace, make_file: Callable[[argparse.Namespace], str]) -> int:
    """One line of JSON: the path of the file, or the error."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    with contextlib.suppress(ValueError, OSError):
        if ".py:" not in o.source:
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY if hard < 0 else min(hard, MOST_MEMORY), hard))
    answer: Dict[str, Any]
    with _own_stdout() as out:
        try:
            answer = dict(path=make_file(o))
        except Error as error:
            answer = dict(message=error.message, where=error.where, hint=error.hint, code=error.code)
        except MemoryError:
            answer = dict(message=f"building the model takes more than {MOST_MEMORY >> 30} GiB", where=o.source, hint="check the sizes in its configuration", code=3)
        except (KeyboardInterrupt, SystemExit):
            raise
        except Exception as error:
            answer = dict(message=f"the export failed: {type(error).__name__}: {error}"[:400], where=o.source, hint="`memplan export` shows where", code=3)
        print(json.dumps(answer), file=out)
    return 0
