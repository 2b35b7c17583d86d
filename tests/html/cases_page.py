"""The page as text: nothing is loaded, nothing in it can run but what memplan wrote."""
import csv
import json
import os
import re

import reports
from onnx import helper
from page import Page, csp_hash
from support import ROOT, check, equal, memplan, model, onnx_bytes, scratch, tensor, weight, write

EVERY = [(name,) for name in reports.SETUPS]
SHELL = 260_000  # bytes of the page without a report; docs/reports.md says 260 KB


def test_nothing_is_loaded(setup):
    page = Page(reports.text(setup, "html"))
    check(page.csp.startswith("default-src 'none';"), page.csp)
    check("unsafe" not in page.csp and "http" not in page.csp, page.csp)
    equal([x for x in page.loads if not (x[2].startswith("#") or x == ("link", "href", "data:,"))], [], "addresses")
    equal(page.handlers, [], "handlers")
    styles = "".join(page.styles)
    check("url(" not in styles and "@import" not in styles, "styles load nothing")


test_nothing_is_loaded.cases = EVERY


def test_policy_allows_exactly_what_is_there(setup):
    page = Page(reports.text(setup, "html"))
    equal({csp_hash(s) for s in page.scripts + page.styles}, page.allowed(), "hashes")
    equal((len(page.scripts), len(page.styles)), (3, 1))


test_policy_allows_exactly_what_is_there.cases = EVERY


def test_data_is_the_report(setup):
    """The page carries the document; rows of tensors go, which its timeline has as well, and what it does not draw. What
    the accuracy suite found comes with it (data/measured/accuracy.csv)."""
    shown, whole = Page(reports.text(setup, "html")).document(), dict(reports.document(setup))
    accuracy = shown.pop("accuracy")
    with open(os.path.join(ROOT, "data", "measured", "accuracy.csv")) as f:
        for row in csv.DictReader(line for line in f if not line.startswith("#")):
            if row["step"] == "steady":
                check(any(f"{row['runs']} recorded runs" in s and f"{row['counter']}: {row['exact']} exact" in s for s in accuracy), row)
    whole.pop("tensors_at_peak")
    whole["timeline"] = {k: v for k, v in whole["timeline"].items() if k not in ("arena_at_end", "driver")}
    check(shown == whole, "the same document")


test_data_is_the_report.cases = EVERY

EVIL = ["</script><script>alert(1)</script>", "<!--<script>", "<img src=x onerror=alert(1)>", "]]>&lt;b&gt;", "a\u2028b", "::error::x", "@DATA@ @TITLE@", "\x1b[31mred", "'\"><svg onload=alert(1)>", "javascript:alert(1)"]


def evil_model():
    nodes, weights = [], []
    for i, name in enumerate(EVIL):
        nodes.append(helper.make_node("MatMul", ["x" if i == 0 else EVIL[i - 1] + "o", name], [name + "o"], name=name))
        weights.append(weight(name, [8, 8]))
    return onnx_bytes(nodes, [tensor("x", [4, 8])], [tensor(EVIL[-1] + "o", [4, 8])], weights)


def test_names_cannot_break_out():
    path = write("</title><script>alert(2)<.onnx".replace("/", "_"), evil_model())
    answer = memplan(path, "--gpu", "l4", "--format", "html")
    check(answer.code in (0, 1), answer.err)
    page, clean = Page(answer.out), Page(reports.text("mlp", "html"))
    equal(page.tags, clean.tags, "no tag more than in any other report")
    equal({csp_hash(s) for s in page.scripts + page.styles}, page.allowed())
    strings = page.document()["timeline"]["strings"]
    for name in EVIL[:4]:
        check(any(name in s for s in strings), f"{name} is there as text")
    check(not any("\x1b" in s for s in strings), "control characters are gone")
    check("<script>alert(2)" in page.title, "the title is text")


def test_saved_reports_render_the_same():
    """memplan report of a saved document is what the estimate itself would have written."""
    again = memplan("report", reports.made("gpt2")["json"], "--format", "html")
    equal(again.code, 0, again.err)
    check(again.out == reports.text("gpt2", "html"), "the same bytes")


def test_same_bytes_every_time():
    one, two = (memplan(model("mlp"), "--gpu", "l4", "--batch", "32", "--format", "html").out for _ in range(2))
    check(one == two and len(one) > 10000, "same bytes")


def test_a_report_without_timeline():
    saved = scratch("plain.json")
    memplan(model("resnet18"), "--gpu", "l4", "--format", "json", "-o", saved)
    answer = memplan("report", saved, "--format", "html")
    equal(answer.code, 0, answer.err)
    shown = Page(answer.out).document()
    with open(saved) as f:
        rows = json.load(f)["tensors_at_peak"]
    c = shown["tensor_columns"]
    equal([(c["bytes"][i], c["strings"][c["name"][i]], c["categories"][c["category"][i]]) for i in range(len(c["name"]))], [(r["bytes"], r["name"], r["category"]) for r in rows])


def test_formats_that_need_the_run_say_so():
    saved = scratch("plain2.json")
    memplan(model("mlp"), "--gpu", "l4", "--format", "json", "-o", saved)
    for format in ("perfetto", "snapshot"):
        answer = memplan("report", saved, "--format", format)
        check(answer.code in (2, 3) and "--timeline" in answer.err, answer.err)


def test_size_of_the_shell():
    whole, page = reports.text("mlp", "html"), Page(reports.text("mlp", "html"))
    shell = len(whole.encode()) - len(page.data.encode())
    check(shell < SHELL, f"{shell} bytes")
    check("dygraphs" in page.scripts[1] and "Permission is hereby granted" in page.scripts[1], "the library's licence goes with it")


def test_words_of_the_page_are_words():
    """No placeholder is left, and text reaches the page only as text."""
    page = Page(reports.text("gpt2", "html"))
    equal(re.findall(r"@[A-Z_]+@", re.sub(r"(?s)<script.*?</script>", "", reports.text("gpt2", "html"))), [])
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "fetch(", "XMLHttpRequest", "WebSocket", "importScripts"):
        check(way not in page.scripts[2], way)
