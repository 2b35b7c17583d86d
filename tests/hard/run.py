#!/usr/bin/env python3
"""limits.py and a sample of faults.py and flags.py, for `make test`; these search longer by themselves.

    python tests/hard/run.py [--build build/release] [--faults 460] [--runs 150]
"""
import argparse
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--faults", type=int, default=460)
    p.add_argument("--runs", type=int, default=150)
    a = p.parse_args()
    searches = [[os.path.join(HERE, "flags.py"), "--runs", str(a.runs)], [os.path.join(HERE, "limits.py")]]
    # A program with sanitizers has allocators of its own, and needs more time and memory.
    if os.path.exists(os.path.join(a.build, "tests", "libmemplan_faults.so")):
        searches.append([os.path.join(HERE, "faults.py"), "--faults", str(a.faults)])
    else:
        for search in searches:
            search += ["--cpu", "240", "--mib", "8192"]
    passed = failed = 0
    for words in searches:
        done = subprocess.run([sys.executable, *words, "--build", a.build], capture_output=True, text=True, errors="replace")
        print(done.stdout, done.stderr, sep="")
        counts = re.findall(r"^(\d+) passed, (\d+) failed$", done.stdout, re.M)
        passed += int(counts[-1][0]) if counts else 0
        failed += int(counts[-1][1]) if counts else 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
