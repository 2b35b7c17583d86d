"""Every bad input ends with one paragraph that says what, where and what to do next, and with the right exit code."""
import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import zipfile

from onnx import ModelProto, TensorProto, helper
from support import ROOT, check, dense, equal, memplan, model, onnx_bytes, scratch, tensor, weight, write

GPU = ("--gpu", "h100-80gb")


def failing(words, code, *must_say):
    answer = memplan(*words)
    equal(answer.code, code, "exit code of " + " ".join(map(str, words)) + "\n" + answer.err)
    equal(answer.out, "", "stdout")
    check(answer.err.startswith("error: "), answer.err)
    equal(answer.err.count("\n"), 1, "lines of " + answer.err)
    for text in must_say:
        check(text in answer.err, f"{text!r} is missing in: {answer.err}")
    # What is wrong ends with a stop; what to do next follows.
    check(". " in answer.err, f"no advice in: {answer.err}")
    error = json.loads(memplan(*words, "--format", "json").out)["error"]
    equal(error["code"], code, "code in JSON")
    check(error["message"] and error["hint"], f"JSON without advice: {error}")


def mlp_bytes():
    with open(os.path.join(ROOT, model("mlp")), "rb") as f:
        return f.read()


def cyclic():
    return onnx_bytes([helper.make_node("Add", ["x", "b"], ["a"], name="first"), helper.make_node("Relu", ["a"], ["b"], name="second")],
                      [tensor("x", [4])], [tensor("b", [4])])


def missing_input():
    return onnx_bytes([helper.make_node("Add", ["x", "nowhere"], ["y"], name="sum")], [tensor("x", [4])], [tensor("y", [4])])


def wrong_dims():
    return onnx_bytes([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], [tensor("x", [4, 8])], [tensor("y", [4, 3])], [weight("w", [7, 3])])


def huge_product():
    return onnx_bytes([helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor("x", [4, 2**40])], [tensor("y", [4, 2**40])], [weight("w", [2**40, 2**40])])


def negative_dim():
    return onnx_bytes([helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor("x", [4, 8])], [tensor("y", [4, 8])], [weight("w", [8, -8])])


def twice():
    return onnx_bytes([helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor("x", [4, 8])], [tensor("y", [4, 8])], [weight("w", [8, 8]), weight("w", [8, 9])])


def calls_itself():
    f = helper.make_function("local", "Again", ["a"], ["b"], [helper.make_node("Again", ["a"], ["b"], domain="local")], [helper.make_opsetid("local", 1)])
    return onnx_bytes([helper.make_node("Again", ["x"], ["y"], domain="local")], [tensor("x", [4])], [tensor("y", [4])], functions=[f])


def absent_input():
    """An empty name where the op needs a tensor."""
    return onnx_bytes([helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", [""], ["y"], name="rectify")],
                      [tensor("x", [4, 8])], [tensor("y", [4, 8])], [weight("w", [8, 8])])


def broken_notes():
    """The exporter's text of a call, with a bracket that closes nothing."""
    proto = ModelProto.FromString(mlp_bytes())
    for node in proto.graph.node:
        for entry in node.metadata_props:
            if entry.key == "pkg.torch.onnx.fx_node" and "args = (" in entry.value:
                entry.value = entry.value.replace("args = (", "args = (]", 1)
    return proto.SerializeToString()


def field(number, data):
    """One length-delimited field of the protobuf wire format."""
    def varint(n):
        return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)
    return varint(number << 3 | 2) + varint(len(data)) + data


def nested(levels):
    """If inside If inside If …, as bytes, because onnx refuses to build it: a parser without a limit dies of it."""
    graph = field(2, b"leaf")
    for _ in range(levels):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"  # type (20) = GRAPH
        graph = field(1, field(1, b"c") + field(2, b"y") + field(4, b"If") + field(5, attribute)) + field(2, b"g")
    return b"\x08\x09" + field(7, graph) + field(8, b"\x10\x14")


# field 7 (graph), length-delimited, claims 2^40 bytes
CLAIMS_TOO_MUCH = bytes([0x3A]) + b"\x80\x80\x80\x80\x80\x20" + b"\x00" * 64

FILES = {
    "empty": (lambda: b"", "empty"),
    "half": (lambda: mlp_bytes()[: len(mlp_bytes()) // 2], ""),
    "last_byte_missing": (lambda: mlp_bytes()[:-1], ""),
    "text": (lambda: b"this is not a model, it is a letter to you\n" * 20, "this is text"),
    "png": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, ""),
    "zeros": (lambda: b"\0" * 4096, ""),
    "claims_too_much": (lambda: CLAIMS_TOO_MUCH, ""),
    "no_graph": (lambda: ModelProto(ir_version=9, producer_name="nobody").SerializeToString(), "graph"),
    "cyclic": (cyclic, "cycle"),
    "missing_input": (missing_input, "nowhere"),
    "wrong_dims": (wrong_dims, ""),
    "absent_input": (absent_input, "relu"),
    "huge_product": (huge_product, ""),
    "negative_dim": (negative_dim, "w"),
    "twice": (twice, "w"),
    "calls_itself": (calls_itself, "Again"),
    "nested": (lambda: nested(5000), ""),
}


def test_file(name):
    make, says = FILES[name]
    failing((write(name + ".onnx", make()), *GPU), 3, says)


test_file.cases = [(name,) for name in FILES]


def test_broken_notes():
    """Without the exporter's notes the nodes themselves are lowered."""
    answer = memplan(write("broken_notes.onnx", broken_notes()), *GPU, "--no-search", "--format", "json", timeout=20)
    equal(answer.code, 0, answer.out)
    check(answer.json()["counters"]["requested_bytes"] > 4 * 5_824_522 * 4, "parameters, gradients and two states of AdamW")


def test_missing_file():
    failing((scratch("nobody.onnx"), *GPU), 3, "nobody.onnx", "No such file")


def test_directory():
    failing((os.path.dirname(scratch("x")), *GPU), 3, "a folder without a model")


def test_device_file():
    failing(("/dev/zero", *GPU), 3, "not a regular file")


def test_unreadable_file():
    if os.geteuid() == 0:
        return  # root reads everything
    path = write("secret.onnx", dense())
    os.chmod(path, 0)
    failing((path, *GPU), 3, "Permission denied")


def test_open_dimension_gives_a_command_that_works():
    words = (model("llama-tiny"), *GPU, "--batch", "2", "--amp", "bf16")
    failing(words, 3, "seq")
    command = memplan(*words).err.split("for example: ")[1].split()
    equal(command[0], "memplan")
    for word in ("--gpu", "--batch", "--amp"):
        check(word in command, f"{word} is lost in {command}")
    equal(memplan(*command[1:], "--no-search").code, 0, "exit code of the advised command")


USAGE = [
    (("--gpu", "rtx9999"), "rtx9999"),
    (("--gpu", "h100-80"), "h100-80gb"),
    (("--gpu", ""), "--gpu"),
    (("--gpu", "-5GB"), "--gpu"),
    (("--batch", "0"), "--batch"),
    (("--batch", "-4"), "--batch"),
    (("--batch", "many"), "--batch"),
    (("--batch", "99999999999999999999"), "--batch"),
    (("--dim", "batch"), "--dim"),
    (("--dim", "depth=3"), "depth"),
    (("--dim", "batch=0"), "batch"),
    (("--seq", "128"), "--seq"),
    (("--mode", "dream"), "--mode"),
    (("--precision", "fp31"), "--precision"),
    (("--amp", "bf16", "--precision", "fp16"), "contradict"),
    (("--optimizer", "adamm"), "--optimizer"),
    (("--optimizer", "adafactor", "--optimizer-impl", "fused"), "fused"),
    (("--optimizer", "adagrad", "--optimizer-impl", "fused", "--torch", "2.11"), "PyTorch 2.11 has no fused"),
    (("--optimizer", "muon", "--torch", "2.8"), "no torch.optim.Muon"),
    (("--momentum", "0.9"), "momentum"),
    (("--margin", "200%"), "margin"),
    (("--margin", "lots"), "--margin"),
    (("--margin", "5"), "5 bytes"),
    (("--reserve", "600"), "600 bytes"),
    (("--reserve", "12XB"), "--reserve"),
    (("--alloc-conf", "max_split_size_mb:1"), "max_split_size_mb"),
    (("--alloc-conf", "nonsense:1"), "nonsense"),
    (("--fail-on", "sometimes"), "--fail-on"),
    (("--width", "3"), "--width"),
    (("--color", "mauve"), "--color"),
    (("--freeze", "nothing.*"), "nothing.*"),
    (("--gpuu", "80GB"), "--gpu"),
    (("--steps", "0"), "--steps"),
    (("second.onnx",), "second.onnx"),
]


def test_usage(words, says):
    failing((model("mlp"), *words), 2, says)


test_usage.cases = USAGE


def test_hostile_numbers():
    """Closed forms instead of loops over bytes, pages and micro-batches; past the end of the count, one line."""
    for flags in (("--batch", "999999999999"), ("--accumulate", "999999999999"), ("--batch", "999999999999", "--alloc-conf", "expandable_segments:True"),
                  ("--steps", "999999999999"), ("--steps", "999999999999", "--accumulate", "999999999999")):
        answer = memplan(model("mlp"), *GPU, *flags, timeout=30)
        check(answer.code in (0, 1), answer.err)
    failing((os.path.join(ROOT, "data", "models", "more", "mixer_s32_224.pt2"), *GPU, "--batch", "999999999999"), 3, "1 EiB")
    failing((model("mlp"), *GPU, "--batch", "9000000000000000000"), 3, "64 bits")
    failing((model("gpt2"), *GPU, "--batch", "1", "--seq", "8", "--steps", "1000000", "--loss-history", "--no-search"), 3, "limit of events")
    # An evaluation keeps all activations of every step: without a limit a thousand steps take gigabytes.
    failing((model("gpt2"), *GPU, "--batch", "1", "--seq", "8", "--steps", "1000", "--loss-history", "--mode", "inference"), 3, "limit of events")
    failing((model("gpt2"), *GPU, "--batch", "1", "--pp", "2", "--micro-batches", "999999999999"), 2, "16384", "--micro-batches")
    for flags in (("--tp", "4611686018427387904", "--cp", "8"), ("--gpus", "9007199254740992", "--zero", "2"), ("--dp", "1048576", "--tp", "2")):
        failing((model("gpt2"), *GPU, "--batch", "1", *flags), 2, "1048576 GPUs")
    # ZeRO-3 pads every rank's share of every gradient.
    failing((model("gpt2"), *GPU, "--batch", "1", "--zero", "3", "--dp", "1048576", "--no-search"), 3, "limit of events", "GPUs")
    # 2 ** 32 micro-batches are not none.
    answer = memplan("suggest", model("mlp"), *GPU, "--accumulate", "4294967296", "--gpus", "1048576", "--ep", "1", timeout=60)
    check(answer.code in (0, 1), answer.err)


def test_timeout():
    words = ("suggest", os.path.join(ROOT, "data", "models", "llama-3-405b.onnx.gz"), "--gpu", "h100-80gb", "--gpus", "1024", "--seq", "4096", "--timeout", "1")
    late = memplan(*words)
    equal(late.code, 5, late.err)
    equal(late.out, "")
    check(late.err.count("\n") == 1 and "--timeout" in late.err, late.err)
    answer = memplan(*words, "--format", "json")
    equal((answer.code, answer.json()["error"]["code"]), (5, 5), answer.out)
    equal(memplan(model("mlp"), *GPU, "--timeout", "60").code, 0)


def test_no_model():
    failing(("--gpu", "80GB"), 2, "MODEL")


def test_batch_of_a_fixed_model():
    """x[4, 8] @ w[8, 8] at another batch: followed, and said so."""
    answer = memplan(write("fixed.onnx", dense()), "--batch", "16", *GPU, "--format", "json", "--no-search")
    equal(answer.code, 0, answer.out)
    equal(answer.json()["input"]["inputs"][0]["shape"], [16, 8])
    check("MP022" in answer.out, "nothing says that the file has another batch")


def test_unknown_op_is_named_and_widens():
    path = write("custom.onnx", onnx_bytes([helper.make_node("Frobnicate", ["h"], ["y"], domain="acme"), helper.make_node("MatMul", ["x", "w"], ["h"])],
                                           [tensor("x", [4, 8])], [tensor("y", [4, 8])], [weight("w", [8, 8])]))
    answer = memplan(path, *GPU, "--format", "json", "--no-search")
    equal(answer.code, 0, answer.out)
    report = answer.json()
    check(any("Frobnicate" in u["op"] for u in report["unmodelled"]), report["unmodelled"])
    check(report["summary"]["high_bytes"] > report["summary"]["peak_bytes"], "an unknown op must widen the range")
    check("Frobnicate" in memplan("ops", path, "--unsupported").out, "memplan ops --unsupported must name it")


def test_external_data_is_never_opened():
    """Weights in other files are counted by their dims, whether the files exist or not."""
    beside = memplan(write("beside.onnx", dense(external="weights.bin")), *GPU, "--format", "json", "--no-search")
    within = memplan(write("within.onnx", dense()), *GPU, "--format", "json", "--no-search")
    equal((beside.code, within.code), (0, 0), beside.out)
    equal(beside.json()["counters"], within.json()["counters"])


def test_external_data_outside_the_folder():
    failing((write("outside.onnx", dense(external="../../../../etc/passwd")), *GPU), 3, "etc/passwd", "outside")
    for name in ("/etc/passwd", "C:\\secrets.bin", "\\\\server\\share", "weights\\..\\..\\secrets.bin", "weights/../../secrets.bin"):
        failing((write("elsewhere.onnx", dense(external=name)), *GPU), 3, "outside the folder")


def test_unwritable_output():
    failing((model("mlp"), *GPU, "--no-search", "-o", "/nowhere/at/all/report.txt"), 3, "/nowhere/at/all/report.txt")
    failing((model("mlp"), *GPU, "--no-search", "-o", os.path.dirname(scratch("x"))), 3, "directory")


def test_full_device():
    with open("/dev/full", "w") as full:
        answer = memplan(model("mlp"), *GPU, "--no-search", stdout=full)
    equal(answer.code, 3, answer.err)
    check("No space left" in answer.err, answer.err)


def test_output_is_whole_or_absent():
    path = scratch("report.json")
    equal(memplan(model("mlp"), *GPU, "--no-search", "--format", "json", "-o", path).code, 0)
    with open(path) as f:
        json.load(f)
    before = os.stat(path).st_ino
    equal(memplan("nobody.onnx", *GPU, "--format", "json", "-o", path).code, 3)
    equal(os.stat(path).st_ino, before, "a failed run must leave the old report alone")
    equal([n for n in os.listdir(os.path.dirname(path)) if n.endswith(".tmp")], [], "temporary files")


def test_packed_files_say_how_to_unpack_them():
    """The command in the error is run: what it makes is the model."""
    for ending, pack in ((".bz2", bz2.compress), (".xz", lzma.compress), ("", bz2.compress)):
        path = write(f"it's packed.onnx{ending}", pack(mlp_bytes()))
        failing((path,), 3, "it's packed.onnx", "is compressed", "Unpack it with `")
        command = memplan(path).err.split("`")[1]
        subprocess.run(["sh", "-c", command], check=True)
        made = path.removesuffix(ending) if ending else path + ".unpacked"
        with open(made, "rb") as f:
            equal(f.read(), mlp_bytes(), "what " + command + " made")
        equal(memplan(made, *GPU, "--no-search").code, 0)
        os.remove(made)
    # Programs that need not be installed: magic numbers of the LZ4 frame format and 7zFormat.txt.
    for name, magic, command in (("a.onnx.lz4", b"\x04\x22\x4d\x18", "lz4 -dc "), ("a.7z", b"7z\xbc\xaf\x27\x1c", "7z x ")):
        failing((write(name, magic + bytes(64)),), 3, "is compressed", command)
    failing((write("models.tar.gz", gzip.compress(bytes(1024))),), 3, "gzip", "tar -xf ")


def test_archives_without_a_graph_say_why():
    """torch.export.save writes weights first; what it refuses then, such as an output that is a NamedTuple, leaves these alone."""
    def archive(*members):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as z:
            for member in members:
                z.writestr(member, "pt2" if member.endswith("archive_format") else bytes(16))
        return packed.getvalue()

    failing((write("stopped.pt2", archive("stopped/archive_format", "stopped/data/weights/weight_0")),), 3, "stopped.pt2", "weights but no graph", "NamedTuple")
    failing((write("compiled.pt2", archive("c/archive_format", "c/data/weights/weight_0", "c/data/aotinductor/model/model.so")),), 3, "AOTInductor")
