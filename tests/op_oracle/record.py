#!/usr/bin/env python3
"""Records what PyTorch asks the allocator for, for every program of programs.py, into data/op_oracle/<device>.json.gz.
With another PyTorch than 2.11 it is data/op_oracle/versions/<device>-<version>.json.gz, of programs that differ only.

    python tests/op_oracle/record.py --preload build/release/emulated_gpu/libemulated_gpu.so [--devices h100 a100 …] [--only TEXT]

Needs a CUDA build of PyTorch and a device: a real one (without --preload, one --devices name that says which it is) or
the emulated one (emulated_gpu), whose preloaded library answers the CUDA calls. Programs that PyTorch refuses on a device are named, and not compared there.
"""
import argparse
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "..", "data", "op_oracle")
sys.path.insert(0, HERE)
import compare
import layouts
import programs


def digest(program):
    return hashlib.sha1(json.dumps(program, sort_keys=True).encode()).hexdigest()[:10]


def answers(chosen, device, preload):
    """PyTorch's answers, one per program, in order."""
    environment = dict(os.environ)
    if preload:
        environment.update(LD_PRELOAD=preload, EMULATED_GPU=device)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(chosen, f)
        f.flush()
        done = subprocess.run([sys.executable, os.path.join(HERE, "torch_events.py"), f.name], env=environment, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if len(found) < len(chosen):  # PyTorch 2.8 answers everything and crashes on its way out
        sys.exit(done.stderr[-3000:])
    return found


BASE = "2.11"  # the version of the recordings in full


def installed():
    import torch

    return ".".join(torch.__version__.split(".")[:2])


def write(path, device, recorded):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    text = json.dumps({"device": device, "programs": recorded}, indent=0)
    with open(path, "wb") as f, gzip.GzipFile(fileobj=f, mode="wb", mtime=0, filename="") as z:
        z.write(text.encode())


def read(path):
    with gzip.open(path, "rt") as f:
        return json.load(f)["programs"]


def only_differences(device, recorded):
    """What the base version says otherwise. Results whose size depends on values are refused or not by the emulated device, whatever the version."""
    base = read(os.path.join(DATA, f"{device}.json.gz"))
    return {k: v for k, v in recorded.items() if v[1] is not None and base.get(k) != v}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--preload", default=os.environ.get("EMULATED_GPU_LIBRARY"), help="library of the emulated device")
    p.add_argument("--devices", nargs="+", default=["h100", "a100", "l4", "t4"])
    p.add_argument("--only", metavar="TEXT", help="record programs with this in their name; those recorded before stay")
    a = p.parse_args()
    chosen = programs.all_programs()
    os.makedirs(DATA, exist_ok=True)
    names = [p["name"] for p in chosen]
    if a.only:
        chosen = [p for p in chosen if a.only in p["name"]]
    everything = chosen
    for device in a.devices:
        chosen = [p for p in everything if layouts.are_for(device if installed() == BASE else "", p["name"])]
        recorded, refused = {}, 0
        for program, answer in zip(chosen, answers(chosen, device, a.preload)):
            lines = compare.lines(answer)
            if lines is None:
                print(f"{device}: PyTorch refuses {program['name']}: {answer['error']}")
                refused += 1
            recorded[program["name"]] = [digest(program), "\n".join(lines) if lines else None]
        path = os.path.join(DATA, f"{device}.json.gz")
        if (version := installed()) != BASE:
            path = os.path.join(DATA, "versions", f"{device}-{version}.json.gz")
            recorded = only_differences(device, recorded)
        if a.only:
            recorded = {**read(path), **recorded}
            recorded = {n: recorded[n] for n in names if n in recorded}
        write(path, device, recorded)
        print(f"{path}: {len(recorded)} programs, {refused} of them refused, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
