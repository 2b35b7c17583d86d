"""Which node of autograd a backward pass is at, and the line of the forward pass that made the node.

Threads of the engine have no Python frames, so allocations of a backward pass tell no line. PyTorch can keep the forward line of every node (its anomaly mode
does, without looking for NaN here), and a hook before each node notes with the allocator which one is next. Both cost time, and a program asks for the same
in every step, so they end after a few."""
import re

STEPS = 3  # of one optimizer
_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+), in (.+)')

_nodes = []  # (name, frames innermost first)
_numbers = {}
_state = {"on": False, "backwards": 0, "missed": False}


def install(torch):
    """Before the first forward pass on the device."""
    import torch.autograd.graph as graph

    plain = graph._engine_run_backward

    def run(t_outputs, *args, **kwargs):
        from . import record

        job = record.state.job
        if not job:
            return noted(t_outputs, *args, **kwargs)
        job.backward_begins(t_outputs, kwargs.get("accumulate_grad", False))
        try:
            return noted(t_outputs, *args, **kwargs)
        finally:
            job.backward_ended()

    def noted(t_outputs, *args, **kwargs):
        _state["backwards"] += 1
        if not _state["on"]:
            _state["missed"] = True
            return plain(t_outputs, *args, **kwargs)
        handles = _hook(torch, t_outputs)
        try:
            return plain(t_outputs, *args, **kwargs)
        finally:
            torch.cuda.memory._set_memory_metadata("")
            for handle in handles:
                handle.remove()

    graph._engine_run_backward = torch.autograd._engine_run_backward = run
    # The allocator takes notes since PyTorch 2.10; before, a backward pass is only called that.
    if not torch.is_anomaly_enabled() and hasattr(torch.cuda.memory, "_set_memory_metadata"):
        torch.set_anomaly_enabled(True, False)
        _state["on"] = True


def end(torch):
    """The steps that are looked at are over."""
    if _state["on"]:
        _state["on"] = False
        if not torch.is_anomaly_check_nan_enabled():
            torch.set_anomaly_enabled(False, False)


def backwards():
    return _state["backwards"]


def missed():
    """Whether a backward pass ran that nobody looked at."""
    return _state["missed"]


def node(note):
    """(name, frames) that a note of the allocator stands for."""
    return _nodes[int(note)] if note.isdigit() and int(note) < len(_nodes) else None


def _number(found):
    """Of the node, for a note; nodes of one line share it."""
    stack = found.metadata.get("traceback_") or ()
    key = (found.name(), stack[-1] if stack else "", stack[-2] if len(stack) > 1 else "", len(stack))
    number = _numbers.get(key)
    if number is None:
        number = _numbers[key] = len(_nodes)
        frames = [(m[1], int(m[2]), m[3].splitlines()[0]) for m in map(_FRAME.match, reversed(stack)) if m]
        _nodes.append((found.name(), frames))
    return str(number)


def _hook(torch, outputs):
    set_note = torch.cuda.memory._set_memory_metadata
    work = [getattr(t, "node", None) or getattr(t, "grad_fn", None) for t in ([outputs] if isinstance(outputs, torch.Tensor) else outputs)]
    seen, handles = set(), []
    while work:
        found = work.pop()
        if found is None or found in seen:
            continue
        seen.add(found)
        work += [n for n, _ in found.next_functions]
        # A gradient that arrives belongs to the node that made it.
        if found.name().endswith("AccumulateGrad"):
            continue

        def before(_, note=_number(found)):
            set_note(note)

        handles.append(found.register_prehook(before))
    return handles
