#!/usr/bin/env python3
"""Runs the programs that `memplan explain --program` prints, and compares PyTorch's counters with the estimate.

    python tests/accuracy/printed_programs.py --preload build/release/emulated_gpu/libemulated_gpu.so [--runs 20] [--seed 1]

Setups are drawn at random over torchvision's models of the zoo, so that flags meet in combinations that nobody recorded.
Needs PyTorch 2.11 with torchvision (the Python that runs this), and the emulated device or, without --preload, a GPU.
Ends with "N passed, N failed"; a run passes when requested, allocated and reserved bytes are all equal.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import zoo

MODELS = ["resnet18", "resnet50", "mobilenet_v3_large", "vit_b_16", "squeezenet1_1", "alexnet", "vgg16", "densenet121"]


def draw(rng):
    words = ["--batch", str(rng.choice([1, 2, 3, 5, 8, 13, 24, 40]))]
    words += rng.choice([[], ["--amp", "bf16"], ["--amp", "fp16"], ["--precision", "bf16"]])
    words += rng.choice([[], [], ["--alloc-conf", "expandable_segments:True"], ["--alloc-conf", "max_split_size_mb:64"], ["--alloc-conf", "roundup_power2_divisions:8"]])
    if rng.random() < 0.2:
        return words + ["--mode", "inference"]
    words += ["--optimizer", rng.choice(["adamw", "adamw-amsgrad", "adam", "sgd", "sgd-momentum", "rmsprop", "adagrad"])]
    words += rng.choice([[], [], ["--optimizer-impl", "foreach"], ["--optimizer-impl", "loop"]])
    words += rng.choice([[], [], ["--accumulate", "3"]]) + rng.choice([[], ["--clip"]]) + rng.choice([[], ["--zero-grad", "end"], ["--zero-grad", "keep"]])
    return words + rng.choice([[], [], [], ["--freeze", "*bias"]]) + rng.choice([[], [], ["--loss", "sum"]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(zoo.ROOT, "build", "release"))
    parser.add_argument("--preload")
    parser.add_argument("--gpu", default="h100-80gb")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    memplan = os.path.join(options.build, "memplan")
    environment = dict(os.environ, EMULATED_GPU=options.gpu)
    if options.preload:
        environment["LD_PRELOAD"] = os.path.abspath(options.preload)
    passed = failed = 0
    for _ in range(options.runs):
        name, words = rng.choice(MODELS), draw(rng)
        path = zoo.model_file(name)
        report = subprocess.run([memplan, path, "--gpu", options.gpu, *words, "--no-search", "--format", "json"], capture_output=True, text=True)
        program = subprocess.run([memplan, "explain", path, "--gpu", options.gpu, *words, "--program"], capture_output=True, text=True)
        with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
            f.write(program.stdout)
            f.flush()
            done = subprocess.run([sys.executable, f.name, f"torchvision.models:{name}"], capture_output=True, text=True, env=environment)
        said = {k: int(v.replace(",", "")) for k, v in re.findall(r"(\w+) +peak +([\d,]+) bytes", done.stdout)}
        expected = {k: json.loads(report.stdout)["counters"][k + "_bytes"] for k in said} if report.returncode in (0, 1) else {}
        good = bool(said) and said == expected
        passed, failed = passed + good, failed + (not good)
        print(f"{'equal ' if good else 'FAILED'} {name} {' '.join(words)}", flush=True)
        if not good:
            print("  " + "  ".join(f"{k} {expected.get(k, 0) - v:+,} ({(expected.get(k, 0) - v) / v:+.3%})" for k, v in said.items()) if said else done.stderr[-500:] + report.stdout[-300:])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
