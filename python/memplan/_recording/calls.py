"""What a run does, call by call: every ATen call below autograd's composites with its module, source lines, tensors and storages, when each of these is
released, and what autograd saves. Looking on can change what a program does (PyTorch takes other branches under a dispatch mode, in few places), so sizes
are never taken from here: a run without it is recorded beside, and these calls only say what its events belong to."""
from __future__ import annotations

import linecache
import os
import sys
import weakref
from typing import Any, Dict, List, Optional, Tuple

from .trace import Trace

HERE = os.path.dirname(sys._getframe().f_code.co_filename) + os.sep  # as frames name it, be it normal or not


def shown(a: Any) -> str:
    """An argument that is no tensor, number or list: a dtype, a device, a generator. A storage's text has every byte of it."""
    return type(a).__name__ if "Storage" in type(a).__name__ else str(a)


class Frames:
    """Source lines as a tree: [parent, file, line, function], files and functions by number."""

    def __init__(self) -> None:
        self.strings: List[str] = []
        self.nodes: List[Tuple[int, int, int, int]] = []
        self.texts: Dict[Tuple[int, int], str] = {}  # of lines, by file and number
        self._strings: Dict[str, int] = {}
        self._nodes: Dict[Tuple[int, int, int, int], int] = {}

    def string(self, text: str) -> int:
        at = self._strings.get(text)
        if at is None:
            at = self._strings[text] = len(self.strings)
            self.strings.append(text)
        return at

    def has(self, node: int, file: str) -> bool:
        wanted = self._strings.get(file, -1)
        while node >= 0 and wanted >= 0:
            if self.nodes[node][1] == wanted:
                return True
            node = self.nodes[node][0]
        return False

    def here(self, frame: Any) -> int:
        stack = []
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(HERE):
                if code.co_name == "call":  # the module is called from here; below is the recorder's own business
                    break
            elif "torch/utils/_python_dispatch" not in code.co_filename:
                stack.append((code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        at = -1
        for file, line, name in reversed(stack):
            node = (at, self.string(_portable(file)), line, self.string(name))
            known = self._nodes.get(node)
            if known is None:
                known = self._nodes[node] = len(self.nodes)
                self.nodes.append(node)
                self.texts.setdefault(node[1:3], linecache.getline(file, line).strip()[:160])
            at = known
        return at


def _portable(file: str) -> str:
    """A path that means something elsewhere: below the packages, else the file's own folder and name."""
    for part in ("/site-packages/", "/dist-packages/"):
        at = file.rfind(part)
        if at >= 0:
            return file[at + len(part):]
    return "/".join(file.split("/")[-2:])


class Scopes:
    """Which module runs: global hooks keep a stack of calls."""

    def __init__(self, model: Any) -> None:
        self.rows: List[Tuple[str, str, int, int]] = [("", _class(model), -1, 0)]  # path, class, parent, number of the call
        self.stack: List[int] = [0]
        self._paths = {id(m): name for name, m in model.named_modules()}
        self._times: Dict[int, int] = {}
        self._handles: List[Any] = []
        self._model = id(model)

    def __enter__(self) -> "Scopes":
        from torch.nn.modules import module

        self._handles = [module.register_module_forward_pre_hook(self._enter), module.register_module_forward_hook(self._leave, always_call=True)]
        return self

    def __exit__(self, *_: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def _enter(self, m: Any, _args: Any) -> None:
        if id(m) == self._model:
            self.stack.append(0)
            return
        times = self._times.get(id(m), 0)
        self._times[id(m)] = times + 1
        self.rows.append((self._paths.get(id(m), "?"), _class(m), self.stack[-1], times))
        self.stack.append(len(self.rows) - 1)

    def _leave(self, m: Any, _args: Any, _output: Any) -> None:
        if len(self.stack) > 1:
            self.stack.pop()


def _class(m: Any) -> str:
    return f"{type(m).__module__}.{type(m).__qualname__}"


class Calls(Trace):
    """A Trace whose events are noted with the call during which they happened."""

    def __init__(self, model: Any) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        super().__init__()
        self.frames = Frames()
        self.scopes = Scopes(model)
        self.rows: List[Dict[str, Any]] = []
        self.tensors: List[List[Any]] = []  # storage, dtype, sizes, strides, offset
        self.storages: List[int] = []  # bytes
        self.releases: List[Tuple[int, str, int]] = []  # calls before it, "t" or "s", number
        self.nodes: List[Dict[str, Any]] = []
        self._tensors: Dict[int, int] = {}
        self._storages: Dict[int, int] = {}
        self._by_sequence: Dict[int, int] = {}
        self.step, self.phase = 0, "setup"
        # Before PyTorch 2.9 events cannot be noted: they have no cause then.
        self._tell = getattr(self.torch.cuda.memory, "_set_memory_metadata", lambda _: None)
        recorder = self

        class Mode(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None) -> Any:
                return recorder._call(func, args, kwargs or {})

        self._mode = Mode()

    def __enter__(self) -> "Calls":
        self.scopes.__enter__()
        self._mode.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._mode.__exit__(*exc)
        self.scopes.__exit__(*exc)

    def mark(self, step: int, phase: str) -> None:
        super().mark(step, phase)
        self.step, self.phase = step, phase

    def _storage(self, t: Any) -> int:
        s = t.untyped_storage()
        key = s._cdata
        number = self._storages.get(key)
        if number is None:
            number = self._storages[key] = len(self.storages)
            self.storages.append(s.nbytes())
            weakref.finalize(s, self._released, "s", key, number).atexit = False
        return number

    def _tensor(self, t: Any) -> int:
        number = self._tensors.get(id(t))
        if number is None:
            number = self._tensors[id(t)] = len(self.tensors)
            plain = t.layout is self.torch.strided
            self.tensors.append([self._storage(t) if plain else -1, str(t.dtype).removeprefix("torch."), list(t.shape), list(t.stride()) if plain else [],
                                 t.storage_offset() if plain else 0, int(t.is_cuda)])
            weakref.finalize(t, self._released, "t", id(t), number).atexit = False
        return number

    def _released(self, kind: str, key: int, number: int) -> None:
        known = self._tensors if kind == "t" else self._storages
        if known.get(key) == number:
            del known[key]
        self.releases.append((len(self.rows), kind, number))

    def _argument(self, a: Any) -> Any:
        if isinstance(a, self.torch.Tensor):
            return {"t": self._tensor(a)}
        if a is None or isinstance(a, (bool, int, float, str)):
            return a if not isinstance(a, float) or a == a and abs(a) != float("inf") else str(a)
        if isinstance(a, (list, tuple)):
            return [self._argument(x) for x in a]
        return shown(a)

    def _call(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        torch = self.torch
        node = torch._C._current_autograd_node()
        scope = self.scopes.stack[-1]
        if node is not None:
            forward = self._by_sequence.get(node._sequence_nr())
            scope = self.rows[forward]["scope"] if forward is not None else 0
        row = dict(op=str(func), scope=scope, step=self.step, phase=self.phase, frames=self.frames.here(sys._getframe(2)),
                   args=[self._argument(a) for a in args], kwargs={k: self._argument(v) for k, v in kwargs.items()}, grad=int(torch.is_grad_enabled()))
        if torch.is_autocast_enabled("cuda"):
            row["autocast"] = str(torch.get_autocast_dtype("cuda")).removeprefix("torch.")
        if node is not None:
            row["node"] = node.name()
            row["of"] = node._sequence_nr()
        else:
            row["sequence"] = torch.autograd._get_sequence_nr() - 1
            self._by_sequence.setdefault(row["sequence"], len(self.rows))
        if self.frames.has(row["frames"], "torch/utils/checkpoint.py"):
            row["checkpoint"] = 1
        number = len(self.rows)
        self.rows.append(row)
        self._tell(str(number))
        out = func(*args, **kwargs)
        row["outputs"] = self._argument(out)
        # What happens until the next call (frees above all) is noted apart from what the call itself does.
        self._tell(f"{number}+")
        return out
