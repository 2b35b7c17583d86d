"""What cases and routes share: the programs of the build, and TorchScript files made with its PyTorch."""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import build_tree

ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ["MEMPLAN_BUILD"]
MADE = os.path.join(BUILD, "torchscript")  # files made once

TORCH_PYTHON = build_tree.cached(BUILD, "MEMPLAN_TORCH_PYTHON")
TORCH = TORCH_PYTHON if os.path.exists(os.path.join(BUILD, "memplan-torch")) else None


def memplan(*words, env=None, timeout=120):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MEMPLAN_")} | (env or {})
    return subprocess.run([os.path.join(BUILD, "memplan"), *map(str, words)], cwd=ROOT, env=clean, capture_output=True, text=True, timeout=timeout)


def report(*words, **kw):
    # A TorchScript file does not say its version: all routes are asked about the one that the figures are of.
    version = () if "--torch" in words else ("--torch", "2.11")
    done = memplan(*words, *version, "--format", "json", "--no-search", "--exit-zero", **kw)
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise AssertionError(f"{' '.join(map(str, words))}: {answer['error']['message']} ({answer['error']['where']})")
    return answer


def python(code, *words):
    """Runs Python with PyTorch in the folder of made files."""
    os.makedirs(MADE, exist_ok=True)
    done = subprocess.run([TORCH, "-W", "ignore", "-c", code, *words], cwd=MADE, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr[-1500:])
    return done.stdout


def zoo_files(names, kind):
    """{name: path} of TorchScript files of the zoo, made again where what makes them is newer; those that PyTorch cannot make are
    missing, and why is printed."""
    tool = os.path.join(ROOT, "tools", "export_torchscript.py")
    makers = [tool, *(os.path.join(ROOT, *p) for p in (("tools", "export_models.py"), ("tests", "accuracy", "models.py"), ("tests", "accuracy", "small_models.py")))]
    newest = max(map(os.path.getmtime, [*makers, TORCH]))
    paths = {n: os.path.join(MADE, f"{n}.{kind}.pt") for n in names}
    absent = [n for n, p in paths.items() if not os.path.exists(p) or os.path.getmtime(p) < newest]
    for n in absent:
        if os.path.exists(paths[n]):
            os.remove(paths[n])
    if absent:
        done = subprocess.run([TORCH, tool, *absent, "--out", MADE, "--kind", kind], capture_output=True, text=True)
        if done.returncode:
            print("".join(line + "\n" for line in done.stdout.splitlines() if f": no {kind}: " in line) or done.stderr[-1500:], end="")
    return {n: p for n, p in paths.items() if os.path.exists(p)}
