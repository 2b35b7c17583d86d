"""What estimate() returns: the report of the command line with names and types."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from . import _binary, _card
from ._answer import Answer
from ._errors import Error


@dataclass(frozen=True)
class Counters:
    """PyTorch's own counters in bytes, and the process as nvidia-smi shows it."""
    requested: int
    allocated: int
    reserved: int
    process: int


@dataclass(frozen=True)
class Part:
    """A part of the peak. The parts add up to Report.peak. `basis`: exact, modelled or assumed."""
    category: str
    bytes: int
    basis: str


@dataclass(frozen=True)
class Step:
    """`number` counts from 1."""
    number: int
    peak: Counters
    allocated_after: int
    requested_after: int


@dataclass(frozen=True)
class Tensor:
    """A tensor alive at the peak. `bytes` were asked for, `block_bytes` is what the allocator gave."""
    name: str
    shape: Tuple[int, ...]
    dtype: Optional[str]
    bytes: int
    block_bytes: int
    category: str
    producer: str
    module: str
    reason: str


@dataclass(frozen=True)
class Alternative:
    """Another setup that was estimated: the flags that make it from this one."""
    flags: str
    peak: int
    verdict: str
    headroom: int


@dataclass(frozen=True)
class Unmodelled:
    """Ops without an exact rule, and by how many bytes they widen the range."""
    op: str
    count: int
    handling: str
    widened_by: int


@dataclass(frozen=True)
class Warning:
    """`code` is stable."""
    code: str
    message: str


def _counters(j: Dict[str, Any]) -> Counters:
    return Counters(j["requested_bytes"], j["allocated_bytes"], j["reserved_bytes"], j["process_bytes"])


class Report(Answer):
    """One estimate. All sizes are bytes; to_dict() is the whole of it (docs/report.schema.json)."""

    @property
    def verdict(self) -> Optional[str]:
        """"fits", "tight", "no-fit" or "unknown"; None without `gpu`."""
        value: Optional[str] = self._data["summary"]["verdict"]
        return value

    @property
    def fits(self) -> Optional[bool]:
        """Whether it runs, perhaps tightly; None where that is not known."""
        return {"fits": True, "tight": True, "no-fit": False}.get(self.verdict or "")

    @property
    def peak(self) -> int:
        """Of the process: counters.process."""
        return int(self._data["summary"]["peak_bytes"])

    @property
    def range(self) -> Tuple[int, int]:
        """What the peak lies between. Both ends are `peak` where the file allows no other reading."""
        s = self._data["summary"]
        return int(s["low_bytes"]), int(s["high_bytes"])

    @property
    def ranges(self) -> Dict[str, Tuple[int, int]]:
        """What each counter lies between: "requested", "allocated", "reserved", "process"."""
        stated = self._data["ranges"]
        return {name: (int(stated[f"{name}_bytes"]["low_bytes"]), int(stated[f"{name}_bytes"]["high_bytes"]))
                for name in ("requested", "allocated", "reserved", "process")}

    @property
    def certainty(self) -> str:
        """"recorded", "exact" or "modelled"; `to_dict()["summary"]` also says why, and what would make it surer."""
        return str(self._data["summary"]["certainty"])

    @property
    def confirmed(self) -> Optional[bool]:
        """Whether PyTorch, which ran the module itself, asked for the same, event by event; None unless confirm=True. `confirmation` says it in a sentence."""
        value: Optional[bool] = self._data["summary"].get("confirmed")
        return value

    @property
    def confirmation(self) -> Optional[str]:
        value: Optional[str] = self._data["summary"].get("confirmation")
        return value

    @property
    def limit(self) -> Optional[int]:
        """What the card offers; None without `gpu`."""
        value: Optional[int] = self._data["summary"]["limit_bytes"]
        return value

    @property
    def headroom(self) -> Optional[int]:
        """limit - peak; None without `gpu`."""
        value: Optional[int] = self._data["summary"]["headroom_bytes"]
        return value

    @property
    def why(self) -> Optional[str]:
        """Why this verdict; None without `gpu`."""
        value: Optional[str] = self._data["summary"]["why"]
        return value

    @property
    def device(self) -> str:
        """The key of the card: "h100-80gb"."""
        return str(self._data["device"]["key"])

    @property
    def parameters(self) -> int:
        """How many, tied ones counted once."""
        return int(self._data["input"]["parameters"])

    @property
    def counters(self) -> Counters:
        return _counters(self._data["counters"])

    @property
    def parts(self) -> List[Part]:
        return [Part(p["category"], p["bytes"], p["basis"]) for p in self._data["breakdown"]]

    @property
    def steps(self) -> List[Step]:
        return [Step(s["step"], _counters(s["peak"]), s["allocated_after_bytes"], s["requested_after_bytes"]) for s in self._data["steps"]]

    @property
    def tensors(self) -> List[Tensor]:
        """Alive at the peak, largest first."""
        return [Tensor(t["name"], tuple(t["shape"]), t["dtype"], t["bytes"], t["block_bytes"], t["category"], t["producer"], t["module"], t["reason"])
                for t in self._data["tensors_at_peak"]]

    @property
    def changes(self) -> List[Alternative]:
        """Smaller changes that were tried when it does not fit."""
        return [Alternative(c["flags"], c["peak_bytes"], c["verdict"], c["headroom_bytes"]) for c in self._data["alternatives"]["changes"]]

    @property
    def assumptions(self) -> List[str]:
        return list(self._data["assumptions"])

    @property
    def unmodelled(self) -> List[Unmodelled]:
        return [Unmodelled(u["op"], u["count"], u["handling"], u["widened_by_bytes"]) for u in self._data["unmodelled"]]

    @property
    def warnings(self) -> List[Warning]:
        return [Warning(w["code"], w["message"]) for w in self._data["warnings"]]

    @property
    def exit_code(self) -> int:
        """Of the command line: 0, or 1 where the verdict is one of `fail_on`."""
        return int(self._data["gate"]["exit_code"])

    def to_html(self) -> str:
        """The self-contained page of --format html, as one text: write it to a file and open that. It has the timeline of
        the step as well, so the setup is estimated again."""
        code, page = _binary.call([*self._source.words, "--format=html"], self._source.folder, None)
        if not page.startswith("<!doctype html>"):
            raise Error(f"memplan ended with exit code {code} and no page; is the model's file still there?", code=code)
        return page

    def _repr_html_(self) -> str:
        """What notebooks show: a short card."""
        return _card.card(self._data)

    def __repr__(self) -> str:
        limit = "" if self.limit is None else f", limit={self.limit}"
        return f"<memplan.Report verdict={self.verdict} peak={self.peak}{limit}>"
