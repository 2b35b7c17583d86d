#!/usr/bin/env python3
"""Tests of the formats that show the run itself: python tests/html/run.py [--build build/release] [--only TEXT]

The page is checked as text always, and in a headless Chromium where there is one (Debian: chromium chromium-driver). The
snapshot is read as PyTorch's viewer reads it, by torch/cuda/_memory_viz.py itself where PyTorch is installed; the trace by
the messages of the perfetto package. What could not be run is named. The last line is "N passed, N failed".
"""
import argparse
import importlib
import os
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cli")]
MODULES = ["cases_timeline", "cases_page", "cases_snapshot", "cases_perfetto", "cases_browser"]




def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--only", metavar="TEXT", default="")
    options = parser.parse_args()
    os.environ["MEMPLAN_BUILD"] = os.path.abspath(options.build)
    passed, failed, skipped = 0, 0, {}
    for name in MODULES:
        module = importlib.import_module(name)
        why = getattr(module, "unavailable", lambda: None)()
        for case, function in list(vars(module).items()):
            if not case.startswith("test_") or options.only not in f"{name}.{case}":
                continue
            if why:
                skipped.setdefault(why, []).append(case)
                continue
            for arguments in getattr(function, "cases", [()]):
                try:
                    reason = function(*arguments)
                    if isinstance(reason, str):  # a case that needs what is not here says so
                        skipped.setdefault(reason, []).append(case)
                    else:
                        passed += 1
                except Exception:
                    failed += 1
                    print(f"FAILED {name}.{case}{arguments!r}")
                    traceback.print_exc(limit=-2, file=sys.stdout)
        getattr(module, "done", lambda: None)()
    for why, cases in skipped.items():
        print(f"not run: {', '.join(cases)}: {why}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
