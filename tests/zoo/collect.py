#!/usr/bin/env python3
"""Makes models, records PyTorch's counters and exports: python collect.py --python PYTHON --library libemulated_gpu.so [--route pt2] [--half open]

Goes through the list in one fixed order that alternates between families and halves; what is recorded or exported
already is left out, so it may be stopped at any time. Of the sealed half nothing but counts is printed.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import naming
import store


class Worker:
    def __init__(self, python, library=None):
        environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore", HF_HUB_OFFLINE="1")
        if library:
            environment.update(LD_PRELOAD=library, EMULATED_GPU=naming.GPU)
        self.process = subprocess.Popen(["nice", "-n", "15", python, os.path.join(naming.HERE, "worker.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=open(os.path.join(naming.CACHE, "worker.log"), "a"), text=True, env=environment)

    def ask(self, **job):
        print(json.dumps(job), file=self.process.stdin, flush=True)
        text = self.process.stdout.readline()
        if not text:
            raise RuntimeError(f"the worker ended with {self.process.wait()}")
        return json.loads(text)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", default=sys.executable, help="a Python with PyTorch, torchvision, timm, transformers and peft")
    p.add_argument("--library", required=True, help="the emulated GPU's library")
    p.add_argument("--half", choices=["open", "sealed"])
    p.add_argument("--route", default="pt2", help="routes to export, comma-separated")
    p.add_argument("--only", default="", help="regular expression on names")
    p.add_argument("--limit", type=int, default=10**9, help="at most so many models with a truth")
    a = p.parse_args()
    os.makedirs(naming.CACHE, exist_ok=True)
    workers = dict(truth=Worker(a.python, os.path.abspath(a.library)), export=Worker(a.python))
    names = workers["export"].ask(kind="names")
    store.write_names(names)
    truths, infos, counts = store.truths(), store.infos(), dict(models=0, exported=0, failed=0)
    for name in names:
        if (a.half and naming.half(name) != a.half) or not re.search(a.only, name):
            continue
        if counts["models"] >= a.limit:
            break
        key, started = naming.key(name), time.monotonic()
        info = infos.setdefault(key, {})
        shown = name if naming.half(name) == "open" else "(sealed)"
        if "truth" not in info:
            found = workers["truth"].ask(kind="truth", name=name)
            store.add_truth(truths, key, found)
            info["truth"] = {k: v for k, v in found.items() if k != "setups"}
            if naming.half(name) == "sealed" and "error" in found:
                info["truth"] = dict(error="sealed")
            store.write_truths(truths)
            store.write_infos(infos)
        if "error" in info["truth"]:
            counts["failed"] += 1
            print(f"{shown}: no truth" + (f": {info['truth']['error'][:150]}" if shown == name else ""), flush=True)
            continue
        counts["models"] += 1
        for route in a.route.split(","):
            if route in info and not ("open" in info[route] and not os.path.exists(naming.path(name, route))):
                continue
            answer = workers["export"].ask(kind=route, name=name, arguments=info["truth"]["arguments"], path=naming.path(name, route))
            if naming.half(name) == "sealed" and "error" in answer:
                answer = dict(error="sealed")
            info[route] = answer
            store.write_infos(infos)
            counts["exported" if "open" in answer else "failed"] += 1
            print(f"{shown}: {route} {'exported' if 'open' in answer else 'not exported'} {time.monotonic() - started:.0f} s"
                  + (f": {answer['error'][:150]}" if "error" in answer and shown == name else ""), flush=True)
    print(f"{counts['models']} models with a truth, {counts['exported']} exported now, {counts['failed']} failures")


if __name__ == "__main__":
    main()
