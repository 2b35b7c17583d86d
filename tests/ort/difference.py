"""Where memplan's requests of a run and the recorded ones part: python difference.py --memplan BINARY MODEL SOURCE BATCH [SETTING [RUN]]"""
import argparse
import difflib
import json
import os
import subprocess
import tempfile

import run as suite


def recorded(row, phase):
    sizes, out = [], []
    for p in suite.PHASES:
        for word in row[p].split():
            if word[0] == "+":
                sizes.append(int(word[1:]))
            size = sizes[-1] if word[0] == "+" else sizes[int(word[1:])]
            if p == phase:
                out.append((word[0], size))
    return out


def predicted(memplan, row, phase):
    options = [x for o in suite.OPTIONS[row["setting"]] for x in ("--ort", o)]
    seq = ["--seq", str(row["seq"])] if row["seq"] else []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "events.json")
        subprocess.run([memplan, "estimate", os.path.join(suite.MODELS, f"{row['model']}.{row['source'].replace('asked', 'plain')}.onnx.gz"), "--runtime", "ort", "--gpu", "h100-80gb",
                        "--batch", str(row["batch"]), *seq, *options, "--export", f"snapshot={path}.pickle"], capture_output=True)
        import pickle

        with open(path + ".pickle", "rb") as f:
            trace = pickle.load(f)["device_traces"][0]
    return [e for e in trace if e["action"] in ("alloc", "free_completed")]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--memplan", required=True)
    p.add_argument("model"), p.add_argument("source"), p.add_argument("batch", type=int)
    p.add_argument("setting", nargs="?", default="no pattern"), p.add_argument("phase", nargs="?", default="run 1")
    o = p.parse_args()
    with open(suite.TRUTH) as f:
        row = next(r for r in map(json.loads, f) if (r["model"], r["source"], r["batch"], r["setting"], r["kind"]) == (o.model, o.source, o.batch, o.setting, "requests"))
    true = recorded(row, o.phase)
    events = predicted(o.memplan, row, o.phase)
    weights = len(recorded(row, "session"))
    have = [("+" if e["action"] == "alloc" else "-", e["size"], (e.get("frames") or [{}])[0]) for e in events][weights:]
    have = have[: len(true) + 200]
    sizes = lambda l: [x[:2] for x in l]
    matcher = difflib.SequenceMatcher(None, sizes(have), true, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            print(tag, "at", a, "memplan", [(x[0] + str(x[1]), x[2].get("name", "")) for x in have[a:b]][:12], "recorded", ["".join(map(str, x)) for x in true[c:d]][:12], "after", [(x[0] + str(x[1]), x[2].get("name", "")) for x in have[max(0, a - 3):a]])


if __name__ == "__main__":
    main()
