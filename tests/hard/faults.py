#!/usr/bin/env python3
"""Faults at every point of memplan's commands: no memory, bad reads and writes, failing system calls, files that shrink, signals.

    python tests/hard/faults.py [--build build/release] [--faults 10000] [--seed 1] [--only TEXT …]

A command runs once without a fault, which counts the points where one can be put (tests/hard/faults.cpp, a library that is
preloaded). Then it runs with one fault each time. It has to answer as without it, or to end with one message and exit code 2, 3 or 4
(a signal ends it by that signal): never by a crash, without a word, with a wrong answer, with half a file, with another process or a
temporary file left. Reads and writes that are cut short or interrupted must not change anything.
"""
import argparse
import collections
import concurrent.futures
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
SOFT = {"read-short", "read-interrupted", "write-short", "write-interrupted"}  # nothing is lost
KINDS = {"memory": "memory", "read-error": "read", "read-short": "read", "read-interrupted": "read", "write-error": "write", "write-short": "write",
         "write-interrupted": "write", "system": "system", "signal": "signal", "shrink": "map"}
REFUSED = {2, 3, 4}

CONFIG = """schema = 1
[gate]
fail_on = ["no-fit", "regression"]
baseline = "base.json"
[defaults]
gpu = "80GB"
[[target]]
name = "mlp"
model = "mlp.onnx"
batch = 8
limit = "90%"
warn = "1GiB"
max_increase = "5%"
[[target]]
name = "legacy"
model = "legacy.onnx"
[[ignore]]
rule = "tight"
target = "m*"
reason = "known"
expires = 2027-01-31
"""


def commands():
    gpu = ["--gpu", "80GB"]
    return {
        "estimate": ["mlp.onnx", *gpu, "--batch", "8"],
        "pt2": ["mlp.pt2", *gpu],
        "legacy": ["legacy.onnx", *gpu, "--no-search"],
        "packed": ["packed.onnx.gz", *gpu, "--no-search"],
        "json to a file": ["mlp.onnx", *gpu, "--format", "json", "-o", "out.json"],
        "json over a file": ["mlp.onnx", *gpu, "--format", "json", "-o", "old.json"],
        "html": ["mlp.onnx", *gpu, "--format", "html", "-o", "out.html"],
        "snapshot": ["mlp.onnx", *gpu, "--format", "snapshot", "-o", "out.pickle"],
        "explain": ["explain", "mlp.onnx", *gpu],
        "program": ["explain", "mlp.onnx", *gpu, "--program"],
        "size": ["size", "mlp.onnx", *gpu],
        "sweep": ["sweep", "mlp.onnx", *gpu, "--batch", "1,2"],
        "suggest": ["suggest", "mlp.onnx", "--gpu", "1GiB", "--batch", "4096"],
        "suggest for ranks": ["suggest", "mlp.onnx", "--gpu", "1GiB", "--gpus", "4"],
        "optimal": ["mlp.onnx", *gpu, "--checkpoint", "optimal:180MiB", "--no-search"],
        "gate": ["check"],
        "baseline": ["baseline", "update"],
        "diff": ["diff", "first.json", "other.json"],
        "report": ["report", "first.json", "--format", "md"],
        "weights": ["model.safetensors", *gpu],
        "damaged": ["damaged.onnx", *gpu],
        "cuts of a size": ["mlp.onnx", "--gpu", "1GiB", "--batch", "65536"],
        "ort": ["mlp.onnx", *gpu, "--runtime", "ort", "--mode", "inference"],
    }


def prepare(folder, binary):
    """The files that the commands read."""
    models = os.path.join(ROOT, "data", "models")
    shutil.copy(os.path.join(models, "mlp.onnx"), os.path.join(folder, "mlp.onnx"))
    shutil.copy(os.path.join(models, "legacy", "mlp.onnx"), os.path.join(folder, "legacy.onnx"))
    shutil.copy(os.path.join(models, "pt2", "mlp.pt2"), os.path.join(folder, "mlp.pt2"))
    shutil.copy(os.path.join(models, "ort", "bert_mini.plain.onnx.gz"), os.path.join(folder, "packed.onnx.gz"))
    with open(os.path.join(models, "mlp.onnx"), "rb") as f:
        half = f.read()
    with open(os.path.join(folder, "damaged.onnx"), "wb") as f:
        f.write(half[:len(half) // 2])
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(b"\x40\0\0\0\0\0\0\0" + b'{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'.ljust(64) + bytes(16))
    with open(os.path.join(folder, "memplan.toml"), "w") as f:
        f.write(CONFIG)
    for name, batch in (("other.json", "8"), ("old.json", "2"), ("first.json", "4")):
        subprocess.run([binary, "mlp.onnx", "--gpu", "80GB", "--batch", batch, "--format", "json", "-o", name], cwd=folder, check=False, stderr=subprocess.DEVNULL)
    subprocess.run([binary, "baseline", "write"], cwd=folder, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def contents(folder):
    out = {}
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, "rb") as f:
                out[name] = f.read()
        else:
            out[name] = None
    return out


def processes_of(session):
    left = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as f:
                    fields = f.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                left.append(int(name))
    return left


class Place:
    """A folder with the files of `prepare` that is put back to what it was after each run."""

    def __init__(self, made, binary, library):
        self.folder = tempfile.mkdtemp(prefix="memplan-faults-")
        self.temporary = tempfile.mkdtemp(prefix="memplan-faults-tmp-")
        self.binary, self.library, self.made = binary, library, made
        self.restore({})

    def restore(self, now):
        for name in now.keys() - self.made.keys():
            os.remove(os.path.join(self.folder, name))
        for name, data in self.made.items():
            if now.get(name) != data:
                with open(os.path.join(self.folder, name), "wb") as f:
                    f.write(data)

    def run(self, words, fault=None, count=None):
        """(exit code, stdout, stderr, files that are not those of before, complaints)"""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MEMPLAN")}
        environment |= {"TMPDIR": self.temporary, "MEMPLAN_PYTHON": "/nonexistent/python3", "LC_ALL": "C.UTF-8", "HOME": self.temporary, "LD_PRELOAD": self.library}
        if fault:
            environment["MEMPLAN_FAULT"] = fault
        if count:
            environment["MEMPLAN_FAULT_COUNT"] = count
        process = subprocess.Popen([self.binary, *words], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True)
        complaints = []
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            complaints.append("no end within 60 s")
        left = processes_of(process.pid)
        if left:
            complaints.append(f"processes left: {left}")
        now = contents(self.folder)
        files = {name: data for name, data in now.items() if self.made.get(name) != data}
        files |= {name: None for name in self.made.keys() - now.keys()}
        self.restore(now)
        for name in os.listdir(self.temporary):
            complaints.append(f"left in TMPDIR: {name}")
            shutil.rmtree(os.path.join(self.temporary, name), ignore_errors=True)
        return process.returncode, out, err, files, complaints

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.temporary, ignore_errors=True)


def judge(kind, good, run):
    """What is wrong with a run, given the one without a fault; empty where it is right."""
    code, out, err, files, complaints = run
    wrong = list(complaints)
    if kind == "shrink":
        files = {name: data for name, data in files.items() if name not in ("mlp.onnx", "legacy.onnx", "damaged.onnx")}
    if code < 0 and not (kind == "signal" and code == -signal.SIGTERM):
        return wrong + [f"ended by {signal.Signals(-code).name}: {err[-200:]!r}"]
    if code == good[0] and out == good[1] and files == good[3]:
        return wrong
    for name, data in files.items():
        if good[3].get(name, b"") != data:
            wrong.append(f"{name} is neither as before nor complete")
    if kind == "signal" and code < 0:
        return wrong
    if kind in SOFT:
        wrong.append(f"another answer (exit {code}): {err[-200:]!r}")
    elif code not in REFUSED:
        wrong.append(f"exit {code} with another answer: {err[-200:]!r}")
    elif not err.strip() and not out.strip() and kind != "write-error":
        wrong.append(f"exit {code} without a word")
    elif err and b"\n" in err.strip() and err.count(b"error") != 1:
        wrong.append(f"more than one message: {err[-300:]!r}")
    return wrong


def points(counted, faults, r):
    """Which faults to put: every kind gets its share, spread over its points; all points where there are few."""
    todo = []
    share = faults
    kinds = sorted(KINDS, key=lambda kind: counted.get(KINDS[kind], 0))
    for i, kind in enumerate(kinds):
        last = counted.get(KINDS[kind], 0)
        wanted = min(last, share // (len(kinds) - i))
        share -= wanted
        todo += [(kind, n) for n in (range(1, last + 1) if wanted == last else sorted(r.sample(range(1, last + 1), wanted)))]
    # And from a point on everything fails.
    return [f"{kind}:{n}{'+' if kind in ('memory', 'write-error', 'read-error', 'system') and r.random() < 0.15 else ''}" for kind, n in todo]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--library", help="libmemplan_faults.so, where it is not in the build")
    p.add_argument("--faults", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", nargs="+")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    a = p.parse_args()
    binary = os.path.join(os.path.abspath(a.build), "memplan")
    library = os.path.abspath(a.library or os.path.join(a.build, "tests", "libmemplan_faults.so"))
    r = random.Random(a.seed)
    with tempfile.TemporaryDirectory(prefix="memplan-faults-made-") as made_in:
        prepare(made_in, binary)
        made = contents(made_in)
    places = [Place(made, binary, library) for _ in range(a.jobs)]
    chosen = {name: words for name, words in commands().items() if not a.only or any(t in name for t in a.only)}
    failed, done, by_kind = 0, 0, collections.Counter()
    try:
        for name, words in chosen.items():
            with tempfile.NamedTemporaryFile(prefix="memplan-counts-") as counts:
                good = places[0].run(words, count=counts.name)
                counted = {line.split()[0]: int(line.split()[1]) for line in counts.read().decode().splitlines()}
            todo = points(counted, a.faults // len(chosen), r)
            wrong = 0
            free = list(places)
            with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
                def one(fault):
                    place = free.pop()
                    try:
                        return fault, judge(fault.partition(":")[0], good, place.run(words, fault))
                    finally:
                        free.append(place)
                for fault, complaints in pool.map(one, todo):
                    by_kind[fault.partition(":")[0]] += 1
                    if complaints:
                        wrong += 1
                        print(f"FAILED MEMPLAN_FAULT={fault} memplan {' '.join(words)}: {'; '.join(complaints)}", flush=True)
            done += len(todo)
            failed += wrong
            print(f"{name:20} exit {good[0]}  points {counted}  {len(todo)} faults, {wrong} wrong", flush=True)
    finally:
        for place in places:
            place.remove()
    print(", ".join(f"{kind} {n}" for kind, n in sorted(by_kind.items())))
    print(f"{done - failed} passed, {failed} failed")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
