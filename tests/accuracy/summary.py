#!/usr/bin/env python3
"""The figures of docs/accuracy.md in a form that reports carry: data/measured/accuracy.csv.

    python tests/accuracy/summary.py [--check]

compare.py --write makes the page; this takes its tables, so that no figure is typed. --check only says whether the file
is the one that the page gives, and ends with status 1 where it is not.
"""
import os
import re
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PAGE = os.path.join(ROOT, "docs", "accuracy.md")
FILE = os.path.join(ROOT, "data", "measured", "accuracy.csv")
# The groups of runs that a reader of a report cares about, by their headings.
GROUPS = {"Tuning models": "tuning", "Held-out models": "held-out", "Memory strategies (docs/strategies.md)": "strategies"}
ROW = re.compile(r"\| (requested|allocated|reserved), (first|steady) step \| ([\d.]+)% \| ([\d.]+)% \| ([\d.]+)% \| (\d+) of (\d+) \|")


def summary(text):
    lines = ["# made by tests/accuracy/summary.py from docs/accuracy.md; differences in percent of PyTorch's own figure", "group,counter,step,median,p95,max,exact,runs"]
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        heading, _, body = section.partition("\n")
        if heading in GROUPS:
            lines += [",".join([GROUPS[heading], *match]) for match in ROW.findall(body)]
    return "\n".join(lines) + "\n"


def main():
    with open(PAGE) as f:
        made = summary(f.read())
    if "--check" in sys.argv[1:]:
        with open(FILE) as f:
            if f.read() == made:
                return 0
        print(f"{os.path.relpath(FILE, ROOT)} is not what docs/accuracy.md says: python tests/accuracy/summary.py makes it")
        return 1
    with open(FILE, "w") as f:
        f.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
