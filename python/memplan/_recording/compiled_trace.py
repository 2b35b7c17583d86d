"""The allocator's record of a compiled module. Calls below Inductor's code pass no dispatcher, so the lines that allocate tell what they do it for."""
from __future__ import annotations

from typing import Any, Dict, List, Tuple

from . import compiled
from .calls import _class
from .trace import Trace

INNER = ("/torch/_ops.py", "/torch/_dynamo/", "/torch/utils/_contextlib.py", "/torch/_compile.py", "/torch/nn/modules/module.py", "/torch/autograd/", "/torch/_functorch/", "/torch/_inductor/")


class CompiledTrace(Trace):
    """A Trace whose events are noted with the kernels of Inductor, or the functions, that they belong to."""

    HISTORY: Dict[str, Any] = dict(context="alloc", stacks="python")

    def __init__(self, model: Any) -> None:
        self.step, self.phase = 0, "setup"
        self.rows: List[Dict[str, Any]] = []
        self.scopes: List[Tuple[str, str, int, int]] = [("", _class(model), -1, 0)]
        self._classes = {name: _class(m) for name, m in model.named_modules()}
        self._scopes: Dict[str, int] = {"": 0}
        self._rows: Dict[Tuple[str, int, int, str], int] = {}
        self._last = ""
        super().__init__()

    def mark(self, step: int, phase: str) -> None:
        super().mark(step, phase)
        self.step, self.phase, self._last = step, phase, ""

    def _note(self, kind: int, event: Any) -> str:
        if kind < 0:  # frames of frees are not kept: what happens behind the last allocation
            return self._last + "+" if self._last else ""
        op, owner = _cause([(f["filename"], f["line"], f["name"]) for f in event.get("frames", ())])
        if not op:
            self._last = ""
            return ""
        key = (op, self._scope(owner), self.step, self.phase)
        if key not in self._rows:
            self._rows[key] = len(self.rows)
            self.rows.append(dict(op=op, scope=key[1], step=self.step, phase=self.phase))
        self._last = str(self._rows[key])
        return self._last

    def _scope(self, path: str) -> int:
        if path not in self._classes:
            path = ""
        if path not in self._scopes:
            parent = self._scope(path.rpartition(".")[0])
            self._scopes[path] = len(self.scopes)
            self.scopes.append((path, self._classes[path], parent, 0))
        return self._scopes[path]

    def calls(self) -> Dict[str, Any]:
        return dict(calls=self.rows, scopes=self.scopes)


def _cause(frames: List[Tuple[str, int, str]]) -> Tuple[str, str]:
    """(what to call it, module) by the innermost frame that says something."""
    for file, line, name in frames:
        if compiled.is_generated(file):
            operators, _, owner = compiled.of_generated(file, line)
            return f"compiled: {operators.replace('aten.', '')}" if operators else "compiled code", owner
        if "/torch/" in file and not any(part in file for part in INNER):
            return name, ""
        if "/torch/" not in file and file != "??":
            break
    return "", ""
