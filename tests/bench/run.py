#!/usr/bin/env python3
"""Measures memplan and prints a table: time and memory of whole processes, from start to exit.

    python tests/bench/run.py [--build build/release] [--only TEXT] [--runs 15]
    python tests/bench/run.py --before FOLDER     beside another build of memplan, run in turn: the table of README.md

Time is the processor time of the whole process (memplan has one thread), because the wall clock tells how busy the
machine is; both are medians. Memory is the largest resident set that the kernel saw. Large files are made on first use
below build/bench. The exit status is 1 where a bound is missed.
"""
import argparse
import gzip
import os
import shutil
import statistics
import subprocess
import sys
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import build_tree

ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
MADE = os.path.join(ROOT, "build", "bench")
MIB = 1 << 20


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(n, value):
    return varint(n << 3) + varint(value)


def value_info(name, sizes):
    shape = b"".join(field(1, number(1, s)) for s in sizes)
    return field(1, name.encode()) + field(2, field(1, number(1, 1) + field(2, shape)))


def node(op, inputs, outputs, module=None):
    out = b"".join(field(1, i.encode()) for i in inputs) + b"".join(field(2, o.encode()) for o in outputs) + field(4, op.encode())
    if module:
        for key, value in (("name_scopes", f"['', '{module}', '{op}']"), ("class_hierarchy", f"['Model', 'Block', 'aten.{op.lower()}.default']")):
            out += field(9, field(1, f"pkg.torch.onnx.{key}".encode()) + field(2, value.encode()))
    return out


def model(nodes, inputs, outputs, weights):
    """A model as bytes; protobuf for Python refuses files above 2 GiB and is slow for 100,000 nodes."""
    graph = [b"".join(field(1, n) for n in nodes), field(2, b"g")] + weights
    graph += [field(11, value_info(*i)) for i in inputs] + [field(12, value_info(*o)) for o in outputs]
    length = sum(map(len, graph))
    return [number(1, 9), field(8, number(2, 20)), varint(7 << 3 | 2) + varint(length), *graph]


def weight(name, sizes, raw):
    head = b"".join(number(1, s) for s in sizes) + number(2, 1) + field(8, name.encode())
    body = head + varint(9 << 3 | 2) + varint(raw) if raw else head
    return varint(5 << 3 | 2) + varint(len(body) + raw) + body


def write(path, parts):
    with open(path + ".part", "wb") as f:
        for part in parts:
            if isinstance(part, int):
                f.seek(part, os.SEEK_CUR)  # a hole: zeros that take no disk
            else:
                f.write(part)
        f.truncate()
    os.replace(path + ".part", path)


def weights_inside(path):
    """1.7 GB of weights inside the file, as a chain of 24 products."""
    width, layers = 4224, 24
    raw = width * width * 4
    nodes, names = [], ["x"]
    weights = []
    for i in range(layers):
        weights += [weight(f"w{i}", [width, width], raw), raw]
        nodes.append(node("MatMul", [names[-1], f"w{i}"], [f"h{i}"]))
        names.append(f"h{i}")
    head = model(nodes, [("x", [8, width])], [(names[-1], [8, width])], [])
    # The weights go into the graph, whose length has to be known before it is written.
    graph = head[3:]
    length = sum(p if isinstance(p, int) else len(p) for p in graph + weights)
    write(path, [head[0], head[1], varint(7 << 3 | 2) + varint(length), *graph, *weights])


def chain(path, ops):
    nodes = [node("MatMul", ["x", "w"], ["h1"])] + [node(("Relu", "Sigmoid", "Tanh")[i % 3], [f"h{i}"], [f"h{i + 1}"]) for i in range(1, ops)]
    write(path, model(nodes, [("x", [16, 64])], [(f"h{ops}", [16, 64])], [weight("w", [64, 64], 0)]))


def blocks(path, count, ops):
    """`count` modules "blocks.<i>" of `ops` calls each, the first of which is a product."""
    nodes, at, weights = [], "x", []
    for i in range(count):
        for k in range(ops):
            out = f"h{i}_{k}"
            if k == 0:
                weights.append(weight(f"w{i}", [1024, 1024], 0))
                nodes.append(node("MatMul", [at, f"w{i}"], [out], f"blocks.{i}"))
            else:
                nodes.append(node(("Relu", "Sigmoid", "Tanh")[k % 3], [at], [out], f"blocks.{i}"))
            at = out
    write(path, model(nodes, [("x", [1024, 1024])], [(at, [1024, 1024])], weights))


def unpacked(name, folder="bench"):
    def make(path):
        with gzip.open(os.path.join(ROOT, "data", folder, name + ".onnx.gz")) as source, open(path + ".part", "wb") as f:
            shutil.copyfileobj(source, f)
        os.replace(path + ".part", path)
    return make


def made(name, make):
    path = os.path.join(MADE, name)
    if not os.path.exists(path):
        os.makedirs(MADE, exist_ok=True)
        make(path)
    return path


def in_repository(name):
    return os.path.join(ROOT, "data", "models", name + ".onnx")


def program_with_weights(path):
    """gpt2 as torch.export.save writes it: the graph of data/models, behind 200 MB of weights as stored entries."""
    piece = bytes(10**7)
    with zipfile.ZipFile(os.path.join(ROOT, "data", "models", "pt2", "gpt2.pt2")) as source, zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_STORED) as target:
        folder = source.namelist()[0].split("/")[0]
        for i in range(20):
            target.writestr(f"{folder}/data/weights/weight_{i}", piece)
        for name in source.namelist():
            target.writestr(name, source.read(name))  # torch stores the graph's text uncompressed as well
    os.replace(path + ".part", path)


def torch_python(build):
    """The Python with PyTorch that the build knows, where there is a memplan-torch."""
    found = build_tree.cached(build, "MEMPLAN_TORCH_PYTHON")
    return found and os.path.exists(os.path.join(build, "memplan-torch")) and found


def traced_with_weights(python):
    """gpt2 as torch.jit.trace and save write it, with its 498 MB of weights."""
    def make(path):
        subprocess.run([python, os.path.join(ROOT, "tools", "export_torchscript.py"), "gpt2", "--out", MADE, "--kind", "trace", "--keep-weights"], check=True, stdout=subprocess.DEVNULL)
    return made("gpt2.trace.pt", make)


def bytes_read(command, path):
    """What all processes of the command read of the file, by strace."""
    log = os.path.join(MADE, "strace.txt")
    subprocess.run(["strace", "-f", "-y", "-e", "trace=read,pread64,readv,preadv,mmap", "-o", log, *command], stdout=subprocess.DEVNULL)
    with open(log) as f:
        lines = [line for line in f if f"<{os.path.realpath(path)}>" in line]
    if any(" mmap(" in line for line in lines):
        raise RuntimeError(f"{path} is mapped: what is read of it is not known")
    return sum(int(line.rsplit("= ", 1)[1]) for line in lines)


GPU = ["--gpu", "80GB", "--no-search"]
TRACED = "TorchScript of 498 MB (gpt2), estimate"
TRACED_FLAGS = ["--input", "int64:batch,seq", "--batch", "8", "--seq", "512", *GPU]
# (what, words, milliseconds, MiB or None)
ORT = ["--runtime", "ort", "--gpu", "80GB", "--onnxruntime", "none", "--cudnn", "none"]
BENCHMARKS = [
    ("start (--version)", lambda: ["--version"], 5, None),
    ("resnet50, batch 32, estimate", lambda: [in_repository("resnet50"), "--batch", "32", *GPU], 20, None),
    ("gpt2, batch 8 x 1024, estimate", lambda: [in_repository("gpt2"), "--batch", "8", "--seq", "1024", *GPU], 20, None),
    ("gpt2, with the searches", lambda: [in_repository("gpt2"), "--batch", "8", "--seq", "1024", "--gpu", "80GB"], None, None),
    ("gpt2-xl, batch 1 x 512, estimate", lambda: [made("gpt2-xl.onnx", unpacked("gpt2-xl")), "--seq", "512", *GPU], 60, None),
    ("llama-2-7b, batch 1 x 512, estimate", lambda: [made("llama-2-7b.onnx", unpacked("llama-2-7b")), "--seq", "512", *GPU], 60, None),
    ("resnet50, batch 32, ONNX Runtime", lambda: [in_repository("resnet50"), "--batch", "32", *ORT, "--no-search"], 50, None),
    ("bert-base, batch 8 x 128, ONNX Runtime", lambda: [in_repository("bert-base"), "--batch", "8", "--seq", "128", *ORT, "--no-search"], 50, None),
    ("llama-2-7b, batch 1 x 512, ONNX Runtime", lambda: [made("llama-2-7b.onnx", unpacked("llama-2-7b")), "--seq", "512", *ORT, "--no-search"], 200, None),
    ("bert-base, ONNX Runtime, with the searches", lambda: [in_repository("bert-base"), "--batch", "8", "--seq", "128", *ORT], None, None),
    ("suggest, 7B on 64 GPUs", lambda: ["suggest", made("llama-2-7b.onnx", unpacked("llama-2-7b")), "--gpu", "h100-80gb", "--gpus", "64", "--seq", "2048",
                                        "--accumulate", "8"], 2000, None),
    ("suggest, 405B on 1,024 GPUs", lambda: ["suggest", made("llama-3-405b.onnx", unpacked("llama-3-405b", "models")), "--gpu", "h100-80gb", "--gpus", "1024",
                                             "--seq", "4096", "--accumulate", "2"], 3000, None),
    ("10,000 ops, optimal checkpointing", lambda: [made("blocks-10000.onnx", lambda p: blocks(p, 500, 20)), *GPU, "--checkpoint", "optimal:12GB", "--exit-zero"], 5000, None),
    ("1.7 GB of weights in the file, open", lambda: ["ops", made("weights-inside.onnx", weights_inside)], 50, 60),
    (".pt2 of 200 MB (gpt2), estimate", lambda: [made("gpt2-weights.pt2", program_with_weights), "--batch", "8", "--seq", "512", *GPU], 60, 40),
    ("10,000 ops, estimate", lambda: [made("chain-10000.onnx", lambda p: chain(p, 10_000)), *GPU], None, None),
    ("100,000 ops, estimate", lambda: [made("chain-100000.onnx", lambda p: chain(p, 100_000)), *GPU], 1000, 250),
]


def measure(command, runs):
    """(median processor seconds, median seconds, largest resident set in bytes)"""
    busy, times, memory = [], [], 0
    for _ in range(runs):
        started = time.perf_counter()
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
        _, status, usage = os.wait4(pid, 0)
        times.append(time.perf_counter() - started)
        busy.append(usage.ru_utime + usage.ru_stime)
        memory = max(memory, usage.ru_maxrss * 1024)
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            raise RuntimeError(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return statistics.median(busy), statistics.median(times), memory


def compare(options):
    """Both builds in turn, so that what else the machine does meets both."""
    print("| what | before | now | memory before | now |\n|---|---:|---:|---:|---:|")
    for what, words, _, _ in BENCHMARKS:
        if options.only and options.only not in what:
            continue
        times, memory = ([], []), [0, 0]
        for _ in range(options.runs):
            for i, build in enumerate((options.before, options.build)):
                seconds, _, most = measure([os.path.join(build, "memplan"), *words()], 1)
                times[i].append(seconds * 1e3)
                memory[i] = max(memory[i], most / MIB)
        print(f"| {what} | {statistics.median(times[0]):.1f} ms | {statistics.median(times[1]):.1f} ms | {memory[0]:.0f} MiB | {memory[1]:.0f} MiB |", flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--only", metavar="TEXT")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--before", metavar="FOLDER", help="with an earlier build of memplan")
    options = parser.parse_args()
    if options.before:
        return compare(options)
    missed = 0
    measured = {}
    print(f"| {'what':36} | {'processor':>9} | {'bound':>9} | {'wall':>9} | {'memory':>9} | {'bound':>9} |\n|{'-' * 38}|{('-' * 10 + ':|') * 5}")
    python = torch_python(options.build)
    benchmarks = list(BENCHMARKS)
    if python:
        benchmarks.insert(8, (TRACED, lambda: [traced_with_weights(python), *TRACED_FLAGS], 1000, None))
    for what, words, bound, memory_bound in benchmarks:
        if options.only and options.only not in what:
            continue
        seconds, wall, memory = measure([os.path.join(options.build, "memplan"), *words()], options.runs)
        measured[what] = seconds
        bad = (bound is not None and seconds * 1e3 > bound) or (memory_bound is not None and memory > memory_bound * MIB)
        missed += bad
        print(f"| {what:36} | {seconds * 1e3:6.1f} ms | {f'{bound} ms' if bound else '':>9} | {wall * 1e3:6.1f} ms | {memory / MIB:5.0f} MiB | "
              f"{f'{memory_bound} MiB' if memory_bound else '':>9} |{'  MISSED' if bad else ''}", flush=True)
    if TRACED in measured and shutil.which("strace"):
        path = traced_with_weights(python)
        read = bytes_read([os.path.join(options.build, "memplan"), path, *TRACED_FLAGS], path)
        print(f"\nof the TorchScript file's {os.path.getsize(path):,} bytes, {read:,} are read (at most 1,000,000, at least 1)")
        missed += not 0 < read < 10**6
    small, large = measured.get("10,000 ops, estimate"), measured.get("100,000 ops, estimate")
    if small and large:
        print(f"\nten times the ops take {large / small:.1f} times as long (at most 15 counts as linear)")
        missed += large / small > 15
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
