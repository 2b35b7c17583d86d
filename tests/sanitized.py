#!/usr/bin/env python3
"""Runs the suites with a memplan that has sanitizers (presets asan and tsan), and looks at what the sanitizers said.

    python tests/sanitized.py --build build/asan [--only unit cli …]

A suite alone would not see all of it: a child whose exit status nobody reads, a report that goes to a pipe. So every process writes
what its sanitizer finds below BUILD/reports, and each of these files is a failure. Left out are suites that look at no C++ of
memplan's (structure, lint, install, first_contact, observe) and those that compare with PyTorch's own process (it has no sanitizer).
The last line is "N passed, N failed".
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SUITES = ["unit", "fuzz", "cli", "planner", "op_oracle", "ort", "recording", "torchscript", "html", "hard", "zoo", "accuracy"]


def environment(reports):
    # 99: memplan's own exit statuses are small numbers, which tests expect.
    common = f"log_path={os.path.join(reports, 'report')}:exitcode=99"
    # Tests ask what memplan does without memory, and a process that ends need not give back what it has.
    address = f"{common}:detect_leaks=0:allocator_may_return_null=1"
    # cuDNN is asked in a Python with the emulated GPU, which a build with sanitizers does not have; that of a release build serves.
    library = os.path.join(os.path.dirname(HERE), "build", "release", "emulated_gpu", "libemulated_gpu.so")
    emulated = {"MEMPLAN_EMULATED_GPU": library} if os.path.exists(library) else {}
    return {**emulated, **os.environ, "ASAN_OPTIONS": address, "UBSAN_OPTIONS": f"{common}:print_stacktrace=1", "TSAN_OPTIONS": f"{common}:second_deadlock_stack=1"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--only", nargs="+", choices=SUITES, default=SUITES, metavar="SUITE")
    options = parser.parse_args()
    reports = os.path.join(os.path.abspath(options.build), "reports")
    shutil.rmtree(reports, ignore_errors=True)
    os.makedirs(reports)
    command = [sys.executable, os.path.join(HERE, "run.py"), "--build", options.build, "--timeout", "7200", "--only", *options.only]
    done = subprocess.run(command, env=environment(reports), stdout=subprocess.PIPE, text=True, errors="replace")
    lines = done.stdout.rstrip().splitlines()
    print("\n".join(lines[:-1]))
    counts = re.fullmatch(r"(\d+) passed, (\d+) failed", lines[-1]) if lines else None
    passed, failed = (int(counts[1]), int(counts[2])) if counts else (0, 1)
    for name in sorted(os.listdir(reports)):
        with open(os.path.join(reports, name), errors="replace") as f:
            print(f"FAILED {os.path.join(reports, name)}:\n{f.read(4000)}")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
