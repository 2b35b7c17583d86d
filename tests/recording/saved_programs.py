"""Programs whose saved values and peaks `memplan FILE.pt2 --compile` is compared with: name -> (function that makes (module, args, kwargs), precision). OPEN were looked at
while the rules were written; SEALED were chosen before, and their first figures were taken before anybody looked."""
import torch
from torch import nn

from compiled_models import FIRST_LANGUAGE, GROUPED, LANGUAGE, WIDE

BATCH, LENGTH = 4, 64


def _tokens():
    return dict(input_ids=torch.zeros(BATCH, LENGTH, dtype=torch.long))


class LanguageLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, labels):
        return torch.nn.functional.cross_entropy(self.model(input_ids=ids).logits.flatten(0, 1), labels.flatten())


def language(name, labels=False, **more):
    def make():
        import transformers as t

        config, task = {**LANGUAGE, **FIRST_LANGUAGE}.get(name, (WIDE, "causal-lm"))
        auto = {"causal-lm": t.AutoModelForCausalLM, "masked-lm": t.AutoModelForMaskedLM, "seq2seq-lm": t.AutoModelForSeq2SeqLM}[task]
        model = auto.from_config(t.AutoConfig.for_model(name, **{**config, **more}))
        model.config.use_cache = False
        kwargs = _tokens()
        if task == "seq2seq-lm":
            kwargs["decoder_input_ids"] = kwargs["input_ids"].clone()
        if labels:  # the library's own loss breaks the graph; a training script's does not
            ids = kwargs["input_ids"]
            return LanguageLoss(model), (ids, ids.clone()), {}
        return model, (), kwargs

    return make


def image(name, size=224, batch=BATCH):
    def make():
        library, model = name.split(":")
        if library == "torchvision":
            import torchvision

            made = torchvision.models.get_model(model, weights=None)
        else:
            import timm

            made = timm.create_model(model)
        return made, (torch.zeros(batch, 3, size, size),), {}

    return make


class Mlp(nn.Module):
    def __init__(self, activation, norm=None, drop=0.0):
        super().__init__()
        layers = []
        for a, b in ((784, 512), (512, 256), (256, 10)):
            layers += [nn.Linear(a, b)] + ([norm(b)] if norm else []) + ([activation(), nn.Dropout(drop)] if b > 10 else [])
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class Encoder(nn.Module):
    def __init__(self, first=False, activation="relu"):
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, norm_first=first, activation=activation)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class Convolutions(nn.Module):
    def __init__(self, norm, activation):
        super().__init__()
        block = lambda a, b, s: [nn.Conv2d(a, b, 3, s, 1, bias=norm is None)] + ([norm(b)] if norm else []) + [activation()]  # noqa: E731
        self.body, self.head = nn.Sequential(*block(3, 32, 1), *block(32, 64, 2), *block(64, 128, 2)), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(torch.nn.functional.adaptive_avg_pool2d(self.body(x), 1).flatten(1))


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return torch.nn.functional.cross_entropy(self.model(x), y)


def own(module, *shape, loss=False):
    def make():
        args = (torch.zeros(*shape), *([torch.zeros(shape[0], dtype=torch.long)] if loss else []))
        return (WithLoss(module()) if loss else module()), args, {}

    return make


group = lambda n: nn.GroupNorm(8, n)  # noqa: E731
OPEN = {
    "gpt2": (language("gpt2"), "fp32"), "gpt2-amp": (language("gpt2"), "amp-bf16"), "gpt2-loss": (language("gpt2", True), "fp32"), "gpt2-loss-amp": (language("gpt2", True), "amp-bf16"),
    "llama": (language("llama"), "fp32"), "llama-bf16": (language("llama"), "bf16"), "llama-loss": (language("llama", True), "fp32"), "llama-amp": (language("llama"), "amp-bf16"),
    "qwen3": (language("qwen3"), "fp32"), "bert": (language("bert"), "fp32"), "bert-amp": (language("bert"), "amp-bf16"), "opt": (language("opt"), "fp32"),
    "gpt_neox": (language("gpt_neox"), "fp32"), "t5": (language("t5"), "fp32"), "bloom": (language("bloom"), "fp32"), "mistral": (language("mistral"), "fp32"),
    "resnet18": (image("torchvision:resnet18"), "fp32"), "resnet18-amp": (image("torchvision:resnet18"), "amp-bf16"), "mobilenet_v2": (image("torchvision:mobilenet_v2"), "fp32"),
    "vit_b_16": (image("torchvision:vit_b_16"), "fp32"), "vit_b_16-amp": (image("torchvision:vit_b_16"), "amp-bf16"), "convnext_tiny": (image("torchvision:convnext_tiny"), "fp32"),
    "efficientnet_b0": (image("torchvision:efficientnet_b0"), "fp32"), "alexnet": (image("torchvision:alexnet"), "fp32"), "deit_tiny": (image("timm:deit_tiny_patch16_224"), "fp32"),
    "mixer_s32": (image("timm:mixer_s32_224"), "fp32"), "mlp": (own(lambda: Mlp(nn.ReLU), 64, 784), "fp32"), "mlp-norm": (own(lambda: Mlp(nn.GELU, nn.LayerNorm, 0.1), 64, 784), "fp32"),
    "encoder": (own(Encoder, 8, 64, 128), "fp32"), "convolutions": (own(lambda: Convolutions(nn.BatchNorm2d, nn.ReLU), 8, 3, 64, 64), "fp32"),
}
SEALED = {
    "gemma2": (language("gemma2"), "fp32"), "phi3": (language("phi3"), "fp32"), "olmo2": (language("olmo2"), "fp32"), "stablelm": (language("stablelm"), "fp32"),
    "starcoder2": (language("starcoder2"), "fp32"), "falcon": (language("falcon"), "fp32"), "gptj": (language("gptj"), "fp32"), "granite-bf16": (language("granite"), "bf16"),
    "roberta": (language("roberta"), "fp32"), "albert": (language("albert"), "fp32"), "distilbert-amp": (language("distilbert"), "amp-bf16"), "bart": (language("bart"), "fp32"),
    "mistral-loss-bf16": (language("mistral", True), "bf16"), "bert-loss": (language("bert", True), "fp32"), "qwen3-amp": (language("qwen3"), "amp-bf16"),
    "vgg11": (image("torchvision:vgg11"), "fp32"), "squeezenet1_1": (image("torchvision:squeezenet1_1"), "fp32"), "mnasnet0_5": (image("torchvision:mnasnet0_5"), "fp32"),
    "regnet_y_400mf": (image("torchvision:regnet_y_400mf"), "fp32"), "shufflenet": (image("torchvision:shufflenet_v2_x0_5"), "fp32"), "resnet50-amp": (image("torchvision:resnet50"), "amp-bf16"),
    "convnext_atto": (image("timm:convnext_atto"), "fp32"), "resnet10t": (image("timm:resnet10t"), "fp32"), "pvt_v2_b0": (image("timm:pvt_v2_b0"), "fp32"),
    "poolformer_s12": (image("timm:poolformer_s12"), "fp32"), "resmlp_12": (image("timm:resmlp_12_224"), "fp32"),
    "encoder-first-gelu": (own(lambda: Encoder(True, "gelu"), 8, 64, 128), "fp32"), "mlp-loss": (own(lambda: Mlp(nn.SiLU, nn.BatchNorm1d), 64, 784, loss=True), "fp32"),
    "groups": (own(lambda: Convolutions(group, nn.SiLU), 8, 3, 64, 64), "fp32"), "plain-loss": (own(lambda: Convolutions(None, nn.LeakyReLU), 8, 3, 64, 64, loss=True), "fp32"),
}
