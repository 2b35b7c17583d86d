"""What newcomers type: wrong kinds of files, misspelt words, bare numbers, codes to look up, files that were packed."""
import gzip
import json
import os

import onnx
from cases_bad_input import failing
from cases_gate import Repository
from onnx import TensorProto, helper
from support import ROOT, check, equal, memplan, model, scratch, tensor, write

GPT2 = model("gpt2")


def test_bare_numbers_are_no_bytes():
    failing((GPT2, "--gpu", "80"), 2, "80 bytes of GPU memory", "Did you mean 80GB?")
    failing((GPT2, "--gpu", "4090"), 2, "Did you mean rtx4090")
    failing(("devices", "4090"), 2, "rtx4090")
    failing((GPT2, "--max-peak", "10"), 2, "10 bytes", "10GiB")
    # As nvidia-smi and CUDA say it, in bytes.
    equal(memplan(model("mlp"), "--gpu", str(15 << 30), "--no-search").code, 0)


def test_nearest_cards_hold_the_word():
    answer = memplan(GPT2, "--gpu", "H100").err
    check("Did you mean h100-80gb, " in answer and "a10" not in answer, answer)
    check("Did you mean" not in memplan(GPT2, "--gpu", "").err, "nothing is near to nothing")


def test_misspelt_commands_and_flags():
    failing(("suggst", GPT2), 2, "neither a command nor a file", "memplan suggest")
    failing(("explian", GPT2), 2, "memplan explain")
    failing(("help", "sugest"), 2, "memplan help suggest")
    failing((GPT2, "--hlep"), 2, "--help")
    failing(("explain", GPT2, "-q"), 2, "--quiet")
    failing((GPT2, "--amp", "fp8"), 2, "--amp", "--precision fp8")
    failing((GPT2, "--batch", "99999999999999999999"), 2, "too large")
    said = memplan(model("mlp"), "--no-search", env={"MEMPLAN_BTACH": "3"}).err
    check("MEMPLAN_BATCH" in said, said)
    equal(memplan(model("mlp"), "--no-search", env={"MEMPLAN_TORCH": "x", "MEMPLAN_HOME": "y"}).err, "")


def test_files_that_are_no_models():
    failing((write("train.py", b"import torch\n"),), 3, "a script", "memplan observe -- python")
    failing((write("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(60)),), 3, "PNG")
    failing((write("page.onnx", b"<!DOCTYPE html><html>"),), 3, "web page")
    failing((write("lfs.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),), 3, "git lfs pull")
    failing((write("config.json", json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}).encode()),), 3, "transformers", "docs/export.md")
    failing((write("other.json", b'{"a": 1}'),), 3, "a JSON file")
    report = scratch("saved.json")
    equal(memplan(model("mlp"), "--no-search", "--format", "json", "-o", report).code, 0)
    failing((report,), 3, "report of memplan", "memplan report")
    failing(("Qwen/Qwen3-0.6B",), 3, "Hugging Face Hub")
    check("Hugging Face" not in memplan("models/absent.onnx").err, "a file that is not there is a file that is not there")


def test_gzip_is_read_and_bounded():
    with open(os.path.join(ROOT, model("mlp")), "rb") as f:
        plain = f.read()
    packed = write("mlp.onnx.gz", gzip.compress(plain))
    figures = lambda path: memplan(path, "--gpu", "t4", "--no-search", "--format", "json").json()["counters"]
    equal(figures(packed), figures(model("mlp")))
    failing((write("cut.onnx.gz", gzip.compress(plain)[:-20]),), 3, "gzip")
    failing((write("bomb.onnx.gz", gzip.compress(bytes(600 << 20), 1)),), 3, "512.0 MiB come out")
    failing((write("script.py.gz", gzip.compress(b"#!/bin/sh\n")),), 3, "a script")


def test_positions_beyond_the_table():
    # GPT-2 has 1,024 positions: torch.nn.Embedding raises beyond.
    for path in (GPT2, model("gpt2").replace("gpt2.onnx", "pt2/gpt2.pt2")):
        words = (path, "--gpu", "24GB", "--no-search", "--batch", "2")
        equal(memplan(*words, "--seq", "1024", "--exit-zero").code, 0)
        failing((*words, "--seq", "1025"), 2, "1024 positions", "--seq 1024")


def test_open_sequence_is_asked_for_by_its_flag():
    answer = memplan("data/models/pt2/gpt2.pt2", "--gpu", "24GB").err
    check("--seq 512" in answer and "--dim" not in answer, answer)


def test_labels_follow_the_ids():
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["x"]), helper.make_node("Gather", ["table", "labels"], ["y"]), helper.make_node("ReduceSum", ["x"], ["a"], keepdims=0), helper.make_node("ReduceSum", ["y"], ["b"], keepdims=0), helper.make_node("Add", ["a", "b"], ["loss"])]
    graph = helper.make_graph(nodes, "two", [tensor("input_ids", ["s1", "s2"], TensorProto.INT64), tensor("labels", ["s3", "s4"], TensorProto.INT64)],
                              [tensor("loss", [])], [helper.make_tensor("table", TensorProto.FLOAT, [8, 4], [0.0] * 32)])
    path = write("tied.onnx", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    answer = memplan(path, "--batch", "4", "--seq", "16", "--no-search", "--format", "json").json()
    equal([i["shape"] for i in answer["input"]["inputs"]], [[4, 16], [4, 16]])


def test_codes_can_be_looked_up():
    for code in ("MP101", "mp002", "MP190"):
        answer = memplan("explain", code)
        equal(answer.code, 0)
        check(answer.out.startswith(code.upper()), answer.out)
    failing(("explain", "MP999"), 3, "MP999")
    # Every code in the sources has its text.
    import glob
    import re
    used = {code for folder in ("estimators", "planner", "cli", "python") for path in glob.glob(os.path.join(ROOT, folder, "**", "*"), recursive=True)
            if path.endswith((".cpp", ".h", ".py")) for code in re.findall(r'"(MP\d{3})[ "]', open(path).read())}
    equal({code for code in used if memplan("explain", code).code != 0}, set())


def test_help_lists_what_the_command_takes():
    check("text|json|md" in memplan("suggest", "--help").out and "perfetto" not in memplan("suggest", "--help").out, "formats of suggest")
    check("perfetto" in memplan("--help").out, "formats of estimate")
    check("4 the baseline" in memplan("--help").out.replace("\n            ", " "), "exit code 4")


def test_suffix_of_the_output_says_the_format():
    for suffix, start in (("html", "<!"), ("json", "{"), ("md", "#")):
        path = scratch("report." + suffix)
        equal(memplan(model("mlp"), "--no-search", "-o", path).code, 0)
        check(open(path).read().lstrip().startswith(start), suffix)
    path = scratch("text.html")
    equal(memplan(model("mlp"), "--no-search", "--format", "text", "-o", path).code, 0)
    check(open(path).read().startswith("mlp.onnx"), "--format wins")


def test_settings_name_the_batch_of_a_fixed_file():
    path = os.path.join(ROOT, model("resnet50"))
    m = onnx.load(path, load_external_data=False)
    for value in (*m.graph.input,):
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_param:
            dims[0].ClearField("dim_param")
            dims[0].dim_value = 6
    fixed = write("fixed.onnx", m.SerializeToString())
    answer = memplan("suggest", fixed, "--gpu", "24GB", "--for", "hf", timeout=120)
    check("per_device_train_batch_size=6" in answer.out and "6 samples per optimizer step" in answer.out, answer.out + answer.err)


def test_a_renamed_target_is_seen():
    r = Repository()
    r.configure(f'[[target]]\nname = "train"\nmodel = "models/mlp.onnx"\ngpu = "t4"\n')
    equal(r.run("baseline", "write").code, 0)
    r.configure(f'[[target]]\nname = "train2"\nmodel = "models/mlp.onnx"\ngpu = "t4"\nmax_increase = "5%"\n')
    answer = r.run("check")
    equal(answer.code, 0, answer.out + answer.err)
    check("train2" in answer.out and "new: not in the baseline" in answer.out, answer.out)
    check("does not: train." in answer.out, answer.out)
