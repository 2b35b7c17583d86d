#!/usr/bin/env python3
"""Random flags with hostile values over the shipped models: nothing may crash, hang or grow.

    python tests/hard/flags.py [--build build/release] [--runs 5000] [--seed 1] [--cpu 5] [--mib 1024]

Every run is one process with a limit of processor time. A run fails where it takes longer, holds more memory, ends by a
signal, or ends with another exit code than those of docs/cli.md. The command line of every failure is printed; the exit
status is 1 where there is one.
"""
import argparse
import glob
import os
import random
import resource
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))

NUMBERS = [1, 1, 2, 2, 3, 4, 7, 8, 16, 31, 64, 100, 128, 1000, 4096, 65536, 10**6, 2**20, 2**31 - 1, 2**31, 2**32, 10**9, 999999999999, 10**15, 2**53, 2**62, 2**63 - 1]
REFUSED = ["0", "-1", "9223372036854775808", "1e9", "", "x", "99999999999999999999999"]
SIZES = ["1", "1KiB", "16MiB", "1GB", "8GB", "79GiB", "1TB", "4000000TB", "0", "-1GB"]
DTYPES = ["bf16", "fp16", "fp32"]


def number(r):
    return r.choice(REFUSED) if r.random() < 0.03 else str(r.choice(NUMBERS))


def small(r):
    return str(r.choice([1, 2, 2, 4, 8, 16])) if r.random() < 0.7 else number(r)


SETUP = [
    lambda r: ["--batch", number(r)],
    lambda r: ["--seq", number(r)],
    lambda r: ["--steps", number(r)],
    lambda r: ["--accumulate", number(r)],
    lambda r: ["--mode", r.choice(["training", "inference"])],
    lambda r: ["--precision", r.choice(["fp32", "amp-bf16", "amp-fp16", "bf16", "fp16", "fp8", "fp8-weights"])],
    lambda r: ["--optimizer", r.choice(["adamw", "adam", "sgd", "sgd-momentum", "adagrad", "rmsprop", "adafactor", "adafactor-hf", "lion", "adamw8bit", "muon", "none"])],
    lambda r: ["--optimizer-impl", r.choice(["foreach", "fused", "loop"])],
    lambda r: ["--clip"],
    lambda r: ["--checkpoint", r.choice(["blocks", "optimal", "optimal:" + r.choice(SIZES), "every:" + number(r), "groups:" + number(r), f"groups:{number(r)}/blocks", "*"])],
    lambda r: ["--offload", r.choice(["activations", "optimizer", "parameters"])],
    lambda r: [r.choice(["--lora", "--qlora"]), "r=" + number(r)],
    lambda r: ["--kv-cache", f"sequences={number(r)},length={number(r)}" + r.choice(["", ",block=" + number(r)])],
    lambda r: ["--channels-last"],
    lambda r: ["--loss-history"],
    lambda r: ["--empty-cache"],
    lambda r: ["--zero-grad", r.choice(["begin", "end", "keep"])],
    lambda r: ["--alloc-conf", r.choice(["expandable_segments:True", "max_split_size_mb:" + number(r), "garbage_collection_threshold:0.5", "roundup_power2_divisions:" + number(r), "large_segment_size_mb:" + number(r)])],
    lambda r: ["--attention", r.choice(["math", "flash", "efficient", "cudnn"])],
    lambda r: ["--margin", r.choice(SIZES + ["1%", "99%"])],
    lambda r: ["--reserve", r.choice(SIZES)],
    lambda r: ["--freeze", "*"],
    lambda r: ["--momentum", r.choice(["0.9", "1e308", "nan", "-1"])],
]
PARALLEL = [
    lambda r: ["--gpus", small(r)],
    lambda r: ["--dp", small(r)],
    lambda r: ["--ddp"] + r.choice([[], ["--bucket-cap", number(r)], ["--bucket-view"]]),
    lambda r: ["--fsdp"] + r.choice([[], ["--no-reshard"], ["--fsdp-dtype", r.choice(DTYPES)], ["--hsdp", small(r)]]),
    lambda r: ["--zero", r.choice("123")] + r.choice([[], ["--reduce-bucket", number(r)], ["--overlap-comm", r.choice(["yes", "no"])]]),
    lambda r: ["--megatron"] + r.choice([[], ["--dist-opt"]]),
    lambda r: ["--tp", small(r)] + r.choice([[], ["--sp"]]),
    lambda r: ["--pp", small(r)] + r.choice([[], ["--pp-schedule", r.choice(["gpipe", "1f1b", "interleaved:" + small(r), "zero-bubble", "zbv"])]]) + r.choice([[], ["--micro-batches", number(r)]]),
    lambda r: ["--pp-split", ",".join(small(r) for _ in range(r.randint(1, 4)))],
    lambda r: ["--cp", small(r)],
    lambda r: ["--ep", small(r)],
]
FORMATS = ["json", "md", "csv", "html", "perfetto", "snapshot", "github", "sarif", "junit"]


def command(r, models):
    verb = r.choices(["", "explain", "size", "suggest", "sweep", "ops"], [12, 2, 2, 2, 1, 1])[0]
    words = ([verb] if verb else []) + [r.choice(models)]
    if verb != "ops":
        words += ["--gpu", r.choice(["80GB", "24GB", "8GB", "h100-80gb", "t4", "1GiB"])]
    groups = SETUP[:2] if verb == "ops" else SETUP
    for make in r.sample(groups, r.randint(0, min(4, len(groups)))):
        words += make(r)
    if verb != "ops" and r.random() < 0.35:
        for make in r.sample(PARALLEL, r.randint(1, 3)):
            words += make(r)
    if verb == "sweep" and "--batch" not in words:
        words += ["--batch", r.choice(["1,2,4", "1..64", "1,999999999999"])]
    if verb == "" and r.random() < 0.3:
        words += r.choice([["--quiet"], ["--no-search"], ["--format", r.choice(FORMATS)], ["--timeline", "--format", "json"]])
    return words


def run(binary, words, cpu):
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (4 * cpu, 4 * cpu + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(os.devnull, "wb") as null:
        process = subprocess.Popen([binary, *words], stdout=null, stderr=null, stdin=subprocess.DEVNULL, preexec_fn=limit, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--binary")
    p.add_argument("--runs", type=int, default=5000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--cpu", type=int, default=5, help="seconds of processor time that a run may take")
    p.add_argument("--mib", type=int, default=1024, help="memory that a run may hold")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    a = p.parse_args()
    binary = os.path.abspath(a.binary or os.path.join(a.build, "memplan"))
    models = sorted(os.path.relpath(f, ROOT) for kind in ("*.onnx", "*.onnx.gz", "*.pt2") for f in glob.glob(os.path.join(ROOT, "data", "models", "**", kind), recursive=True))
    r = random.Random(a.seed)
    todo = [command(r, models) for _ in range(a.runs)][::-1]
    lock, failures, slowest, largest = threading.Lock(), [], (0, []), (0, [])

    def work():
        nonlocal slowest, largest
        while True:
            with lock:
                if not todo:
                    return
                words = todo.pop()
            code, seconds, mib = run(binary, words, a.cpu)
            why = []
            if code not in (0, 1, 2, 3, 4):
                why.append(f"exit {code}")
            if seconds > a.cpu:
                why.append(f"{seconds:.1f} s")
            if mib > a.mib:
                why.append(f"{mib:.0f} MiB")
            with lock:
                slowest, largest = max(slowest, (seconds, words)), max(largest, (mib, words))
                if why:
                    failures.append(words)
                    print(", ".join(why) + ":  memplan " + " ".join(words), flush=True)

    threads = [threading.Thread(target=work) for _ in range(a.jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(f"slowest {slowest[0]:.2f} s: {' '.join(slowest[1])}")
    print(f"largest {largest[0]:.0f} MiB: {' '.join(largest[1])}")
    print(f"{a.runs - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
