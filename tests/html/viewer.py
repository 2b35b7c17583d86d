"""Reads a snapshot with PyTorch's own torch/cuda/_memory_viz.py and prints the peaks that its trace has.

    python tests/html/viewer.py snapshot.pickle
"""
import pickle
import sys

from torch.cuda import _memory_viz as viz

with open(sys.argv[1], "rb") as f:
    data = pickle.load(f)

summary = viz.segsum(data)  # it checks itself that free, lost and allocated bytes add up
total = sum(s["total_size"] for s in data["segments"])
assert f"total_reserved: {viz.Bytes(total)}" in summary, summary
trace = viz.trace(data)
assert f"{len(data['device_traces'][0])} entries" in trace, trace[:200]
assert trace.count("cudaMalloc(") == sum(e["action"] == "segment_alloc" for e in data["device_traces"][0])
lines = viz.memory(data, format_flamegraph=lambda text: text).splitlines()
allocated = sum(b["size"] for s in data["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
assert sum(int(line.rsplit(" ", 1)[1]) for line in lines if "active_allocated" in line) == allocated, "memory"
assert sum(int(line.rsplit(" ", 1)[1]) for line in viz.segments(data, format_flamegraph=lambda text: text).splitlines()) == total, "segments"
for page in (viz.trace_plot(data), viz.segment_plot(data)):
    assert "add_local_files" in page

requested = reserved = 0
peaks = [0, 0]
for e in data["device_traces"][0]:
    requested += {"alloc": 1, "free_completed": -1}.get(e["action"], 0) * e["size"]
    reserved += {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}.get(e["action"], 0) * e["size"]
    peaks = [max(peaks[0], requested), max(peaks[1], reserved)]
print(summary)
print(*peaks)
