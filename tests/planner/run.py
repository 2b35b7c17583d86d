#!/usr/bin/env python3
"""What the planner says against recorded words of PyTorch: python tests/planner/run.py --build build/release

Floating-point operations as torch.utils.flop_counter counts them, and recommendations that were run on emulated cards. Needs no
PyTorch; the last line is "N passed, N failed".
"""
import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "accuracy"))
import flops
import recommendations


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    options = parser.parse_args()
    totals = [flops.compare(os.path.abspath(options.build))]
    if os.path.exists(recommendations.RECORD):
        totals.append(recommendations.check(os.path.abspath(options.build)))
    failed = sum(t[1] for t in totals)
    print(f"{sum(t[0] for t in totals)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
