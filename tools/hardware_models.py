"""The models of published measurements on real GPUs (data/measured/hardware), exported from their real sizes on the meta device.

    python tools/hardware_models.py [NAME …]     writes data/measured/hardware/models/NAME.pt2; nothing is downloaded

Needs torch, torchvision, timm and transformers. An archive holds the graph without weights, its batch is open, its image or
sequence is the size that was measured. What differs from the library that was measured is a note beside the model.
"""
import contextlib
import os
import sys
import tempfile
import time
import warnings

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_pt2  # also finds export_models

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "measured", "hardware", "models")


def vision(name, size, classes):
    def build():
        import torchvision

        with torch.device("cpu"):  # RegNet reads its widths from a tensor
            module = getattr(torchvision.models, name)(weights=None, num_classes=classes)
        return module.to("meta"), (torch.empty(2, 3, size, size),)

    return build


def timm_model(name, size):
    def build():
        import timm

        return timm.create_model(name, pretrained=False), (torch.empty(2, 3, size, size),)

    return build


class OwnLoss(nn.Module):
    """A language model trained with its own loss, whose outputs (loss, logits, keys and values) live into the next step."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, labels):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, labels=labels)
        kept = getattr(out, "past_key_values", None)
        kept = getattr(kept, "self_attention_cache", kept)
        cached = [t for layer in getattr(kept, "layers", []) for t in (layer.keys, layer.values)]
        return (out.loss, out.logits, *cached)


def language(config_class, model_class, sequence=128, attention=None, **sizes):
    def build():
        import transformers

        config = getattr(transformers, config_class)(**sizes)
        if attention:
            config._attn_implementation = attention
        model = OwnLoss(getattr(transformers, model_class)(config))
        ids = torch.zeros(2, sequence, dtype=torch.long)
        return model, (ids, torch.ones_like(ids), ids.clone())

    return build


GPT2 = ("GPT2Config", "GPT2LMHeadModel")
OPT = ("OPTConfig", "OPTForCausalLM")
IMAGES = ["convnext_base", "convnext_tiny", "mobilenet_v2", "regnet_y_400mf", "resnet101", "resnet152", "vgg16"]
TIMM = {name: 224 for name in (
    "convnext_tiny efficientnet_b0 mobilenetv2_100 mobilenetv3_large_100 resnet152 resnet18 resnet50 swin_base_patch4_window7_224 vgg16 vit_base_patch16_224 "
    "beit_base_patch16_224 convnext_base mixer_b16_224 regnety_032 resnet101 resnet34 vgg19 vit_large_patch16_224 vit_small_patch16_224 vit_tiny_patch16_224").split()}
TIMM.update(inception_v3=299, efficientnetv2_s=288)

MODELS = {f"{name}-86": vision(name, 86, 1000) for name in IMAGES}
MODELS.update({f"{name}-86": vision(name, 86, 10) for name in ("mobilenet_v3_large", "mobilenet_v3_small")})
MODELS.update({f"timm-{name}": timm_model(name, size) for name, size in TIMM.items()})
MODELS.update({f"{name}-224": vision(name, 224, 1000) for name in ("resnet50", "vgg16")})
MODELS["distilgpt2"] = language(*GPT2, n_layer=6)
MODELS["gpt2"] = language(*GPT2)
MODELS["gpt-neo-125m"] = language("GPTNeoConfig", "GPTNeoForCausalLM", hidden_size=768, num_layers=12, num_heads=12, attention_types=[[["global", "local"], 6]])
MODELS["opt-125m"] = language(*OPT)
MODELS["opt-350m"] = language(*OPT, hidden_size=1024, ffn_dim=4096, num_hidden_layers=24, num_attention_heads=16, word_embed_proj_dim=512,
                              do_layer_norm_before=False)
# transformers 4.51.3, which was measured, has no other attention for T5.
MODELS["t5-base"] = language("T5Config", "T5ForConditionalGeneration", attention="eager", d_model=768, d_ff=3072, num_layers=12, num_heads=12)
MODELS["deepseek-r1-qwen-1.5b"] = language("Qwen2Config", "Qwen2ForCausalLM", vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
                                           num_attention_heads=12, num_key_value_heads=2, tie_word_embeddings=False)
MODELS["llama-3.2-3b"] = language("LlamaConfig", "LlamaForCausalLM", vocab_size=128256, hidden_size=3072, intermediate_size=8192, num_hidden_layers=28,
                                  num_attention_heads=24, num_key_value_heads=8, tie_word_embeddings=True)
MODELS["gemma-2-2b"] = language("Gemma2Config", "Gemma2ForCausalLM", vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
                                num_attention_heads=8, num_key_value_heads=4, head_dim=256)


@contextlib.contextmanager
def contiguous_attention():
    """transformers 4.51.3 hands copies of query, key and value to scaled_dot_product_attention; later versions hand the views."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

    current = functions["sdpa"]

    def copied(module, query, key, value, *rest, **more):
        return current(module, query.contiguous(), key.contiguous(), value.contiguous(), *rest, **more)

    functions["sdpa"] = copied
    try:
        yield
    finally:
        functions["sdpa"] = current


def export(name):
    # OPT of that version had attention of its own, which took the views.
    older = contiguous_attention() if name in ("gpt2", "distilgpt2") else contextlib.nullcontext()
    with warnings.catch_warnings(), torch.device("meta"), older:
        warnings.simplefilter("ignore")
        module, inputs = MODELS[name]()
        module.train()
        shapes = tuple({0: torch.export.Dim("batch", min=2)} for _ in inputs)
        program = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
    path = os.path.join(OUT, name + ".pt2")
    with tempfile.TemporaryDirectory() as folder:
        full = os.path.join(folder, name + ".pt2")
        torch.export.save(program, full)
        export_pt2.strip(full, path)
    return path


def main():
    os.makedirs(OUT, exist_ok=True)
    failed = 0
    for name in sys.argv[1:] or MODELS:
        start = time.time()
        try:
            path = export(name)
            print(f"{name}: {os.path.getsize(path)} bytes, {time.time() - start:.1f} s", flush=True)
        except Exception as error:
            failed += 1
            print(f"{name}: not exported: {type(error).__name__}: {str(error).splitlines()[0][:300]}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
