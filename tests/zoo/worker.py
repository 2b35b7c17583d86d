"""A process that has imported PyTorch and copies itself for every job: python worker.py < jobs, one JSON line each, answers in the same way.

Each copy has a time and a memory limit. What a model prints goes nowhere. Under LD_PRELOAD=…/libemulated_gpu.so it takes
truths and records; without it, it exports. Jobs: {"kind": "names"}, {"kind": "truth" | "pt2" | "onnx" | "recording", "name", …}.
"""
import contextlib
import json
import os
import select
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "recording"), os.path.join(HERE, "..", "..", "python")]
SECONDS, BYTES = float(os.environ.get("MEMPLAN_ZOO_SECONDS", 90)), 6 << 30  # of a processor, so that a busy machine does not decide which models there are
TICKS = os.sysconf("SC_CLK_TCK")


def taken(group):
    """(seconds of a processor, bytes) of all processes of a group."""
    seconds = total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/stat") as f:
                stat = f.read().rsplit(")", 1)[1].split()
            if int(stat[2]) == group:
                total += int(stat[21]) * 4096
                seconds += sum(map(int, stat[11:15])) / TICKS
    return seconds, total


def answer_of(work, seconds=None):
    """What work() returns in a copy of this process, or {"error": …}."""
    read, write = os.pipe()
    seconds = seconds or SECONDS
    if (pid := os.fork()) == 0:
        os.setpgid(0, 0)
        os.close(read)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        try:
            answer = work()
        except BaseException as e:
            answer = dict(error=f"{type(e).__name__}: {e}"[:400])
        with contextlib.suppress(BaseException), os.fdopen(write, "w") as f:
            json.dump(answer, f)
        os._exit(0)
    os.close(write)
    text, why, until = b"", None, time.monotonic() + 40 * seconds
    while True:
        ready, _, _ = select.select([read], [], [], 1)
        if ready:
            more = os.read(read, 1 << 16)
            if not more:
                break
            text += more
        else:
            used, held = taken(pid)
            why = "the time limit" if used > seconds or time.monotonic() > until else "the memory limit" if held > BYTES else None
        if why:
            break
    os.close(read)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if why or not text:
        return dict(error=why or "the process died")
    return json.loads(text)


def seeded(name, batch):
    import torch

    import catalogue

    torch.manual_seed(0)
    torch.set_num_threads(1)
    return catalogue.make(name, batch)


def inner(work):
    """A copy within a job: for what touches the device. Same group, so that the limits reach it."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            answer = work()
        except BaseException as e:
            answer = dict(error=f"{type(e).__name__}: {e}"[:400])
        with os.fdopen(write, "w") as f:
            json.dump(answer, f)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else dict(error="the process died")


def truth(name):
    """Which arguments the model takes, and PyTorch's counters of every set-up."""
    import torch
    import truth as program  # tests/recording/truth.py: the reference program, without anybody looking on

    import naming

    model, candidates = seeded(name, naming.batch(name))

    def shape(args, kwargs):
        model.train()
        model.to("cuda")
        call = lambda: model(*[a.to("cuda") for a in args], **{k: v.to("cuda") for k, v in kwargs.items()})
        with torch.no_grad():
            output = call()
        first, *others = program.floating(output)
        own = program.own_loss(model, call()) if first.dim() and any(t.dim() == 0 for t in others) else None
        return dict(shape=list(first.shape), own=own)

    error = None
    for chosen, (args, kwargs) in enumerate(candidates):
        found = inner(lambda: shape(args, kwargs))
        if "shape" in found:
            break
        error = error or found["error"]
    else:
        return dict(error=error)
    target = ("own", found["own"]) if found["own"] else program.target_sizes(found["shape"])

    def run(setup):
        return dict(steps=program.steps(model, args, kwargs, setup, target if setup["mode"] == "training" else None))

    return dict(arguments=chosen, parameters=sum(p.numel() for p in model.parameters()), setups={k: inner(lambda: run(v[0])) for k, v in naming.SETUPS.items()})


def strip(source, target):
    """The archive without its weights: their bytes are not read, and hundreds of models would fill the disk."""
    import zipfile

    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            if "/data/weights/" not in member.filename or member.filename.endswith(".json"):
                new.writestr(member.filename, old.read(member))


def dynamic(name, arguments, attempt):
    """attempt(model, args, kwargs, dynamic shapes) with the batch open, however the model lets it be; (its answer, whether it is open)."""
    import torch

    import catalogue
    import naming

    error = None
    for dim, batch in ((torch.export.Dim("batch"), naming.EXPORT_BATCH), (torch.export.Dim.AUTO, naming.EXPORT_BATCH), (None, naming.batch(name))):
        model, candidates = seeded(name, batch)
        args, kwargs = candidates[arguments]
        if dim and not catalogue.has_batch(args, kwargs, batch):
            continue
        first = {0: dim}
        shapes = dim and (tuple(first for _ in args) if not kwargs else {**{_parameter(model, i): first for i in range(len(args))}, **{k: first for k in kwargs}})
        try:
            return attempt(model.train(), args, kwargs, shapes), dim is not None
        except Exception as e:
            error = error or e
    raise error


def _parameter(model, i):
    import inspect

    return list(inspect.signature(model.forward).parameters)[i]


def placeholders(program):
    """Whether the first dimension of an input is open."""
    return any(type(n.meta["val"].shape[0]).__name__ == "SymInt" for n in program.graph.nodes
               if n.op == "placeholder" and n.name in program.graph_signature.user_inputs and getattr(n.meta.get("val"), "shape", None))


def pt2(name, arguments, path):
    import tempfile
    import warnings

    import torch

    warnings.simplefilter("ignore")
    program, _ = dynamic(name, arguments, lambda model, args, kwargs, shapes: torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False))
    if not (is_open := placeholders(program)):
        import naming

        model, candidates = seeded(name, naming.batch(name))
        program = torch.export.export(model.train(), *candidates[arguments], strict=False)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        full = os.path.join(folder, "model.pt2")
        torch.export.save(program, full)
        strip(full, path)
    return dict(open=is_open)


def onnx(name, arguments, path):
    import shutil
    import tempfile
    import warnings

    import torch

    warnings.simplefilter("ignore")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        full = os.path.join(folder, "model.onnx")

        def attempt(model, args, kwargs, shapes):
            torch.onnx.export(model, args, full, kwargs=kwargs or None, dynamic_shapes=shapes, dynamo=True, verbose=False)
            return model

        import onnx as format

        import naming

        def is_open():
            proto = format.load(full, load_external_data=False)
            return any(i.type.tensor_type.shape.dim and i.type.tensor_type.shape.dim[0].dim_param for i in proto.graph.input)

        _, asked = dynamic(name, arguments, attempt)
        if asked and not is_open():  # the exporter fixed it at the batch of the example: the file has to be one of the batch that is compared
            model, candidates = seeded(name, naming.batch(name))
            attempt(model.train(), *candidates[arguments], None)
        opened = is_open()
        shutil.copy(full, path + ".part")
        os.replace(path + ".part", path)
    return dict(open=opened)


def recording(name, arguments, path, setups):
    import record

    return record.record(name, arguments, path, setups)


def main():
    import torch
    import torch._dynamo  # noqa: F401 (optimizers import it)
    import torchvision  # noqa: F401
    import timm  # noqa: F401
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    import catalogue

    if "EMULATED_GPU" in os.environ:
        import truth as program  # noqa: F401
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        job = json.loads(line)
        if (kind := job.pop("kind")) == "names":
            answer = catalogue.names()
        else:
            catalogue.prepare(job["name"])
            answer = answer_of(lambda: globals()[kind](**job), 3 * SECONDS if kind in ("onnx", "recording") else None)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
