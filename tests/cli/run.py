#!/usr/bin/env python3
"""Tests of the command line: python tests/cli/run.py [--build build/release] [--only TEXT] [--write]

Cases are the functions test_* of cases_*.py and acceptance.py, and the commands in golden/*.txt: a line "$ memplan …", then what it
prints (stdout and stderr), then "[exit N]" where the exit code is not 0. --write replaces the expected texts; read the
difference before you keep it: every figure in them must have a source outside memplan (docs/accuracy.md, the device
table). The examples of README.md, docs/oom.md and docs/versions.md are checked (and written) in the same way. The last line is
"N passed, N failed".
"""
import argparse
import difflib
import glob
import importlib
import os
import re
import shlex
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


def golden_commands(path):
    """[(command line, expected text)]"""
    found = []
    with open(path) as f:
        for line in f:
            if line.startswith("$ memplan"):
                found.append([line[2:].rstrip("\n"), ""])
            elif found:
                found[-1][1] += line
            elif line.strip() and not line.startswith("#"):
                raise ValueError(f"{path}: text before the first command")
    return found


def run_golden(command):
    import support
    answer = support.memplan(*shlex.split(command)[1:])
    text = answer.out + answer.err
    if answer.code:
        text += f"[exit {answer.code}]\n"
    return text.rstrip("\n") + "\n\n"


def golden_file(path, only, write):
    passed = failed = 0
    with open(path) as f:
        head = f.read().split("$ memplan")[0]
    written = head
    for command, expected in golden_commands(path):
        actual = run_golden(command)
        written += f"$ {command}\n{actual}"
        if only and only not in command:
            continue
        if actual == expected.rstrip("\n") + "\n\n":
            passed += 1
        else:
            failed += 1
            print(f"FAILED {os.path.relpath(path, HERE)}: {command}")
            print("".join(difflib.unified_diff(expected.splitlines(True), actual.splitlines(True), "expected", "printed")))
    if write:
        with open(path, "w") as f:
            f.write(written)
    return passed, failed


ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
PAGES = ["README.md", os.path.join("docs", "oom.md"), os.path.join("docs", "versions.md")]
EXAMPLE = re.compile(r"```\n\$ (memplan [^\n]*)\n(.*?)```", re.S)


def page(name, only, write):
    """What a page shows is what memplan prints."""
    path = os.path.join(ROOT, name)
    with open(path) as f:
        text = f.read()
    passed = failed = 0

    def again(match):
        nonlocal passed, failed
        if only and only not in match[1]:
            return match[0]
        actual = run_golden(match[1]).rstrip("\n") + "\n"
        if actual == match[2]:
            passed += 1
        else:
            failed += 1
            print(f"FAILED {name}: {match[1]}")
            print("".join(difflib.unified_diff(match[2].splitlines(True), actual.splitlines(True), name, "printed")))
        return f"```\n$ {match[1]}\n{actual}```"

    written = EXAMPLE.sub(again, text)
    if write:
        with open(path, "w") as f:
            f.write(written)
    return passed, failed


def run_cases(only):
    passed = failed = 0
    for path in [*sorted(glob.glob(os.path.join(HERE, "cases_*.py"))), os.path.join(HERE, "acceptance.py")]:
        module = importlib.import_module(os.path.basename(path)[:-3])
        for name, function in list(vars(module).items()):
            if not name.startswith("test_") or (only and only not in name):
                continue
            # A function with `cases` is one test per entry.
            for arguments in getattr(function, "cases", [()]):
                try:
                    function(*arguments)
                    passed += 1
                except Exception:
                    failed += 1
                    print(f"FAILED {module.__name__}.{name}{arguments!r}")
                    traceback.print_exc(limit=-2, file=sys.stdout)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--only", metavar="TEXT")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    os.environ["MEMPLAN_BUILD"] = os.path.abspath(options.build)
    totals = [run_cases(options.only)]
    totals += [golden_file(path, options.only, options.write) for path in sorted(glob.glob(os.path.join(HERE, "golden", "*.txt")))]
    totals += [page(name, options.only, options.write) for name in PAGES]
    failed = sum(t[1] for t in totals)
    print(f"{sum(t[0] for t in totals)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
