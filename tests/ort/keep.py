"""Rows of record.py, version by version, as data/measured/ort keeps them:

    python keep.py 1.22=ROWS.jsonl,FOLDER 1.26=ROWS.jsonl,FOLDER …     (a Python with onnx; oldest first, FOLDER of record.py --models)

A row that an older version recorded the same is not kept again: its version goes into the `also` of that row. A saved file that is not the
one of data/models/ort is kept in a folder of the first version that saved it so; `file` of a row names it.
"""
import gzip
import json
import os
import shutil
import sys

import onnx

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
ROWS, MODELS = os.path.join(ROOT, "data", "measured", "ort"), os.path.join(ROOT, "data", "models", "ort")
KEY = ("model", "source", "batch", "seq", "past", "kind", "setting", "file")


def sorted_session(row):
    """Weights are asked for in the order of a hash table."""
    words = row["session"].split() if row["kind"] == "requests" else []
    return row | {"session": " ".join(sorted(words, key=lambda w: int(w[1:])))} if words and all(w[0] == "+" for w in words) else row


def nodes_of(path):
    model = onnx.ModelProto()
    with gzip.open(path) as f:
        model.ParseFromString(f.read())
    return [(n.op_type, n.name, list(n.input), list(n.output), sorted(a.SerializeToString() for a in n.attribute)) for n in model.graph.node]


def own_file(version, folder, name, known):
    """None for the file of data/models/ort, else one in a version's folder."""
    path = os.path.join(folder, name)
    for other in [None, *known.get(name, [])]:
        if nodes_of(os.path.join(MODELS, other or "", name)) == nodes_of(path):
            return other and f"{other}/{name}"
    os.makedirs(os.path.join(MODELS, version), exist_ok=True)
    shutil.copy(path, os.path.join(MODELS, version, name))
    known.setdefault(name, []).append(version)
    return f"{version}/{name}"


def main():
    kept, known, files = {}, {}, {}
    for argument in sys.argv[1:]:
        version, _, rest = argument.partition("=")
        rows, _, folder = rest.partition(",")
        own, files[version] = {}, []
        with open(rows) as f:
            for row in map(json.loads, f):
                row = sorted_session(row)
                name = f"{row['model']}.{row['source']}.onnx.gz"
                if row["source"] == "saved":
                    own[name] = own[name] if name in own else own_file(version, folder, name, known)
                    row |= {"file": own[name]} if own[name] else {}
                same = next((r for r in kept.get(tuple(row.get(k) for k in KEY), []) if all(r[p] == row[p] for p in ("session", "run 1", "run 2", "run 3"))), None)
                if same:
                    same.setdefault("also", []).append(version)
                    continue
                kept.setdefault(tuple(row.get(k) for k in KEY), []).append(row)
                files[version].append(row)
    for version, rows in files.items():
        with open(os.path.join(ROWS, f"ort-{version}.jsonl"), "w") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)
        print(version, len(rows))


if __name__ == "__main__":
    main()
