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
    "pt2": ["own/containers/running_list", "own/fields/residual_scaled", "own/fields/deep_equilibrium", "own/containers/all_states", "own/fields/actor_critic",
            "own/fields/point_net", "torchvision/classification/resnet18", "hf/sequence-classification/olmo"],
    "onnx": ["own/fields/residual_scaled", "own/fields/point_net", "own/containers/all_states"],
    "recording": ["own/containers/canvas", "own/autograd/saves_much", "own/fields/actor_critic"],
}
# How far off the requested bytes of a steady step may be. Accuracy on unseen models is what docs/accuracy.md is about; this only notices when something breaks.
BOUNDS = {"pt2": 0.15, "onnx": 0.15, "recording": 0.0}
NEEDED = ("torch", "torchvision", "timm", "transformers", "peft", "onnxscript")


def run(build):
    found = build_tree.emulated(build)
    script = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {NEEDED})))"
    if not found or subprocess.run([found[0], "-c", script], capture_output=True).returncode:
        print("no emulated GPU, or no torchvision, timm, transformers and peft: nothing is exported\n0 passed, 0 failed")
        return 0
    collection = collect.Collection(*found, say=lambda *_, **__: None)
    failures, passed = [], 0
    for route, names in SAMPLE.items():
        for name in names:
            if not collection.truth(name) or not collection.export(name, route):
                failures.append(f"{name}: no truth, or no {route}: {collection.infos[naming.key(name)]}")
                continue
            for setup in naming.SETUPS:
                if (naming.key(name), setup) not in collection.truths:
                    continue
                row = totals.row(os.path.join(build, "memplan"), name, route, setup, collection.infos[naming.key(name)], collection.truths[naming.key(name), setup])
                if not row["loads"]:
                    failures.append(f"{name} {route} {setup}: {row['error']}")
                elif abs(row["steady_requested"]) > BOUNDS[route]:
                    failures.append(f"{name} {route} {setup}: requested off by {100 * row['steady_requested']:+.3f} %")
                else:
                    passed += 1
    collection.close()
    print("\n".join(failures))
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0
