"""Reports that several cases look at, made once."""
import functools
import json

from support import check, memplan, model, scratch

SETUPS = {
    "mlp": ("mlp", "--gpu", "h100-80gb", "--batch", "32"),
    "resnet18": ("resnet18", "--gpu", "l4", "--batch", "8"),
    "gpt2": ("gpt2", "--gpu", "24GB", "--batch", "4", "--seq", "256", "--amp", "bf16"),
    "gpt2-too-large": ("gpt2", "--gpu", "8GiB", "--batch", "8", "--seq", "1024"),
    "expandable": ("mlp", "--gpu", "l4", "--batch", "64", "--alloc-conf", "expandable_segments:True"),
    "inference": ("resnet18", "--gpu", "t4", "--mode", "inference"),
}


@functools.cache
def made(setup):
    """Paths by format: all of one run."""
    name, *words = SETUPS[setup]
    paths = {f: scratch(f"{setup}.{f}") for f in ("json", "html", "perfetto", "snapshot")}
    exports = [w for f in ("html", "perfetto", "snapshot") for w in ("--export", f"{f}={paths[f]}")]
    answer = memplan(model(name), *words, "--exit-zero", "--format", "json", "--timeline", "-o", paths["json"], *exports, timeout=300)
    check(answer.code == 0, answer.err)
    return paths


@functools.cache
def document(setup):
    with open(made(setup)["json"]) as f:
        return json.load(f)


def text(setup, format):
    with open(made(setup)[format], encoding="utf-8") as f:
        return f.read()


def data(setup, format):
    with open(made(setup)[format], "rb") as f:
        return f.read()
