"""The gate: a sample repository from green to red and back, its rules, its baselines, its configuration; comparisons."""
import json
import os
import re
import shutil
import tempfile

from support import ROOT, SCRATCH, Answer, check, dense, equal, memplan, model, onnx_bytes, scratch, tensor, weight

CONFIG = """schema = 1

[defaults]
gpu = "24GB"

[[target]]
name = "small"
model = "models/mlp.onnx"
batch = 256
max_increase = "1%"
warn = "90%"

[[target]]
name = "large"
model = "models/gpt2.onnx"
batch = 2
seq = 256
limit = "12GiB"
max_increase = "64MiB"
message = "Talk to the training team before raising this"
"""


class Repository:
    """A folder with models and a memplan.toml, as a team would have it."""

    def __init__(self, config=CONFIG, models=("mlp", "gpt2")):
        self.path = tempfile.mkdtemp(dir=SCRATCH.name)
        os.makedirs(os.path.join(self.path, "models"))
        os.makedirs(os.path.join(self.path, ".git"))  # the search for a configuration ends at the root of a repository
        for name in models:
            shutil.copy(os.path.join(ROOT, model(name)), os.path.join(self.path, "models", name + ".onnx"))
        self.configure(config)

    def configure(self, config):
        self.config = config
        with open(os.path.join(self.path, "memplan.toml"), "w") as f:
            f.write(config)

    def change(self, old, new):
        check(old in self.config, old)
        self.configure(self.config.replace(old, new))

    def write(self, name, data):
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)

    def run(self, *words, **kw) -> Answer:
        return memplan(*words, cwd=self.path, **kw)

    def document(self, *words, **kw):
        answer = self.run("check", *words, "--format", "json", **kw)
        return answer.code, json.loads(answer.out)

    def has(self, name):
        return os.path.exists(os.path.join(self.path, name))


def red_repository():
    """Its gate was green until somebody raised the batch."""
    r = Repository()
    r.run("baseline", "write")
    r.change("batch = 2\n", "batch = 8\n")
    return r


def status(document):
    return {t["name"]: t["status"] for t in document["targets"]}


def rule(document, target, name):
    return next(r for t in document["targets"] if t["name"] == target for r in t["rules"] if r["rule"] == name)


def test_a_team_uses_the_gate():
    """Green; a change that raises memory; red with the reason and the smallest fix; the fix; the update; green again."""
    r = Repository()
    missing = r.run("check")
    equal(missing.code, 4, "max_increase without a baseline")
    check("memplan baseline write" in missing.out, missing.out)
    written = r.run("baseline", "write")
    equal(written.code, 0, written.err)
    check(r.has(".memplan/baseline.json"), "no baseline")
    green = r.run("check")
    equal(green.code, 0, green.out)
    check("PASS  all 2 targets pass" in green.out, green.out)

    r.change("batch = 2\n", "batch = 8\n")  # somebody raises the batch
    red = r.run("check")
    equal(red.code, 1, red.out)
    for words in ("FAIL  large", "regression [MP120]", "memplan.toml:19", "batch 2 -> 8", "smallest change that passes: --", "Talk to the training team"):
        check(words in red.out, f"{words!r} is missing in\n{red.out}")
    code, document = r.document()
    equal((code, status(document)), (1, {"small": "passed", "large": "failed"}))
    target = document["targets"][1]
    fix, regression = target["fix"], rule(document, "large", "regression")
    check(fix["peak_bytes"] <= regression["threshold_bytes"] < regression["value_bytes"], (fix, regression))
    check(target["diff"]["summary"]["delta_bytes"] == regression["value_bytes"] - target["diff"]["summary"]["base_bytes"] > 64 << 20, target["diff"]["summary"])
    check(target["diff"]["modules"] and target["diff"]["tensors"], "nothing is said to have moved")

    # The fix, pasted as settings, is green against the same baseline.
    words = fix["flags"].split()
    settings = "".join(f"{flag[2:].replace('-', '_')} = {value if value.isdigit() else json.dumps(value)}\n" for flag, value in zip(words[::2], words[1::2]))
    raised = r.config
    r.configure((raised.replace("batch = 8\n", "") if "--batch" in words else raised).replace('model = "models/gpt2.onnx"\n', 'model = "models/gpt2.onnx"\n' + settings))
    fixed = r.document()
    equal((fixed[0], status(fixed[1])), (0, {"small": "passed", "large": "passed"}), r.config)
    equal(fixed[1]["targets"][1]["report"]["summary"]["peak_bytes"], fix["peak_bytes"], "the fix needs what was said")

    r.configure(raised)  # or the growth is wanted: the baseline takes it, and the gate is green again
    updated = r.run("baseline", "update", "large")
    equal(updated.code, 0, updated.err)
    check("large" in updated.out and "+" in updated.out, updated.out)
    equal(r.run("check").code, 0)
    equal(r.run("check", "--format", "json").out, r.run("check", "--format", "json").out, "same bytes every time")


def test_a_model_that_grows():
    """Not the setup but the model changes: the diff names the layer."""
    config = '[[target]]\nname = "net"\nmodel = "models/net.onnx"\nlimit = "2GiB"\nmax_increase = 0\n'
    r = Repository(config, models=())
    r.write("models/net.onnx", dense(8))
    equal(r.run("baseline", "write").code, 0)
    equal(r.run("check").code, 0)
    r.write("models/net.onnx", dense(4_000_000))
    code, document = r.document()
    equal(code, 1)
    diff = document["targets"][0]["diff"]
    equal(diff["summary"]["model"], "same graph" if diff["base"]["graph_hash"] == diff["head"]["graph_hash"] else "another graph")
    equal(diff["summary"]["model"], "another graph")
    weight_row = next(t for t in diff["tensors"] if t["category"] == "parameters")
    equal((weight_row["base_shape"], weight_row["head_shape"], weight_row["delta_bytes"]), ([8, 8], [8, 4_000_000], 8 * (4_000_000 - 8) * 4), "the weight has 4 bytes per element")


def test_limits():
    r = Repository('[[target]]\nname = "t"\nmodel = "models/mlp.onnx"\nbatch = 256\nlimit = "1GiB"\n', models=("mlp",))
    _, d = r.document()
    # Gates compare the upper end of the range, which the context's makes wider than a point.
    high = d["targets"][0]["report"]["summary"]["high_bytes"]
    for limit, code in ((high, 0), (high - 1, 1), (f'"{high}"', 0), ('"100MiB"', 1)):
        r.configure(f'[[target]]\nname = "t"\nmodel = "models/mlp.onnx"\nbatch = 256\nlimit = {limit}\n')
        equal(r.document()[0], code, f"limit {limit}")
    # Shares are of the card: T4, whatever it is called.
    usable = memplan("devices", "t4", "--format", "json").json()["usable_bytes"]
    for percent, want in ((100 * high / usable * 1.01, 0), (100 * high / usable * 0.99, 1)):
        r.configure(f'[[target]]\nname = "t"\nmodel = "models/mlp.onnx"\nbatch = 256\ngpu = "t4"\nlimit = "{percent:.6f}%"\n')
        code, d = r.document()
        found = d["targets"][0]["report"]["summary"]["high_bytes"]
        expected = 0 if found <= int(usable * percent / 100) else 1
        equal(code, expected, f"{percent} % of the card")


def test_warning_levels():
    r = Repository('[[target]]\nname = "t"\nmodel = "models/mlp.onnx"\nbatch = 256\nlimit = "2GiB"\nwarn = "100MiB"\n', models=("mlp",))
    code, d = r.document()
    equal((code, status(d), rule(d, "t", "near-limit")["status"]), (0, {"t": "warned"}, "warned"))
    equal(r.document("--fail-on", "warning")[0], 1)


def test_absent_rules_are_off():
    r = Repository('[[target]]\nname = "t"\nmodel = "models/mlp.onnx"\ngpu = "t4"\n# limit = "1MiB"\n# max_increase = 0\n', models=("mlp",))
    code, d = r.document()
    equal((code, [x["rule"] for x in d["targets"][0]["rules"]]), (0, ["no-fit"]))


def test_fail_on():
    r = Repository('[[target]]\nname = "t"\nmodel = "models/gpt2.onnx"\nbatch = 64\nseq = 512\ngpu = "t4"\n', models=("gpt2",))
    equal(r.document()[0], 1)
    equal(r.document("--fail-on", "never")[0], 0)
    equal(r.document("--fail-on", "tight")[0], 0)
    equal(r.document("--exit-zero")[0], 0)
    equal(r.document(env={"MEMPLAN_FAIL_ON": "never"})[0], 0)
    equal(r.document("--fail-on", "no-fit", env={"MEMPLAN_FAIL_ON": "never"})[0], 1)
    r.configure(r.config + '[gate]\nfail_on = "never"\n')
    equal(r.document()[0], 0)
    equal(r.document("--fail-on", "no-fit")[0], 1)
    # The environment may not change what is estimated.
    equal(r.document("--fail-on", "no-fit", env={"MEMPLAN_GPU": "h200", "MEMPLAN_BATCH": "1"})[0], 1)


def unknown_op():
    """A product, and an op of nobody's that has no shape inference."""
    from onnx import helper
    return onnx_bytes([helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Mystery", ["h"], ["y"], domain="local")], [tensor("x", [4, 8])], [tensor("y", [4, 8])],
                      [weight("w", [8, 8])])


def test_closed_on_what_is_not_known():
    r = Repository('[[target]]\nname = "t"\nmodel = "models/odd.onnx"\ngpu = "h100-80gb"\n', models=())
    r.write("models/odd.onnx", unknown_op())
    code, d = r.document()
    equal((code, rule(d, "t", "unknown-op")["status"]), (1, "failed"))
    check("Mystery" in rule(d, "t", "unknown-op")["message"], d["targets"][0]["rules"])
    equal(r.document("--fail-on", "no-fit")[0], 0, "unless told otherwise")
    r.change("h100-80gb", "h100-81gb")
    unknown = r.run("check")
    check(unknown.code == 2 and "memplan.toml:4" in unknown.out + unknown.err, unknown.out + unknown.err)
    r.configure('[[target]]\nname = "a"\nmodel = "models/none.onnx"\ngpu = "t4"\n[[target]]\nname = "b"\nmodel = "models/odd.onnx"\ngpu = "t4"\n')
    code, d = r.document("--fail-on", "never")
    equal((code, status(d)), (3, {"a": "error", "b": "warned"}), "a model that cannot be read fails the gate, and the others are still checked")


IGNORE = '[[ignore]]\nrule = "no-fit"\ntarget = "t*"\nreason = "the new cards arrive in spring"\nexpires = 2030-04-01\n'


def test_ignore_until_a_day():
    r = Repository('[[target]]\nname = "train"\nmodel = "models/gpt2.onnx"\nbatch = 64\nseq = 512\ngpu = "t4"\n' + IGNORE, models=("gpt2",))
    day = lambda text: {"SOURCE_DATE_EPOCH": str(__import__("calendar").timegm(__import__("time").strptime(text, "%Y-%m-%d")))}
    code, d = r.document(env=day("2030-04-01"))
    equal((code, rule(d, "train", "no-fit")["status"], rule(d, "train", "no-fit")["reason"]), (0, "ignored", "the new cards arrive in spring"))
    code, d = r.document(env=day("2030-04-02"))
    equal((code, rule(d, "train", "no-fit")["status"]), (1, "failed"))
    check("2030-04-01" in rule(d, "train", "no-fit")["message"], "the expired ignore is named")
    r.change('target = "t*"', 'target = "serve*"')
    equal(r.run("check").code, 2, "of a target that there is not")


def wrong(config, *must_say, line=None):
    r = Repository(config, models=("mlp",))
    answer = r.run("check")
    equal((answer.code, answer.out), (2, ""), config + answer.out)
    for text in must_say:
        check(text.lower() in answer.err.lower(), f"{text!r} is missing in {answer.err}")
    if line:
        check(f"memplan.toml:{line}" in answer.err, answer.err)


TARGET = '[[target]]\nname = "t"\nmodel = "models/mlp.onnx"\ngpu = "t4"\n'


def test_configurations_that_are_wrong():
    wrong(TARGET + 'limitt = "1GiB"\n', "'limitt'", "did you mean limit?", line=5)
    wrong(TARGET + "batchsize = 3\n", "'batchsize'", line=5)
    wrong("[defualts]\n" + TARGET, "did you mean defaults?", line=1)
    wrong("[gate]\nbasline = 'x'\n" + TARGET, "did you mean baseline?", line=2)
    wrong("", "no [[target]]")
    wrong("a = \n", "not TOML", line=1)
    wrong("schema = 2\n" + TARGET, "schema 1", line=1)
    wrong(TARGET + TARGET, "two targets", "'t'", line=5)
    wrong('[[target]]\nmodel = "m.onnx"\n', "no name", line=1)
    wrong('[[target]]\nname = "t"\ngpu = "t4"\n', "no model")
    wrong('[[target]]\nname = "t"\nmodel = "models/mlp.onnx"\n', "nothing is asked")
    wrong('[[target]]\nname = "t"\nmodel = "models/mlp.onnx"\nlimit = "90%"\n', "share of a card", line=4)
    wrong(TARGET + 'limit = "lots"\n', "'lots'", line=5)
    wrong(TARGET + "limit = -1\n", "negative", line=5)
    wrong(TARGET + "batch = true\n", "batch", line=5)
    wrong(TARGET + "clip = 3\n", "true or false", line=5)
    wrong(TARGET + 'dims = { seq = "x" }\n', "seq", line=5)
    wrong(TARGET + '[gate]\nfail_on = "always"\n', "'always'", "no-fit", line=6)
    wrong(TARGET + '[[ignore]]\nrule = "no-fit"\ntarget = "t"\nreason = "r"\n', "expires", "for ever", line=5)
    wrong(TARGET + '[[ignore]]\nrule = "no-fit"\ntarget = "nobody"\nreason = "r"\nexpires = 2030-01-01\n', "nobody", "nothing is ignored", line=7)
    wrong(TARGET + 'limit = "200%"\n', "more than the card", line=5)
    wrong(TARGET + '[[ignore]]\nrule = "nofit"\ntarget = "t"\nreason = "r"\nexpires = 2030-01-01\n', "did you mean no-fit?", line=6)
    wrong(TARGET + '[[ignore]]\nrule = "no-fit"\ntarget = "t"\nreason = "r"\nexpires = "2030-01-01"\n', "without quotes", line=9)


def test_paths_stay_in_the_folder():
    for path, why in (("../m.onnx", "leads out"), ("/etc/hostname", "absolute"), ("models/../../m.onnx", "leads out")):
        wrong(TARGET.replace("models/mlp.onnx", path), why, line=3)
    wrong(TARGET + '[gate]\nbaseline = "../b.json"\n', "leads out", line=6)
    r = Repository(TARGET, models=("mlp",))
    os.symlink("/etc", os.path.join(r.path, "models", "link"))
    r.change("models/mlp.onnx", "models/link/hostname")
    equal(r.run("check").code, 2, "a link out of the folder")


def test_the_configuration_is_found():
    r = Repository(TARGET, models=("mlp",))
    below = os.path.join(r.path, "a", "b")
    os.makedirs(below)
    inner = memplan("check", cwd=below)
    equal((inner.code, "PASS" in inner.out), (0, True), inner.err)
    os.rename(os.path.join(r.path, "memplan.toml"), os.path.join(r.path, "elsewhere.toml"))
    nothing = memplan("check", cwd=below)
    equal(nothing.code, 2)
    check("no memplan.toml" in nothing.err, nothing.err)
    equal(memplan("check", "--config", os.path.join(r.path, "elsewhere.toml"), cwd=below).code, 0)
    equal(memplan("check", cwd=below, env={"MEMPLAN_CONFIG": os.path.join(r.path, "elsewhere.toml")}).code, 0)
    r.write("pyproject.toml", ("[project]\nname = 'x'\n" + TARGET.replace("[[target]]", "[[tool.memplan.target]]")).encode())
    equal(memplan("check", cwd=below).code, 0, "pyproject.toml")


def test_where_values_come_from():
    r = Repository()
    text = r.run("config", "show", "--effective", "--fail-on", "tight", env={"MEMPLAN_BASELINE": "base.json"}).out
    lines = {(section, line.split()[0]): line for section, line in zip_sections(text)}
    for key, words in {("gate", "fail_on"): ("tight", "--fail-on"), ("gate", "baseline"): ("base.json", "MEMPLAN_BASELINE"), ("target small", "gpu"): ("24GB", "memplan.toml:4", "[defaults]"),
                       ("target small", "batch"): ("256", "memplan.toml:9"), ("target small", "limit"): ("off", "default"), ("target large", "limit"): ("12GiB", "memplan.toml:18"),
                       ("target large", "optimizer"): ("adamw", "default")}.items():
        for word in words:
            check(word in lines[key], f"{word} is missing in {lines[key]!r}")
    check("optimizer" not in r.run("config", "show").out, "what nobody set")
    document = r.run("config", "show", "--effective", "--format", "json").json()
    equal([s["name"] for s in document["sections"]], ["gate", "target small", "target large"])


def zip_sections(text):
    section = ""
    for line in text.splitlines()[1:]:
        if line and not line.startswith(" "):
            section = line
        elif line.strip():
            yield section, line


def test_any_earlier_report_is_a_baseline():
    r = Repository('[[target]]\nname = "t"\nmodel = "models/mlp.onnx"\nbatch = 256\ngpu = "t4"\nmax_increase = "1%"\n', models=("mlp",))
    report = memplan(model("mlp"), "--batch", "256", "--gpu", "t4", "--format", "json").json()
    with open(os.path.join(r.path, "old.json"), "w") as f:
        json.dump(report, f)
    code, d = r.document("--baseline", "old.json")
    equal((code, d["targets"][0]["diff"]["summary"]["delta_bytes"]), (0, 0))
    for member in ("kind", "command", "at_peak_by_module", "at_peak_by_op", "at_peak_by_dtype"):
        del report[member]
    del report["input"]["graph_hash"]
    report["schema_version"] = "1.0"
    with open(os.path.join(r.path, "old.json"), "w") as f:
        json.dump(report, f)
    code, d = r.document("--baseline", "old.json")
    equal((code, d["targets"][0]["diff"]["summary"]["delta_bytes"], d["targets"][0]["diff"]["tensors"]), (0, 0, []), "a report of schema 1.0")
    # The result of a gate is one, too.
    r.run("check", "--baseline", "old.json", "--export", "json=gate.json")
    equal(r.document("--baseline", "gate.json")[0], 0)


def test_baselines_that_are_none():
    r = Repository('[[target]]\nname = "t"\nmodel = "models/mlp.onnx"\nbatch = 256\ngpu = "t4"\nmax_increase = "1%"\n', models=("mlp",))
    good = memplan(model("mlp"), "--batch", "256", "--gpu", "t4", "--format", "json").json()
    cases = {"not json": "hello", "empty": "", "list": "[]", "schema 2": json.dumps(good | {"schema_version": "2.0"}), "no schema": json.dumps({"a": 1}),
             "truncated": json.dumps(good)[:-100], "error": json.dumps({"schema_version": "1.0", "error": {}}), "no parts": json.dumps({k: v for k, v in good.items() if k != "device"}),
             "deep": '{"schema_version": "1.1", "a": ' + "[" * 100000 + "]" * 100000 + "}"}
    for name, text in cases.items():
        r.write("base.json", text.encode())
        code, d = r.document("--baseline", "base.json")
        equal((code, d["targets"][0]["error"]["kind"]), (4, "baseline"), name)
        check(d["targets"][0]["error"]["hint"], name)
    # Made for another card or mode: not comparable.
    for words in (("--gpu", "l4"), ("--gpu", "t4", "--mode", "inference")):
        r.write("base.json", memplan(model("mlp"), "--batch", "256", *words, "--format", "json").out.encode())
        code, d = r.document("--baseline", "base.json")
        equal(code, 4, words)
        check("was made for" in d["targets"][0]["error"]["message"], d["targets"][0]["error"])


def test_baseline_commands():
    r = Repository()
    equal(r.run("baseline", "show").code, 4)
    equal(r.run("baseline", "update").code, 4)
    equal(r.run("baseline", "write").code, 0)
    equal(r.run("baseline", "write").code, 4, "not over one that is there")
    equal(r.run("baseline", "write", "--force").code, 0)
    shown = r.run("baseline", "show")
    check("small" in shown.out and "large" in shown.out, shown.out)
    with open(os.path.join(r.path, ".memplan", "baseline.json")) as f:
        text = f.read()
    check(max(map(len, text.splitlines())) < 1000 and text.count("\n") > 100, "one row per line, to be read in a review")
    equal(r.run("baseline", "update").code, 0)
    with open(os.path.join(r.path, ".memplan", "baseline.json")) as f:
        equal(f.read(), text, "an update of what has not changed changes nothing")
    equal(r.run("baseline", "update", "nobody").code, 2)
    equal(r.run("baseline", "forget").code, 2)
    # A new target has nothing to compare with, which is said and stops nothing.
    r.configure(r.config + '[[target]]\nname = "new"\nmodel = "models/mlp.onnx"\nbatch = 8\nmax_increase = 0\n')
    code, d = r.document()
    equal((code, rule(d, "new", "regression")["status"]), (0, "new"))


def test_ratchet():
    r = Repository(CONFIG + "\n[gate]\nratchet = true\n")
    equal(r.run("baseline", "write").code, 0)
    equal(r.run("check").code, 0)
    r.change("batch = 2\n", "batch = 1\n")
    code, d = r.document("large")
    equal((code, rule(d, "large", "ratchet")["status"]), (1, "failed"))


def test_targets_by_name():
    r = Repository(CONFIG.replace('max_increase = "1%"\n', "").replace('max_increase = "64MiB"\n', ""))
    equal(list(status(r.document("sm*")[1])), ["small"])
    equal(r.run("check", "huge").code, 2)


def test_diff_of_setups_and_reports():
    path = model("mlp")
    d = memplan("diff", path, "--batch", "256", "--gpu", "t4", "--to", "--batch 512", "--format", "json").json()
    base = memplan(path, "--batch", "256", "--gpu", "t4", "--no-search", "--format", "json").json()
    head = memplan(path, "--batch", "512", "--gpu", "t4", "--no-search", "--format", "json").json()
    equal((d["summary"]["base_bytes"], d["summary"]["head_bytes"]), (base["summary"]["peak_bytes"], head["summary"]["peak_bytes"]))
    equal(d["setup"], [{"name": "batch", "base": "256", "head": "512"}])
    equal(d["summary"]["model"], "same graph")
    equal(sum(p["delta_bytes"] for p in d["parts"]), d["summary"]["delta_bytes"], "the parts add up to the change")
    requested = next(c for c in d["counters"] if c["counter"] == "requested")["delta_bytes"]
    for rows in ("modules", "ops", "dtypes", "tensors"):
        equal(sum(row["delta_bytes"] for row in d[rows]), sum(t["bytes"] for t in head["tensors_at_peak"]) - sum(t["bytes"] for t in base["tensors_at_peak"]), rows)
        sizes = [abs(row["delta_bytes"]) for row in d[rows]]
        equal(sizes, sorted(sizes, reverse=True), "the largest change first")
    check(requested >= 0, requested)
    for name, document in (("base", base), ("head", head)):
        with open(scratch(name + ".json"), "w") as f:
            json.dump(document, f)
    saved = memplan("diff", scratch("base.json"), scratch("head.json"), "--format", "json").json()
    for side in (d, saved):
        side["base"].pop("flags"), side["head"].pop("flags")
    equal(saved, d, "saved reports and models")
    equal(memplan("diff", scratch("base.json"), path, "--batch", "512", "--gpu", "t4", "--format", "json").json()["summary"], d["summary"])
    equal(memplan("diff", path).code, 2)
    equal(memplan("diff", path, path, "--to", "--batch 3").code, 2)
    equal(memplan("diff", scratch("base.json"), "--to", "--batch 3").code, 2)
    equal(memplan("diff", path, "--to", "--bach 3").code, 2)


def test_diff_of_a_gates_targets():
    r = Repository()
    r.run("baseline", "write")
    answer = r.run("diff", ".memplan/baseline.json#small", ".memplan/baseline.json#large", "--format", "json")
    equal(answer.code, 0, answer.err)
    check(answer.json()["summary"]["delta_bytes"] > 0, "gpt2 needs more")
    equal(r.run("diff", ".memplan/baseline.json", ".memplan/baseline.json#large").code, 2)
    equal(r.run("diff", ".memplan/baseline.json#nobody", ".memplan/baseline.json#large").code, 2)
