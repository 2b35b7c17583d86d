#!/usr/bin/env python3
"""Estimates of compiled modules against compiled scripts: python compiled.py MEMPLAN LIBRARY [MODEL …], with the Python that has PyTorch.

`memplan SCRIPT:MODEL --compile` records the module, and `memplan observe -- python SCRIPT MODEL` runs a loop that a user wrote. The requested bytes must be equal, and
the reserved bytes of the script, whose caches are empty, in the range. Keywords of torch.compile go through Python: compile=dict(…), and the module that torch.compile made.
The last line is "N passed, N failed".
"""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "compiled_script.py")
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
FLAGS = {"train": [], "amp": ["--amp", "bf16"], "inference": ["--mode", "inference"]}
CASES = [("language", "train"), ("language", "amp"), ("language", "inference"), ("images", "train"), ("broken", "train"), ("language", "dynamic"), ("language", "autotune")]
# The module that torch.compile made answers for "dynamic", keywords for the others.
PYTHON = """
import sys, torch, memplan, compiled_script as s
if __name__ == "__main__":
    name, setup, card = sys.argv[1:]
    module, args = getattr(s, name)()
    made, words = (torch.compile(module, **s.WORDS[setup]), {}) if setup == "dynamic" else (module, dict(compile=s.WORDS[setup]))
    print(memplan.estimate(made, args, gpu=card, **words).to_json())
"""
REFUSED = """
import torch, memplan, compiled_script as s
module, args = s.broken()
part = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 10))
part[1].compile()
for how in (lambda: memplan.estimate(module, args, compile=dict(mode="reduce-overhead")), lambda: memplan.estimate(torch.compile(module, mode="reduce-overhead"), args),
            lambda: memplan.estimate(module, args, compile=dict(backend="aot_eager")), lambda: memplan.estimate(module, args, compile=dict(speed=2)),
            lambda: memplan.estimate(module, args, compile="fast"), lambda: memplan.estimate(part, args), lambda: memplan.estimate("a.onnx", compile=dict(dynamic=True))):
    try:
        how()
    except memplan.UsageError as error:
        print(str(error).splitlines()[0])
"""
REFUSALS = ("CUDA graphs", "CUDA graphs", "'aot_eager'", "no 'speed'", "True, or a dictionary", "part '1' is compiled by itself", "torch.nn.Module")
CARD = "a100-80gb"


def answer(program, environment, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True, env=environment, cwd=HERE)
    return done.returncode, done.stdout, done.stderr


def python(environment, code, *words):
    path = os.path.join(ROOT, "python") + os.pathsep + HERE
    return answer(sys.executable, dict(environment, PYTHONPATH=path), "-c", code, *words)


def estimated(program, environment, name, setup):
    if setup not in FLAGS:
        code, out, err = python(dict(environment, MEMPLAN_PROGRAM=program), PYTHON, name, setup, CARD)
        return json.loads(out) if code == 0 else err + out
    code, out, err = answer(program, environment, f"{SCRIPT}:{name}", "--compile", *FLAGS[setup], "--gpu", CARD, "--format", "json", "--exit-zero")
    return json.loads(out) if code == 0 else err + out


def scripted(program, environment, name, setup):
    code, out, err = answer(program, environment, "observe", "--gpu", CARD, "--format", "json", "--exit-zero", "--", sys.executable, SCRIPT, name, setup)
    printed = re.search(r"^later steps (\d+)$", err, re.MULTILINE)  # memplan's answer has the standard output to itself
    return (int(printed[1]), json.loads(out)) if code == 0 and printed else err[-2000:]


def compared(program, environment, name, setup):
    """Why they differ; empty where they do not."""
    ours = estimated(program, environment, name, setup)
    if isinstance(ours, str):
        return ours or "no answer"
    theirs = scripted(program, environment, name, setup)
    if isinstance(theirs, str):
        return theirs or "the script gave no answer"
    printed, observed = theirs
    later = max(step["peak"]["requested_bytes"] for step in ours["steps"][2:])  # the set-up is one of them
    if later != printed:
        return f"requested {later}, and the script {printed}"
    reserved, low, high = observed["ranks"][0]["reserved_bytes"], ours["ranges"]["reserved_bytes"]["low_bytes"], ours["ranges"]["reserved_bytes"]["high_bytes"]
    if not low <= reserved <= high:
        return f"reserved {low} to {high}, and the script {reserved}"
    return ""


def refused_keywords(program, environment):
    """(passed, what is wrong): one line for each keyword that a recording cannot stand for."""
    _, out, err = python(dict(environment, MEMPLAN_PROGRAM=program), REFUSED)
    lines = out.splitlines()
    wrong = [f"{words}: {line}" for words, line in zip(REFUSALS, lines) if words not in line]
    if len(lines) != len(REFUSALS):
        wrong.append(f"{len(lines)} of {len(REFUSALS)} refused: {err[-600:]}")
    return len(REFUSALS) - len(wrong), wrong


def refusals(program, environment):
    """(passed, what is wrong): a recording of the eager module does not answer for the compiled one, a graph does by a model of the compiler."""
    wrong, passed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        eager = os.path.join(folder, "eager.memplan")
        answer(program, environment, "record", f"{SCRIPT}:broken", "-o", eager, "--batches", "16", "--setup", "mode=training")
        graph = os.path.join(ROOT, "data", "models", "mlp.onnx")
        for file, expected, words in ((graph, 0, " compile "), (eager, 2, "compile=True")):
            code, out, err = answer(program, environment, file, "--compile", "--batch", "16", "--gpu", "80GB")
            good = code == expected and words in out + err
            passed += good
            wrong += [] if good else [f"{os.path.basename(file)} --compile: {code} {err}"]
    return passed, wrong


def main():
    program, library, only = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
    environment = dict(os.environ, MEMPLAN_EMULATED_GPU=library, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    passed, failures = refusals(program, environment)
    if not only or "keywords" in only:
        more, wrong = refused_keywords(program, environment)
        passed, failures = passed + more, failures + wrong
    for name, setup in CASES:
        if only and name not in only:
            continue
        why = compared(program, environment, name, setup)
        passed += not why
        failures += [f"{name} {setup}: {why}"] if why else []
    for failure in failures:
        print("FAILED", failure)
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
