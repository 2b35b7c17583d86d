"""The measurement campaigns (tools/measure.py, data/measured/*.json) as part of docs/accuracy.md: a real GPU against the
estimates and against the emulated GPU, and the emulated GPU's own campaign."""
import glob
import json
import os

import compare
import histograms

COUNTERS = compare.COUNTERS
# The cards that the comparison's tool knows, by what sizes scratch memory: compute capability and multiprocessors.
CARDS = {((9, 0), 132): "h100", ((8, 0), 108): "a100"}


def load():
    """[(path below the repository, about, {key of a task: result})], the latest of each device last."""
    found = []
    for path in sorted(glob.glob(os.path.join(compare.ROOT, "data", "measured", "*.json"))):
        with open(path) as f:
            content = json.load(f)
        if "about" in content:
            found.append((os.path.relpath(path, compare.ROOT), content["about"], {json.dumps(r["task"], sort_keys=True): r for r in content["results"]}))
    return found


def runs(about, results):
    """Rows as compare.py has them, of those runs that the estimator can be asked for."""
    card = CARDS.get((tuple(about["capability"]), about["multiprocessors"]))
    rows = []
    for r in results.values():
        config = r["task"].get("config")
        if not config or r.get("error") or not card:
            continue
        path = compare.zoo.model_file(config["model"])
        if path:
            rows.append({**config, "path": path, "gpu": card, "steps": r["steps"], "repeat": len(r["steps"])})
    return rows


def against_estimate(about, results, build):
    """[(row, differences)]"""
    rows = runs(about, results)
    return [(row, compare.differences(row, e)) for row, e in zip(rows, compare.predict(rows, build)) if "error" not in e]


def against_emulated(real, emulated):
    """Differences of the emulated device's counters from the real one's, of the runs that both have."""
    found = []
    for key, r in real.items():
        e = emulated.get(key)
        if r["task"]["kind"] == "run" and e and not r.get("error") and not e.get("error"):
            found.append((r, compare.differences(r, e)))
    return found


def growth(results):
    """[(after what, bytes outside of PyTorch's segments)] of the probes of libraries and NCCL."""
    rows = []
    for r in results.values():
        if r["task"].get("name") in ("libraries", "nccl"):
            rows += [(g["after"], g["outside_bytes"]) for g in r["growth"]]
    return rows


def steady(results, counter):
    return [d[counter, "steady"] for _, d in results]


def picture(folder, name, title, results):
    with open(os.path.join(folder, name), "w") as f:
        f.write(histograms.svg(title, [(c, steady(results, c)) for c in COUNTERS]))
    return f"![{title}]({name})"


def sections(build, folder):
    """Markdown; pictures are written to `folder`."""
    campaigns = load()
    real = [c for c in campaigns if not c[1]["emulated"]]
    emulated = [c for c in campaigns if c[1]["emulated"]]
    text = ["## Real GPUs against the estimates and against the emulated GPU", ""]
    if not real:
        text += ["No GPU has been measured yet. On a machine with one,", "", "    python tools/measure.py", "",
                 "stops by itself after 25 minutes (`--minutes`), goes on when it is called again, and writes `data/measured/real-*.json`; this section then holds the tables and",
                 "histograms of real against estimate and of real against emulated, and the growth of the process per library.", ""]
    for path, about, results in real:
        text += [f"### {about['device']}, driver {about['driver']}, PyTorch {about['torch']}", "", f"`{path}`, {about['date']}, `{about['command']}`.", ""]
        d = against_estimate(about, results, build)
        if d:
            text += ["Estimate against real:", "", *compare.table(d), "", picture(folder, f"accuracy-real-{len(text)}.svg", f"Estimate against {about['device']}", d), ""]
        for other, other_about, other_results in emulated:
            both = against_emulated(results, other_results)
            if both and other_about["capability"] == about["capability"]:
                text += [f"Emulated (`{other}`) against real:", "", *compare.table(both), "",
                         picture(folder, f"accuracy-emulated-{len(text)}.svg", f"Emulated against {about['device']}", both), ""]
        text += ["| after the first use of | bytes outside of PyTorch's segments |", "|---|---|", *(f"| {what} | {n:,} |" for what, n in growth(results)), ""]
    for path, about, results in emulated:
        number = sum(r["task"]["kind"] == "run" for r in results.values())
        text += [f"The campaign itself is proven on the emulated {about['gpu']}: `{path}` ({about['date']}, `{about['command']}`) holds its {number} runs and "
                 f"{len(results) - number} probes, made from start to end. What it says of context, NCCL, batch norm and recurrent layers are the emulation's own "
                 "settings, not measurements. The estimates against it:", "", *compare.table(against_estimate(about, results, build)), ""]
    text += ["## How to reproduce", "", "| what | command |", "|---|---|",
             "| the comparison and this page | `python tests/accuracy/compare.py --write docs/accuracy.md` |",
             "| the recordings | `python tests/accuracy/record.py --emulated build/release/emulated_gpu/libemulated_gpu.so` |",
             "| a sample of them, checked | `make test-live` |", "| 100 runs, bit for bit the same | `python tests/accuracy/repeat.py --emulated …/libemulated_gpu.so` |",
             "| the campaign | `python tools/measure.py` on a GPU, `--emulated …/libemulated_gpu.so` without |", ""]
    return text
