"""Reports of any size without a model: a run of made-up layers in the document's own form (docs/report.schema.json).

    python tests/html/synthetic.py --tensors 100000 -o report.json
"""
import argparse
import json

KINDS = ["parameters", "buffers", "gradients", "optimizer state", "activations", "temporaries", "workspaces", "batch", "outputs"]
CONTEXT = 500 << 20


class Texts:
    def __init__(self):
        self.list, self.ids = [""], {"": 0}

    def __call__(self, text):
        if text not in self.ids:
            self.ids[text] = len(self.list)
            self.list.append(text)
        return self.ids[text]


def document(tensors=2000, layers=None, limit=80 << 30, names=None):
    """A training run of one step with `tensors` tensors alive at its peak. `names` replaces the first tensors' names."""
    texts = Texts()
    layers = layers or max(1, min(2000, tensors // 24))
    each = max(2, tensors // (2 * layers))  # half of them parameters, half activations
    rows = {k: [] for k in ("name", "op", "module", "category", "bytes", "block_bytes", "address", "born", "died", "reason", "dtype", "shape")}
    ops = {"name": [], "module": [], "first_event": []}
    samples, spans, by_kind, level = [], [], {}, {}
    live, top = 0, 0

    def op(name, module):
        ops["name"].append(texts(name))
        ops["module"].append(texts(module))
        ops["first_event"].append(len(samples))

    def sample():
        samples.append(live)
        for kind in level:
            if kind not in by_kind:
                by_kind[kind] = [0] * (len(samples) - 1)
            by_kind[kind].append(level[kind])

    def alloc(name, op_name, module, kind, bytes_, reason, shape):
        nonlocal live, top
        block = -(-bytes_ // 512) * 512
        for key, value in zip(rows, (texts(name), texts(op_name), texts(module), KINDS.index(kind), bytes_, block, top, len(samples), -1, texts(reason), texts("float32"), texts(shape))):
            rows[key].append(value)
        top += block
        live += bytes_
        level[kind] = level.get(kind, 0) + bytes_
        sample()
        return len(rows["name"]) - 1

    def free(row):
        nonlocal live
        rows["died"][row] = len(samples)
        live -= rows["bytes"][row]
        level[KINDS[rows["category"][row]]] -= rows["bytes"][row]
        sample()

    def span(step, phase, begin):
        spans.append({"step": step, "phase": phase, "begin": begin, "end": len(samples)})

    count = 0
    for layer in range(layers):
        op("aten::to", f"layers.{layer}")
        for i in range(each):
            name = names[count] if names and count < len(names) else f"layers.{layer}.linear{i}.weight"
            alloc(name, "aten::to", f"layers.{layer}.linear{i}", "parameters", 4 * (1000 + 37 * i) * 64, "parameter", f"{1000 + 37 * i}x64")
            count += 1
    span(0, "setup", 0)
    begin, kept = len(samples), []
    for layer in range(layers):
        for i in range(each):
            op("aten::addmm", f"layers.{layer}.linear{i}")
            kept.append(alloc(f"h_{layer}_{i}", "aten::addmm", f"layers.{layer}.linear{i}", "activations", 2 * (3000 + 11 * i) * 64, "aten::mul", f"16x{3000 + 11 * i}"))
    span(1, "forward", begin)
    peak = len(samples) - 1
    segment, blocks, segments, filled = 1 << 32, [], [], 0
    for row, size in enumerate(rows["block_bytes"]):
        if filled + size > segment:
            segments.append(blocks)
            blocks, filled = [], 0
        rows["address"][row] = len(segments) * segment + filled
        blocks.append([size, rows["bytes"][row], row])
        filled += size
        if row % 97 == 0:  # a hole now and then
            blocks.append([1 << 20, 0, -1])
            filled += 1 << 20
    segments.append(blocks)
    begin = len(samples)
    for n, row in enumerate(reversed(kept)):
        op("MulBackward0", texts.list[rows["module"][row]])
        free(row)
    span(1, "backward", begin)
    keep = sorted(set(range(0, len(samples), max(1, len(samples) // 4000))) | {peak, len(samples) - 1})
    arena = {"segments": [{"address": n * segment, "bytes": sum(b[0] for b in s), "stream": 0, "pool": "large", "expandable": False, "blocks": s} for n, s in enumerate(segments)],
             "left_out_segments": 0, "left_out_bytes": 0}
    reserved = sum(s["bytes"] for s in arena["segments"])
    allocated = [v * 1001 // 1000 for v in samples]
    parts = [{"category": k, "bytes": v[peak], "basis": "exact"} for k, v in by_kind.items() if v[peak]]
    parts += [{"category": "rounding", "bytes": allocated[peak] - samples[peak], "basis": "modelled"}, {"category": "cached", "bytes": reserved - allocated[peak], "basis": "modelled"},
              {"category": "context", "bytes": CONTEXT, "basis": "assumed"}]
    total = reserved + CONTEXT
    return {
        "schema_version": "1.1", "kind": "report", "tool": {"name": "memplan", "version": "0"}, "command": {"model": "synthetic.onnx", "flags": []},
        "input": {"path": "synthetic.onnx", "format": "made up", "parameters": sum(b for b, c in zip(rows["bytes"], rows["category"]) if c == 0) // 4},
        "setup": {"mode": "training", "precision": "fp32", "dims": [{"name": "batch", "size": 16, "origin": "given"}]},
        "device": {"key": "h100-80gb", "name": "NVIDIA H100 80GB HBM3", "given": True, "usable_bytes": limit, "context_bytes": CONTEXT},
        "summary": {"verdict": "fits" if total < limit else "no-fit", "peak_bytes": total, "low_bytes": total, "high_bytes": total, "limit_bytes": limit, "margin_bytes": limit // 20, "headroom_bytes": limit - total, "why": "", "out_of_memory_at": None},
        "counters": {"requested_bytes": max(samples), "allocated_bytes": max(allocated), "reserved_bytes": reserved, "process_bytes": total},
        "steps": [], "phases": [], "breakdown": parts, "peak": {"step": 1, "phase": "forward", "op": "aten::addmm", "module": f"layers.{layers - 1}"}, "tensors_at_peak": [],
        "alternatives": {"inference": None, "largest_batch": None, "changes": [], "cards": []}, "assumptions": [], "unmodelled": [], "recovered": [], "warnings": [], "scaling": [],
        "timeline": {"events": len(samples), "peak_event": peak, "limited": False, "context_bytes": CONTEXT, "spans": spans, "at": keep, "requested_bytes": [samples[i] for i in keep],
                     "allocated_bytes": [allocated[i] for i in keep], "reserved_bytes": [reserved for _ in keep], "by_category": {k: [v[i] for i in keep] for k, v in by_kind.items()}, "categories": KINDS,
                     "ops": {"of": len(ops["name"]), **ops}, "allocations": {"of": len(rows["name"]), **rows}, "arena": arena, "arena_at_end": arena, "driver": [], "strings": texts.list},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=2000)
    parser.add_argument("-o", default="report.json")
    options = parser.parse_args()
    with open(options.o, "w") as f:
        json.dump(document(options.tensors), f)
