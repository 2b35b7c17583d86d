"""The file: a zip archive of JSON (docs/recording.md)."""
from __future__ import annotations

import json
import zipfile
from typing import Any, Dict, List, Optional, Tuple

from . import lines

INDEX = "memplan_recording.json"
VERSION = 1


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


class _Strings:
    def __init__(self) -> None:
        self.rows: List[str] = []
        self._at: Dict[str, int] = {}

    def __call__(self, text: str) -> int:
        if text not in self._at:
            self._at[text] = len(self.rows)
            self.rows.append(text)
        return self._at[text]


def _ops(record: Dict[str, Any], notes: Optional[List[str]], calls: Optional[Dict[str, Any]], strings: _Strings) -> List[List[int]]:
    """[name, scope, phase, step, first event, call] of each stretch of events with one cause. Calls without events are left out."""
    marks, out, last = record["marks"] + [[len(record["events"]), 0, ""]], [], None
    for (begin, step, phase), (end, _, _) in zip(marks, marks[1:]):
        last = None
        for at in range(begin, end):
            note = notes[at] if notes else ""
            call = int(note.rstrip("+")) if note and calls else -1
            # A note of an earlier phase: nothing was called since.
            if call >= 0 and calls and (calls["calls"][call]["phase"], calls["calls"][call]["step"]) != (phase, step):
                call = -1
            between = note.endswith("+") or call < 0
            key = (call, between)
            if key == last:
                continue
            last = key
            name = ("after " if note.endswith("+") else "") + _aten(calls["calls"][call]["op"]) if call >= 0 and calls else phase
            scope = calls["calls"][call]["scope"] if call >= 0 and calls else -1
            out.append([strings(name), scope, strings(lines.PHASES[phase]), step, at, call])
    return out


def _aten(op: str) -> str:
    """"aten.mm.default" as it is written elsewhere: "aten::mm"."""
    space, _, rest = op.partition(".")
    return f"{space}::{rest.removesuffix('.default')}" if rest else op


def _kinds(record: Dict[str, Any], ops: List[List[int]], strings: _Strings) -> Tuple[List[str], List[int]]:
    """Category and label of every allocation; what nobody has named is told by how long it lives."""
    born, died = {}, {}
    for at, e in enumerate(record["events"]):
        (born if e > 0 else died)[abs(e) - 1] = at
    op_of, at = [], -1
    for i in range(len(record["events"])):
        while at + 1 < len(ops) and ops[at + 1][4] <= i:
            at += 1
        op_of.append(at)
    named = {number: (category, name) for number, category, name in record["names"]}
    categories, labels = [], []
    for number in range(len(record["sizes"])):
        category, name = named.get(number, ("", ""))
        if not category:
            begin = op_of[born[number]]
            end = op_of[died[number]] if number in died else None
            phase = strings.rows[ops[begin][2]]
            category = "workspace" if end is None else "temporary" if end == begin or phase not in ("forward", "loss") else "activation"
        categories.append(category)
        labels.append(strings(name) if name else -1)
    return categories, labels


CATEGORIES = ("parameter", "buffer", "gradient", "optimizer_state", "activation", "temporary", "workspace", "input", "output")


def run_member(records: Dict[int, Dict[str, Any]], calls: Optional[Dict[str, Any]], calls_batch: Optional[int]) -> Tuple[Dict[str, Any], bool]:
    """One setup at its sizes: programs that are alike but for their sizes share what they do. The flag: every event knows its call."""
    strings = _Strings()
    programs: List[Dict[str, Any]] = []
    first: List[Dict[str, Any]] = []
    traced = False
    for batch, record in records.items():
        for known, program in zip(first, programs):
            if lines.same(known, record) is None:
                program["batches"].append(batch)
                program["sizes"].append(record["sizes"])
                program["peaks"].append([[p["requested"], p["allocated"], p["reserved"]] for p in record["peaks"]])
                break
        else:
            notes = None
            if calls is not None and lines.same(calls, record) is None and (batch != calls_batch or calls["sizes"] == record["sizes"]):
                notes, traced = calls["notes"], True
            ops = _ops(record, notes, calls["calls"] if calls and notes else None, strings)
            categories, labels = _kinds(record, ops, strings)
            steps = [next(m[0] for m in record["marks"] if m[1] == s and m[2] == "data") for s in range(1, len(record["peaks"]))]
            first.append(record)
            programs.append(dict(batches=[batch], sizes=[record["sizes"]], peaks=[[[p["requested"], p["allocated"], p["reserved"]] for p in record["peaks"]]],
                                 streams=record["streams"] if any(record["streams"]) else [], categories=[CATEGORIES.index(c) for c in categories],
                                 labels=labels, events=record["events"], ops=ops, steps=steps))
    return dict(strings=strings.rows, programs=programs), traced


def write(path: str, index: Dict[str, Any], runs: List[Tuple[Dict[str, Any], Optional[Dict[str, Any]]]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(INDEX, _text(index))
        for i, (run, calls) in enumerate(runs):
            z.writestr(f"runs/{i}/events.json", _text(run))
            if calls is not None:
                z.writestr(f"runs/{i}/calls.json", _text(calls))
