#!/usr/bin/env python3
"""Rules of the source tree that a compiler does not check: python tests/structure/run.py [--build DIR]

Includes point one way, files stay short, links of the documentation lead somewhere, nothing names a place of one machine.
The last line is "N passed, N failed".
"""
import os
import re
import shutil
import subprocess
import sys

import functions
import layers
import type_names
import unnamed

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
LONGEST = 400
# Looked at one by one: cutting these would part what is read together. path: (lines, why). They may shrink, not grow.
LONGER = {
    "estimators/frontends/onnx/undo_folding.cpp": (440, "what one optimizer works out of parameters, undone kind by kind over the same graph"),
    "estimators/frontends/onnx/undo_merging.cpp": (434, "what one optimizer merges, made again over the same graph"),
    "estimators/runtime/torch/aten/rows/losses.cpp": (407, "one family of ops"),
    "estimators/runtime/torch/wrappers/fsdp.cpp": (448, "one program: FSDP2 around a model; its streams and events depend on each other"),
    "memplan_torch/optimizers.cpp": (446, "the optimizers of torch.optim, one after the other"),
}


def sources(*folders):
    for folder in folders:
        for path, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(names):
                if name.endswith((".h", ".cpp")):
                    yield os.path.relpath(os.path.join(path, name), ROOT)


def check_rule(name, rule, files):
    """What a rule (layers.py, functions.py) finds; then it is broken in each way that it knows, and has to notice."""
    found = list(rule.problems(files))
    yield name, not found, "\n    ".join(found)
    for what, broken, table in rule.broken_on_purpose(files):
        yield f"the test sees that {what}", any(p not in found for p in rule.problems(broken, table)), "it does not"


def check_includes():
    yield from check_rule("who includes whom", layers, layers.sources())
    yield "the table of docs/architecture.md", layers.page_says_so(), "not that of tests/structure/layers.py: run it with --write"


def check_lengths():
    for path in sources("estimators", "planner", "cli", "memplan_torch"):
        with open(os.path.join(ROOT, path)) as f:
            lines = sum(1 for _ in f)
        most = LONGER.get(path, (LONGEST, ""))[0]
        yield f"length of {path}", lines <= most, f"{lines} lines, at most {most}"
        yield f"length of {path}", path not in LONGER or lines > LONGEST, "it stands in the list of long files and is not long"


def check_functions():
    yield from check_rule("lengths of functions", functions, functions.texts())


def check_types():
    yield from check_rule("names of types", type_names, functions.texts())


def check_unnamed():
    yield from check_rule("names in unnamed namespaces", unnamed, functions.texts())


def tracked():
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return [p for folder in ("estimators", "planner", "cli", "tests", "tools", "docs", "cmake") for path, _, names in os.walk(os.path.join(ROOT, folder))
                for p in (os.path.relpath(os.path.join(path, n), ROOT) for n in names)]
    return done.stdout.split("\n")[:-1]


def check_format():
    """Sources are as .clang-format has them, wherever the version that CI uses is installed."""
    tool = next((t for t in ("clang-format-14", "clang-format") if shutil.which(t)), None)
    if not tool or " 14." not in subprocess.run([tool, "--version"], capture_output=True, text=True).stdout:
        return
    paths = [p for p in tracked() if p.endswith((".h", ".cpp")) and os.path.isfile(os.path.join(ROOT, p))]
    done = subprocess.run([tool, "--dry-run", "-Werror", *paths], cwd=ROOT, capture_output=True, text=True)
    wrong = sorted(set(re.findall(r"^([^:\s]+):\d+:\d+: error: code should be", done.stderr, re.M)))
    yield "the format of sources", not done.returncode, f"clang-format -i {' '.join(wrong)}"


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


def check_twins():
    """What the program and the Python package both have to know, because neither can ask the other."""
    with open(os.path.join(ROOT, "estimators/companion/companion.cpp")) as f:
        program = re.findall(r'"/([^"]*)libemulated_gpu\.so"', f.read())
    with open(os.path.join(ROOT, "python/memplan/_recording/device.py")) as f:
        places = re.search(r"for place in \((.*?)\):", f.read(), re.S)
    python = re.findall(r'"([^"]+)"', places[1]) if places else []
    yield "where the emulated GPU is looked for", [os.path.normpath(p or ".") for p in program] == [os.path.normpath(p) for p in python], f"{program} in C++, {python} in Python"


def check_fields():
    """Every field of a message is called by a flag: its own name with dashes, or its row in spelling.cpp."""
    with open(os.path.join(ROOT, "estimators/setup/field.h")) as f:
        fields = re.findall(r'FieldName\{Field::(\w+),', f.read())
    with open(os.path.join(ROOT, "cli/flags/spelling.cpp")) as f:
        named = dict(re.findall(r'FieldFlag\{Field::(\w+), "([\w-]+)"\}', f.read()))
    flags = set()
    for name in ("setup_flags.cpp", "command_flags.cpp"):
        with open(os.path.join(ROOT, "cli/flags", name)) as f:
            flags |= set(re.findall(r'Flag\{"([\w-]+)"', f.read()))
    lost = [f for f in fields if named.get(f, f.replace("_", "-")) not in flags and f != "sharding"]
    yield "the flags of fields", fields and flags and not lost, f"no flag for {', '.join(lost)}"


def main():
    passed = failed = 0
    for check in (check_includes, check_lengths, check_functions, check_types, check_unnamed, check_format, check_links, check_places, check_flags, check_twins, check_fields):
        broken = [(what, why) for what, good, why in check() if not good]
        for what, why in broken:
            print(f"FAILED {what}: {why}")
        passed += not broken
        failed += bool(broken)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
