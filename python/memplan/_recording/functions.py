"""What a program does that no ATen call shows: custom autograd.Functions and torch.utils.checkpoint. Both are watched from before the program is imported,
since scripts keep `apply = MyFunction.apply`; who listens is set later."""
from __future__ import annotations

import inspect
from typing import Any, List

listeners: List[Any] = []  # at most one: a Program


def install() -> None:
    import torch
    import torch.utils.checkpoint as checkpoint

    Function = torch.autograd.Function
    if getattr(Function, "_memplan_watched", False):
        return
    descriptor = inspect.getattr_static(Function, "apply")  # a method of Python, of C since PyTorch 2.15
    save = torch.autograd.function.FunctionCtx.save_for_backward
    generator = checkpoint._checkpoint_without_reentrant_generator

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return descriptor.__get__(None, cls)(*args, **kwargs)

    def watched_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not listeners:
            return apply(cls, *args, **kwargs)
        if cls.__module__ == "torch.utils.checkpoint" and cls is not checkpoint.CheckpointFunction:
            return apply(cls, *args, **kwargs)  # its own bookkeeping
        # A reentrant checkpoint is a Function whose forward pass is the stretch.
        if cls is checkpoint.CheckpointFunction:
            with listeners[-1].checkpointed():
                return apply(cls, *args, **kwargs)
        return listeners[-1].applied(cls, lambda: apply(cls, *args, **kwargs), args)

    def watched_save(self: Any, *tensors: Any) -> None:
        if listeners:
            listeners[-1].saves(tensors)
        save(self, *tensors)

    def watched_generator(*args: Any, **kwargs: Any) -> Any:
        if not listeners:
            yield from generator(*args, **kwargs)
            return
        with listeners[-1].checkpointed():
            yield from generator(*args, **kwargs)

    Function.apply = classmethod(watched_apply)  # type: ignore[assignment]
    Function._memplan_watched = True  # type: ignore[attr-defined]
    torch.autograd.function.FunctionCtx.save_for_backward = watched_save  # type: ignore[method-assign]
    checkpoint._checkpoint_without_reentrant_generator = watched_generator
