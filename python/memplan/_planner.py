"""What suggest(), size(), sweep() and check() return: the JSON of the command line with names and types. All sizes are bytes."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from ._answer import Answer
from ._words import keywords


@dataclass(frozen=True)
class Candidate:
    """A setup that was estimated. `setup` are the keywords that estimate() takes for it, on top of those given."""
    setup: Dict[str, Any]
    flags: str
    peak: int
    verdict: str
    headroom: int
    gpus: int
    samples_per_step: int
    micro_batch: int
    accumulate: int
    step_seconds: float
    cautions: Tuple[str, ...]


@dataclass(frozen=True)
class Advice:
    """A trick, what it would save, and the lines of Python that it is."""
    title: str
    flags: str
    snippet: str
    note: str
    saves: Optional[int]


def _candidate(j: Dict[str, Any]) -> Candidate:
    return Candidate(keywords(j["flags"]), j["flags"], j["peak_bytes"], j["verdict"], j["headroom_bytes"], j["gpus"], j["samples_per_step"], j["micro_batch"],
                     j["accumulate"], j["step_microseconds"]["total"] / 1e6, tuple(j["cautions"]))


class Suggestion(Answer):
    """Setups that fit (docs/planner.md)."""

    @property
    def present(self) -> Candidate:
        """What was asked for, as it is."""
        return _candidate(self._data["present"])

    @property
    def smallest_change(self) -> Optional[Candidate]:
        found = self._data["smallest_change"]
        return _candidate(found) if found else None

    @property
    def fitting(self) -> List[Candidate]:
        """Fastest first; empty where nothing was found that fits."""
        return [_candidate(c) for c in self._data["fitting"]]

    @property
    def front(self) -> List[Candidate]:
        """By memory: nothing that was estimated is both smaller and faster."""
        return [_candidate(c) for c in self._data["front"]]

    @property
    def advice(self) -> List[Advice]:
        return [Advice(a["title"], a["flags"], a["snippet"], a["note"], a["saves_bytes"]) for a in self._data["advice"]]

    @property
    def settings(self) -> Optional[str]:
        """The fastest setup as lines to paste, for `framework`."""
        found = self._data["settings"]
        return str(found["text"]) if found else None

    @property
    def device(self) -> str:
        return str(self._data["device"]["key"])

    def __repr__(self) -> str:
        return f"<memplan.Suggestion fitting={len(self.fitting)} present={self.present.verdict}>"


@dataclass(frozen=True)
class Largest:
    """A batch or a length of sequence, and the peak with it. `at_least`: the search ended there."""
    size: int
    peak: int
    at_least: bool


@dataclass(frozen=True)
class Card:
    key: str
    usable: int
    peak: int
    price_per_hour: Optional[float]


class Size(Answer):
    """How much fits."""

    def _largest(self, key: str, name: str) -> Optional[Largest]:
        found = self._data[key]
        return Largest(found[name], found["peak_bytes"], found["at_least"]) if found else None

    @property
    def peak(self) -> int:
        """Of the setup as it was given."""
        return int(self._data["peak_bytes"])

    @property
    def largest_batch(self) -> Optional[Largest]:
        """None where the file fixes the batch, or without `gpu`."""
        return self._largest("largest_batch", "batch")

    @property
    def largest_sequence(self) -> Optional[Largest]:
        return self._largest("largest_sequence", "length")

    @property
    def largest_kv_cache(self) -> Optional[int]:
        """In tokens; with kv_cache= only."""
        found = self._data["largest_kv_cache"]
        return int(found["tokens"]) if found else None

    @property
    def fewest_gpus(self) -> Optional[int]:
        found = self._data["fewest_gpus"]
        return int(found["gpus"]) if found else None

    @property
    def cards(self) -> List[Card]:
        """The smallest ones that are large enough."""
        return [Card(c["key"], c["usable_bytes"], c["peak_bytes"], c["price_per_hour"]) for c in self._data["cards"]]

    def __repr__(self) -> str:
        batch = self.largest_batch
        return f"<memplan.Size peak={self.peak} largest_batch={batch.size if batch else None}>"


@dataclass(frozen=True)
class Row:
    """A point of a sweep: `setup` are its values by keyword. Where it could not be estimated, `error` says why and the sizes are None."""
    setup: Dict[str, str]
    peak: Optional[int]
    requested: Optional[int]
    allocated: Optional[int]
    reserved: Optional[int]
    verdict: Optional[str]
    headroom: Optional[int]
    error: Optional[str]


class Sweep(Answer):
    """A table, in the order of the axes."""

    @property
    def rows(self) -> List[Row]:
        names = [a["flag"].replace("-", "_") for a in self._data["axes"]]
        out = []
        for r in self._data["rows"]:
            peak = r.get("peak") or {}
            error = r.get("error")
            out.append(Row(dict(zip(names, r["values"])), peak.get("process_bytes"), peak.get("requested_bytes"), peak.get("allocated_bytes"),
                           peak.get("reserved_bytes"), r.get("verdict"), r.get("headroom_bytes"), error["message"] if isinstance(error, dict) else error))
        return out

    def __repr__(self) -> str:
        return f"<memplan.Sweep rows={len(self._data['rows'])}>"


@dataclass(frozen=True)
class Target:
    """A target of the gate. `status`: passed, warned, failed, ignored or error."""
    name: str
    model: str
    status: str
    peak: Optional[int]
    messages: Tuple[str, ...]


class Check(Answer):
    """The gate's answer."""

    @property
    def passed(self) -> bool:
        return self.exit_code == 0

    @property
    def status(self) -> str:
        return str(self._data["summary"]["status"])

    @property
    def exit_code(self) -> int:
        return int(self._data["summary"]["exit_code"])

    @property
    def targets(self) -> List[Target]:
        out = []
        for t in self._data["targets"]:
            said = [r["message"] for r in t["rules"] if r["status"] != "passed"] + ([t["error"]["message"]] if t["error"] else [])
            peak = t["report"]["summary"]["peak_bytes"] if t["report"] else None
            out.append(Target(t["name"], t["model"], t["status"], peak, tuple(said)))
        return out

    def __repr__(self) -> str:
        return f"<memplan.Check {self.status}>"
