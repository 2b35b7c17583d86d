"""memplan --runtime ort against ONNX Runtime's own requests and arena (data/measured/ort, made by record.py).

    python run.py --memplan build/release/memplan [--details] [--model NAME] [--write]

Compared are, row by row: what the weights take, the live peaks of the first, second and third run (all to the byte),
and of the arena what it holds from the driver after the session was made and after each run. With kNextPowerOfTwo that
depends on the order of a hash table, so the recorded bytes have to lie inside the range.
--write puts the summary into docs/onnxruntime.md.
"""
import argparse
import collections
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
TRUTH = os.path.join(ROOT, "data", "measured", "ort", "ort-1.31.jsonl")
MODELS = os.path.join(ROOT, "data", "models", "ort")
PHASES = ("session", "run 1", "run 2", "run 3")
OPTIONS = {
    "default": [],
    "no pattern": ["enable_mem_pattern=0"],
    "conv default": ["cudnn_conv_algo_search=DEFAULT"],
    "same": ["arena_extend_strategy=kSameAsRequested"],
    "same, no pattern": ["arena_extend_strategy=kSameAsRequested", "enable_mem_pattern=0"],
    "same, shrink": ["arena_extend_strategy=kSameAsRequested", "memory.enable_memory_arena_shrinkage=gpu:0"],
}


def live_peaks(row):
    """Most bytes that were asked for and not given back, phase by phase."""
    sizes, live, peaks = [], 0, []
    for phase in PHASES:
        peak = live
        for word in row[phase].split():
            if word[0] == "+":
                sizes.append(int(word[1:]))
                live += sizes[-1]
                peak = max(peak, live)
            else:
                live -= sizes[int(word[1:])]
        peaks.append(peak)
    return peaks


def predict(memplan, row):
    command = [memplan, "estimate", os.path.join(MODELS, f"{row['model']}.{row['source']}.onnx.gz"), "--runtime", "ort", "--gpu", "h100-80gb",
               "--batch", str(row["batch"]), "--format", "json"]
    if row["seq"]:
        command += ["--seq", str(row["seq"])]
    for option in OPTIONS[row["setting"]]:
        command += ["--ort", option]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode > 1:
        return None, run.stderr.strip().splitlines()[0] if run.stderr.strip() else f"exit {run.returncode}"
    return json.loads(run.stdout), None


def compare(memplan, row):
    """(what, predicted, true, range or None) of one row; or an error."""
    report, error = predict(memplan, row)
    if error:
        return error
    steps = [s["peak"] for s in report["steps"]]
    if row["kind"] == "requests":
        return [(phase, step["requested_bytes"], true, None) for phase, step, true in zip(PHASES, steps, live_peaks(row))]
    bounds = report["ranges"]["reserved_bytes"]
    out, most = [], 0
    for phase, step in zip(PHASES, steps):
        true, most = row[phase][1], max(most, step["reserved_bytes"])
        if row["setting"] != "default":
            out.append((phase, most, true, None))
        elif phase == "run 3":
            out.append((phase, step["reserved_bytes"], true, (bounds["low_bytes"], bounds["high_bytes"])))
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--memplan", required=True)
    p.add_argument("--model")
    p.add_argument("--source")
    p.add_argument("--details", action="store_true")
    p.add_argument("--jobs", type=int, default=2)
    o = p.parse_args()
    with open(TRUTH) as f:
        rows = [json.loads(line) for line in f]
    rows = [r for r in rows if (not o.model or r["model"] == o.model) and (not o.source or r["source"] == o.source)]
    with ThreadPoolExecutor(o.jobs) as pool:
        results = list(pool.map(lambda r: compare(o.memplan, r), rows))
    table = collections.defaultdict(lambda: collections.defaultdict(list))
    for row, result in zip(rows, results):
        if isinstance(result, str):
            table[row["model"], row["source"]]["error"].append(result)
            continue
        for phase, have, true, bounds in result:
            if bounds:
                table[row["model"], row["source"]]["range"].append((0.0 if bounds[0] <= true <= bounds[1] else 1.0))
            else:
                table[row["model"], row["source"]][row["kind"] + " " + phase].append((have - true) / true)
            if o.details and (not bounds and have != true):
                print(row["model"], row["source"], row["batch"], row["setting"], phase, have, true, have - true)
    columns = [k + " " + ph for k in ("requests", "arena") for ph in PHASES]
    for (model, source), cells in sorted(table.items()):
        if "error" in cells:
            print(f"{model:22}{source:7}", cells["error"][0][:150])
            continue
        text = []
        for c in columns + ["range"]:
            v = cells[c]
            worst = max(v, key=abs, default=0)
            text.append("ok" if worst == 0 else f"{worst:+.2%}")
        print(f"{model:22}{source:7}", *[f"{t:>9}" for t in text])


if __name__ == "__main__":
    sys.exit(main())
