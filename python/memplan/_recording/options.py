"""torch.compile's keywords: which of them a recording stands for, and those that a compiled module was made with."""
from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

KEYWORDS = ("mode", "fullgraph", "dynamic", "options", "backend")
GRAPHS = ("reduce-overhead", "max-autotune")  # modes that record CUDA graphs
OBSERVE = "memplan observe -- python train.py runs a script that does so"
Compile = Union[bool, Dict[str, Any]]


def checked(value: Any) -> Compile:
    """False, True, or what is not default of torch.compile(model, …). ValueError for what a recording cannot stand for."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, dict):
        raise ValueError(f"compile cannot be {value!r}: it is True, or a dictionary of torch.compile's keywords, as in compile=dict(dynamic=True)")
    unknown = next((key for key in value if key not in KEYWORDS), None)
    if unknown is not None:
        raise ValueError(f"compile has no '{unknown}'; it has {', '.join(KEYWORDS)}")
    given = {k: v for k, v in value.items() if v is not None and v is not False or k == "dynamic" and v is False}
    if given.pop("backend", "inductor") != "inductor":
        raise ValueError(f"compile takes PyTorch's own backend, 'inductor', not {value['backend']!r}; {OBSERVE}")
    if given.get("mode") == "default":
        del given["mode"]
    if given.get("mode") in GRAPHS or (given.get("options") or {}).get("triton.cudagraphs"):
        what = f"mode={given['mode']!r}" if given.get("mode") in GRAPHS else "triton.cudagraphs"
        raise ValueError(f"{what} records CUDA graphs, whose memory lies in pools of their own that an estimate does not have; {OBSERVE}")
    return given or True


def checked_budget(value: Any, compiled: bool) -> float:
    """Of torch._functorch.config.activation_memory_budget."""
    try:
        budget = float(value)
    except (TypeError, ValueError):
        budget = -1.0
    if not 0 <= budget <= 1:
        raise ValueError(f"activation_memory_budget cannot be {value!r}: it is a number from 0 to 1")
    if budget < 1 and not compiled:
        raise ValueError("activation_memory_budget is a setting of torch.compile, and the setup has no compile=true")
    return budget


def set_budget(budget: float) -> None:
    import torch._functorch.config as config

    if budget == 1:
        return
    if not hasattr(config, "activation_memory_budget"):
        raise ValueError("this PyTorch has no torch._functorch.config.activation_memory_budget, which came with 2.4")
    config.activation_memory_budget = budget


def text_of(value: Compile) -> str:
    """As in a call of torch.compile; empty for its defaults."""
    return ", ".join(f"{k}={v!r}" for k, v in value.items()) if isinstance(value, dict) else ""


def of_module(module: Any) -> Tuple[Any, Compile]:
    """(the eager module, how it was compiled). ValueError where that cannot be told, and where parts of the module are compiled by themselves."""
    if type(module).__name__ == "OptimizedModule":
        return module._orig_mod, _of_context(getattr(module, "dynamo_ctx", None))
    if getattr(module, "_compiled_call_impl", None) is not None:  # module.compile()
        return module, _of_context(_context_of(module._compiled_call_impl))
    named = getattr(module, "named_modules", None)
    part = next((name for name, m in named() if name and (type(m).__name__ == "OptimizedModule" or getattr(m, "_compiled_call_impl", None) is not None)), None) if named else None
    if part:
        raise ValueError(f"its part '{part}' is compiled by itself, and a recording compiles the whole module or nothing; {OBSERVE}")
    return module, False


def _context_of(function: Any) -> Any:
    """torch.compile keeps what it knows of a function in the function's closure."""
    cells = [c.cell_contents for c in getattr(function, "__closure__", None) or ()]
    return next((c for c in cells if hasattr(c, "callback") and hasattr(c, "compiler_config")), None)


def _chain(callback: Any) -> Iterator[Any]:
    seen: List[int] = []
    while callback is not None and id(callback) not in seen:
        seen.append(id(callback))
        yield callback
        callback = next((getattr(callback, n) for n in ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable") if getattr(callback, n, None) is not None), None)


def _of_context(context: Any) -> Compile:
    chain = list(_chain(getattr(context, "callback", None)))
    backend: Optional[Any] = next((c for c in chain if hasattr(c, "compiler_name")), None)
    if backend is None:
        raise ValueError("what the module was compiled with cannot be read from it: give the module itself and compile=dict(…)")
    found = dict(backend=backend.compiler_name, dynamic=backend.dynamic, options=dict(getattr(backend, "config", {})) or None,
                 fullgraph=any(getattr(c, "_one_graph", False) for c in chain))
    return checked(found)
