"""What reports must be, whatever the figures: valid by the schema, adding up, the same every time, and PyTorch's own
figures where a recorded run (data/measured/emulated) says them."""
import json
import os
import re

import jsonschema
from support import ROOT, check, equal, memplan, model, scratch, zoo

with open(os.path.join(ROOT, "docs", "report.schema.json")) as f:
    SCHEMA = json.load(f)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

SETUPS = [
    ("mlp", "--gpu", "h100-80gb"),
    ("mlp", "--gpu", "80GB", "--batch", "64", "--optimizer", "sgd-momentum", "--clip", "--accumulate", "2"),
    ("mlp", "--mode", "inference"),
    ("mlp", "--gpu", "1GiB", "--batch", "100000"),
    ("resnet18", "--gpu", "l4", "--batch", "8", "--precision", "amp-fp16"),
    ("gpt2", "--gpu", "24GB", "--seq", "256", "--batch", "2", "--amp", "bf16"),
    ("gpt2", "--gpu", "t4", "--seq", "1024", "--batch", "16"),
    ("gpt2", "--gpu", "h100-80gb", "--seq", "64", "--freeze", "*wte*", "--alloc-conf", "expandable_segments:True"),
]


def report(name, *words):
    answer = memplan(model(name), *words, "--format", "json")
    check(answer.code in (0, 1), answer.out)
    return answer.json()


def test_schema(name, *words):
    errors = [f"{'/'.join(map(str, e.path))}: {e.message}" for e in VALIDATOR.iter_errors(report(name, *words))]
    equal(errors, [])


test_schema.cases = SETUPS


def test_errors_have_a_schema_too():
    for words in (("nobody.onnx",), (model("mlp"), "--batch", "x"), (model("llama-tiny"),)):
        VALIDATOR.validate(memplan(*words, "--format", "json").json())


def test_schema_is_strict_enough():
    """A report with a missing or misspelt part must not pass, or the tests above say nothing."""
    good = report("mlp", "--no-search")
    for broken in ({k: v for k, v in good.items() if k != "summary"}, good | {"schema_version": "2.0"},
                   good | {"summary": good["summary"] | {"verdict": "maybe"}}, good | {"counters": good["counters"] | {"reserved_bytes": "12"}}):
        check(not VALIDATOR.is_valid(broken), "the schema lets it pass")


def test_adds_up(name, *words):
    r = report(name, *words, "--no-search")
    s, parts = r["summary"], {p["category"]: p["bytes"] for p in r["breakdown"]}
    equal(sum(parts.values()), s["peak_bytes"], "parts")
    tensors = {}
    for t in r["tensors_at_peak"]:
        tensors[t["category"]] = tensors.get(t["category"], 0) + t["bytes"]
    equal(tensors, {k: v for k, v in parts.items() if k not in ("rounding", "cached", "context")}, "tensors by category")
    equal(r["counters"]["reserved_bytes"] + r["device"]["context_bytes"], s["peak_bytes"], "reserved + context")
    for step in r["steps"]:
        p = step["peak"]
        check(p["requested_bytes"] <= p["allocated_bytes"] <= p["reserved_bytes"] <= p["process_bytes"], step)
    equal(r["counters"], {k: max(st["peak"][k] for st in r["steps"]) for k in r["counters"]}, "counters are the highest of the steps")
    check(s["low_bytes"] <= s["peak_bytes"] <= s["high_bytes"], s)
    for t in r["tensors_at_peak"]:
        check(t["block_bytes"] >= t["bytes"] > 0, t)
    if r["device"]["given"]:
        equal(s["headroom_bytes"], s["limit_bytes"] - s["peak_bytes"])
        # What the context may take beyond its usual figure may come out of the margin.
        context = sum(source["above"]["process_bytes"] for source in r["ranges"]["sources"] if source["about"] == "context")
        fits = s["high_bytes"] <= min(s["limit_bytes"], s["limit_bytes"] - s["margin_bytes"] + context) and r["allocator"]["retries"] == 0
        equal(s["verdict"] == "fits", fits, "verdict")
        equal(r["gate"]["exit_code"], 1 if s["verdict"] in ("no-fit", "unknown") else 0)


test_adds_up.cases = SETUPS


def test_text_says_the_same_as_json(name, *words):
    """The parts of the text add up in print, digit by digit, and its verdict and place are those of the JSON."""
    r = report(name, *words, "--no-search")
    text = memplan(model(name), *words, "--no-search").out
    rows = re.findall(r"^  (?:[A-Za-z]|\?|) +([\d.]+) +([\d.]+)%  (.+?)  ", text.replace("\n", "  \n"), re.M)
    shown, total = [row for row in rows if "total" not in row[2]], [row for row in rows if "total" in row[2]]
    equal(len(total), 1, text)
    scale = 10 ** len(total[0][0].split(".")[-1]) if "." in total[0][0] else 1
    equal(sum(round(float(row[0]) * scale) for row in shown), round(float(total[0][0]) * scale), "printed sum")
    words_of = {"fits": "FITS", "tight": "TIGHT", "no-fit": "DOES NOT FIT", "unknown": "UNKNOWN", None: "NEEDS"}
    check(re.search(rf"^{words_of[r['summary']['verdict']]} ", text, re.M), text)
    check(f"step {r['peak']['step']} of" in text and r["peak"]["phase"] in text, text)
    for line in r["assumptions"]:
        check(line.split()[0] in text, line)


test_text_says_the_same_as_json.cases = SETUPS


def test_same_bytes_every_time(name, *words):
    for form in ("text", "json"):
        runs = {memplan(model(name), *words, "--format", form).out for _ in range(2)}
        equal(len(runs), 1, "different outputs")


test_same_bytes_every_time.cases = SETUPS[3:6]


def truth(want):
    """Recorded fp32 training runs of one model, as the command line spells their setups: (flags, steps). All the others
    are compared by tests/accuracy; these show that the command line says what the library computes."""
    with open(os.path.join(ROOT, "data", "measured", "emulated", "truth-2.11.jsonl")) as f:
        for row in map(json.loads, f):
            if row["model"] != want or row["gpu"] != "h100" or any(row.get(k) for k in ("impl", "accumulate", "clip", "zero_grad", "alloc_conf", "error")):
                continue
            if row["mode"] != "train" or row["precision"] != "fp32" or row["batch"] < 256 or row["optimizer"] == "adafactor":
                continue
            flags = ["--gpu", "h100-80gb", "--batch", row["batch"], "--optimizer", row["optimizer"]]
            yield flags, row["steps"]


def test_mlp_is_what_pytorch_says(flags, steps):
    r = report("mlp", *flags, "--no-search")
    for want, step in zip(steps, r["steps"][1:]):
        equal((step["peak"]["requested_bytes"], step["peak"]["allocated_bytes"]), (want["requested"], want["allocated"]), f"step {step['step']}")
        equal((step["requested_after_bytes"], step["allocated_after_bytes"]), (want["after"]["requested"], want["after"]["allocated"]), "after the step")


test_mlp_is_what_pytorch_says.cases = list(truth("mlp"))
check(test_mlp_is_what_pytorch_says.cases, "no recorded run of the mlp")


def test_largest_batch_is_the_largest():
    r = report("resnet18", "--gpu", "8GiB")
    best = r["alternatives"]["largest_batch"]
    verdicts = [report("resnet18", "--gpu", "8GiB", "--batch", best["batch"] + more, "--no-search")["summary"] for more in (0, 1)]
    equal(verdicts[0]["verdict"], "fits")
    equal(verdicts[0]["peak_bytes"], best["peak_bytes"])
    check(verdicts[1]["verdict"] != "fits", verdicts[1])


def test_largest_batch_does_not_depend_on_the_start():
    found = {report("mlp", "--gpu", "2GiB", "--batch", b)["alternatives"]["largest_batch"]["batch"] for b in (1, 7, 200000)}
    equal(len(found), 1, found)


def test_no_batch_fits():
    r = report("gpt2", "--gpu", "1GiB", "--seq", "64")
    equal(r["alternatives"]["largest_batch"]["batch"], 0)
    check("no batch fits" in memplan(model("gpt2"), "--gpu", "1GiB", "--seq", "64").out, "text")
    whole = memplan(model("gpt2"), "--gpu", "1GB", "--seq", "64", "--margin", "1GB").out
    check("no batch fits: batch 1 needs" in whole, "a margin as large as the card")


def test_cards_that_fit_do_fit():
    for card in report("gpt2", "--seq", "512", "--batch", "4")["alternatives"]["cards"]:
        again = report("gpt2", "--seq", "512", "--batch", "4", "--gpu", card["key"], "--no-search")["summary"]
        equal((again["verdict"], again["peak_bytes"]), ("fits", card["peak_bytes"]), card["key"])


def test_changes_are_estimates_of_their_own():
    r = report("gpt2", "--seq", "1024", "--batch", "16", "--gpu", "t4")
    check(r["alternatives"]["changes"], "nothing was tried")
    for change in r["alternatives"]["changes"]:
        again = report("gpt2", "--seq", "1024", "--batch", "16", "--gpu", "t4", *change["flags"].split(), "--no-search")["summary"]
        equal((again["verdict"], again["peak_bytes"]), (change["verdict"], change["peak_bytes"]), change["flags"])


def test_program_is_python():
    for words in ((), ("--amp", "fp16", "--accumulate", "4", "--clip"), ("--mode", "inference", "--precision", "bf16"), ("--optimizer", "none", "--zero-grad", "end"),
                  ("--optimizer", "sgd-momentum", "--freeze", "*bias", "--attention", "math", "--alloc-conf", "expandable_segments:True"), ("--loss", "mse",)):
        answer = memplan("explain", model("mlp"), "--program", *words)
        equal(answer.code, 0, answer.err)
        compile(answer.out, "program.py", "exec")
    equal(memplan("explain", model("mlp"), "--program", "-o", scratch("p.py")).out, "")


def test_lifetimes():
    """The life of a parameter: born in the set-up, alive at the end. JSON and text tell the same."""
    text = memplan("explain", model("mlp"), "--tensor", "net.0.weight", "--top", "0").out
    check("born  set-up" in text and "the end of the run" in text, text)
    lives = memplan("explain", model("mlp"), "--tensor", "net.0.weight", "--format", "json").json()["allocations"]
    weights = [a for a in lives if a["category"] == "parameters"]
    equal([(a["name"], a["bytes"], a["dies_event"]) for a in weights], [("net.0.weight", 784 * 2048 * 4, None)])


def test_modules():
    everything = memplan("explain", model("mlp"), "--top", "0").out
    part = memplan("explain", model("mlp"), "--module", "net.2", "--top", "0").out
    check("net.0.weight" in everything and "net.0.weight" not in part and "net.2.weight" in part, part)
    equal(memplan("explain", model("mlp"), "--module", "attention").code, 2)


def test_evidence():
    """What an estimate rests on, and its range: that of the estimate. GPT-2 drops out twice in each of 12 blocks, and its embeddings."""
    words = [model("gpt2"), "--gpu", "24GB", "--seq", "128"]
    told = memplan("explain", *words, "--evidence", "--format", "json").json()
    estimate = memplan(*words, "--format", "json").json()
    process = estimate["ranges"]["process_bytes"]
    equal([told["low_bytes"], told["high_bytes"]], [process["low_bytes"], process["high_bytes"]])
    equal([f["count"] for f in told["facts"] if f["op"] == "aten::dropout"], [2 * 12 + 1])
    text = memplan("explain", *words, "--evidence").out
    check(re.search(r"^ +25  op +aten::native_dropout \(aten::dropout\)$", text, re.M), text)
    check("sources of the range\n" in text and "proven by the file\n" in text, text)


def test_batches_of_other_lengths():
    """Shorter batches leave blocks behind: the reserved bytes' high end grows, what the longest one asks for does not."""
    words = [model("gpt2"), "--gpu", "24GB", "--seq", "512", "--batch", "4", "--format", "json"]
    one, many = memplan(*words).json()["ranges"], memplan(*words, "--seq-from", "64").json()["ranges"]
    equal(many["requested_bytes"], one["requested_bytes"])
    equal(many["reserved_bytes"]["low_bytes"], one["reserved_bytes"]["low_bytes"])
    check(many["reserved_bytes"]["high_bytes"] > one["reserved_bytes"]["high_bytes"], many)
    equal([s["about"] for s in many["sources"] if s["what"].startswith("batches of 64 to 512 tokens leave")], ["allocator"])
    equal([s for s in memplan(*words, "--seq-from", "512").json()["ranges"]["sources"] if s["what"].startswith("batches of")], [])
    wrong = memplan(*words[:-2], "--seq-from", "513")
    equal(wrong.code, 2)
    check("--seq-from: the shortest batch has 513 tokens, the longest 512" in wrong.err, wrong.err)


def test_ops_of_a_model():
    ops = memplan("ops", model("mlp"), "--format", "json").json()
    equal({o["op"]: o["count"] for o in ops if o["op"] == "aten::linear"}, {"aten::linear": 3})
    equal(memplan("ops", model("mlp"), "--unsupported").out, "every op of the model is modelled\n")


def test_every_model_of_the_zoo_opens():
    broken = []
    for name in zoo.index():
        path = zoo.model_file(name)
        if path and memplan("ops", path, "--seq", "128").code not in (0,) and memplan("ops", path).code != 0:
            broken.append(name)
    equal(broken, [])
