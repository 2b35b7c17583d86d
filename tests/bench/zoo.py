#!/usr/bin/env python3
"""Measures the default answer, with its searches, for every model of data/models and every strategy, and lists what is slow.

    python tests/bench/zoo.py [--build build/release] [--sample 200] [--seed 1] [--only TEXT]

Time is the processor time of the whole process. The exit status is 1 where a run takes longer than its bound or where the
median misses its own. Models whose sequence is open get --seq 128.
"""
import argparse
import glob
import os
import random
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from run import ROOT, measure

SECONDS, MEDIAN, OPTIMAL = 1.0, 0.15, 2.0  # bounds: of a run, of the median, of checkpoints that memplan chooses
# Trunks of large language models, whose searches bench/run.py measures by themselves.
LARGE = ("llama-2-7b", "llama-3-70b", "llama-3-405b")
SETUPS = [
    "", "--amp bf16", "--amp fp16 --clip", "--precision bf16", "--optimizer sgd", "--optimizer adafactor", "--mode inference", "--accumulate 4", "--channels-last",
    "--offload activations", "--freeze *.weight", "--checkpoint blocks", "--checkpoint every:2", "--gpus 8 --ddp", "--gpus 8 --fsdp", "--gpus 8 --zero 2", "--gpus 8 --zero 3",
    "--batch 64", "--batch 64 --amp bf16",
    "--checkpoint optimal", "--checkpoint optimal --batch 8", "--checkpoint optimal --batch 64", "--checkpoint optimal --batch 1024", "--checkpoint optimal --batch 64 --amp bf16",
]


def models():
    found = [path for pattern in ("*.onnx", "*.onnx.gz", "pt2/*.pt2", "more/*.pt2") for path in glob.glob(os.path.join(ROOT, "data", "models", pattern))]
    return sorted(path for path in found if not os.path.basename(path).startswith(LARGE))


def words_of(memplan, path):
    """The model, with a sequence where it needs one; none where it is not computed."""
    for more in ([], ["--seq", "128"]):
        if subprocess.run([memplan, path, *more, "--no-search", "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode in (0, 1):
            return [path, *more]
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--sample", type=int, help="as many of the pairs of model and strategy, drawn by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="TEXT", help="models and strategies with this text")
    options = parser.parse_args()
    memplan = os.path.join(options.build, "memplan")
    pairs = [(path, setup) for path in models() for setup in SETUPS if not options.only or options.only in path + " " + setup]
    if options.sample:
        pairs = random.Random(options.seed).sample(pairs, min(options.sample, len(pairs)))
    known, rows, refused = {}, [], 0
    for path, setup in pairs:
        if path not in known:
            known[path] = words_of(memplan, path)
        try:
            if known[path] is None:
                raise RuntimeError
            seconds, _, memory = measure([memplan, *known[path], "--gpu", "24GB", "--exit-zero", *setup.split()], 1)
        except RuntimeError:  # this model cannot be had so: nothing to measure
            refused += 1
            continue
        rows.append((seconds, memory, os.path.relpath(path, os.path.join(ROOT, "data", "models")), setup))
    slow = [row for row in sorted(rows, reverse=True) if row[0] > (OPTIMAL if "optimal" in row[3] else SECONDS)]
    plain = [row[0] for row in rows if "optimal" not in row[3]] or [0.0]
    print(f"{len(rows)} runs, {refused} refused; median without optimal checkpoints {statistics.median(plain) * 1e3:.0f} ms (at most {MEDIAN * 1e3:.0f} ms); "
          f"{len(slow)} above {SECONDS:.0f} s, or {OPTIMAL:.0f} s with optimal checkpoints")
    for seconds, memory, path, setup in slow or sorted(rows, reverse=True)[:5]:
        print(f"{'MISSED' if slow else 'slowest'}  {seconds:6.2f} s  {memory / (1 << 20):5.0f} MiB  {path} {setup}")
    return 1 if slow or statistics.median(plain) > MEDIAN else 0


if __name__ == "__main__":
    sys.exit(main())
