#!/usr/bin/env python3
"""Runs every suite and adds up: the last line is "N passed, N failed", the exit status 1 where anything failed.

    python tests/run.py [--build build/release] [--only NAME …] [--timeout SECONDS]

They run one after the other, but for four long ones, which run beside the others. A suite is tests/<name>/run.py (or compare.py), called with --build; its last line is "N passed, N failed". The unit
tests are one doctest binary. A suite that dies, hangs or says nothing counts as one failure.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TIMEOUT = 20 * 60  # of one suite, in seconds, unless --timeout says otherwise
NOT_SUITES = {"bench"}
ASIDE = ("observe", "lint", "recording", "programs")  # half of the time: they run beside the others, which leave a core idle


def suites(build):
    """{name: command}"""
    found = {"unit": [os.path.join(build, "tests", "memplan_tests")]}
    for name in sorted(os.listdir(HERE)):
        for script in ("run.py", "compare.py"):
            path = os.path.join(HERE, name, script)
            if name not in NOT_SUITES and os.path.isfile(path):
                found[name] = [sys.executable, path, "--build", build]
                break
    # They take as long as the other suites together, so a commit runs a part of them (CONTRIBUTING.md: how to run all).
    for name, part in (("lint", "--recent"), ("observe", "--turn"), ("programs", "--turn")):
        if name in found:
            found[name].append(part)
    return found


def counts(name, output):
    """(passed, failed) that the suite's own words say, or None."""
    if name == "unit":
        match = re.search(r"test cases:\s*\d+\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed", output)
        return (int(match[1]), int(match[2])) if match else None
    lines = output.strip().splitlines()
    match = re.fullmatch(r"(\d+) passed, (\d+) failed", lines[-1].strip()) if lines else None
    return (int(match[1]), int(match[2])) if match else None


def run(name, command, timeout):
    started = time.monotonic()
    try:
        answer = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout)
        output, status = answer.stdout, answer.returncode
    except subprocess.TimeoutExpired as late:
        output, status = (late.stdout or b"").decode(errors="replace") + f"\nno answer within {timeout} s\n", None
    except OSError as error:
        output, status = f"{error}\n", None
    found = counts(name, output)
    if found is None:
        passed, failed = 0, 1
    else:
        passed, failed = found
        # A suite that counts no failure and still ends with one has failed elsewhere.
        if status != 0 and failed == 0:
            failed = 1
    if failed:
        print(output.rstrip())
    print(f"{name:12} {passed:6} passed {failed:5} failed   {time.monotonic() - started:6.1f} s", flush=True)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--timeout", type=int, default=TIMEOUT, help="seconds that a suite may take")
    options = parser.parse_args()
    os.environ.setdefault("MEMPLAN_PYTHON", "/nonexistent/python3")  # whatever PyTorch the machine has, convolutions are those of the tables
    os.environ.setdefault("MEMPLAN_CHECK", "1")  # tapes are verified after every pass (estimators/tape/check.h)
    all_suites = suites(os.path.abspath(options.build))
    unknown = set(options.only or []) - set(all_suites)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(all_suites)}")
    chosen = {name: command for name, command in all_suites.items() if not options.only or name in options.only}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        aside = [pool.submit(run, name, command, options.timeout) for name, command in chosen.items() if name in ASIDE]
        totals = [run(name, command, options.timeout) for name, command in chosen.items() if name not in ASIDE]
        totals += [each.result() for each in aside]
    passed, failed = sum(t[0] for t in totals), sum(t[1] for t in totals)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
