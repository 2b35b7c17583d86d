#!/usr/bin/env python3
"""Writes the inputs that the search starts from: small files of the project, and what memplan makes of them.

    python tests/fuzz/seeds.py [--build build/release]

They lie in tests/fuzz/corpus/TARGET/seed-*; what the search finds beside them has other names.
"""
import argparse
import json
import os
import pickle
import random
import subprocess
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
CORPUS = os.path.join(HERE, "corpus")
sys.path.insert(0, os.path.join(ROOT, "tests", "hard"))
from faults import CONFIG  # noqa: E402
from flags import command  # noqa: E402


def write(target, name, data):
    folder = os.path.join(CORPUS, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"seed-{name}"), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def read(path):
    with open(os.path.join(ROOT, path), "rb") as f:
        return f.read()


def graph_of(archive):
    with zipfile.ZipFile(os.path.join(ROOT, archive)) as z:
        return z.read(next(n for n in z.namelist() if n.endswith(".json") and ("/models/" in n or "serialized_exported_program" in n)))


def without_blanks(text):
    return json.dumps(json.loads(text), separators=(",", ":"))


def last_call_alone(text):
    """The program cut down to its last call, whose first argument becomes the input: mutations of it run ten times faster."""
    program = json.loads(text)
    graph, signature = program["graph_module"]["graph"], program["graph_module"]["signature"]
    call = graph["nodes"][-1]
    call["metadata"] = {}
    read_by_it = [i["arg"]["as_tensor"]["name"] for i in call["inputs"] if "as_tensor" in i["arg"]]
    graph["nodes"] = [call]
    kept = {*read_by_it, *(o["as_tensor"]["name"] for o in call["outputs"])}
    graph["tensor_values"] = {name: value for name, value in graph["tensor_values"].items() if name in kept}
    graph["inputs"] = [{"as_tensor": {"name": name}} for name in read_by_it]
    weights = [i for i in signature["input_specs"] if "parameter" in i and i["parameter"]["arg"]["name"] in kept]
    signature["input_specs"] = [{"user_input": {"arg": {"as_tensor": {"name": read_by_it[0]}}}}, *weights]
    program["graph_module"]["module_call_graph"] = []
    return json.dumps(program, separators=(",", ":"))


SNAPSHOT = {
    "segments": [{"device": 0, "address": 4096, "total_size": 2097152, "stream": 0, "segment_type": "small", "allocated_size": 512, "active_size": 512,
                  "requested_size": 400, "blocks": [{"address": 4096, "size": 512, "requested_size": 400, "state": "active_allocated",
                                                     "frames": [{"filename": "train.py", "line": 7, "name": "step"}]}]}],
    "device_traces": [[{"action": "segment_alloc", "addr": 4096, "size": 2097152, "stream": 0, "frames": []},
                       {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": []},
                       {"action": "free_requested", "addr": 4096, "size": 512, "stream": 0}, {"action": "free_completed", "addr": 4096, "size": 512, "stream": 0}]],
    "allocator_settings": {"expandable_segments": False},
}

# A program as memplan-torch sends it: x.matmul(w), in a loop and a branch.
SCRIPT = {
    "torch": "2.11", "bytes_read": 0, "inputs": [{"id": 0, "name": "x", "type": "Tensor"}],
    "nodes": [{"op": "prim::Constant", "out": [1], "value": {"t": 0}}, {"op": "prim::Constant", "out": [2], "value": 3}, {"op": "prim::Constant", "out": [3], "value": True},
              {"op": "prim::Loop", "in": [2, 3, 0], "out": [9], "at": 0,
               "blocks": [{"in": [4, 5], "nodes": [{"op": "aten::matmul", "in": [5, 1], "out": [6], "at": 0}], "out": [3, 6]}]},
              {"op": "prim::If", "in": [3], "out": [10], "at": 0, "blocks": [{"in": [], "nodes": [], "out": [9]}, {"in": [], "nodes": [], "out": [0]}]}],
    "outputs": [10], "stacks": [{"paths": [""], "classes": ["m.Net"], "lines": []}],
    "schemas": {"aten::matmul": [["self", "Tensor", False], ["other", "Tensor", False]]},
    "tensors": [{"name": "w", "kind": "parameter", "dtype": "Float", "sizes": [4, 4], "grad": True, "number": None}],
}



def program_of_numbers():
    """What Python does beside calls: sizes, quotients, ranges, lists, dictionaries, slices, casts."""
    nodes, count = [], [100]

    def make(op, *args, **more):
        count[0] += 1
        nodes.append({"op": op, "in": list(args), "out": [count[0]], "at": 0, **more})
        return count[0]

    def constant(value):
        count[0] += 1
        nodes.append({"op": "prim::Constant", "out": [count[0]], "value": value})
        return count[0]

    zero, one, two, half, none, weight = constant(0), constant(1), constant(2), constant(0.5), constant(None), constant({"t": 0})
    rows, width = make("aten::size.int", 0, zero), make("aten::size.int", 0, one)
    more = make("aten::floordiv.int", make("aten::mul.int", rows, width), two)
    wide = make("aten::ceil.Scalar", make("aten::mul.float_int", half, more))
    rest = make("aten::remainder.int", make("aten::sub.int", wide, one), make("aten::neg.int", two))
    power = make("aten::pow.int", two, make("prim::abs.int", rest))
    for op in ("aten::floor.float", "aten::round.Scalar", "aten::Int.float", "aten::sqrt.float", "aten::log.float"):
        make(op, half)
    sizes = make("prim::ListConstruct", rows, width)
    make("aten::append.t", sizes, make("aten::max.other_int", power, one)), make("aten::pop.int", sizes, make("aten::neg.int", one))
    both = make("aten::mul.left_t", make("aten::add.t", sizes, make("aten::slice.t", sizes, zero, one, one)), one)
    make("aten::__getitem__.t", both, zero), make("aten::len.t", both), make("aten::eq.int_list", both, sizes)
    names = make("prim::DictConstruct", constant("a"), rows)
    make("aten::__getitem__.Dict_str", names, constant("a")), make("aten::keys.str", names), make("aten::__contains__.str", names, constant("b"))
    length = make("aten::__range_length", zero, more, two)
    make("aten::__derive_index", length, zero, two)
    make("aten::__and__.int", length, one), make("aten::logical_or", half, zero), make("aten::__isnot__", none, one)
    make("prim::isinstance", both, types=["List[int]"])
    view = make("aten::view", 0, sizes)
    parts = make("aten::chunk", make("aten::to.dtype", view, constant(5), none, none, none), two, zero)
    joined = make("aten::cat", parts, zero)
    again = make("aten::add.Tensor", view, make("aten::to.dtype", joined, constant(6), none, none, none), one)
    last = make("aten::matmul", again, weight)
    return {**SCRIPT, "nodes": nodes, "outputs": [last]}


FLAGS = ["m.onnx\n--gpu\n80GB\n--batch\n8", "suggest\nm.onnx\n--gpus\n8\n--allow\nall", "sweep\nm.onnx\n--batch\n1..64x2\n--seq\n128",
         "m.onnx\n--precision\namp-bf16\n--optimizer\nsgd-momentum\n--checkpoint\nevery:2\n--alloc-conf\nexpandable_segments:True,max_split_size_mb:512",
         "m.onnx\n--fsdp\n--gpus\n16\n--tp\n2\n--pp\n4\n--micro-batches\n8\n--lora\nr=8\n--freeze\nlayers.*,head", "diff\na.json\nb.json\n--format\nmd"]


FX = ["%linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_w), kwargs = {})",
      "%cat : [num_users=2] = call_function[target=torch.ops.aten.cat.default](args = ([%a, %b], -1), kwargs = {dtype: torch.float32, eps: 1e-05, flag: True})",
      "%getitem : [num_users=1] = call_function[target=operator.getitem](args = (%split, 0), kwargs = {})", "['', 'layer1', \"layer1.0\"]"]
STATEMENTS = ["net.py:7 h = self.fc(x)", "net.py:8 q, k, (v, _) = self.qkv(x).chunk(3, dim=-1)", "net.py:9 out += identity", "net.py:9 a = b, c = f(x='=')",
              "net.py:3 x: Tensor = y # z = 1", "net.py:4 index=ids.repeat(1, 1, n),", "net.py:5 *rest, last = parts", "net.py:6 if (n := len(x)) == 3:"]
SIZES = ["Mul(Integer(2), Symbol('s77', positive=True, integer=True))", "floor((s0 + 1)/2)*batch", "Max(1, Min(s0, Mod(s1, 3)))", "2*batch + seq//16 - (s0 % 7)",
         "Add(Integer(-1), FloorDiv(Symbol('s0'), Integer(2)), Pow(Symbol('s1'), Integer(2)))", "ModularIndexing(Symbol('s0'), 2, 3)"]
TEXTS = ["model.layers.0.mlp\n*.layers.?.*", "it's\nYWJj", "aGVsbG8=\n*a*b*"]


def values_of(words):
    """The words of FLAGS as `values` takes them: name=value."""
    lines, rest = [], words.split("\n")
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            word = word[2:] + ("=" + rest.pop(0) if rest and not rest[0].startswith("--") else "")
        lines.append(word)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    build = parser.parse_args().build
    mlp = os.path.join("data", "models", "mlp.onnx")

    def said(*words):
        return subprocess.run([os.path.join(build, "memplan"), *words], cwd=ROOT, capture_output=True).stdout

    for target in ("wire", "onnx"):
        write(target, "mlp", read(mlp))
        write(target, "legacy-mlp", read("data/models/legacy/mlp.onnx"))
    write("onnx", "alexnet", read("data/models/alexnet.onnx"))
    write("file", "onnx", read(mlp))
    for path in ("tests/torchscript/versions/torch-2.6.0.pt2", "tests/torchscript/versions/torch-2.15.0.pt2"):
        write("file", os.path.basename(path), read(path))
    write("file", "safetensors", (b"\x40\0\0\0\0\0\0\0" + b'{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}').ljust(72) + bytes(16))
    write("file", "gguf", b"GGUF" + (3).to_bytes(4, "little") + (1).to_bytes(8, "little") + (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
          + b"w" + (2).to_bytes(4, "little") + (4).to_bytes(8, "little") * 2 + (0).to_bytes(4, "little") + (0).to_bytes(8, "little") + bytes(128))
    write("file", "pickle", pickle.dumps({"w": [1, 2.5, "x"]}))
    graphs = [("mlp", "data/models/pt2/mlp.pt2"), ("2.6", "tests/torchscript/versions/torch-2.6.0.pt2"), ("2.15", "tests/torchscript/versions/torch-2.15.0.pt2")]
    for name, path in graphs:
        text = without_blanks(graph_of(path))
        if len(text) < 64 * 1024:
            write("program", name, text)
            write("exported", name, text)
    for target in ("program", "exported"):
        write(target, "one-call", last_call_alone(graph_of(graphs[-1][1])))
    for n, header in enumerate((b"\x03\0\0\0" + bytes(16), read("tests/fuzz/corpus/file/seed-gguf")[4:])):
        write("gguf", str(n), header)
    tensors = {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, "h": {"dtype": "BF16", "shape": [], "data_offsets": [16, 18]}}
    write("safetensors", "two", json.dumps({"__metadata__": {"format": "pt"}, **tensors}))
    write("json", "numbers", '{"a": [1, -2.5e3, NaN, -Infinity, Infinity, null, true], "b\\"": {"c": [[["NaN"]]]}}')
    for target, lines in (("fx", FX), ("statement", STATEMENTS), ("size", SIZES), ("texts", TEXTS)):
        for n, line in enumerate(lines):
            write(target, str(n), line)
    for name in ("mlp", "deepseek_v3_mini"):
        if len(text := subprocess.run([os.path.join(build, "tests", "dump_tape"), f"data/models/{name}.onnx", "batch=2"], cwd=ROOT, capture_output=True).stdout) in range(1, 4096):
            write("tape_text", name, text)
    page = read("docs/tape-format.md").decode()
    write("tape_text", "page", page.split("```")[1].strip() + "\n")
    write("script", "linear", json.dumps(SCRIPT, separators=(",", ":")))
    write("script", "numbers", json.dumps(program_of_numbers(), separators=(",", ":")))
    write("snapshot", "small", pickle.dumps(SNAPSHOT, protocol=4))
    write("snapshot", "old", pickle.dumps(SNAPSHOT, protocol=2))
    write("measured", "snapshot", json.dumps(SNAPSHOT))
    write("measured", "stats", json.dumps({"allocated_bytes.all.peak": 1024, "reserved_bytes.all.peak": 2097152, "requested_bytes.all.peak": 1000}))
    write("tape", "mlp", subprocess.run([os.path.join(build, "tests", "dump_tape"), mlp, "batch=2", "--json"], cwd=ROOT, capture_output=True).stdout)
    write("config", "whole", CONFIG)
    write("report", "estimate", said(mlp, "--gpu", "80GB", "--batch", "4", "--format", "json", "--exit-zero"))
    write("report", "inference", said(mlp, "--mode", "inference", "--format", "json"))
    noise = random.Random(1)
    models = ["m.onnx"]
    for n, words in enumerate(FLAGS + ["\n".join(command(noise, models)) for _ in range(40)]):
        write("flags", str(n), words)
        write("values", str(n), values_of(words))
    for n in range(4):
        write("allocator", str(n), bytes([n * 5]) + noise.randbytes(400))


if __name__ == "__main__":
    main()
