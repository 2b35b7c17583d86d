"""From records to the events of the file: allocations in their order, and what each belongs to."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

PHASES = {"setup": "setup", "data": "data", "forward": "forward", "loss": "loss", "backward": "backward", "clip": "clip", "optimizer": "optimizer", "end": "optimizer"}


def of(log: Any) -> Dict[str, Any]:
    """{sizes, streams, events, notes, ops, steps, names, peaks}: `events` has n for the birth of allocation n - 1 and -n for its death."""
    sizes: List[int] = []
    streams: List[int] = []
    events: List[int] = []
    notes: List[str] = []
    alive: Dict[int, int] = {}
    stream_numbers: Dict[int, int] = {}
    places = [0]  # events of the file before event i of the record
    born_at: List[Tuple[int, int]] = []  # per event of the record: (address, allocation)
    for kind, address, size, stream, note in log.events:
        if kind > 0:
            alive[address] = len(sizes)
            born_at.append((address, len(sizes)))
            sizes.append(size)
            streams.append(stream_numbers.setdefault(stream, len(stream_numbers)))
            events.append(len(sizes))
            notes.append(note)
        else:
            number = alive.pop(address, None)
            born_at.append((address, -1))
            if number is not None:
                events.append(-number - 1)
                notes.append(note)
        places.append(len(events))
    marks = [[places[at], step, phase] for at, step, phase in log.marks]
    return dict(sizes=sizes, streams=streams, events=events, notes=notes, marks=marks, names=_names(log, born_at), peaks=log.peaks)


def _names(log: Any, born_at: List[Tuple[int, int]]) -> List[List[Any]]:
    """[allocation, category, name], the first name that each was given."""
    at, alive, found = 0, {}, {}
    for before, address, category, name in sorted(log.names, key=lambda n: n[0]):
        while at < before:
            a, number = born_at[at]
            if number >= 0:
                alive[a] = number
            else:
                alive.pop(a, None)
            at += 1
        if address in alive:
            found.setdefault(alive[address], [category, name])
    return [[number, *what] for number, what in sorted(found.items())]


def model_of(model: Any) -> Dict[str, Any]:
    def rows(named: Any) -> List[Any]:
        first: Dict[int, str] = {}
        out = []
        for name, t in named:
            key = id(t)
            out.append([name, str(t.dtype).removeprefix("torch."), list(t.shape), int(t.requires_grad), first.get(key, "")])
            first.setdefault(key, name)
        return out

    return {"class": f"{type(model).__module__}.{type(model).__qualname__}", "parameters": rows(model.named_parameters(remove_duplicate=False)),
            "buffers": rows(model.named_buffers())}


def calls_of(log: Any) -> Dict[str, Any]:
    return dict(calls=log.rows, tensors=log.tensors, storages=log.storages, releases=log.releases, nodes=log.nodes, scopes=log.scopes.rows,
                frames=log.frames.nodes, strings=log.frames.strings)


def same(a: Dict[str, Any], b: Dict[str, Any]) -> Optional[int]:
    """None where both have the same events in the same order, else the first event that differs."""
    for i, (x, y) in enumerate(zip(a["events"], b["events"])):
        if x != y:
            return i
    if len(a["events"]) != len(b["events"]):
        return min(len(a["events"]), len(b["events"]))
    return None if a["marks"] == b["marks"] and a["streams"] == b["streams"] else 0
