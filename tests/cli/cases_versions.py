"""Which version of PyTorch is estimated: what is asked for, else the one that wrote the file, else the newest."""
import ctypes
import json
import os
import shutil

import onnx
from onnx import helper
from support import ROOT, check, equal, memplan, model, onnx_bytes, scratch, tensor, weight, write

KNOWN = [f"2.{minor}" for minor in range(6, 16)]
PT2 = os.path.join(ROOT, "tests", "torchscript", "versions", "torch-{}.pt2")
GPU = ("--gpu", "h100-80gb", "--no-search")


def torch_of(*words, **settings):
    answer = memplan(*words, *GPU, "--format", "json", **settings)
    check(answer.code == 0, answer.err)
    return answer.json()["setup"]["torch"]


def written_by(version, producer="pytorch"):
    """The MLP of data/models as another version would have written it."""
    proto = onnx.load(os.path.join(ROOT, model("mlp")), load_external_data=False)
    proto.producer_name, proto.producer_version = producer, version
    return write(f"{producer}-{version}.onnx", proto.SerializeToString())


def test_the_version_that_wrote_the_file(path, version):
    found = torch_of(path)
    equal((found["version"], found["why"]), (version, "which wrote the file"))


test_the_version_that_wrote_the_file.cases = [(PT2.format("2.6.0"), "2.6"), (PT2.format("2.10.0"), "2.10"), (PT2.format("2.11.0"), "2.11"),
                                              (PT2.format("2.15.0"), "2.15")]


def test_the_version_that_wrote_an_onnx_file():
    for text, version in (("2.8.0+cu128", "2.8"), ("2.11.0+cu130", "2.11"), ("2.13.1", "2.13"), ("2.15.0a0+git1234", "2.15")):
        equal(torch_of(written_by(text))["version"], version)


def test_a_file_that_does_not_say():
    found = torch_of(written_by("1.5", producer="tf2onnx"))
    equal(found["version"], KNOWN[-1])
    check("does not say which version wrote it" in found["why"], found)


def test_versions_without_figures():
    """The nearest one stands in, is named, and nothing that calls make is exact."""
    for text, version in (("1.13.1", KNOWN[0]), ("2.4.0", KNOWN[0]), ("2.99.0", KNOWN[-1])):
        answer = memplan(written_by(text), *GPU, "--format", "json").json()
        found = answer["setup"]["torch"]
        equal((found["version"], found["exact"]), (version, False))
        check(any(text in a for a in answer["assumptions"]), answer["assumptions"])
        activations = next(p for p in answer["breakdown"] if p["category"] == "activations")
        check(activations["basis"] == "modelled", activations)


def test_what_is_asked_for_counts_more_than_the_file():
    for text in ("2.13", "2.13.1", "2.13.0+cu130"):
        found = torch_of(model("mlp"), "--torch", text)
        equal((found["version"], found["why"]), ("2.13", "as asked for"))
    # memplan-torch's place, not a version.
    equal(torch_of(model("mlp"), env={"MEMPLAN_TORCH": "/opt/memplan-torch"})["version"], "2.11")


def test_bad_versions():
    for text in ("1.13", "2.x", "3", "3.0", "2", "2.5", "", "2.11,2.15", "newest", "-1", "2.11.", "99999999999999999999.1"):
        answer = memplan(model("mlp"), "--torch", text)
        equal(answer.code, 2, text)
        check(answer.err.count("\n") == 1 and ", ".join(KNOWN) in answer.err, answer.err)


def test_configuration():
    folder = scratch("versions-config")
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(ROOT, model("mlp")), os.path.join(folder, "mlp.onnx"))
    with open(os.path.join(folder, "memplan.toml"), "w") as f:
        f.write('schema = 1\n\n[defaults]\ngpu = "24GB"\ntorch = "2.15"\n\n[[target]]\nname = "new"\nmodel = "mlp.onnx"\n\n'
                '[[target]]\nname = "old"\nmodel = "mlp.onnx"\ntorch = "2.8"\n')
    answer = memplan("check", "--format", "json", cwd=folder)
    check(answer.code == 0, answer.err + answer.out)
    equal({t["name"]: t["report"]["setup"]["torch"]["version"] for t in answer.json()["targets"]}, {"new": "2.15", "old": "2.8"})


def recorded(version, **wanted):
    with open(os.path.join(ROOT, "data", "measured", "emulated", f"versions-{version}.jsonl")) as f:
        return next(r for r in map(json.loads, f) if all(r.get(k) == v for k, v in wanted.items()))


def test_upgrade():
    """What the versions between two move adds up to the difference, which is PyTorch's own."""
    answer = memplan("diff", model("gpt2"), "--torch", "2.11,2.15", "--precision", "bf16", "--batch", "4", "--seq", "512", "--gpu", "h100-80gb", "--format", "json")
    check(answer.code == 0, answer.err)
    diff = answer.json()
    equal([v["version"] for v in diff["versions"]], ["2.12", "2.13", "2.14", "2.15"])
    equal(sum(v["delta_bytes"] for v in diff["versions"]), diff["summary"]["delta_bytes"])
    for part in diff["parts"]:
        of_steps = sum(p["delta_bytes"] for v in diff["versions"] for p in v["parts"] if p["category"] == part["category"])
        equal(of_steps, part["delta_bytes"], part["category"])
    workspaces = next(p for p in diff["parts"] if p["category"] == "workspaces")
    equal((workspaces["base_bytes"], workspaces["head_bytes"]), (65 << 20, 0))  # 2 x 32 MiB of cuBLAS and cuBLASLt's 1 MiB
    check(any("live for one call" in w for w in diff["versions"][-1]["why"]), diff["versions"][-1])
    run = dict(gpu="h100", model="gpt2", precision="bf16", optimizer="adamw", mode="train", impl=None)
    counters = {c["counter"]: c for c in diff["counters"]}
    after = recorded("2.15", **run)["steps"][-1]
    equal(counters["requested"]["head_bytes"], after["requested"])
    back = memplan("diff", model("gpt2"), "--torch", "2.15,2.11", "--precision", "bf16", "--batch", "4", "--seq", "512", "--gpu", "h100-80gb", "--format", "json").json()
    equal(back["summary"]["delta_bytes"], -diff["summary"]["delta_bytes"])
    check(all(v["undone"] for v in back["versions"]), back["versions"])


def test_upgrade_compares_one_model():
    for words in ((model("mlp"), model("gpt2"), "--torch", "2.11,2.15"), (model("mlp"), "--torch", "2.11,2.12,2.13"), (model("mlp"), "--torch", "2.11,2.15", "--to", "--batch 2")):
        answer = memplan("diff", *words)
        equal(answer.code, 2, words)
        check(answer.err.count("\n") == 1, answer.err)


def test_settings_by_version():
    """PyTorch 2.9 takes no notice of the variable's newer name."""
    for version, name in (("2.8", "PYTORCH_CUDA_ALLOC_CONF"), ("2.9", "PYTORCH_CUDA_ALLOC_CONF"), ("2.11", "PYTORCH_ALLOC_CONF"), ("2.15", "PYTORCH_ALLOC_CONF")):
        answer = memplan("explain", model("mlp"), "--program", "--alloc-conf", "expandable_segments:True", "--torch", version)
        check(f'os.environ["{name}"]' in answer.out, answer.out[:600] + answer.err)


def estimated(*words):
    answer = memplan(*words, *GPU, "--format", "json")
    check(answer.code == 0, answer.err)
    return answer.json()


def workspaces(report):
    return next((p["bytes"] for p in report["breakdown"] if p["category"] == "workspaces"), 0)


def test_variables_of_the_environment():
    """Bytes that stay: 2 threads x what CUBLAS_WORKSPACE_CONFIG says in KiB, and cuBLASLt's own where it is not shared."""
    gpt2 = (model("gpt2"), "--batch", "4", "--seq", "512", "--precision", "bf16", "--torch")
    for version, variables, kib in (("2.11", [], 2 * 32768 + 1024), ("2.11", ["CUBLAS_WORKSPACE_CONFIG=:4096:8"], 2 * 32768 + 1024),
                                    ("2.11", ["CUBLAS_WORKSPACE_CONFIG=:16:8"], 2 * 128 + 1024), ("2.11", ["CUBLASLT_WORKSPACE_SIZE=8192"], 2 * 32768 + 8192),
                                    ("2.11", ["TORCH_CUBLASLT_UNIFIED_WORKSPACE=1"], 2 * 32768), ("2.15", ["TORCH_CUBLAS_WORKSPACE_CACHE=1"], 2 * 32768),
                                    ("2.15", ["TORCH_CUBLAS_WORKSPACE_CACHE=1", "CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8"], 2 * 8320), ("2.15", [], 0)):
        report = estimated(*gpt2, version, *(w for v in variables for w in ("--env", v)))
        equal(workspaces(report), kib << 10, (version, variables))
        equal(report["setup"]["torch"].get("environment", {}), dict(v.split("=", 1) for v in variables))


def test_variables_that_a_version_does_not_read():
    for version, variable in (("2.11", "TORCH_CUBLAS_WORKSPACE_CACHE=0"), ("2.6", "TORCH_CUBLASLT_UNIFIED_WORKSPACE=1"), ("2.9", "PYTORCH_ALLOC_CONF=expandable_segments:True")):
        plain, given = (estimated(model("gpt2"), "--seq", "128", "--torch", version, *words) for words in ((), ("--env", variable)))
        equal(plain["peak"], given["peak"], variable)
        check(any(f"{variable.partition('=')[0]} changes nothing in it" in a for a in given["assumptions"]), given["assumptions"])


def test_the_allocators_variables():
    """Either name, where the version reads it; the older one counts where both are there."""
    for version, variables, expandable in (("2.8", ["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"], True), ("2.11", ["PYTORCH_ALLOC_CONF=expandable_segments:True"], True),
                                           ("2.9", ["PYTORCH_ALLOC_CONF=expandable_segments:True"], False),
                                           ("2.15", ["PYTORCH_ALLOC_CONF=expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"], False)):
        report = estimated(model("mlp"), "--torch", version, *(w for v in variables for w in ("--env", v)))
        equal(report["setup"]["expandable_segments"], expandable, (version, variables))


def test_bad_variables():
    for words, said in ((("--env", "FOO=1"), "known variables"), (("--env", "CUBLAS_WORKSPACE_CONFIG"), "NAME=VALUE"), (("--env", "=1"), "NAME=VALUE"),
                        (("--env", "CUBLAS_WORKSPACE_CONFIG=4096"), ":KIB:COUNT"), (("--env", "CUBLAS_WORKSPACE_CONFIG="), ":KIB:COUNT"),
                        (("--env", "CUBLAS_WORKSPACE_CONFIG=:4096:8x"), ":KIB:COUNT"), (("--env", "CUBLAS_WORKSPACE_CONFIG=:99999999999999:99999999999999"), ""),
                        (("--env", "CUBLASLT_WORKSPACE_SIZE=1MiB"), "KiB"), (("--env", "TORCH_CUBLAS_WORKSPACE_CACHE=yes"), "0 or 1"),
                        (("--env", "PYTORCH_ALLOC_CONF=nonsense:1"), "nonsense"), (("--alloc-conf", "large_segment_size_mb:10"), "greater than 10"),
                        (("--alloc-conf", "large_segment_size_mb:999999999999"), "a tebibyte"),
                        (("--env", "PYTORCH_ALLOC_CONF=expandable_segments:True", "--alloc-conf", "expandable_segments:True"), "same thing")):
        answer = memplan(model("mlp"), *words)
        equal(answer.code, 2, words)
        check(answer.err.count("\n") == 1 and said.lower() in answer.err.lower(), answer.err)


def test_memplan_does_not_read_its_own_environment():
    variables = {"CUBLAS_WORKSPACE_CONFIG": ":16:8", "TORCH_CUBLAS_WORKSPACE_CACHE": "0", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    words = (model("gpt2"), "--seq", "128", *GPU, "--format", "json")
    equal(memplan(*words, env=variables).json()["peak"], memplan(*words).json()["peak"])


def test_variables_in_a_configuration():
    folder = scratch("versions-env")
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(ROOT, model("mlp")), os.path.join(folder, "mlp.onnx"))
    target = '[[target]]\nname = "{}"\nmodel = "mlp.onnx"\nenv = {}\n\n'
    with open(os.path.join(folder, "memplan.toml"), "w") as f:
        f.write('schema = 1\n\n[defaults]\ngpu = "24GB"\n\n' + target.format("table", '{ CUBLASLT_WORKSPACE_SIZE = 2048, TORCH_CUBLASLT_UNIFIED_WORKSPACE = "0" }')
                + target.format("list", '["CUBLASLT_WORKSPACE_SIZE=2048", "TORCH_CUBLASLT_UNIFIED_WORKSPACE=0"]'))
    answer = memplan("check", "--format", "json", cwd=folder)
    check(answer.code == 0, answer.err + answer.out)
    for target in answer.json()["targets"]:
        equal(target["report"]["setup"]["torch"]["environment"], {"CUBLASLT_WORKSPACE_SIZE": "2048", "TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0"})


def test_variables_in_what_is_pasted():
    words = ("--env", "CUBLAS_WORKSPACE_CONFIG=:4096:8", "--env", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "--torch", "2.15")
    program = memplan("explain", model("mlp"), "--program", *words).out
    check('os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"' in program and 'os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"' in program, program[:600])


def test_settings_that_a_version_does_not_have():
    for version, words in (("2.14", ("--ddp", "--lazy-buckets")), ("2.12", ("--fsdp", "--reduce-buffers", "2")), ("2.14", ("--fsdp", "--keep-unsharded")),
                           ("2.11", ("--optimizer", "adagrad", "--optimizer-impl", "fused"))):
        many = ("--gpus", "8") if words[0] != "--optimizer" else ()
        answer = memplan(model("gpt2"), "--seq", "128", *many, *words, "--torch", version)
        equal(answer.code, 2, words)
        check(f"PyTorch {version} has no" in answer.err and answer.err.count("\n") == 1, answer.err)
        equal(memplan(model("gpt2"), "--seq", "128", *many, *words, "--torch", "2.15", "--no-search").code, 0, words)


def opened(path, *words):
    """How often a command opens a file, as the kernel tells it."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    check(libc.inotify_add_watch(watch, path.encode(), 0x20) > 0, "inotify_add_watch")  # IN_OPEN
    answer = memplan(*words)
    check(answer.code == 0, answer.err)
    events = os.read(watch, 1 << 16)  # 16 bytes each, of a watched file without a name
    os.close(watch)
    return len(events) // 16


def test_the_model_is_read_once():
    """However many versions lie between the two."""
    path = os.path.join(scratch("versions-once"), "mlp.onnx")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copy(os.path.join(ROOT, model("mlp")), path)
    equal(opened(path, "diff", path, "--torch", "2.8,2.15", "--gpu", "l4"), opened(path, path, *GPU))


def ort_of(*words):
    answer = memplan("data/models/ort/mlp.saved.onnx.gz", *GPU, "--runtime", "ort", "--format", "json", *words)
    check(answer.code == 0, answer.err)
    return answer.json()


def test_versions_of_onnx_runtime():
    for words, version, exact in (((), "1.31", True), (("--ort-version", "1.22.0"), "1.22", True), (("--ort-version", "1.99"), "1.31", False)):
        report = ort_of("--onnxruntime", "none", *words)
        found = report["setup"]["runtime"]
        equal((found["version"], found["exact"]), (version, exact))
        check(f"ONNX Runtime {version}" in found["title"], found)
        equal(exact, not any("1.99" in a for a in report["assumptions"]))
    # Up to 1.30 a bias is multiplied with ones, which the session keeps: one row of the batch, 4 bytes (data/measured/ort).
    requested = [ort_of("--onnxruntime", "none", "--ort-version", v)["counters"]["requested_bytes"] for v in ("1.30", "1.31")]
    equal(requested[0] - requested[1], 4)


def test_a_version_of_onnx_runtime_that_is_installed():
    folder = scratch("python")
    for part in ("onnxruntime_gpu-1.24.4.dist-info", "onnxruntime/capi"):
        os.makedirs(os.path.join(folder, "lib", "python3.11", "site-packages", part), exist_ok=True)
    os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
    found = ort_of("--onnxruntime", os.path.join(folder, "bin", "python3"))["setup"]["runtime"]
    equal((found["version"], found["why"]), ("1.24", "which is installed"))


def test_a_file_newer_than_onnx_runtime():
    """One line, with what the version loads: the opset, the format."""
    def made(opset, ir):
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [tensor("x", [1, 4])], [tensor("y", [1, 4])])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
        return write(f"opset{opset}-{ir}.onnx", proto.SerializeToString())

    words = (*GPU, "--runtime", "ort", "--onnxruntime", "none")
    for path, version, text in ((made(27, 10), "1.31", "ONNX opset 27, and ONNX Runtime 1.31 loads none newer than 26"),
                                (made(23, 10), "1.22", "ONNX opset 23, and ONNX Runtime 1.22 loads none newer than 22"),
                                (made(18, 11), "1.22", "IR version 11, and ONNX Runtime 1.22 loads none newer than 10")):
        answer = memplan(path, *words, "--ort-version", version)
        equal(answer.code, 3, answer.err)
        check(text in answer.err, answer.err)
        equal(len(answer.err.strip().splitlines()), 1)
    equal(memplan(made(26, 13), *words).code, 0)
