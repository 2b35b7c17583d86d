"""The same model by ONNX, .pt2 and TorchScript: one number, or a reason."""
import concurrent.futures
import json
import os
import sys
import tomllib

from common import ROOT, report, zoo_files

sys.path.insert(0, os.path.join(ROOT, "tests", "accuracy"))
import zoo

SCRIPTED = ("mlp", "resnet18", "resnet50", "alexnet", "squeezenet1_1", "mobilenet_v3_large", "efficientnet_b0", "densenet121", "convnext_tiny", "unet", "lstm_lm",
            "vit_b_16")
# torch.jit.script takes no transformers model (it wants the sources of configuration classes that decorators made).
TRACED_ONLY = ("gpt2", "llama-tiny", "bert-base", "opt-125m", "t5-small")
MODELS = SCRIPTED + TRACED_ONLY
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


def reason_of(reasons, route, model, setup, off):
    """What differences.toml says of a difference of exactly so many bytes."""
    for r in reasons:
        if r["route"] == route and model in r["models"] and setup in r.get("setups", [setup]) and off == r["bytes"]:
            return r["why"]
    return None


def requested(words):
    """Requested peaks of the set-up and of every step, and what counts as estimated; or what went wrong."""
    try:
        whole = report(*words, "--gpu", "h100-80gb")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [s["peak"]["requested_bytes"] for s in whole["steps"]], sorted((u["op"], u["count"], u["handling"]) for u in whole["unmodelled"])


def compare(names=None):
    """(passed, failed); prints every difference with its reason. A route that gives no figures is a failure."""
    names = names or MODELS
    reasons = load_reasons()
    made = {"trace": zoo_files(names, "trace"), "script": zoo_files([n for n in names if n in SCRIPTED], "script")}
    runs = {}
    for model in names:
        words, sequence = inputs_of(model)
        sizes = ["--batch", BATCH] + (["--seq", SEQ] if sequence else [])
        files = {"pt2": [os.path.join(ROOT, "data", "models", "pt2", model + ".pt2")], "onnx": [zoo.model_file(model)], "trace": [made["trace"].get(model), *words]}
        if model in SCRIPTED:
            files["script"] = [made["script"].get(model), *words]
        for setup, flags in SETUPS.items():
            for route, file in files.items():
                runs[model, setup, route] = [*file, *sizes, *flags] if file[0] else None
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = dict(zip(runs, pool.map(lambda words: requested(words) if words else "the file could not be made", runs.values())))
    passed = failed = 0
    one_number = set(names)
    for (model, setup, route), figures in found.items():
        if route == "pt2":
            continue
        same, why = found[model, setup, "pt2"], None
        if isinstance(figures, tuple) and figures == same:
            passed += 1
            continue
        if isinstance(figures, tuple) and isinstance(same, tuple):
            off = [a - b for a, b in zip(figures[0], same[0], strict=True)]
            said = f"{off} bytes against .pt2" + (f", not modelled {figures[1]} against {same[1]}" if figures[1] != same[1] else "")
            if len(set(off)) == 1 and figures[1] == same[1]:
                why = reason_of(reasons, route, model, setup, off[0])
        else:
            said = figures if isinstance(figures, str) else f"no figures by .pt2: {same}"
        if not why:
            one_number.discard(model)
        print(f"{'differs' if why else 'FAILED'} {model}, {setup}: {route} {said}" + (f": {why}" if why else ""))
        passed, failed = passed + bool(why), failed + (not why)
    print(f"{len(one_number)} of {len(names)} models have one number by ONNX, .pt2 and TorchScript in every setup, but for reasons given above")
    return passed, failed
