#!/usr/bin/env python3
"""Do the recommendations of `memplan suggest` run? Twenty (model, card, batch) that do not fit; the first recommendation of
each is run by PyTorch on the emulated card with that card's memory, and so is the same setup with a quarter more samples
per micro-batch, which shows how much room was left.

    python tests/accuracy/recommendations.py --record --emulated build/release/emulated_gpu/libemulated_gpu.so

runs them and writes data/measured/emulated/recommendations-2.11.json. Without --record the suggestions are made again and
compared with the recorded ones (no PyTorch needed); the last line is "N passed, N failed".
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import zoo

RECORD = os.path.join(zoo.ROOT, "data", "measured", "emulated", "recommendations-2.11.json")

# Batches with many divisors, because micro-batches are divisors of the samples per optimizer step.
PAIRS = [
    ("gpt2", "a10", 120, 1024), ("gpt2", "t4", 60, 1024), ("gpt2-xl", "a100-80gb", 60, 1024), ("llama-tiny", "a10", 240, 1024),
    ("llama-tiny", "rtx3060-12gb", 240, 512), ("opt-125m", "rtx4090", 240, 1024), ("pythia-160m", "l4", 120, 1024), ("bert-base", "t4", 240, 384),
    ("bert-base", "rtx3060-12gb", 240, 512), ("qwen2-0.5b", "a100-40gb", 120, 1024), ("llama-3.2-1b", "h100-80gb", 120, 1024), ("t5-small", "a10", 240, 512),
    ("resnet50", "t4", 480, None), ("resnet50", "rtx3060-12gb", 240, None), ("vit_b_16", "a10", 480, None), ("convnext_tiny", "rtx3060-12gb", 240, None),
    ("densenet121", "a10", 480, None), ("swin_t", "l4", 480, None), ("unet", "l4", 240, None), ("wide_resnet50_2", "rtx4090", 480, None),
]


def memplan(build, *words):
    done = subprocess.run([os.path.join(build, "memplan"), *map(str, words)], capture_output=True, text=True, cwd=zoo.ROOT)
    if done.returncode not in (0, 1):
        raise RuntimeError(" ".join(map(str, words)) + ": " + done.stderr)
    return done.stdout


def suggestion(build, name, gpu, batch, seq):
    path = os.path.relpath(zoo.model_file(name), zoo.ROOT)
    words = ["--gpu", gpu, "--batch", batch] + (["--seq", seq] if seq else [])
    return path, json.loads(memplan(build, "suggest", path, *words, "--format", "json"))


def run_program(build, path, name, words, emulated, gpu):
    """What PyTorch says of the program that memplan prints for these flags: bytes, or out of memory."""
    program = memplan(build, "explain", path, *words, "--program")
    environment = dict(os.environ, EMULATED_GPU=gpu, LD_PRELOAD=os.path.abspath(emulated), PYTHONPATH=HERE)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
        f.write(program)
        f.flush()
        done = subprocess.run([sys.executable, f.name, f"zoo_builders:{name}"], capture_output=True, text=True, env=environment)
    said = {k + "_bytes": int(v.replace(",", "")) for k, v in re.findall(r"(\w+) +peak +([\d,]+) bytes", done.stdout)}
    if said:
        return {"ran": True, **said}
    if "OutOfMemoryError" in done.stderr:
        return {"ran": False}
    raise RuntimeError(f"{name}: {done.stderr[-800:]}")


def more_samples(words, batch):
    """The same words with a quarter more samples per micro-batch."""
    words = list(words)
    words[words.index("--batch") + 1] = str(-(-batch * 5 // 4))
    return words


def record(build, emulated, only):
    rows = []
    if only and os.path.exists(RECORD):
        with open(RECORD) as f:
            rows = [r for r in json.load(f)["pairs"] if not re.search(only, r["model"])]
    for name, gpu, batch, seq in PAIRS:
        if only and not re.search(only, name):
            continue
        path, answer = suggestion(build, name, gpu, batch, seq)
        first = answer["fitting"][0]
        words = first["command"].split()[2:]
        row = dict(model=name, gpu=gpu, batch=batch, seq=seq, present_bytes=answer["present"]["peak_bytes"], present_verdict=answer["present"]["verdict"],
                   usable_bytes=answer["device"]["usable_bytes"], margin_bytes=answer["device"]["margin_bytes"], flags=first["flags"],
                   micro_batch=first["micro_batch"], peak_bytes=first["peak_bytes"], recommended=run_program(build, path, name, words, emulated, gpu),
                   quarter_more=run_program(build, path, name, more_samples(words, first["micro_batch"]), emulated, gpu))
        rows.append(row)
        print(f"{name} on {gpu}: {first['flags']}: {'ran' if row['recommended']['ran'] else 'OUT OF MEMORY'}, "
              f"a quarter more {'ran' if row['quarter_more']['ran'] else 'out of memory'}", flush=True)
        order = {p[:2]: i for i, p in enumerate(PAIRS)}
        rows.sort(key=lambda r: order.get((r["model"], r["gpu"]), 99))
        with open(RECORD, "w") as f:
            json.dump({"command": "python tests/accuracy/recommendations.py --record", "pairs": rows}, f, indent=1)
            f.write("\n")


def check(build):
    with open(RECORD) as f:
        rows = json.load(f)["pairs"]
    passed = failed = 0

    def expect(good, text):
        nonlocal passed, failed
        passed, failed = passed + good, failed + (not good)
        if not good:
            print("FAILED " + text)

    expect([(r["model"], r["gpu"]) for r in rows] == [p[:2] for p in PAIRS], "not every pair is recorded: run with --record")
    for r in rows:
        what = f"{r['model']} on {r['gpu']}"
        expect(r["present_verdict"] == "no-fit", f"{what} fits as it is, which is no test")
        expect(r["recommended"]["ran"], f"{what}: {r['flags']} ran out of memory")
        _, answer = suggestion(build, r["model"], r["gpu"], r["batch"], r["seq"])
        now = answer["fitting"][0]["flags"] if answer["fitting"] else "nothing"
        expect(now == r["flags"], f"{what}: memplan now recommends {now}, recorded is {r['flags']}: run with --record")
    tight = sum(not r["quarter_more"]["ran"] for r in rows)
    expect(2 * tight > len(rows), f"with a quarter more samples only {tight} of {len(rows)} run out of memory: too much room is left")
    slack = sorted((r["usable_bytes"] - r["peak_bytes"]) / r["usable_bytes"] for r in rows)
    print(f"{len(rows)} recommendations ran; with a quarter more samples {tight} run out of memory; free at the recommendation: "
          f"median {slack[len(slack) // 2]:.1%}, least {slack[0]:.1%}, most {slack[-1]:.1%} of the card (the margin asked for is 5 %)")
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(zoo.ROOT, "build", "release"))
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--emulated")
    parser.add_argument("--only", metavar="REGEX")
    options = parser.parse_args()
    if options.record:
        record(options.build, options.emulated, options.only)
    passed, failed = check(options.build)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
