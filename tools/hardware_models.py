"""The models of published measurements on real GPUs (data/measured/hardware), exported from their real sizes on the meta device.

    python tools/hardware_models.py [NAME …]     writes data/measured/hardware/models/NAME.pt2; nothing is downloaded

Needs torch, torchvision and timm; for language models the versions that were measured, torch 2.6 and transformers 4.51.3, since the library
decides which copies attention makes; for models of PEFT's methods torch 2.11, transformers 5.23 and peft 0.21.2. An archive holds the graph without weights, its batch is open, its image or sequence
has the size that was measured.
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


def tensors(cache):
    """Keys and values of a cache: of tuples in tuples, as older models return it, or of the library's classes."""
    for part in ("self_attention_cache", "cross_attention_cache"):
        if hasattr(cache, part):
            yield from tensors(getattr(cache, part))
    if hasattr(cache, "key_cache"):
        yield from (*cache.key_cache, *cache.value_cache)
    elif isinstance(cache, torch.Tensor):
        yield cache
    elif isinstance(cache, (tuple, list)):
        for part in cache:
            yield from tensors(part)


class OwnLoss(nn.Module):
    """A language model trained with its own loss, whose outputs (loss, logits, keys and values) live into the next step."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, labels):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, labels=labels)
        return (out.loss, out.logits, *tensors(getattr(out, "past_key_values", None)))


class Trained(nn.Module):
    """A language model on batches without padding, with its own loss."""

    def __init__(self, model):
        super().__init__()
        self.m = model

    def forward(self, input_ids, labels):
        out = self.m(input_ids=input_ids, labels=labels)
        return out.loss, out.logits


def llama(method=None, settings=None, **sizes):
    """Llama in bfloat16; under a method of PEFT if one is named, whose own parameters are in float32."""

    def build():
        import transformers

        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, use_cache=False)).to(torch.bfloat16)
        if method:
            import peft

            model = peft.get_peft_model(model, getattr(peft, method)(task_type="CAUSAL_LM", **settings), autocast_adapter_dtype=True)
        ids = torch.zeros(2, 16, dtype=torch.long)
        return Trained(model.to("meta")), (ids, ids.clone())

    return build


def language(config_class, model_class, sequence=128, **sizes):
    def build():
        with torch.device("cpu"):  # its modules make tensors when they are loaded
            import transformers

            make, config = getattr(transformers, model_class), getattr(transformers, config_class)(**sizes)
        model = OwnLoss(make(config))
        ids = torch.zeros(2, sequence, dtype=torch.long)
        return model, (ids, torch.ones_like(ids), ids.clone())

    return build


LONGEST = {True: 4096, False: 1024}  # tokens of Llamas and others: no table of positions is shorter
IMAGES = ["convnext_base", "convnext_tiny", "mobilenet_v2", "regnet_x_400mf", "regnet_y_400mf", "resnet101", "resnet152", "vgg16", "vgg19"]
TIMM = {name: 224 for name in (
    "convnext_tiny efficientnet_b0 mobilenetv2_100 mobilenetv3_large_100 resnet152 resnet18 resnet50 swin_base_patch4_window7_224 vgg16 vit_base_patch16_224 "
    "beit_base_patch16_224 convnext_base mixer_b16_224 regnety_032 resnet101 resnet34 vgg19 vit_large_patch16_224 vit_small_patch16_224 vit_tiny_patch16_224").split()}
TIMM.update(inception_v3=299, efficientnetv2_s=288)

MODELS = {f"{name}-86": vision(name, 86, 1000) for name in IMAGES}
MODELS.update({f"{name}-86": vision(name, 86, 10) for name in ("mnasnet1_0", "mobilenet_v3_large", "mobilenet_v3_small")})
MODELS.update({f"timm-{name}": timm_model(name, size) for name, size in TIMM.items()})
MODELS.update({f"{name}-224": vision(name, 224, 1000) for name in ("resnet50", "vgg16")})
# Sizes as the configurations of those names on the Hugging Face hub say; what is not given is the class's default.
GPT2 = ("GPT2Config", "GPT2LMHeadModel")
OPT = ("OPTConfig", "OPTForCausalLM")
MODELS["distilgpt2"] = language(*GPT2, n_layer=6)
MODELS["gpt2"] = language(*GPT2)
MODELS["gpt-neo-125m"] = language("GPTNeoConfig", "GPTNeoForCausalLM", hidden_size=768, num_layers=12, num_heads=12, attention_types=[[["global", "local"], 6]])
MODELS["opt-125m"] = language(*OPT)
MODELS["opt-350m"] = language(*OPT, hidden_size=1024, ffn_dim=4096, num_hidden_layers=24, num_attention_heads=16, word_embed_proj_dim=512,
                              do_layer_norm_before=False)
MODELS["t5-base"] = language("T5Config", "T5ForConditionalGeneration", d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0)
MODELS["deepseek-r1-qwen-1.5b"] = language("Qwen2Config", "Qwen2ForCausalLM", vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
                                           num_attention_heads=12, num_key_value_heads=2, tie_word_embeddings=False)
LLAMA_3B = dict(vocab_size=128256, hidden_size=3072, intermediate_size=8192, num_hidden_layers=28, num_attention_heads=24, num_key_value_heads=8, tie_word_embeddings=True)
MODELS["llama-3.2-3b"] = language("LlamaConfig", "LlamaForCausalLM", **LLAMA_3B)
MODELS["llama-2-13b"] = llama(hidden_size=5120, intermediate_size=13824, num_hidden_layers=40, num_attention_heads=40, num_key_value_heads=40)
# As method_comparison/MetaMathQA/experiments of PEFT has them.
QV = dict(target_modules=["q_proj", "v_proj"])
VIRTUAL = dict(num_layers=28, token_dim=3072, num_attention_heads=24, num_transformer_submodules=1)
MODELS.update({f"llama-3.2-3b-{method}": llama(name, settings, **LLAMA_3B, head_dim=128, rms_norm_eps=1e-5) for method, name, settings in (
    ("delora", "DeloraConfig", dict(r=32, delora_lambda=15)),
    ("dora", "LoraConfig", dict(r=32, lora_alpha=64, use_dora=True)),
    ("fourierft", "FourierFTConfig", dict(n_frequency=1000, scaling=300, **QV)),
    ("gralora", "GraloraConfig", dict(r=32, alpha=64, gralora_k=2)),
    ("hira", "HiraConfig", dict(r=32, **QV)),
    ("ia3", "IA3Config", {}),
    ("ln_tuning", "LNTuningConfig", {}),
    ("miss", "MissConfig", dict(r=64, mini_r=1)),
    ("miss_mini", "MissConfig", dict(r=64, mini_r=64, init_weights="mini")),
    ("prompt", "PromptTuningConfig", dict(num_virtual_tokens=200, **VIRTUAL)),
    ("ptuning", "PromptEncoderConfig", dict(num_virtual_tokens=20, encoder_hidden_size=3072, **VIRTUAL)),
    ("road", "RoadConfig", dict(group_size=64, variant="road_2")),
    ("tokens", "TrainableTokensConfig", dict(token_indices=[128000, 128001])))})
MODELS["qwen3-4b"] = language("Qwen3Config", "Qwen3ForCausalLM", vocab_size=151936, hidden_size=2560, intermediate_size=9728, num_hidden_layers=36,
                              num_attention_heads=32, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True)
MODELS["gemma-2-2b"] = language("Gemma2Config", "Gemma2ForCausalLM", vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
                                num_attention_heads=8, num_key_value_heads=4, head_dim=256)


@contextlib.contextmanager
def as_on_a_card(module):
    """What stands in the way of an export on the meta device and changes nothing in the graph: autocast that is switched off does not know
    that device, and OPT draws a number to see whether a layer is left out, which never happens with its layerdrop of 0."""
    autocast = torch.autocast
    torch.autocast = lambda device_type, **settings: autocast("cpu" if device_type == "meta" else device_type, **settings)
    drawing = [m for m in module.modules() if getattr(m, "layerdrop", None) == 0 and m.training]
    for m in drawing:
        m.training = False  # of this module alone: its layers stay
    try:
        yield
    finally:
        torch.autocast = autocast


def exported(module, inputs, batch, sequence):
    """With an open batch, and an open sequence where the inputs are tokens."""
    shapes = tuple({0: batch, 1: sequence} if x.dim() == 2 and sequence else {0: batch} for x in inputs)
    return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)


def export(name):
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        module, inputs = MODELS[name]()
        module.train()
        unmasked = export_pt2.export_models.as_eager() if isinstance(module, Trained) else contextlib.nullcontext()
        with as_on_a_card(module), unmasked:
            named, automatic = torch.export.Dim("batch", min=2), torch.export.Dim.DYNAMIC
            for batch, sequence in ((named, torch.export.Dim("seq", min=2, max=LONGEST[isinstance(module, Trained)])), (automatic, automatic), (automatic, None)):
                try:
                    program = exported(module, inputs, batch, sequence)
                    break
                except torch._dynamo.exc.UserError:  # the model itself bounds the dimension
                    if sequence is None:
                        raise
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
