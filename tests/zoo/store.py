"""The zoo's files. truth/torch-2.11.csv.gz: PyTorch's counters, digits only; names stand there as hashes. In the cache: the list of
names, and what became of each export."""
import csv
import gzip
import io
import json
import os

import naming

TRUTHS = os.path.join(naming.HERE, "truth", "torch-2.11.csv.gz")
LIMITS = ("the time limit", "the memory limit")  # errors of worker.py that say nothing of the model
STEPS = ("first", "second", "steady")
COUNTERS = ("requested", "allocated", "reserved")
# arguments: which of the model's arguments to try it took (catalogue.make).
COLUMNS = ["key", "setup", "arguments", *(f"{s}_{c}" for s in STEPS for c in COUNTERS)]


def _replace(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "wb") as f:
        f.write(data)
    os.replace(path + ".part", path)


def truths():
    """{(key, setup): row of numbers}"""
    if not os.path.exists(TRUTHS):
        return {}
    with gzip.open(TRUTHS, "rt", newline="") as f:
        return {(r["key"], r["setup"]): {k: int(v) for k, v in r.items() if k in COLUMNS[2:]} for r in csv.DictReader(f)}


def add_truth(rows, key, found):
    for setup, run in found.get("setups", {}).items():
        if "steps" in run and len(run["steps"]) == 3:
            numbers = [n for step in run["steps"] for n in step]
            rows[key, setup] = dict(zip(COLUMNS[2:], [found["arguments"], *numbers]))


def write_truths(rows):
    """Adds to what is there, which another collection may have written meanwhile."""
    rows = {**truths(), **rows}
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(COLUMNS)
    for (key, setup), row in sorted(rows.items()):
        out.writerow([key, setup, *(row[c] for c in COLUMNS[2:])])
    _replace(TRUTHS, gzip.compress(text.getvalue().encode(), mtime=0))


def _json(name, default):
    path = os.path.join(naming.CACHE, name)
    if not os.path.exists(path):
        return default
    with open(path) as f:
        return json.load(f)


def infos():
    """{key: what is known of the model's truth and exports}"""
    return _json("exports.json", {})


def write_infos(found):
    there = infos()
    merged = {key: {**there.get(key, {}), **found.get(key, {})} for key in {**there, **found}}
    _replace(os.path.join(naming.CACHE, "exports.json"), json.dumps(merged).encode())


def drawn(names, route, known):
    """How far a route was collected: names in their order up to the first that was not tried. What lies behind is no fair draw."""
    found = infos()
    for i, name in enumerate(names):
        info = found.get(naming.key(name), {})
        if route not in info and ("truth" not in info or any((naming.key(name), s) in known for s in naming.SETUPS)):
            return names[:i]
    return names


def names():
    return _json("names.json", [])


def write_names(found):
    _replace(os.path.join(naming.CACHE, "names.json"), json.dumps(found).encode())
