"""42 runs of the open half in `make test`: files load, nothing crashes, and no figure is further off than it is today."""
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
BOUNDS = {"pt2": 0.15, "onnx": 0.30, "recording": 0.0}
# What the truths were recorded with: with other versions there are other models.
VERSIONS = dict(torch="2.11.0", torchvision="0.26.0", timm="1.0.31", transformers="5.23.0", peft="0.21.2")


def checks():
    """What must hold of the tool itself: the split, and that nothing of the sealed half gets out."""
    yield "names are split by the last bit of their SHA-256", [naming.half(n) for n in ("a", "b", "c")] == ["sealed", "sealed", "open"]
    sealed = next(n for n in map(str, range(9)) if naming.half(n) == "sealed")
    yield "a sealed file lies under its hash", os.path.basename(naming.path(sealed, "pt2")) == naming.key(sealed) + ".pt2"
    script = os.path.join(naming.HERE, "run.py")
    for flags in (["--only", "x"], ["--csv", os.devnull], ["--show", sealed], ["--limit", "1"]):
        done = subprocess.run([sys.executable, script, "--half", "sealed", *flags], capture_output=True, text=True)
        yield f"the sealed half answers nothing to {flags[0]}", done.returncode == 2 and "totals" in done.stderr
    yield "truths are digits under hashes", all(len(key) == 12 and all(type(v) is int for v in row.values()) for (key, _), row in store.truths().items())


def run(build):
    checked = list(checks())
    failures, passed = [what for what, good in checked if not good], sum(good for _, good in checked)
    found = build_tree.emulated(build)
    script = f"from importlib.metadata import version as v; import onnxscript, sys; sys.exit(any(v(k).split('+')[0] != w for k, w in {VERSIONS}.items()))"
    if not found or subprocess.run([found[0], "-c", script], capture_output=True).returncode:
        print("no emulated GPU, or PyTorch and the libraries of models are not those of the truths: nothing is exported")
        print(*failures, f"{passed} passed, {len(failures)} failed", sep="\n")
        return 1 if failures else 0
    # The cuDNN that the truths ran with is asked, as run.py does: what memplan guesses without it has tests of its own (docs/hardware.md).
    os.environ.update(MEMPLAN_TORCH_PYTHON=found[0], MEMPLAN_EMULATED_GPU=os.path.abspath(found[1]))
    collection = collect.Collection(*found, say=lambda *_, **__: None, nice=0)
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
    print(*failures, f"{passed} passed, {len(failures)} failed", sep="\n")
    return 1 if failures else 0
