"""Op programs: a few tensors, a few ATen calls, perhaps a backward pass. The same program runs in PyTorch
(torch_events.py) and on paper (tests/tools/trace_program.cpp); what both ask the allocator for is compared.

A program is JSON: {"name", "values": [{"name", "dtype", "sizes", "strides"?, "requires_grad"?, "host"?}],
"calls": [{"op", "args", "kwargs"?, "outputs"}], "backward": [name], "autocast"?: dtype}. In arguments {"v": name} is a
tensor and {"dtype": name} a dtype. A name dies after its last use; inputs live to the end.
"""

HALF = ("bfloat16", "float16")
FLOATS = ("float32",) + HALF
MIXED = ("float32", "bfloat16")


class Program:
    def __init__(self, name, autocast=None):
        self.name, self.values, self.calls, self.roots = name, [], [], []
        self.autocast = autocast

    def new(self, dtype, sizes, grad=None, strides=None, host=False):
        """An input. Floating ones want a gradient unless told otherwise. strides="cl" is channels_last."""
        name = "abcdefghijklmnopqrstuvwxyz"[len(self.values)] if len(self.values) < 26 else f"v{len(self.values)}"
        v = {"name": name, "dtype": dtype, "sizes": list(sizes)}
        if strides == "cl":
            n, c, *rest = sizes
            strides, step = [0] * len(sizes), c
            strides[1] = 1
            for i in reversed(range(2, len(sizes))):
                strides[i], step = step, step * sizes[i]
            strides[0] = step
        if strides:
            v["strides"] = list(strides)
        if host:
            v["host"] = True
        if (dtype.startswith(("float", "bfloat", "complex")) and not host) if grad is None else grad:
            v["requires_grad"] = True
        self.values.append(v)
        return {"v": name}

    def __call__(self, op, *args, outputs=1, **kwargs):
        names = [f"r{len(self.calls)}{'abcdefgh'[i] if i < 8 else i}" for i in range(outputs)]
        call = {"op": f"aten::{op}", "args": list(args), "outputs": names}
        if kwargs:
            call["kwargs"] = kwargs
        self.calls.append(call)
        refs = [{"v": n} for n in names]
        return refs[0] if outputs == 1 else refs

    def back(self, ref):
        self.roots.append(ref["v"])
        return self

    def json(self):
        p = {"name": self.name, "values": self.values, "calls": self.calls}
        if self.roots:
            p["backward"] = self.roots
        if self.autocast:
            p["autocast"] = self.autocast
        return p


class T:
    """A tensor argument of simple(): T("float32", 64, 1000), T("int64", 10), T("bool", 4, grad=False)."""

    def __init__(self, dtype, *sizes, **kw):
        self.dtype, self.sizes, self.kw = dtype, sizes, kw


def dtype(name):
    return {"dtype": name}


class Collection:
    def __init__(self):
        self.programs = []
        self.names = set()

    def add(self, program):
        if program.name in self.names:
            raise ValueError(f"two programs named {program.name}")
        self.names.add(program.name)
        self.programs.append(program)

    def simple(self, name, op, *args, outputs=1, back=True, then=None, before=None, which=0, autocast=None, **kwargs):
        """One call on fresh inputs, and the backward pass from output `which`. `before` runs on every floating input
        first (so that an in-place op has something to overwrite), `then` on the output (so that a view is used)."""
        p = Program(name, autocast)

        def value(a):
            if isinstance(a, T):
                ref = p.new(a.dtype, a.sizes, **a.kw)
                return p(before, ref, 2.0) if before and a.kw.get("grad", a.dtype.startswith(("float", "bf"))) else ref
            return [value(x) for x in a] if isinstance(a, (list, tuple)) else a

        kwargs = {k: value(v) for k, v in kwargs.items()}
        out = p(op, *[value(a) for a in args], outputs=outputs, **kwargs)
        out = out if outputs == 1 else out[which]
        if then:
            out = p(then, out)
        if back and any(v.get("requires_grad") for v in p.values):
            p.back(out)
        self.add(p)
