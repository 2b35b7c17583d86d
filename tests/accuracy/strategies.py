"""What the memory strategies of docs/strategies.md do to a PyTorch model: the truth that memplan's own are compared with."""
import fnmatch
import functools
import itertools
import re

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from torch.utils.checkpoint import checkpoint as run_checkpointed

ATEN = torch.ops.aten
FAMILIES = {
    "matmul": [ATEN.mm.default, ATEN.addmm.default, ATEN.bmm.default, ATEN.baddbmm.default],
    "attention": [ATEN._scaled_dot_product_flash_attention.default, ATEN._scaled_dot_product_efficient_attention.default,
                  ATEN._scaled_dot_product_cudnn_attention.default],
    "convolution": [ATEN.convolution.default],
}


def contexts(save):
    """The context_fn of torch.utils.checkpoint that keeps the outputs of some ops."""
    kept = [op for name in save.split(",") for op in FAMILIES[name]]

    def policy(context, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE

    return functools.partial(create_selective_checkpoint_contexts, policy)


def repeated_blocks(model):
    """Paths of modules of one class that differ in a number at the end and hold other modules, outermost ones."""
    groups = {}
    for name, module in model.named_modules():
        stem = re.sub(r"\d+$", "", name)
        if stem != name and any(True for _ in module.children()) and not type(module).__module__.startswith("torch.nn.modules.container"):
            groups.setdefault((stem, type(module)), []).append(name)
    found = {n for names in groups.values() if len(names) > 1 for n in names}
    return [n for n, _ in model.named_modules() if n in found and not any(n.startswith(o + ".") for o in found)]


def checkpoint(model, what, save=""):
    """Runs the outermost modules whose path matches, or every Nth block, or N blocks at a time, under torch.utils.checkpoint."""
    settings = dict(use_reentrant=False, **({"context_fn": contexts(save)} if save else {}))
    names = [n for n, _ in model.named_modules() if n]
    if what.startswith("groups:"):
        levels = [1 if level == "blocks" else int(level[7:]) for level in what.split("/")]
        for _, blocks in itertools.groupby(repeated_blocks(model), lambda name: re.sub(r"\d+$", "", name)):
            for stretch in grouped(list(blocks), levels):
                together(model, stretch, settings)
        return
    joined = [word for word in what.split(",") if "+" in word or "(" in word]
    for word in joined:
        together(model, parsed(word), settings)
    what = ",".join(word for word in what.split(",") if word not in joined)
    if what.startswith("every:"):
        n = int(what[6:])
        chosen = repeated_blocks(model)[n - 1 :: n]
    else:
        chosen = [name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in what.split(","))]
    for name in chosen:
        if not any(name.startswith(other + ".") for other in chosen):
            module = model.get_submodule(name)
            module.forward = functools.partial(run_checkpointed, module.forward, **settings)


def grouped(blocks, levels, around=None):
    """Lists of so many blocks each as the first level says; in these, lists as the next one says …"""
    if not levels:
        return blocks
    out = []
    for i in range(0, len(blocks), levels[0]):
        group = blocks[i : i + levels[0]]
        inner = grouped(group, levels[1:], len(group))
        out += [inner] if len(group) != around else inner  # one that is all of the group around it needs no second checkpoint
    return out


def parsed(word):
    """"(a+b)+(c)+d" as [["a", "b"], ["c"], "d"]."""
    stack = [[]]
    for part in re.findall(r"[()]|[^()+]+", word):
        if part == "(":
            stack.append([])
        elif part == ")":
            inner = stack.pop()
            stack[-1].append(inner)
        else:
            stack[-1].append(part)
    return stack[0]


def together(model, stretch, settings):
    """One checkpoint around modules that are called one after the other, each with the output of the one before; a list
    among them is such a checkpoint inside."""
    modules = lambda item: [model.get_submodule(item)] if isinstance(item, str) else [m for i in item for m in modules(i)]

    def chain(forwards, x, *args, **kwargs):
        for forward in forwards:
            x = forward(x, *args, **kwargs)
        return x

    def forward(item):
        if isinstance(item, str):
            return modules(item)[0].forward
        return functools.partial(run_checkpointed, functools.partial(chain, [forward(i) for i in item]), **settings)

    first, *others = modules(stretch)
    first.forward = forward(stretch)
    for module in others:
        module.forward = lambda x, *args, **kwargs: x


def adapters(model, words):
    """get_peft_model with the settings "r=16,targets=q_proj|v_proj,dropout=0.1"; without targets all but the last Linear."""
    import peft

    settings = dict(word.split("=", 1) for word in words.split(","))
    conv = tuple(c for c in [getattr(__import__("sys").modules.get("transformers.pytorch_utils"), "Conv1D", None)] if c)
    linears = [name for name, module in model.named_modules() if type(module) in (nn.Linear, *conv)]
    targets = settings["targets"].split("|") if "targets" in settings else linears[:-1]
    config = peft.LoraConfig(r=int(settings.get("r", 8)), lora_dropout=float(settings.get("dropout", 0)),
                             target_modules=[n for n in linears if any(n == t or n.endswith("." + t) or fnmatch.fnmatchcase(n, t) for t in targets)])
    return peft.get_peft_model(model, config)


class HostOptimizer:
    """An optimizer over copies of the parameters in host memory."""

    def __init__(self, make, parameters):
        self.parameters = parameters
        self.copies = [nn.Parameter(p.detach().to("cpu")) for p in parameters]
        self.optimizer = make(self.copies)

    def zero_grad(self, set_to_none=True):
        for p in self.parameters:
            p.grad = None

    def step(self):
        for copy, p in zip(self.copies, self.parameters):
            if p.grad is not None:
                copy.grad = p.grad.to("cpu")
                p.grad = None
        self.optimizer.step()
        with torch.no_grad():
            for copy, p in zip(self.copies, self.parameters):
                p.copy_(copy)


class Muon:
    """torch.optim.Muon for the hidden matrices, AdamW for embeddings, the last Linear and everything that is no matrix."""

    def __init__(self, model):
        outside = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)] + [m.weight for m in model.modules() if type(m) is nn.Linear][-1:]
        parameters = [p for p in model.parameters() if p.requires_grad]
        hidden = [p for p in parameters if p.ndim == 2 and not any(p is o for o in outside)]
        self.parts = [torch.optim.Muon(hidden), torch.optim.AdamW([p for p in parameters if not any(p is h for h in hidden)])]

    def zero_grad(self, set_to_none=True):
        for part in self.parts:
            part.zero_grad(set_to_none=set_to_none)

    def step(self):
        for part in self.parts:
            part.step()


def kv_cache(model, words, dtype):
    """Static keys and values of every layer of a transformers model, by its configuration."""
    settings = dict(word.split("=", 1) for word in words.split(","))
    c = next(m.config for m in model.modules() if hasattr(m, "config"))
    heads = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
    dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    dtype = {"fp8": torch.float8_e4m3fn, "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}.get(settings.get("dtype"), dtype)
    block = int(settings.get("block", 1))
    tokens = int(settings.get("sequences", 1)) * -(-int(settings["length"]) // block) * block
    return [torch.empty((tokens, heads, dim), dtype=dtype, device="cuda") for _ in range(2 * c.num_hidden_layers)]
