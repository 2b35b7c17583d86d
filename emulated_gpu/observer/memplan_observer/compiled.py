"""torch.compile: Dynamo, AOTAutograd and Inductor run as they are. Only Triton's kernels are neither built nor launched: a launch does nothing
here, and the buffers are allocated by the code that Inductor writes around the kernels. So no C compiler is needed, and most of the time is saved."""
import functools
import linecache
import os
import re
import sys

_measured = set()  # matrix products of which the quicker of two forms was looked for
OPERATORS = re.compile(r"#.*Original ATen: \[([^\]]*)\]")
LINES = re.compile(r"\] Lines: (.+)")


class _NoKernel:
    """A kernel that is not there: run, precompile, …"""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a, **k: None


def after_async_compile(module):
    module.AsyncCompile.triton = lambda self, *a, **k: _NoKernel()


class _NoUtilities:
    """Triton's own C module, which it would build with a C compiler."""

    def get_device_properties(self, device):
        import torch

        card = torch.cuda.get_device_properties(device)
        return dict(max_shared_mem=getattr(card, "shared_memory_per_block_optin", 49152), max_num_regs=65536, multiprocessor_count=card.multi_processor_count,
                    warpSize=32, sm_clock_rate=1980000, mem_clock_rate=2619000, mem_bus_width=5120)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a, **k: 0


def after_triton_driver(module):
    module.CudaUtils = _NoUtilities


def after_triton_jit(module):
    """Kernels that a program brings itself."""
    module.JITFunction.run = lambda self, *a, **k: None


def after_inductor_utils(module):
    """The code that Inductor writes says which operators a kernel stands for; the program's own lines are added, because the cache keeps only the text."""
    plain = module.get_kernel_metadata

    @functools.wraps(plain)
    def with_lines(schedule, wrapper, *a, **k):
        metadata, details = plain(schedule, wrapper, *a, **k)
        lines = _lines_of(module.aggregate_origins(schedule))
        return (f"{metadata} Lines: {' | '.join(lines)}" if lines else metadata), details

    module.get_kernel_metadata = with_lines


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def _lines_of(nodes):
    """The innermost line of every node's forward pass, each once."""
    found = set()
    for node in nodes:
        frames = _FRAME.findall(getattr(node, "meta", {}).get("stack_trace") or "")
        if frames:
            found.add(":".join(frames[-1]))
    return sorted(found)[:8]


def after_pad_mm(module):
    """Where a size of a matrix product is no multiple of 8, PyTorch measures on the device whether padding it is quicker. Every measurement is the same here,
    and nothing is padded, unless MEMPLAN_OBSERVE_PAD asks for the other outcome."""
    name = next((n for n in ("is_padded_faster", "should_pad") if hasattr(module, n)), None)
    if name:
        plain = getattr(module, name)

        @functools.wraps(plain)
        def counted(key, *a, **k):
            _measured.add(str(key))
            return plain(key, *a, **k)

        setattr(module, name, counted)
    if os.environ.get("MEMPLAN_OBSERVE_PAD"):
        import torch._inductor.config as config

        config.force_shape_pad = True


def is_generated(file):
    """Whether Inductor wrote this file."""
    root = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return bool(root) and file.startswith(root + os.sep)


@functools.lru_cache(maxsize=100_000)
def of_generated(file, line):
    """(operators, [(file, line, function)]) of an allocation in generated code: what the next kernel below stands for."""
    operators, lines = "", []
    for at in range(line, line + 40):
        text = linecache.getline(file, at)
        if not text or (at > line and text.lstrip().startswith("return ")):
            break
        if found := OPERATORS.search(text):
            operators = found[1]
        if found := LINES.search(text):
            lines = [(f, int(n), name) for f, n, name in (row.rsplit(":", 2) for row in found[1].strip().split(" | "))]
        if operators and not text.lstrip().startswith("#"):
            break
    return operators, lines


def report():
    """What torch.compile did, or None where it was not used."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if not counters or not counters["stats"].get("unique_graphs"):
        return None
    return dict(graphs=counters["stats"]["unique_graphs"], padding_measured=len(_measured),
                breaks=[dict(reason=reason.strip().splitlines()[0][:200], count=count) for reason, count in counters["graph_break"].most_common(20)])
