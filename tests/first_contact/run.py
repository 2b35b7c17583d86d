#!/usr/bin/env python3
"""Six users go from a script to an answer: python tests/first_contact/run.py [--build build/release] [--all] [--only TEXT]

Each user types two documented commands: `memplan observe -- python SCRIPT` runs the script as it is on the emulated GPU, and an estimate
(of a configuration, a name, a function of the script, or a recording of it) says the same without running it. The bytes of the process must
agree within 2 %. Without --all (MEMPLAN_FIRST_CONTACT=all) a sample runs. It needs a build with the emulated GPU, and transformers, accelerate, peft and
torchvision for the users who have them. The last line is "N passed, N failed".
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import build_tree

GPU, WITHIN = "a100-80gb", 0.02
USERS = os.path.join(HERE, "users")
# A Qwen3 of 8 layers, as its config.json says it.
CHECKPOINT = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=8,
                  num_attention_heads=16, num_key_value_heads=8, head_dim=128, dtype="float32", tie_word_embeddings=True, max_position_embeddings=40960)


def user(name):
    return os.path.join(USERS, name + ".py")


# name: (packages, flags of observe, arguments of the script, a command that makes a file first, the estimate)
SESSIONS = {
    "lora_trainer": (("transformers", "peft", "accelerate"), (), ("checkpoint",), None,
                     ("checkpoint", "--batch", "4", "--seq", "1024", "--accumulate", "2", "--amp", "bf16", "--lora", "r=16,targets=q_proj|k_proj|v_proj|o_proj",
                      "--optimizer-impl", "fused", "--clip")),
    "accelerate_fsdp": (("transformers", "accelerate"), ("--world", "8", "--ranks", "0"), ("checkpoint",), None,
                        ("checkpoint", "--batch", "2", "--seq", "1024", "--gpus", "8", "--fsdp", "--fsdp-dtype", "bf16", "--reduce-dtype", "bf16", "--clip", "--zero-grad", "end")),
    "torchvision_loop": (("torchvision",), (), (), None, ("torchvision:resnet50", "--batch", "64", "--amp", "fp16", "--optimizer", "sgd-momentum")),
    "dpo": (("transformers",), (), ("checkpoint",), None, (user("dpo") + ":make_step", "--amp", "bf16")),
    # Workspaces of its convolutions are in no table, and a recording has them.
    "diffusion_ema": ((), (), (), ("record", user("diffusion_ema") + ":make_step", "-o", "diffusion.memplan", "--batches", "16", "--setup", "precision=fp32", "--gpu", GPU), ("diffusion.memplan",)),
    "own_class": ((), (), (), None, (user("own_class") + ":make", "--clip", "--zero-grad", "end")),
}
SAMPLE = ("own_class", "diffusion_ema")


def has(python, packages):
    found = subprocess.run([python, "-c", "import importlib.util as u, sys; sys.exit(not all(u.find_spec(n) for n in sys.argv[1:]))", *packages])
    return found.returncode == 0


def process_bytes(program, folder, environment, words, member):
    done = subprocess.run([program, *words], cwd=folder, env=environment, capture_output=True, text=True, errors="replace", timeout=900)
    assert done.returncode == 0, f"memplan {' '.join(words)[:200]} ended with {done.returncode}:\n{done.stderr[-2000:]}{done.stdout[-500:]}"
    if not member:
        return None
    report = json.loads(done.stdout)
    return report["peak_bytes"] if member == "observed" else report["counters"]["process_bytes"]


def session(name, program, python, library):
    """What the script needs when it runs, and by the estimate."""
    packages, observing, arguments, first, estimate = SESSIONS[name]
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "checkpoint"))
        with open(os.path.join(folder, "checkpoint", "config.json"), "w") as f:
            json.dump(CHECKPOINT, f)
        environment = os.environ | {"MEMPLAN_TORCH_PYTHON": python, "MEMPLAN_EMULATED_GPU": library, "XDG_CACHE_HOME": folder, "CHECKPOINT": os.path.join(folder, "checkpoint")}
        ask = lambda words, member=None: process_bytes(program, folder, environment, words, member)
        observed = ask(("observe", "--gpu", GPU, "--format", "json", *observing, "--", python, user(name), *arguments), "observed")
        if first:
            ask(first)
        return observed, ask((*estimate, "--gpu", GPU, "--no-search", "--format", "json"), "estimated")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "release"))
    parser.add_argument("--all", action="store_true", default=os.environ.get("MEMPLAN_FIRST_CONTACT") == "all")
    parser.add_argument("--only", default="")
    parser.add_argument("--torch", metavar="PYTHON", help="default: the build's")
    parser.add_argument("--library", help="the emulated GPU (default: the build's)")
    a = parser.parse_args()
    python, library = build_tree.emulated(a.build) or (None, None)
    python, library = a.torch or python, os.path.abspath(a.library or library or "")
    if not python or not os.path.isfile(library):
        print("the build has no emulated GPU (cmake -DMEMPLAN_TORCH_PYTHON=…): no script is run")
        print("0 passed, 0 failed")
        return 0
    passed = failed = 0
    for name, (packages, *_) in SESSIONS.items():
        if a.only not in name or not (a.all or a.only or name in SAMPLE):
            continue
        if not has(python, packages):
            print(f"{name}: left out, {python} lacks one of {', '.join(packages)}")
            continue
        started = time.monotonic()
        try:
            observed, estimated = session(name, os.path.join(os.path.abspath(a.build), "memplan"), python, library)
            off = estimated / observed - 1
            print(f"{name:16} observed {observed:>14,}  estimated {estimated:>14,}  {off:+.2%}  {time.monotonic() - started:.0f} s", flush=True)
            assert abs(off) <= WITHIN, f"{name}: the estimate is off by {off:+.2%}"
            passed += 1
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
