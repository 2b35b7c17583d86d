#!/usr/bin/env python3
"""Compares memplan's rows with PyTorch, event by event, over every op program and recorded device.

    python tests/op_oracle/run.py [--build build/release] [--only TEXT] [--device h100] [--verbose]

Sizes, order, lifetimes and output strides must agree. known_differences.txt names programs that are known to differ
and why; they are counted apart, and one that agrees after all fails, so that the list stays honest.
Other versions of PyTorch (data/op_oracle/versions) are compared as h100@2.15: their recordings hold what 2.11 says otherwise.
--live PRELOAD asks PyTorch now (torch and the emulated device needed) instead of reading the recording.
Then what the rows keep for the backward pass is compared with derivatives.yaml (kept.py).
Ends with "N passed, N failed"; exit status 1 where something failed.
"""
import argparse
import difflib
import fnmatch
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import compare
import layouts
import programs
import record


def known_differences():
    """[(device pattern, program pattern, cause)]"""
    out = []
    with open(os.path.join(HERE, "known_differences.txt")) as f:
        for line in f:
            line = line.strip()
            if line and not line.startswith("#"):
                where, cause = line.split(" : ", 1)
                device, name = where.split("/", 1)
                out.append((device, name, cause))
    return out


def parts(device):
    """Card and version of "h100@2.15"."""
    card, _, version = device.partition("@")
    return card, version or record.BASE


def concerns(pattern, device):
    """A card's differences are those of all versions; "*@2.8" are of one."""
    return fnmatch.fnmatchcase(device if "@" in pattern else parts(device)[0], pattern)


def devices_recorded():
    found = sorted(f[:-8] for f in os.listdir(record.DATA) if f.endswith(".json.gz"))
    folder = os.path.join(record.DATA, "versions")
    return found + sorted(f[:-8].replace("-", "@") for f in os.listdir(folder) if f.endswith(".json.gz"))


def on_paper(tool, chosen, device):
    card, version = parts(device)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump([dict(p, device=card, torch=version) for p in chosen], f)
        f.flush()
        done = subprocess.run([tool, f.name], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{tool} failed: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def expected_of(chosen, device, live):
    if live:
        return {p["name"]: (record.digest(p), compare.lines(x)) for p, x in zip(chosen, record.answers(chosen, device, live))}
    card, version = parts(device)
    found = record.read(os.path.join(record.DATA, f"{card}.json.gz"))
    if version != record.BASE:
        found |= record.read(os.path.join(record.DATA, "versions", f"{card}-{version}.json.gz"))
    return {k: (v[0], v[1] and v[1].split("\n")) for k, v in found.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"))
    p.add_argument("--only", default="")
    p.add_argument("--device", action="append")
    p.add_argument("--live", metavar="PRELOAD")
    p.add_argument("--verbose", action="store_true", help="print every differing program in full")
    a = p.parse_args()
    tool = os.path.join(a.build, "tests", "trace_program")
    chosen = [x for x in programs.all_programs() if a.only in x["name"]]
    known, used = known_differences(), set()
    devices = a.device or devices_recorded()
    passed = failed = differing = 0
    everything, known_layouts, used_layouts = chosen, layouts.known_differences(), set()
    for device in devices:
        chosen = [x for x in everything if layouts.are_for(device, x["name"])]
        expected = expected_of(chosen, device, a.live)
        for program, answer in zip(chosen, on_paper(tool, chosen, device)):
            name = program["name"]
            fingerprint, want = expected.get(name, (None, None))
            if want is None:
                if fingerprint is None and not a.live:
                    print(f"FAILED {device}/{name}: not recorded; run record.py")
                    failed += 1
                elif a.live:
                    print(f"refused {device}/{name}")
                continue
            if fingerprint != record.digest(program):
                print(f"FAILED {device}/{name}: the program changed after it was recorded; run record.py")
                failed += 1
                continue
            got = compare.lines(answer)
            cause = next(((i, c) for i, (d, n, c) in enumerate(known) if concerns(d, device) and fnmatch.fnmatchcase(name, n)), None)
            if not layouts.are_for("", name):
                cause = (None, "another layout") if name in known_layouts else None
                used_layouts.add(name)
            if got == want and cause is None:
                passed += 1
            elif got == want:
                print(f"FAILED {device}/{name}: agrees now; take it off {'known' if layouts.are_for('', name) else 'layout'}_differences.txt")
                failed += 1
            elif cause is not None:
                used.add(cause[0])
                differing += 1
                print(f"known difference {device}/{name}: {cause[1]}")
            else:
                failed += 1
                print(f"FAILED {device}/{name}" + (f": {answer['error']}" if got is None else ""))
                for line in difflib.ndiff(want, got or []) if a.verbose else []:
                    if not line.startswith("?"):
                        print("   ", line)
    if not a.only and not a.device:
        for i, (device, name, _) in enumerate(known):
            if i not in used:
                print(f"FAILED known difference {device}/{name}: matches no differing program")
                failed += 1
        for name in sorted(known_layouts - used_layouts):
            print(f"FAILED layout_differences.txt: there is no program {name}")
            failed += 1
    print(f"{differing} known differences")
    if not a.only and not a.device:
        import kept  # what autograd keeps; here, since it uses this module

        agree, disagree = kept.check(a.build)
        passed, failed = passed + agree, failed + disagree
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
