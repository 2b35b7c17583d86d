"""The calls of one forward pass as they are made, above autograd: what `torch.export` would call its training IR, but from the eager program itself, with every
tensor's release, what autograd keeps of each call, custom functions with their backward passes, and checkpoints.

A mode before the dispatcher sees the calls (torch's own "pre-dispatch"), which changes nothing below it: autograd, autocast and the choice of kernels stay
as they are. Saved tensors go through hooks that keep an alias, so that a tensor object dies when the program's own names let it go."""
from __future__ import annotations

import contextlib
import math
import os
import sys
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from . import functions
from .calls import Frames, Scopes, shown

VERSION = 2
HERE = os.path.dirname(sys._getframe().f_code.co_filename) + os.sep  # as frames name it, be it normal or not
PRECISE = 1 << 53


class _List:
    """Calls in a row: those of the program, of a function's forward pass, or of its backward pass."""

    def __init__(self) -> None:
        self.calls: List[Dict[str, Any]] = []
        self.open = True


class _Applied:
    """One application of an autograd.Function."""

    def __init__(self, name: str, call: Dict[str, Any]) -> None:
        self.name, self.call = name, call
        self.forward, self.backward = _List(), _List()
        self.inputs: List[int] = []
        self.outputs: List[int] = []
        self.saved: List[int] = []
        self.grads: List[int] = []
        self.results: Optional[List[int]] = None
        self.held: Tuple[Any, ...] = ()  # gradients that come in live as long as the backward pass
        self.on_device: List[bool] = []  # of the tensors among the arguments


class Program:
    """begin() and end() stand around the calls of one forward pass; close() comes after the backward pass and the rest of the step."""

    def __init__(self, torch: Any, scopes: Scopes, training: bool) -> None:
        self.torch, self.training = torch, training
        self.scopes = scopes
        self.objects: Dict[int, Tuple[str, str]] = {}  # tensors with a role: parameters, buffers, inputs
        self.memory: Dict[int, Tuple[str, str]] = {}  # the same by storage
        self.frames = Frames()
        self.values: List[List[Any]] = []  # dtype, sizes, role, name, on the host
        self.main = _List()
        self.applied_functions: List[_Applied] = []
        self.outputs: List[int] = []
        self.checkpoints = 0
        self.collecting = self.after = False  # the forward pass runs; it has run, and its backward pass may
        self._objects: Dict[int, List[Tuple[int, Any]]] = {}  # id of a tensor object -> values that it is, each with the frame that knows it so
        self._home: Dict[int, _List] = {}
        self._storages: Dict[int, List[Tuple[int, Any]]] = {}  # storage -> values of it with their geometry
        self._gone: Dict[int, Dict[str, Any]] = {}  # released values -> the call after which they were
        self._aliases: Set[int] = set()  # results that are an argument itself: a conversion that had nothing to do
        self._late: List[int] = []  # released after the forward pass
        self._functions: List[_Applied] = []  # that run now
        self._nodes: Dict[int, _Applied] = {}
        self._stretches: List[int] = []
        self._running: Optional[Dict[str, Any]] = None  # the call that runs, for saved tensors
        self._muted = 0
        self._stack, self._hooks = contextlib.ExitStack(), contextlib.ExitStack()

    def named(self, tensor: Any, role: str, name: str) -> None:
        """A parameter, a buffer or an input."""
        if isinstance(tensor, self.torch.Tensor) and tensor.is_cuda and tensor.layout is self.torch.strided:
            self.objects.setdefault(id(tensor), (role, name))
            self.memory.setdefault(tensor.untyped_storage()._cdata, (role, name))

    # --- begin and end ----------------------------------------------------------------------------------------------
    def begin(self) -> None:
        torch = self.torch
        from torch._dispatch.python import enable_python_dispatcher
        from torch._subclasses.schema_check_mode import SchemaCheckMode
        from torch.utils._python_dispatch import TorchDispatchMode

        program = self
        key = torch._C.DispatchKey.PreDispatch

        class Mode(SchemaCheckMode):  # type: ignore[misc]
            _dispatch_key = key  # one of the three kinds that may stand before the dispatcher

            def __init__(self) -> None:
                TorchDispatchMode.__init__(self, key)

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None) -> Any:
                return program._call(func, args, kwargs or {})

        self._stack.enter_context(enable_python_dispatcher())
        self._stack.enter_context(Mode())
        self._hooks.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, lambda t: t))
        functions.listeners.append(self)
        self._stack.callback(functions.listeners.remove, self)
        self.collecting = True

    def end(self, output: Any) -> None:
        """The forward pass has returned. What it returns comes first among the outputs."""
        self._hooks.close()
        for t in _tensors_of(output, self.torch):
            if t.is_cuda and (number := self._first(t)) not in self.outputs:
                self.outputs.append(number)
        self.collecting, self.after, self.main.open = False, True, False

    def close(self) -> None:
        """The step is over: what lives on without being an output is held by a container, a closure or a module."""
        self._stack.close()
        self.after = False
        made = {n for c in self.main.calls for n in c["outputs"] if n >= 0}
        gone = {n for c in self.main.calls for n in c["del"]}
        self._late = [n for n in self._late if n in made and n not in gone and n not in self.outputs]
        self.outputs += [n for n in sorted(made - gone - self._aliases) if n not in self.outputs and not self._kept_by_function(n)]

    def _kept_by_function(self, number: int) -> bool:
        """An object that died in the backward pass was held by a ctx: by the last function that had it."""
        if number not in self._late:
            return False
        for f in reversed(self.applied_functions):
            if number in f.inputs:
                if number not in f.saved:
                    f.saved.append(number)
                f.call["del"].append(number)
                return True
        return False

    # --- tensors ----------------------------------------------------------------------------------------------------
    def _describe(self, t: Any, role: str = "", name: str = "") -> int:
        self.values.append([str(t.dtype).removeprefix("torch."), list(t.shape), role, name, int(not t.is_cuda)])
        return len(self.values) - 1

    def _bind(self, t: Any, number: int, home: _List) -> None:
        """The object is this value from now on, besides those that it was."""
        key = id(t)
        fresh = key not in self._objects
        if fresh:
            self._objects[key] = [(number, None)]
        else:  # the caller's name for it, until that function has returned
            frame = _caller()
            self._objects[key].append((number, (id(frame), frame.f_code)))
            self._aliases.add(number)
        self._home[number] = home
        if t.layout is self.torch.strided:
            geometry = (tuple(t.shape), t.stride(), t.storage_offset(), t.dtype)
            storage = t.untyped_storage()
            cdata = storage._cdata
            if cdata not in self._storages:
                self._storages[cdata] = []
                weakref.finalize(storage, self._storages.pop, cdata, None).atexit = False
            self._storages[cdata].append((number, geometry))
        if fresh:
            weakref.finalize(t, self._released, key).atexit = False

    def _released(self, key: int) -> None:
        for number, _ in self._objects.pop(key, ())[:1]:
            home = self._home[number]
            if home.open and home.calls:
                home.calls[-1]["del"].append(number)
                self._gone[number] = home.calls[-1]
            elif home is self.main and self.after:
                self._late.append(number)

    def _revived(self, number: int) -> int:
        """A value whose object is gone while something still shows its memory is not gone."""
        row = self._gone.pop(number, None) if self._home[number].open else None
        if row is not None:
            row["del"].remove(number)
        return number

    def _value(self, t: Any, home: _List) -> int:
        """Of a tensor that a call reads."""
        known = self._objects.get(id(t))
        if known:
            return self._as_known(known)
        role, name = self.objects.get(id(t), ("", ""))
        if t.layout is not self.torch.strided:
            number = self._describe(t, role or "constant", name)
        else:
            cdata = t.untyped_storage()._cdata
            shown = self._storages.get(cdata, ())
            geometry = (tuple(t.shape), t.stride(), t.storage_offset(), t.dtype)
            same = [n for n, g in shown if g == geometry]
            if same:
                return self._revived(next((n for n in reversed(same) if n not in self._gone), same[-1]))
            if shown and not role:  # a view that no call made: x.data, what a function has saved
                base = self._revived(next((n for n, _ in reversed(shown) if n not in self._gone), shown[-1][0]))
                number = self._describe(t)
                home.calls.append(self._row("aten.as_strided.default", [{"v": base}, list(t.shape), list(t.stride()), t.storage_offset()], {}, [number]))
            elif not role and (saved := self._recomputed(t, home)) is not None:
                return saved
            else:
                role, name = (role, name) if role else self.memory.get(cdata, ("constant", ""))
                number = self._describe(t, role, name)
        self._bind(t, number, home if not role else _List())
        return number

    def _first(self, t: Any) -> int:
        known = self._objects.get(id(t))
        return known[0][0] if known else self._value(t, self.main)

    @staticmethod
    def _as_known(values: List[Tuple[int, Any]]) -> int:
        """What a conversion in fp32 returns is its argument; under autocast it would be another tensor, known to the function that asked for it."""
        while len(values) > 1:
            frame: Any = sys._getframe(2)
            wanted = values[-1][1]
            while frame is not None and (id(frame), frame.f_code) != wanted:
                frame = frame.f_back
            if frame is not None:
                break
            values.pop()
        return values[-1][0]

    def _recomputed(self, t: Any, home: _List) -> Optional[int]:
        """In the backward pass of a function that ran in a checkpoint: what it saved is another tensor now, of the same kind."""
        f = next((f for f in self.applied_functions if f.backward is home), None)
        if f is None or "checkpoint" not in f.call:
            return None
        kind = [str(t.dtype).removeprefix("torch."), list(t.shape)]
        return next((n for n in f.saved if self.values[n][:2] == kind), None)

    def _argument(self, a: Any, home: _List, tensors: List[Any]) -> Any:
        torch = self.torch
        if isinstance(a, torch.Tensor):
            tensors.append(a)
            return {"v": self._value(a, home)}
        if a is None or isinstance(a, (bool, str)):
            return a
        if isinstance(a, int):
            return a if abs(a) < PRECISE else str(a)
        if isinstance(a, float):
            return a if math.isfinite(a) else {"f": str(a)}
        if isinstance(a, (list, tuple)):
            return [self._argument(x, home, tensors) for x in a]
        if isinstance(a, torch.dtype):
            return {"d": str(a).removeprefix("torch.")}
        return {"s": shown(a).removeprefix("torch.")}

    # --- calls ------------------------------------------------------------------------------------------------------
    def _row(self, op: str, args: List[Any], kwargs: Dict[str, Any], outputs: List[int]) -> Dict[str, Any]:
        row = dict(op=op, args=args, kwargs=kwargs, outputs=outputs, scope=self.scopes.stack[-1], frames=-1 if self._muted else self._frames(), **{"del": []}, kept=[])
        if self._stretches:
            row["checkpoint"] = self._stretches[-1]
        return row

    def _frames(self) -> int:
        return self.frames.here(sys._getframe(3))

    def _place(self) -> Optional[_List]:
        """Where a call belongs; nowhere where nobody looks."""
        if self._muted:
            return None
        if self.collecting:
            return self._functions[-1].forward if self._functions else self.main
        if self.after:
            node = self.torch._C._current_autograd_node()
            found = self._nodes.get(node._sequence_nr()) if node is not None else None
            return found.backward if found and found.results is None else None
        return None

    def _call(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        place = self._place()
        if place is None:
            with self.torch._C._DisablePythonDispatcher():
                return func(*args, **kwargs)
        tensors: List[Any] = []
        given = [self._argument(a, place, tensors) for a in args]
        words = {k: self._argument(v, place, tensors) for k, v in kwargs.items()}
        row = self._row(str(func), given, words, [])
        if self.training and place is self.main and not self.torch.is_grad_enabled() and not self._stretches:
            self._detach(row, tensors)
        if not self.torch.is_autocast_enabled("cuda"):
            row["plain"] = 1
        self._running, before = row, self._running
        row["_args"], row["_packed"] = [id(t) for t in tensors], []
        try:
            with self.torch._C._DisablePythonDispatcher():
                out = func(*args, **kwargs)
        finally:
            self._running = before
            packed, ids = row.pop("_packed"), row.pop("_args")
        made = _tensors_of(out, self.torch)
        if not any(t.is_cuda for t in made) and not (_writes(func) and any(t.is_cuda for t in tensors)):
            return out  # nothing on the device: a number, a tensor of the host
        if made and any(t.is_cuda for t in made) and tensors and not any(t.is_cuda for t in tensors) and not _writes(func):
            self._from_host(row, made, place)
            return out
        place.calls.append(row)
        written = _writes(func)
        for t in made:
            if written and id(t) in ids:
                row["outputs"].append(-1)
                continue
            number = self._describe(t)
            row["outputs"].append(number)
            self._bind(t, number, place)
        row["kept"] = [self._kept(p, ids, made) for p in packed]
        return out

    def _from_host(self, row: Dict[str, Any], made: List[Any], place: _List) -> None:
        """A copy of a tensor of the host, which is fresh memory and no more."""
        for t in made:
            number = self._describe(t)
            self._bind(t, number, place)
            place.calls.append(dict(row, op="aten.empty.memory_format", args=[list(t.shape)], kwargs=dict(dtype={"d": str(t.dtype).removeprefix("torch.")}), outputs=[number], **{"del": []}))

    def _detach(self, row: Dict[str, Any], tensors: List[Any]) -> None:
        """Under no_grad nothing is recorded by autograd, which a detached argument says as well."""
        wanted = {self._value(t, self.main): t for t in tensors if t.requires_grad}
        for number, t in wanted.items():
            alias = self._describe(t)
            self._home[alias] = self.main
            self.main.calls.append(dict(row, op="aten.detach.default", args=[{"v": number}], kwargs={}, outputs=[alias], **{"del": []}, kept=[]))
            row["args"] = [_replaced(a, number, alias) for a in row["args"]]
            row["kwargs"] = {k: _replaced(a, number, alias) for k, a in row["kwargs"].items()}
            row["del"].append(alias)

    # --- what autograd keeps ----------------------------------------------------------------------------------------
    def _pack(self, t: Any) -> Any:
        self._muted += 1
        try:
            with self.torch._C._DisablePythonDispatcher():
                alias = t.data  # detach() would hold the object as the base of a view
        finally:
            self._muted -= 1
        if self._running is not None and self.collecting:
            self._running["_packed"].append((id(t), t.untyped_storage()._cdata if t.layout is self.torch.strided else 0, str(t.dtype).removeprefix("torch."), list(t.shape)))
        return alias

    def _kept(self, packed: Tuple[int, int, str, List[int]], ids: List[int], made: List[Any]) -> Any:
        """n: argument n among the call's tensors; -1 - n: result n; else what the op made inside of it."""
        key, cdata, dtype, sizes = packed
        if key in ids:
            return ids.index(key)
        for i, t in enumerate(made):
            if t.layout is self.torch.strided and t.untyped_storage()._cdata == cdata and list(t.shape) == sizes:
                return -1 - i
        return [dtype, sizes]

    def saves(self, tensors: Any) -> None:
        if self.collecting and self._functions:
            f = self._functions[-1]
            f.saved = [self._value(t, f.forward) for t in tensors if isinstance(t, self.torch.Tensor) and t.is_cuda]

    # --- functions and checkpoints ----------------------------------------------------------------------------------
    @contextlib.contextmanager
    def checkpointed(self) -> Iterator[None]:
        if not self.collecting or self._stretches:  # a checkpoint inside of another one is part of it
            yield
            return
        self._stretches.append(self.checkpoints)
        self.checkpoints += 1
        try:
            yield
        finally:
            self._stretches.pop()

    def applied(self, cls: Any, apply: Callable[[], Any], args: Any) -> Any:
        torch = self.torch
        given = [a for a in args if isinstance(a, torch.Tensor)]
        tensors = [a for a in given if a.is_cuda]
        if not self.collecting or self._functions or not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
            return apply()
        inputs = [self._value(t, self.main) for t in tensors]
        call = self._row("memplan.function." + cls.__name__, [{"v": n} for n in inputs], {}, [])
        self.main.calls.append(call)
        f = _Applied(cls.__name__, call)
        f.inputs, f.on_device = inputs, [a.is_cuda for a in given]
        self._functions.append(f)
        try:
            out = apply()
        finally:
            self._functions.remove(f)
        made = [t for t in _tensors_of(out, torch) if t.is_cuda]
        for t in made:
            # What forward returned is this object, or an alias of it that is made when it returns.
            inner = self._value(t, f.forward)
            f.outputs.append(inner)
            outer = self._describe(t)
            call["outputs"].append(outer)
            self._objects[id(t)] = [(outer, None)]
            self._home[outer] = self.main
        self._finish_function(f, made)
        f.forward.open = False
        call["own"] = len(self.applied_functions)
        self.applied_functions.append(f)
        return out

    def _finish_function(self, f: _Applied, made: List[Any]) -> None:
        gone = {n for c in f.forward.calls for n in c["del"]}
        born = {n for c in f.forward.calls for n in c["outputs"] if n >= 0}
        # What still lives and is no output is an attribute of ctx.
        f.saved += [n for n in sorted(born - gone) if n not in f.saved and n not in f.outputs]
        node = next((t.grad_fn for t in made if t.grad_fn is not None), None)
        if node is None:
            return
        self._nodes[node._sequence_nr()] = f

        def before(grads: Any) -> None:
            if not self.after or f.grads:
                return
            f.held = tuple(grads)
            for g in grads:
                number = self._describe(g) if g is not None else -1
                f.grads.append(number)
                if g is not None:
                    self._objects[id(g)] = [(number, None)]
                    self._home[number] = f.backward

        def after(results: Any, _: Any) -> None:
            if not self.after or f.results is not None:
                return
            f.results = [self._value(r, f.backward) if r is not None else -1 for r, here in zip(results, f.on_device) if here]
            f.backward.open = False
            for g in f.held:
                if g is not None:
                    self._objects.pop(id(g), None)
            f.held = ()

        node.register_prehook(before)
        node.register_hook(after)

    # --- the file ---------------------------------------------------------------------------------------------------
    def document(self) -> Dict[str, Any]:
        self._close_over()
        texts: Dict[int, str] = {}

        def source(node: int) -> str:
            if node not in texts:
                texts[node] = self._source(node)
            return texts[node]

        def rows(calls: _List) -> List[Dict[str, Any]]:
            out = []
            for c in calls.calls:
                row = {k: v for k, v in c.items() if k != "frames" and (v or k in ("op", "args", "outputs", "scope", "own", "checkpoint"))}
                text = source(c["frames"]) if c["frames"] >= 0 else ""
                if text:
                    row["at"] = text
                out.append(row)
            return out

        applied = [dict(name=f.name, inputs=f.inputs, outputs=f.outputs, saved=f.saved, calls=rows(f.forward), grads=f.grads, backward=rows(f.backward),
                        results=f.results or []) for f in self.applied_functions]
        return dict(version=VERSION, values=self.values, calls=rows(self.main), functions=applied, outputs=self.outputs,
                    scopes=[list(r) for r in self.scopes.rows])

    def _close_over(self) -> None:
        """What a function reads besides its arguments, and its backward pass besides what it saved."""
        for f in self.applied_functions:
            for n in _read(f.forward):
                if n not in f.inputs:
                    f.inputs.append(n)
                    f.call["args"].append({"v": n})
            inner = set(f.inputs) | {n for c in f.forward.calls for n in c["outputs"]}
            f.saved = [n for n in dict.fromkeys([*f.saved, *(n for n in _read(f.backward) if n not in f.grads)]) if n in inner]

    def _source(self, node: int) -> str:
        """"folder/file.py:7 x = f(y)" of the innermost line that is not PyTorch's own, else of the innermost one."""
        found = node
        while found >= 0 and "torch/" == self.frames.strings[self.frames.nodes[found][1]][:6]:
            found = self.frames.nodes[found][0]
        parent, file, line, _ = self.frames.nodes[found if found >= 0 else node]
        name = self.frames.strings[file]
        text = self.frames.texts.get((file, line), "")
        return f"{name}:{line} {text}".strip()


WATCHED = 2  # the step whose forward pass is written down: what modules make once is there by then


class Watcher:
    """Hears of the reference program (program.run) and has a Program look at one forward pass."""

    def __init__(self, model: Any, training: bool = True) -> None:
        import torch

        torch.cuda.init()
        self.scopes = Scopes(model)
        self.program = Program(torch, self.scopes, training)
        self.step = 0

    def mark(self, step: int, phase: str) -> None:
        if phase == "forward" and step == WATCHED and not self.program.main.calls:
            self.scopes.__enter__()
            self.program.begin()

    def returned(self, output: Any) -> None:
        if self.program.collecting:
            self.program.end(output)
            self.scopes.__exit__()

    def weights(self, model: Any) -> None:
        for name, p in model.named_parameters():
            self.program.named(p, "parameter", name)
        for name, b in model.named_buffers():
            self.program.named(b, "buffer", name)
        self.fixed = dict(self.program.objects), dict(self.program.memory)

    def inputs(self, tensors: List[Any]) -> None:
        if self.program.collecting or self.program.after:
            return
        # Addresses of the batch before are used again.
        self.program.objects, self.program.memory = map(dict, self.fixed)
        for i, t in enumerate(tensors):
            self.program.named(t, "input", str(i))

    def output(self, tensor: Any) -> None:
        pass

    def gradients(self, model: Any) -> None:
        pass

    def state(self, optimizer: Any, model: Any) -> None:
        pass

    def done(self) -> None:
        self.program.close()


def _caller() -> Any:
    """The frame that made the call which is being looked at."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and (frame.f_code.co_filename.startswith(HERE) or frame.f_code.co_filename.endswith(("torch/_ops.py", "torch/utils/_python_dispatch.py"))):
        frame = frame.f_back
    return frame


def _writes(func: Any) -> bool:
    """In-place ops and those with out=."""
    return bool(func._schema.is_mutable)


def _read(calls: _List) -> List[int]:
    """Values that no call of the list makes."""
    made = {n for c in calls.calls for n in c["outputs"]}
    found: Dict[int, None] = {}

    def walk(a: Any) -> None:
        if isinstance(a, dict) and "v" in a and a["v"] not in made:
            found[a["v"]] = None
        elif isinstance(a, list):
            for x in a:
                walk(x)

    for c in calls.calls:
        for a in [*c["args"], *c["kwargs"].values()]:
            walk(a)
    return list(found)


def _replaced(a: Any, number: int, by: int) -> Any:
    if isinstance(a, dict) and a.get("v") == number:
        return {"v": by}
    return [_replaced(x, number, by) for x in a] if isinstance(a, list) else a


def _tensors_of(output: Any, torch: Any, depth: int = 0) -> List[Any]:
    if isinstance(output, torch.Tensor):
        return [output]
    if depth > 8 or output is None or isinstance(output, (str, bytes, int, float)):
        return []
    if isinstance(output, dict) or hasattr(output, "values") and hasattr(output, "keys"):
        members = list(output.values())
    elif isinstance(output, (tuple, list)):
        members = list(output)
    else:
        members = list(vars(output).values()) if hasattr(output, "__dataclass_fields__") else []
    return [t for m in members for t in _tensors_of(m, torch, depth + 1)]
