#!/usr/bin/env python3
"""Searches for inputs that break memplan, target by target, under the address and undefined-behaviour sanitizers.

    cmake --preset asan && cmake --build build/asan --target memplan_fuzz memplan_fuzz_parsers
    python tests/fuzz/fuzz.py [--build build/asan] [--minutes 10] [--rounds 1] [--by-speed] [--only onnx tape …] [--report]

The minutes are divided among the targets, or with --by-speed a third of them, and the rest goes to each in proportion to its
executions a second so far. --rounds goes over all targets so many times: a search that is ended loses one turn at most. What reaches new code stays in build/asan/corpus/TARGET; a finding is written to
build/asan/findings and named, with the command that runs it again. Prints executions, executions per second of the clock and of
the processor, edges covered and findings of each target; the exit status is 1 where there is a finding. Copy its input to
tests/fuzz/corpus/TARGET/found-WHAT when it is mended. build/asan/fuzz.json adds up what all searches did; --report prints it.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
TARGETS = sorted(os.listdir(os.path.join(HERE, "corpus")))

MOST_FINDINGS = 5  # of a target in one run: more of them are mostly the same one
# Where an allocation was made is told with few frames: walking the stack at each of them is most of the time.
SANITIZERS = {"ASAN_OPTIONS": "malloc_context_size=2:quarantine_size_mb=16"}


def programs(build):
    """{target: (its program, the longest input)}: the small program where it has the target, which runs it some ten times faster."""
    found = {}
    for name in ("memplan_fuzz", "memplan_fuzz_parsers"):
        program = os.path.join(build, "tests", "fuzz", name)
        if os.path.exists(program):
            named = subprocess.run([program], env={**os.environ, "MEMPLAN_FUZZ_TARGET": "?"}, capture_output=True, text=True).stderr
            for word in named.partition("one of:")[2].partition("\n")[0].split():
                target, _, longest = word.partition("=")
                found[target] = (program, int(longest))
    return found


def search(program, longest, build, target, seconds):
    """What was done, as a dict; a finding ends libFuzzer, so it starts again until the time is over."""
    kept, findings = os.path.join(build, "corpus", target), os.path.join(build, "findings", target)
    os.makedirs(kept, exist_ok=True)
    os.makedirs(findings, exist_ok=True)
    before = set(os.listdir(findings))
    started, used, runs, edges, failed = time.monotonic(), processor(), 0, 0, 0
    while (left := seconds - (time.monotonic() - started)) > 1 and failed < MOST_FINDINGS:
        command = [program, f"-max_total_time={int(left)}", "-timeout=20", "-rss_limit_mb=2048", f"-max_len={longest}", "-print_final_stats=1", "-reload=0", "-verbosity=1",
                   "-print_pcs=0", f"-artifact_prefix={findings}/", kept, os.path.join(HERE, "corpus", target)]
        done = subprocess.run(command, env={**SANITIZERS, **os.environ, "MEMPLAN_FUZZ_TARGET": target}, capture_output=True, text=True, errors="replace")
        told = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr) or re.findall(r"^#(\d+)", done.stderr, re.M)
        runs += int(told[1] if isinstance(told, re.Match) else told[-1] if told else 0)
        edges = max([edges, *map(int, re.findall(r"cov: (\d+)", done.stderr))])
        if done.returncode == 0:
            break
        failed += 1
    new = sorted(set(os.listdir(findings)) - before)
    print_row(target, one := {"executions": runs, "seconds": time.monotonic() - started, "processor": processor() - used, "edges": edges, "findings": max(failed, len(new))})
    for name in new:
        print(f"  MEMPLAN_FUZZ_TARGET={target} {program} {os.path.join(findings, name)}", flush=True)
    return one


def processor():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def print_row(target, one):
    print(f"{target:12} {one['executions']:11,} executions {one['executions'] / max(one['seconds'], 1e-3):8,.0f} a second "
          f"{one['executions'] / max(one['processor'], 1e-3):8,.0f} a second of the processor {one['edges']:6} edges {one['findings']:3} findings", flush=True)


def add(totals, target, one):
    all_of_it = totals.setdefault(target, dict.fromkeys(one, 0))
    for key, value in one.items():
        all_of_it[key] = max(all_of_it[key], value) if key == "edges" else all_of_it[key] + value


def add_to_file(build, target, one):
    path = os.path.join(build, "fuzz.json")
    totals = read_totals(path)
    add(totals, target, one)
    with open(path, "w") as f:
        json.dump(totals, f, indent=1)


def read_totals(path):
    if not os.path.exists(path):
        return {}
    with open(path) as f:
        return json.load(f)


def shares(chosen, minutes, rounds, speeds):
    """Seconds of each target in one round."""
    seconds, fastest = minutes * 60 / rounds, sum(speeds.values())
    if not fastest:
        return dict.fromkeys(chosen, seconds / len(chosen))
    return {t: seconds / 3 / len(chosen) + seconds * 2 / 3 * speeds.get(t, 0) / fastest for t in chosen}


def speeds_of(totals, chosen):
    return {t: totals[t]["executions"] / max(totals[t]["processor"], 1) for t in chosen if t in totals}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "asan"))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--by-speed", action="store_true", help="more time to targets that run faster")
    parser.add_argument("--only", nargs="+", choices=TARGETS, metavar="TARGET")
    parser.add_argument("--report", action="store_true", help="only what all searches of this build did")
    options = parser.parse_args()
    if options.report:
        totals = read_totals(os.path.join(options.build, "fuzz.json"))
        for target, one in totals.items():
            print_row(target, one)
    else:
        known = programs(options.build)
        chosen = options.only or [t for t in TARGETS if t in known]
        totals = {}
        for _ in range(options.rounds):
            speeds = speeds_of(read_totals(os.path.join(options.build, "fuzz.json")), chosen) if options.by_speed else {}
            for target, seconds in shares(chosen, options.minutes, options.rounds, speeds).items():
                add(totals, target, one := search(*known[target], options.build, target, max(2, int(seconds))))
                add_to_file(options.build, target, one)
    print(f"{sum(t['executions'] for t in totals.values()):,} executions, {sum(t['findings'] for t in totals.values())} findings")
    return 1 if any(t["findings"] for t in totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
