#!/usr/bin/env python3
"""Rules of the source tree that a compiler does not check: python tests/structure/run.py [--build DIR]

Includes point one way, files stay short, links of the documentation lead somewhere, nothing names a place of one machine.
The last line is "N passed, N failed".
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
# A folder may include what stands before it. Those in one set may include each other: an op's row and the autograd node
# that it records know of each other.
ORDER = [{"base"}, {"companion"}, {"facts"}, {"estimate/setup.h", "estimate/parallel.h", "estimate/run_dtype.h"}, {"graph"}, {"tape"}, {"frontends"}, {"schedule"}, {"aten", "autograd"}, {"torchscript"}, {"step"}, {"allocator"},
         {"replay"}, {"estimate"}, {"measured"}, {"dryrun"}]
LONGEST = 450
# A table of one row per op, cut by family. It may shrink, not grow.
LONGER = {"estimators/runtime/torch/aten/rows/pointwise.cpp": 560, "estimators/runtime/torch/wrappers/fsdp.cpp": 475, "estimators/transforms/tensor_parallel.cpp": 525}


def sources(*folders):
    for folder in folders:
        for path, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(names):
                if name.endswith((".h", ".cpp")):
                    yield os.path.relpath(os.path.join(path, name), ROOT)


def includes(path):
    with open(os.path.join(ROOT, path)) as f:
        return re.findall(r'^#include "([^"]+)"', f.read(), re.M)


def rank(path):
    """The place of a file of estimators/ in the flow."""
    inner = path.removeprefix("estimators/")
    for place, names in enumerate(ORDER):
        if inner in names:
            return place
    for place, names in enumerate(ORDER):
        if inner.split("/")[0] in names:
            return place
    return None


def check_includes():
    for path in sources("estimators", "planner", "cli", "memplan_torch"):
        wrong = []
        for included in includes(path):
            layers = [layer for layer in ("estimators", "planner", "cli", "memplan_torch") if path.startswith(layer + "/")]
            allowed = {"estimators": ("estimators/", "onnx/"), "planner": ("planner/", "estimators/"), "cli": ("cli/", "planner/", "estimators/"),
                       "memplan_torch": ("memplan_torch/", "estimators/")}[layers[0]]
            if not included.startswith(allowed):
                wrong.append(included)
            # pipeline.h declares every arrow; an implementation may include it for its own declaration.
            here, there = rank(path), rank(included)
            if layers[0] == "estimators" and included != "estimators/pipeline.h" and None not in (here, there) and there > here:
                wrong.append(included)
        yield f"includes of {path}", not wrong, f"must not include {', '.join(wrong)}"


def check_lengths():
    for path in sources("estimators", "planner", "cli", "memplan_torch"):
        with open(os.path.join(ROOT, path)) as f:
            lines = sum(1 for _ in f)
        most = LONGER.get(path, LONGEST)
        yield f"length of {path}", lines <= most, f"{lines} lines, at most {most}"


def tracked():
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return [p for folder in ("estimators", "planner", "cli", "tests", "tools", "docs", "cmake") for path, _, names in os.walk(os.path.join(ROOT, folder))
                for p in (os.path.relpath(os.path.join(path, n), ROOT) for n in names)]
    return done.stdout.split("\n")[:-1]


def check_links():
    for path in (p for p in tracked() if p.endswith(".md")):
        with open(os.path.join(ROOT, path)) as f:
            targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", f.read())
        dead = [t for t in targets if not os.path.exists(os.path.join(ROOT, os.path.dirname(path), t))]
        yield f"links of {path}", not dead, f"dead: {', '.join(dead)}"


def check_places():
    """Texts that only mean something on one machine."""
    pattern = re.compile(r"/home/\w|/root/|/work/|/Users/\w")
    for path in tracked():
        if not path.endswith((".md", ".py", ".h", ".cpp", ".cmake", ".txt", ".csv", ".sh", ".json", "Makefile")) or path == "tests/structure/run.py":
            continue
        full = os.path.join(ROOT, path)
        if not os.path.isfile(full):
            continue
        with open(full, errors="replace") as f:
            found = pattern.search(f.read())
        yield f"places in {path}", not found, f"names {found[0] if found else ''}"


def check_flags():
    """The library does not know by which words people set a field (setup/field.h)."""
    literal = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
    # Commands of other programs that messages and snippets quote.
    foreign = re.compile(r"--(nproc-per-node|build|preset)\b")
    for path in sources("estimators", "planner"):
        with open(os.path.join(ROOT, path)) as f:
            lines = [line.split("//")[0] if '"' not in line.split("//")[0] else line for line in f]
        named = [flag for line in lines for text in literal.findall(line) for flag in re.findall(r"--[a-z][a-z-]*", text) if not foreign.match(flag)]
        yield f"flags in {path}", not named, f"names {', '.join(named)}"


def main():
    passed = failed = 0
    for check in (check_includes, check_lengths, check_links, check_places, check_flags):
        broken = [(what, why) for what, good, why in check() if not good]
        for what, why in broken:
            print(f"FAILED {what}: {why}")
        passed += not broken
        failed += bool(broken)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
