"""What users of comparable tools stumbled over, one test per entry (test_01 …): a list that was made before memplan was."""
import json
import os
import re
import subprocess

import onnx
from cases_ci import Service, repository, run_action
from cases_formats import TEXTS
from cases_gate import Repository, unknown_op
from cases_terminal import EVIL, shown
from onnx import TensorProto, helper
from support import BUILD, ROOT, check, dense, equal, memplan, model, onnx_bytes, scratch, tensor, weight, write, zoo


def report(path, *words):
    answer = memplan(path, *words, "--no-search", "--format", "json")
    check(answer.code in (0, 1), answer.out + answer.err)
    return answer.json()


def peak(path, *words):
    return report(path, *words)["counters"]["requested_bytes"]


def test_01_the_dtype_of_the_file_does_not_leak_into_the_answer():
    """A file stored in half precision and the same model stored in fp32 need the same under --precision fp16."""
    def stored(dtype):
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
        made = onnx.load_from_string(onnx_bytes(nodes, [tensor("x", [4, 512], dtype)], [tensor("y", [4, 512], dtype)], [TensorProto(name="w", data_type=dtype, dims=[512, 512])]))
        return write(f"stored-{dtype}.onnx", made.SerializeToString())

    single, half = stored(TensorProto.FLOAT), stored(TensorProto.FLOAT16)
    for mode in ("training", "inference"):
        equal(peak(half, "--precision", "fp16", "--mode", mode), peak(single, "--precision", "fp16", "--mode", mode), mode)
    check(peak(single, "--precision", "fp32") > peak(single, "--precision", "fp16"), "the precision that is asked for counts")


def test_02_one_model_by_two_routes_is_one_number():
    """As ONNX and as a .pt2 archive of torch.export (tests/accuracy/routes.py compares twenty models)."""
    for name, setup in {"mlp": ("--batch", "64"), "gpt2": ("--batch", "2", "--seq", "128"), "alexnet": ("--batch", "4")}.items():
        archive = os.path.join(ROOT, "data", "models", "pt2", name + ".pt2")
        for mode in ("training", "inference"):
            equal(peak(archive, *setup, "--mode", mode), peak(model(name), *setup, "--mode", mode), f"{name}, {mode}")


def test_03_more_is_more():
    """Monotone in batch, sequence and layers; QLoRA < LoRA < full training where these strategies are there."""
    gpt2 = model("gpt2")
    batches = [peak(gpt2, "--seq", "128", "--batch", str(b)) for b in (1, 2, 4, 8)]
    sequences = [peak(gpt2, "--batch", "1", "--seq", str(s)) for s in (64, 128, 256, 512)]

    def layers(n):
        nodes, weights = [], []
        for i in range(n):
            nodes.append(helper.make_node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}" if i + 1 < n else "y"]))
            weights.append(weight(f"w{i}", [256, 256]))
        return peak(write(f"deep{n}.onnx", onnx_bytes(nodes, [tensor("x", [32, 256])], [tensor("y", [32, 256])], weights)))

    for what, figures in {"batch": batches, "sequence": sequences, "layers": [layers(n) for n in (1, 2, 4, 8)]}.items():
        equal(figures, sorted(set(figures)), f"strictly more with more {what}")
    frozen = peak(gpt2, "--batch", "1", "--seq", "128", "--freeze", "*.h.*")
    check(frozen < sequences[1], "a part trained needs less than everything trained")
    lora, qlora = (peak(gpt2, "--batch", "1", "--seq", "128", flag, "r=8") for flag in ("--lora", "--qlora"))
    check(qlora < lora < sequences[1], (qlora, lora, sequences[1]))


def test_04_a_comparison_with_itself_is_zero():
    path = scratch("self.json")
    memplan(model("gpt2"), "--seq", "128", "--gpu", "t4", "--no-search", "--format", "json", "-o", path)
    d = memplan("diff", path, path, "--format", "json").json()
    equal((d["summary"]["delta_bytes"], d["summary"]["change_percent"], d["summary"]["state"]), (0, 0.0, "same"))
    equal({r["delta_bytes"] for rows in ("parts", "counters") for r in d[rows]}, {0})
    equal([d[rows] for rows in ("modules", "ops", "dtypes", "tensors", "setup")], [[]] * 5)
    text = memplan("diff", path, path).out
    check("0 B" in text and "Nothing moved" in text and "nan" not in text.lower(), text)


def test_05_what_was_nothing_is_new():
    with open(scratch("self.json")) as f:
        head = json.load(f)
    base = json.loads(json.dumps(head))
    base["summary"]["peak_bytes"] = 0
    base["tensors_at_peak"] = []
    for part in base["breakdown"]:
        part["bytes"] = 0
    for rows in ("at_peak_by_module", "at_peak_by_op", "at_peak_by_dtype"):
        base[rows] = []
    with open(scratch("zero.json"), "w") as f:
        json.dump(base, f)
    d = memplan("diff", scratch("zero.json"), scratch("self.json"), "--format", "json").json()
    equal((d["summary"]["state"], d["summary"]["change_percent"]), ("new", None))
    equal({r["state"] for r in d["tensors"]} | {r["state"] for r in d["modules"]}, {"new"})
    for form in ("text", "md", "csv", "json"):
        out = memplan("diff", scratch("zero.json"), scratch("self.json"), "--format", form).out
        check(not re.search(r"\b(nan|inf|infinity)\b", out.lower()), f"{form}: {out[:300]}")
    check("new" in memplan("diff", scratch("zero.json"), scratch("self.json")).out, "new")


def test_06_a_rule_that_is_commented_out_is_off():
    r = Repository('[[target]]\nname = "t"\nmodel = "models/mlp.onnx"\ngpu = "t4"\n# limit = "1MiB"\n# warn = "1MiB"\n# max_increase = 0\n', models=("mlp",))
    code, d = r.document()
    equal((code, [x["rule"] for x in d["targets"][0]["rules"]]), (0, ["no-fit"]))


def test_07_the_summary_is_written_though_the_gate_is_red():
    code, _, summary, _ = run_action(repository(8), memplan=os.path.join(BUILD, "memplan"))
    equal(code, 1)
    check("1 of 2 targets fails" in summary, summary)


def test_08_a_baseline_of_another_schema_is_code_4():
    r = Repository()
    r.write(".memplan/baseline.json", b'{"schema_version": "2.0", "kind": "check", "targets": []}')
    answer = r.run("check")
    equal(answer.code, 4)
    check("schema version 2.0" in answer.out and "memplan baseline write" in answer.out, answer.out)


def test_09_the_heaviest_stage_of_a_pipeline_decides():
    """Uneven stages: the verdict is that of the worst rank, not of the mean."""
    words = ("--batch", "8", "--seq", "128", "--gpus", "2", "--pp", "2")
    d = report(model("gpt2"), *words, "--gpu", "16GiB")
    peaks = sorted(r["peak"]["process_bytes"] for r in d["ranks"])
    equal((len(peaks), d["summary"]["peak_bytes"]), (2, peaks[1]))
    check(peaks[0] < peaks[1], "the stages of gpt2 differ: one has the embedding, the other the head")
    # A card that the mean of the stages would fit, and the heaviest does not.
    between = report(model("gpt2"), *words, "--gpu", str((peaks[0] + peaks[1]) // 2), "--margin", "0")
    equal(between["summary"]["verdict"], "no-fit")


def test_10_an_unknown_op_is_never_silent():
    path = write("odd.onnx", unknown_op())
    d = report(path, "--gpu", "t4")
    equal([u["op"].split("::")[-1] for u in d["unmodelled"]], ["Mystery"])
    check(d["summary"]["low_bytes"] < d["summary"]["high_bytes"], "the range widens")
    check("Not modelled" in memplan(path, "--gpu", "t4", "--no-search").out, "text")
    wide = report(path, "--gpu", "16GiB", "--margin", "0")["summary"]
    # Just below what the op may take, and just there: only what is not modelled decides.
    equal(report(path, "--gpu", str(wide["high_bytes"] - 1), "--margin", "0")["summary"]["verdict"], "unknown")
    equal(report(path, "--gpu", str(wide["high_bytes"]), "--margin", "0")["summary"]["verdict"], "fits")
    equal(memplan(path, "--gpu", str(wide["high_bytes"] - 1), "--margin", "0", "--no-search").code, 1, "unknown is not a pass")
    r = Repository('[[target]]\nname = "t"\nmodel = "odd.onnx"\ngpu = "h100-80gb"\n', models=())
    r.write("odd.onnx", unknown_op())
    equal(r.run("check").code, 1, "a gate does not pass it")


def test_11_units():
    """NVIDIA's driver reports 81,559 MiB for an H100 80GB; what CUDA can hand out of it is less, and never more than the card has."""
    device = memplan("devices", "h100-80gb", "--format", "json").json()
    check(79 * 2**30 < device["usable_bytes"] <= 81559 * 2**20, device)
    text = memplan("devices", "80GB").out
    check("80GB class" in text and "GiB" in text, text)
    for path, words in ((model("gpt2"), ("--gpu", "80GB", "--seq", "128")), (model("gpt2"), ("--gpu", "t4", "--seq", "1024", "--batch", "32"))):
        d = report(path, *words)
        equal(d["summary"]["verdict"] == "fits", d["summary"]["peak_bytes"] + d["summary"]["margin_bytes"] <= d["summary"]["limit_bytes"], "never 83 of 80")
    equal(memplan("devices", "1GiB", "--format", "json").json()["usable_bytes"], 2**30)
    equal(memplan("devices", "1.5GB", "--format", "json").json()["usable_bytes"], 1_500_000_000)


def test_12_a_comment_that_is_too_long_keeps_its_headline():
    targets = "".join(f'[[target]]\nname = "t{i}-{"y" * 300}"\nmodel = "models/none.onnx"\ngpu = "t4"\n' for i in range(500))
    text = Repository(targets, models=()).run("check", "--format", "md").out
    check(len(text) <= 65536 and "500 of 500 targets cannot be checked" in text.split("\n")[1] and "| target |" in text, text[:400])


def test_13_a_fork_does_not_fail_with_403():
    Service.comments, Service.refuse = [], 403
    try:
        code, printed, summary, _ = run_action(repository(2), memplan=os.path.join(BUILD, "memplan"), comment="always")
    finally:
        Service.refuse = None
    equal(code, 0, printed)
    check("::notice" in printed and "403" in printed and summary, printed)


def test_14_names_are_neutralised_everywhere():
    path = write("evil.onnx", dense(1 << 16, name=EVIL))
    for form in TEXTS:
        answer = memplan(path, "--gpu", "1GiB", "--no-search", "--format", form)
        for text in (answer.out, answer.err):
            check("\x1b" not in text and "\u202e" not in text, form)
            for line in text.splitlines():
                check(not line.strip().startswith("::") or form == "github", f"{form}: {line}")
    page = memplan(path, "--gpu", "1GiB", "--no-search", "--format", "html").out
    outside = re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.S)
    check("\x1b" not in page and "\u202e" not in page and "<b>" not in outside and EVIL not in page, "the page")
    check("<b>" in json.dumps(page_data(page)), "the name is there, as data")
    for words in (("explain", path), ("explain", path, "--tensor", "w"), ("ops", path)):
        for line in memplan(*words).out.splitlines():
            check(not line.strip().startswith("::"), line)


def page_data(page):
    """The document inside of an HTML report."""
    return json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.S)[1])


def test_15_a_model_of_very_many_tensors_has_a_page_of_bounded_size():
    """At most 100,000 rows, the largest ones, and how many there were; the peak is the document's, also where a curve has far
    more events than a page draws. The browser's side of it (loads, scrolls, no error) is in tests/html."""
    d = report(model("mlp"), "--gpu", "h100-80gb", "--batch", "64")
    row = d["tensors_at_peak"][0]
    d["tensors_at_peak"] = [row | {"id": str(i), "name": f"model.layers.{i // 8}.part{i % 8}.weight", "bytes": 512 * (i % 97 + 1)} for i in range(120_000)]
    for rows in ("at_peak_by_module", "at_peak_by_op", "at_peak_by_dtype"):
        del d[rows]
    saved, page = scratch("many.json"), scratch("many.html")
    with open(saved, "w") as f:
        json.dump(d, f)
    answer = memplan("report", saved, "--format", "html", "-o", page, timeout=300)
    equal(answer.code, 0, answer.err)
    size = os.path.getsize(page)
    check(size < os.path.getsize(saved) / 3, f"{size} bytes of a report of {os.path.getsize(saved)}")
    with open(page) as f:
        shown = page_data(f.read())
    equal(shown["summary"]["peak_bytes"], d["summary"]["peak_bytes"], "the peak is kept")
    rows = shown["tensor_columns"]
    equal((len(rows["bytes"]), rows["of"]), (100_000, 120_000))
    left_out = sorted(t["bytes"] for t in d["tensors_at_peak"])[:20_000]
    check(min(rows["bytes"]) >= left_out[-1], "what is left out is the smallest")
    # A run of 12 steps has more events than a curve has points.
    long = memplan(model("gpt2"), "--gpu", "h100-80gb", "--batch", "1", "--seq", "64", "--steps", "12", "--timeline", "--no-search", "--format", "json", timeout=300).json()
    t = long["timeline"]
    check(t["events"] > 2 * len(t["at"]) and t["peak_event"] in t["at"], (t["events"], len(t["at"])))
    equal(t["requested_bytes"][t["at"].index(t["peak_event"])], max(t["requested_bytes"]), "the peak is among the points that are left")
    equal(max(t["requested_bytes"]), long["counters"]["requested_bytes"])


def test_18_a_page_asks_for_nothing():
    """No address of anything outside, and a policy that would refuse it; the browser counts requests in tests/html."""
    page = memplan(model("mlp"), "--gpu", "h100-80gb", "--format", "html").out
    policy = re.search(r'http-equiv="Content-Security-Policy"\s+content="([^"]*)"', page)
    check(policy and "default-src 'none'" in policy[1], "no policy")
    markup = re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.S).replace('<link rel="icon" href="data:,">', "")  # an empty icon, or the browser asks for one
    check(not re.search(r"<(link|img|iframe|object|embed|base)\b|\bsrc=", markup), "something is loaded")
    check(not re.search(r"@import|url\((?!['\"]?data:|#)", "".join(re.findall(r"<style.*?</style>", page, re.S))), "a style loads something")
    check(not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|importScripts)\s*\(", page), "a script asks for something")


def test_16_open_dimensions_are_listed_with_a_command():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    made = onnx_bytes(nodes, [tensor("x", ["rows", "cols", 8])], [tensor("y", ["rows", "cols", 8])], [weight("w", [8, 8])])
    path = write("open.onnx", made)
    answer = memplan(path, "--gpu", "t4")
    equal(answer.code, 3)
    check("cols" in answer.err and "--dim" in answer.err, answer.err)
    command = re.search(r"memplan (\S+ --dim.*)", answer.err)[1].rstrip(".").split()
    words = [w if "=" not in w else re.sub(r"=.*", "=16", w) for w in command]
    check(memplan(*words).code in (0, 1), f"the command that was suggested: {words}")


def test_17_initialisers_shared_between_subgraphs_count_once():
    """A merged decoder: an If whose branches use one weight of the outer graph."""
    def branch(name):
        node = helper.make_node("MatMul", ["x", "w"], [f"{name}_out"])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [4, 1024])])

    condition = helper.make_node("If", ["use_cache"], ["y"], then_branch=branch("with_past"), else_branch=branch("without_past"))
    made = onnx_bytes([condition], [tensor("x", [4, 1024]), tensor("use_cache", [], TensorProto.BOOL)], [tensor("y", [4, 1024])], [weight("w", [1024, 1024])])
    d = report(write("merged.onnx", made), "--mode", "inference")
    parameters = next(p["bytes"] for p in d["breakdown"] if p["category"] == "parameters")
    equal(parameters, 1024 * 1024 * 4)
    equal(d["input"]["parameters"], 1024 * 1024)


def recorded(name, **want):
    """The steps of a run that PyTorch made itself (data/measured/emulated)."""
    with open(os.path.join(ROOT, "data", "measured", "emulated", name)) as f:
        for row in map(json.loads, f):
            if all(row.get(k) == v for k, v in want.items()) and not (set(row) & ({"impl", "accumulate", "clip", "zero_grad", "alloc_conf", "checkpoint_save"} - set(want))):
                return [step["requested"] for step in row["steps"]]
    raise AssertionError(f"no recorded run of {want}")


def test_19_recomputing_has_a_peak_of_its_own():
    """Not the kept inputs of the blocks alone: what a block makes when it runs again counts, as PyTorch counts it."""
    setup = dict(gpu="h100", model="gpt2", batch=4, seq=512, mode="train", precision="amp-bf16", optimizer="adamw")
    words = ("--gpu", "h100-80gb", "--batch", "4", "--seq", "512", "--amp", "bf16")
    plain, again = report(model("gpt2"), *words), report(model("gpt2"), *words, "--checkpoint", "model.transformer.h.*")
    requested = lambda d: [s["peak"]["requested_bytes"] for s in d["steps"] if s["step"] > 0]
    equal(requested(plain), recorded("truth-2.11.jsonl", **setup), "without")
    equal(requested(again), recorded("strategies-2.11.jsonl", **setup, checkpoint="model.transformer.h.*"), "with checkpointing")
    check(max(requested(again)) < max(requested(plain)), "it helps")


def test_20_colours():
    check("\x1b[" in shown() and "\x1b[" in shown(NO_COLOR=""), "an empty NO_COLOR is not set")
    check("\x1b[" not in shown(NO_COLOR="1"), "NO_COLOR")
    for words in ((model("mlp"), "--no-search"), ("explain", model("mlp")), ("devices",), ("diff", model("mlp"), "--to", "--batch 2")):
        answer = memplan(*words, env={"TERM": "xterm-256color"})
        check("\x1b" not in answer.out + answer.err, f"colours in a pipe: {words}")
    gate = repository(8)
    answer = gate.run("check", env={"TERM": "xterm-256color"})
    check("\x1b" not in answer.out + answer.err, "colours or progress of a gate in a pipe")
    check("\x1b[" in gate.run("check", "--color", "always").out, "colours that were asked for")
