#!/usr/bin/env python3
"""What the planner says against recorded words of PyTorch: python tests/planner/run.py --build build/release

Floating-point operations as torch.utils.flop_counter counts them, and recommendations that were run on emulated cards. Where
the build knows a PyTorch, it also runs the settings that `suggest` prints. The last line is "N passed, N failed".
"""
import argparse
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ACCURACY = os.path.join(HERE, "..", "accuracy")
sys.path[:0] = [ACCURACY, os.path.join(HERE, "..")]
import build_tree
import flops
import recommendations


def pasted(build, python, library):
    done = subprocess.run([python, os.path.join(ACCURACY, "pasted.py"), "--emulated", library, "--build", build], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", env={**os.environ, "OMP_NUM_THREADS": "1"})
    print(done.stdout, end="")
    found = re.search(r"^(\d+) passed, (\d+) failed\s*\Z", done.stdout, re.M)
    return (int(found[1]), int(found[2])) if found else (0, 1)


def estimate(build, name, *words, plan="optimal"):
    """The report of a shipped model with planned checkpoints."""
    model = os.path.join(HERE, "..", "..", "data", "models", name)
    done = subprocess.run([os.path.join(build, "memplan"), "estimate", model, *words, "--checkpoint", plan, "--exit-zero", "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    return json.loads(done.stdout)


def ranges(build):
    """The range of a planned setup is that of the plan: without its checkpoints other readings of this file need 190 GiB."""
    told = estimate(build, "t5-small.onnx.gz", "--gpu", "80GB", "--batch", "4000", "--no-search")
    peak, high = told["counters"]["process_bytes"], told["ranges"]["process_bytes"]["high_bytes"]
    good = peak <= high <= 1.1 * peak
    if not good:
        print(f"FAILED a planned setup needs {peak} bytes, and up to {high}")
    return (1, 0) if good else (0, 1)


def largest(build):
    """The largest batch that an answer names fits when it is asked for: its plan leaves room for its range."""
    passed = failed = 0
    # With a budget of 4 GB the plan of alexnet leaves room on the card as well: without that, 692 samples fit.
    for name, gpu, plan, least in (("bert-base.onnx", "24GB", "optimal", 2), ("pt2/unet.pt2", "24GB", "optimal", 2), ("pt2/alexnet.pt2", "8GB", "optimal", 2), ("moe_lm.onnx", "24GB", "optimal", 2),
                                   ("pt2/alexnet.pt2", "8GB", "optimal:4GB", 750)):
        batch = estimate(build, name, "--gpu", gpu, plan=plan)["alternatives"]["largest_batch"]["batch"]
        verdict = estimate(build, name, "--gpu", gpu, "--batch", str(batch), "--no-search", plan=plan)["summary"]["verdict"]
        good = batch >= least and verdict == "fits"
        if not good:
            print(f"FAILED {name}: the largest batch, {batch}, is said to be '{verdict}'")
        passed, failed = passed + good, failed + (not good)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    options = parser.parse_args()
    totals = [flops.compare(os.path.abspath(options.build)), ranges(os.path.abspath(options.build)), largest(os.path.abspath(options.build))]
    if os.path.exists(recommendations.RECORD):
        totals.append(recommendations.check(os.path.abspath(options.build)))
    live = build_tree.emulated(os.path.abspath(options.build))
    if live:
        totals.append(pasted(os.path.abspath(options.build), *live))
    else:
        print("the printed settings are not run: that needs PyTorch (cmake -DMEMPLAN_TORCH_PYTHON=…, see emulated_gpu/README.md)")
    failed = sum(t[1] for t in totals)
    print(f"{sum(t[0] for t in totals)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
