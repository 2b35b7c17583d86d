"""Names of the zoo: the split into an open and a sealed half, and where things lie. Needs no PyTorch."""
import hashlib
import os

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


# Names of the sealed half that were looked at, and why. From then on they count as open.
OPENED = {"hf/semantic-segmentation/mobilenet_v2": "2026-11-30: its .pt2 report said `exact` and was 2.4 % too low in training"}


def digest(name):
    return hashlib.sha256(name.encode()).digest()


def key(name):
    """What stands for a name wherever one of the sealed half may not stand."""
    return digest(name).hex()[:12]


def half(name):
    return "sealed" if digest(name)[-1] % 2 and name not in OPENED else "open"


def batch(name):
    """Of every compared run. Own models are small; with few samples libraries' workspaces would be all there is."""
    return 32 if name.startswith("own/") else 8


def ordered(names):
    """Names as collections take them: by chance, the same every time, so that what is there at any time is a fair draw."""
    return sorted(names, key=lambda n: digest("order " + n))


def path(name, route):
    stem = name.replace("/", ".") if half(name) == "open" else key(name)
    return os.path.join(CACHE, route, stem + ROUTES[route])
