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

# With --keep-global-batch no every batch may be recommended, so that the room left is the search's and not that of the divisors
# of a batch.
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
    return path, json.loads(memplan(build, "suggest", path, *words, "--keep-global-batch", "no", "--format", "json"))


def worker():
    """Runs programs, one JSON line each with "program", "model" and "gpu": imports PyTorch once and forks for each."""
    import runpy

    import torch
    import torchvision  # noqa: F401
    import transformers

    for name in ("GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration", "BertForMaskedLM", "OPTForCausalLM", "GPTNeoXForCausalLM", "Qwen2ForCausalLM"):
        getattr(transformers, name)
    torch.set_num_threads(1)
    for line in sys.stdin:
        run = json.loads(line)
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            os.environ["EMULATED_GPU"] = run["gpu"]
            os.dup2(write, 1), os.dup2(write, 2)
            sys.argv = ["program.py", f"zoo_builders:{run['model']}"]
            conf = re.search(r'PYTORCH_ALLOC_CONF"\] = "([^"]*)"', run["program"])
            if conf:  # PyTorch was imported before the program could set it
                torch._C._accelerator_setAllocatorSettings(conf[1])
            with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
                f.write(run["program"])
                f.flush()
                try:
                    runpy.run_path(f.name, run_name="__main__")
                except BaseException as e:
                    print(f"{type(e).__name__}: {e}"[:600])
            sys.stdout.flush()
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as f:
            text = f.read()
        os.wait()
        print(json.dumps(text), flush=True)


class Runner:
    def __init__(self, emulated):
        environment = dict(os.environ, LD_PRELOAD=os.path.abspath(emulated), PYTHONPATH=HERE)
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def run(self, program, name, gpu):
        """What PyTorch says of the program: bytes, or out of memory."""
        self.process.stdin.write(json.dumps({"program": program, "model": name, "gpu": gpu}) + "\n")
        self.process.stdin.flush()
        text = json.loads(self.process.stdout.readline())
        said = {k + "_bytes": int(v.replace(",", "")) for k, v in re.findall(r"(\w+) +peak +([\d,]+) bytes", text)}
        if said:
            return {"ran": True, **said}
        if "OutOfMemoryError" in text:
            return {"ran": False}
        raise RuntimeError(f"{name}: {text[-800:]}")


def more_samples(words, batch):
    """The same words with a quarter more samples per micro-batch."""
    words = list(words) if "--batch" in words else [*words, "--batch", str(batch)]
    words[words.index("--batch") + 1] = str(-(-batch * 5 // 4))
    return words


def record(build, emulated, only):
    runner = Runner(emulated)
    program = lambda path, words: memplan(build, "explain", path, *words, "--program")
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
                   micro_batch=first["micro_batch"], peak_bytes=first["peak_bytes"], recommended=runner.run(program(path, words), name, gpu),
                   quarter_more=runner.run(program(path, more_samples(words, first["micro_batch"])), name, gpu))
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
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker()
    if options.record:
        record(options.build, options.emulated, options.only)
    passed, failed = check(options.build)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
