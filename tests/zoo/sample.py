"""40 runs of the open half in `make test`: files load, nothing crashes, and no figure is further off than it is today."""
import os
import subprocess
import sys

import collect
import totals
import naming
import store

sys.path.insert(0, os.path.dirname(naming.HERE))
import build_tree

SAMPLE = {
    "pt2": [],
    "onnx": [],
    "recording": [],
}
# How far off the requested bytes of a steady step may be. Accuracy on unseen models is what docs/accuracy.md is about; this only notices when something breaks.
BOUNDS = {"pt2": 0.05, "onnx": 0.30, "recording": 0.0}
NEEDED = "import torch, torchvision, timm, transformers, peft, onnxscript"


def run(build):
    found = build_tree.emulated(build)
    if not found or subprocess.run([found[0], "-c", NEEDED], capture_output=True).returncode:
        print("no emulated GPU, or no torchvision, timm, transformers and peft: nothing is exported\n0 passed, 0 failed")
        return 0
    collection = collect.Collection(*found, say=lambda *_, **__: None)
    failures, runs = [], 0
    for route, names in SAMPLE.items():
        for name in names:
            if not collection.truth(name) or not collection.export(name, route):
                failures.append(f"{name}: no truth, or no {route}: {collection.infos[naming.key(name)]}")
                continue
            for setup in naming.SETUPS:
                runs += 1
                row = totals.row(os.path.join(build, "memplan"), name, route, setup, collection.infos[naming.key(name)], collection.truths[naming.key(name), setup])
                if not row["loads"]:
                    failures.append(f"{name} {route} {setup}: {row['error']}")
                elif abs(row["steady_requested"]) > BOUNDS[route]:
                    failures.append(f"{name} {route} {setup}: requested off by {100 * row['steady_requested']:+.3f} %")
    collection.close()
    print("\n".join(failures))
    print(f"{runs - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0
