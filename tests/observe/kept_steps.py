"""Which steps of a script a recording keeps (emulated_gpu/observer/memplan_observer/steps.py), without PyTorch: a made-up allocator's record goes in, and the highest
live bytes of every kept step must be those that the record has there."""
import os
import shutil
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def _module(folder):
    """The observer with what it takes of memplan.record, as memplan lays them out."""
    # under a name of its own: other tests have imported the package from where it lies
    package = os.path.join(folder, "observer_with_recording")
    shutil.copytree(os.path.join(ROOT, "emulated_gpu", "observer", "memplan_observer"), package)
    shutil.copytree(os.path.join(ROOT, "python", "memplan", "_recording"), os.path.join(package, "recording"), ignore=shutil.ignore_patterns("worker.py", "device.py"))
    sys.path.insert(0, folder)
    from observer_with_recording import steps

    return steps


class _Record:
    """An allocator's record: `weights` bytes that stay, and in each step a loss that lives until the next one, beside activations that do not."""

    def __init__(self):
        self.entries, self.address, self.live, self.high = [], 0, 0, 0

    def make(self, size, frames=()):
        self.address += 1
        self.live += size
        self.high = max(self.high, self.live)
        self.entries.append(dict(action="alloc", addr=self.address, size=size, stream=0, frames=frames))
        return self.address, size

    def free(self, block):
        self.live -= block[1]
        self.entries.append(dict(action="free_completed", addr=block[0], size=block[1], stream=0))

    def take(self):
        entries, self.entries = self.entries, []
        return entries


def _highest(log, begin, end):
    live, sizes, most = 0, {}, 0
    for at, (kind, address, size, *_) in enumerate(log.events[:end]):
        live += size if kind > 0 else -sizes[address]
        sizes[address] = size
        most = max(most, live) if at >= begin else 0
    return most


def kept(activations):
    """The highest live bytes of each step that is kept of a run with these activations."""
    with tempfile.TemporaryDirectory() as folder:
        steps = _module(folder)
        record = _Record()
        log = steps.Steps(None, lambda: log.take(record.take()), lambda: dict(requested=record.high, allocated=record.high, reserved=record.high))
        record.make(1000)
        forward = [dict(name="_call_impl", filename="x/torch/nn/modules/module.py")]
        loss = None
        for size in activations:
            block, fresh = record.make(size, forward), record.make(8, forward)
            if loss:
                record.free(loss)
            loss = fresh
            log.enter("backward")
            record.free(block)
            log.enter("optimizer")
            log.step_ends()
        log.ends()
        begins = [at for at, _, phase in log.marks if phase == "data"] + [len(log.events)]
        sys.path.remove(folder)
        for name in [n for n in sys.modules if n.startswith("observer_with_recording")]:
            del sys.modules[name]
        return [_highest(log, a, b) for a, b in zip(begins, begins[1:])]
