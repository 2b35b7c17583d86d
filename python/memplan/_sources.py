"""What a model is made from on the command line: a factory in a file, a configuration of transformers, a name of timm or torchvision. Nothing is downloaded."""
from __future__ import annotations

import contextlib
import inspect
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ._errors import Error, InputError, UsageError

KINDS = ("train.py:make_model", "a folder or config.json of transformers", "hf:org/name of a model in the Hugging Face cache", "timm:NAME", "torchvision:NAME")
TASKS = {"causal-lm": "AutoModelForCausalLM", "masked-lm": "AutoModelForMaskedLM", "seq2seq-lm": "AutoModelForSeq2SeqLM",
         "sequence-classification": "AutoModelForSequenceClassification", "token-classification": "AutoModelForTokenClassification",
         "question-answering": "AutoModelForQuestionAnswering", "image-classification": "AutoModelForImageClassification", "base": "AutoModel"}


@dataclass
class Choice:
    """The flags."""
    batch: Optional[int] = None
    seq: Optional[int] = None
    image: Optional[int] = None
    model_class: Optional[str] = None
    task: Optional[str] = None
    labels: bool = True
    dtype: Optional[str] = None
    trust: bool = False
    inputs: List[str] = field(default_factory=list)
    download: bool = False


@dataclass
class Made:
    module: Any
    args: Tuple[Any, ...] = ()
    kwargs: Dict[str, Any] = field(default_factory=dict)
    name: str = "model"
    said: List[str] = field(default_factory=list)  # what was chosen


def make(source: str, choice: Choice) -> Made:
    """Raises InputError and UsageError."""
    kind, colon, rest = source.partition(":")
    if kind in ("timm", "torchvision") and colon:
        made = {"timm": _timm, "torchvision": _torchvision}[kind](rest, choice)
    elif ".py:" in source or source.endswith(".py"):
        made = _factory(source, choice)
    else:
        made = _transformers(source[3:] if source.startswith("hf:") else source, choice)
    if choice.inputs:
        made.args, made.kwargs = _given(choice.inputs)
    if choice.dtype:
        made.module.to(_dtype(choice.dtype))
        made.args, made.kwargs = _cast(made.args, choice.dtype), _cast(made.kwargs, choice.dtype)
    if not made.args and not made.kwargs:
        raise UsageError("the sizes of the inputs are not known", source, "let the factory return (module, args) or (module, args, kwargs), "
                         "or give --input x:float32:4,3,224,224", 2)
    return made


def _dtype(name: str) -> Any:
    import torch

    found = getattr(torch, {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}.get(name, name), None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"'{name}' is no dtype", hint="float32, bfloat16, float16, int64 …", code=2)
    return found


def _cast(values: Any, dtype: str) -> Any:
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, lambda t: t.to(_dtype(dtype)) if t.is_floating_point() else t, values)


def _zeros(shape: Any, dtype: str) -> Any:
    import torch

    return torch.zeros(tuple(shape), dtype=_dtype(dtype), device="meta")


def _given(inputs: List[str]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    args, kwargs = [], {}
    for text in inputs:
        parts = text.split(":")
        try:
            shape = [int(n) for n in parts[-1].replace("x", ",").split(",") if n]
        except ValueError:
            shape = []
        if len(parts) not in (2, 3) or not shape or min(shape) < 1:
            raise UsageError("an input is NAME:DTYPE:SHAPE, or DTYPE:SHAPE by position", f"--input {text}", "for example --input x:float32:4,3,224,224", 2)
        tensor = _zeros(shape, parts[-2])
        if len(parts) == 3:
            kwargs[parts[0]] = tensor
        else:
            args.append(tensor)
    return tuple(args), kwargs


# --- a factory -------------------------------------------------------------------------------------------------------

def _module(path: str) -> Any:
    """The file as a module that another process can import as well, by its own name."""
    import importlib.util

    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:  # the file is called as something of Python's
        name = f"memplan_source_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _factory(source: str, choice: Choice) -> Made:
    path, _, name = source.rpartition(":") if ".py:" in source else (source, "", "")
    if not os.path.isfile(path):
        raise InputError("there is no such file", path, "check the path", 3)
    if not name:
        raise UsageError("a Python file needs the name of what makes the model", source, f"{path}:make_model, where make_model() returns a module, (module, args) "
                         f"or (module, args, kwargs); to run the whole script: memplan observe -- python {path}", 2)
    from ._lines import own_line

    sys.path[1:1] = [os.path.dirname(os.path.abspath(path))]
    import torch

    # Its definitions alone: what stands below `if __name__ == "__main__"` does not run.
    try:
        names = vars(_module(path))
        if name not in names:
            raise UsageError(f"{path} has no '{name}'", source, f"it has {', '.join(n for n, v in names.items() if callable(v) and not n.startswith('_'))[:300]}", 2)
        made = names[name]
        if not isinstance(made, torch.nn.Module):
            try:
                with torch.device("meta"):
                    made = made()
            except NotImplementedError:  # what only works with values
                made = names[name]()
    except Error:
        raise
    except Exception as error:
        raise InputError(f"{name}() raises {type(error).__name__}: {error}", own_line(error), f"call it in a Python shell: from {os.path.basename(path)[:-3]} import {name}", 3) from error
    parts = made if isinstance(made, tuple) else (made,)
    if not isinstance(parts[0], torch.nn.Module) or len(parts) > 3:
        raise InputError(f"{name}() returns {type(parts[0]).__name__}", source, "return a module, (module, args) or (module, args, kwargs)", 3)
    args = parts[1] if len(parts) > 1 else ()
    kwargs = dict(parts[2]) if len(parts) > 2 else {}
    if isinstance(args, dict):
        args, kwargs = (), {**args, **kwargs}
    return Made(parts[0], tuple(args) if isinstance(args, (tuple, list)) else (args,), kwargs, type(parts[0]).__name__)


# --- transformers ----------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    import logging
    import warnings

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def configuration_of(source: str) -> Optional[str]:
    """The file that says what the model is made of; None where the Hugging Face cache does not have it."""
    source = source[3:] if source.startswith("hf:") else source
    if os.path.isdir(source):
        return os.path.join(source, "config.json")
    if os.path.exists(source):
        return source
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(source, "config.json")
    except (ImportError, ValueError):  # ValueError: no name that the hub could have
        return None
    return found if isinstance(found, str) else None


def _configuration(source: str, choice: Choice) -> Any:
    """The configuration as transformers has it."""
    local = os.path.exists(source)
    if not local and (source.count("/") != 1 or source.startswith((".", "/"))):
        raise InputError("there is no such model", source, "give " + ", ".join(KINDS), 3)
    if os.path.isfile(source) and not source.endswith(".json"):
        raise InputError("the file is no source of a model", source, f"memplan {source} reads it if it is a model; sources are " + ", ".join(KINDS), 3)
    path = configuration_of(source)
    if local and not os.path.isfile(str(path)):
        raise InputError("the folder has no config.json", source, "give " + ", ".join(KINDS), 3)
    if path:
        try:
            with open(path, encoding="utf-8") as f:
                known = json.load(f)
        except (ValueError, RecursionError, OSError) as error:
            raise InputError(f"the configuration cannot be read as JSON: {_first(error)}", path, "fetch it again", 3) from error
        if not isinstance(known, dict) or "model_type" not in known:
            raise InputError("the configuration does not say its model_type", path,
                             "configurations of diffusers and other libraries: export train.py:make_model instead" if "_class_name" in str(known) else "is it one of transformers?", 3)
    try:
        import transformers
    except ImportError as error:
        raise InputError("transformers is not installed in this Python", sys.executable, f"{sys.executable} -m pip install transformers", 3) from error
    if not path and not choice.download:
        raise InputError("the model is not in the Hugging Face cache, and nothing is downloaded", source,
                         "add --download to fetch its config.json, or give the path of that file", 3)
    try:
        with _quiet():
            return transformers.AutoConfig.from_pretrained(source, local_files_only=not choice.download, trust_remote_code=choice.trust)
    except MemoryError:
        raise
    except Exception as error:
        hint = "try a newer transformers"
        if "trust_remote_code" in str(error):
            hint = "--trust-remote-code, if the model brings its own code"
        elif choice.download and not path:
            hint = "check the name and the connection; a model behind a licence needs a token"
        raise InputError(f"transformers {transformers.__version__} cannot read the configuration: {_first(error)}", source, hint, 3) from error


def _transformers(source: str, choice: Choice) -> Made:
    if not choice.download:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    config = _configuration(source, choice)
    import transformers

    local = os.path.exists(source)
    folder = os.path.dirname(os.path.abspath(source)) if os.path.isfile(source) else source
    cls, automatic = _class_of(transformers, config, choice, source)
    dtype = _own_dtype(transformers, config, choice)
    import torch

    # Without one, classifiers of sequences refuse batches; which token it is moves no byte.
    text = getattr(config, "text_config", None) or config
    if getattr(cls, "__name__", "").endswith("ForSequenceClassification") and getattr(text, "pad_token_id", None) is None:
        text.pad_token_id = 0
    try:
        with _quiet(), torch.device("meta"):
            make_one = cls.from_config if automatic else cls._from_config
            model = make_one(config, dtype=dtype) if int(transformers.__version__.split(".")[0]) >= 5 else make_one(config, torch_dtype=dtype)
    except MemoryError:
        raise
    except Exception as error:
        raise InputError(f"transformers cannot build the model: {type(error).__name__}: {_first(error)}", source,
                         "check the configuration, or choose the class with --class or --task", 3) from error
    model.train()
    made = Made(model, (), {}, os.path.basename(os.path.abspath(folder)) if local else source.rsplit("/", 1)[-1],
                [f"{type(model).__name__} with {str(dtype).removeprefix('torch.')} parameters" + ("" if choice.dtype else ", as from_pretrained() makes them (--dtype)")])
    _hf_inputs(model, config, choice, made)
    return made


def _first(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300].rstrip(".")


def _class_of(transformers: Any, config: Any, choice: Choice, source: str) -> Tuple[Any, bool]:
    """(class, whether it is one of transformers' Auto classes)"""
    if choice.task:
        return getattr(transformers, TASKS[choice.task]), True
    named = choice.model_class or next(iter(getattr(config, "architectures", None) or ()), None)
    if named is None:
        raise UsageError("the configuration does not say which class the model is", source, f"--class LlamaForCausalLM, or --task {'|'.join(TASKS)}", 2)
    cls = getattr(transformers, named, None)
    if cls is None:
        if getattr(config, "auto_map", None) and choice.trust and not choice.model_class:
            return transformers.AutoModelForCausalLM, True
        import difflib

        near = difflib.get_close_matches(named, dir(transformers), 3)
        raise InputError(f"transformers {transformers.__version__} has no class {named}", source, f"did you mean {', '.join(near)}?" if near else
                         "use the transformers that the model was made for, or choose with --class or --task", 3)
    return cls, named.startswith("Auto")


def _own_dtype(transformers: Any, config: Any, choice: Choice) -> Any:
    """Of from_pretrained() in this version: what the checkpoint has since 5.0, before that float32."""
    import torch

    if choice.dtype:
        return _dtype(choice.dtype)
    if int(transformers.__version__.split(".")[0]) < 5:
        return torch.float32
    found = getattr(config, "dtype", None) or getattr(getattr(config, "text_config", None), "dtype", None)
    return _dtype(found) if isinstance(found, str) else found or torch.float32


def _hf_inputs(model: Any, config: Any, choice: Choice, made: Made) -> None:
    """The inputs of a training step, by what the forward pass takes."""
    takes = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    text = getattr(config, "text_config", None) or config
    batch = choice.batch or 2
    longest = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None) or 0
    seq = choice.seq or min(512, longest or 512)
    if main == "input_ids":
        made.kwargs["input_ids"] = _zeros((batch, seq), "int64")
    elif main == "pixel_values":
        side = choice.image or getattr(config, "image_size", None) or 224
        sides = tuple(side) if isinstance(side, (list, tuple)) else (side, side)
        made.kwargs["pixel_values"] = _zeros((batch, getattr(config, "num_channels", 3), *sides), "float32")
    elif main == "input_features":
        made.kwargs["input_features"] = _zeros((batch, getattr(config, "num_mel_bins", 80), 2 * getattr(config, "max_source_positions", 1500)), "float32")
    elif choice.inputs:
        return
    else:
        raise UsageError(f"{type(model).__name__} takes '{main}', whose sizes are not known", hint=f"--input {main}:float32:4,16000", code=2)
    encoder_decoder = getattr(config, "is_encoder_decoder", False)
    name = type(model).__name__
    labels: Optional[Tuple[int, ...]] = None
    if "labels" in takes:
        if name.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration", "ForTokenClassification", "ForPreTraining")):
            labels = (batch, seq)
        elif name.endswith(("ForSequenceClassification", "ForImageClassification")):
            labels = (batch,)
    if labels and choice.labels:
        made.kwargs["labels"] = _zeros(labels, "int64")
        made.said.append("with labels: the loss is the model's own")
    elif encoder_decoder and "decoder_input_ids" in takes:
        made.kwargs["decoder_input_ids"] = _zeros((batch, seq), "int64")
    elif choice.labels:
        made.said.append("without labels: the loss is memplan's (--input gives what else the forward pass takes)")


# --- timm, torchvision -----------------------------------------------------------------------------------------------

def _built(make_it: Any) -> Any:
    """On meta; with weights where the code of a model computes with values."""
    import torch

    try:
        with torch.device("meta"):
            return make_it()
    except (NotImplementedError, RuntimeError):
        return make_it()


def _timm(name: str, choice: Choice) -> Made:
    try:
        import timm
    except ImportError as error:
        raise InputError("timm is not installed in this Python", sys.executable, "pip install timm", 3) from error
    if not timm.is_model(name):
        import difflib

        raise InputError(f"timm {timm.__version__} has no model '{name}'", hint=f"did you mean {', '.join(difflib.get_close_matches(name, timm.list_models(), 3))}?", code=3)
    model = _built(lambda: timm.create_model(name, pretrained=False))
    channels, height, width = (model.pretrained_cfg or {}).get("input_size", (3, 224, 224))
    size = (choice.image, choice.image) if choice.image else (height, width)
    return Made(model.train(), (_zeros((choice.batch or 2, channels, *size), "float32"),), {}, name)


def _torchvision(name: str, choice: Choice) -> Made:
    try:
        import torchvision
    except ImportError as error:
        raise InputError("torchvision is not installed in this Python", sys.executable, "pip install torchvision", 3) from error
    if name not in torchvision.models.list_models():
        import difflib

        near = difflib.get_close_matches(name, torchvision.models.list_models(), 3)
        raise InputError(f"torchvision {torchvision.__version__} has no model '{name}'", hint=f"did you mean {', '.join(near)}?" if near else "", code=3)
    takes = {"weights": None} | ({"weights_backbone": None} if name in torchvision.models.list_models(torchvision.models.detection) + torchvision.models.list_models(torchvision.models.segmentation) else {})
    model = _built(lambda: torchvision.models.get_model(name, **takes))
    weights = torchvision.models.get_model_weights(name)
    size = choice.image
    if not size:
        crop = getattr(getattr(next(iter(weights), None), "transforms", lambda: None)(), "crop_size", None)
        size = crop[0] if crop else 224
    return Made(model.train(), (_zeros((choice.batch or 2, 3, size, size), "float32"),), {}, name)
