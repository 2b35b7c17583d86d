#!/usr/bin/env python3
"""Every version of PyTorch against runs recorded with that version (data/measured/emulated/versions-X.Y.jsonl),
and what variables of the environment change (environments-X.Y.jsonl, which the table leaves out).

    python tests/accuracy/versions.py [--build build/release] [--only REGEX] [--list] [--write docs/versions.md] [--as X.Y]

A run passes when it is inside the bounds of compare.py or of a cause that data/measured/causes.toml states for its version.
--list: the differences of every run. --as: what another version's profile would say of them. Ends with "N passed, N failed".
Needs neither PyTorch nor a GPU; record.py --versions makes the recordings.
"""
import argparse
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare
import zoo

BEGIN, END = "<!-- figures: made by tests/accuracy/versions.py --write -->", "<!-- end of figures -->"


def rows():
    found = compare.load_rows("versions") + compare.load_rows("environments")
    index = zoo.index()
    for row in found:
        row["version"] = ".".join(row["torch"].split(".")[:2])
        row["group"] = index[row["model"]]["group"]
    return found


def order(version):
    return [int(n) for n in version.split(".")]


def figures(results):
    """One line of the page for each version."""
    lines = ["| PyTorch | runs | requested exact | median | p95 | max | allocated p95 | reserved p95 | reserved max |", "|---|---|---|---|---|---|---|---|---|"]
    for version in sorted({r["version"] for r, _ in results}, key=order):
        d = [x for r, x in results if r["version"] == version and "env" not in r]
        if not d:
            continue
        worst = {c: [abs(compare.worst(x, c)) for x in d] for c in compare.COUNTERS}
        q = lambda c, p: f"{compare.quantile(worst[c], p):.3%}"
        lines.append(f"| {version} | {len(d)} | {sum(w == 0 for w in worst['requested'])} | {q('requested', .5)} | {q('requested', .95)} | "
                     f"{max(worst['requested']):.3%} | {q('allocated', .95)} | {q('reserved', .95)} | {max(worst['reserved']):.3%} |")
    return lines


def write(path, lines):
    with open(path) as f:
        text = f.read()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    with open(path, "w") as f:
        f.write("\n".join([head + BEGIN, *lines, END]) + tail)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(zoo.ROOT, "build", "release"))
    p.add_argument("--only", default="", help="regular expression on version, card and command")
    p.add_argument("--as", dest="other", help="estimate every run as this version")
    p.add_argument("--list", action="store_true")
    p.add_argument("--write", metavar="FILE")
    a = p.parse_args()
    chosen = [r for r in rows() if re.search(a.only, f"{r['version']} {compare.name(r)}")]
    asked = [{**r, "torch": a.other or r["version"]} for r in chosen]
    causes, results, failed = compare.load_causes(), [], 0
    for row, estimate in zip(chosen, compare.predict(asked, a.build)):
        title = f"{row['version']} {compare.name(row)}"
        if "error" in estimate:
            print(f"FAILED {title}: {estimate['error']}")
            failed += 1
            continue
        d = compare.differences(row, estimate)
        results.append((row, d))
        passed, why = compare.judge(row, d, causes)
        failed += not passed
        if a.list or not passed:
            print(("" if passed else "FAILED ") + f"{title}: " + "  ".join(f"{c} {d[c, 'first']:+.3%} {d[c, 'steady']:+.3%}" for c in compare.COUNTERS) + f" {why}")
    print("\n".join(figures(results)))
    if a.write:
        write(a.write, figures(results))
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
