"""memplan's answers against the recorded truths: one row per run, and totals. Needs no PyTorch."""
import json
import statistics
import subprocess

import naming
import store

COUNTERS = ("requested", "allocated", "reserved", "process")
LACKS = ("their bytes are missing here", "none has a like name")  # memplan says one of these of a file that lacks parameters
# Parts that say nothing about the program: the context is assumed for every card that was not measured, and what the allocator adds is a model of it.
APART = ("context", "rounding", "cached", "cache")


def document(program, path, setup, batch, flags=(), seconds=60):
    """The report of a run, or a document with an error."""
    flags = [*(["--batch", str(batch)] if batch else []), *flags]
    try:
        done = subprocess.run([program, path, "--gpu", naming.GPU, "--format", "json", "--no-search", "--exit-zero", *flags, *naming.SETUPS[setup][1]],
                              capture_output=True, text=True, errors="replace", timeout=seconds)
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return dict(error=dict(message=f"no answer within {seconds} s", code=-1))
    except ValueError:
        return dict(error=dict(message=f"it ended with {done.returncode}: {done.stderr.strip()[-200:]}", code=done.returncode))


def claims(report):
    """Whether every part of the program's own is said to be exact, and nothing to be unmodelled."""
    parts = [p for p in report["breakdown"] if not any(a in p["category"].lower() for a in APART)]
    return all(p["basis"] == "exact" for p in parts) and not report["unmodelled"]


def ranges(report):
    """{counter: (low, high)} of the whole run. Where the report states one for the process only, the other counters are as far off as that one can be."""
    summary, counters = report["summary"], report["counters"]
    below, above = summary["peak_bytes"] - summary["low_bytes"], summary["high_bytes"] - summary["peak_bytes"]
    stated = report.get("ranges", {})
    found = {}
    for c in COUNTERS:
        own = stated.get(c) or stated.get(f"{c}_bytes")
        own = own and (own["low_bytes"], own["high_bytes"])
        found[c] = own or (counters[f"{c}_bytes"] - below, counters[f"{c}_bytes"] + above)
    # The context is a setting of the emulated device, so that its range must not cover for the program's.
    for source in stated.get("sources", []):
        if source["about"] == "context":
            low, high = found["process"]
            found["process"] = low + source["below"]["process_bytes"], high - source["above"]["process_bytes"]
    return found


def row(program, name, route, setup, info, truth):
    """A run as a dictionary: loads, the differences of each counter in the first and the steady step, the claim, the ranges."""
    found = dict(name=name, route=route, setup=setup, loads=0)
    peaks = {c: max(truth[f"{s}_{c}"] for s in store.STEPS) for c in store.COUNTERS}
    # The truths of language models ran the reference program's loss, not transformers' own; so did the recordings.
    flags = ["--loss", "cross-entropy"] if name.startswith(("hf/causal-lm/", "hf/masked-lm/", "hf/image-text/")) and setup != "infer" and route != "recording" else []
    report = document(program, naming.path(name, route), setup, naming.batch(name) if info[route]["open"] else None, flags)
    if "error" in report:
        return dict(found, error=report["error"]["message"][:200], code=report["error"].get("code"))
    # On an emulated device the context is a setting. So the process is PyTorch's reserved bytes beside the context that the report names.
    peaks["process"] = peaks["reserved"] + report["device"]["context_bytes"]
    found.update({f"truth_{c}": peaks[c] for c in COUNTERS})
    steps = [s["peak"] for s in report["steps"] if s["step"] > 0]
    for label, ours, at in (("first", steps[0], "first"), ("steady", steps[-1], "steady")):
        for c in store.COUNTERS:
            found[f"{label}_{c}"] = ours[f"{c}_bytes"] / truth[f"{at}_{c}"] - 1
    stated = ranges(report)
    found["lacks"] = int(any(text in w["message"] for w in report["warnings"] for text in LACKS))
    found.update(loads=1, claims=int(claims(report)), verdict=report["summary"]["verdict"], unmodelled=len(report["unmodelled"]))
    for c in COUNTERS:
        low, high = stated[c]
        found[f"peak_{c}"] = report["counters"][f"{c}_bytes"] / peaks[c] - 1
        found[f"low_{c}"], found[f"high_{c}"] = low, high
        found[f"outside_{c}"] = int(not low <= peaks[c] <= high)
    # Would a process have survived whose memory ends at `high`?
    found["over"] = int(peaks["reserved"] > stated["reserved"][1])
    # Its width against what the estimate says of PyTorch's own memory: the context would hide it in small models.
    low, high = stated["requested"]
    found["width"] = (high - low) / report["counters"]["requested_bytes"]
    return found


def distance(row):
    """How far the requested truth is above `high` (positive) or below `low` (negative), as a share of it."""
    truth, low, high = (row[f"{k}_requested"] for k in ("truth", "low", "high"))
    return max(0, truth - high) / truth - max(0, low - truth) / truth


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def totals(rows):
    """What may be said of a half: nothing but numbers."""
    loaded = [r for r in rows if r["loads"]]
    found = dict(models=len({r["name"] for r in rows}), runs=len(rows), loads=len(loaded) / len(rows))
    if not loaded:
        return found
    off = [abs(r["steady_requested"]) for r in loaded]
    signed = [r["steady_requested"] for r in loaded]
    claiming = [r for r in loaded if r["claims"]]
    found.update(exact=sum(o == 0 for o in off) / len(off), median=statistics.median(off), p95=quantile(off, 0.95), above=max(0, *signed, 0), below=min(0, *signed, 0),
                 allocated_p95=quantile([abs(r["steady_allocated"]) for r in loaded], 0.95), reserved_p95=quantile([abs(r["steady_reserved"]) for r in loaded], 0.95),
                 **{f"outside_{c}": sum(r[f"outside_{c}"] for r in loaded) / len(loaded) for c in COUNTERS}, over=sum(r["over"] for r in loaded) / len(loaded), claimed=len(claiming),
                 false_claims=sum(abs(r["steady_requested"]) > 0.001 for r in claiming), width=statistics.median(r["width"] for r in loaded))
    return found


HEAD = ["models", "runs", "loads", "requested exact", "median", "p95", "max", "allocated p95", "reserved p95",
        "truth outside the range: requested", "allocated", "reserved", "process", "reserved above `high`", "claimed exact", "of these wrong by > 0.1 %", "median width"]


def cells(t):
    percent = lambda v, digits=1: f"{100 * v:.{digits}f} %"
    if "exact" not in t:
        return [str(t["models"]), str(t["runs"]), percent(t["loads"])] + ["–"] * (len(HEAD) - 3)
    return [str(t["models"]), str(t["runs"]), percent(t["loads"]), percent(t["exact"]), percent(t["median"], 3), percent(t["p95"], 2),
            f"+{100 * t['above']:.1f} / {100 * t['below']:.1f} %", percent(t["allocated_p95"], 2), percent(t["reserved_p95"], 2),
            *(percent(t[f"outside_{c}"]) for c in COUNTERS), "–" if t.get("over") is None else percent(t["over"]), str(t["claimed"]), str(t["false_claims"]), percent(t["width"], 2)]
