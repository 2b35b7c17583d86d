"""Which events of one record are which of another one: of the same run with somebody looking on, and of the same program at another batch."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

WINDOW, SURE = 200, 6  # how far to look for the place where two records meet again, and for how many events they must agree there


def causes(plain: Dict[str, Any], watched: Dict[str, Any]) -> Tuple[List[str], int]:
    """For every event of `plain` the note of its counterpart in `watched`, and how many have none (they share that of the event before)."""
    a = [plain["sizes"][abs(e) - 1] * (1 if e > 0 else -1) for e in plain["events"]]
    b = [watched["sizes"][abs(e) - 1] * (1 if e > 0 else -1) for e in watched["events"]]
    notes, missing, i, j, last = [], 0, 0, 0, ""
    while i < len(a):
        if j < len(b) and a[i] == b[j]:
            last = watched["notes"][j]
            notes.append(last)
            i, j = i + 1, j + 1
            continue
        skip = _meet(a, b, i, j)
        if skip is None or skip[0]:
            count = skip[0] if skip else 1
            notes += [last] * min(count, len(a) - i)
            missing += min(count, len(a) - i)
            i += count
        j += skip[1] if skip else 0
    return notes, missing


def _meet(a: List[int], b: List[int], i: int, j: int) -> Optional[Tuple[int, int]]:
    """The nearest place from which on both agree, as the events to skip in each."""
    for distance in range(1, WINDOW):
        for di in range(distance + 1):
            x, y = a[i + di:i + di + SURE], b[j + distance - di:j + distance - di + SURE]
            if x and x == y:
                return di, distance - di
    return None


def merge(base: Dict[str, Any], other: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """One program for batches that differ in scratch memory only: what a kernel takes at one size has no bytes at the others. `base` may stand for several
    batches already: "columns" are the sizes of each. None where more than scratch memory differs."""
    left, right = _Skeleton(base), _Skeleton(other)
    if left.tokens != right.tokens:
        return None
    events: List[int] = []
    notes: List[str] = []
    pairs: List[Tuple[int, int]] = []  # per allocation of the result its number on both sides, -1 none
    numbers: Tuple[Dict[int, int], Dict[int, int]] = ({}, {})
    apart = [True]  # emptied where the two sides contradict each other

    def add(x: Optional[int], y: Optional[int], note: str) -> None:
        side, e = (0, x) if x is not None else (1, y)
        assert e is not None
        if e < 0:
            if x is not None and y is not None and numbers[0][-x - 1] != numbers[1][-y - 1]:
                apart.clear()
            events.append(-numbers[side][-e - 1] - 1)
        else:
            if x is not None:
                numbers[0][x - 1] = len(pairs)
            if y is not None:
                numbers[1][y - 1] = len(pairs)
            pairs.append((x - 1 if x is not None else -1, y - 1 if y is not None else -1))
            events.append(len(pairs))
        notes.append(note)

    marks = []
    for k in range(len(left.tokens) + 1):
        mine, theirs = left.scratch[k], right.scratch[k]
        if _pattern(mine) == _pattern(theirs):
            for (x, note), (y, _) in zip(mine, theirs):
                add(x, y, note)
        else:
            for x, note in mine:
                add(x, None, note)
            for y, note in theirs:
                add(None, y, note)
        if k == len(left.tokens):
            break
        if left.tokens[k][0] == "mark":
            marks.append([len(events), *left.tokens[k][1:]])
        else:
            add(left.events[k][0], right.events[k][0], left.events[k][1])
    # Scratch memory that is paired where it is made and not where it is given back, or the other way round: two programs then.
    if len(set(f for f in events if f < 0)) != sum(f < 0 for f in events) or not apart:
        return None
    columns = [[column[x] if x >= 0 else 0 for x, _ in pairs] for column in base["columns"]]
    columns.append([other["sizes"][y] if y >= 0 else 0 for _, y in pairs])
    streams = [base["streams"][x] if x >= 0 else other["streams"][y] for x, y in pairs]
    names = [[numbers[0][n], category, name] for n, category, name in base["names"]]
    return dict(base, events=events, notes=notes, columns=columns, sizes=columns[0], streams=streams, marks=marks, names=names)


class _Skeleton:
    """A record as what lasts longer than the call that made it ("tokens", with marks among them), and the scratch memory before each of these."""

    def __init__(self, record: Dict[str, Any]) -> None:
        events, notes = record["events"], [n.rstrip("+") for n in record["notes"]]
        born = {e: notes[i] for i, e in enumerate(events) if e > 0}
        scratch = {-e for i, e in enumerate(events) if e < 0 and notes[i] and born[-e] == notes[i]}
        scratch -= {n + 1 for n, _, _ in record["names"]}
        self.tokens: List[Tuple[Any, ...]] = []
        self.events: List[Tuple[int, str]] = []
        self.scratch: List[List[Tuple[int, str]]] = [[]]
        lasting: Dict[int, int] = {}
        marks = list(record["marks"])
        for i in range(len(events) + 1):
            while marks and marks[0][0] <= i:
                self._token(("mark", *marks.pop(0)[1:]), (0, ""))
            if i == len(events):
                break
            e, note = events[i], record["notes"][i]
            if abs(e) in scratch:
                self.scratch[-1].append((e, note))
                continue
            number = lasting.setdefault(abs(e), len(lasting))
            self._token(("make" if e > 0 else "free", number, record["streams"][abs(e) - 1]), (e, note))

    def _token(self, token: Tuple[Any, ...], event: Tuple[int, str]) -> None:
        self.tokens.append(token)
        self.events.append(event)
        self.scratch.append([])


def _pattern(events: List[Tuple[int, str]]) -> List[Tuple[int, str]]:
    """Events with their allocations numbered from one."""
    of: Dict[int, int] = {}
    return [((1 if e > 0 else -1) * of.setdefault(abs(e), len(of) + 1), note) for e, note in events]
