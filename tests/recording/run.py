#!/usr/bin/env python3
"""Recordings against PyTorch's own counters: python tests/recording/run.py [--build build/release] [--all | --only MODEL …]

Holds both routes of stored recordings against each other and damages them (without_device.py); with --all modules that are hard to record are, too (hostile.py).
Compiles modules (compiled.py): one of them, every one with --all. Records the modules of models.py with memplan.record and holds `memplan FILE` against what PyTorch counts on the emulated
GPU (cases.py): three of them, every one with --all. Where the build has no emulated GPU (cmake -DMEMPLAN_TORCH_PYTHON=…), or its Python lacks transformers,
torchvision or timm, nothing runs but the check that memplan says what is missing. The last line is "N passed, N failed".
"""
import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.dirname(HERE))
import build_tree
import without_device

SAMPLE = ["own", "bloom", "gpt_bigcode"]


def says_what_is_missing(build):
    """memplan.record says what it lacks and how to get it."""
    script = "import memplan\ntry:\n    memplan.record(None)\nexcept memplan.Error as e:\n    print(e)"
    environment = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"), MEMPLAN_PROGRAM=os.path.join(build, "memplan"), MEMPLAN_EMULATED_GPU="/nowhere/lib.so")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    if "MEMPLAN_EMULATED_GPU" in done.stdout:
        return 1, 0
    print(f"FAILED without the device: {done.stdout}{done.stderr}")
    return 0, 1


def counted(lines):
    """The last line, "N passed, N failed"; one failure where there is none."""
    words = lines[-1].split() if lines else []
    return (int(words[0]), int(words[2])) if len(words) == 4 and words[1] == "passed," else (0, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--only", nargs="+", default=SAMPLE, metavar="MODEL")
    parser.add_argument("--all", action="store_const", const=[], dest="only")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    passed, failed = says_what_is_missing(build)
    for good, wrong in (without_device.same_by_both_routes(os.path.join(build, "tests", "both_routes")), without_device.damaged_calls(os.path.join(build, "memplan")),
                        without_device.what_ifs(os.path.join(build, "memplan"))):
        print("".join(f"FAILED {text}\n" for text in wrong), end="")
        passed, failed = passed + good, failed + len(wrong)
    found = build_tree.emulated(build)
    if found and subprocess.run([found[0], "-c", "import transformers, torchvision, timm"], capture_output=True).returncode == 0:
        python, library = found
        done = subprocess.run([python, os.path.join(HERE, "cases.py"), os.path.join(build, "memplan"), library, *options.only], stdout=subprocess.PIPE, text=True)
        lines = done.stdout.strip().splitlines()
        print("\n".join(lines[:-1]))
        counts = [counted(lines)]
        done = subprocess.run([python, os.path.join(HERE, "estimates.py"), os.path.join(build, "memplan"), library], stdout=subprocess.PIPE, text=True)
        print(done.stdout, end="")
        counts.append(counted(done.stdout.strip().splitlines()))
        done = subprocess.run([python, os.path.join(HERE, "compiled.py"), os.path.join(build, "memplan"), library, *(["broken"] if options.only else [])], stdout=subprocess.PIPE, text=True)
        print(done.stdout, end="")
        counts.append(counted(done.stdout.strip().splitlines()))
        if not options.only:
            done = subprocess.run([python, os.path.join(HERE, "hostile.py"), os.path.join(build, "memplan"), library], stdout=subprocess.PIPE, text=True)
            print(done.stdout, end="")
            counts.append(counted(done.stdout.strip().splitlines()))
        passed, failed = passed + sum(c[0] for c in counts), failed + sum(c[1] for c in counts)
    else:
        print("no emulated GPU, or no transformers, torchvision and timm: nothing is recorded")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
