#!/usr/bin/env python3
"""Compiled scripts under `memplan observe`: python compiled_scripts.py MEMPLAN PYTHON [--all | NAME …], run by run.py.

Each script of compiled_scripts/ runs as it is, on a machine where no compiler is found. The report must say the counters that the script prints of itself. Then it runs once
more with nobody looking on (jobs of several ranks are observed again), and must request the same bytes. A row for each; the last line is "N passed, N failed".
"""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
SCRIPTS = os.path.join(HERE, "compiled_scripts")
COUNTERS = ("requested", "allocated", "reserved")
# Flags of `memplan observe`, where a script needs some; the other scripts need none.
FLAGS = {"ddp": ["--world", "2", "--ranks", "0"], "fsdp2": ["--world", "4", "--ranks", "0"]}
SAMPLE = ["breaks", "overhead_inference"]
ALONE = """
import runpy, sys
sys.path[:0] = sys.argv[1:3]
from memplan._recording import compiled
compiled.install()
runpy.run_path(sys.argv[3], run_name="__main__")
"""


def printed_by(text):
    return [list(map(int, found)) for found in re.findall(r"own counters: (\d+) (\d+) (\d+)", text)]


def names():
    return sorted(f[:-3] for f in os.listdir(SCRIPTS) if f.endswith(".py") and f != "common.py")


def observed(program, python, name):
    """(report, the counters that the script printed, seconds of processor time)"""
    with tempfile.TemporaryDirectory() as empty:
        before = os.times()
        done = subprocess.run([program, "observe", "--gpu", "h100-80gb", "--format", "json", *FLAGS.get(name, []), "--", python, os.path.join(SCRIPTS, name + ".py")],
                              capture_output=True, text=True, timeout=900, env={**os.environ, "PATH": empty})
        after = os.times()
    if done.returncode:
        raise AssertionError(f"exit code {done.returncode}: {done.stderr[-1500:]}")
    return json.loads(done.stdout), printed_by(done.stderr), after.children_user + after.children_system - before.children_user - before.children_system


def alone(program, python, name):
    """What the script prints on the emulated GPU without the observer."""
    library = os.environ.get("MEMPLAN_EMULATED_GPU") or os.path.join(os.path.dirname(program), "emulated_gpu", "libemulated_gpu.so")
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(library), os.path.join(folder, "libcuda.so.1"))
        environment = dict(os.environ, PATH=os.path.join(folder, "nothing"), LD_PRELOAD=library, EMULATED_GPU="h100-80gb", TRITON_LIBCUDA_PATH=folder,
                           TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, "inductor"), TRITON_CACHE_DIR=os.path.join(folder, "triton"), TORCHINDUCTOR_COMPILE_THREADS="1")
        done = subprocess.run([python, "-c", ALONE, SCRIPTS, os.path.join(ROOT, "python"), os.path.join(SCRIPTS, name + ".py")], capture_output=True, text=True, timeout=900,
                              env=environment)
    assert not done.returncode, f"alone: {done.stderr[-1500:]}"
    return printed_by(done.stdout)


def checked(program, python, name):
    """Runs a script twice. The row of the table; AssertionError where something is wrong."""
    report, printed, seconds = observed(program, python, name)
    ours = [[rank[f"{c}_bytes"] for c in COUNTERS] for rank in report["ranks"]]
    assert ours == printed, f"the report says {ours}, the script {printed}"
    assert report["verdict"] == "fits", report["verdict"]
    assert report["compiled"] and report["compiled"]["graphs"] > 0, "nothing was compiled"
    second = observed(program, python, name)[1] if name in FLAGS else alone(program, python, name)
    assert [r[0] for r in ours] == [r[0] for r in second], f"requested {ours}, then {second}"
    c = report["compiled"]
    gave_up = [f["function"] for f in c["eager"]]
    assert (name == "breaks") == any("forward" in f for f in gave_up), f"run as eager code: {gave_up}"
    same = "all" if ours == second else "requested"
    unknown = "; ".join(x["what"] for x in report["not_known"])
    return f"| {name} | {c['graphs']} | {sum(b['count'] for b in c['breaks'])} | {len(gave_up)} | {' | '.join(f'{x:,}' for x in ours[0])} | {same} | {seconds:.0f} s | {unknown} |"


def main():
    program, python, only = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    passed, failures = 0, []
    print("| script | graphs | breaks | eager | requested | allocated | reserved | repeats | processor | not known |\n|---|---|---|---|---|---|---|---|---|---|")
    for name in names() if only == ["--all"] else only or SAMPLE:
        try:
            print(checked(program, python, name), flush=True)
            passed += 1
        except (AssertionError, subprocess.TimeoutExpired) as error:
            print(f"FAILED {name}: {error}", flush=True)
            failures.append(name)
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
