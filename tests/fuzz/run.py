#!/usr/bin/env python3
"""Inputs that once were findings, or reach something of their own, run through their targets again, with mutations of each.

    python tests/fuzz/run.py [--build build/release] [--rounds 20]
"""
import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    replay = os.path.join(options.build, "tests", "fuzz", "memplan_fuzz_replay")
    sys.exit(subprocess.run([replay, os.path.join(HERE, "corpus"), str(options.rounds)]).returncode)
