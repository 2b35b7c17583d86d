#!/usr/bin/env python3
"""Compiled models against PyTorch's own counters: python compiled_models.py MEMPLAN LIBRARY [TEXT …], with the Python that has PyTorch, transformers, torchvision and timm.

Records each model compiled (`memplan record --setup compile=true`), at a batch of 4 in three set-ups, and compares `memplan FILE --compile` with the peaks that PyTorch counted, and
the range with those of a first run and of one with padded products. It takes half an hour; TEXT chooses models whose name contains it. The last line is "N passed, N failed".
"""
import json
import os
import subprocess
import sys
import tempfile
import zipfile

LAYERS = dict(num_hidden_layers=2, hidden_size=128, vocab_size=5000)
WIDE = dict(LAYERS, intermediate_size=256, num_attention_heads=4)
GROUPED = dict(WIDE, num_key_value_heads=2)
LANGUAGE = {  # configurations of transformers, and the task
    "gpt2": (dict(n_layer=2, n_embd=128, n_head=4, vocab_size=5003), "causal-lm"),  # words that are no multiple of 8: products may be padded
    "llama": (GROUPED, "causal-lm"), "qwen3": (dict(GROUPED, head_dim=32), "causal-lm"), "mistral": (GROUPED, "causal-lm"),
    "bert": (WIDE, "masked-lm"), "gpt_neox": (WIDE, "causal-lm"), "mamba": (LAYERS, "causal-lm"),
    "t5": (dict(num_layers=2, d_model=128, d_ff=256, num_heads=4, d_kv=32, vocab_size=5000, decoder_start_token_id=0), "seq2seq-lm"),
    "opt": (dict(LAYERS, ffn_dim=256, num_attention_heads=4, word_embed_proj_dim=128), "causal-lm"),
    "bloom": (dict(n_layer=2, hidden_size=128, n_head=4, vocab_size=5000), "causal-lm"),
}
IMAGES = [*(f"torchvision:{n}" for n in ("resnet18", "mobilenet_v2", "vit_b_16", "convnext_tiny", "efficientnet_b0", "regnet_y_400mf", "shufflenet_v2_x0_5")),
          *(f"timm:{n}" for n in ("mixer_s32_224", "deit_tiny_patch16_224", "resmlp_12_224", "poolformer_s12"))]
SETUPS = {"train": ("mode=training", []), "amp": ("mode=training,precision=amp-bf16,optimizer=sgd,momentum=0.9", ["--amp", "bf16", "--optimizer", "sgd-momentum"]),
          "inference": ("mode=inference", ["--mode", "inference"])}
COUNTERS = ("requested_bytes", "allocated_bytes", "reserved_bytes")


def sources(folder):
    for name, (config, task) in LANGUAGE.items():
        path = os.path.join(folder, name)
        os.makedirs(path)
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(dict(config, model_type=name), f)
        yield name, path, ["--seq", "64", "--task", task]
    for name in IMAGES:
        yield name, name, []


def compared(program, source, words, setup, path):
    """(row of the table, what is wrong)"""
    recorded, asked = SETUPS[setup]
    done = subprocess.run([program, "record", source, "-o", path, "--batch", "4", "--batches", "4", "--setup", recorded + ",compile=true", *words], capture_output=True, text=True)
    if done.returncode:
        return "not recorded", done.stderr[-600:]
    with zipfile.ZipFile(path) as z:
        run = json.loads(z.read("memplan_recording.json"))["runs"][0]
        steps = json.loads(z.read(run["events"]))["programs"][0]["peaks"][0]
    theirs = [max(step[c] for step in steps) for c in range(3)]
    done = subprocess.run([program, path, "--compile", "--gpu", "h100-80gb", "--format", "json", "--exit-zero", *asked], capture_output=True, text=True)
    if done.returncode:
        return "not estimated", done.stderr + done.stdout
    answer = json.loads(done.stdout)
    off = [answer["counters"][c] / t - 1 for c, t in zip(COUNTERS, theirs)]
    ranges = [answer["ranges"][c] for c in COUNTERS]
    outside = [o["how"] for o in run["others"] if not all(r["low_bytes"] <= b <= r["high_bytes"] for b, r in zip(o["peak"], ranges))]
    more = ", ".join(f"{o['how']} {o['peak'][0] / theirs[0] - 1:+.1%} requested, {o['peak'][2] / theirs[2] - 1:+.1%} reserved" for o in run["others"])
    return " ".join(f"{o:+.3%}" for o in off) + f" ({more})", f"outside of the range: {outside}" if outside else "differs" if any(off) else ""


def main():
    program, only = os.path.abspath(sys.argv[1]), sys.argv[3:]
    os.environ.update(MEMPLAN_EMULATED_GPU=os.path.abspath(sys.argv[2]), PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, source, words in sources(folder):
            for setup in SETUPS if not only or any(text in name for text in only) else ():
                row, wrong = compared(program, source, words, setup, os.path.join(folder, "compiled.memplan"))
                print(f"{'FAILED ' if wrong else ''}{name} {setup}: {row} {wrong}", flush=True)
                passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
