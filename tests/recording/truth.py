"""PyTorch's own counters of the reference program (docs/reference-program.md): python truth.py < rows of [model, batch, setup]. Written apart from
memplan.record, with a module that is initialised in earnest and nobody looking on. Runs under LD_PRELOAD=…/libemulated_gpu.so."""
import contextlib
import importlib
import json
import os
import sys

import torch
import torch._dynamo  # optimizers import it; every run is a copy of this process

torch.cuda.is_available = lambda: True  # models.py asks; asked in earnest, CUDA would not work in the copies
import models


def floating(output):
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    members = output.values() if callable(getattr(output, "values", None)) else output if isinstance(output, (tuple, list)) else ()
    return [t for member in members for t in floating(member)]


def first_floating(output):
    return next(iter(floating(output)), None)


def loss_of(output, y, target):
    if target and target[0] == "own":
        return floating(output)[target[1]]
    p = first_floating(output)
    if p.dim() == 0:
        return p
    return torch.nn.functional.cross_entropy(p, y) if p.dim() in (2, 4) else torch.nn.functional.cross_entropy(p.flatten(0, -2), y.flatten())


def own_loss(model, output):
    """Which tensor is the scalar behind the first one that trains all that the first one trains."""
    first, *others = floating(output)
    trains = lambda t: {i for i, g in enumerate(torch.autograd.grad(t.sum(), parameters, allow_unused=True, retain_graph=True)) if g is not None}
    parameters = [p for p in model.parameters() if p.requires_grad]
    for i, t in enumerate(others, 1):
        if first.dim() and t.dim() == 0 and t.requires_grad and (not first.requires_grad or trains(first) <= trains(t)):
            return i


def steps(model, args, kwargs, setup, target):
    training, amp = setup["mode"] == "training", setup["precision"] == "amp-bf16"
    found = []

    def begins():
        torch.cuda.reset_peak_memory_stats()

    def ends():
        s = torch.cuda.memory_stats()
        found.append([s[f"{k}_bytes.all.peak"] for k in ("requested", "allocated", "reserved")])

    model.train(training)
    torch.cuda.init()
    model.to("cuda")
    autocast = lambda: torch.autocast("cuda", dtype=torch.bfloat16) if amp else contextlib.nullcontext()
    x, names = [None] * (len(args) + len(kwargs)), list(kwargs)
    host = [*args, *kwargs.values()]
    call = lambda: model(*x[: len(args)], **dict(zip(names, x[len(args):])))
    output = loss = y = None
    if not training:
        with torch.no_grad():
            for _ in range(3):
                begins()
                for i in range(len(x)):
                    x[i] = host[i].to("cuda")
                with autocast():
                    output = call()
                ends()
        return found
    chosen = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(chosen, lr=0.01, momentum=0.9) if setup["optimizer"] == "sgd" else torch.optim.AdamW(chosen)
    host_y = torch.zeros(target, dtype=torch.long) if target and target[0] != "own" else None
    for _ in range(3):
        begins()
        for i in range(len(x)):
            x[i] = host[i].to("cuda")
        if host_y is not None:
            y = host_y.to("cuda")
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            output = call()
            loss = loss_of(output, y, target)
        loss.backward()
        optimizer.step()
        ends()
    return found


def target_sizes(shape):
    """Sizes of the class numbers that the reference program compares an output of such a shape with; None of a loss."""
    return (shape[0], *shape[2:]) if len(shape) in (2, 4) else tuple(shape[:-1]) or None


def target_of(model, args, kwargs):
    """The same, from a run on the CPU; of a model that returns a loss of its own beside its prediction ("own", which tensor)."""
    output = model(*args, **kwargs)
    own = own_loss(model, output)
    return ("own", own) if own else target_sizes(first_floating(output).shape)


def main():
    for line in sys.stdin:
        name, batch, setup = json.loads(line)
        read, write = os.pipe()
        if (pid := os.fork()) == 0:
            torch.manual_seed(0)
            torch.set_num_threads(1)
            model, args, kwargs = getattr(models, name)(batch)
            target = None
            if setup["mode"] == "training" and not kwargs and name != "own":
                target = target_of(*getattr(models, name)(batch))
            known = set(sys.modules)
            answer = json.dumps([steps(model, args, kwargs, setup, target), sorted(set(sys.modules) - known)])
            os.write(write, answer.encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as f:
            text = f.read()
        os.waitpid(pid, 0)
        answer, modules = json.loads(text) if text else (None, [])
        for module in modules:  # what a run imports on its way, the next ones find imported
            with contextlib.suppress(BaseException):
                importlib.import_module(module)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
