#!/usr/bin/env python3
"""Compiled models against PyTorch's own counters: python compiled_models.py MEMPLAN LIBRARY [TEXT …], with the Python that has PyTorch, transformers, torchvision and timm.

Records each model compiled (`memplan record --setup compile=true`), at a batch of 4 in three set-ups, and compares `memplan FILE --compile` with the peaks that PyTorch counted, and
the range with those of a first run and of one with padded products. It takes an hour; TEXT chooses models whose name contains it. The last two lines are a summary and "N passed, N failed".
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
# Models that nobody had compiled here before this list was written, and no rule was made for.
FIRST_LANGUAGE = {
    "gemma2": (dict(GROUPED, head_dim=32), "causal-lm"), "phi3": (dict(GROUPED, pad_token_id=0), "causal-lm"), "olmo2": (GROUPED, "causal-lm"),
    "stablelm": (GROUPED, "causal-lm"), "starcoder2": (GROUPED, "causal-lm"), "falcon": (dict(LAYERS, num_attention_heads=4), "causal-lm"),
    "gptj": (dict(n_layer=2, n_embd=128, n_head=4, rotary_dim=16, vocab_size=5003), "causal-lm"), "granite": (GROUPED, "causal-lm"),
    "roberta": (WIDE, "masked-lm"), "albert": (dict(WIDE, embedding_size=64), "masked-lm"),
    "distilbert": (dict(n_layers=2, dim=128, hidden_dim=256, n_heads=4, vocab_size=5003), "masked-lm"),
    "bart": (dict(d_model=128, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=256, decoder_ffn_dim=256, encoder_attention_heads=4, decoder_attention_heads=4,
                  vocab_size=5000), "seq2seq-lm"),
}
IMAGES = [*(f"torchvision:{n}" for n in ("resnet18", "mobilenet_v2", "vit_b_16", "convnext_tiny", "efficientnet_b0", "regnet_y_400mf", "shufflenet_v2_x0_5")),
          *(f"timm:{n}" for n in ("mixer_s32_224", "deit_tiny_patch16_224", "resmlp_12_224", "poolformer_s12"))]
FIRST_IMAGES = [*(f"torchvision:{n}" for n in ("alexnet", "vgg11", "squeezenet1_1", "mnasnet0_5")),
                *(f"timm:{n}" for n in ("convnext_atto", "resnet10t", "pvt_v2_b0", "edgenext_xx_small", "ghostnet_050"))]
SETUPS = {"train": ("mode=training", []), "amp": ("mode=training,precision=amp-bf16,optimizer=sgd,momentum=0.9", ["--amp", "bf16", "--optimizer", "sgd-momentum"]),
          "inference": ("mode=inference", ["--mode", "inference"])}
COUNTERS = ("requested_bytes", "allocated_bytes", "reserved_bytes")


def sources(folder):
    for name, (config, task) in {**LANGUAGE, **FIRST_LANGUAGE}.items():
        path = os.path.join(folder, name)
        os.makedirs(path)
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(dict(config, model_type=name), f)
        yield name, path, ["--seq", "64", "--task", task]
    for name in IMAGES + FIRST_IMAGES:
        yield name, name, []


def compared(program, source, words, setup, path):
    """(row of the table, what is wrong, how far requested and reserved bytes are off, whether the range holds each of the other runs)"""
    recorded, asked = SETUPS[setup]
    done = subprocess.run([program, "record", source, "-o", path, "--batch", "4", "--batches", "4", "--setup", recorded + ",compile=true", *words], capture_output=True, text=True)
    if done.returncode:
        return "not recorded", done.stderr[-600:], None, []
    with zipfile.ZipFile(path) as z:
        run = json.loads(z.read("memplan_recording.json"))["runs"][0]
        steps = json.loads(z.read(run["events"]))["programs"][0]["peaks"][0]
    theirs = [max(step[c] for step in steps) for c in range(3)]
    done = subprocess.run([program, path, "--compile", "--gpu", "h100-80gb", "--format", "json", "--exit-zero", *asked], capture_output=True, text=True)
    if done.returncode:
        return "not estimated", done.stderr + done.stdout, None, []
    answer = json.loads(done.stdout)
    off = [answer["counters"][c] / t - 1 for c, t in zip(COUNTERS, theirs)]
    ranges = [answer["ranges"][c] for c in COUNTERS]
    inside = [all(r["low_bytes"] <= b <= r["high_bytes"] for b, r in zip(peak, ranges)) for peak in [theirs, *(o["peak"] for o in run["others"])]]
    more = ", ".join(f"{o['how']} {o['peak'][0] / theirs[0] - 1:+.1%} requested, {o['peak'][2] / theirs[2] - 1:+.1%} reserved" for o in run["others"])
    wrong = "" if all(inside) else "the range does not hold all runs"
    return " ".join(f"{o:+.3%}" for o in off) + f" ({more})", "differs" if any(off) else wrong, (abs(off[0]), abs(off[2])), inside


def summary(rows):
    """rows: (name, how far off, whether the range holds)"""
    off = [o for _, o, _ in rows if o]
    held = [h for _, _, inside in rows for h in inside]
    if not off:
        return "nothing was compared"
    p95 = [sorted(column)[max(0, -(-95 * len(off) // 100) - 1)] for column in zip(*off)]
    first = len({n for n, _, _ in rows} & {*FIRST_LANGUAGE, *FIRST_IMAGES})
    return (f"{len(off)} runs of {len({n for n, _, _ in rows})} models, {first} of them first-look: p95 requested {p95[0]:.3%}, reserved {p95[1]:.3%}; "
            f"the range holds {sum(held)} of {len(held)} (warm, cold, padded)")


def main():
    program, only = os.path.abspath(sys.argv[1]), sys.argv[3:]
    os.environ.update(MEMPLAN_EMULATED_GPU=os.path.abspath(sys.argv[2]), PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    rows, passed, failed = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, source, words in sources(folder):
            for setup in SETUPS if not only or any(text in name for text in only) else ():
                row, wrong, off, inside = compared(program, source, words, setup, os.path.join(folder, "compiled.memplan"))
                print(f"{'FAILED ' if wrong else ''}{name} {setup}: {row} {wrong}", flush=True)
                passed, failed = passed + (not wrong), failed + bool(wrong)
                rows.append((name, off, inside))
    print(summary(rows))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
