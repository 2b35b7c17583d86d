#!/usr/bin/env python3
"""Files that are made to be slow or large: each limit of docs/limits.md ends in one line, and time grows as the file does.

    python tests/hard/limits.py [--build build/release] [--only NAME …] [--size 2000]

The first half are files past a limit: exit code 3, one message that names it, within --cpu seconds and --mib of memory. The second half are
graphs of one shape each (a chain, one value that all ops read, one op of many inputs …) with --size parts and with four times as many: the
larger one may take --growth times the processor time of the smaller one at most.
"""
import argparse
import os
import resource
import struct
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, HERE)
from protobuf import field, floats, function, graph, model, node, tensor, value  # noqa: E402


def trained(nodes, inputs, outputs, **more):
    """A model whose first op has a weight, x -> v0, so that it is trained."""
    return model(graph([node("MatMul", ["x", "w"], ["v0"])] + nodes, [value("x", ("batch", 8))] + inputs, outputs, [tensor("w", [8, 8], floats(64))]), **more)


def chain(n, op="Relu"):
    return trained([node(op, [f"v{i}"], [f"v{i + 1}"]) for i in range(n)], [], [value(f"v{n}", ("batch", 8))])


def fan_out(n):
    """All ops read one value, whose gradient is a sum of n."""
    nodes = [node("Relu", ["v0"], [f"r{i}"]) for i in range(n)] + [node("Concat", [f"r{i}" for i in range(n)], ["y"], axis=1)]
    return trained(nodes, [], [value("y", ("batch", 8 * n))])


def shared_weight(n):
    return trained([node("MatMul", [f"v{i}", "w"], [f"v{i + 1}"]) for i in range(n)], [], [value(f"v{n}", ("batch", 8))])


def residuals(n):
    """v[i+1] = v[i] + v[0], which is alive to the end."""
    return trained([node("Add", [f"v{i}", "v0"], [f"v{i + 1}"]) for i in range(n)], [], [value(f"v{n}", ("batch", 8))])


def split(n):
    nodes = [node("Concat", ["v0"] * n, ["c"], axis=1), node("Split", ["c"], [f"s{i}" for i in range(n)], axis=1, num_outputs=n),
             node("Concat", [f"s{i}" for i in reversed(range(n))], ["y"], axis=1)]
    return trained(nodes, [], [value("y", ("batch", 8 * n))])


def many_inputs(n):
    nodes = [node("Concat", ["v0"] + [f"x{i}" for i in range(1, n)], ["y"], axis=1)]
    return trained(nodes, [value(f"x{i}", ("batch", 8)) for i in range(1, n)], [value("y", ("batch", 8 * n))])


def many_outputs(n):
    return trained([node("Relu", ["v0"], [f"y{i}"]) for i in range(n)], [], [value(f"y{i}", ("batch", 8)) for i in range(n)])


def unread_weights(n):
    return model(graph([node("Relu", ["x"], ["y"])], [value("x", ("batch", 8))], [value("y", ("batch", 8))], [tensor(f"w{i}", [8], floats(8)) for i in range(n)]))


def open_dims(n):
    """As many names of sizes as inputs; only the first is bound."""
    nodes = [node("Relu", [f"x{i}"], [f"y{i}"]) for i in range(n)]
    return model(graph(nodes, [value(f"x{i}", ("batch", 8) if i == 0 else ("batch", f"d{i}")) for i in range(n)], [value(f"y{i}", ("batch", f"d{i}")) for i in range(n)]))


def modules(n):
    """Each op in a module of its own."""
    return trained([node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"/layers/{i}/act/Relu") for i in range(n)], [], [value(f"v{n}", ("batch", 8))])


def deep_module(n):
    """One path of n parts, and ops at its end."""
    path = "/" + "/".join(f"m{i}" for i in range(n // 10)) + "/Relu"
    return trained([node("Relu", [f"v{i}"], [f"v{i + 1}"], name=path + f"_{i}") for i in range(10)], [], [value("v10", ("batch", 8))])


def layer_norms(n):
    """What a pattern looks for, over and over, and never whole."""
    nodes = []
    for i in range(n // 4):
        x = f"v{i}"
        nodes += [node("ReduceMean", [x], [f"m{i}"], axes=[-1]), node("Sub", [x, f"m{i}"], [f"d{i}"]), node("Mul", [f"d{i}", f"d{i}"], [f"q{i}"]), node("Add", [f"q{i}", x], [f"v{i + 1}"])]
    return trained(nodes, [], [value(f"v{n // 4}", ("batch", 8))])


def functions(n):
    """Each op is a function of its own."""
    bodies = [function(f"f{i}", ["a"], ["b"], [node("Relu", ["a"], ["b"])]) for i in range(n)]
    return trained([node(f"f{i}", [f"v{i}"], [f"v{i + 1}"], domain="own") for i in range(n)], [], [value(f"v{n}", ("batch", 8))], functions=bodies)


def attributes(n):
    return trained([node("Relu", ["v0"], ["y"], **{f"a{i}": i for i in range(n)})], [], [value("y", ("batch", 8))])


def wrong_order(n):
    """Every op stands before the one whose result it reads."""
    return trained([node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in reversed(range(n))], [], [value(f"v{n}", ("batch", 8))])


GROWING = {"chain": chain, "identities": lambda n: chain(n, "Identity"), "transposed": lambda n: chain(n, "Transpose"), "unknown ops": lambda n: chain(n, "Nothing"),
           "fan out": fan_out, "shared weight": shared_weight, "residuals": residuals, "split": split, "many inputs": many_inputs, "many outputs": many_outputs,
           "unread weights": unread_weights, "open dims": open_dims, "modules": modules, "deep module": deep_module, "almost layer norms": layer_norms, "functions": functions,
           "attributes": attributes, "wrong order": wrong_order}


def archive(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("m/archive_format", "pt2")
        for name, data in members.items():
            with z.open(f"m/{name}", "w") as f:
                for part in data:
                    f.write(part)


def doubling(levels):
    """f0 calls f1 twice, f1 calls f2 twice …: 2^levels ops."""
    calls = [node(f"f{i + 1}", ["a"], ["c"], domain="own") + b"" for i in range(levels)]
    bodies = [function(f"f{i}", ["a"], ["b"], [calls[i], node(f"f{i + 1}", ["c"], ["b"], domain="own")]) for i in range(levels)]
    bodies.append(function(f"f{levels}", ["a"], ["b"], [node("Relu", ["a"], ["b"])]))
    return model(graph([node("f0", ["x"], ["y"], domain="own")], [value("x", ("batch", 8))], [value("y", ("batch", 8))]), functions=bodies)


def nested(levels):
    inner = graph([node("Relu", ["x"], ["y"])], [], [value("y", ("batch", 8))])
    for _ in range(levels):
        inner = graph([node("If", ["c"], ["y"], then_branch=inner, else_branch=inner[:0] or graph([node("Relu", ["x"], ["y"])], [], [value("y", (1,))]))], [], [value("y", ("batch", 8))])
    return model(graph([node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)], [value("x", ("batch", 8)), value("c", ())], [value("y", ("batch", 8))]))


def past_limits():
    """{name: (file name, what writes it, words that the message has)}"""
    itself = model(graph([node("f", ["x"], ["y"], domain="own")], [value("x", ("batch", 8))], [value("y", ("batch", 8))]),
                   functions=[function("f", ["a"], ["b"], [node("f", ["a"], ["b"], domain="own")])])
    blank = [b" " * (1 << 20)] * 65
    ones = [b'{"graph_module":[' + b"1," * 1000] + [b"1," * 100_000] * 101 + [b"1]}"]
    header = b'{"a":' + b"[" * 100
    return {
        "functions that double": ("a.onnx", doubling(30), "unfold into more than 250000"),
        "a function that calls itself": ("a.onnx", itself, "levels deep"),
        "branches in branches": ("a.onnx", nested(61), "nested"),
        "65 dims": ("a.onnx", model(graph([node("Relu", ["x"], ["y"])], [value("x", [1] * 65)], [value("y", [1] * 65)])), "dim"),
        "sizes that overflow": ("a.onnx", model(graph([node("Relu", ["x"], ["y"])], [value("x", ["batch", 2**62, 2**62])], [value("y", ["batch", 2**62, 2**62])])), "overflow"),
        "a Relu that needs more than there is": ("a.onnx", model(graph([node("Relu", ["x"], ["y"])], [value("x", ["batch", 2**40, 2**20])], [value("y", ["batch", 2**40, 2**20])])), ""),
        "65 MiB of JSON": ("a.pt2", {"models/model.json": blank}, "68157440 bytes long"),
        "ten million values": ("a.pt2", {"models/model.json": ones}, "ten million"),
        "deep JSON": ("a.pt2", {"models/model.json": [b'{"graph_module":' + b"[" * 257 + b"]" * 257 + b"}"]}, "deeper than 256"),
        "a deep header": ("a.safetensors", struct.pack("<Q", len(header)) + header, "deeper than 8"),
        "a header of a petabyte": ("a.safetensors", struct.pack("<Q", 10**15) + b"{}", "100,000,000"),
        "metadata without end": ("a.gguf", b"GGUF" + struct.pack("<IQQ", 3, 2**62, 2**62), "within its header"),
        "an array without end": ("a.gguf", b"GGUF" + struct.pack("<IQQQ", 3, 1, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, 2**62), "within its header"),
    }


def ran(binary, words, cpu):
    """(exit code, seconds of the processor, MiB, what it said)"""
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (int(20 * cpu), int(20 * cpu) + 1))
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([binary, *words], stdout=subprocess.DEVNULL, stderr=said, stdin=subprocess.DEVNULL, preexec_fn=limit)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, said.read().decode(errors="replace")


def write(folder, name, data):
    path = os.path.join(folder, name)
    if isinstance(data, dict):
        archive(path, data)
    else:
        with open(path, "wb") as f:
            f.write(data)
    return path


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--only", nargs="+", metavar="NAME")
    p.add_argument("--size", type=int, default=2000)
    p.add_argument("--growth", type=float, default=8)
    p.add_argument("--cpu", type=float, default=5)
    p.add_argument("--mib", type=int, default=1024)
    p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    binary, passed, failed = os.path.abspath(os.path.join(a.build, "memplan")), 0, 0

    def result(name, wrong, figures):
        nonlocal passed, failed
        passed, failed = passed + (not wrong), failed + bool(wrong)
        if wrong or a.verbose:
            print(f"{'FAILED ' if wrong else ''}{name}: {figures}{'; ' if wrong else ''}{'; '.join(wrong)}", flush=True)

    with tempfile.TemporaryDirectory(prefix="memplan-limits-") as folder:
        for name, (file, data, words) in past_limits().items():
            if a.only and name not in a.only:
                continue
            code, seconds, mib, said = ran(binary, [write(folder, file, data), "--gpu", "80GB", "--batch", "1"], a.cpu)
            wrong = [w for w in (f"exit code {code}: {said[-500:]}" if code != 3 else "", f"says nothing of '{words}': {said[-500:]}" if words not in said else "",
                                 "too long" if seconds > a.cpu else "", "too large" if mib > a.mib else "") if w]
            result(name, wrong, f"{seconds:.2f} s, {mib:.0f} MiB, {said.strip().splitlines()[:1]}")
        for name, made in GROWING.items():
            if a.only and name not in a.only:
                continue
            taken, wrong = [], []
            for n in (a.size, 4 * a.size):
                words = [write(folder, "a.onnx", made(n)), "--gpu", "80GB", "--batch", "1", "--no-search", "--exit-zero", "--allow", "all"]
                code, seconds, mib, said = ran(binary, words[:-2], a.cpu)
                taken.append(seconds)
                if code not in (0, 1, 3):
                    wrong.append(f"exit code {code}: {said[-500:]}")
                if seconds > a.cpu or mib > a.mib:
                    wrong.append(f"{seconds:.2f} s, {mib:.0f} MiB for {n}")
            # Twenty milliseconds are what a run takes anyway.
            if taken[1] > 0.02 + a.growth * max(taken[0], 0.02):
                wrong.append("grows faster than the file")
            result(name, wrong, f"{taken[0]:.2f} s for {a.size}, {taken[1]:.2f} s for {4 * a.size}, exit code {code}{' ' + said.strip().splitlines()[0] if code == 3 and said.strip() else ''}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
