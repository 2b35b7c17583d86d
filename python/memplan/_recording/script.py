"""From what `memplan observe --record` saw of a script, at one batch or at several, to the file."""
from __future__ import annotations

from typing import Any, Dict, List

from . import archive, lift


def write(path: str, found: List[Dict[str, Any]]) -> None:
    """found: one for each batch, as the observer's job.py writes them."""
    first = found[0]
    found = sorted(found, key=lambda f: f["batch"])
    why = [f["why"] for f in found if f["why"]]
    alike = all(f["setup"] == first["setup"] for f in found)
    if not alike and not why:
        why = ["it does other things at other batches"]
    member, _ = archive.run_member({f["batch"]: f["events"] for f in found}, {})
    tapes = {} if why else {f["batch"]: f["calls"] for f in found}
    row = dict(setup=first["setup"], events="runs/0/events.json", calls="runs/0/calls.json" if tapes else None, causes=False, unknown=first["unknown"],
               why=why[0] if why else "")
    batches = [f["batch"] for f in found if f["batch"]]
    inputs = first["inputs"] if tapes else []
    index = dict(format="memplan recording", version=archive.VERSION, torch=first["torch"], gpu=first["gpu"], evidence="emulated device", script=first["command"],
                 model=first["model"], inputs=inputs, open=_open(inputs, found) if tapes else [], batches=batches, runs=[row])
    archive.write(path, index, [(member, lift.lifted(tapes) if tapes else None)])


def _open(inputs: List[Any], found: List[Dict[str, Any]]) -> List[List[Any]]:
    """Dimensions of inputs that are the batch, whatever that is."""
    if len(found) < 2 or any(len(f["inputs"]) != len(inputs) for f in found):
        return []
    return [[i, d, "batch"] for i, (_, _, sizes) in enumerate(inputs) for d in range(len(sizes))
            if all(len(f["inputs"][i][2]) == len(sizes) and f["inputs"][i][2][d] == f["batch"] for f in found)]
