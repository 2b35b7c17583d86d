#!/usr/bin/env python3
"""Writes data/bench/*.onnx.gz: the graphs of models that are too large for the accuracy suite, for the benchmarks.

    python tests/bench/export_large.py        (needs torch and transformers; the weights are never touched)
"""
import gzip
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import export_models
import models

models._add("llama-2-7b", models.T, "text",
            models._hf(models.IdsToLogits, "LlamaForCausalLM", "LlamaConfig", vocab_size=32000, hidden_size=4096, intermediate_size=11008,
                       num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32), models.TOKENS, batch=1, seq=512)


def main():
    out = os.path.join(ROOT, "data", "bench")
    os.makedirs(out, exist_ok=True)
    for name in ("gpt2-xl", "llama-2-7b"):
        spec = models.REGISTRY[name]
        proto = export_models.export_dynamo(spec, export_models.build(spec), False)
        export_models.tidy(proto, spec, f"torch {export_models.torch.__version__} torch.onnx.export(dynamo=True, optimize=False)")
        with open(os.path.join(out, name + ".onnx.gz"), "wb") as f:
            f.write(gzip.compress(proto.SerializeToString(), mtime=0))


if __name__ == "__main__":
    main()
