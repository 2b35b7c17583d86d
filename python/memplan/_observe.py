"""observe(): a script, as it is, on the emulated GPU (docs/observe.md)."""
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Union

from . import _binary
from ._words import words


@dataclass(frozen=True)
class Rank:
    """One process on one device: PyTorch's own counters, and the process as nvidia-smi would show it. Sizes are bytes."""
    rank: int
    device: int
    steps: int
    verdict: str
    requested: int
    allocated: int
    reserved: int
    process: int
    by_kind: Dict[str, int]


class Observation:
    """What a script needed. to_dict() is the whole of it (docs/observe.schema.json)."""

    def __init__(self, data: Dict[str, Any], output: str) -> None:
        self._data, self.output = data, output

    @property
    def verdict(self) -> str:
        """"fits", "tight", "no-fit" or "unknown"."""
        return str(self._data["verdict"])

    @property
    def peak(self) -> int:
        """Of the process that needed most."""
        return int(self._data["peak_bytes"])

    @property
    def limit(self) -> int:
        return int(self._data["device"]["usable_bytes"])

    @property
    def exit_code(self) -> int:
        return int(self._data["exit_code"])

    @property
    def ranks(self) -> List[Rank]:
        return [Rank(r["rank"], r["device"], r["steps"], r["verdict"], r["requested_bytes"], r["allocated_bytes"], r["reserved_bytes"], r["process_bytes"],
                     dict(r["peak"]["by_kind"])) for r in self._data["ranks"]]

    @property
    def notes(self) -> List[str]:
        return list(self._data["notes"])

    def to_dict(self) -> Dict[str, Any]:
        """A copy of the JSON report."""
        copied: Dict[str, Any] = json.loads(json.dumps(self._data))
        return copied

    def to_json(self, indent: Optional[int] = 2) -> str:
        return json.dumps(self._data, indent=indent)

    def __repr__(self) -> str:
        return f"<memplan.Observation verdict={self.verdict} peak={self.peak} limit={self.limit}>"


def observe(command: Union[str, Sequence[str]], *, gpu: Optional[str] = None, timeout: Optional[float] = None, **flags: Any) -> Observation:
    """Runs a script without a GPU and says what it would have needed.

    command: ["python", "train.py", "--batch", "32"], or the path of a script, which this Python runs.
    flags: of `memplan observe`, with underscores: world=8, no_limit=True, stop_after=3.

    Raises Error where the script cannot be run or fails before it uses a GPU; running out of memory is a verdict.
    """
    import sys

    given = [sys.executable, command] if isinstance(command, str) else list(command)
    said: List[str] = []
    data = _binary.call_json(["observe", *words({"gpu": gpu, **flags}, "observe"), "--", *given], None, timeout, said=said)
    return Observation(data, said[-1])
