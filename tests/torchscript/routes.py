"""The same model by ONNX, .pt2 and TorchScript: one number, or a reason."""
import json
import os
import sys
import tomllib

from common import ROOT, report, zoo_files

sys.path.insert(0, os.path.join(ROOT, "tests", "accuracy"))
import zoo

MODELS = ("mlp", "resnet18", "resnet50", "alexnet", "squeezenet1_1", "mobilenet_v3_large", "efficientnet_b0", "densenet121", "convnext_tiny", "unet", "lstm_lm",
          "vit_b_16", "gpt2", "llama-tiny", "bert-base", "opt-125m", "t5-small")
# Other sizes than the file was traced with would show what a trace froze; these are those of tools/export_torchscript.py.
BATCH, SEQ = 2, 64
SETUPS = {"fp32 adamw": [], "amp-bf16 sgd-momentum": ["--amp", "bf16", "--optimizer", "sgd-momentum"], "inference": ["--mode", "inference"]}


def inputs_of(name):
    """The inputs of the zoo's model, as --input wants them."""
    with open(os.path.join(ROOT, "data", "models", "index.json")) as f:
        inputs = json.load(f)[name]["inputs"].values()
    words = []
    for dtype, *sizes in inputs:
        words += ["--input", f"{dtype}:{','.join(map(str, sizes))}"]
    return words, any("seq" in sizes for _, *sizes in inputs)


def load_reasons():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "differences.toml"), "rb") as f:
        return tomllib.load(f).get("difference", [])


def reason_of(reasons, route, model, setup):
    for r in reasons:
        if r["route"] == route and model in r["models"] and setup in r.get("setups", [setup]):
            return r["why"]
    return None


def requested(words):
    return [s["peak"]["requested_bytes"] for s in report(*words, "--gpu", "h100-80gb")["steps"]]


def compare(names=None):
    """(passed, failed); prints every difference with its reason."""
    names = names or MODELS
    reasons = load_reasons()
    kinds = {kind: zoo_files(names, kind) for kind in ("trace", "script")}
    passed = failed = same_all = 0
    for model in names:
        words, sequence = inputs_of(model)
        sizes = ["--batch", BATCH] + (["--seq", SEQ] if sequence else [])
        files = {"onnx": ([zoo.model_file(model)], []), "pt2": ([os.path.join(ROOT, "data", "models", "pt2", model + ".pt2")], [])}
        for kind, made in kinds.items():
            if model in made:
                files[kind] = ([made[model]], words)
        equal_here = True
        for setup, flags in SETUPS.items():
            found = {}
            for route, (path, extra) in files.items():
                try:
                    found[route] = requested([*path, *extra, *sizes, *flags])
                except AssertionError as error:
                    found[route] = str(error)
            for route, figures in found.items():
                if route == "pt2":
                    continue
                if figures == found["pt2"]:
                    passed += 1
                    continue
                why = reason_of(reasons, route, model, setup)
                equal_here = equal_here and route not in ("onnx", "trace")
                off = f"{figures[-1] / found['pt2'][-1] - 1:+.3%}" if isinstance(figures, list) and isinstance(found["pt2"], list) else str(figures)
                print(f"{'differs' if why else 'FAILED'} {model}, {setup}: {route} {off}" + (f": {why}" if why else ""))
                passed, failed = passed + bool(why), failed + (not why)
        same_all += equal_here
    print(f"{same_all} of {len(names)} models have one number by ONNX, .pt2 and TorchScript (traced) in every setup")
    return passed, failed
