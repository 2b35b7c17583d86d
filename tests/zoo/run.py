#!/usr/bin/env python3
"""The zoo: models that nobody adjusts memplan for, against PyTorch's own counters (docs/zoo.md).

    python tests/zoo/run.py [--binary PATH] [--half open|sealed] [--route pt2,onnx,recording] [--setup train,amp,infer] [--limit N] [--only PATTERN]
    python tests/zoo/run.py --show NAME          one open model's runs
    python tests/zoo/run.py --build build/release   the sample of the tests: 42 runs of the open half

Files come from the cache (MEMPLAN_ZOO_CACHE, default build/zoo; tests/zoo/collect.py fills it), truths from tests/zoo/truth. Of the
open half --csv FILE writes a row per run. Of the sealed half totals are printed and nothing else.
"""
import argparse
import csv
import os
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import totals
import naming
import store


def rows_of(program, half, routes, setups, only="", limit=10**9, jobs=1):
    """A row for every run that has a truth and a file."""
    infos, truths = store.infos(), store.truths()
    work = []
    for route in routes:
        names = [n for n in store.names() if naming.half(n) == half]
        if half == "sealed":
            names = store.drawn(names, route, truths)
        names = [n for n in names if re.search(only, n) and "open" in infos.get(naming.key(n), {}).get(route, {}) and os.path.exists(naming.path(n, route))]
        for name in names[:limit]:
            key = naming.key(name)
            work += [(name, route, setup, infos[key], truths[key, setup]) for setup in setups if (key, setup) in truths]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda w: totals.row(program, *w), work))


def table(rows, routes, setups):
    print("| route | set-up | " + " | ".join(totals.HEAD) + " |\n|" + "---|" * (2 + len(totals.HEAD)))
    for route in routes:
        for setup in [*setups, None]:
            chosen = [r for r in rows if r["route"] == route and setup in (None, r["setup"])]
            if chosen:
                print(f"| {route} | {setup or 'all'} | " + " | ".join(totals.cells(totals.totals(chosen))) + " |")


def distances(rows, routes, setups):
    """How far the requested truths are outside of their ranges, above `high` (+) or below `low` (-): a distribution, no names."""
    for route in routes:
        for setup in setups:
            off = sorted(totals.distance(r) for r in rows if r["route"] == route and r["setup"] == setup and r.get("outside_requested"))
            if off:
                print(f"{route} {setup}: outside by " + ", ".join(f"{100 * d:+.3f} %" for d in off))


def shares(label, rows):
    loaded = [r for r in rows if r["loads"]]
    if loaded:
        t = totals.totals(loaded)
        print(f"{label}: {t['runs']} runs, {100 * t['exact']:.1f} % exact, p95 {100 * t['p95']:.2f} %, "
              f"{sum(abs(r['steady_requested']) > 0.03 for r in loaded)} off by more than 3 %")


def by_kind(rows, routes):
    """Totals over the models of each library, and over the files that lack parameters, all set-ups together."""
    for route in routes:
        of = [r for r in rows if r["route"] == route]
        for library in sorted({r["name"].split("/")[0] for r in of}):
            shares(f"{route} {library}", [r for r in of if r["name"].split("/")[0] == library])
        for lacks, label in ((0, "whole files"), (1, "files that lack parameters")):
            shares(f"{route}, {label}", [r for r in of if r.get("lacks", 0) == lacks])


def missing(half, routes):
    """Of the models that were drawn: how many are not compared, and why."""
    infos, truths = store.infos(), store.truths()
    for route in routes:
        names = store.drawn([n for n in store.names() if naming.half(n) == half], route, truths)
        of = Counter()
        for name in names:
            info = infos.get(naming.key(name), {})
            what = "truth" if "truth" in info else route
            if error := info.get(what, {}).get("error"):
                of[what, error if error in store.LIMITS else "an error"] += 1
        print(f"{route}: {len(names)} models drawn" + "".join(f"; {n} without {'a truth' if what == 'truth' else 'a file'} ({why})" for (what, why), n in sorted(of.items())))


def show(rows):
    for r in rows:
        print(f"\n{r['name']}  {r['route']}  {r['setup']}")
        if not r["loads"]:
            print(f"  refused ({r['code']}): {r['error']}")
            continue
        for step in ("first", "steady", "peak"):
            print(f"  {step:7}" + "".join(f"  {c} {100 * r[f'{step}_{c}']:+.4f} %" for c in totals.COUNTERS if f"{step}_{c}" in r))
        for c in totals.COUNTERS:
            print(f"  {c:10} truth {r[f'truth_{c}']:>13,}  range {r[f'low_{c}']:>13,} … {r[f'high_{c}']:>13,}{'  OUTSIDE' if r[f'outside_{c}'] else ''}")
        print(f"  claims {'exact' if r['claims'] else 'no exactness'}, {r['unmodelled']} unmodelled, verdict {r['verdict']}")


def listed(rows):
    """Open runs, the worst first."""
    for r in sorted(rows, key=lambda r: -abs(r.get("steady_requested", 9))):
        if not r["loads"]:
            print(f"{r['name']} {r['route']} {r['setup']}: refused: {r['error'][:140]}")
        elif r["steady_requested"] or any(r[f"outside_{c}"] for c in totals.COUNTERS):
            outside = ",".join(c for c in totals.COUNTERS if r[f"outside_{c}"])
            print(f"{r['name']} {r['route']} {r['setup']}: " + " ".join(f"{c} {100 * r[f'steady_{c}']:+.3f} %" for c in store.COUNTERS)
                  + (" claims exact" if r["claims"] else "") + (f" outside: {outside}" if outside else ""))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=os.path.join(naming.ROOT, "build", "release", "memplan"))
    p.add_argument("--half", choices=["open", "sealed"], default="open")
    p.add_argument("--route", default="pt2")
    p.add_argument("--setup", default=",".join(naming.SETUPS))
    p.add_argument("--only", default="", help="regular expression on names of the open half")
    p.add_argument("--limit", type=int, default=10**9, help="at most so many models of each route")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--csv", help="a row per run (open half)")
    p.add_argument("--show", metavar="NAME", help="everything about one open model")
    p.add_argument("--history", nargs=2, metavar=("DATE", "COMMIT"), help="keep the totals in history.csv and docs/accuracy.md")
    p.add_argument("--build", help="a build folder, for the sample of the tests")
    a = p.parse_args()
    if a.build:
        import sample

        return sample.run(os.path.abspath(a.build))
    routes, setups = a.route.split(","), a.setup.split(",")
    if a.half == "sealed" and (a.only or a.csv or a.show or a.limit < 100):
        p.error("of the sealed half there are totals over all models only")
    if a.show:
        routes = [r for r in naming.ROUTES if os.path.exists(naming.path(a.show, r))] if naming.half(a.show) == "open" else []
    rows = rows_of(os.path.abspath(a.binary), a.half, routes, setups, f"^{re.escape(a.show)}$" if a.show else a.only, a.limit, a.jobs)
    if not rows:
        print("nothing to compare: no file and truth of such a name in this half")
        return 1
    if a.show:
        show(rows)
        return 0
    if a.history and (a.only or a.limit < 10**9):
        p.error("the history holds whole halves")
    if a.csv:
        columns = list(dict.fromkeys(k for r in rows for k in r))
        with open(a.csv, "w", newline="") as f:
            out = csv.DictWriter(f, columns)
            out.writeheader()
            out.writerows(rows)
    if a.half == "open":
        listed(rows)
    table(rows, routes, setups)
    distances(rows, routes, setups)
    by_kind(rows, routes)
    missing(a.half, routes)
    if a.history:
        import history

        history.add(*a.history, a.half, rows, routes, setups)
        history.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
