"""The model zoo: one registry of the models that the accuracy suite measures and that tools/export_models.py exports.

A Spec builds an ordinary training-mode nn.Module on the CPU and says what a batch looks like. Sizes of inputs are
numbers or the names of open dimensions ("batch", "seq"). Labels are class indices: one per row of an [N, C] output, one
per position of [N, S, C], one per pixel of [N, C, H, W]. The group "held-out" must not be looked at while the estimator is tuned: it tells how
well the estimator does on models that nobody adjusted anything for.
"""
import contextlib
from dataclasses import dataclass
from typing import Callable

import torch
from torch import nn

from small_models import LstmLanguageModel, Mlp, MoeLanguageModel, UNet


@dataclass(frozen=True)
class Input:
    name: str
    dtype: str  # a torch dtype's name
    sizes: tuple  # numbers or names of open dimensions

    def shape(self, dims):
        return [dims[s] if isinstance(s, str) else s for s in self.sizes]


@dataclass(frozen=True)
class Spec:
    name: str
    group: str  # "tuning" or "held-out"
    kind: str  # "vision", "text", …: only for reports
    source: str  # a Python expression that builds the module
    build: Callable[[], nn.Module]
    inputs: tuple
    loss: str = "cross_entropy"
    batch: int = 8  # a sensible batch size
    labels: tuple = ("batch",)
    seq: int | None = None  # a sensible sequence length; None: the model has no open sequence dimension
    longest: int | None = None  # the longest sequence that the model's positions allow, where it matters here
    big: bool = False  # above a billion parameters
    recorded: bool = True  # whether the accuracy suite runs it

    def label_shape(self, dims):
        return [dims[s] if isinstance(s, str) else s for s in self.labels]


class IdsToLogits(nn.Module):
    """A transformers model that takes token ids by position and returns only its logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


class MaskedToLogits(nn.Module):
    """Encoders know no use_cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids).logits


class Seq2SeqToLogits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, decoder_input_ids):
        return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False).logits


class SpeechToLogits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_features, decoder_input_ids):
        return self.model(input_features=input_features, decoder_input_ids=decoder_input_ids, use_cache=False).logits


def _hf(wrapper, model, config, **settings):
    def build():
        import transformers

        cfg = getattr(transformers, config)(attn_implementation="sdpa", **settings)
        return wrapper(getattr(transformers, model)(cfg))

    text = ", ".join(f"{k}={v!r}" for k, v in settings.items())
    return build, f"transformers.{model}(transformers.{config}({text}))"


def _tv(name):
    def build():
        import torchvision

        return torchvision.models.get_model(name, weights=None)

    return build, f"torchvision.models.{name}()"


IMAGE = (Input("x", "float32", ("batch", 3, 224, 224)),)
TOKENS = (Input("input_ids", "int64", ("batch", "seq")),)
REGISTRY: dict[str, Spec] = {}


def _add(name, group, kind, built, inputs, **rest):
    build, source = built
    if "seq" in rest:
        rest.setdefault("labels", ("batch", "seq"))
    REGISTRY[name] = Spec(name, group, kind, source, build, inputs, **rest)


def _own(cls, *args):
    return (lambda: cls(*args)), f"{cls.__name__}({', '.join(map(str, args))})"


T, H = "tuning", "held-out"
_add("resnet18", T, "vision", _tv("resnet18"), IMAGE, batch=32)
_add("resnet50", T, "vision", _tv("resnet50"), IMAGE, batch=32)
_add("mobilenet_v3_large", T, "vision", _tv("mobilenet_v3_large"), IMAGE, batch=32)
_add("densenet121", T, "vision", _tv("densenet121"), IMAGE, batch=16)
_add("convnext_tiny", T, "vision", _tv("convnext_tiny"), IMAGE, batch=16)
_add("regnet_y_400mf", T, "vision", _tv("regnet_y_400mf"), IMAGE, batch=32)
_add("vit_b_16", T, "vision", _tv("vit_b_16"), IMAGE, batch=16)
_add("wide_resnet50_2", H, "vision", _tv("wide_resnet50_2"), IMAGE, batch=16)
_add("alexnet", H, "vision", _tv("alexnet"), IMAGE, batch=64)
_add("vgg16", H, "vision", _tv("vgg16"), IMAGE, batch=16)
_add("efficientnet_b0", H, "vision", _tv("efficientnet_b0"), IMAGE, batch=16)
_add("squeezenet1_1", H, "vision", _tv("squeezenet1_1"), IMAGE, batch=32)
_add("shufflenet_v2_x1_0", H, "vision", _tv("shufflenet_v2_x1_0"), IMAGE, batch=32)
_add("swin_t", H, "vision", _tv("swin_t"), IMAGE, batch=16)
_add("unet", T, "segmentation", _own(UNet, 3, 21), (Input("x", "float32", ("batch", 3, 256, 256)),),
     batch=4, labels=("batch", 256, 256))
_add("mlp", T, "dense", _own(Mlp), (Input("x", "float32", ("batch", 784)),), batch=256)
# The exporter fixes the length that nn.LSTM unrolls over.
_add("lstm_lm", T, "recurrent", _own(LstmLanguageModel), (Input("input_ids", "int64", ("batch", 64)),), batch=16,
     labels=("batch", 64))
_add("moe_lm", T, "text", _own(MoeLanguageModel), TOKENS, batch=8, seq=256)
_add("gpt2", T, "text", _hf(IdsToLogits, "GPT2LMHeadModel", "GPT2Config"), TOKENS, batch=4, seq=512)
_add("gpt2-xl", T, "text", _hf(IdsToLogits, "GPT2LMHeadModel", "GPT2Config", n_embd=1600, n_layer=48, n_head=25),
     TOKENS, batch=1, seq=512, big=True)
_add("t5-small", T, "text", _hf(Seq2SeqToLogits, "T5ForConditionalGeneration", "T5Config"),
     (Input("input_ids", "int64", ("batch", "seq")), Input("decoder_input_ids", "int64", ("batch", "seq"))), batch=8, seq=256)
_add("llama-tiny", T, "text", _hf(IdsToLogits, "LlamaForCausalLM", "LlamaConfig", vocab_size=32000, hidden_size=512,
                                  intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8),
     TOKENS, batch=8, seq=512)
_add("llama-3.2-1b", T, "text",
     _hf(IdsToLogits, "LlamaForCausalLM", "LlamaConfig", vocab_size=128256, hidden_size=2048, intermediate_size=8192,
         num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64, tie_word_embeddings=True,
         max_position_embeddings=131072),
     TOKENS, batch=2, seq=512, big=True)
def _llama(hidden, intermediate, layers, heads, kv_heads, **rest):
    return _hf(IdsToLogits, "LlamaForCausalLM", "LlamaConfig", hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
               num_attention_heads=heads, num_key_value_heads=kv_heads, **rest)


# Too large for the accuracy runs (their weights would have to exist on the host): only exported.
_add("llama-2-7b", T, "text", _llama(4096, 11008, 32, 32, 32, vocab_size=32000), TOKENS, batch=1, seq=2048, big=True, recorded=False)
_add("llama-3-70b", T, "text", _llama(8192, 28672, 80, 64, 8, vocab_size=128256), TOKENS, batch=1, seq=2048, big=True, recorded=False)
_add("llama-3-405b", T, "text", _llama(16384, 53248, 126, 128, 8, vocab_size=128256), TOKENS, batch=1, seq=2048, big=True, recorded=False)
_add("bert-base", H, "text", _hf(MaskedToLogits, "BertForMaskedLM", "BertConfig"), TOKENS, batch=8, seq=384, longest=512)
_add("qwen2-0.5b", H, "text",
     _hf(IdsToLogits, "Qwen2ForCausalLM", "Qwen2Config", vocab_size=151936, hidden_size=896, intermediate_size=4864,
         num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True),
     TOKENS, batch=2, seq=512)
_add("opt-125m", H, "text", _hf(IdsToLogits, "OPTForCausalLM", "OPTConfig", hidden_size=768, ffn_dim=3072, num_hidden_layers=12,
                                num_attention_heads=12), TOKENS, batch=4, seq=512)
_add("pythia-160m", H, "text",
     _hf(IdsToLogits, "GPTNeoXForCausalLM", "GPTNeoXConfig", vocab_size=50304, hidden_size=768, intermediate_size=3072,
         num_hidden_layers=12, num_attention_heads=12), TOKENS, batch=4, seq=512)
_add("whisper-tiny", H, "speech",
     _hf(SpeechToLogits, "WhisperForConditionalGeneration", "WhisperConfig", d_model=384, encoder_layers=4, decoder_layers=4,
         encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536),
     (Input("input_features", "float32", ("batch", 80, 3000)), Input("decoder_input_ids", "int64", ("batch", "seq"))),
     batch=8, seq=128)


@contextlib.contextmanager
def values_do_not_matter():
    """Builds modules without filling their weights (their pages are then never touched), for runs and exports in which
    only sizes count. Everything else that a constructor computes stays as it is."""
    saved = {n: getattr(nn.init, n) for n in dir(nn.init) if n.endswith("_") and not n.startswith("_")}
    tensor = {n: getattr(torch.Tensor, n) for n in ("normal_", "uniform_", "trunc_normal_") if hasattr(torch.Tensor, n)}
    keep = lambda t, *a, **k: t
    try:
        for n in saved:
            setattr(nn.init, n, keep)
        for n in tensor:
            setattr(torch.Tensor, n, keep)
        yield
    finally:
        for n, f in saved.items():
            setattr(nn.init, n, f)
        for n, f in tensor.items():
            setattr(torch.Tensor, n, f)


def build(name, fill=True):
    with contextlib.nullcontext() if fill else values_do_not_matter():
        return REGISTRY[name].build()
