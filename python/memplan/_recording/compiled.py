"""torch.compile: Dynamo, AOTAutograd and Inductor run as they are. Only Triton's kernels are neither built nor launched: a launch does nothing
here, and the buffers are allocated by the code that Inductor writes around the kernels. So no C compiler is needed, and most of the time is saved."""
from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import linecache
import os
import re
import sys
from typing import Any, Dict, List, Optional, Set, Tuple

_eager: Dict[Tuple[str, str], int] = {}  # (function, why), and how often one was given up
_measured: Set[str] = set()  # matrix products of which the quicker of two forms was looked for
OPERATORS = re.compile(r"#.*Original ATen: \[([^\]]*)\]")
MODULE = re.compile(r"\] Module: (\S+)")
LINES = re.compile(r" Lines: (.+)")
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


class _NoKernel:
    """A kernel that is not there: run, precompile, …"""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a, **k: None


def after_async_compile(module: Any) -> None:
    module.AsyncCompile.triton = lambda self, *a, **k: _NoKernel()


def after_autotune_process(module: Any) -> None:
    """Candidates of autotuning, which PyTorch would build one by one to measure them."""
    module.TritonBenchmarkRequest.precompile = lambda self: None
    module.TritonBenchmarkRequest.make_run_fn = lambda self, *a, **k: lambda: None


class _NoUtilities:
    """Triton's own C module, which it would build with a C compiler."""

    def get_device_properties(self, device: Any) -> Dict[str, Any]:
        import torch

        card = torch.cuda.get_device_properties(device)
        return dict(max_shared_mem=getattr(card, "shared_memory_per_block_optin", 49152), max_num_regs=65536, multiprocessor_count=card.multi_processor_count,
                    warpSize=32, sm_clock_rate=1980000, mem_clock_rate=2619000, mem_bus_width=5120)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a, **k: 0


def after_triton_driver(module: Any) -> None:
    module.CudaUtils = _NoUtilities


def after_triton_jit(module: Any) -> None:
    """Kernels that a program brings itself."""
    module.JITFunction.run = lambda self, *a, **k: None


def after_inductor_utils(module: Any) -> None:
    """The code that Inductor writes says which operators a kernel stands for; the program's own lines are added, because the cache keeps only the text."""
    plain = module.get_kernel_metadata

    @functools.wraps(plain)
    def with_lines(schedule: Any, wrapper: Any, *a: Any, **k: Any) -> Any:
        metadata, details = plain(schedule, wrapper, *a, **k)
        nodes = module.aggregate_origins(schedule)
        lines, owner = _lines_of(nodes), _module_of(nodes)
        if owner:
            metadata = f"{metadata} Module: {owner}"
        return (f"{metadata} Lines: {' | '.join(lines)}" if lines else metadata), details

    module.get_kernel_metadata = with_lines


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def _lines_of(nodes: Any) -> List[str]:
    """The innermost line of every node's forward pass, each once."""
    found = set()
    for node in nodes:
        frames = _FRAME.findall(getattr(node, "meta", {}).get("stack_trace") or "")
        if frames:
            found.add(":".join(frames[-1]))
    return sorted(found)[:8]


_OF_MODEL = re.compile(r"^L\['\w+'\]")
_PART = re.compile(r"\['?(\w+)'?\]")


def _module_of(nodes: Any) -> str:
    """The module that all of the nodes belong to, as named_modules() calls it; empty for the model itself."""
    common: Optional[List[str]] = None
    for node in nodes:
        meta = getattr(node, "meta", {})
        stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
        if not stack:
            continue
        path = _OF_MODEL.sub("", str(list(stack.values())[-1][0])).replace("._modules", "").replace("._orig_mod", "")
        parts = [p for p in _PART.sub(r".\1", path).split(".") if p]
        common = parts if common is None else [a for a, _ in itertools.takewhile(lambda both: both[0] == both[1], zip(common, parts))]
    return ".".join(common or [])


def after_pad_mm(module: Any) -> None:
    """Where a size of a matrix product is no multiple of 8, PyTorch measures on the device whether padding it is quicker. Every measurement is the same here,
    and nothing is padded, unless MEMPLAN_OBSERVE_PAD asks for the other outcome."""
    name = next((n for n in ("is_padded_faster", "should_pad") if hasattr(module, n)), None)
    if name:
        plain = getattr(module, name)

        @functools.wraps(plain)
        def counted(key: Any, *a: Any, **k: Any) -> Any:
            _measured.add(str(key))
            return plain(key, *a, **k)

        setattr(module, name, counted)
    if os.environ.get("MEMPLAN_OBSERVE_PAD"):
        import torch._inductor.config as config

        config.force_shape_pad = True


def after_convert_frame(module: Any) -> None:
    """Functions that Dynamo gives up run as eager code, and PyTorch says so in its log alone: after a graph break within a loop, and where a function was compiled too often.
    What only looks on is none of the program's, and is not compiled with it."""
    from torch._dynamo import trace_rules

    trace_rules.add(__name__.partition(".")[0])
    plain = module.ConvertFrameAssert.__call__

    @functools.wraps(plain)
    def noted(self: Any, frame: Any, *a: Any, **k: Any) -> Any:
        try:
            return plain(self, frame, *a, **k)
        except Exception as error:
            code = frame.f_code
            # Skip…: nothing to compile in it. Generators never are, whoever wrote them.
            nothing = type(error).__name__.startswith("Skip") or code.co_flags & inspect.CO_GENERATOR
            if not nothing and not _is_helper(code.co_filename) and _OWN not in str(error):
                at = f"{code.co_name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})", _reason(str(error)) or type(error).__name__
                _eager[at] = _eager.get(at, 0) + 1
            raise

    module.ConvertFrameAssert.__call__ = noted


def _is_helper(file: str) -> bool:
    """Python's own modules, and this package, which looks on: no part of the program."""
    return file.startswith(("<", _OWN)) or (file.startswith(_PYTHON) and "-packages" not in file)


def _reason(text: str) -> str:
    """PyTorch's own words in one line: the kind of the break, and what it was."""
    lines = text.strip().splitlines()
    more = next((line.partition("Explanation:")[2].strip() for line in lines if line.lstrip().startswith("Explanation:")), "")
    return (f"{lines[0]}: {more}" if more else lines[0])[:200] if lines else ""


def is_generated(file: str) -> bool:
    """Whether Inductor wrote this file."""
    root = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return bool(root) and file.startswith(root + os.sep)


@functools.lru_cache(maxsize=100_000)
def of_generated(file: str, line: int) -> Tuple[str, List[Tuple[str, int, str]], str]:
    """(operators, [(file, line, function)], module) of an allocation in generated code: what the next kernel below stands for."""
    operators, lines, owner = "", [], ""
    for at in range(line, line + 40):
        text = linecache.getline(file, at)
        if not text or (at > line and text.lstrip().startswith("return ")):
            break
        if found := OPERATORS.search(text):
            operators = found[1]
        if found := MODULE.search(text):
            owner = found[1]
        if found := LINES.search(text):
            lines = [(f, int(n), name) for f, n, name in (row.rsplit(":", 2) for row in found[1].strip().split(" | "))]
        if operators and not text.lstrip().startswith("#"):
            break
    return operators, lines, owner


AFTER = {"torch._dynamo.convert_frame": after_convert_frame, "torch._inductor.utils": after_inductor_utils, "torch._inductor.async_compile": after_async_compile,
         "torch._inductor.autotune_process": after_autotune_process, "torch._inductor.fx_passes.pad_mm": after_pad_mm,
         "triton.backends.nvidia.driver": after_triton_driver, "triton.runtime.jit": after_triton_jit}


def install() -> None:
    """In a process that has not compiled anything yet. Others take functions from torch._inductor.utils when they are imported, so it comes first."""
    for name, after in AFTER.items():
        try:
            after(importlib.import_module(name))
        except ModuleNotFoundError as error:
            if not name.startswith((error.name or "") + ".") and name != error.name:
                raise


def report() -> Optional[Dict[str, Any]]:
    """What torch.compile did, or None where it was not used."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    graphs = counters["stats"].get("unique_graphs", 0) if counters else 0
    if not counters or not (graphs or _eager):
        return None
    return dict(graphs=graphs, padding_measured=len(_measured), eager=[dict(function=f, reason=why, count=n) for (f, why), n in list(_eager.items())[:20]],
                breaks=[dict(reason=_reason(reason), count=count) for reason, count in counters["graph_break"].most_common(20) if _OWN not in reason])
