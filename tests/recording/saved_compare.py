#!/usr/bin/env python3
"""What memplan says of compiled graph files, beside PyTorch: python saved_compare.py SAVED_VALUES MEMPLAN FOLDER [NAME …]

FOLDER is what saved_values.py wrote, and saved_peaks.py where there are peaks. Prints a line for each program, then how many saved values are exact and how far the peaks
are off, and the same under each activation_memory_budget that the folder knows; the last line is "N passed, N failed". A program fails where the saved bytes differ by more than 1 % or the requested peak of the warm run lies outside of the range.
"""
import json
import os
import subprocess
import sys

PRECISION = {"fp32": [], "bf16": ["--precision", "bf16"], "amp-bf16": ["--amp", "bf16"]}


def load(path):
    with open(path) as f:
        return json.load(f)


def saved(tool, folder, name, truth, budget):
    """(memplan's bytes, milliseconds, ops without a row) or None"""
    done = subprocess.run([tool, os.path.join(folder, name + ".pt2"), str(truth["batch"]), truth["precision"], budget], capture_output=True, text=True)
    answer = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-200:]}
    return None if "error" in answer else (answer["bytes"], answer["trace_ms"] + answer["cut_ms"], answer["guessed"])


def peak(program, folder, name, truth, budget):
    """(how far off the requested bytes of the warm run are, whether the range holds them) or None"""
    path = os.path.join(folder, name + (".peak.json" if budget == "1" else f".peak-{budget}.json"))
    if not os.path.exists(path):
        return None
    warm = load(path)["warm"][0]
    done = subprocess.run([program, os.path.join(folder, name + ".pt2"), "--compile", "--gpu", "h100-80gb", "--format", "json", "--exit-zero", "--loss", "cross-entropy",
                           "--batch", str(truth["batch"]), "--activation-memory-budget", budget, *PRECISION[truth["precision"]]], capture_output=True, text=True)
    answer = json.loads(done.stdout)
    span = answer["ranges"]["requested_bytes"]
    return answer["counters"]["requested_bytes"] / warm - 1, span["low_bytes"] <= warm <= span["high_bytes"]


def main():
    tool, program, folder, *names = sys.argv[1:]
    exact, off, held, passed, failed = 0, [], 0, 0, 0
    for name in names or sorted(f[:-5] for f in os.listdir(folder) if f.endswith(".json") and ".peak" not in f):
        truth = load(os.path.join(folder, name + ".json"))
        if "saved" not in truth:
            print(f"{name}: no whole graph: {truth.get('error', '')[:90]}")
            continue
        rows = [("1", truth["bytes"])] + [(b, v["bytes"]) for b, v in truth.get("budgets", {}).items()]
        for budget, kept in rows:
            mine, top = saved(tool, folder, name, truth, budget), peak(program, folder, name, truth, budget)
            wrong = mine is None or abs(mine[0] - kept) > 0.01 * max(1, kept) or (top is not None and not top[1])
            exact += mine is not None and mine[0] == kept
            if top:
                off.append(abs(top[0]))
                held += top[1]
            text = "no answer" if mine is None else f"saved {mine[0] / max(1, kept) - 1 if kept else mine[0]:+.3%}, {mine[1]:.0f} ms" + (f", no row for {mine[2]}" if mine[2] else "")
            print(f"{'FAILED ' if wrong else ''}{name}{'' if budget == '1' else ' under a budget of ' + budget}: {text}"
                  + (f"; requested {top[0]:+.3%}{'' if top[1] else ', outside of the range'}" if top else ""), flush=True)
            passed, failed = passed + (not wrong), failed + bool(wrong)
    off.sort()
    print(f"saved bytes exact in {exact} of {passed + failed}" + (f"; requested median {off[len(off) // 2]:.2%}, p95 {off[max(0, -(-95 * len(off) // 100) - 1)]:.2%}, "
                                                                  f"inside the range {held} of {len(off)}" if off else ""))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
