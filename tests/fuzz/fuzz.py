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
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
TARGETS = sorted(os.listdir(os.path.join(HERE, "corpus")))


MOST_FINDINGS = 5  # of a target in one run: more of them are mostly the same one


def search(program, build, target, seconds):
    """(executions, findings of this run, a line that says so); a finding ends libFuzzer, so it starts again until the time is over."""
    kept, findings = os.path.join(build, "corpus", target), os.path.join(build, "findings", target)
    os.makedirs(kept, exist_ok=True)
    os.makedirs(findings, exist_ok=True)
    before = set(os.listdir(findings))
    started, runs, edges, failed = time.monotonic(), 0, "?", 0
    while (left := seconds - (time.monotonic() - started)) > 1 and failed < MOST_FINDINGS:
        command = [program, f"-max_total_time={int(left)}", "-timeout=20", "-rss_limit_mb=2048", "-max_len=65536", "-print_final_stats=1", "-reload=0",
                   f"-artifact_prefix={findings}/", kept, os.path.join(HERE, "corpus", target)]
        done = subprocess.run(command, env={**os.environ, "MEMPLAN_FUZZ_TARGET": target}, capture_output=True, text=True, errors="replace")
        told = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr) or re.findall(r"^#(\d+)", done.stderr, re.M)
        runs += int(told[1] if isinstance(told, re.Match) else told[-1] if told else 0)
        covered = re.findall(r"cov: (\d+)", done.stderr)
        edges = covered[-1] if covered else edges
        if done.returncode == 0:
            break
        failed += 1
    took = time.monotonic() - started
    found = sorted(set(os.listdir(findings)) - before)
    print(f"{target:12} {runs:11,} executions {runs / took:9,.0f} a second {edges:>7} edges {max(failed, len(found)):3} findings", flush=True)
    for name in found:
        print(f"  MEMPLAN_FUZZ_TARGET={target} {program} {os.path.join(findings, name)}", flush=True)
    return runs, max(failed, len(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "fuzz"))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=TARGETS, metavar="TARGET")
    options = parser.parse_args()
    program = os.path.join(options.build, "tests", "fuzz", "memplan_fuzz")
    seconds = max(1, int(options.minutes * 60 / len(options.only)))
    totals = [search(program, options.build, target, seconds) for target in options.only]
    print(f"{sum(t[0] for t in totals):,} executions, {sum(t[1] for t in totals)} findings")
    return 1 if any(t[1] for t in totals) else 0


if __name__ == "__main__":
    sys.exit(main())
