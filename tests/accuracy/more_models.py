"""Models that nobody looked at while the estimator was made: straight from torchvision, timm and transformers, by .pt2.

Importing this module adds them to models.REGISTRY as the group "more". tools/export_pt2.py --more writes their archives,
record.py --more what PyTorch says of them.
"""
import models
from models import IMAGE, TOKENS, IdsToLogits, Input, MaskedToLogits, Seq2SeqToLogits, Spec
from torch import nn

MORE = "more"
NAMES = []


def _more(name, kind, built, inputs, **rest):
    build, source = built
    if "seq" in rest:
        rest.setdefault("labels", ("batch", "seq"))
    models.REGISTRY[name] = Spec(name, MORE, kind, source, build, inputs, **rest)
    NAMES.append(name)


class DictOutput(nn.Module):
    """Segmentation models of torchvision return a dictionary."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)["out"]


class PatchLogits(nn.Module):
    """A vision model of transformers."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(pixel_values=x).logits


def _tv(name, wrapper=None, **settings):
    def build():
        import torchvision

        model = torchvision.models.get_model(name, weights=None, **settings)
        return wrapper(model) if wrapper else model

    text = ", ".join(f"{k}={v!r}" for k, v in settings.items())
    return build, f"torchvision.models.get_model({name!r}{', ' if text else ''}{text})"


def _timm(name):
    def build():
        import timm

        return timm.create_model(name, pretrained=False)

    return build, f"timm.create_model({name!r})"


def _hf(wrapper, model, config, **settings):
    return models._hf(wrapper, model, config, **settings)


def image(size):
    return (Input("x", "float32", ("batch", 3, size, size)),)


PAIR = (Input("input_ids", "int64", ("batch", "seq")), Input("decoder_input_ids", "int64", ("batch", "seq")))
SMALL = dict(hidden_size=256, num_hidden_layers=3, num_attention_heads=4, vocab_size=8000)
GATED = dict(**SMALL, intermediate_size=688, num_key_value_heads=2)

for tv_name in ("googlenet", "inception_v3"):
    _more(tv_name, "vision", _tv(tv_name, aux_logits=False, init_weights=False), image(299 if tv_name == "inception_v3" else 224), batch=8)
for tv_name in ("mnasnet1_0", "mobilenet_v2", "resnext50_32x4d", "efficientnet_v2_s", "regnet_x_800mf", "vgg11_bn", "swin_v2_t", "maxvit_t"):
    _more(tv_name, "vision", _tv(tv_name), IMAGE, batch=8)
_more("r3d_18", "video", _tv("r3d_18"), (Input("x", "float32", ("batch", 3, 8, 64, 64)),), batch=4)
_more("deeplabv3_mobilenet_v3_large", "segmentation", _tv("deeplabv3_mobilenet_v3_large", DictOutput, weights_backbone=None),
      image(128), batch=4, labels=("batch", 128, 128))

for timm_name in ("deit_tiny_patch16_224", "mixer_s32_224", "convnextv2_atto", "efficientnet_lite0", "ghostnet_100", "mobilevitv2_050",
                  "resmlp_12_224", "poolformer_s12", "pvt_v2_b0", "repvgg_a0", "eca_nfnet_l0", "edgenext_xx_small"):
    _more(timm_name, "vision", _timm(timm_name), IMAGE, batch=8)

_more("distilbert", "text", _hf(MaskedToLogits, "DistilBertForMaskedLM", "DistilBertConfig", dim=256, n_layers=3, n_heads=4, hidden_dim=1024, vocab_size=8000), TOKENS, seq=128)
_more("roberta", "text", _hf(MaskedToLogits, "RobertaForMaskedLM", "RobertaConfig", **SMALL, intermediate_size=1024), TOKENS, seq=128)
_more("electra", "text", _hf(MaskedToLogits, "ElectraForMaskedLM", "ElectraConfig", **SMALL, intermediate_size=1024, embedding_size=128), TOKENS, seq=128)
_more("albert", "text", _hf(MaskedToLogits, "AlbertForMaskedLM", "AlbertConfig", **SMALL, intermediate_size=1024, embedding_size=128), TOKENS, seq=128)
_more("gpt-neox", "text", _hf(IdsToLogits, "GPTNeoXForCausalLM", "GPTNeoXConfig", **SMALL, intermediate_size=1024), TOKENS, seq=128)
_more("mistral", "text", _hf(IdsToLogits, "MistralForCausalLM", "MistralConfig", **GATED), TOKENS, seq=128)
_more("qwen3", "text", _hf(IdsToLogits, "Qwen3ForCausalLM", "Qwen3Config", **GATED, head_dim=64), TOKENS, seq=128)
_more("gemma", "text", _hf(IdsToLogits, "GemmaForCausalLM", "GemmaConfig", **GATED, head_dim=64), TOKENS, seq=128)
_more("phi", "text", _hf(IdsToLogits, "PhiForCausalLM", "PhiConfig", **SMALL, intermediate_size=1024), TOKENS, seq=128)
_more("olmo2", "text", _hf(IdsToLogits, "Olmo2ForCausalLM", "Olmo2Config", **GATED), TOKENS, seq=128)
_more("bart", "seq2seq", _hf(Seq2SeqToLogits, "BartForConditionalGeneration", "BartConfig", d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                             decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, vocab_size=8000), PAIR, seq=64)
_more("hf-vit", "vision", _hf(PatchLogits, "ViTForImageClassification", "ViTConfig", hidden_size=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=1024, num_labels=100), IMAGE, batch=8)
