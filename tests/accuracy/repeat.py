#!/usr/bin/env python3
"""Runs the reference program on the emulated GPU again and again, each time in a new process, and compares every counter of
every step: the same program must give the same bytes, and nothing may crash.

    python tests/accuracy/repeat.py --emulated build/release/emulated_gpu/libemulated_gpu.so [--runs 100]

The last line is "N passed, N failed"; a run passes when it says what the first run of its kind said.
"""
import argparse
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import record

KINDS = [
    dict(device="h100", model="mlp", mode="train", precision="amp-fp16", optimizer="adamw", batch=256),
    dict(device="h100", model="resnet18", mode="train", precision="fp32", optimizer="adamw", batch=32),
    dict(device="h100", model="llama-tiny", mode="train", precision="bf16", optimizer="adamw", batch=8, seq=512),
    dict(device="h100", model="lstm_lm", mode="train", precision="fp32", optimizer="sgd-momentum", batch=16),
    dict(device="h100", model="resnet18", mode="train", precision="fp32", optimizer="adamw", batch=32, alloc_conf="expandable_segments:True"),
]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--emulated", required=True)
    p.add_argument("--runs", type=int, default=100)
    a = p.parse_args()
    workers = record.Workers(os.path.abspath(a.emulated))
    first, passed, failed, start = {}, 0, 0, time.time()
    for number in range(a.runs):
        kind = number % len(KINDS)
        row = workers.run(KINDS[kind])
        good = "failed" not in row and row["error"] is None and row["steps"] and first.setdefault(kind, row) == row
        passed += bool(good)
        failed += not good
        if not good:
            print(f"FAILED run {number + 1}, {KINDS[kind]}: {row.get('failed') or 'other figures than the first time'}", flush=True)
    workers.close()
    print(f"{a.runs} runs of {len(first)} kinds in {time.time() - start:.0f} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
