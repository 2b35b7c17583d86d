"""record(): a module's eager program, recorded (docs/recording.md)."""
from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _binary
from ._errors import Error, InputError, UsageError
from ._recording import archive, device, hollow, lift, options, program

SETUPS: Tuple[Dict[str, Any], ...] = (dict(), dict(precision="amp-bf16"), dict(mode="inference"), dict(mode="inference", precision="amp-bf16"))
# What stands in a recording must not depend on whether a card is full.
ROOM = str(1 << 43)


def _leaves(args: Tuple[Any, ...], kwargs: Dict[str, Any], batch: Union[int, None, Mapping[str, int]]) -> Tuple[Any, List[Any], List[Any], List[Any], List[str], int]:
    import torch
    from torch.utils._pytree import keystr, tree_flatten_with_path

    flat, leaves, axes, names = [], [], [], []
    found, spec = tree_flatten_with_path((args, kwargs))
    size = 0
    for where, value in found:
        if not isinstance(value, torch.Tensor):
            flat.append(("value", value))
            continue
        name = keystr(where[1:]).strip("[]'").replace("']['", ".").replace("][", ".").replace("'", "") or str(len(leaves))
        name = f"input_{name}" if name[0].isdigit() else name
        axis = batch.get(name) if isinstance(batch, Mapping) else batch
        mine: List[int] = []
        if axis is not None and value.dim() > axis and (size in (0, value.shape[axis]) or isinstance(batch, Mapping)):
            size, mine = value.shape[axis], [axis]
        flat.append(("tensor", len(leaves)))
        leaves.append(value)
        axes.append(mine)
        names.append(name)
    return spec, flat, leaves, axes, names, size


class _Worker:
    """The process that runs the module: one that has built it, and a copy of that one for each run."""

    def __init__(self, job: Dict[str, Any], library: str, gpu: str, timeout: float, again: bool = True, compiles: bool = False) -> None:
        self.scratch = tempfile.TemporaryDirectory(prefix="memplan-")
        self.timeout = timeout
        path = os.path.join(self.scratch.name, "job")
        try:
            with open(path, "wb") as f:
                hollow.write(job, f)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(f"the module cannot go to the process that records it: {error}",
                             hint="pass a function of a module file that makes it (memplan.record(make_model, …)), or install cloudpickle", code=3) from error
        # The script itself is run again only for classes that it defines.
        with open(path, "rb") as f, open(path + ".main", "wb") as main:
            of_script = b"__main__" in f.read()
            if of_script and not again:
                raise InputError("its class is defined in the script, which would run again", hint="put the script's work below if __name__ == '__main__':, or install cloudpickle", code=3)
            pickle.dump(_main_module() if of_script else None, main)
        environment = dict(os.environ, LD_PRELOAD=":".join(p for p in (library, os.environ.get("LD_PRELOAD")) if p), EMULATED_GPU=gpu, EMULATED_GPU_TOTAL=ROOM,
                           PYTHONPATH=os.pathsep.join(p or os.getcwd() for p in sys.path), MEMPLAN_RECORDING_WORKER="1", OMP_NUM_THREADS="1")
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        environment.pop("TORCHINDUCTOR_CACHE_DIR", None)
        if compiles:
            for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
                environment.pop(name, None)
            environment.update(_compiler(self.scratch.name, library))
        self.log = open(os.path.join(self.scratch.name, "log"), "w+", errors="replace")
        self.process = subprocess.Popen([sys.executable, "-m", "memplan._recording.worker", path, self.scratch.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env=environment)
        answer = self._answer()
        if "error" in answer:
            raise InputError(f"the module cannot be built again in the process that records it: {answer['error']}", answer.get("where", ""),
                             "pass a function of a module file that makes it: memplan.record(make_model, …)", 3)

    def _answer(self) -> Any:
        import select

        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], self.timeout)
        text = self.process.stdout.readline() if ready else ""
        if text:
            return json.loads(text)
        if not ready:
            self.process.kill()
            raise Error(f"the recording gave no answer within {self.timeout:g} s", hint="give it more time: timeout=")
        self.log.seek(0)
        last = [line for line in self.log.read().splitlines() if line.strip()][-3:]
        raise InputError(f"the process that records the module ended with {self.process.wait()}", " | ".join(last)[:600],
                         "a script that defines the module's class is imported there: put its work below if __name__ == '__main__':", 3)

    def run(self, **task: Any) -> Dict[str, Any]:
        assert self.process.stdin
        print(json.dumps(task), file=self.process.stdin, flush=True)
        status = self._answer()["done"]
        path = os.path.join(self.scratch.name, "answer.json")
        if status or not os.path.exists(path):
            raise InputError(f"the run of the module ended with status {status}", hint="it may have run out of memory", code=3)
        with open(path) as f:
            found: Dict[str, Any] = json.load(f)
        os.unlink(path)
        if "error" in found:
            what = f"{task['setup']['mode']}, {task['setup']['precision']}" + (f", batch {task['batch']}" if task["batch"] is not None else "")
            raise InputError(f"the module raises when it runs ({what}): {found['error']}", found.get("where", ""),
                             "check that it runs with these arguments; leave out setups that it does not support (setups=)", 3)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.scratch.cleanup()


def _compiler(folder: str, library: str) -> Dict[str, str]:
    """Caches of torch.compile that begin empty, and the driver's library under the name that Triton looks for."""
    driver = os.path.join(folder, "driver")
    os.makedirs(driver)
    os.symlink(library, os.path.join(driver, "libcuda.so.1"))
    return dict(TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, "inductor"), TRITON_CACHE_DIR=os.path.join(folder, "triton"), TORCHINDUCTOR_COMPILE_THREADS="1",
                TRITON_LIBCUDA_PATH=driver)


def _main_module() -> Any:
    """What multiprocessing tells a new process of the script, so that classes defined there are found."""
    main = sys.modules.get("__main__")
    if getattr(main, "__file__", None) is None:
        return None
    from multiprocessing import spawn

    return {k: v for k, v in spawn.get_preparation_data("memplan").items() if k.startswith(("init_main", "sys_path", "sys_argv"))}


def _sizes(size: int, batches: Optional[Sequence[int]], axes: List[Any]) -> List[Optional[int]]:
    if not any(axes):
        if batches:
            raise UsageError("batches= needs a tensor with a batch dimension", hint="say which dimension it is: batch=0", code=2)
        return [None]
    if batches is not None:
        chosen = sorted(set(batches))
        if not chosen or chosen[0] < 1:
            raise UsageError("batches are positive numbers", code=2)
        return list(chosen)
    return list(three_of(size))


def three_of(size: int) -> List[int]:
    """Two sizes and one to check the line through them. A batch of one often takes branches of its own, so it is not one of the three."""
    return [size, 2 * size, 3 * size + 1] if size > 1 else [1, 2, 4, 7]


def _add_calls(tapes: Dict[int, Dict[str, Any]], batch: int, worker: "_Worker", setup: Dict[str, Any], target: Any) -> None:
    """What is told of setups that did not run rests on a third look at the module; where it cannot be had, those that ran are recorded all the same."""
    try:
        tapes[batch] = worker.run(kind="tape", setup=setup, batch=batch or None, target=target)["tape"]
    except InputError as error:
        warnings.warn(f"the calls of {setup['mode']} {setup['precision']} are not part of the recording, which then answers what ran and nothing else: {error}",
                      RuntimeWarning, stacklevel=3)


def _run_compiled(worker: "_Worker", setup: Dict[str, Any], batch: Optional[int], target: Any) -> Tuple[Dict[str, Any], List[Dict[str, Any]]]:
    """The run with warm caches, and the peaks of others: with empty ones, which has the compiler's own trials in it, and with matrix products padded wherever
    PyTorch measures on a device whether that is quicker."""
    def task(pad: bool) -> Dict[str, Any]:
        return worker.run(kind="compiled", setup=setup, batch=batch, target=target, pad=pad)

    cold = task(False)
    others = [("cold", cold)] + ([("padded", task(True))] if cold["report"]["padding_measured"] else [])
    warm = task(False)
    return warm, [dict(how=how, batch=batch, peak=[max(p[c] for p in run["peaks"]) for c in ("requested", "allocated", "reserved")]) for how, run in others]


def record(module: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None, path: Union[str, "os.PathLike[str]", None] = None, *,
           batch: Union[int, None, Mapping[str, int]] = 0, batches: Optional[Sequence[int]] = None, setups: Optional[Sequence[Dict[str, Any]]] = None,
           gpu: str = "h100-80gb", calls: bool = True, timeout: float = 600, into: Union[str, "os.PathLike[str]", None] = None) -> str:
    """Records the eager program of a module and writes it to `path` (default: the class's name, with the ending .memplan). Returns the path.

    module: a torch.nn.Module, whose weights are neither read nor copied, or a function that makes one. args, kwargs: of its forward pass; of tensors only
        shapes and dtypes count.
    batch: the dimension that is the batch, in every tensor that has there what the first one has; None where there is none; {name: dimension} to say it of
        each argument ("input_0" by position, or its keyword).
    batches: sizes to record. Default: that of the arguments and two more, which tell how every allocation grows and check it.
    setups: what to record, as dictionaries of flags (mode, precision, optimizer, impl, momentum, accumulate, clip, zero_grad, loss, steps). Default:
        training with AdamW in fp32 and under bf16 autocast, and inference in both. compile=True is torch.compile(module), compile=dict(dynamic=True) has its keywords; of a module
        that is compiled already every setup is.
    gpu: the card whose kernels PyTorch chooses. calls=False leaves the ATen calls out: a smaller file, and half of the time.
    timeout: seconds for one run. into: an ONNX file or a .pt2 archive of the module that the recording is put into; memplan FILE then answers by it.
    """
    if os.environ.get("MEMPLAN_RECORDING_WORKER"):
        raise Error("memplan.record() was called while a recording builds its module again", hint="put the script's work below if __name__ == '__main__':")
    module, compiled = eager(module)
    call = Call(module, tuple(args) if isinstance(args, (tuple, list)) else (args,), dict(kwargs or {}), batch)
    chosen = completed(setups)
    if compiled:
        chosen = [dict(s, compile=compiled) for s in chosen]
    if into is None:
        return write(call, path, batches, chosen, gpu, calls, timeout)
    with tempfile.TemporaryDirectory(prefix="memplan-") as folder:
        made = write(call, path or os.path.join(folder, "recording.memplan"), batches, chosen, gpu, calls, timeout)
        return attach(made, os.fspath(into))


def eager(module: Any) -> Tuple[Any, options.Compile]:
    """What torch.compile(module, …) was made of, and with which keywords; (module, False) of other modules."""
    try:
        return options.of_module(module)
    except ValueError as error:
        raise UsageError(f"the module cannot be recorded as it is compiled: {error}", code=2) from error


def completed(setups: Optional[Sequence[Dict[str, Any]]]) -> List[Dict[str, Any]]:
    try:
        return [program.complete(dict(s)) for s in (SETUPS if setups is None else setups)]
    except ValueError as error:
        raise UsageError(str(error), code=2) from error


def attach(recording: str, file: str) -> str:
    """Puts a recording into the ONNX file or .pt2 archive of its module. Returns that file's path."""
    said: List[str] = []
    code, _ = _binary.call(["attach", "--", recording, file], None, None, said)
    if code:
        raise InputError(said[0].strip().removeprefix("error: "), code=code)
    return file


@dataclass
class Call:
    """A module, or what makes one, with the arguments of its forward pass."""
    module: Any
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    batch: Union[int, None, Mapping[str, int]] = 0
    source: Optional[Dict[str, Any]] = None  # what makes the module: an argument of the command line, and flags


def size_of(call: Call) -> Optional[int]:
    """The batch of the arguments; None where there is none."""
    return _leaves(call.args, call.kwargs, call.batch)[-1] or None


def write(call: Call, path: Union[str, "os.PathLike[str]", None], batches: Optional[Sequence[int]], setups: Sequence[Dict[str, Any]], gpu: str, calls: bool = True,
          timeout: float = 600, again: bool = True) -> str:
    """record() of complete setups. batches: () for that of the arguments alone. again: the script may be run again where it defines the module's class."""
    library = device.library()
    if library is None:
        raise Error("the emulated GPU, on which a module is recorded, is not built",
                    hint="cmake --preset release -DMEMPLAN_TORCH_PYTHON=$(command -v python) && cmake --build build/release --target emulated_gpu; "
                         "MEMPLAN_EMULATED_GPU names a library that lies elsewhere")
    import torch

    if not callable(call.module):
        raise TypeError(f"a torch.nn.Module or a function that makes one is needed, not {type(call.module).__name__}")
    spec, flat, leaves, axes, names, size = _leaves(call.args, call.kwargs, call.batch)
    sizes = _sizes(size, [size] if batches is not None and not batches and size else batches or None, axes)
    worker = _Worker(dict(module=call.module, spec=spec, flat=flat, leaves=leaves, axes=axes), library, gpu, timeout, again, any(s["compile"] for s in setups))
    try:
        runs, rows, inputs, first = [], [], {}, None
        for setup in setups:
            records: Dict[int, Dict[str, Any]] = {}
            watched: Dict[int, Dict[str, Any]] = {}
            tapes: Dict[int, Dict[str, Any]] = {}
            others: List[Dict[str, Any]] = []
            for b in sizes:
                target = worker.run(kind="target", setup=setup, batch=b, target=None)["target"] if setup["mode"] == "training" else None
                if setup["compile"]:
                    records[b or 0], found = _run_compiled(worker, setup, b, target)
                    watched[b or 0] = records[b or 0]
                    others += found
                elif calls:
                    watched[b or 0] = worker.run(kind="calls", setup=setup, batch=b, target=target)
                    _add_calls(tapes, b or 0, worker, setup, target)
                if not setup["compile"]:
                    records[b or 0] = worker.run(kind="events", setup=setup, batch=b, target=target)
                inputs[b] = records[b or 0]["inputs"]
                first = first or records[b or 0]
            member, complete = archive.run_member(records, watched)
            tapes = tapes if len(tapes) == len(sizes) else {}
            runs.append((member, lift.lifted(tapes) if tapes else None))
            unknown = {what: count for r in records.values() for what, count in r["unknown"]}
            rows.append(dict(setup=dict(setup, compile=bool(setup["compile"])), events=f"runs/{len(rows)}/events.json", calls=f"runs/{len(rows)}/calls.json" if tapes else None, causes=complete,
                             unknown=sorted(unknown.items()), **(dict(others=others) if others else {}),
                             **(dict(compiled_with=text) if (text := options.text_of(setup["compile"])) else {})))
    finally:
        worker.close()
    assert first
    name = first["model"]["class"].rsplit(".", 1)[-1]
    to = os.fspath(path) if path is not None else f"{name}.memplan"
    open_axes = [[i, a, "batch"] for i, mine in enumerate(axes) for a in mine]
    index = dict(format="memplan recording", version=archive.VERSION, torch=torch.__version__, gpu=gpu, evidence="emulated device", model=first["model"],
                 inputs=[[n, *inputs[sizes[0]][i]] for i, n in enumerate(names)], open=open_axes, batches=[b for b in sizes if b is not None], runs=rows)
    if call.source:
        index["source"] = call.source
    archive.write(to, index, runs)
    return to
