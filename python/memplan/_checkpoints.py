"""The module's own activation checkpointing. An export runs through torch.utils.checkpoint and leaves no trace of it, so its calls are noted as they happen."""
from __future__ import annotations

import contextlib
import functools
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List


@dataclass
class Region:
    """One call of torch.utils.checkpoint, and the modules that it runs: the one whose forward it was given, or those that the function calls."""
    whole: str = ""
    modules: List[str] = field(default_factory=list)

    @property
    def module(self) -> str:
        """The one module that it is; empty where it is more, or less."""
        return self.whole or (self.modules[0] if len(self.modules) == 1 else "")


def _owner(function: Any) -> Any:
    """The module whose method it is, also as functools.partial(forward, module)."""
    import torch

    while isinstance(function, functools.partial):
        if function.args and isinstance(function.args[0], torch.nn.Module):
            return function.args[0]
        function = function.func
    return getattr(function, "__self__", function)


@contextlib.contextmanager
def watch(module: Any) -> Iterator[List[Region]]:
    """The regions of one run, in order."""
    import torch.utils.checkpoint as checkpoint
    from torch.nn.modules import module as hooks

    names = {id(m): name for name, m in module.named_modules()}
    found: List[Region] = []
    inside: List[Region] = []  # regions that are open
    depth: List[int] = []  # module calls within the innermost one
    plain, reentrant = checkpoint._checkpoint_without_reentrant_generator, checkpoint.CheckpointFunction

    def begins(function: Any) -> None:
        region = Region(names.get(id(_owner(function)), ""))
        if not inside:
            found.append(region)
        inside.append(region)
        depth.append(0)

    def ends() -> None:
        inside.pop()
        depth.pop()

    def generator(*args: Any, **kwargs: Any) -> Any:
        begins(args[0])
        try:
            yield from plain(*args, **kwargs)
        finally:
            ends()

    class Function:
        @staticmethod
        def apply(*args: Any) -> Any:
            begins(args[0])
            try:
                # The first run of a reentrant one is without gradients, and an export would keep that.
                return args[0](*args[2:])
            finally:
                ends()

    def enters(m: Any, _: Any) -> None:
        if inside:
            if depth[-1] == 0:
                inside[-1].modules.append(names.get(id(m), ""))
            depth[-1] += 1

    def leaves(m: Any, *_: Any) -> None:
        if inside and depth[-1]:
            depth[-1] -= 1

    handles = [hooks.register_module_forward_pre_hook(enters), hooks.register_module_forward_hook(leaves, always_call=True)]
    checkpoint._checkpoint_without_reentrant_generator, checkpoint.CheckpointFunction = generator, Function
    try:
        yield found
    finally:
        checkpoint._checkpoint_without_reentrant_generator, checkpoint.CheckpointFunction = plain, reentrant
        for handle in handles:
            handle.remove()


def modules(regions: List[Region]) -> List[str]:
    """The modules that --checkpoint would have to name; none where a region is more, or less, than one module."""
    names = list(dict.fromkeys(r.module for r in regions))
    return [] if "" in names else names


def patterns(names: List[str], module: Any) -> List[str]:
    """["model.layers.0", "model.layers.1"] as "model.layers.*" where the module has no other one of that pattern."""
    groups: Dict[str, List[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"\d+", "*", name), []).append(name)
    all_names: Dict[str, int] = {}
    for name, _ in module.named_modules():
        key = re.sub(r"\d+", "*", name)
        all_names[key] = all_names.get(key, 0) + 1
    return [p for pattern, mine in groups.items() for p in ([pattern] if len(mine) == all_names.get(pattern) else mine)]


def note(regions: List[Region], module: Any) -> str:
    names = modules(regions)
    if names:
        shown = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
        flags = " ".join(f"--checkpoint '{p}'" for p in patterns(names, module))
        return f"the model checkpoints {shown} itself, and so will estimates of the file ({flags})"
    return (f"the model calls torch.utils.checkpoint {len(regions)} times in ways that no setting says, and a graph keeps no trace of it: "
            "everything counts as kept. memplan.record() runs the model's own code")
