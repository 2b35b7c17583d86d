#!/usr/bin/env python3
"""Compares memplan with measurements that others published of runs on real GPUs.

    python tools/hardware.py [--build build/release] [--only WORD] [--rows] [--ask] [--write]

Rows are data/measured/hardware/*.jsonl: what ran, where it was published, the counter that was read, its bytes. Models are
archives of data/measured/hardware/models (tools/hardware_models.py writes them) and of data/models. Nothing is tuned, nothing is
left out silently: rows without a model, and runs that ended for lack of memory, are counted apart. --rows prints every row, --only those
whose name or kind holds a word; --ask estimates convolutional models of xMem a second time and asks the cuDNN 9.19 of a PyTorch 2.11
(MEMPLAN_TORCH_PYTHON names its Python) what the tables lack; --write puts the tables into docs/hardware.md. Of the context's rows (data/context/rows.csv)
each is compared with the range that the others give. Exit status: 1 when a row that has a model could not be estimated.
"""
import argparse
import csv
import glob
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FOLDER = os.path.join(ROOT, "data", "measured", "hardware")
PAGE = os.path.join(ROOT, "docs", "hardware.md")
MIB = 1 << 20
BEGIN, END = "<!-- tables: made by tools/hardware.py --write -->", "<!-- end of tables -->"
# What stands in a source's counter beside PyTorch's segments, where its own table shows it; the one constant of that source.
CONSTANTS = {"timm": (1731 * MIB, "reserved + 1,731 MiB")}
THREADS = {75: 1024, 86: 1536, 87: 1536, 89: 1536, 120: 1536}  # resident per multiprocessor; 2048 otherwise


def load(only):
    rows = []
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.jsonl"))):
        with open(path) as f:
            rows += [json.loads(line) for line in f]
    return [r for r in rows if not only or only in r["name"] or only in r["kind"]]


def estimate(program, row):
    """The JSON report of a row, or the first line of memplan's error."""
    command = [program, os.path.join(ROOT, row["model"]), *row["flags"], "--cudnn", "auto" if "asked" in row else "none", "--no-search", "--format", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[0]


def compare(program, row):
    """The row with `ours`, `high` and the errors of it; with `why` instead where it was not compared."""
    if not row["model"] or not os.path.exists(os.path.join(ROOT, row["model"])):
        return dict(row, why="no model is shipped")
    report = estimate(program, row)
    if isinstance(report, str):
        return dict(row, why="error", error=report)
    report = report if "counters" in report else report["report"]
    if row["ran_out_of_memory"]:
        return dict(row, why="ran out of memory", verdict=report["summary"]["verdict"])
    counter, measured = f"{row['counter']}_bytes", row["measured_bytes"]
    ours, high = report["counters"][counter], report["ranges"][counter]["high_bytes"]
    found = dict(row, ours=ours, high=high, off=ours / measured - 1, high_off=high / measured - 1)
    if row["kind"] in CONSTANTS:
        constant = CONSTANTS[row["kind"]][0]
        found["with_constant"] = (report["counters"]["reserved_bytes"] + constant) / measured - 1
    return found


def asked_again(program, found):
    """The rows of xMem's convolutional models, compared with what cuDNN 9.19 says in place of what memplan learnt from it."""
    rows = [dict(r, asked="cuDNN 9.19 asked") for r in found if r["kind"] == "convolutional" and "ours" in r]
    again = [compare(program, r) for r in rows]
    if rows and all(a.get("ours") == r["ours"] for a, r in zip(again, rows)):
        raise SystemExit("--ask: no cuDNN 9.19 answered: MEMPLAN_TORCH_PYTHON has to name a Python with PyTorch 2.11")
    return again


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def line(name, counter, rows, key="off"):
    off = [100 * r[key] for r in rows]
    high = sum(r["high_off"] < 0 for r in rows) if key == "off" else None
    return (f"| {name} | {len(off)} | {counter} | {statistics.median(off):+.1f} | {percentile(off, 0.05):+.1f} | {percentile(off, 0.95):+.1f} | "
            f"{statistics.median(map(abs, off)):.1f} | {max(map(abs, off)):.1f} | {sum(o < 0 for o in off)} | {'' if high is None else high} |")


def card_of(row):
    return row["gpu"].replace("NVIDIA ", "").replace("GeForce ", "")


def table(found):
    done = [r for r in found if "ours" in r]
    lines = ["| rows | n | counter | median | p5 | p95 | median abs | max abs | below | `high` below |", "|---|---|---|---|---|---|---|---|---|---|"]
    groups = {}
    for r in done:
        known = "" if r["software_known"] else ", versions not stated"
        source = r["source"].split(",")[0]
        for card in (card_of(r), "all cards") if source == "xMem" else (card_of(r),):
            groups.setdefault((source, r["kind"], card, r.get("asked", ""), r["counter"], known), []).append(r)
    for (source, kind, card, asked, counter, known), rows in sorted(groups.items()):
        name = ", ".join(dict.fromkeys(w for w in (source, kind, card, asked) if w)) + known
        lines.append(line(name, counter, rows))
        if kind in CONSTANTS:
            lines.append(line(name, CONSTANTS[kind][1], rows, "with_constant"))
    return lines


def safety(found):
    """Would a run that was capped at `high` have survived?"""
    text = []
    for known, words in ((True, "whose versions are known"), (False, "whose versions are not stated")):
        rows = [r for r in found if "ours" in r and r["software_known"] == known]
        if rows:
            below = sum(r["high_off"] < 0 for r in rows)
            percent = sum(r["high_off"] < -0.01 for r in rows)
            text.append(f"Of {len(rows)} rows {words}, `high` is below what was measured in {below} ({100 * below / len(rows):.0f} %), by more than 1 % in {percent}.")
    return text


def others(found):
    lines = []
    rows = [r for r in found if "ours" in r and r["kind"] in ("convolutional", "transformer") and r["others"]]
    for tool in sorted({t for r in rows for t in r["others"]}):
        for kind in ("convolutional", "transformer"):
            theirs = [r for r in rows if tool in r["others"] and r["others"][tool] and r["kind"] == kind]
            if theirs:
                off = statistics.median(abs(100 * (r["others"][tool] / r["measured_bytes"] - 1)) for r in theirs)
                mine = statistics.median(abs(100 * r["off"]) for r in theirs)
                lines.append(f"| {tool} | {kind} | {len(theirs)} | {off:.1f} | {mine:.1f} |")
    return ["| tool | rows | n | its median abs | memplan's on the same rows |", "|---|---|---|---|---|", *lines] if lines else []


def context_rows():
    """How often the range that the other rows give holds a row; the rule is that of estimators/facts/context.cpp."""
    with open(os.path.join(ROOT, "data", "context", "rows.csv"), newline="") as f:
        every = list(csv.DictReader(f))
    for r in every:
        if r["in_use_GiB"]:
            again = 1024 * (float(r["in_use_GiB"]) - float(r["allocated_GiB"])) - float(r["unallocated_MiB"])
            if abs(again - float(r["outside_MiB"])) > 0.6:
                raise SystemExit(f"data/context/rows.csv: {r['source']}: {r['outside_MiB']} MiB stay outside by the row, {again:.1f} by its figures")
    rows = [dict(r, threads=int(r["multiprocessors"]) * THREADS.get(int(r["sm"]), 2048), mib=float(r["outside_MiB"])) for r in every if r["used"] == "yes"]
    held = above = 0
    for row in rows:
        rest = [r for r in rows if r is not row]
        own = [r for r in rest if r["card"] == row["card"]]
        figures = sorted(r["mib"] * row["threads"] / r["threads"] for r in rest)
        beyond = len(figures) // 20
        low = min([figures[beyond], *(r["mib"] for r in own)])
        high = max([figures[-1 - beyond], *(r["mib"] for r in own)])
        held += low - 1 <= row["mib"] <= high + 1
        above += row["mib"] > high + 1
    return (f"{len(every)} published rows, of which memplan uses {len(rows)}. Each of these was compared with the range that the other {len(rows) - 1} give: "
            f"{held} lie in it, {above} above, {len(rows) - held - above} below.")


def pages(found, again):
    missing = {}
    for r in found:
        if "why" in r:
            missing.setdefault(r["why"], []).append(r)
    lines = [f"{len(found)} rows of published runs, {sum('ours' in r for r in found)} compared. Errors in percent, signed, (memplan - measured) / measured; *below* counts the estimates that "
             "are below what was measured.", "", *table([*found, *again]), "", *safety(found), ""]
    for why, rows in sorted(missing.items()):
        if why == "ran out of memory":
            verdicts = [r["verdict"] for r in rows]
            lines.append(f"{len(rows)} more ran out of memory; memplan says " + ", ".join(f"`{v}` {verdicts.count(v)} times" for v in sorted(set(verdicts))) + ".")
        else:
            lines.append(f"Not compared, {why}: {len(rows)} rows ({', '.join(sorted({r['kind'] for r in rows}))}).")
    return [*lines, "", *others(found), "", "Context: " + context_rows()]


def show(found):
    for r in found:
        if "ours" in r:
            print(f"{r['kind']:18} {r['name']:45} {r['counter']:10} measured {r['measured_bytes'] / MIB:9.0f}  memplan {r['ours'] / MIB:9.0f} MiB {100 * r['off']:+6.1f} %, "
                  f"high {100 * r['high_off']:+6.1f} %")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--only", default="")
    p.add_argument("--rows", action="store_true")
    p.add_argument("--ask", action="store_true")
    p.add_argument("--write", action="store_true")
    a = p.parse_args()
    program = os.path.join(a.build, "memplan")
    found = [compare(program, r) for r in load(a.only)]
    for r in found:
        if r.get("why") == "error":
            print(f"{r['name']}: {r['error']}", file=sys.stderr)
    show(found if a.rows else [])
    again = asked_again(program, found) if a.ask else []
    show(again if a.rows else [])
    text = "\n".join(pages(found, again))
    print(text)
    if a.write:
        with open(PAGE) as f:
            page = f.read()
        start, stop = page.index(BEGIN) + len(BEGIN), page.index(END)
        with open(PAGE + ".part", "w") as f:
            f.write(page[:start] + "\n" + text + "\n" + page[stop:])
        os.replace(PAGE + ".part", PAGE)
    return 1 if any(r.get("why") == "error" for r in found) else 0


if __name__ == "__main__":
    sys.exit(main())
