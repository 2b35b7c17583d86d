"""The calls of one program at several batches as one document, in which every integer that depends on the batch is a line: {"b": [at batch 0, per sample]}."""
from __future__ import annotations

from typing import Any, Dict, List, Optional


class _Apart(Exception):
    """Two batches run different programs, or an integer is on no line."""


def lifted(documents: Dict[int, Dict[str, Any]]) -> Dict[str, Any]:
    """One document for as many of the batches as run the same calls, the first one's program; "batches" says which."""
    batches = sorted(documents)
    if len(batches) >= 3:
        try:
            return dict(_lift([documents[b] for b in batches], batches), batches=batches)
        except _Apart:
            pass
    return dict(documents[batches[0]], batches=batches[:1])


def _lift(same: List[Any], batches: List[int]) -> Any:
    first = same[0]
    kind = type(first)
    if any(type(x) is not kind for x in same):
        raise _Apart
    if kind is dict:
        if any(x.keys() != first.keys() for x in same):
            raise _Apart
        return {k: _lift([x[k] for x in same], batches) for k in first}
    if kind is list:
        if any(len(x) != len(first) for x in same):
            raise _Apart
        return [_lift(list(x), batches) for x in zip(*same)]
    if all(x == first for x in same):
        return first
    if kind is int:
        line = _line(same, batches)
        if line is None:
            raise _Apart
        return {"b": line}
    if kind is float:  # 1 / batch: no size depends on it
        return first
    raise _Apart


def _line(values: List[int], batches: List[int]) -> Optional[List[int]]:
    slope, rest = divmod(values[1] - values[0], batches[1] - batches[0])
    offset = values[0] - slope * batches[0]
    if rest or any(v != offset + slope * b for v, b in zip(values, batches)):
        return None
    return [offset, slope]
