#!/usr/bin/env python3
"""Runs a sample of the recorded runs again, through the installed PyTorch on the emulated GPU, and checks that it still
says what is recorded: the recordings are PyTorch's words and not somebody's.

    python tests/accuracy/live.py --emulated build/release/emulated_gpu/libemulated_gpu.so [--all]

With another version of PyTorch, torchvision or transformers than the recordings were made with there is nothing to
compare: the test then says so and passes without a count.
"""
import argparse
import os
import sys
import time
import tomllib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import record

# One of every kind: cards, precisions, optimizers, modes, sizes, convolutions, attention, recurrence, allocator settings.
SAMPLE = [
    ("h100", "--model resnet18 --mode train --precision fp32 --optimizer adamw --batch 32"),
    ("a100", "--model resnet50 --mode train --precision amp-bf16 --optimizer sgd-momentum --batch 32"),
    ("h100", "--model mobilenet_v3_large --mode inference --precision bf16 --batch 32"),
    ("a100", "--model vit_b_16 --mode train --precision fp32 --optimizer adamw --batch 16"),
    ("h100", "--model unet --mode train --precision bf16 --optimizer sgd-momentum --batch 4"),
    ("h100", "--model mlp --mode train --precision amp-fp16 --optimizer adamw --batch 256"),
    ("a100", "--model lstm_lm --mode train --precision fp32 --optimizer adamw --batch 16"),
    ("h100", "--model gpt2 --mode train --precision amp-bf16 --optimizer adamw --batch 4 --seq 512"),
    ("a100", "--model llama-tiny --mode train --precision bf16 --optimizer adamw --batch 8 --seq 512"),
    ("h100", "--model t5-small --mode inference --precision fp32 --batch 8 --seq 256"),
    ("h100", "--model bert-base --mode train --precision fp32 --optimizer sgd-momentum --batch 8 --seq 384"),
    ("h100", "--model resnet18 --mode train --precision fp32 --optimizer adamw --alloc-conf expandable_segments:True --batch 32"),
]


def other_versions(path):
    """What differs from the versions that the recordings were made with."""
    import torch
    import torchvision
    import transformers

    with open(os.path.splitext(path)[0] + ".toml", "rb") as f:
        made = tomllib.load(f)
    here = dict(torch=torch.__version__, torchvision=torchvision.__version__, transformers=transformers.__version__,
                cudnn=torch.backends.cudnn.version())
    return [f"{k} {v} (recorded with {made[k]})" for k, v in here.items() if v != made[k]]


def run_of(row):
    """The settings of a recorded run."""
    import reference_program

    settings = {k: v for k, v in row.items() if k in reference_program.DEFAULTS and k != "steps" and v is not None}
    return dict(device=row["gpu"], **settings)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--emulated", required=True, help="the emulated GPU's library")
    p.add_argument("--all", action="store_true", help="every recorded run, not only the sample")
    a = p.parse_args()
    path = record.truth_path()
    rows = record.load(path)
    if not rows:
        print(f"nothing is recorded for this version of PyTorch ({os.path.basename(path)})")
        return 0
    if other := other_versions(path):
        print("not compared: " + ", ".join(other))
        return 0
    by_name = {(r["gpu"], r["command"].removeprefix("reference_program.py ")): r for r in rows}
    missing = [s for s in SAMPLE if s not in by_name]
    if missing:
        sys.exit(f"not recorded: {missing}")
    workers = record.Workers(os.path.abspath(a.emulated))
    passed = failed = 0
    start = time.time()
    for name in by_name if a.all else SAMPLE:
        recorded = by_name[name]
        now = workers.run(run_of(recorded))
        now["command"] = recorded["command"]
        if now == recorded:
            passed += 1
            continue
        failed += 1
        differing = sorted(k for k in recorded.keys() | now.keys() if recorded.get(k) != now.get(k))
        print(f"FAILED {' '.join(name)}: {'; '.join(f'{k}: recorded {recorded.get(k)}, now {now.get(k)}' for k in differing)}")
    workers.close()
    print(f"{time.time() - start:.0f} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
