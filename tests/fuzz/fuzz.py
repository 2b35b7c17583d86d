#!/usr/bin/env python3
"""Searches for inputs that break memplan, target by target, under the address and undefined-behaviour sanitizers.

    cmake --preset fuzz && cmake --build build/fuzz --target memplan_fuzz
    python tests/fuzz/fuzz.py [--build build/fuzz] [--minutes 10] [--only onnx tape …]

The minutes are divided among the targets. What reaches new code stays in build/fuzz/corpus/TARGET; a finding is written to
build/fuzz/findings and named, with the command that runs it again. Prints executions, edges covered and findings of each
target; the exit status is 1 where there is a finding. Copy its input to tests/fuzz/corpus/TARGET/found-WHAT when it is mended.
"""
import argparse
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
TARGETS = sorted(os.listdir(os.path.join(HERE, "corpus")))


def search(program, build, target, seconds):
    kept, findings = os.path.join(build, "corpus", target), os.path.join(build, "findings", target)
    os.makedirs(kept, exist_ok=True)
    os.makedirs(findings, exist_ok=True)
    command = [program, f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048", "-max_len=65536", "-print_final_stats=1", f"-artifact_prefix={findings}/",
               kept, os.path.join(HERE, "corpus", target)]
    done = subprocess.run(command, env={**os.environ, "MEMPLAN_FUZZ_TARGET": target}, capture_output=True, text=True, errors="replace")
    runs = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    edges = re.findall(r"cov: (\d+)", done.stderr)
    found = sorted(os.listdir(findings))
    print(f"{target:12} {int(runs[1]) if runs else 0:10} executions {edges[-1] if edges else '?':>7} edges {len(found):3} findings", flush=True)
    for name in found:
        print(f"  MEMPLAN_FUZZ_TARGET={target} {program} {os.path.join(findings, name)}")
    return int(runs[1]) if runs else 0, len(found) + (done.returncode != 0 and not found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "fuzz"))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=TARGETS, metavar="TARGET")
    options = parser.parse_args()
    program = os.path.join(options.build, "tests", "fuzz", "memplan_fuzz")
    seconds = max(1, int(options.minutes * 60 / len(options.only)))
    totals = [search(program, options.build, target, seconds) for target in options.only]
    print(f"{sum(t[0] for t in totals)} executions, {sum(t[1] for t in totals)} findings")
    return 1 if any(t[1] for t in totals) else 0


if __name__ == "__main__":
    sys.exit(main())
