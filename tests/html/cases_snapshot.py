"""The memory snapshot, read as its readers do."""
import io
import os
import pickle
import pickletools
import subprocess
import sys

import reports
from support import ROOT, check, equal

HERE = os.path.dirname(os.path.abspath(__file__))
EVERY = [(name,) for name in reports.SETUPS]
# What the reader of torch/utils/viz/MemoryViz.js knows.
KNOWN = {"PROTO", "FRAME", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "MARK", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "LIST", "DICT", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NEWTRUE", "NEWFALSE", "NONE",
         "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"}


class Plain(pickle.Unpickler):
    """Refuses everything but plain values."""

    def find_class(self, module, name):
        raise AssertionError(f"the pickle asks for {module}.{name}")


def snapshot(setup):
    return Plain(io.BytesIO(reports.data(setup, "snapshot"))).load()


def test_only_what_the_viewer_reads(setup):
    equal({op.name for op, _, _ in pickletools.genops(reports.data(setup, "snapshot"))} - KNOWN, set(), "opcodes")


test_only_what_the_viewer_reads.cases = EVERY


def replay(trace):
    """Peaks of requested and reserved bytes, as the actions tell them."""
    live, segments, requested, reserved, peaks = {}, {}, 0, 0, [0, 0]
    for e in trace:
        if e["action"] == "alloc":
            check(e["addr"] not in live, "an address is given out once")
            live[e["addr"]] = e["size"]
            requested += e["size"]
        elif e["action"] == "free_completed":
            equal(live.pop(e["addr"]), e["size"], "size of a free")
            requested -= e["size"]
        elif e["action"] in ("segment_alloc", "segment_map"):
            reserved += e["size"]
        elif e["action"] in ("segment_free", "segment_unmap"):
            reserved -= e["size"]
        peaks = [max(peaks[0], requested), max(peaks[1], reserved)]
    return peaks, live, reserved


def test_the_same_peak(setup):
    counters, s = reports.document(setup)["counters"], snapshot(setup)
    (requested, reserved), live, left = replay(s["device_traces"][0])
    equal((requested, reserved), (counters["requested_bytes"], counters["reserved_bytes"]), "peaks")
    # What the trace leaves behind is what the segments hold.
    blocks = {b["address"]: b["requested_size"] for g in s["segments"] for b in g["blocks"] if b["state"] == "active_allocated"}
    equal(blocks, live, "blocks at the end")
    equal(sum(g["total_size"] for g in s["segments"]), left, "segments at the end")


test_the_same_peak.cases = EVERY


def test_segments_are_whole(setup):
    for g in snapshot(setup)["segments"]:
        equal(sum(b["size"] for b in g["blocks"]), g["total_size"], "blocks tile the segment")
        at = g["address"]
        for b in g["blocks"]:
            equal(b["address"], at, "addresses follow each other")
            check(b["requested_size"] <= b["size"], "requested")
            at += b["size"]
        equal(sum(b["size"] for b in g["blocks"] if b["state"] == "active_allocated"), g["allocated_size"])
        check(g["address"] + g["total_size"] < 2**53, "a number of JavaScript")


test_segments_are_whole.cases = EVERY


def test_stacks_tell_what_it_is():
    s = snapshot("gpt2")
    stacks = [e["frames"] for e in s["device_traces"][0] if e["action"] == "alloc"]
    check(all(len(f) == 2 and set(f[0]) == {"filename", "line", "name"} for f in stacks), "two frames")
    check(any("transformer.h.3" in f[1]["name"] for f in stacks), "modules")
    check(any("wte.weight" in f[0]["name"] for f in stacks), "names")
    kinds = {e.get("category") for e in s["device_traces"][0]} - {None}
    check({"parameters", "gradients", "activations", "optimizer state", "unknown"} <= kinds, kinds)


def torch_python():
    """A Python with PyTorch: the one that make test sets up, or this one."""
    for python in (os.environ.get("MEMPLAN_TORCH_PYTHON"), os.path.join(ROOT, "build", "torch", "bin", "python"), sys.executable):
        if python and os.path.exists(python) and subprocess.run([python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"]).returncode == 0:
            return python
    return None


def test_pytorch_reads_it():
    """torch/cuda/_memory_viz.py itself: segsum, trace, memory, segments, and the page of the viewer."""
    python = torch_python()
    if not python:
        return "PyTorch is not installed (make live)"
    for setup in ("gpt2", "expandable"):
        done = subprocess.run([python, os.path.join(HERE, "viewer.py"), reports.made(setup)["snapshot"]], capture_output=True, text=True, timeout=300)
        equal(done.returncode, 0, done.stderr)
        counters = reports.document(setup)["counters"]
        equal(done.stdout.split()[-2:], [str(counters["requested_bytes"]), str(counters["reserved_bytes"])], done.stdout)
