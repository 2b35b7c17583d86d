"""The section "timeline": what it keeps must be what the estimate says, to the byte."""
import json
import os

import jsonschema
import reports
from onnx import helper
from support import ROOT, check, equal, memplan, model, onnx_bytes, scratch, tensor, weight, write

EVERY = [(name,) for name in reports.SETUPS]

with open(os.path.join(ROOT, "docs", "report.schema.json")) as f:
    VALIDATOR = jsonschema.Draft202012Validator(json.load(f))


def test_schema(setup):
    equal([f"{'/'.join(map(str, e.path))}: {e.message[:200]}" for e in VALIDATOR.iter_errors(reports.document(setup))], [])


test_schema.cases = EVERY


def test_peaks_survive(setup):
    d, t = reports.document(setup), reports.document(setup)["timeline"]
    for counter in ("requested", "allocated", "reserved"):
        equal(max(t[f"{counter}_bytes"]), d["counters"][f"{counter}_bytes"], counter)
    equal(max(t["reserved_bytes"]) + t["context_bytes"], d["summary"]["peak_bytes"], "process")
    check(t["peak_event"] in t["at"], "the event of the peak is kept")
    equal(t["allocated_bytes"][t["at"].index(t["peak_event"])], d["counters"]["allocated_bytes"], "allocated at the peak's event")
    equal(t["at"], sorted(set(t["at"])), "events ascend")
    check(t["at"][-1] < t["events"], "events end")


test_peaks_survive.cases = EVERY


def test_kinds_add_up(setup):
    t = reports.document(setup)["timeline"]
    sums = [sum(column) for column in zip(*t["by_category"].values())]
    equal(sums, t["requested_bytes"], "kinds against requested")


test_kinds_add_up.cases = EVERY


def test_allocations_say_the_same_as_the_curve(setup):
    """Replayed from births and deaths alone, requested bytes are the curve's at every point that it keeps."""
    t = reports.document(setup)["timeline"]
    a = t["allocations"]
    equal(a["of"], len(a["name"]), "small runs keep every allocation")
    change = [0] * (t["events"] + 1)
    for size, born, died in zip(a["bytes"], a["born"], a["died"]):
        change[born] += size
        if died >= 0:
            change[died] -= size
    level, levels = 0, []
    for event in range(t["events"]):
        level += change[event]
        levels.append(level)
    equal([levels[e] for e in t["at"]], t["requested_bytes"], "requested")


test_allocations_say_the_same_as_the_curve.cases = EVERY


def test_tensors_at_the_peak(setup):
    d = reports.document(setup)
    t = d["timeline"]
    a, s = t["allocations"], t["strings"]
    alive = sorted((a["bytes"][i], s[a["name"][i]], s[a["module"][i]], s[a["reason"][i]]) for i in range(len(a["name"]))
                   if a["born"][i] <= t["peak_event"] and not 0 <= a["died"][i] <= t["peak_event"])
    told = sorted((x["bytes"], x["name"], x["module"], x["reason"]) for x in d["tensors_at_peak"])
    equal(alive, told, "alive at the peak")


test_tensors_at_the_peak.cases = EVERY


def test_phases_cover_the_run(setup):
    t = reports.document(setup)["timeline"]
    spans = t["spans"]
    equal([s["begin"] for s in spans[1:]], [s["end"] for s in spans[:-1]], "without gaps")
    equal((spans[0]["begin"], spans[-1]["end"]), (0, t["events"]), "from end to end")
    equal(sorted({s["step"] for s in spans}), list(range(max(s["step"] for s in spans) + 1)), "steps")


test_phases_cover_the_run.cases = EVERY


def test_arena(setup):
    """The map at the peak holds what is reserved, allocated and requested there, and no two blocks overlap."""
    t = reports.document(setup)["timeline"]
    segments = t["arena"]["segments"]
    at = t["at"].index(t["peak_event"])
    equal(sum(s["bytes"] for s in segments), t["reserved_bytes"][at], "reserved")
    used = [b for s in segments for b in s["blocks"] if b[2] != -1]
    equal(sum(b[0] for b in used), t["allocated_bytes"][at], "allocated")
    equal(sum(b[1] for b in used), t["requested_bytes"][at], "requested")
    for s in segments:
        equal(sum(b[0] for b in s["blocks"]), s["bytes"], "blocks tile their segment")
    equal(len({b[2] for b in used}), len(used), "an allocation lies in one place")
    ends = sorted((s["address"], s["address"] + s["bytes"]) for s in segments)
    check(all(a[1] <= b[0] for a, b in zip(ends, ends[1:])), "segments do not overlap")
    for s in segments:
        offset = s["address"]
        for size, _, row in s["blocks"]:
            if row >= 0:
                equal(t["allocations"]["address"][row], offset, "address")
            offset += size


test_arena.cases = EVERY


def test_curves_are_estimates_of_their_own():
    d = reports.document("gpt2")
    equal([c["dimension"] for c in d["scaling"]], ["batch", "sequence"])
    for curve, flag in zip(d["scaling"], ("--batch", "--seq")):
        here = next(p for p in curve["points"] if p["size"] == curve["here"])
        equal(here["peak_bytes"], d["summary"]["peak_bytes"], "this setup")
        equal([p["size"] for p in curve["points"]], sorted({p["size"] for p in curve["points"]}))
        other = curve["points"][0]
        words = ["--batch", "4", "--seq", "256", "--amp", "bf16", "--gpu", "24GB"]
        words[words.index(flag) + 1] = str(other["size"])
        alone = memplan(model("gpt2"), *words, "--no-search", "--format", "json", "--exit-zero").json()
        equal((other["peak_bytes"], other["requested_bytes"], other["verdict"]), (alone["summary"]["peak_bytes"], alone["counters"]["requested_bytes"], alone["summary"]["verdict"]), f"{flag} {other['size']}")


def test_cards_are_estimates_of_their_own():
    cards = {c["key"]: c for c in reports.document("gpt2")["alternatives"]["devices"]}
    check(len(cards) > 30, "every card is there")
    for key in ("t4", "h100-80gb", "rtx4060"):
        if key not in cards:
            continue
        alone = memplan(model("gpt2"), "--batch", "4", "--seq", "256", "--amp", "bf16", "--gpu", key, "--no-search", "--format", "json", "--exit-zero").json()["summary"]
        equal((cards[key]["peak_bytes"], cards[key]["verdict"]), (alone["peak_bytes"], alone["verdict"]), key)


def test_plain_json_stays_small():
    plain = memplan(model("gpt2"), *reports.SETUPS["gpt2"][1:], "--format", "json", "--exit-zero")
    check("timeline" not in plain.json() and "scaling" not in plain.json(), "only --timeline adds it")


def test_suggestions_hold():
    """What does not fit comes with setups that do, each of which gives the same peak when it is asked for."""
    d = reports.document("gpt2-too-large")
    equal(d["summary"]["verdict"], "no-fit")
    check(d["suggestions"], "something is suggested")
    for s in d["suggestions"]:
        equal(s["verdict"], "fits", s["flags"])
        check(s["settings"]["pytorch"], "settings to paste")
    first = d["suggestions"][0]
    words = {"--gpu": "8GiB", "--batch": "8", "--seq": "1024"}
    flags = first["flags"].split()
    for i, word in enumerate(flags):
        if word in words and i + 1 < len(flags):
            del words[word]
    alone = memplan(model("gpt2"), *[w for pair in words.items() for w in pair], *flags, "--no-search", "--format", "json", "--exit-zero").json()["summary"]
    equal((alone["verdict"], alone["peak_bytes"]), ("fits", first["peak_bytes"]), first["flags"])


def test_large_runs_are_capped_and_keep_their_peak():
    """Hundreds of thousands of allocations: the page stays below 20 MB, keeps 100,000 of them and the peak to the byte."""
    count = 30_000
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t0"])] + [helper.make_node("Sin", [f"t{i}"], [f"t{i + 1}"]) for i in range(count)]
    path = write("long.onnx", onnx_bytes(nodes, [tensor("x", [64, 8])], [tensor(f"t{count}", [64, 64])], [weight("w", [8, 64])]))
    page, saved = scratch("long.html"), scratch("long.json")
    answer = memplan(path, "--gpu", "24GB", "--no-search", "--steps", "6", "--format", "json", "--timeline", "-o", saved, "--export", f"html={page}", timeout=300)
    equal(answer.code, 0, answer.err)
    check(os.path.getsize(page) < 20_000_000, f"{os.path.getsize(page)} bytes")
    with open(saved) as f:
        d = json.load(f)
    t = d["timeline"]
    check(t["allocations"]["of"] > 300_000 and len(t["allocations"]["name"]) == 100_000, t["allocations"]["of"])
    check(len(t["at"]) < 8000 < t["events"], f"{len(t['at'])} of {t['events']} points")
    for counter in ("requested_bytes", "allocated_bytes", "reserved_bytes"):
        equal(max(t[counter]), d["counters"][counter], counter)
