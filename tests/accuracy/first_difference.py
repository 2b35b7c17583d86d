#!/usr/bin/env python3
"""Where do memplan and PyTorch part? Runs both on one setting and compares their whole streams of allocations and frees.

    python tests/accuracy/first_difference.py --emulated LIB --model gpt2 --batch 2 [--precision amp-bf16 …] [--hunks 5]

prints the first event that differs, with the op that each side was in and the events before it; then, with --hunks, the
next places where the streams differ after they were lined up again. Ends with 1 when there is a difference. PyTorch's
own stream is kept below build/streams and used again unless --fresh.
"""
import argparse
import difflib
import gzip
import hashlib
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import zoo


def pytorch_stream(run, library, fresh=False, steps=2):
    """[(size, allocation number, op)]: size negative for a free; a third step repeats the second."""
    import record
    import torch

    folder = os.path.join(zoo.ROOT, "build", "streams")
    os.makedirs(folder, exist_ok=True)
    run = {**run, "steps": steps}
    path = os.path.join(folder, hashlib.sha1((torch.__version__ + record.key(run)).encode()).hexdigest()[:16] + ".json.gz")
    if fresh or not os.path.exists(path):
        workers = record.Workers(library, subprocess.DEVNULL)
        row = workers.run(run, events=path, ops=True)
        workers.close()
        if "failed" in row:
            sys.exit(f"PyTorch: {row['failed']}")
    with gzip.open(path, "rt") as f:
        data = json.load(f)
    return stream_of(data)


def stream_of(data, streams=False):
    """The allocations and frees of a file of events: [(size, allocation number, phase and op)]; with `streams` also the CUDA stream."""
    marks = {}
    for text, at in data["marks"]:
        marks.setdefault(at, text)
    events, number, made = [], {}, 0
    phase, order = "setup", sorted(marks)
    at = 0
    for i, (action, size, address, stream, *op) in enumerate(data["events"]):
        while at < len(order) and order[at] <= i:
            phase = marks[order[at]]
            at += 1
        if action not in ("alloc", "free"):
            continue
        if action == "alloc":
            number[address] = made
            made += 1
        inner = " > ".join(op[0].split(" > ")[-3:]) if op and op[0] else ""
        events.append((size if action == "alloc" else -size, number[address], f"{phase}: {inner}" + (f" [{stream % 10000}]" if streams else "")))
    return events


def memplan_stream(run, build, steps=2, version="2.11"):
    settings = {"torch": version, **{k: v for k, v in run.items() if k != "device" and v is not None}}
    line = json.dumps({**settings, "gpu": run["device"], "path": zoo.model_file(run["model"]) or zoo.more_file(run["model"]), "events": True, "repeat": steps})
    out = subprocess.run([os.path.join(build, "tests", "predict_runs")], input=line, capture_output=True, text=True)
    answer = json.loads(out.stdout) if out.stdout else {"error": f"it died with {out.returncode}"}
    if "error" in answer:
        sys.exit(f"memplan: {answer['error']}")
    number = {}
    return [(size, number.setdefault(a, len(number)), text) for size, a, text in answer["events"]]


def first_difference(ours, theirs):
    """Index of the first event in which they differ (a size, or which allocation is freed); None when equal."""
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a[:2] != b[:2]:
            return i
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def show(event):
    size, number, text = event
    return f"{size:+,} #{number} {text}"


def show_both(ours, theirs, at, before=6, after=4):
    for title, events in (("memplan", ours), ("PyTorch", theirs)):
        print(f"  {title}:")
        for i in range(max(0, at - before), min(len(events), at + after)):
            print(f"   {'>' if i == at else ' '} {i}: {show(events[i])}")


def hunks(ours, theirs, count):
    matcher = difflib.SequenceMatcher(None, [e[0] for e in ours], [e[0] for e in theirs], autojunk=False)
    found = [o for o in matcher.get_opcodes() if o[0] != "equal"]
    print(f"{len(found)} places differ after lining up by size")
    for tag, a0, a1, b0, b1 in found[:count]:
        print(f"- {tag}: memplan {a0}..{a1}, PyTorch {b0}..{b1}")
        for sign, events in (("memplan", ours[a0:a1][:6]), ("PyTorch", theirs[b0:b1][:6])):
            for e in events:
                print(f"    {sign}: {show(e)}")


def compare(ours, theirs, count=0):
    """Prints where the streams part; True when they are equal."""
    at = first_difference(ours, theirs)
    if at is None:
        return True
    print(f"first difference at event {at} of {len(ours)} (memplan) and {len(theirs)} (PyTorch)")
    show_both(ours, theirs, at)
    if count:
        hunks(ours, theirs, count)
    return False


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--emulated", help="the emulated GPU's library")
    p.add_argument("--build", default=os.path.join(zoo.ROOT, "build", "release"))
    p.add_argument("--device", default="h100")
    p.add_argument("--model", required=True)
    p.add_argument("--batch", type=int)
    p.add_argument("--seq", type=int)
    p.add_argument("--mode", default="train")
    p.add_argument("--precision", default="fp32")
    p.add_argument("--optimizer", default="adamw")
    p.add_argument("--impl", default="default")
    p.add_argument("--accumulate", type=int, default=1)
    p.add_argument("--clip", action="store_true")
    p.add_argument("--zero-grad", default="begin")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of reference_program.py, as in checkpoint=every:2")
    p.add_argument("--torch", help="the version that memplan estimates (default: the one that is installed)")
    p.add_argument("--hunks", type=int, default=0)
    p.add_argument("--fresh", action="store_true")
    a = vars(p.parse_args())
    library, build, count, fresh, version = (a.pop(k) for k in ("emulated", "build", "hunks", "fresh", "torch"))
    if not version:
        import torch

        version = ".".join(torch.__version__.split(".")[:2])
    a |= {k: True if v == "True" else v for k, v in (pair.split("=", 1) for pair in a.pop("set"))}
    spec = zoo.index()[a["model"]]
    a["batch"] = a["batch"] or spec["batch"]
    a["seq"] = (a["seq"] or spec["seq"]) if spec["seq"] else None
    theirs, ours = pytorch_stream(a, library, fresh), memplan_stream(a, build, version=version)
    if not compare(ours, theirs, count):
        return 1
    print(f"equal: {len(theirs)} events")
    return 0


if __name__ == "__main__":
    sys.exit(main())
