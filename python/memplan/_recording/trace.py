"""The allocator's own record of a run, read at every mark so that each event belongs to a phase of a step."""
from __future__ import annotations

import inspect
from typing import Any, Dict, List, Tuple

MOST = 10_000_000  # events between two marks
KINDS = {"alloc": 1, "free_completed": -1}


class Trace:
    """What the reference program tells (program.run), as the log that it is given."""

    HISTORY: Dict[str, Any] = dict(context=None)  # of every event: nothing but the event

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.events: List[Tuple[int, int, int, int, str]] = []  # 1 alloc or -1 free, address, bytes, stream, what the recorder had noted
        self.marks: List[Tuple[int, int, str]] = []  # events before it, step, phase
        self.names: List[Tuple[int, int, str, str]] = []  # events before it, address, category, name
        self.peaks: List[Dict[str, int]] = []  # per step, as PyTorch counts
        torch.cuda.init()
        self._begin()

    def _begin(self) -> None:
        memory, more = self.torch.cuda.memory, dict(self.HISTORY)
        if "clear_history" in inspect.signature(memory._record_memory_history_impl).parameters:
            more["clear_history"] = True
        else:  # PyTorch 2.6 forgets when it is switched off
            memory._record_memory_history(None)
        memory._record_memory_history("all", max_entries=MOST, **more)

    def _drain(self) -> None:
        self._take(self.torch.cuda.memory._snapshot()["device_traces"][0])
        self._begin()

    def _take(self, entries: List[Any]) -> None:
        for e in entries:
            kind = KINDS.get(e["action"])
            if kind and e["size"]:
                self.events.append((kind, e["addr"], e["size"], e["stream"], self._note(kind, e)))
            elif e["action"] == "oom":
                raise MemoryError("the emulated GPU is full")

    def _note(self, kind: int, event: Any) -> str:
        return str(event.get("user_metadata", ""))

    def mark(self, step: int, phase: str) -> None:
        self._drain()
        if phase == "data" and step > len(self.peaks):
            self._peak()
            self.torch.cuda.reset_peak_memory_stats()
        self.marks.append((len(self.events), step, phase))

    def _peak(self) -> None:
        stats = self.torch.cuda.memory_stats()
        self.peaks.append({k: stats[f"{k}_bytes.all.peak"] for k in ("requested", "allocated", "reserved")})

    def done(self) -> None:
        self._drain()
        self._peak()

    def _name(self, tensor: Any, category: str, name: str) -> None:
        if isinstance(tensor, self.torch.Tensor) and tensor.is_cuda and tensor.layout is self.torch.strided:
            self.names.append((len(self.events), tensor.untyped_storage().data_ptr(), category, name))

    def weights(self, model: Any) -> None:
        self._drain()
        for name, p in model.named_parameters():
            self._name(p, "parameter", name)
        for name, b in model.named_buffers():
            self._name(b, "buffer", name)

    def inputs(self, tensors: List[Any]) -> None:
        self._drain()
        for i, t in enumerate(tensors):
            self._name(t, "input", f"input {i}")

    def output(self, tensor: Any) -> None:
        self._drain()
        self._name(tensor, "output", "output")

    def returned(self, output: Any) -> None:
        pass

    def gradients(self, model: Any) -> None:
        for name, p in model.named_parameters():
            if p.grad is not None:
                self._name(p.grad, "gradient", name + ".grad")

    def state(self, optimizer: Any, model: Any) -> None:
        if optimizer is None:
            return
        of = {id(p): name for name, p in model.named_parameters()}
        for group in optimizer.param_groups:
            for p in group["params"]:
                for key, value in optimizer.state.get(p, {}).items():
                    self._name(value, "optimizer_state", f"{of.get(id(p), '?')}.{key}")
