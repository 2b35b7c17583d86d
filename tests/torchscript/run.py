#!/usr/bin/env python3
"""TorchScript files: python tests/torchscript/run.py [--build build/release] [--only TEXT] [--models NAME …]

Makes scripted and traced files of models of the zoo with the PyTorch that the build knows (MEMPLAN_TORCH_PYTHON), and
compares the same setups by three routes: ONNX, .pt2, TorchScript. Then hostile and unusual files. Without memplan-torch
only what needs no PyTorch runs. The last line is "N passed, N failed".
"""
import argparse
import os
import re
import subprocess
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--only", metavar="TEXT", help="cases with TEXT in their name; 'routes' is the comparison of routes")
    p.add_argument("--models", nargs="+", metavar="NAME", help="compare the routes of these models")
    a = p.parse_args()
    os.environ["MEMPLAN_BUILD"] = os.path.abspath(a.build)
    import cases
    import other_versions
    import routes

    passed = failed = 0
    if not cases.TORCH:
        print("memplan-torch is not built (MEMPLAN_TORCH_PYTHON): what needs PyTorch is left out")
    found = {n: f for n, f in vars(cases).items() if n.startswith("test_") or (n.startswith("torch_test_") and cases.TORCH)}
    for name, function in (found | other_versions.CASES).items():
        if a.only and a.only not in name:
            continue
        try:
            function()
            passed += 1
        except Exception:
            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc(limit=-3, file=sys.stdout)
    if cases.TORCH and (not a.only or a.only in "routes"):
        good, bad = routes.compare(a.models)
        passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
