"""The models whose runs in ONNX Runtime are recorded, exported as people export them: small ones, in evaluation mode, with an open batch
and, where there is one, an open sequence.

    python models.py OUT_FOLDER [NAME…]     (a Python with torch, torchvision, transformers, onnxscript)
    python models.py OUT_FOLDER --rewrite NAME…   (a Python with onnxruntime: what some are put through after that)

`first look`: nothing was adjusted for it until the first comparison of all (docs/onnxruntime.md has that comparison).
"""
import dataclasses
import os
import sys
from collections.abc import Callable


@dataclasses.dataclass
class Row:
    build: Callable  # -> (module, {input: tensor})
    batches: tuple = (1, 8)
    seq: int | None = None
    past: int | None = None  # positions in the cache
    dynamo: bool = True  # torch.onnx.export(dynamo=…)
    first_look: bool = False
    opset: int = 18
    rewrite: Callable | None = None  # path -> None: what is done to the exported file (a Python with onnxruntime)


def image(make, size=224, channels=3):
    def build():
        import torch

        return make(), {"x": torch.zeros(2, channels, size, size)}

    return build


def vision(name, size=224, **options):
    def make():
        import torchvision

        return getattr(torchvision.models, name)(**options)

    return image(make, size)


def tokens(make, names=("input_ids",), seq=64):
    def build():
        import torch

        return make(), {n: torch.ones(2, seq, dtype=torch.int64) for n in names}

    return build


def transformer(model, config, **sizes):
    def make():
        import transformers

        c = getattr(transformers, config)(**sizes, use_cache=False)
        c._attn_implementation = "eager"
        c.return_dict = "CausalLM" in model or "LMHead" in model
        return getattr(transformers, model)(c)

    return make


def own(name, **options):
    def make():
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "accuracy"))
        import small_models

        return getattr(small_models, name)(**options)

    return make


def mlp():
    import torch

    return own("Mlp")(), {"x": torch.zeros(2, 784)}


def small_vit():
    import torchvision

    return torchvision.models.VisionTransformer(image_size=64, patch_size=8, num_layers=4, num_heads=4, hidden_dim=256, mlp_dim=1024)


def detector():
    """One scale of a YOLO-like head: CSP blocks with SiLU, upsampling, concatenation, boxes."""
    import torch
    from torch import nn

    def conv(a, b, k=3, s=1):
        return nn.Sequential(nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b), nn.SiLU())

    class Csp(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.a, self.b = conv(c, c // 2, 1), conv(c, c // 2, 1)
            self.m = nn.Sequential(conv(c // 2, c // 2), conv(c // 2, c // 2))
            self.out = conv(c, c, 1)

        def forward(self, x):
            a = self.a(x)
            return self.out(torch.cat([a + self.m(a), self.b(x)], 1))

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), Csp(32))
            self.down = nn.Sequential(conv(32, 64, 3, 2), Csp(64))
            self.deep = nn.Sequential(conv(64, 128, 3, 2), Csp(128))
            self.pool = nn.MaxPool2d(5, 1, 2)
            self.up = nn.Upsample(scale_factor=2)
            self.neck = nn.Sequential(conv(192, 64, 1), Csp(64))
            self.head = nn.Conv2d(64, 3 * 25, 1)

        def forward(self, x):
            middle = self.down(self.stem(x))
            deep = self.deep(middle)
            deep = deep + self.pool(deep)
            out = self.head(self.neck(torch.cat([self.up(deep), middle], 1)))
            n, _, h, w = out.shape
            out = out.view(n, 3, 25, h, w).permute(0, 1, 3, 4, 2).reshape(n, -1, 25)
            return torch.sigmoid(out[..., :5]), out[..., 5:]

    return Detector()


def decoders():
    from more_models import cached, denoiser, encoder_decoder, fuse, half, quantize, recurrent

    bert = tokens(transformer("BertForSequenceClassification", "BertConfig", **BERT), ("input_ids", "attention_mask"))
    small = dict(d_model=192, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                 encoder_ffn_dim=768, decoder_ffn_dim=768, vocab_size=3000, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    return {
        "gpt2_cache": Row(cached("GPT2LMHeadModel", "GPT2Config", 3, 4, 64, vocab_size=4000, n_embd=256, n_layer=3, n_head=4), past=96, seq=4),
        "llama_cache": Row(cached("LlamaForCausalLM", "LlamaConfig", 3, 2, 32, vocab_size=4000, hidden_size=256, intermediate_size=688,
                                  num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2), past=96, seq=4),
        "qwen3_cache": Row(cached("Qwen3ForCausalLM", "Qwen3Config", 2, 2, 64, vocab_size=5000, hidden_size=256, intermediate_size=640,
                                  num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64), past=200, seq=1),
        "t5_mini": Row(encoder_decoder("T5ForConditionalGeneration", "T5Config", vocab_size=3000, d_model=192, d_kv=48, d_ff=768, num_layers=2,
                                       num_heads=4, decoder_start_token_id=0), seq=48),
        "whisper_mini": Row(encoder_decoder("WhisperForConditionalGeneration", "WhisperConfig", (80, 3000), num_mel_bins=80, **small), (1, 4), seq=32),
        "bart_mini": Row(encoder_decoder("BartForConditionalGeneration", "BartConfig", **small), seq=48),
        "denoiser": Row(denoiser, (1, 4)),
        "resnet18_fp16": Row(half(vision("resnet18"))),
        "vit_fp16": Row(half(image(small_vit, 64))),
        "resnet18_int8": Row(vision("resnet18"), rewrite=quantize),
        "bert_int8": Row(bert, seq=64, rewrite=quantize),
        "bert_fused": Row(bert, seq=64, rewrite=fuse("bert", 4, 256)),
        "bert_fused_fp16": Row(bert, seq=64, rewrite=fuse("bert", 4, 256, float16=True)),
        "tagger": Row(recurrent, seq=64, dynamo=False),
        "mobilenet_v2": Row(vision("mobilenet_v2")),
        "resnext50": Row(vision("resnext50_32x4d"), dynamo=False),
        "inception_v3": Row(vision("inception_v3", 299, aux_logits=False, init_weights=False), (1, 4)),
    }


def stamp(opset):
    """The same nodes, said to be of a newer opset: none of them means another thing there, but not all have a kernel."""
    def rewrite(path):
        import onnx

        model = onnx.load(path)
        for o in model.opset_import:
            if o.domain in ("", "ai.onnx"):
                o.version = opset
        onnx.save(model, path)

    return rewrite


BERT = dict(vocab_size=4000, hidden_size=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=1024)
MODELS = {
    "mlp": Row(mlp, (1, 64)),
    "resnet18": Row(vision("resnet18")),
    "resnet50": Row(vision("resnet50"), dynamo=False),
    "mobilenet_v3_small": Row(vision("mobilenet_v3_small")),
    "squeezenet1_1": Row(vision("squeezenet1_1"), dynamo=False),
    "densenet121": Row(vision("densenet121"), dynamo=False),
    "convnext_tiny": Row(vision("convnext_tiny"), (1, 4)),
    "unet": Row(image(own("UNet", width=16), 128), dynamo=False),
    "vit_small": Row(image(small_vit, 64)),
    "bert_mini": Row(tokens(transformer("BertForMaskedLM", "BertConfig", **BERT), ("input_ids", "attention_mask")), seq=64),
    "gpt2_mini": Row(tokens(transformer("GPT2LMHeadModel", "GPT2Config", vocab_size=4000, n_embd=256, n_layer=3, n_head=4)), seq=64, dynamo=False),
    "llama_mini": Row(tokens(transformer("LlamaForCausalLM", "LlamaConfig", vocab_size=4000, hidden_size=256, intermediate_size=688,
                                         num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2)), seq=64, dynamo=False),
    "lstm_lm": Row(tokens(own("LstmLanguageModel", vocabulary=2000, embedding=128, hidden=256)), seq=64, dynamo=False),
    "googlenet": Row(vision("googlenet", aux_logits=False, init_weights=False)),
    "mnasnet0_5": Row(vision("mnasnet0_5"), dynamo=False),
    "detector": Row(image(detector, 128), first_look=True),
    "shufflenet_v2_x0_5": Row(vision("shufflenet_v2_x0_5"), first_look=True),
    "regnet_y_400mf": Row(vision("regnet_y_400mf"), first_look=True),
    "efficientnet_b0": Row(vision("efficientnet_b0"), first_look=True, dynamo=False),
    "swin_t": Row(vision("swin_t"), (1, 4), first_look=True),
    "distilbert_mini": Row(tokens(transformer("DistilBertForSequenceClassification", "DistilBertConfig", vocab_size=4000, dim=256, n_layers=3,
                                              n_heads=4, hidden_dim=1024), ("input_ids", "attention_mask")), seq=64, first_look=True),
    "opt_mini": Row(tokens(transformer("OPTForCausalLM", "OPTConfig", vocab_size=4000, hidden_size=256, ffn_dim=1024, num_hidden_layers=3,
                                       num_attention_heads=4, word_embed_proj_dim=256)), seq=64, dynamo=False, first_look=True),
    "vgg_small": Row(image(lambda: own("UNet", width=8)(), 64), first_look=True, dynamo=False),
}


MODELS |= decoders()
MODELS |= {f"{name}_{opset}": dataclasses.replace(MODELS[name], rewrite=stamp(opset)) for name, opset in (
    ("gpt2_cache", 20), ("bert_mini", 21), ("resnet18", 22))}


def open_sizes(inputs, row):
    """Which dimensions of the inputs stay open: of everything the first, of tokens the second, of a cache the third."""
    import torch

    batch, seq, past = (torch.export.Dim(n, min=low, max=4096) for n, low in (("batch", 1), ("seq", 1), ("past", 1)))

    def of(value):
        if isinstance(value, (list, tuple)):
            return type(value)(map(of, value))
        return {0: batch} | ({1: seq} if row.seq and value.dtype == torch.int64 else {}) | ({2: past} if row.past and value.dim() == 4 else {})

    return {n: of(value) for n, value in inputs.items()}


def export(name, folder):
    import torch

    row = MODELS[name]
    torch.manual_seed(0)
    model, inputs = row.build()
    model.eval()
    path = os.path.join(folder, name + ".onnx")
    if row.dynamo:
        torch.onnx.export(model, (), path, kwargs=inputs, dynamic_shapes=open_sizes(inputs, row), dynamo=True, external_data=False,
                          opset_version=row.opset)
    else:
        axes = {n: {0: "batch", 1: "seq"} if row.seq else {0: "batch"} for n in inputs}
        torch.onnx.export(model, tuple(inputs.values()), path, input_names=list(inputs), dynamic_axes=axes, dynamo=False, opset_version=17)
    print(name, os.path.getsize(path), flush=True)


def rewrite(name, folder):
    if MODELS[name].rewrite:
        MODELS[name].rewrite(os.path.join(folder, name + ".onnx"))
        print(name, "rewritten", flush=True)


if __name__ == "__main__":
    if sys.argv[2:3] == ["--rewrite"]:
        for name in sys.argv[3:]:
            rewrite(name, sys.argv[1])
        sys.exit()
    os.makedirs(sys.argv[1], exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        if not os.path.exists(os.path.join(sys.argv[1], name + ".onnx")):
            try:
                export(name, sys.argv[1])
            except Exception as error:  # the others are wanted all the same
                print(name, "FAILED", type(error).__name__, str(error)[:300].replace("\n", " "), flush=True)
