#!/usr/bin/env python3
"""Makes models, records PyTorch's counters and exports: python collect.py --python PYTHON --library libemulated_gpu.so [--route pt2] [--half open]

Goes through the list in the order of a hash and takes each model's truth first; what is recorded or exported already is left
out, so it may be stopped at any time, and what is there then is a fair draw. Of the sealed half nothing but counts is printed.
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
    def __init__(self, python, library=None, nice=15):
        environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore", HF_HUB_OFFLINE="1")
        if library:
            environment.update(LD_PRELOAD=library, EMULATED_GPU=naming.GPU, MEMPLAN_EMULATED_GPU=library)
        self.process = subprocess.Popen(["nice", "-n", str(max(0, nice - os.nice(0))), python, os.path.join(naming.HERE, "worker.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=open(os.path.join(naming.CACHE, "worker.log"), "a"), text=True, env=environment)

    def ask(self, **job):
        print(json.dumps(job), file=self.process.stdin, flush=True)
        text = self.process.stdout.readline()
        if not text:
            raise RuntimeError(f"the worker ended with {self.process.wait()}")
        return json.loads(text)


class Collection:
    """Truths and exports of names, as far as they are not there already."""

    def __init__(self, python, library, say=print, nice=15):
        self.python, self.library, self.say, self.nice, self.workers = python, os.path.abspath(library), say, nice, {}
        os.makedirs(naming.CACHE, exist_ok=True)
        self.truths, self.infos = store.truths(), store.infos()
        self.known = {key: row["arguments"] for (key, _), row in self.truths.items()}

    def worker(self, device):
        if device not in self.workers:
            self.workers[device] = Worker(self.python, self.library if device else None, self.nice)
        return self.workers[device]

    def names(self):
        found = self.worker(False).ask(kind="names")
        store.write_names(found)
        return found

    def truth(self, name):
        """Whether the model has one."""
        key = naming.key(name)
        info = self.infos.setdefault(key, {})
        if key in self.known:
            return True
        if "truth" not in info:
            found = self.worker(True).ask(kind="truth", name=name)
            store.add_truth(self.truths, key, found)
            if any((key, setup) in self.truths for setup in naming.SETUPS):
                self.known[key] = found["arguments"]
                store.write_truths(self.truths)
                return True
            info["truth"] = self.failure(name, "truth", found)
            store.write_infos(self.infos)
        return False

    def export(self, name, route):
        """Whether there is a file."""
        key, path = naming.key(name), naming.path(name, route)
        info = self.infos.setdefault(key, {})
        if route in info and not ("open" in info[route] and not os.path.exists(path)):
            return "open" in info[route]
        started = time.monotonic()
        # A user records the set-ups that run.
        more = dict(setups=[s for s in naming.SETUPS if (key, s) in self.truths]) if route == "recording" else {}
        answer = self.worker(route == "recording").ask(kind=route, name=name, arguments=self.known[key], path=path, **more)
        info[route] = answer if "open" in answer else self.failure(name, route, answer)
        store.write_infos(self.infos)
        if "open" in answer:
            self.say(f"{name if naming.half(name) == 'open' else '(sealed)'}: {route} exported, {time.monotonic() - started:.0f} s", flush=True)
        return "open" in answer

    def failure(self, name, what, answer):
        """What is kept of an error: of the sealed half, that there was one, and which limit it was if it was one."""
        if naming.half(name) == "sealed":
            answer = dict(error=answer["error"] if answer.get("error") in store.LIMITS else "sealed")
            self.say(f"(sealed): no {what}", flush=True)
        else:
            self.say(f"{name}: no {what}: {answer.get('error') or answer}"[:300], flush=True)
        return dict(error=answer.get("error", "no set-up runs"))

    def close(self):
        for worker in self.workers.values():
            worker.process.stdin.close()
            worker.process.wait()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", default=sys.executable, help="a Python with PyTorch, torchvision, timm, transformers and peft")
    p.add_argument("--library", required=True, help="the emulated GPU's library")
    p.add_argument("--half", choices=["open", "sealed"])
    p.add_argument("--route", default="pt2", help="routes to export, comma-separated")
    p.add_argument("--only", default="", help="regular expression on names of the open half")
    p.add_argument("--limit", type=int, default=10**9, help="at most so many models with a truth")
    p.add_argument("--nice", type=int, default=15)
    p.add_argument("--minutes", type=float, default=10**9, help="begin no model after so many")
    a = p.parse_args()
    collection, models, files = Collection(a.python, a.library, nice=a.nice), 0, 0
    names, until = collection.names(), time.monotonic() + 60 * a.minutes
    for name in names:
        if (a.half and naming.half(name) != a.half) or (a.only and (naming.half(name) == "sealed" or not re.search(a.only, name))):
            continue
        if models >= a.limit or time.monotonic() > until:
            break
        if collection.truth(name):
            models += 1
            files += sum(collection.export(name, route) for route in a.route.split(",") if route)
    collection.close()
    print(f"{models} models with a truth, {files} files")


if __name__ == "__main__":
    main()
