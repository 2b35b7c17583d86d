#!/usr/bin/env python3
"""The accuracy suite: peaks of every recorded run (compare.py), whole event streams (streams.py), runs of other versions of
PyTorch (versions.py), one rank of several
GPUs (parallel_compare.py), checkpoints under a budget (checkpoint_plans.py), tapes run by PyTorch's dispatcher against
eager models (tape_runs.py), and, where the build has the emulated GPU (cmake -DMEMPLAN_TORCH_PYTHON=…), a sample of the
recordings made again by PyTorch (live.py).

    python tests/accuracy/run.py [--build build/release]

Ends with "N passed, N failed".
"""
import argparse
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import build_tree

ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))


def parts(build):
    """[(name, command)] and why one is missing, if so."""
    found = [("peaks", [sys.executable, os.path.join(HERE, "compare.py"), "--build", build]),
             ("streams", [sys.executable, os.path.join(HERE, "streams.py"), "--build", build]),
             ("versions of PyTorch", [sys.executable, os.path.join(HERE, "versions.py"), "--build", build]),
             ("several GPUs", [sys.executable, os.path.join(HERE, "parallel_compare.py"), "--build", build]),
             ("checkpoints", [sys.executable, os.path.join(HERE, "checkpoint_plans.py"), "--build", build])]
    if os.path.exists(os.path.join(ROOT, "data", "measured", "emulated", "tape-2.11.jsonl")):
        found.append(("tapes", [sys.executable, os.path.join(HERE, "tape_runs.py")]))
    python, library = build_tree.cached(build, "MEMPLAN_TORCH_PYTHON"), os.path.join(build, "emulated_gpu", "libemulated_gpu.so")
    if not python:
        return found, "live: left out, it needs PyTorch (cmake -DMEMPLAN_TORCH_PYTHON=…, see emulated_gpu/README.md)"
    if not os.path.exists(library):
        return found, f"live: left out, {library} is not built"
    return found + [("live", [python, os.path.join(HERE, "live.py"), "--emulated", library])], None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    a = p.parse_args()
    passed = failed = 0
    commands, missing = parts(os.path.abspath(a.build))
    for name, command in commands:
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = answer.stdout.strip().splitlines()
        counts = re.fullmatch(r"(\d+) passed, (\d+) failed", lines[-1]) if lines else None
        bad = int(counts[2]) if counts else int(answer.returncode != 0)
        if answer.returncode and not bad:
            bad = 1
        passed += int(counts[1]) if counts else 0
        failed += bad
        print("\n".join([f"== {name}", *lines]))
    if missing:
        print(missing)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
