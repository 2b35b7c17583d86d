#!/usr/bin/env python3
"""Where do memplan and PyTorch part on one rank of several? As first_difference.py, over parallel_program.py.

    python tests/accuracy/parallel_difference.py --emulated LIB --model gpt2 --batch 2 --strategy fsdp [--hunks 5]
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import first_difference
import zoo

HERE = os.path.dirname(os.path.abspath(__file__))


def pytorch(settings, device, library, events=None):
    """The row of parallel_program.py in a process of its own."""
    words = []
    for k, v in settings.items():
        if v is not None and v is not False and v != "":
            words += [f"--{k.replace('_', '-')}"] + ([] if v is True else [str(v)])
    if events:
        words += ["--events", events, "--ops"]
    out = subprocess.run([sys.executable, os.path.join(HERE, "parallel_program.py"), *words], capture_output=True, text=True,
                         env={**os.environ, "LD_PRELOAD": library, "EMULATED_GPU": device})
    lines = [line for line in out.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return dict(failed=out.stderr.strip().splitlines()[-1] if out.stderr.strip() else f"it ended with {out.returncode}")
    return json.loads(lines[-1])


def memplan(settings, device, build, **extra):
    line = json.dumps({**{k: v for k, v in settings.items() if v is not None}, "gpu": device, "path": zoo.model_file(settings["model"]), **extra})
    out = subprocess.run([os.path.join(build, "tests", "predict_runs")], input=line, capture_output=True, text=True)
    return json.loads(out.stdout) if out.stdout else {"error": f"it died with {out.returncode}"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--emulated", required=True)
    p.add_argument("--build", default=os.path.join(zoo.ROOT, "build", "release"))
    p.add_argument("--device", default="h100")
    p.add_argument("--hunks", type=int, default=0)
    p.add_argument("--fresh", action="store_true")
    a, rest = p.parse_known_args()
    settings, words = {}, list(rest)
    while words:
        name = words.pop(0)[2:].replace("-", "_")
        value = words.pop(0) if words and not words[0].startswith("--") else True
        settings[name] = int(value) if isinstance(value, str) and value.isdigit() else value
    settings.setdefault("steps", 2)
    folder = os.path.join(zoo.ROOT, "build", "streams")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "parallel-" + hashlib.sha1(json.dumps([a.device, settings], sort_keys=True).encode()).hexdigest()[:16] + ".json")
    if a.fresh or not os.path.exists(path):
        row = pytorch(settings, a.device, a.emulated, path)
        if "failed" in row:
            sys.exit(f"PyTorch: {row['failed']}")
    with open(path) as f:
        data = json.load(f)
    answer = memplan(settings, a.device, a.build, events=True, repeat=settings["steps"])
    if "error" in answer:
        sys.exit(f"memplan: {answer['error']}")
    number = {}
    ours = [(size, number.setdefault(n, len(number)), text) for size, n, text in answer["events"]]
    peaks = memplan(settings, a.device, a.build, repeat=settings["steps"])["steps"]
    for i, (mine, truth) in enumerate(zip(peaks, data["steps"])):
        print(f"step {i + 1}: " + ", ".join(f"{k} {mine[k]:,} / {truth[k]:,} ({(mine[k] / truth[k] - 1) * 100:+.3f} %)" for k in ("requested", "allocated", "reserved")))
    same = first_difference.compare(ours, first_difference.stream_of(data, streams=True), a.hunks)
    print("the streams are equal" if same else "the streams differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
