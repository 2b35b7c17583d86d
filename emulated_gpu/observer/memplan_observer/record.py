"""Counters and history of one process, written at its end, at every new peak, and when memory runs out."""
import atexit
import os
import sys
import time
import weakref

MOST_ENTRIES = 400_000  # of PyTorch's ring of events: some hundred steps
COUNTERS = {"requested": "requested_bytes", "allocated": "allocated_bytes", "reserved": "reserved_bytes"}


class State:
    def __init__(self):
        self.torch = None
        self.pid = os.getpid()
        self.rank, self.world = None, None
        self.steps = 0
        self.own_steps = weakref.WeakKeyDictionary()  # optimizer -> its steps
        self.most_steps = 0  # of one optimizer, which is gone where a script's main() made it
        self.step_ended = 0  # when, in µs
        self.peaks = {}  # device -> {counter: bytes}, over resets of PyTorch's own
        self.retries = {}
        self.followers = {}
        self.names = {}
        self.untrained, self.trains = 0, False  # trains: there is an optimizer
        self.out_of_memory = []
        self.exception = None
        self.started = False  # CUDA is in use
        self.looking = False
        self.job = None  # where the steps are recorded
        self.stop_after = int(os.environ.get("MEMPLAN_OBSERVE_STEPS") or 0)


state = State()


def _native():
    import ctypes

    library = ctypes.CDLL(None)
    library.emulated_gpu_peak.restype = library.emulated_gpu_used.restype = ctypes.c_uint64
    return library


def joined(rank, world):
    state.rank, state.world = rank, world


def after_torch(torch):
    state.torch = torch
    torch.cuda._lazy_call(_cuda_begins)
    if os.environ.get("MEMPLAN_OBSERVE_RECORD"):
        from . import job

        job.before_script(torch)
    if os.environ.get("MEMPLAN_OBSERVE_TO"):
        before = sys.excepthook

        def hook(kind, value, trace):
            state.exception = dict(type=kind.__name__, text=str(value)[:4000])
            before(kind, value, trace)

        sys.excepthook = hook
    os.register_at_fork(after_in_child=_forked)


def _forked():
    """A child begins anew; it can only use CUDA if its parent had not."""
    torch = state.torch
    state.__init__()
    state.torch = torch


def _cuda_begins():
    torch = state.torch
    state.started = True
    _record(torch)
    torch._C._cuda_attach_out_of_memory_observer(_out_of_memory)
    _keep_peaks_over_resets(torch)
    import torch.optim.optimizer as optimizers

    from . import autograd, reads

    reads.install()
    autograd.install(torch)
    if os.environ.get("MEMPLAN_OBSERVE_RECORD"):
        from . import job

        state.job = job.Job(torch, _look, _counters)
        optimizers.register_optimizer_step_pre_hook(lambda optimizer, *_: state.job and state.job.optimizer_begins(optimizer))
        optimizers.register_optimizer_step_post_hook(lambda optimizer, *_: state.job and state.job.optimizer_ended(optimizer))
    optimizers.register_optimizer_step_post_hook(_step_ends)
    atexit.register(_ends)
    import multiprocessing.util

    if getattr(multiprocessing.process.current_process(), "_parent_pid", None):
        multiprocessing.util.Finalize(None, _ends, exitpriority=-100)  # such children end without atexit


def _record(torch):
    import inspect

    memory, more = torch.cuda.memory, {}
    if "clear_history" in inspect.signature(memory._record_memory_history_impl).parameters:
        more["clear_history"] = True
    else:  # PyTorch 2.6 forgets when it is switched off
        memory._record_memory_history(None)
    memory._record_memory_history("all", context="alloc", stacks="python", max_entries=MOST_ENTRIES, **more)


def _keep_peaks_over_resets(torch):
    """Scripts reset the peaks to print their own; what was before must not be lost."""
    for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
        native = getattr(torch._C, name, None)
        if native is None:
            continue

        def reset(*a, native=native):
            _take_counters()
            return native(*a)

        setattr(torch._C, name, reset)


def _take_counters():
    """Folds PyTorch's peaks into ours; True where one of them has grown."""
    torch, grown = state.torch, False
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        if not stats:
            continue
        peaks = state.peaks.setdefault(device, dict.fromkeys(COUNTERS, 0))
        for ours, theirs in COUNTERS.items():
            value = stats.get(f"{theirs}.all.peak", 0)
            grown |= value > peaks[ours]
            peaks[ours] = max(peaks[ours], value)
        state.retries[device] = stats.get("num_alloc_retries", 0)
    return grown


def _counters():
    """PyTorch's highest so far."""
    _take_counters()
    return dict(next(iter(state.peaks.values()), dict.fromkeys(COUNTERS, 0)))


def _look(aborted=False):
    """Reads PyTorch's record; afterwards it begins anew, so that it stays short. aborted: memory ran out in a step."""
    torch = state.torch
    if state.looking:
        return
    state.looking = True
    try:
        from . import history, names

        snapshot = torch.cuda.memory._snapshot()
        if state.job:
            state.job.steps.take(snapshot["device_traces"][torch.cuda.current_device()])
        used = {s["device"] for s in snapshot["segments"]} | {i for i, t in enumerate(snapshot["device_traces"]) if t}
        for device in used:
            follower = state.followers.setdefault(device, history.Follower(device))
            highest = follower.highest
            optimizers = names.live_optimizers(torch)
            state.trains = state.trains or bool(optimizers)
            # Of a script that trains nothing nobody knows what it would have freed.
            follower.look(snapshot, MOST_ENTRIES, state.step_ended if aborted and optimizers else None)
            if follower.highest > highest:
                state.names[device] = names.of_addresses(torch, optimizers)
                state.untrained = names.untrained(torch)
        _record(torch)
    except Exception as e:  # a script that records history itself gets its way
        state.history_error = f"{type(e).__name__}: {e}"
    finally:
        state.looking = False


def _step_ends(optimizer, *_):
    torch = state.torch
    from . import autograd

    state.steps += 1
    state.own_steps[optimizer] = state.own_steps.get(optimizer, 0) + 1
    state.most_steps = max(state.most_steps, state.own_steps[optimizer])
    if state.own_steps[optimizer] >= autograd.STEPS:
        autograd.end(torch)
    if _take_counters():
        _look()
        write(complete=False)
    state.step_ended = time.time_ns() // 1000
    dist = sys.modules.get("torch.distributed")
    if dist and dist.is_available() and dist.is_initialized() and state.steps <= 20:
        from . import groups

        groups.settle()
    if state.stop_after and state.steps >= state.stop_after:
        raise SystemExit(0)


def _out_of_memory(device, wanted, total, free):
    from . import frames

    _take_counters()
    _look(aborted=True)
    stats = state.torch.cuda.memory_stats(device)
    state.out_of_memory.append(dict(device=device, wanted_bytes=wanted, allocated_bytes=stats["allocated_bytes.all.current"],
                                    reserved_bytes=stats["reserved_bytes.all.current"], **frames.describe(frames.here())))
    del state.out_of_memory[20:]
    write(complete=False)


def _ends():
    if not state.started or state.pid != os.getpid():
        return
    _take_counters()
    if state.job:
        state.job.ended(os.environ.get("EMULATED_GPU", ""), _unknown(_native()))
    _look()
    write(complete=True)


def write(complete):
    from . import autograd, history, hooks, reads
    from .recording import compiled

    torch, native = state.torch, _native()
    devices = []
    for device, peaks in sorted(state.peaks.items()):
        if not peaks["reserved"]:
            continue
        row = dict(index=device, **{f"{k}_bytes": v for k, v in peaks.items()}, driver_bytes=native.emulated_gpu_peak(device),
                   retries=state.retries[device])
        follower = state.followers.get(device)
        if follower:
            names = state.names.get(device, {})
            row["peak"] = dict(requested_bytes=follower.highest, phase=history.phase_of(follower.at), complete=follower.complete,
                               at=history.describe(follower.at), checkpoints=follower.checkpoints(), untrained_bytes=state.untrained, by_kind=follower.by_kind(names), blocks=follower.table(names))
        devices.append(row)
    hooks.write_json("process", dict(
        pid=os.getpid(), parent=os.getppid(), complete=complete, communicators=getattr(native, "emulated_gpu_communicators", int)(), argv=sys.argv[:20], torch=torch.__version__, rank=_rank(), world=_world(),
        steps=state.steps, own_steps=state.most_steps, trains=state.trains and (autograd.backwards() > 0 or bool(state.out_of_memory)), devices=devices, out_of_memory=state.out_of_memory, exception=state.exception, reads=reads.table(), unknown=_unknown(native),
        history_error=getattr(state, "history_error", None), compiled=compiled.report(), stopped=bool(state.stop_after and state.steps >= state.stop_after)))


def _unknown(native):
    """Sizes that only a device knows: [what, how often]."""
    import ctypes

    found, count = [], ctypes.c_uint64()
    native.emulated_gpu_unknown_at.restype = ctypes.c_char_p
    while what := native.emulated_gpu_unknown_at(len(found), ctypes.byref(count)):
        found.append([what.decode(), count.value])
    return found


def _rank():
    return state.rank if state.rank is not None else int(os.environ["RANK"]) if os.environ.get("RANK", "").isdigit() else None


def _world():
    return state.world or (int(os.environ["WORLD_SIZE"]) if os.environ.get("WORLD_SIZE", "").isdigit() else 1)
