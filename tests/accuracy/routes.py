#!/usr/bin/env python3
"""The same model by two routes: data/models/pt2/NAME.pt2 against data/models/NAME.onnx, for every recorded run.

    python tests/accuracy/routes.py [NAME …] [--build build/release] [--pt2 data/models/pt2]

Prints per model how many runs have the same requested peaks by both routes, how many by .pt2 are exactly what PyTorch
recorded, and every run in which the routes differ. Files come from tools/export_pt2.py; other models' files can lie
anywhere. Exits with 1 where .pt2 is further from the recording than ONNX, or does not load.
"""
import argparse
import os
import sys
from collections import defaultdict

import compare


def requested(estimate):
    return [estimate["steps"][at]["requested"] for at in (0, -1)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--build", default=os.path.join(compare.ROOT, "build", "release"))
    p.add_argument("--pt2", default=os.path.join(compare.ROOT, "data", "models", "pt2"))
    a = p.parse_args()
    there = {f.removesuffix(".pt2") for f in os.listdir(a.pt2) if f.endswith(".pt2")}
    rows = [r for r in compare.load_rows() if r["model"] in there and r["path"] and not r["error"] and (not a.names or r["model"] in a.names)]
    by_onnx = compare.predict(rows, a.build)
    by_pt2 = compare.predict([{**r, "path": os.path.join(a.pt2, r["model"] + ".pt2")} for r in rows], a.build)
    table, worse = defaultdict(lambda: [0, 0, 0]), 0
    for row, onnx, pt2 in zip(rows, by_onnx, by_pt2):
        t = table[row["model"]]
        t[0] += 1
        if "error" in pt2:
            worse += 1
            print(f"FAILED {compare.name(row)}: {pt2['error']}")
            continue
        off = compare.worst(compare.differences(row, pt2), "requested")
        t[2] += off == 0
        if "error" in onnx:
            continue
        off_onnx = compare.worst(compare.differences(row, onnx), "requested")
        same = requested(onnx) == requested(pt2)
        t[1] += same
        if not same:
            further = abs(off) > abs(off_onnx)
            worse += further
            print(f"{'FAILED ' if further else ''}{compare.name(row)}: .pt2 {off:+.4%}, ONNX {off_onnx:+.4%}")
    print("\n| model | runs | same by both routes | exact by .pt2 |\n|---|---|---|---|")
    for model, (runs, same, exact) in table.items():
        print(f"| {model} | {runs} | {same} | {exact} |")
    runs = sum(t[0] for t in table.values())
    print(f"\n{runs - worse} passed, {worse} failed")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
