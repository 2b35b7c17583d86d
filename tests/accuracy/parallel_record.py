#!/usr/bin/env python3
"""Runs parallel_program.py for every run of runs() below on the emulated GPU and keeps what PyTorch says.

    LD_PRELOAD=LIB EMULATED_GPU=h100 python tests/accuracy/parallel_record.py [--only 'gpt2'] [--limit N]

appends one JSON row per run to data/measured/emulated/parallel-<torch version>.jsonl (DeepSpeed's: deepspeed-<version>.jsonl), and
leaves out runs that are there.
Every run is a fork of a process that has imported PyTorch but not touched CUDA.
"""
import argparse
import json
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import forked

ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))

SIZES = {"gpt2": [dict(batch=b, seq=512) for b in (1, 4, 8)], "llama-3.2-1b": [dict(batch=b, seq=512) for b in (1, 2, 4)],
         "resnet50": [dict(batch=b) for b in (8, 32, 64)]}
STRATEGIES = [dict(strategy="fsdp"), dict(strategy="ddp"), dict(strategy="fsdp", no_reshard=True), dict(strategy="fsdp", hsdp=4),
              dict(strategy="fsdp", fsdp_dtype="bf16", reduce_dtype="fp32"), dict(strategy="fsdp", checkpoint="blocks"),
              dict(strategy="fsdp", checkpoint="blocks", checkpoint_save="matmul,attention"), dict(strategy="fsdp", checkpoint="every:2"),
              dict(strategy="ddp", bucket_view=True), dict(strategy="fsdp", precision="amp-bf16"), dict(strategy="ddp", precision="amp-bf16")]
PIPELINES = {"gpt2": (4, [(1, 4), (2, 16), (4, 8)]), "llama-tiny": (4, [(1, 4), (4, 8), (8, 16)]), "llama-3.2-1b": (8, [(1, 8), (2, 16), (4, 8)])}
# With DeepSpeed 0.19.8 (deepspeed_engine.py says how to get it); rows of a file of their own.
ZERO = [dict(strategy="zero", zero=stage, precision="bf16") for stage in (1, 2, 3)]
ZERO_SETTINGS = [dict(strategy="zero", zero=2, precision="bf16", overlap_comm=1), dict(strategy="zero", zero=1, precision="bf16", overlap_comm=1),
                 dict(strategy="zero", zero=3, precision="bf16", overlap_comm=0), dict(strategy="zero", zero=2, precision="bf16", bucket_elements=50_000_000),
                 dict(strategy="zero", zero=3, precision="bf16", bucket_elements=50_000_000), dict(strategy="zero", zero=2, precision="fp32"),
                 dict(strategy="zero", zero=3, precision="fp32"), dict(strategy="zero", zero=3, precision="bf16", checkpoint="blocks")]
# Host memory holds what is offloaded: small models only.
ZERO_OFFLOAD = [dict(strategy="zero", zero=stage, precision="bf16", offload=what)
                for stage, what in ((1, "optimizer"), (2, "optimizer"), (3, "optimizer"), (3, "optimizer,parameters"))]
OFFLOADED = {"gpt2": SIZES["gpt2"], "pythia-160m": [dict(batch=b, seq=512) for b in (1, 4, 8)]}
SPLITS = {"gpt2": "2,4,4,2", "llama-tiny": "1,3,3,1", "llama-3.2-1b": "1,2,3,2,3,2,2,1"}
TENSOR = [dict(strategy="tp", ranks=4, tp=4), dict(strategy="tp", ranks=8, tp=8)]
# loss_parallel(): every precision, with and without sequence parallelism; tied heads, biases, a vocabulary of 151,936.
DIVIDED_LOSS = [dict(model="llama-tiny", batch=batch, seq=512, tp=tp, sp=sp, precision=precision)
                for tp in (2, 4) for sp in (False, True) for precision in ("fp32", "bf16", "amp-bf16") for batch in (2, 8)]
# GradScaler takes no mixture of DTensors and plain tensors, which tensor parallelism without that of the sequence has.
DIVIDED_LOSS += [dict(model="llama-tiny", batch=8, seq=512, tp=4, sp=True, precision="amp-fp16")]
DIVIDED_LOSS += [dict(model="llama-3.2-1b", batch=2, seq=512, tp=tp, sp=sp, precision=precision)
                 for tp in (4, 8) for sp in (False, True) for precision in ("fp32", "bf16")]
DIVIDED_LOSS += [dict(model="qwen2-0.5b", batch=2, seq=512, tp=2, sp=sp, precision=precision) for sp in (False, True) for precision in ("fp32", "bf16")]
DIVIDED_LOSS += [dict(model="opt-125m", batch=4, seq=512, tp=tp, precision=precision) for tp in (2, 4) for precision in ("fp32", "amp-bf16")]


def runs():
    """The order is by worth: what comes first tells most."""
    for strategy in STRATEGIES[:4]:
        for model in SIZES:
            yield dict(model=model, **SIZES[model][1], **strategy)
    for size in SIZES["llama-3.2-1b"]:
        yield dict(model="llama-3.2-1b", **size, **TENSOR[1])
    for strategy in STRATEGIES:
        for model, sizes in SIZES.items():
            for size in sizes:
                if model == "resnet50" and strategy.get("checkpoint"):
                    continue  # recomputing batch norm would change its statistics: nobody checkpoints it so
                yield dict(model=model, **size, **strategy)
    for model, around, within in (("gpt2", "model.transformer", "model.transformer.h.1"), ("llama-3.2-1b", "model.model", "")):
        for dtypes in ({}, dict(fsdp_dtype="bf16", reduce_dtype="fp32")):
            for modules in filter(None, (around, within)):
                yield dict(model=model, batch=1, seq=512, strategy="fsdp", checkpoint=modules, **dtypes)
    for strategy in TENSOR:
        for size in SIZES["llama-3.2-1b"]:
            yield dict(model="llama-3.2-1b", **size, **strategy)
        yield dict(model="llama-tiny", batch=8, seq=512, **strategy)
    for strategy in TENSOR:
        for size in SIZES["llama-3.2-1b"]:
            yield dict(model="llama-3.2-1b", **size, **strategy, sp=True)
        for batch in (2, 8, 16):
            yield dict(model="llama-tiny", batch=batch, seq=512, **strategy, sp=True)
    for run in DIVIDED_LOSS:
        yield dict(run, strategy="tp", ranks=run["tp"], loss_parallel=True)
    for schedule in ("1f1b", "gpipe", "interleaved:2"):
        for model, (ranks, sizes) in PIPELINES.items():
            for batch, micro_batches in sizes:
                for rank in (0, ranks // 2 - 1, ranks - 1):
                    yield dict(model=model, batch=batch, seq=512, strategy="pp", ranks=ranks, pp=ranks, pp_schedule=schedule,
                               micro_batches=micro_batches, rank=rank)
    for model, (ranks, sizes) in PIPELINES.items():
        for batch, micro_batches in sizes[1:2] if model == "llama-3.2-1b" else sizes[:2]:
            for rank in (0, ranks // 2 - 1, ranks - 1):
                common = dict(model=model, batch=batch, seq=512, strategy="pp", ranks=ranks, pp=ranks, micro_batches=micro_batches, rank=rank)
                yield dict(common, pp_schedule="1f1b", pp_split=SPLITS[model])
                for schedule in ("zero-bubble", "zbv"):
                    yield dict(common, pp_schedule=schedule)
    for strategy in ZERO:
        for model, sizes in SIZES.items():
            for size in sizes:
                # DeepSpeed leaves the statistics of batch norm in fp32, which PyTorch refuses beside weights in 16 bits.
                yield dict(model=model, **size, **({**strategy, "precision": "fp32"} if model == "resnet50" else strategy))
    for strategy in ZERO_SETTINGS:
        for model in ("gpt2", "llama-3.2-1b"):
            if model == "gpt2" or strategy["precision"] == "bf16":
                yield dict(model=model, **SIZES[model][1], **strategy)
    for strategy in ZERO_OFFLOAD:
        for model, sizes in OFFLOADED.items():
            for size in sizes:
                yield dict(model=model, **size, **strategy)


def key(run):
    return json.dumps({k: v for k, v in run.items() if v is not None and v is not False and v != ""}, sort_keys=True)


def path(run):
    import torch

    name = "deepspeed-0.19.8.jsonl" if run["strategy"] == "zero" else f"parallel-{'.'.join(torch.__version__.split('.')[:2])}.jsonl"
    return os.path.join(ROOT, "data", "measured", "emulated", name)


def load():
    rows = []
    for p in sorted({path(run) for run in runs()}):
        if os.path.exists(p):
            with open(p) as f:
                rows += [json.loads(line) for line in f]
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default=".*")
    p.add_argument("--limit", type=int, default=10**9)
    a = p.parse_args()
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel

    forked.import_models()
    import parallel_program

    if "zero" in a.only:
        parallel_program.deepspeed_engine.before_import()
        import deepspeed  # once for all runs

        deepspeed.comm.comm

    done, made = {key(r["run"]) for r in load()}, 0
    for run in runs():
        if key(run) in done or not re.search(a.only, key(run)) or made >= a.limit:
            continue
        start = time.time()
        row = forked.row_of(lambda: parallel_program.run(run))
        made += 1
        done.add(key(run))
        if "failed" in row:
            print(f"{key(run)}: {row['failed']}", file=sys.stderr, flush=True)
            continue
        kept = dict(gpu=os.environ.get("EMULATED_GPU", ""), run=run, parameters=row["parameters"], setup=row["setup"], steps=row["steps"], torch=row["torch"])
        if "deepspeed" in row:
            kept |= dict(deepspeed=row["deepspeed"], command="tests/accuracy/parallel_record.py --only zero", date=time.strftime("%Y-%m-%d"))
        with open(path(run), "a") as f:
            f.write(json.dumps(kept, separators=(",", ":")) + "\n")
        print(f"{key(run)}: {row['steps'][-1]['requested']:,} ({time.time() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
