#!/usr/bin/env python3
"""Prints the rows "returns_weights" of data/libraries/modules.json: classes of transformers whose forward computes attention's weights in lines of its own and returns them every time.

    python tools/returned_weights.py [--check data/libraries/modules.json]

Read from the library's source, without importing a model: a name that a softmax is assigned to (and what a later line makes of it under the same name) stands in every tuple
that forward returns. Where a condition decides, the class has no row. --check says which rows a file lacks or has in excess.
"""
import argparse
import ast
import glob
import importlib.metadata
import importlib.util
import json
import os
import sys


def takes_softmax(node):
    called = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
    return any((f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "")) == "softmax" for f in called)


def assignments(function):
    found = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    return found


def returns_weights(function):
    assigned = assignments(function)
    weights = {name for name, values in assigned.items() if any(map(takes_softmax, values))}

    def has_them(value):
        if isinstance(value, ast.Tuple):
            return any(isinstance(e, ast.Name) and e.id in weights for e in value.elts)
        values = assigned.get(value.id, []) if isinstance(value, ast.Name) and value.id not in weights else []
        return bool(values) and all(isinstance(v, ast.Tuple) and has_them(v) for v in values)

    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    return bool(weights and returned) and all(map(has_them, returned))


def rows():
    root, version = os.path.dirname(importlib.util.find_spec("transformers").origin), importlib.metadata.version("transformers")
    for path in sorted(glob.glob(os.path.join(root, "models", "*", "modeling_*.py"))):
        with open(path) as f:
            tree = ast.parse(f.read())
        file = os.path.relpath(path, root)
        for c in tree.body:
            forward = next((n for n in getattr(c, "body", []) if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
            if isinstance(c, ast.ClassDef) and "Attention" in c.name and forward and returns_weights(forward):
                yield {"library": "transformers", "class": f"transformers.{file[:-3].replace(os.sep, '.')}.{c.name}", "fact": "returns_weights", "from": None, "to": None,
                       "source": f"transformers {version}, {file}:{forward.lineno} (tools/returned_weights.py)"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check")
    a = p.parse_args()
    found = {r["class"]: r for r in rows()}
    if not a.check:
        for r in found.values():
            text = json.dumps(r)
            at = text.index(', "from"')
            print(f"  {text[:at]},\n   {text[at + 2:]},")
        return 0
    with open(a.check) as f:
        have = {r["class"] for r in json.load(f)["rows"] if r["fact"] == "returns_weights"}
    for c in sorted(found.keys() ^ have):
        print(f"{c}: {'no row' if c in found else 'a row, but it does not return them'}")
    print(f"{len(found.keys() & have)} passed, {len(found.keys() ^ have)} failed")
    return 1 if found.keys() ^ have else 0


if __name__ == "__main__":
    sys.exit(main())
