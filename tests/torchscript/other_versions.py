"""Archives that other versions of PyTorch wrote (versions/make.py): all give what PyTorch says of their model."""
import glob
import json
import os
import zipfile

from common import TORCH, memplan, report

FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "versions")
INPUT = ("--input", "int64:batch,12")


def is_what_pytorch_says(path, *words):
    with open(os.path.join(FILES, "expected.json")) as f:
        expected = json.load(f)
    for mode in ("training", "inference"):
        whole = report(path, *words, "--batch", 64, "--mode", mode, "--gpu", "h100-80gb")
        assert not whole["unmodelled"], whole["unmodelled"]
        assert whole["input"]["parameters"] == expected[mode]["parameters"], whole["input"]
        found = [s["peak"]["requested_bytes"] for s in whole["steps"]]
        assert found == expected[mode]["requested"], f"{os.path.basename(path)}, {mode}: {found}, PyTorch says {expected[mode]}"


def of(kind, function, *words):
    """One case per file."""
    return {f"test_{os.path.basename(path)}": lambda path=path: function(path, *words) for path in sorted(glob.glob(os.path.join(FILES, "torch-*." + kind)))}


def with_schema(path, target, major, minor):
    """The same archive, its schema's version replaced."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(("models/model.json", "serialized_exported_program.json")):
                program = json.loads(data)
                program["schema_version"] = {"major": major, "minor": minor}
                data = json.dumps(program).encode()
            new.writestr(name, data)
    return target


def unknown_schemas(folder):
    """A later minor version of the schema is read, another major one is refused with advice."""
    path = sorted(glob.glob(os.path.join(FILES, "torch-*.pt2")))[-1]
    major = max(json.loads(z.read(n))["schema_version"]["major"] for z in [zipfile.ZipFile(path)] for n in z.namelist() if n.endswith("models/model.json"))
    is_what_pytorch_says(with_schema(path, os.path.join(folder, "later.pt2"), major, 999))
    done = memplan(with_schema(path, os.path.join(folder, "other.pt2"), major + 1, 0))
    assert done.returncode == 3 and f"{major + 1}" in done.stderr and "torch.export" in done.stderr and done.stderr.count("\n") == 1, done.stderr


CASES = of("pt2", is_what_pytorch_says)
if TORCH:
    CASES |= of("pt", is_what_pytorch_says, *INPUT)
