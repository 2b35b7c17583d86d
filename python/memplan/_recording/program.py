"""The reference program (docs/reference-program.md) for one module, one setup and one size."""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import options

DEFAULTS: Dict[str, Any] = dict(mode="training", precision="fp32", optimizer="adamw", impl="auto", momentum=0.0, nesterov=False, amsgrad=False,
                                weight_decay=None, accumulate=1, clip=False, zero_grad="begin", loss="auto", compile=False, activation_memory_budget=1.0, steps=3)
HALF = {"amp-bf16": "bfloat16", "bf16": "bfloat16", "amp-fp16": "float16", "fp16": "float16"}
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "adagrad": "Adagrad", "rmsprop": "RMSprop", "adafactor": "Adafactor"}
CHOICES: Dict[str, Tuple[Any, ...]] = dict(mode=("training", "inference"), precision=("fp32", *HALF), optimizer=("none", *OPTIMIZERS),
                                           impl=("auto", "foreach", "fused", "loop"), zero_grad=("begin", "end", "keep", "backward"),
                                           loss=("auto", "cross-entropy", "mse", "sum"))


def complete(setup: Dict[str, Any]) -> Dict[str, Any]:
    """With every key. ValueError for keys and values that there are not."""
    for key, value in setup.items():
        if key not in DEFAULTS:
            raise ValueError(f"a setup has no '{key}'; it has {', '.join(DEFAULTS)}")
        if value not in CHOICES.get(key, (value,)):
            raise ValueError(f"{key} cannot be '{value}'; it is one of {', '.join(CHOICES[key])}")
    full = {**DEFAULTS, **setup}
    full["compile"] = options.checked(full["compile"])
    full["activation_memory_budget"] = options.checked_budget(full["activation_memory_budget"], bool(full["compile"]))
    if full["weight_decay"] is None:
        full["weight_decay"] = 0.01 if full["optimizer"] == "adamw" else 0.0
    return full


def make_optimizer(c: Dict[str, Any], parameters: List[Any]) -> Any:
    import torch

    if c["optimizer"] == "none":
        return None
    words: Dict[str, Any] = {"auto": {}, "foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}[c["impl"]]
    words["weight_decay"] = c["weight_decay"]
    if c["optimizer"] == "sgd":
        words |= dict(lr=0.01, momentum=c["momentum"], nesterov=c["nesterov"])
    if c["optimizer"] == "rmsprop":
        words |= dict(momentum=c["momentum"])
    if c["optimizer"] in ("adam", "adamw"):
        words |= dict(amsgrad=c["amsgrad"])
    return getattr(torch.optim, OPTIMIZERS[c["optimizer"]])(parameters, **words)


def _floating(output: Any) -> List[Any]:
    """The floating tensors that the model returns, in order."""
    import torch

    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    members = output.values() if callable(getattr(output, "values", None)) else output if isinstance(output, (tuple, list)) else ()
    return [t for member in members for t in _floating(member)]


def prediction(output: Any) -> Any:
    """The first floating tensor that the model returns."""
    return next(iter(_floating(output)), None)


def _trained_by(t: Any) -> Set[Any]:
    """The leaves that get gradients from a tensor."""
    seen: Set[Any] = set()
    leaves, open_nodes = {t} if t.is_leaf and t.requires_grad else set(), [t.grad_fn]
    while open_nodes:
        node = open_nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.add(node.variable)
        open_nodes += [n for n, _ in node.next_functions]
    return leaves


def returns_scalars(output: Any) -> bool:
    """Beside a first tensor that is none: one may be the model's own loss, which only its gradients tell."""
    found = _floating(output)
    return bool(found) and found[0].dim() > 0 and any(t.dim() == 0 for t in found[1:])


def own_loss(output: Any) -> Optional[int]:
    """Which floating tensor is the model's own loss: the scalar behind the first one that trains all that the first one trains."""
    found = _floating(output)
    for i, t in enumerate(found):
        if i and t.dim() == 0 and t.requires_grad and _trained_by(found[0]) <= _trained_by(t):
            return i
    return None


def _classes(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """The shape of a target of class numbers."""
    return (shape[0], *shape[2:]) if len(shape) in (2, 4) else shape[:-1]


def loss_of(c: Dict[str, Any], output: Any, y: Any, own: Optional[int] = None) -> Any:
    """`own`: the floating tensor that is the loss."""
    import torch

    if own is not None:
        return _floating(output)[own]

    p = prediction(output)
    if p is None:
        raise ValueError("the module returns no floating tensor, so there is nothing to train on")
    if c["loss"] == "auto" and p.dim() == 0:
        return p
    if c["loss"] == "sum" or c["loss"] == "auto" and p.dim() == 1:
        return p.sum()
    if c["loss"] == "mse":
        return torch.nn.functional.mse_loss(p, y)
    if p.dim() in (2, 4):
        return torch.nn.functional.cross_entropy(p, y)
    return torch.nn.functional.cross_entropy(p.flatten(0, -2), y.flatten())


def target_of(c: Dict[str, Any], output: Any) -> Any:
    """(sizes, dtype name) of the target for such an output, None where the loss takes none; (which tensor, "own") of the model's own loss."""
    p = prediction(output)
    if c["loss"] == "auto" and returns_scalars(output) and (own := own_loss(output)) is not None:
        return own, "own"
    if p is None or c["loss"] == "sum" or c["loss"] == "auto" and p.dim() < 2:
        return None
    if c["loss"] == "mse":
        return tuple(p.shape), str(p.dtype).removeprefix("torch.")
    return _classes(tuple(p.shape)), "int64"


def run(c: Dict[str, Any], model: Any, call: Callable[[Any, List[Any]], Any], host_x: List[Any], target: Any, log: Any) -> None:
    """`call(model, x)` calls the model with the tensors x in the place of its own; `log` hears where a step begins and what memory belongs to whom."""
    import torch

    training, half = c["mode"] == "training", getattr(torch, HALF.get(c["precision"], "float32"))
    amp = c["precision"].startswith("amp")
    model.train(training)
    if c["precision"] in ("bf16", "fp16"):
        model.to(half)
        host_x = [x.to(half) if x.is_floating_point() else x for x in host_x]
    own = target[0] if target and target[1] == "own" else None
    host_y = None if target is None or own is not None or not training else torch.zeros(target[0], dtype=getattr(torch, target[1]))
    x: List[Any] = [None] * len(host_x)
    output = loss = y = optimizer = None
    autocast = lambda: torch.autocast("cuda", dtype=half, enabled=True) if amp else contextlib.nullcontext()  # noqa: E731
    log.mark(0, "setup")
    model.to("cuda")
    log.weights(model)
    if c["compile"]:  # the first call compiles it
        options.set_budget(c["activation_memory_budget"])
        eager_call, compiled = call, torch.compile(model, **(c["compile"] if isinstance(c["compile"], dict) else {}))
        call = lambda _, x: eager_call(compiled, x)  # noqa: E731
    if not training:
        with torch.no_grad():
            for step in range(1, c["steps"] + 1):
                log.mark(step, "data")
                for i in range(len(x)):
                    x[i] = host_x[i].to("cuda")
                log.inputs(x)
                log.mark(step, "forward")
                with autocast():
                    output = call(model, x)
                    log.returned(output)
                log.mark(step, "end")
                log.output(prediction(output))
        log.done()
        return
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = make_optimizer(c, parameters)
    scaler = torch.amp.GradScaler("cuda", enabled=c["precision"] == "amp-fp16")
    zero = lambda: (optimizer or model).zero_grad(set_to_none=c["zero_grad"] != "keep")  # noqa: E731
    for step in range(1, c["steps"] + 1):
        for k in range(c["accumulate"]):
            log.mark(step, "data")
            for i in range(len(x)):
                x[i] = host_x[i].to("cuda")
            if host_y is not None:
                y = host_y.to("cuda")
            log.inputs([*x, y])
            if k == 0 and c["zero_grad"] in ("begin", "keep"):
                zero()
            log.mark(step, "forward")
            with autocast():
                output = call(model, x)
                log.returned(output)
                log.mark(step, "loss")
                log.output(prediction(output))
                loss = loss_of(c, output, y, own)
                if c["accumulate"] > 1:
                    loss = loss / c["accumulate"]
            if k == 0 and c["zero_grad"] == "backward":
                zero()
            log.mark(step, "backward")
            scaler.scale(loss).backward()
            log.mark(step, "clip")
            log.gradients(model)
        if c["clip"]:
            if optimizer and scaler.is_enabled():
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        log.mark(step, "optimizer")
        if optimizer and scaler.is_enabled():
            scaler.step(optimizer)
            scaler.update()
        elif optimizer:
            optimizer.step()
        if c["zero_grad"] == "end":
            zero()
        log.mark(step, "end")
        log.state(optimizer, model)
    log.done()
