"""The file: a zip archive of JSON (docs/recording.md)."""
from __future__ import annotations

import contextlib
import json
import os
import zipfile
from typing import Any, Dict, List, Optional, Tuple

from . import align, lines

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


def run_member(records: Dict[int, Dict[str, Any]], watched: Dict[int, Dict[str, Any]]) -> Tuple[Dict[str, Any], bool]:
    """One setup at its sizes: batches that ask for the same but for sizes and scratch memory share a program. `watched` are the records with calls, by batch.
    The flag: every event knows its call."""
    strings = _Strings()
    complete = bool(watched)
    programs: List[Dict[str, Any]] = []
    for batch, record in records.items():
        if batch in watched:
            record["notes"], missing = align.causes(record, watched[batch])
            complete = complete and not missing
        record["columns"], record["batches"], record["tops"] = [record["sizes"]], [batch], [_peaks(record)]
        for i, known in enumerate(programs):
            merged = align.merge(known, record) if any(record["notes"]) else None
            if merged is None and lines.same(known, record) is None:
                merged = dict(known, columns=[*known["columns"], record["sizes"]])
            if merged is not None:
                programs[i] = dict(merged, batches=[*known["batches"], batch], tops=[*known["tops"], _peaks(record)])
                break
        else:
            programs.append(record)
    calls = next(iter(watched.values()))["calls"] if watched else None
    # Notes are numbers of calls, which are the same for all batches as long as the module makes the same calls.
    alike = [calls is not None and p["batches"][0] in watched and _same_calls(watched[p["batches"][0]]["calls"], calls) for p in programs]
    body = [_program(p, calls if same else None, strings) for p, same in zip(programs, alike)]
    scopes = [[strings(path), strings(kind), parent, times] for path, kind, parent, times in calls["scopes"]] if calls else []
    return dict(strings=strings.rows, scopes=scopes, programs=body), complete and all(alike)


def _same_calls(a: Dict[str, Any], b: Dict[str, Any]) -> bool:
    return len(a["calls"]) == len(b["calls"]) and all(x["op"] == y["op"] for x, y in zip(a["calls"], b["calls"]))


def _peaks(record: Dict[str, Any]) -> List[List[int]]:
    return [[p["requested"], p["allocated"], p["reserved"]] for p in record["peaks"]]


def _program(record: Dict[str, Any], calls: Optional[Dict[str, Any]], strings: _Strings) -> Dict[str, Any]:
    ops = _ops(record, record["notes"] if calls else None, calls, strings)
    categories, labels = _kinds(record, ops, strings)
    steps = [next(m[0] for m in record["marks"] if m[1] == s and m[2] == "data") for s in range(1, len(record["peaks"]))]
    return dict(batches=record["batches"], sizes=record["columns"], peaks=record["tops"], streams=record["streams"] if any(record["streams"]) else [],
                categories=[CATEGORIES.index(c) for c in categories], labels=labels, events=record["events"], ops=ops, steps=steps)


def write(path: str, index: Dict[str, Any], runs: List[Tuple[Dict[str, Any], Optional[Dict[str, Any]]]]) -> None:
    part = f"{path}.{os.getpid()}.tmp"
    try:
        _write(part, index, runs)
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def _write(path: str, index: Dict[str, Any], runs: List[Tuple[Dict[str, Any], Optional[Dict[str, Any]]]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(INDEX, _text(index))
        for i, (run, calls) in enumerate(runs):
            z.writestr(f"runs/{i}/events.json", _text(run))
            if calls is not None:
                z.writestr(f"runs/{i}/calls.json", _text(calls))
