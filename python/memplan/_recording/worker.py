"""python -m memplan._recording.worker JOB FOLDER: builds the module of the job and runs each setup at each size in a process of its own."""
from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, Callable, Dict, List, Optional

from . import compiled, functions, hollow, lines, program
from .calls import Calls
from .compiled_trace import CompiledTrace
from .tape import WATCHED, Watcher
from .trace import Trace


def _resized(job: Dict[str, Any], batch: Optional[int], torch: Any) -> List[Any]:
    """The tensors of the call, with the batch in its dimensions."""
    found = []
    for i, leaf in enumerate(job["leaves"]):
        size, axes = list(leaf.shape), job["axes"][i]
        if batch is not None and axes:
            for axis in axes:
                size[axis] = batch
            leaf = torch.zeros(size, dtype=leaf.dtype)
        found.append(leaf.detach())
    return found


def _child(job: Dict[str, Any], task: Dict[str, Any]) -> Dict[str, Any]:
    import torch
    from torch.utils._pytree import tree_unflatten

    torch.manual_seed(0)
    model = job["module"]
    if not isinstance(model, torch.nn.Module):
        model = model()

    def call(model: Any, x: List[Any]) -> Any:
        # The containers live as long as the call, as those of a literal call do.
        args, kwargs = tree_unflatten([x[v] if kind == "tensor" else v for kind, v in job["flat"]], job["spec"])
        return model(*args, **kwargs)

    c, host_x = task["setup"], _resized(job, task["batch"], torch)
    if task["kind"] == "target":
        model.train().to("cuda")
        half = getattr(torch, program.HALF.get(c["precision"], "float32"))
        if c["precision"] in ("bf16", "fp16"):
            model.to(half)
            host_x = [x.to(half) if x.is_floating_point() else x for x in host_x]
        with torch.autocast("cuda", dtype=half, enabled=c["precision"].startswith("amp")):
            with torch.no_grad():
                output = call(model, [x.to("cuda") for x in host_x])
            if program.returns_scalars(output):
                output = call(model, [x.to("cuda") for x in host_x])
            return dict(target=program.target_of(c, output))
    if task["kind"] == "tape":
        tape = Watcher(model, c["mode"] == "training")
        program.run(dict(c, steps=WATCHED), model, call, host_x, task["target"], tape)
        return dict(tape=tape.program.document())
    if task["kind"] == "compiled":
        return _compiled(task, model, call, host_x)
    if task["kind"] == "calls":
        log = Calls(model)
        with log:
            program.run(c, model, call, host_x, task["target"], log)
    else:
        log = Trace()
        program.run(c, model, call, host_x, task["target"], log)
    found = lines.of(log)
    if task["kind"] == "calls":
        found["calls"] = lines.calls_of(log)
    return _described(found, model, host_x)


def _compiled(task: Dict[str, Any], model: Any, call: Any, host_x: List[Any]) -> Dict[str, Any]:
    if task["pad"]:
        import torch._inductor.config as config

        config.force_shape_pad = True
    log = CompiledTrace(model)
    program.run(task["setup"], model, call, host_x, task["target"], log)
    found = dict(lines.of(log), calls=log.calls(), report=compiled.report())
    if not found["report"] or not found["report"]["graphs"]:
        why = "; ".join(f"{x['function']}: {x['reason']}" for x in (found["report"] or {}).get("eager", ()))
        raise RuntimeError("torch.compile compiled nothing of it" + (f" ({why})" if why else ""))
    return _described(found, model, host_x)


def _described(found: Dict[str, Any], model: Any, host_x: List[Any]) -> Dict[str, Any]:
    found["inputs"] = [[str(x.dtype).removeprefix("torch."), list(x.shape)] for x in host_x]
    found["model"] = lines.model_of(model)
    found["unknown"] = _unknown()
    return found


def _unknown() -> List[Any]:
    """Sizes that only a device knows, which the emulated one was asked for: [what, how often]."""
    import ctypes

    native, found, count = ctypes.CDLL(None), [], ctypes.c_uint64()
    if not hasattr(native, "emulated_gpu_unknown_at"):
        return []
    native.emulated_gpu_unknown_at.restype = ctypes.c_char_p
    while what := native.emulated_gpu_unknown_at(len(found), ctypes.byref(count)):
        found.append([what.decode(), count.value])
    return found


def _failure(error: BaseException) -> Dict[str, Any]:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "memplan/_recording" not in f.filename]
    at = frames[-1] if frames else None
    for f in frames:  # the innermost line that is not PyTorch's own
        if "/torch/" not in f.filename:
            at = f
    # What CUDA adds to every error is about another machine.
    text = str(error).strip().partition("\nSearch for `cuda")[0].partition("\nCUDA kernel errors might")[0]
    return dict(error=f"{type(error).__name__}: {text or 'no text'}"[:2000], where=f"{at.filename}:{at.lineno} {at.line}" if at else "")


def _import_what_it_did(path: str) -> None:
    """What a run imports on its way, the next ones find imported."""
    import importlib

    try:
        with open(path) as f:
            names = json.load(f)
        os.unlink(path)
    except (OSError, ValueError):
        return
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException:  # the run will say so if it matters
            pass


def _end_with_parent() -> None:
    """A killed process leaves no run behind that nobody waits for (prctl's PR_SET_PDEATHSIG)."""
    import ctypes
    import signal

    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except (OSError, AttributeError):  # not on Linux
        pass


_count_devices: Optional[Callable[[], int]] = None  # CUDA's own, while another answers


def _keep_forks_usable() -> None:
    """Asked for its GPUs while modules are imported (`"cuda" if torch.cuda.is_available() else "cpu"`, diffusers), CUDA refuses to work in copies of
    this process (poison_fork, torch/csrc/cuda/Module.cpp). There is one, and it is asked in the copies."""
    import torch

    global _count_devices
    if "EMULATED_GPU" in os.environ:
        _count_devices, torch._C._cuda_getDeviceCount = torch._C._cuda_getDeviceCount, lambda: 1


def _use_cuda_here() -> None:
    import torch

    if _count_devices:
        torch._C._cuda_getDeviceCount = _count_devices
    if torch.cuda._initialized:  # by a module that was imported; an emulated GPU is memory, which a copy has as well
        torch.cuda._is_in_bad_fork = lambda: False


def main() -> None:
    _end_with_parent()
    job_path, folder = sys.argv[1:3]
    sys.stdout = sys.stderr
    with open(job_path + ".main", "rb") as f:
        import pickle

        main_module = pickle.load(f)
    functions.install()
    _keep_forks_usable()
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        compiled.install()
    if main_module:
        from multiprocessing import spawn

        spawn.prepare(main_module)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the module prints
    try:
        with open(job_path, "rb") as f:
            job = hollow.read(f)
    except Exception as error:
        print(json.dumps(dict(_failure(error), building=True)), file=answers, flush=True)
        return
    # Optimizers import it when they are made; once here is sooner than in every run.
    import torch._dynamo  # noqa: F401

    print(json.dumps(dict(ready=True)), file=answers, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _end_with_parent()
            _use_cuda_here()
            path, known = os.path.join(folder, "answer.json"), set(sys.modules)
            try:
                found = _child(job, task)
            except BaseException as error:
                if os.environ.get("MEMPLAN_RECORDING_DEBUG"):
                    traceback.print_exc()
                found = _failure(error)
            with open(path, "w") as out:
                json.dump(found, out, separators=(",", ":"))
            with open(path + ".modules", "w") as out:
                json.dump(sorted(set(sys.modules) - known), out)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        _import_what_it_did(os.path.join(folder, "answer.json.modules"))
        print(json.dumps(dict(done=status)), file=answers, flush=True)


if __name__ == "__main__":
    main()
