"""The models of the zoo, found by enumeration: names(), and make(name, batch) -> (module, [(args, kwargs) to try]).

timm: every module's smallest members by kind of name; torchvision: every model; hf: every architecture of transformers'
auto classes from a shrunken configuration; peft: adapters on some of those; own: tests/zoo/own/*.py.
"""
import contextlib
import glob
import importlib
import os
import re
import sys

import naming

SMALL = ["test_", "pico", "femto", "atto", "xxs", "xx_small", "zepto", "nano", "xtiny", "tiny", "_xs", "x_small", "mini", "lite", "_s_", "small", "_s", "050", "_18", "18", "b0", "26", "_b16", "base"]
TEXT = 256  # tokens


def _rank(name):
    return (next((i for i, s in enumerate(SMALL) if s in name), len(SMALL)), len(name), name)


def timm_names():
    import timm

    found = {}
    for module in timm.list_modules():
        for name in timm.list_models(module=module):
            kind = (module, re.match(r"[a-z]+", name)[0])
            found[kind] = min(found.get(kind, name), name, key=_rank)
    return sorted({f"timm/{name}" for name in found.values()})


VISION = {"classification": None, "segmentation": "segmentation", "video": "video"}


def torchvision_names():
    import torchvision

    found = []
    for group, module in VISION.items():
        where = getattr(torchvision.models, module) if module else torchvision.models
        found += [f"torchvision/{group}/{n}" for n in torchvision.models.list_models(module=where)]
    return found


TASKS = {
    "causal-lm": "CAUSAL_LM", "masked-lm": "MASKED_LM", "sequence-classification": "SEQUENCE_CLASSIFICATION", "seq2seq": "SEQ_TO_SEQ_CAUSAL_LM",
    "token-classification": "TOKEN_CLASSIFICATION", "image-classification": "IMAGE_CLASSIFICATION", "semantic-segmentation": "SEMANTIC_SEGMENTATION",
    "depth": "DEPTH_ESTIMATION", "object-detection": "OBJECT_DETECTION", "video-classification": "VIDEO_CLASSIFICATION",
    "audio-classification": "AUDIO_CLASSIFICATION", "ctc": "CTC", "speech-seq2seq": "SPEECH_SEQ_2_SEQ", "masked-image": "MASKED_IMAGE_MODELING",
    "zero-shot-image": "ZERO_SHOT_IMAGE_CLASSIFICATION", "image-text": "IMAGE_TEXT_TO_TEXT",
}


def _mapping(task):
    from transformers.models.auto import modeling_auto

    return getattr(modeling_auto, f"MODEL_FOR_{TASKS[task]}_MAPPING_NAMES")


def hf_names():
    return [f"hf/{task}/{kind}" for task in TASKS for kind, cls in _mapping(task).items() if cls]


LORA = {"llama": "causal-lm", "gpt2": "causal-lm", "qwen2": "causal-lm", "mistral": "causal-lm", "opt": "causal-lm", "bert": "sequence-classification",
        "roberta": "sequence-classification", "t5": "seq2seq", "vit": "image-classification", "gemma": "causal-lm"}
ADAPTERS = {"lora": {}, "dora": dict(use_dora=True), "lora-dropout": dict(lora_dropout=0.1), "rslora": dict(use_rslora=True)}


def peft_names():
    return [f"peft/{how}/{kind}" for how in ADAPTERS for kind in LORA]


def _own(module):
    return importlib.import_module(f"own.{module}")


def own_names():
    found = []
    for path in sorted(glob.glob(os.path.join(naming.HERE, "own", "*.py"))):
        module = os.path.basename(path)[:-3]
        found += [f"own/{module}/{name}" for name in _own(module).__all__]
    return found


def names():
    return naming.ordered([*timm_names(), *torchvision_names(), *hf_names(), *peft_names(), *own_names()])


def prepare(name):
    """Imports what the model needs, so that processes forked from here find it imported."""
    with contextlib.suppress(BaseException):
        family, *rest = name.split("/")
        if family == "hf":
            import transformers

            getattr(transformers, _class(*rest))
        elif family == "peft":
            import peft  # noqa: F401

            prepare(f"hf/{LORA[rest[1]]}/{rest[1]}")
        elif family == "own":
            _own(rest[0])


def _class(task, kind):
    found = _mapping(task)[kind]
    return found if isinstance(found, str) else found[0]


def _images(batch, channels, *sizes):
    import torch

    return [((torch.zeros(batch, channels, *sizes),), {})]


def make_timm(name, batch):
    import timm

    model = timm.create_model(name)
    return model, _images(batch, *model.pretrained_cfg.get("input_size", (3, 224, 224)))


def make_torchvision(group, name, batch):
    import torchvision

    extra = dict(weights_backbone=None) if group == "segmentation" else {}
    if name in ("googlenet", "inception_v3"):
        extra["init_weights"] = False
    model = torchvision.models.get_model(name, weights=None, **extra)
    size = {"inception_v3": 299}.get(name, 224)
    if group == "video":
        return model, _images(batch, 3, 16, *((224, 224) if "mvit" in name or "swin" in name else (112, 112)))
    return model, _images(batch, 3, size, size)


def make_own(module, name, batch):
    module, args, kwargs = getattr(_own(module), name)(batch)
    return module, [(args, kwargs)]


def make_hf(task, kind, batch):
    import shrunken

    return shrunken.make(task, kind, _class(task, kind), batch, TEXT)


def make_peft(how, kind, batch):
    import peft

    import shrunken

    model, inputs = make_hf(LORA[kind], kind, batch)
    task = dict(task_type="SEQ_CLS") if LORA[kind] == "sequence-classification" else {}
    return peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=shrunken.linears(model), **ADAPTERS[how], **task)), inputs


def make(name, batch):
    sys.path[:0] = [p for p in (naming.HERE,) if p not in sys.path]
    family, *rest = name.split("/")
    return globals()[f"make_{family}"](*rest, batch)


def has_batch(args, kwargs, batch):
    """Whether the call's first tensor leads with the batch. Of a graph, say, it leads with the nodes: then there is one size alone, that of the truth."""
    import torch

    first = next((v for v in [*args, *kwargs.values()] if isinstance(v, torch.Tensor)), None)
    return first is not None and first.dim() > 0 and first.shape[0] == batch
