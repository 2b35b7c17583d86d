#!/usr/bin/env python3
"""Runs the reference program for every run of plan.py on the emulated GPU and keeps what PyTorch says.

    python tests/accuracy/record.py --emulated build/release/emulated_gpu/libemulated_gpu.so [--only 'gpt2|mlp'] [--limit N]

appends one JSON row per run to data/measured/emulated/truth-<torch version>.jsonl, and leaves out runs that are there
already. Every run has a process of its own: a worker per device imports PyTorch and forks for each run before anything
has touched CUDA, so that no run sees another's cache, workspaces or cuDNN plans.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import forked

ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))


def key(run):
    """What identifies a run: its settings without those at their defaults."""
    import reference_program

    c = {**reference_program.DEFAULTS, **{k: v for k, v in run.items() if k in reference_program.DEFAULTS}}
    c.pop("steps")  # in a row these are the results
    if c["mode"] == "inference":
        c["optimizer"] = None
    return json.dumps([run["gpu"] if "gpu" in run else run["device"], c], sort_keys=True)


def command(run):
    flags = []
    for k, v in run.items():
        if k == "env":
            flags += [f"--env {name}={value}" for name, value in v.items()]
        elif k != "device" and v is not None and v is not False:
            flags.append(f"--{k.replace('_', '-')}" + ("" if v is True else f" {v}"))
    return "reference_program.py " + " ".join(flags)


def worker():
    """Reads runs, one JSON line each, and answers with rows; forks for each."""
    import torch

    forked.import_models("T5ForConditionalGeneration")
    import reference_program

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        run = json.loads(line)
        events = run.pop("events", None)
        ops = run.pop("ops", False)
        config = {k: v for k, v in run.items() if k != "device"}

        def make():
            os.environ.update(config.get("env", {}))  # PyTorch reads these at their first use, behind the fork
            if config.get("alloc_conf"):
                os.environ["PYTORCH_ALLOC_CONF"] = config["alloc_conf"]
                names = ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_setAllocatorSettings")  # 2.10, before
                next(getattr(torch._C, n) for n in names if hasattr(torch._C, n))(config["alloc_conf"])
            return reference_program.run(config, events, ops)

        row = forked.row_of(make)
        print(json.dumps(row), file=answers, flush=True)


class Workers:
    """One forking worker per device."""

    def __init__(self, library, log=None):
        self.library, self.log, self.processes = library, log, {}

    def run(self, run, **extra):
        device = run["device"]
        if device not in self.processes:
            env = {**os.environ, "LD_PRELOAD": self.library, "EMULATED_GPU": device}
            self.processes[device] = subprocess.Popen([sys.executable, os.path.join(HERE, "record.py"), "--worker"], env=env,
                                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        p = self.processes[device]
        p.stdin.write(json.dumps({**run, **extra}) + "\n")
        p.stdin.flush()
        answer = p.stdout.readline()
        if not answer:
            raise RuntimeError(f"the worker for {device} ended with {p.wait()}")
        row = json.loads(answer)
        row.pop("device", None)  # the card's long name; "gpu" says which one
        return dict(gpu=device, **row)

    def close(self):
        for p in self.processes.values():
            p.stdin.close()
            p.wait()


def truth_path(kind="truth"):
    import torch

    return os.path.join(ROOT, "data", "measured", "emulated", f"{kind}-{'.'.join(torch.__version__.split('.')[:2])}.jsonl")


def load(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f if line.strip()]


def about(path):
    """What the rows were made with, next to them."""
    import torch
    import torchvision
    import transformers

    from datetime import date

    with open(os.path.splitext(path)[0] + ".toml", "w") as f:
        f.write(f'# Every row of {os.path.basename(path)}: PyTorch\'s own allocator on the emulated GPU (docs/accuracy.md).\n'
                f'device = "emulated: kernels do nothing, cuDNN heuristics are the library\'s own"\n'
                f'torch = "{torch.__version__}"\ncudnn = {torch.backends.cudnn.version()}\ncuda = "{torch.version.cuda}"\n'
                f'torchvision = "{torchvision.__version__}"\ntransformers = "{transformers.__version__}"\n'
                f'date = {date.today()}\ncommand = "python tests/accuracy/record.py"\n')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--emulated", help="the emulated GPU's library; without it the machine's own GPU is used")
    p.add_argument("--only", help="regular expression on model names")
    p.add_argument("--limit", type=int, default=10**9, help="at most so many new rows")
    p.add_argument("--again", action="store_true", help="run what is there already, too, and say where it differs")
    p.add_argument("--strategies", action="store_true", help="the runs of memory strategies, into a file of their own")
    p.add_argument("--more", action="store_true", help="the runs of more_models.py, into a file of their own")
    p.add_argument("--versions", action="store_true", help="the runs that are made with every version of PyTorch, into a file of their own")
    p.add_argument("--environments", action="store_true", help="the runs with variables of the environment, into a file of their own")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.worker:
        return worker()
    import plan

    kind = "strategies" if a.strategies else "more" if a.more else "versions" if a.versions else "environments" if a.environments else "truth"
    path = truth_path(kind)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    rows = load(path)
    done = {key(r): r for r in rows}
    workers = Workers(a.emulated)
    made = differing = 0
    for run in {"strategies": plan.strategies, "more": plan.more, "versions": plan.versions, "environments": plan.environments, "truth": plan.runs}[kind]():
        if (key(run) in done) != a.again or (a.only and not re.fullmatch(a.only, run["model"])):
            continue
        if made >= a.limit:
            break
        start = time.time()
        row = workers.run(run)
        made += 1
        if "failed" in row:
            print(f"{run}: {row['failed']}", file=sys.stderr, flush=True)
            continue
        row["command"] = command(run)
        if a.again:
            before = done[key(run)]
            if row != before:
                differing += 1
                print(f"differs: {run}\n  was {before}\n  is  {row}", flush=True)
            continue
        with open(path, "a") as f:
            f.write(json.dumps(row, separators=(",", ":")) + "\n")
        print(f"{row['gpu']} {row['command']}: {row['steps'][-1]['requested'] if row['steps'] else row['error']} ({time.time() - start:.1f} s)",
              flush=True)
    workers.close()
    if a.again:
        print(f"{made - differing} of {made} runs gave the recorded figures")
    elif made:
        about(path)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
