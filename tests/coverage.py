#!/usr/bin/env python3
"""Which lines of estimators/, planner/ and cli/ the suites run: prints the share of each folder, and files that lack most.

    cmake --preset coverage && cmake --build build/coverage
    python tests/coverage.py --build build/coverage [--only unit cli …] [--least 92] [--report]

--report looks at the counts of an earlier run again. A process that is killed leaves no counts, so what only such tests reach counts
as not run. The exit status is 1 where a suite failed or the share of lines is below --least percent.
"""
import argparse
import collections
import glob
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TOPS = ("estimators", "planner", "cli")
PROGRAMS = ["memplan", "tests/memplan_tests", "tests/fuzz/memplan_fuzz_replay", "tests/dump_tape"]
LOOKS_AT_NO_PROGRAM = {"structure", "lint"}


def run_suites(build, profiles, only):
    """The exit status. Processes of one program add up their counts in a few files."""
    shutil.rmtree(profiles, ignore_errors=True)
    os.makedirs(profiles)
    names = only or [n for n in sorted(os.listdir(HERE)) if os.path.exists(os.path.join(HERE, n, "run.py")) and n not in LOOKS_AT_NO_PROGRAM | {"bench"}] + ["unit"]
    return subprocess.run([sys.executable, os.path.join(HERE, "run.py"), "--build", build, "--timeout", "7200", "--only", *names],
                          env={**os.environ, "LLVM_PROFILE_FILE": os.path.join(profiles, "%4m.profraw")}).returncode


def lines_of_files(build, profiles):
    """{path: (lines that ran, lines)}"""
    merged = os.path.join(build, "coverage.profdata")
    subprocess.run(["llvm-profdata", "merge", "--sparse", "--failure-mode=all", "-o", merged, *glob.glob(os.path.join(profiles, "*.profraw"))], check=True)
    objects = [os.path.join(build, p) for p in PROGRAMS if os.path.exists(os.path.join(build, p))]
    command = ["llvm-cov", "export", "--summary-only", f"--instr-profile={merged}", objects[0], *(f"--object={o}" for o in objects[1:])]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    out = {}
    for file in told["data"][0]["files"]:
        path, lines = os.path.relpath(file["filename"], ROOT), file["summary"]["lines"]
        if path.startswith(tuple(top + os.sep for top in TOPS)):
            out[path] = (lines["covered"], lines["count"])
    return out


def share(ran, lines):
    return f"{100 * ran / max(lines, 1):5.1f} %  {ran:6} of {lines:6} lines"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "coverage"))
    parser.add_argument("--only", nargs="+", metavar="SUITE")
    parser.add_argument("--least", type=float, default=92)
    parser.add_argument("--report", action="store_true", help="without running the suites")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    profiles = os.path.join(build, "profiles")
    status = 0 if options.report else run_suites(build, profiles, options.only)
    files = lines_of_files(build, profiles)
    folders = collections.defaultdict(lambda: [0, 0])
    for path, (ran, lines) in files.items():
        for name in {os.path.dirname(path), path.split(os.sep)[0], "in all"}:
            folders[name][0] += ran
            folders[name][1] += lines
    print("Files that lack most lines:")
    for path, (ran, lines) in sorted(files.items(), key=lambda f: f[1][0] - f[1][1])[:20]:
        print(f"  {share(ran, lines)}  {path}")
    print("Folders:")
    for name in sorted(folders, key=lambda n: (n == "in all", n)):
        print(f"  {share(*folders[name])}  {name}")
    ran, lines = folders["in all"]
    return 1 if status or 100 * ran < options.least * lines else 0


if __name__ == "__main__":
    sys.exit(main())
