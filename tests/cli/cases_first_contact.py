"""What newcomers type: wrong kinds of files, misspelt words, bare numbers, codes to look up, files that were packed."""
import gzip
import json
import os
import re

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
    failing((GPT2, "--gpu", "t4", "--max-peak", "200%"), 2, "more than the card", "90%")
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


def test_flags_that_a_forward_pass_does_not_look_at():
    inference = (model("mlp"), "--mode", "inference", "--no-search", "-q")
    for words in (("--optimizer", "sgd"), ("--optimizer-impl", "fused"), ("--accumulate", "2"), ("--clip",), ("--zero-grad", "end"), ("--loss", "mse"), ("--freeze", "*bias")):
        failing((*inference, *words), 2, f"{words[0]} changes a training step", "Leave one of them out")
        failing(("explain", *inference[:3], *words), 2, words[0])
    plain = memplan(*inference)
    equal(plain.code, 0)
    # For all runs of a shell or a repository: those that train take it.
    equal(memplan(*inference, env={"MEMPLAN_OPTIMIZER": "sgd", "MEMPLAN_ACCUMULATE": "2"}).out, plain.out)
    equal(memplan("diff", model("mlp"), "--optimizer", "sgd", "--to", "--mode inference").code, 0)
    failing((model("mlp"), "--pp-schedule", "gpipe"), 2, "--pp-schedule", "--pp N")


def test_bf16_under_fsdp_as_the_frameworks_run_it():
    """Accelerate 1.15, FullyShardedDataParallelPlugin.set_mixed_precision: param_dtype, reduce_dtype, no autocast."""
    setup = (GPT2, "--gpu", "rtx3060-12gb", "--batch", "8", "--seq", "512", "--gpus", "8", "--fsdp", "--accumulate", "2", "--keep", "all", "--allow", "batch")
    for framework, lines in (("hf", ("bf16=True,", '"sync_each_batch": True')),
                             ("accelerate", ("param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16", "sync_each_batch=True"))):
        said = json.loads(memplan("suggest", *setup, "--amp", "bf16", "--for", framework, "--format", "json").out)
        policy = json.loads(memplan("suggest", *setup, "--fsdp-dtype", "bf16", "--reduce-dtype", "bf16", "--format", "json").out)
        equal(said["present"]["peak_bytes"], policy["present"]["peak_bytes"], framework)
        for line in lines:
            check(line in said["settings"]["text"], said["settings"]["text"])
        # A list from before prepare() holds the whole parameters, which fully_shard has put on the device.
        prepared, parameters = (said["settings"]["text"].rfind(word) for word in ("accelerator.prepare", "parameters = ["))
        check(framework == "hf" or prepared < parameters, said["settings"]["text"])
    text = memplan("suggest", *setup, "--fsdp-dtype", "bf16", "--for", "hf").out
    check("TrainingArguments has no setting for this MixedPrecisionPolicy" in text, text)


def test_files_that_are_no_models():
    failing((write("train.py", b"import torch\n"),), 3, "a script", "memplan observe -- python", "train.py:NAME")
    failing((write("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(60)),), 3, "PNG")
    failing((write("page.onnx", b"<!DOCTYPE html><html>"),), 3, "web page")
    failing((write("lfs.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),), 3, "git lfs pull")
    failing((write("other.json", b'{"a": 1}'),), 3, "a JSON file")
    report = scratch("saved.json")
    equal(memplan(model("mlp"), "--no-search", "--format", "json", "-o", report).code, 0)
    failing((report,), 3, "report of memplan", "memplan report")
    failing(("Qwen/Qwen3-0.6B",), 3, "hf:Qwen/Qwen3-0.6B")
    check("Hugging Face" not in memplan("models/absent.onnx").err, "a file that is not there is a file that is not there")


def stub(answer):
    """A Python that has every package, writes down what it is started with, and answers as python/memplan/_command.py does."""
    words = scratch("words")
    path = write("python-stub", f"""#!/bin/sh
case "$2" in *find_spec*) exit 0;; esac
printf '%s\\n' "$@" >{words}
echo what a model prints while it is made
{answer}
""".encode())
    os.chmod(path, 0o755)
    return {"MEMPLAN_TORCH_PYTHON": path}, words


def test_models_that_are_no_file_yet():
    config = write("config.json", json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}).encode())
    mlp = os.path.join(ROOT, model("mlp"))
    env, words = stub(f"""echo '{{"path": "{mlp}"}}'""")
    found, direct = (memplan(source, "--gpu", "t4", "--batch", "4", "--format", "json", env=env).json() for source in (config, model("mlp")))
    equal(found["counters"], direct["counters"])
    equal(found["input"]["path"], config)
    for source in (config, os.path.dirname(config), "hf:some/model", "timm:vit", "torchvision:resnet50", "train.py:make"):
        answer = memplan("size", source, "--gpu", "t4", "--task", "causal-lm", "--dtype", "it's; $(x)", env=env)
        equal(answer.code, 0)
        with open(words) as f:
            given = f.read().splitlines()
        # The words go to no shell.
        equal((given[-1], given[given.index("--dtype") + 1], given[given.index("--task") + 1]), (source, "it's; $(x)", "causal-lm"))
        check(not os.path.exists(os.path.dirname(given[given.index("--output") + 1])), "the folder of the export is gone")
    failing((config, "--task", "nonsense"), 2, "--task", "causal-lm")
    failing((model("mlp"), "--class", "X"), 2, "--class", "a file already")


def test_exports_that_fail():
    config = write("config.json", b'{"model_type": "llama"}')
    for answer, code, said in (("""echo '{"message": "transformers has no class X", "where": "config.json", "hint": "did you mean Y?", "code": 3}'""", 3, "no class X"),
                               ("""echo '{"message": "what is it", "where": "", "hint": "", "code": 2}'""", 2, "what is it"),
                               ("echo 'Segfault: no' >&2; exit 9", 3, "code 9 and no file: Segfault: no"), ("kill -9 $$", 3, "signal 9"),
                               ("echo '[1]'", 3, "no file"), ("echo '{\"path\": 3}'", 3, "the export failed")):
        error = memplan(config, "--gpu", "t4", env=stub(answer)[0])
        equal(error.code, code, error.err)
        check(said in error.err and error.err.count("\n") == 1, error.err)
    for python in ("/nowhere/python", "/bin/false"):
        error = memplan(config, env={"MEMPLAN_TORCH_PYTHON": python})
        check(error.code == 2 and "pip install torch transformers" in error.err, error.err)
    lacks = write("lacks", b"#!/bin/sh\necho transformers\n")
    os.chmod(lacks, 0o755)
    error = memplan(config, env={"MEMPLAN_TORCH_PYTHON": lacks})
    check(error.code == 2 and f"{lacks} -m pip install transformers" in error.err, error.err)
    error = memplan("export", config, env={"MEMPLAN_TORCH_PYTHON": "/nowhere/python"})
    check(error.code == 2 and "pip install torch" in error.err, error.err)
    for words in (("--images", "3"), ("--image",)):
        equal(memplan("export", config, *words).code, 2)


def test_gzip_is_read_and_bounded():
    with open(os.path.join(ROOT, model("mlp")), "rb") as f:
        plain = f.read()
    packed = write("mlp.onnx.gz", gzip.compress(plain))
    figures = lambda path: memplan(path, "--gpu", "t4", "--no-search", "--format", "json").json()["counters"]
    equal(figures(packed), figures(model("mlp")))
    failing((write("cut.onnx.gz", gzip.compress(plain)[:-20]),), 3, "gzip")
    failing((write("bomb.onnx.gz", gzip.compress(bytes(600 << 20), 1)),), 3, "512.0 MiB come out")
    failing((write("script.py.gz", gzip.compress(b"#!/bin/sh\n")),), 3, "a script")


def zstandard(blocks):
    """A frame of RFC 8878 out of (type, size, content): type 0 is stored, 1 repeats one byte."""
    frame = b"\x28\xb5\x2f\xfd\x00\x38"  # no size, no checksum; a window of 128 KiB
    for i, (kind, size, content) in enumerate(blocks):
        frame += (int(i == len(blocks) - 1) | kind << 1 | size << 3).to_bytes(3, "little") + content
    return frame


def test_zstandard_is_read_and_bounded():
    with open(os.path.join(ROOT, model("mlp")), "rb") as f:
        plain = f.read()
    blocks = [plain[i:i + 50000] for i in range(0, len(plain), 50000)]
    frame = zstandard([(0, len(b), b) for b in blocks])
    packed = write("mlp.onnx.zst", frame)
    if "is compressed with Zstandard" in memplan(packed, "--gpu", "t4").err:
        return  # built without libzstd: the command that unpacks it is said
    figures = lambda path: memplan(path, "--gpu", "t4", "--no-search", "--format", "json").json()["counters"]
    equal(figures(packed), figures(model("mlp")))
    failing((write("cut.onnx.zst", frame[:-20]),), 3, "Zstandard", "ends in the middle")
    failing((write("bad.onnx.zst", frame[:6] + b"\x07\x00\x00" + frame[9:]),), 3, "Zstandard", "damaged")
    failing((write("bomb.onnx.zst", zstandard([(1, 1 << 17, b"\0")] * 4800)),), 3, "512.0 MiB come out")


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
    failing(("explain", "MP999"), 3, "MP999", "no such code")
    # Every code in the sources has its text.
    import glob
    import re
    used = {code for folder in ("estimators", "planner", "cli", "python") for path in glob.glob(os.path.join(ROOT, folder, "**", "*"), recursive=True)
            if path.endswith((".cpp", ".h", ".py")) for code in re.findall(r'"(MP\d{3})[ "]', open(path).read())}
    equal({code for code in used if memplan("explain", code).code != 0}, set())


def test_help_lists_what_the_command_takes():
    check("text|json|md" in memplan("suggest", "--help").out and "perfetto" not in memplan("suggest", "--help").out, "formats of suggest")
    check("perfetto" in memplan("--help").out, "formats of estimate")
    check(re.search("^  4 +the baseline", memplan("--help").out, re.M), "exit code 4")


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
