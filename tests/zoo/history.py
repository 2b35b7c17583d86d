"""The zoo's figures over time: history.csv, a row per half, route and set-up, and the section of docs/accuracy.md that is made from it.

    python tests/zoo/history.py        writes the section into docs/accuracy.md
"""
import csv
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import totals
import naming

FILE = os.path.join(naming.HERE, "history.csv")
PAGE = os.path.join(naming.ROOT, "docs", "accuracy.md")
HEADING = "## The zoo: models that nobody looked at"
WHERE = ("date", "commit", "half", "route", "setup")
FIGURES = ("models", "runs", "loads", "exact", "median", "p95", "above", "below", "allocated_p95", "reserved_p95",
           *(f"outside_{c}" for c in totals.COUNTERS), "over", "claimed", "false_claims", "width")


def rows():
    if not os.path.exists(FILE):
        return []
    with open(FILE, newline="") as f:
        return [{k: v if k in WHERE else float(v) if v else None for k, v in r.items()} for r in csv.DictReader(f)]


def add(date, commit, half, found, routes, setups):
    """Puts today's totals in the place of those of the same commit, half and route."""
    kept = [r for r in rows() if (r["commit"], r["half"]) != (commit, half) or r["route"] not in routes]
    for route in routes:
        for setup in [*setups, None]:
            chosen = [r for r in found if r["route"] == route and setup in (None, r["setup"])]
            if chosen:
                kept.append(dict(date=date, commit=commit, half=half, route=route, setup=setup or "all", **totals.totals(chosen)))
    with open(FILE, "w", newline="") as f:
        out = csv.DictWriter(f, [*WHERE, *FIGURES], lineterminator="\n")
        out.writeheader()
        for r in kept:
            out.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()})


def section():
    """Markdown: the sealed half first, the newest first."""
    text = [HEADING, "",
            "The zoo has models of timm, torchvision, transformers and peft, and models written for it in the way people write their own. Library models are listed",
            "by a program, not picked by hand. All are built, exported and run as users would do it ([zoo.md](zoo.md)). The estimates are compared with unmodified",
            "PyTorch on the emulated GPU. A hash of the name puts each model into one of two halves. Models of the *open* half may be looked at when a rule is",
            "wrong. Of the *sealed* half, only these totals are ever seen. So the sealed half tells you what to expect for a model that memplan has never met. The",
            "columns: *requested* is the peak of the steady step. *Outside* is the share of runs whose true peak is not within the range that the report states.",
            "*Above* is the share whose reserved bytes are above its `high`: a run that is capped there does not survive.",
            "*Claimed* counts the runs whose report calls every part of the program exact; *wrong* says how many of these are off by more than 0.1 %. The set-ups:",
            "train is fp32 with AdamW, amp is bf16 autocast with SGD and momentum, infer is fp32 inference.", "",
            "Each row covers the models that had been collected at its date, so rows of different commits may cover different models. Since 55fe0f3, models of the",
            "sealed half are drawn in the order of a hash. Of the first 30 names, 23 are compared by each route, 6 do not build or do not run on a GPU without",
            "values, and one could not be exported. Each model has a limit of 60 seconds of processor time (180 for ONNX); no model tried with this limit reached",
            "it. Before 55fe0f3, the limit was 30 seconds. Own models and text models came first then, because they are quick to export, so the older rows are of",
            "other models. A plus sign after a commit means that the row belongs to the next commit, made on top of the one named. So 55fe0f3 is the first look,",
            "and 55fe0f3+ has the figures for the same models after the last change of a rule. In the rows of e151c15 and 9c64433, ONNX and recordings cover only",
            "the three own models of the tests' sample. The rows of eb08dce are the first look at more models by ONNX. Rows with few models say little. The rows of",
            "2ad7d28 and 12bc3c4 are of the same models, which were drawn later (245 of the sealed half, 31 by ONNX). For these rows, memplan could ask",
            "PyTorch's cuDNN about convolutions that no table has. In earlier rows it did not ask, and recordings of language models used another loss. The rows of",
            "25950d7 are of 282 names of the sealed half, 101 by ONNX, collected anew; image-text models are compared with the reference program's loss. Those of",
            "2d5aedd are of 289 names, 101 by ONNX; its open half has 147 models by ONNX, most of them met since 25950d7. Those of",
            "cb92496 to c2097d91 are of 201 models of the sealed half, 66 of them by ONNX; those of dc8ecd97 to 0cc99429 of 145, 134 by ONNX. Those of 28 November",
            "are collected anew, by ONNX and as recordings, in the order of the hash; their open half is of models from the end of that order, which had been met as",
            ".pt2 files but not by ONNX: of the first 23, 73.5 % of 68 runs were exact and none outside of the range before a rule was changed. The rows of",
            "1e042291 are of 242 names of the sealed half in that order, 185 of them recorded, 174 by .pt2 and 160 by ONNX. Those of 7a70977a to 5b398656 are of",
            "331 names, those of db207c9b of 276 by ONNX and of 100 by .pt2. Before 7a70977a, ONNX files whose batch the exporter had fixed at that of its example",
            "were compared with runs at another batch (18 of 201). Own models were",
            "written with known causes of errors in mind, so they are harder than what people write on average.", ""]
    found = sorted(enumerate(rows()), key=lambda p: (p[1]["half"] != "sealed", [-ord(c) for c in p[1]["date"]], list(naming.ROUTES).index(p[1]["route"]), p[0]))
    head = ["models", "runs", "loads", "requested exact", "median", "p95", "max", "allocated p95", "reserved p95", "outside: requested", "allocated", "reserved", "process",
            "above", "claimed", "wrong", "width"]
    for half in ("sealed", "open"):
        chosen = [r for _, r in found if r["half"] == half]
        if chosen:
            text += [f"### {half.capitalize()} half", "", "| date | commit | route | set-up | " + " | ".join(head) + " |", "|" + "---|" * (4 + len(head))]
            for r in chosen:
                whole = {k: int(v) if k in ("models", "runs", "claimed", "false_claims") and v is not None else v for k, v in r.items()}
                if whole["exact"] is None:
                    whole = {k: v for k, v in whole.items() if v is not None}
                text.append(f"| {r['date']} | {r['commit']} | {r['route']} | {r['setup']} | " + " | ".join(totals.cells(whole)) + " |")
            text.append("")
    return text


def write():
    """Puts the section before the first of the other tables, or in the place of the old one."""
    with open(PAGE) as f:
        text = f.read()
    before, found, after = text.partition(HEADING + "\n")
    if found:
        after = after[after.index("\n## ") + 1:]
    else:
        at = text.index("\n## ") + 1
        before, after = text[:at], text[at:]
    with open(PAGE, "w") as f:
        f.write(before + "\n".join(section()) + "\n" + after)


if __name__ == "__main__":
    write()
