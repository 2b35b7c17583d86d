"""The reference program (docs/reference-program.md): one training or inference run, and what PyTorch says of its memory.

    LD_PRELOAD=…/libemulated_gpu.so EMULATED_GPU=h100 python reference_program.py --model resnet50 --batch 32

prints one JSON row. On a machine with a GPU the same command without LD_PRELOAD gives the GPU's own figures.
--events FILE also writes the stream of allocations and frees in order (.json or .json.gz); --ops adds the innermost
running op of each (from the profiler, which does not allocate on the device).
"""
import argparse
import contextlib
import json
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models
import more_models  # noqa: F401 (adds to the registry)
import recording
import strategies

HALF = {"amp-bf16": torch.bfloat16, "bf16": torch.bfloat16, "amp-fp16": torch.float16, "fp16": torch.float16}
DEFAULTS = dict(model=None, batch=None, seq=None, mode="train", precision="fp32", optimizer="adamw", impl="default", steps=3,
                accumulate=1, clip=False, checkpoint="", checkpoint_save="", offload="", lora="", kv_cache="",
                channels_last=False, loss_history=False, empty_cache=False, zero_grad="begin", alloc_conf="", env={}, fill=False)


def make_optimizer(name, impl, parameters):
    o = torch.optim
    kw = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}[impl]
    return {
        "sgd": lambda: o.SGD(parameters, lr=0.01, **kw),
        "sgd-momentum": lambda: o.SGD(parameters, lr=0.01, momentum=0.9, **kw),
        "adam": lambda: o.Adam(parameters, **kw),
        "adamw": lambda: o.AdamW(parameters, **kw),
        "adamw-amsgrad": lambda: o.AdamW(parameters, amsgrad=True, **kw),
        "adagrad": lambda: o.Adagrad(parameters, **kw),
        "rmsprop": lambda: o.RMSprop(parameters, **kw),
        "adafactor": lambda: o.Adafactor(parameters, **kw),
        "adafactor-hf": lambda: __import__("transformers").Adafactor(parameters, lr=1e-3, scale_parameter=False, relative_step=False),
        "lion": lambda: __import__("lion_pytorch").Lion(parameters),
    }[name]()


def loss_fn(output, y):
    if output.dim() in (2, 4):
        return torch.nn.functional.cross_entropy(output, y)
    return torch.nn.functional.cross_entropy(output.flatten(0, -2), y.flatten())


def run(config, events=None, ops=False):
    """Runs the program for one configuration and returns the row. `events`: a path for the event stream."""
    c = {**DEFAULTS, **config}
    spec = models.REGISTRY[c["model"]]
    c["batch"] = c["batch"] or spec.batch
    c["seq"] = (c["seq"] or spec.seq) if spec.seq else None
    dims = {"batch": c["batch"], "seq": c["seq"]}
    training = c["mode"] == "train"
    half = HALF.get(c["precision"])
    amp = c["precision"].startswith("amp")

    def host_tensor(i):
        dtype = getattr(torch, i.dtype)
        return torch.zeros(i.shape(dims), dtype=half if half and not amp and dtype.is_floating_point else dtype)

    torch.manual_seed(0)
    model = models.build(c["model"], fill=c["fill"])
    model.train(training)
    if half and not amp:
        model.to(half)
    if c["channels_last"]:
        model.to(memory_format=torch.channels_last)
    if c["lora"]:
        model = strategies.adapters(model, c["lora"])
    if c["checkpoint"]:
        strategies.checkpoint(model.get_base_model() if c["lora"] else model, c["checkpoint"], c["checkpoint_save"])
    host_x = [host_tensor(i) for i in spec.inputs]
    host_y = torch.zeros(spec.label_shape(dims), dtype=torch.long) if training or c["loss_history"] else None

    if c["channels_last"]:
        host_x = [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in host_x]
    host_optimizer = c["offload"] and "optimizer" in c["offload"].split(",")
    offload = lambda: torch.autograd.graph.save_on_cpu(pin_memory=True) if "activations" in c["offload"].split(",") else contextlib.nullcontext()
    losses = []
    log = recording.Recorder(events is not None, ops)
    error = None
    optimizer = output = loss = y = None
    x = [None] * len(host_x)
    autocast = lambda: torch.autocast("cuda", dtype=half, enabled=True) if amp else contextlib.nullcontext()
    try:
        with log:
            if "parameters" in c["offload"].split(","):
                __import__("accelerate").cpu_offload(model, torch.device("cuda", 0))
            else:
                model.to("cuda")
            cache = strategies.kv_cache(model, c["kv_cache"], half or torch.float32) if c["kv_cache"] else None
            log.setup_done()
            parameters = [p for p in model.parameters() if p.requires_grad]
            if training:
                make = lambda chosen: make_optimizer(c["optimizer"], c["impl"], chosen)
                if c["optimizer"] == "none":
                    optimizer = None
                elif host_optimizer:
                    optimizer = strategies.HostOptimizer(make, parameters)
                else:
                    optimizer = strategies.Muon(model) if c["optimizer"] == "muon" else make(parameters)
                scaler = torch.amp.GradScaler("cuda", enabled=c["precision"] == "amp-fp16")
                for _ in range(c["steps"]):
                    log.step_begins()
                    for k in range(c["accumulate"]):
                        for i in range(len(x)):
                            x[i] = host_x[i].to("cuda")
                        y = host_y.to("cuda")
                        if k == 0 and c["zero_grad"] == "begin":
                            (optimizer or model).zero_grad(set_to_none=True)
                        log.mark("forward")
                        with autocast(), offload():
                            output = model(*x)
                            log.mark("loss")
                            loss = loss_fn(output, y)
                            if c["accumulate"] > 1:
                                loss = loss / c["accumulate"]
                            if c["loss_history"]:
                                losses.append(loss)
                        if k == 0 and c["zero_grad"] == "backward":
                            (optimizer or model).zero_grad(set_to_none=True)
                        log.mark("backward")
                        scaler.scale(loss).backward()
                    log.mark("optimizer")
                    if c["clip"]:
                        if optimizer and scaler.is_enabled():
                            scaler.unscale_(optimizer)
                        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    if optimizer and not scaler.is_enabled():
                        optimizer.step()
                    elif optimizer:
                        scaler.step(optimizer)
                        scaler.update()
                    if c["zero_grad"] == "end":
                        (optimizer or model).zero_grad(set_to_none=True)
                    if c["empty_cache"]:
                        torch.cuda.empty_cache()
                    log.step_ends()
            else:
                # An evaluation that forgets no_grad and keeps its losses is what --loss-history shows in inference.
                with contextlib.nullcontext() if c["loss_history"] else torch.no_grad():
                    for _ in range(c["steps"]):
                        log.step_begins()
                        for i in range(len(x)):
                            x[i] = host_x[i].to("cuda")
                        if c["loss_history"]:
                            y = host_y.to("cuda")
                        log.mark("forward")
                        with autocast():
                            output = model(*x)
                            if c["loss_history"]:
                                loss = loss_fn(output, y)
                                losses.append(loss)
                        if c["empty_cache"]:
                            torch.cuda.empty_cache()
                        log.step_ends()
    except torch.OutOfMemoryError as e:
        error = str(e).split(". ")[0]
    row = {k: v for k, v in c.items() if k in ("model", "batch", "seq", "mode", "precision", "optimizer") or v != DEFAULTS[k]}
    if not training:
        row.pop("optimizer")
    row |= dict(parameters=sum(p.numel() for p in model.parameters()), setup=log.setup, steps=log.steps, error=error,
                device=torch.cuda.get_device_name(), torch=torch.__version__)
    if events:
        log.save(events, row)
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, choices=list(models.REGISTRY))
    p.add_argument("--batch", type=int)
    p.add_argument("--seq", type=int)
    p.add_argument("--mode", default="train", choices=["train", "inference"])
    p.add_argument("--precision", default="fp32", choices=["fp32", *HALF])
    p.add_argument("--optimizer", default="adamw")
    p.add_argument("--impl", default="default", choices=["default", "foreach", "fused", "loop"])
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--accumulate", type=int, default=1)
    p.add_argument("--clip", action="store_true")
    p.add_argument("--checkpoint", default="", metavar="GLOB|every:N|groups:N", help="modules that run under torch.utils.checkpoint")
    p.add_argument("--checkpoint-save", default="", metavar="OPS", help="ops whose outputs they keep: matmul, attention, convolution")
    p.add_argument("--offload", default="", help="activations, optimizer")
    p.add_argument("--lora", default="", metavar="r=N,...")
    p.add_argument("--kv-cache", default="", metavar="sequences=N,length=N,...")
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--loss-history", action="store_true")
    p.add_argument("--empty-cache", action="store_true")
    p.add_argument("--zero-grad", default="begin", choices=["begin", "end", "never"])
    p.add_argument("--alloc-conf", default="", help="value of PYTORCH_ALLOC_CONF")
    p.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of the environment")
    p.add_argument("--fill", action="store_true", help="initialise the weights (only their sizes count here)")
    p.add_argument("--events", metavar="FILE")
    p.add_argument("--ops", action="store_true")
    a = vars(p.parse_args())
    events, ops = a.pop("events"), a.pop("ops")
    a["env"] = dict(word.split("=", 1) for word in a["env"])
    os.environ.update(a["env"])
    if a["alloc_conf"]:
        os.environ["PYTORCH_ALLOC_CONF"] = a["alloc_conf"]
    print(json.dumps(run(a, events, ops)))


if __name__ == "__main__":
    main()
