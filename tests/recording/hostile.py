"""Modules that are hard to record: each ends in one clear error, or in a recording that is right. python hostile.py MEMPLAN LIBRARY, run by run.py."""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), HERE]
import torch
from torch import nn


class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("no such luck")


class Prints(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(8, 8)

    def forward(self, x):
        print("a line on stdout, which belongs to the recorder")
        return self.f(x)


class Branches(nn.Module):
    """Goes by a value, which is zero there."""

    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.f(x) if x.sum() > 0 else self.g(x)


class Selects(nn.Module):
    """A size that values decide."""

    def __init__(self):
        super().__init__()
        self.f = nn.Linear(8, 8)

    def forward(self, x):
        return self.f(x[x[:, 0] > 0])


class Elsewhere(nn.Module):
    """A tensor that does not go to the device with its module."""

    def __init__(self):
        super().__init__()
        self.f, self.scale = nn.Linear(8, 8), torch.ones(8)

    def forward(self, x):
        return self.f(x) * self.scale


class Kernel(nn.Module):
    """A kernel that is compiled where there is a GPU."""

    def __init__(self):
        super().__init__()
        self.f = nn.Linear(8, 8)
        self.code = 'template <typename T> T twice(T x) { return x + x; }'

    def forward(self, x):
        return self.f(torch.cuda.jiterator._create_jit_fn(self.code)(x))


class Long(nn.Module):
    """Many calls."""

    def __init__(self):
        super().__init__()
        self.f = nn.Linear(8, 8)

    def forward(self, x):
        x = self.f(x)
        for _ in range(20_000):
            x = x + 1
        return x


SAYS = {Raises: "no such luck", Selects: "the size of this result depends on values", Elsewhere: "Expected all tensors to be on the same device"}
WORKS = (Prints, Branches, Kernel, Long)


def main():
    program, library = map(os.path.abspath, sys.argv[1:3])
    os.environ.update(MEMPLAN_PROGRAM=program, MEMPLAN_EMULATED_GPU=library)
    import memplan

    passed, failures = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for kind in (*SAYS, *WORKS):
            path, began, said = os.path.join(folder, kind.__name__ + ".memplan"), time.monotonic(), ""
            out = io.StringIO()
            try:
                with contextlib.redirect_stdout(out):
                    memplan.record(kind(), (torch.zeros(2, 8),), None, path, batches=[2], setups=[dict(mode="training")])
            except memplan.Error as error:
                said = f"{error}"
            wrong = ""
            if kind in SAYS:
                wrong = "" if SAYS[kind] in said and "\n" not in said.strip() and not os.path.exists(path) else f"says '{said}'"
            elif said:
                wrong = f"is not recorded: {said}"
            else:
                done = subprocess.run([program, path, "--no-search", "--exit-zero"], capture_output=True, text=True)
                wrong = done.stderr if done.returncode else ""
            if out.getvalue():
                wrong += " prints: " + out.getvalue()
            print(f"{kind.__name__}: {wrong or said or 'recorded'} ({time.monotonic() - began:.0f} s)", flush=True)
            passed += not wrong
            failures += [f"{kind.__name__} {wrong}"] if wrong else []
    for failure in failures:
        print("FAILED", failure)
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
