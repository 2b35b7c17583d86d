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
        whole = report(path, *words, "--torch", "2.11", "--batch", 64, "--mode", mode, "--gpu", "h100-80gb")
        assert not whole["unmodelled"], whole["unmodelled"]
        assert whole["input"]["parameters"] == expected[mode]["parameters"], whole["input"]
        found = [s["peak"]["requested_bytes"] for s in whole["steps"]]
        assert found == expected[mode]["requested"], f"{os.path.basename(path)}, {mode}: {found}, PyTorch says {expected[mode]}"


def of(kind, function, *words):
    """One case per file."""
    return {f"test_{os.path.basename(path)}": lambda path=path: function(path, *words) for path in sorted(glob.glob(os.path.join(FILES, "torch-*." + kind)))}


def with_schema(path, target, change):
    """The same archive with another version of its schema; returns the major one."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(("models/model.json", "serialized_exported_program.json")):
                program = json.loads(data)
                change(program["schema_version"])
                major = program["schema_version"]["major"]
                data = json.dumps(program).encode()
            new.writestr(name, data)
    return major


def unknown_schemas(folder):
    """A later minor version of the schema is read, another major one is refused with advice. By both layouts of archives."""
    for version in ("2.6.0", "2.15.0"):
        path = os.path.join(FILES, f"torch-{version}.pt2")
        later, other, older = (os.path.join(folder, n + ".pt2") for n in ("later", "other", "older"))
        with_schema(path, later, lambda v: v.update(minor=999))
        is_what_pytorch_says(later)
        for target, step in ((other, 1), (older, -1)):
            major = with_schema(path, target, lambda v: v.update(major=v["major"] + step))
            done = memplan(target)
            assert done.returncode == 3 and f"version {major}." in done.stderr and "torch.export" in done.stderr and done.stderr.count("\n") == 1, done.stderr
            assert ". " in done.stderr.split("schema", 1)[1], f"no advice: {done.stderr}"


CASES = of("pt2", is_what_pytorch_says)
if TORCH:
    CASES |= of("pt", is_what_pytorch_says, *INPUT)
