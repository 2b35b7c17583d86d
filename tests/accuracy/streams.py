#!/usr/bin/env python3
"""Every allocation and every free of whole training steps, memplan against PyTorch: the strictest of the accuracy tests.

    python tests/accuracy/streams.py [--build build/release]          compares with the recorded streams
    python tests/accuracy/streams.py --record --emulated LIB          records them again (needs PyTorch)

A stream is the set-up and two steps; it passes when every event is equal: size, order, and which tensor is freed. Only
the order of frees between two allocations is left open: it changes no counter, and for autocast's cached casts it is a
hash's order in PyTorch itself. Left out before are the few allocations that an exported file has no trace of ("absent"
in data/measured/causes.toml).
"""
import argparse
import gzip
import json
import os
import re
import sys
import tomllib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import first_difference
import zoo

FOLDER = os.path.join(zoo.ROOT, "data", "measured", "emulated", "streams")
RUNS = [dict(device=device, model=model, mode="train", precision=precision, optimizer=optimizer, **sizes)
        for device, precision, optimizer in (("h100", "fp32", "adamw"), ("a100", "amp-bf16", "sgd-momentum"), ("h100", "bf16", "adamw"))
        for model, sizes in (("mlp", dict(batch=256)), ("resnet18", dict(batch=32)), ("vit_b_16", dict(batch=16)),
                             ("gpt2", dict(batch=4, seq=512)), ("llama-tiny", dict(batch=8, seq=512)))]
RUNS += [{**r, "mode": "inference", "optimizer": None} for r in RUNS[:5]]
# Recomputed stretches: what is unpacked for a node goes before its gradients are validated.
RUNS += [dict(device="h100", model="gpt2", mode="train", precision="fp32", optimizer="adamw", batch=4, seq=512, checkpoint="model.transformer.h.*"),
         dict(device="h100", model="gpt2", mode="train", precision="fp32", optimizer="adamw", batch=4, seq=512, checkpoint="model.transformer.h.*", checkpoint_save="matmul"),
         dict(device="h100", model="resnet18", mode="train", precision="fp32", optimizer="adamw", batch=32, checkpoint="layer?.*")]


def name(run):
    words = [run[k] for k in ("model", "device", "precision", "mode")]
    return "-".join(words + ["checkpoint" if "checkpoint" in run else "", run.get("checkpoint_save", "")]).strip("-")


def path(run):
    return os.path.join(FOLDER, name(run) + ".json.gz")


def settings(run):
    return {k: v for k, v in run.items() if v is not None}


def write(run, events):
    texts = list(dict.fromkeys(e[2] for e in events))
    index = {t: i for i, t in enumerate(texts)}
    data = dict(run=run, events=[[size, number, index[text]] for size, number, text in events], texts=texts)
    with open(path(run), "wb") as f, gzip.GzipFile(fileobj=f, mode="wb", mtime=0, filename="") as z:
        z.write(json.dumps(data, separators=(",", ":")).encode())


def read(run):
    with gzip.open(path(run), "rt") as f:
        data = json.load(f)
    return [(size, number, data["texts"][text]) for size, number, text in data["events"]]


def absent_causes():
    with open(os.path.join(zoo.ROOT, "data", "measured", "causes.toml"), "rb") as f:
        return tomllib.load(f).get("absent", [])


def without_absent(events, model, causes):
    """The stream less the allocations that a cause names, with their frees; the others are numbered anew."""
    made = [(size, number, text) for size, number, text in events if size > 0]
    gone = set()
    for cause in causes:
        if not re.fullmatch(cause["models"], model):
            continue
        ops, kept = cause["ops"], 0
        for i in range(len(made) - len(ops) + 1):
            part = made[i : i + len(ops)]
            fits = all(text.startswith(cause["phase"] + ":") and text.endswith(" " + op) and ("sizes" not in cause or size in cause["sizes"])
                       for (size, _, text), op in zip(part, ops))
            if not fits:
                continue
            kept += 1
            if kept > cause.get("keep", 0):
                gone |= {number for _, number, _ in part}
    number = {}
    return [(size, number.setdefault(n, len(number)), text) for size, n, text in events if n not in gone]


def settled(events):
    """The stream with the frees between two allocations in the order of their tensors' birth."""
    out, frees = [], []
    for e in events:
        if e[0] < 0:
            frees.append(e)
            continue
        out += sorted(frees, key=lambda f: f[1])
        out.append(e)
        frees = []
    return out + sorted(frees, key=lambda f: f[1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(zoo.ROOT, "build", "release"))
    p.add_argument("--record", action="store_true")
    p.add_argument("--emulated", help="the emulated GPU's library")
    p.add_argument("--only", default="", help="part of a stream's name")
    a = p.parse_args()
    chosen = [r for r in RUNS if a.only in name(r)]
    if a.record:
        os.makedirs(FOLDER, exist_ok=True)
        for run in chosen:
            events = first_difference.pytorch_stream(settings(run), a.emulated, fresh=True)
            write(run, events)
            print(f"{name(run)}: {len(events)} events, {os.path.getsize(path(run))} bytes", flush=True)
        return 0
    failed, causes = 0, absent_causes()
    for run in chosen:
        try:
            ours = first_difference.memplan_stream(settings(run), a.build)
        except SystemExit as e:
            print(f"FAILED {name(run)}: {e}")
            failed += 1
            continue
        if not first_difference.compare(settled(ours), settled(without_absent(read(run), run["model"], causes))):
            print(f"FAILED {name(run)}")
            failed += 1
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
