"""Limits and a baseline on plain memplan MODEL, the smallest verified fix, the published schemas."""
import json
import os
import re
import shlex
import subprocess
import sys

import jsonschema
from cases_gate import Repository, rule, unknown_op
from support import ROOT, check, equal, memplan, model, scratch, write

MLP = (model("mlp"), "--gpu", "t4")
GPT2 = (model("gpt2"), "--gpu", "24GB", "--seq", "256")
with open(os.path.join(ROOT, "docs", "report.schema.json")) as f:
    VALIDATOR = jsonschema.Draft202012Validator(json.load(f))


def saved(name, *words):
    path = scratch(name)
    equal(memplan(*words, "--no-search", "--format", "json", "-o", path).code, 0)
    return path


def test_limits_as_flags():
    d = memplan(*MLP, "--no-search", "--format", "json").json()
    high, usable = d["summary"]["high_bytes"], d["summary"]["limit_bytes"]
    for limit, code in ((high, 0), (high - 1, 1), ("99%", 0), (f"{100 * (high - 1000) / usable:.8f}%", 1)):
        answer = memplan(*MLP, "--max-peak", limit, "--no-search", "--format", "json")
        equal(answer.code, code, limit)
        found = answer.json()
        VALIDATOR.validate(found)
        over = next(r for r in found["gate"]["rules"] if r["rule"] == "over-limit")
        equal((over["status"], over["origin"], found["gate"]["exit_code"]), ("failed" if code else "passed", "--max-peak", code), limit)
    equal(memplan(*MLP, "--max-peak", "1MiB", "--exit-zero", "--no-search").code, 0)
    equal(memplan(*MLP, "--max-peak", "1MiB", "--fail-on", "never", "--no-search").code, 0)
    warned = memplan(*MLP, "--warn-peak", "1MiB", "--no-search", "--quiet")
    equal((warned.code, "gate warned" in warned.out), (0, True), warned.out)
    equal(memplan(*MLP, "--warn-peak", "1MiB", "--fail-on", "warning", "--no-search").code, 1)
    equal(memplan(*MLP, "--no-search", env={"MEMPLAN_MAX_PEAK": "1MiB"}).code, 1)


def test_flags_that_lack_something():
    for words, must_say in ((("--max-increase", "1%"), "--baseline FILE"), (("--fail-on", "regression"), "--baseline FILE"), (("--max-peak", "lots"), "--max-peak"), (("--max-peak", "101x%"), "--max-peak")):
        answer = memplan(*MLP, *words)
        equal(answer.code, 2, words)
        check(must_say in answer.err, answer.err)
    share = memplan(model("mlp"), "--max-peak", "90%")
    equal(share.code, 2)
    check("share of a card" in share.err and "--gpu" in share.err, share.err)


def test_a_baseline_on_the_command_line():
    base = saved("flat-base.json", *GPT2, "--batch", "2")
    same = memplan(*GPT2, "--batch", "2", "--baseline", base, "--max-increase", "0", "--no-search", "--format", "json")
    equal((same.code, same.json()["gate"]["status"], same.json()["diff"]["summary"]["delta_bytes"]), (0, "passed", 0))
    red = memplan(*GPT2, "--batch", "8", "--baseline", base, "--max-increase", "5%", "--format", "json")
    d = red.json()
    VALIDATOR.validate(d)
    equal((red.code, d["gate"]["status"], d["summary"]["verdict"]), (1, "failed", "fits"), "it fits, and grew too much all the same")
    was, peak = json.load(open(base))["summary"]["peak_bytes"], d["summary"]["peak_bytes"]
    regression = next(r for r in d["gate"]["rules"] if r["rule"] == "regression")
    equal((regression["threshold_bytes"], regression["value_bytes"]), (was + was * 5 // 100, peak))
    equal(d["diff"]["summary"]["delta_bytes"], peak - was)
    equal(d["diff"]["setup"], [{"name": "batch", "base": "2", "head": "8"}])
    # The baseline alone compares and stops nothing: a rule that is not written is off.
    equal(memplan(*GPT2, "--batch", "8", "--baseline", base, "--no-search").code, 0)
    equal(memplan(*GPT2, "--batch", "8", "--baseline", base, "--max-increase", "5%", "--fail-on", "no-fit", "--no-search").code, 0)
    text = memplan(*GPT2, "--batch", "8", "--baseline", base, "--max-increase", "5%").out
    for words in ("Gate: FAIL", "regression [MP120]", "(--max-increase)", "batch 2 -> 8", "smallest change that passes: --", "saves"):
        check(words in text, f"{words!r} is missing in\n{text}")
    page = memplan(*GPT2, "--batch", "8", "--baseline", base, "--max-increase", "5%", "--format", "md").out
    for words in ("### The gate fails", "**Smallest change that passes:**", "### Against the baseline", "```sh\nmemplan "):
        check(words in page, f"{words!r} is missing in\n{page}")
    sarif = memplan(*GPT2, "--batch", "8", "--baseline", base, "--max-increase", "5%", "--no-search", "--format", "sarif").json()
    equal([r["ruleId"] for r in sarif["runs"][0]["results"]], ["MP120"])


def test_baselines_that_do_not_fit_the_question():
    base = saved("t4-base.json", *MLP)
    for words in ((model("mlp"), "--gpu", "l4"), (*MLP, "--mode", "inference")):
        answer = memplan(*words, "--baseline", base, "--max-increase", "1%", "--no-search")
        equal(answer.code, 4, words)
        check("was made for" in answer.err, answer.err)
    for path in (scratch("nowhere.json"), write("odd.json", b"[1]"), write("two.json", b'{"schema_version": "2.0"}')):
        equal(memplan(*MLP, "--baseline", path, "--no-search").code, 4, path)
    r = Repository()
    r.run("baseline", "write")
    gate = r.run("models/gpt2.onnx", "--gpu", "24GB", "--batch", "2", "--seq", "256", "--baseline", ".memplan/baseline.json#large", "--max-increase", "0", "--no-search")
    equal(gate.code, 0, gate.out + gate.err)


def test_unknown_ops_do_not_pass():
    path = write("odd-gate.onnx", unknown_op())
    equal(memplan(path, "--gpu", "t4", "--no-search").code, 0, "without a gate the verdict alone counts")
    equal(memplan(path, "--gpu", "t4", "--max-peak", "10GiB", "--no-search").code, 1)


def test_the_fix_is_verified():
    """What is called the smallest change that passes is estimated here again, and passes."""
    base = saved("fix-base.json", *GPT2, "--batch", "2")
    for gate in (("--baseline", base, "--max-increase", "10%"), ("--max-peak", "4GiB"), ("--max-peak", "20%")):
        d = memplan(*GPT2, "--batch", "8", *gate, "--format", "json").json()
        fix = d["gate"]["fix"]
        equal(d["gate"]["status"], "failed", gate)
        equal(fix["saves_bytes"], d["summary"]["peak_bytes"] - fix["peak_bytes"])
        words = shlex.split(fix["flags"])
        kept = [w for w in ("--batch", "8") if "--batch" not in words]
        again = memplan(*GPT2, *kept, *words, *gate, "--no-search", "--format", "json")
        equal((again.code, again.json()["summary"]["peak_bytes"]), (0, fix["peak_bytes"]), f"{gate}: {fix}")
        equal(len(fix["configuration"]), len([w for w in words if w.startswith("--")]), fix)
    # Nothing brings the peak below the context and the weights.
    none = memplan(*GPT2, "--batch", "8", "--max-peak", "100MiB")
    check("none of the changes that were estimated passes" in none.out, none.out)


def test_the_fix_of_a_target_has_its_settings():
    r = Repository()
    r.run("baseline", "write")
    r.change("batch = 2\n", "batch = 8\n")
    _, d = r.document("large")
    fix = d["targets"][0]["fix"]
    text = r.run("check", "large").out
    for line in fix["configuration"]:
        check(line in " ".join(text.split()), f"{line!r} is missing in {text}")
        check(re.fullmatch(r'[a-z_]+ = (\d+|true|".*")', line), line)
    equal(rule(d, "large", "regression")["status"], "failed")


def test_schemas():
    for name in ("report", "planner", "validate"):
        with open(os.path.join(ROOT, "docs", name + ".schema.json")) as f:
            equal(memplan("schema", name).out, f.read(), name)
    equal(memplan("schema").out, memplan("schema", "report").out)
    wrong = memplan("schema", "song")
    equal(wrong.code, 2)
    check("planner, report, validate" in wrong.err or "report" in wrong.err, wrong.err)


def test_accuracy_figures_are_those_of_the_page():
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tests", "accuracy", "summary.py"), "--check"], capture_output=True, text=True)
    equal((done.returncode, done.stdout), (0, ""))
