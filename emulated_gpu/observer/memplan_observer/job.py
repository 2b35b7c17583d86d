"""`memplan observe --record`: what a script trains, how, and what its steps ask for, as a recording (docs/recording.md).

The events of the whole run are the allocator's own (steps.py). The calls are those between the first step of the optimizer and the next backward pass: models,
losses and whatever else the script computes there are one program that ends with the loss. What the format cannot say is a reason (`why`) for which the file has
events alone."""
import functools
import json
import os
import sys

from . import hooks, names
from .recording import calls, compiled, functions, lines, script, tape
from .steps import Steps

OPTIMIZERS = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw", "Adagrad": "adagrad", "RMSprop": "rmsprop", "Adafactor": "adafactor"}
WATCHED = 2  # the step of which calls are written down


class Trained:
    """The modules of the script as one: those that the optimizer trains, and apart from them what else has tensors on the device."""

    def __init__(self, torch, optimizer):
        trained = {id(p): p for group in optimizer.param_groups for p in group["params"]}
        roots = [r for r in names._roots(torch) if any(p.is_cuda for p in r.parameters()) or any(b.is_cuda for b in r.buffers())]
        mine = [r for r in roots if any(id(p) in trained for p in r.parameters())]
        self.roots = [(f"{type(r).__name__}{i}." if len(mine) > 1 else "", r) for i, r in enumerate(mine)]
        self.others = [(f"{type(r).__name__} (not trained {i}).", r) for i, r in enumerate(r for r in roots if r not in mine)]
        known = {id(p) for _, r in self.roots for p in r.parameters()}
        self.loose = [(f"tensor {i}", p) for i, p in enumerate(p for key, p in trained.items() if key not in known)]
        self.sharded = any(type(p).__name__ == "DTensor" for p in trained.values())

    def named_parameters(self, remove_duplicate=True):
        for prefix, r in self.roots:
            for name, p in r.named_parameters(remove_duplicate=remove_duplicate):
                yield prefix + name, p
        yield from self.loose

    def named_buffers(self, remove_duplicate=True):
        for prefix, r in self.roots:
            for name, b in r.named_buffers(remove_duplicate=remove_duplicate):
                if b.is_cuda:
                    yield prefix + name, b
        for prefix, r in self.others:
            for named in (r.named_parameters, r.named_buffers):
                for name, t in named(remove_duplicate=remove_duplicate):
                    if t.is_cuda:
                        yield prefix + name, t

    def named_modules(self):
        for prefix, r in [*self.roots, *self.others]:
            for name, m in r.named_modules():
                yield (prefix + name).rstrip("."), m

    def described(self):
        found = lines.model_of(self)
        classes = [f"{type(r).__module__}.{type(r).__qualname__}" for _, r in self.roots]
        found["class"] = " and ".join(dict.fromkeys(classes)) or "tensors"
        return found


class Region(tape.Program):
    """A Program that begins and ends in the midst of a script."""

    def __init__(self, torch, scopes, trained):
        super().__init__(torch, scopes, True)
        self.trained = trained
        self.copies = []  # (value, its call): from the host
        self.inputs = []
        self.autocast = ""
        self.gradients = {}  # whether there were any when the batch came, the first module ran, the backward pass began

    def look(self, when):
        if when not in self.gradients:
            self.gradients[when] = any(p.grad is not None for _, p in self.trained.named_parameters())

    def _call(self, func, args, kwargs):
        if self.collecting:
            if not self.autocast and self.torch.is_autocast_enabled("cuda"):
                self.autocast = str(self.torch.get_autocast_dtype("cuda")).removeprefix("torch.")
            if len(self.scopes.stack) > 1:
                self.look("forward")
        return super()._call(func, args, kwargs)

    def _from_host(self, row, made, place):
        super()._from_host(row, made, place)
        if place is self.main:
            self.look("batch")
            self.copies += [(c["outputs"][0], c) for c in place.calls[-len(made):]]

    def zero_grad(self):
        """When gradients go: kept, before the backward pass, at the begin of a step or at the end of the one before."""
        at = self.gradients
        if at.get("backward"):
            return "keep"
        return "backward" if at.get("forward") else "begin" if at.get("batch", True) else "end"

    def close(self):
        """A copy from the host that outlives the forward pass is an input of it: its name has it until the next one comes."""
        super().close()
        for number, row in self.copies:
            if number not in self.outputs or not self.values[number][1]:
                continue
            at = self.main.calls.index(row)
            if at and row["del"]:
                self.main.calls[at - 1]["del"] += row["del"]
            del self.main.calls[at]
            self.outputs.remove(number)
            self.values[number][2:4] = ["input", str(len(self.inputs))]
            self.inputs.append([f"input_{len(self.inputs)}", *self.values[number][:2]])


def _guarded(method):
    """Nothing that goes wrong here may end the script."""

    @functools.wraps(method)
    def run(self, *args, **kwargs):
        if self.over:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if os.environ.get("MEMPLAN_RECORDING_DEBUG"):
                import traceback

                traceback.print_exc()
            self.because(f"the recorder failed: {type(error).__name__}: {error}")
            self.stop_watching()
            return None

    return run


class Job:
    def __init__(self, torch, look, counters):
        self.torch = torch
        self.steps = Steps(torch, look, counters)
        self.why = []
        self.over = False
        self.optimizer = self.trained = self.region = None
        self.document, self.inputs = None, []
        self.backwards = self._depth = 0
        self.setup = dict(mode="inference", precision="fp32", optimizer="none", impl="auto", momentum=0.0, nesterov=False, amsgrad=False, weight_decay=0.0,
                          accumulate=1, clip=False, zero_grad="begin", loss="auto")
        self._scaler_class()

    def because(self, text):
        if text not in self.why:
            self.why.append(text)

    # --- where the script is ----------------------------------------------------------------------------------------
    @_guarded
    def forward_ends(self, outputs):
        """outputs: what the backward pass begins at, before it is scaled."""
        region = self.region
        if region is None or not region.collecting:
            return
        losses = [outputs] if isinstance(outputs, self.torch.Tensor) else list(outputs)
        if len(losses) != 1 or not isinstance(losses[0], self.torch.Tensor) or losses[0].numel() != 1:
            self.because("its backward pass does not begin at one loss")
        region.look("backward")
        region.end(losses)

    @_guarded
    def backward_begins(self, outputs, accumulate):
        self._depth += 1
        if self._depth > 1:
            return
        if not accumulate:
            self.because("it calls torch.autograd.grad")
            return
        if self.backwards and not self.steps.ran_modules and self.steps.step == WATCHED:
            self.because("several backward passes go through one forward pass")
        self.forward_ends(outputs)
        self.backwards += 1
        self.steps.enter("backward")
        self.steps.ran_modules = self.steps.clips = False

    @_guarded
    def backward_ended(self):
        self._depth -= 1
        if self._depth == 0:
            self.steps.enter("clip")

    @_guarded
    def optimizer_begins(self, optimizer):
        if self.optimizer is None:
            self.optimizer = optimizer
        elif optimizer is not self.optimizer:
            self.because("it has several optimizers")
            return
        self.steps.enter("optimizer")
        if self.trained is not None:
            self.steps.gradients(self.trained)

    @_guarded
    def optimizer_ended(self, optimizer):
        if optimizer is not self.optimizer:
            return
        step = self.steps.step
        if step == 1:
            self.setup.update(mode="training", **self._optimizer())
            self.trained = Trained(self.torch, optimizer)
            self.steps.weights(self.trained)
            self.steps.gradients(self.trained)
        if step == WATCHED:
            self.setup.update(accumulate=max(1, self.backwards), clip=self.steps.clips)
            self.stop_watching()
        self.steps.state(optimizer, self.trained)
        self.backwards = 0
        self.steps.step_ends()
        if step == WATCHED - 1 and not self._unwatchable():
            self._watch()

    @_guarded
    def ended(self, gpu, unknown):
        batch = int(os.environ.get("MEMPLAN_OBSERVE_BATCH") or 0)
        self.stop_watching()
        self.steps.ends(trim=not batch)
        self.over = True
        if self.trained is None:
            self.because("it trains nothing")
        elif self.document is None:
            self.because("it made one step of its optimizer, and calls are those of the second one")
        setup = dict(self.setup, steps=len(self.steps.peaks) - 1)
        mine = dict(batch=batch, torch=self.torch.__version__, gpu=gpu, command=sys.argv[:50], setup=setup,
                    why="; ".join(self.why), events=lines.of(self.steps), unknown=unknown, inputs=self.inputs,
                    model=self.trained.described() if self.trained else {"class": "script", "parameters": [], "buffers": []},
                    calls=None if self.why else self.document)
        hooks.write_json("recording", mine)
        if os.environ["MEMPLAN_OBSERVE_RECORD"] == "file":
            found = [mine]
            for path in filter(None, os.environ["MEMPLAN_OBSERVE_EARLIER"].split(":")):
                with open(path) as f:
                    found.append(json.load(f))
            path = os.path.join(os.environ["MEMPLAN_OBSERVE_TO"], f"recording-{os.getpid()}")
            script.write(path + ".part", found)
            os.replace(path + ".part", path + ".memplan")

    # --- the calls of one step --------------------------------------------------------------------------------------
    def _unwatchable(self):
        dist = sys.modules.get("torch.distributed")
        if compiled.report():
            self.because("it is compiled")
        if self.trained.sharded or (dist and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            self.because("it runs on several GPUs")
        return bool(self.why)

    def _watch(self):
        scopes = calls.Scopes(self.trained)
        region = Region(self.torch, scopes, self.trained)
        for name, p in self.trained.named_parameters():
            region.named(p, "parameter", name)
        for name, b in self.trained.named_buffers():
            region.named(b, "buffer", name)
        self.region = region
        scopes.__enter__()
        region.begin()

    def stop_watching(self):
        region, self.region = self.region, None
        if region is None:
            return
        try:
            if region.collecting:
                self.because("it steps without a backward pass")
                region.end(())
            region.close()
        finally:
            region.scopes.__exit__()
        if not self.why:
            self._found(region)

    def _found(self, region):
        half = {"bfloat16": "bf16", "float16": "fp16"}
        kinds = {str(p.dtype).removeprefix("torch.") for _, p in self.trained.named_parameters() if p.requires_grad}
        if region.autocast:
            self.setup["precision"] = "amp-" + half.get(region.autocast, "bf16")
        elif len(kinds) == 1 and kinds <= half.keys():
            self.setup["precision"] = half[kinds.pop()]
        self.setup["zero_grad"] = region.zero_grad()
        self.document, self.inputs = region.document(), region.inputs

    def _optimizer(self):
        o = self.optimizer
        name = type(o).__name__
        if not type(o).__module__.startswith("torch.optim") or name not in OPTIMIZERS:
            self.because(f"its optimizer is {type(o).__module__}.{name}")
            return {}
        have = [{**o.defaults, **group} for group in o.param_groups]
        first = have[0]
        impl = "fused" if first.get("fused") else "foreach" if first.get("foreach") else "loop" if first.get("foreach") is False else "auto"
        return dict(optimizer=OPTIMIZERS[name], impl=impl, momentum=float(max(g.get("momentum", 0.0) for g in have)), nesterov=bool(first.get("nesterov", False)),
                    amsgrad=bool(first.get("amsgrad", False)), weight_decay=float(max(g.get("weight_decay", 0.0) or 0.0 for g in have)))

    def _scaler_class(self):
        """A loss that is scaled is the loss before that."""
        plain, job = self.torch.amp.GradScaler.scale, self

        @functools.wraps(plain)
        def scale(scaler, outputs):
            if scaler.is_enabled():
                job.forward_ends(outputs)
            return plain(scaler, outputs)

        self.torch.amp.GradScaler.scale = scale


def before_script(torch):
    """What has to be in place before a script keeps `apply = MyFunction.apply`."""
    functions.install()
