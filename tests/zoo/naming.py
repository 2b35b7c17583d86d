"""Names of the zoo: the split into an open and a sealed half, and where things lie. Needs no PyTorch."""
import hashlib
import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
CACHE = os.environ.get("MEMPLAN_ZOO_CACHE") or os.path.join(ROOT, "build", "zoo")
EXPORT_BATCH = 2  # files with an open batch are exported at another one than the runs are compared at
GPU = "h100-80gb"
ROUTES = {"pt2": ".pt2", "onnx": ".onnx", "recording": ".memplan"}
# Names of the set-ups, what the programs are told of them, and memplan's flags.
SETUPS = {
    "train": (dict(mode="training", precision="fp32", optimizer="adamw"), []),
    "amp": (dict(mode="training", precision="amp-bf16", optimizer="sgd", momentum=0.9), ["--amp", "bf16", "--optimizer", "sgd", "--momentum", "0.9"]),
    "infer": (dict(mode="inference", precision="fp32"), ["--mode", "inference"]),
}


def digest(name):
    return hashlib.sha256(name.encode()).digest()


def key(name):
    """What stands for a name wherever one of the sealed half may not stand."""
    return digest(name).hex()[:12]


def half(name):
    return "sealed" if digest(name)[-1] % 2 else "open"


def batch(name):
    """Of every compared run. Own models are small; with few samples libraries' workspaces would be all there is."""
    return 32 if name.startswith("own/") else 8


def family(name):
    first, second = name.split("/")[:2]
    return first if first != "hf" else "text" if second in ("causal-lm", "masked-lm", "sequence-classification", "token-classification", "seq2seq") else "other"


# How often a family's turn comes, the rarest last.
TURNS = {"own": 0.5, "text": 0.6, "timm": 2.5, "other": 3.0, "peft": 2.0, "torchvision": 3.0}


# Large members of torchvision's families, whose small ones are there as well: at the end.
LARGE = re.compile(r"torchvision/.*(convnext_(base|large)|_l_\d+|_h_14|(128|32|16|8)gf|vgg1[369]|efficientnet_b[4-7]|_v2_[ml]|swin\w*_b|wide_resnet|resnext101|152|densenet(161|201))")


def ordered(names):
    """Names as collections take them: families in turn, halves in turn, chance within them, the same every time."""
    ranks, count = {}, {}
    for name in sorted(names, key=lambda n: digest("order " + n)):
        group = family(name), half(name)
        count[group] = count.get(group, 0) + (not LARGE.match(name))
        ranks[name] = bool(LARGE.match(name)), count[group] * TURNS[group[0]], group
    return sorted(names, key=ranks.get)


def path(name, route):
    stem = name.replace("/", ".") if half(name) == "open" else key(name)
    return os.path.join(CACHE, route, stem + ROUTES[route])
