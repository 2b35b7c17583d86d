"""Which version of PyTorch is estimated: what is asked for, else the one that wrote the file, else the newest."""
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
