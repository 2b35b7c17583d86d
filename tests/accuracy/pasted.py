#!/usr/bin/env python3
"""Are the settings that `memplan suggest --for pytorch` prints the setup that was estimated? They are pasted into a script
that has a model, a loader and a loss, and PyTorch runs it on the emulated card with that card's memory.

    python tests/accuracy/pasted.py --emulated build/release/emulated_gpu/libemulated_gpu.so [--build build/release]

Needs PyTorch 2.11, torchvision, transformers and peft (the Python that runs this). A case passes when the script runs and
PyTorch's peak of requested bytes is the estimate's but for 0.2 % (a loader that yields the same batch again keeps it). Last line: "N passed, N failed".
"""
import argparse
import json
import os
import shlex
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import recommendations
import zoo

# (model, card, batch, sequence, knobs that may be turned, what else is asked for): each makes another part of the text.
CASES = [
    ("gpt2", "rtx3060-12gb", 8, 1024, "batch"),
    ("gpt2", "rtx3060-12gb", 8, 1024, "precision,checkpoint"),
    ("llama-3.2-1b", "l4", 16, 512, "batch", "--lora", "r=16"),
    ("gpt2", "rtx3060-12gb", 8, 1024, "checkpoint", "--offload", "optimizer"),
    ("gpt2", "rtx3060-12gb", 8, 1024, "offload,checkpoint", "--accumulate", "2"),
    ("gpt2", "rtx3060-12gb", 16, 1024, "checkpoint", "--precision", "fp16", "--freeze", "*.wte.*"),
    ("gpt2", "t4", 24, 512, "checkpoint", "--amp", "fp16", "--optimizer", "sgd-momentum", "--clip"),
    ("resnet50", "rtx3060-12gb", 160, None, "precision", "--channels-last", "--clip"),
    ("llama-3.2-1b", "l4", 24, 512, "batch", "--gpus", "8", "--fsdp"),
    ("bert-base", "rtx3060-12gb", 32, 384, "batch,precision,checkpoint,allocator"),
]

PRELUDE = """import importlib
import sys

import torch


def loss_fn(output, y):
    if output.dim() in (2, 4):
        return torch.nn.functional.cross_entropy(output, y)
    return torch.nn.functional.cross_entropy(output.flatten(0, -2), y.flatten())


module, function = sys.argv[1].split(":")
model = getattr(importlib.import_module(module), function)()
model.train()
lr = 1e-3
loader = [({batch}, {target})] * 3
"""
# The other ranks do not exist: PyTorch's own fake process group stands in for NCCL's.
RANKS = """
import os

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

os.environ["LOCAL_RANK"] = "0"
start = dist.init_process_group
dist.init_process_group = lambda backend: start("fake", store=FakeStore(), rank=0, world_size={ranks})
"""
REPORT = """
for key in ("requested", "allocated", "reserved"):
    print(f"{key:10} peak {torch.cuda.memory_stats()[key + '_bytes.all.peak']:>16,} bytes")
"""


def script(text, samples, seq, ranks):
    if seq:
        batch = target = f"torch.zeros(({samples}, {seq}), dtype=torch.long)"
    else:
        batch, target = f"torch.zeros(({samples}, 3, 224, 224))", f"torch.zeros(({samples},), dtype=torch.long)"
    return PRELUDE.format(batch=batch, target=target) + (RANKS.format(ranks=ranks) if ranks else "") + text + REPORT


def compare(build, runner, name, gpu, batch, seq, knobs, *more):
    """None, or what is wrong."""
    path = os.path.relpath(zoo.model_file(name), zoo.ROOT)
    words = ["--gpu", gpu, "--batch", batch] + (["--seq", seq] if seq else []) + list(more)
    answer = json.loads(recommendations.memplan(build, "suggest", path, *words, "--keep", "all", *[w for k in knobs.split(",") for w in ("--allow", k)], "--for", "pytorch", "--format", "json"))
    if not answer["fitting"]:
        return "nothing fits"
    first = answer["fitting"][0]
    if not first["flags"]:
        return "it fits as it is, so that no setting is tried"
    estimate = json.loads(recommendations.memplan(build, *shlex.split(first["command"])[1:], "--no-search", "--format", "json"))["counters"]["requested_bytes"]
    said = runner.run(script(answer["settings"]["text"], first["micro_batch"] * first["accumulate"], seq, more[more.index("--gpus") + 1] if "--gpus" in more else None), name, gpu)
    if not said["ran"]:
        return f"{first['flags']}: out of memory"
    off = said["requested_bytes"] / estimate - 1
    print(f"{name} on {gpu}, {first['flags']}: requested {said['requested_bytes']:,}, estimated {estimate:,} ({off:+.3%})", flush=True)
    return None if abs(off) <= 2e-3 else f"{first['flags']}: {off:+.2%} of the estimate"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--emulated", required=True)
    p.add_argument("--build", default=os.path.join(zoo.ROOT, "build", "release"))
    p.add_argument("--only", default="")
    a = p.parse_args()
    runner = recommendations.Runner(a.emulated)
    passed = failed = 0
    for case in CASES:
        if a.only not in " ".join(map(str, case)):
            continue
        try:
            wrong = compare(os.path.abspath(a.build), runner, *case)
        except RuntimeError as e:
            wrong = str(e)
        if wrong:
            print(f"FAILED {case}: {wrong}", flush=True)
        failed += wrong is not None
        passed += wrong is None
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
