"""The reference program of one rank among several (docs/parallelism.md), and what PyTorch says of its memory.

    LD_PRELOAD=…/libemulated_gpu.so EMULATED_GPU=h100 python parallel_program.py --model gpt2 --batch 4 --strategy fsdp --ranks 8

prints one JSON row, as reference_program.py does. The other ranks do not exist: DDP runs over the emulated GPU's NCCL,
everything else over PyTorch's own fake process group. On real GPUs start it with torchrun; then the process group is NCCL's.
"""
import argparse
import contextlib
import fnmatch
import json
import os
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import deepspeed_engine
import models
import recording
import reference_program
import strategies

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DEFAULTS = {**reference_program.DEFAULTS, "strategy": "ddp", "ranks": 8, "bucket_view": False, "bucket_cap": None, "no_reshard": False, "hsdp": 0,
            "fsdp_dtype": None, "reduce_dtype": None, "blocks": "", "tp": 1, "sp": False, "loss_parallel": False, "zero": 0, "offload": "", "overlap_comm": None, "bucket_elements": None,
            "pp": 1, "pp_schedule": "1f1b", "pp_split": "", "micro_batches": 0, "rank": 0,
            "lazy_buckets": False, "reduce_buffers": 1, "keep_unsharded": False}


def start(c):
    """A process group in which this process is rank c["rank"]."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return dist.init_process_group("nccl")
    if c["strategy"] == "ddp":
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=c["ranks"])
        # It gathers the shapes over ranks that do not exist.
        torch.nn.parallel.distributed._verify_param_shape_across_processes = lambda *a, **k: True
    else:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=c["rank"], world_size=c["ranks"])


def wrap_fsdp(model, c):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if c["hsdp"]:
        mesh = init_device_mesh("cuda", (c["ranks"] // c["hsdp"], c["hsdp"]), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cuda", (c["ranks"],))
    policy = MixedPrecisionPolicy(param_dtype=DTYPES.get(c["fsdp_dtype"]), reduce_dtype=DTYPES.get(c["reduce_dtype"]))
    blocks = [n for n, _ in model.named_modules() if fnmatch.fnmatchcase(n, c["blocks"])] if c["blocks"] else strategies.repeated_blocks(model)
    for name in blocks:
        fully_shard(model.get_submodule(name), mesh=mesh, mp_policy=policy, reshard_after_forward=not c["no_reshard"])
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if c["reduce_buffers"] > 1:
        model.set_reduce_scatter_max_input_buffers(c["reduce_buffers"])
    if c["keep_unsharded"]:
        model.set_keep_unsharded_storage(True)
    return model


def wrap_tensor(model, c):
    """Megatron's cut by DTensor: layers that widen by outputs, layers that narrow by inputs, embedding and head by vocabulary.
    With sp the sequence is divided between blocks, as torchtitan does it for its llama; with loss_parallel the logits stay cut by the vocabulary."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module

    logits = dict(output_layouts=Shard(-1), use_local_output=False) if c["loss_parallel"] else dict(output_layouts=Replicate())
    plan = {}
    for name, module in model.named_modules():
        last = name.rsplit(".", 1)[-1]
        if c["sp"] and last in ("input_layernorm", "post_attention_layernorm", "norm"):
            plan[name] = SequenceParallel()
        elif c["sp"] and last == "self_attn":
            plan[name] = PrepareModuleInput(input_kwarg_layouts={"hidden_states": Shard(1)}, desired_input_kwarg_layouts={"hidden_states": Replicate()})
        elif c["sp"] and last == "mlp":
            plan[name] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        elif c["sp"] and last in ("o_proj", "down_proj"):
            plan[name] = RowwiseParallel(output_layouts=Shard(1))
        elif c["sp"] and last == "embed_tokens":
            plan[name] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        elif c["sp"] and last == "lm_head":
            plan[name] = ColwiseParallel(input_layouts=Shard(1), **logits)
        elif last in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "fc1"):
            plan[name] = ColwiseParallel()
        elif last in ("o_proj", "down_proj", "out_proj", "fc2"):
            plan[name] = RowwiseParallel()
        elif last == "embed_tokens":
            plan[name] = RowwiseParallel(input_layouts=Replicate())
        elif last == "lm_head":
            plan[name] = ColwiseParallel(**logits)
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    # A model that no single device could hold: what is cut moves piece by piece, then the rest.
    parallelize_module(model, init_device_mesh("cuda", (c["tp"],)), plan)
    for first, *others in names.values():
        for other in others:  # parallelize_module unties what was tied
            module, _, last = other.rpartition(".")
            setattr(model.get_submodule(module), last, model.get_parameter(first))
    model.to("cuda")
    return WholePositions(model) if c["sp"] else model


class WholePositions(torch.nn.Module):
    """The embedding's result is a share of the sequence; positions are those of the whole one."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).unsqueeze(0)
        return self.model.model(input_ids=input_ids, position_ids=positions, use_cache=False).logits


def prepare(model, c):
    """The model on the device, wrapped."""
    if c["strategy"] == "tp":
        return wrap_tensor(model, c)
    if c["strategy"] == "fsdp":
        return wrap_fsdp(model, c)
    if c["strategy"] == "zero":
        return deepspeed_engine.wrap(model, c)
    model.to("cuda")
    if c["strategy"] == "ddp":
        newer = dict(lazy_bucket_allocation=True) if c["lazy_buckets"] else {}
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], gradient_as_bucket_view=c["bucket_view"], bucket_cap_mb=c["bucket_cap"], **newer)
    raise ValueError(c["strategy"])


def run(config, events=None, ops=False):
    c = {**DEFAULTS, **config}
    spec = models.REGISTRY[c["model"]]
    c["batch"] = c["batch"] or spec.batch
    c["seq"] = (c["seq"] or spec.seq) if spec.seq else None
    dims = {"batch": c["batch"], "seq": c["seq"]}
    half = reference_program.HALF.get(c["precision"])
    amp = c["precision"].startswith("amp")
    torch.manual_seed(0)
    if c["strategy"] == "pp":
        return run_pipeline(c, spec, dims, events, ops)
    model = models.build(c["model"], fill=False)
    model.train()
    zero = c["strategy"] == "zero"
    if zero:
        c["rank"] = deepspeed_engine.heaviest_rank(model, c)
    start(c)
    if half and not amp and not zero:  # DeepSpeed's engine casts
        model.to(half)
    if c["checkpoint"]:
        strategies.checkpoint(model, ",".join(strategies.repeated_blocks(model)) if c["checkpoint"] == "blocks" else c["checkpoint"], c["checkpoint_save"])

    def host_tensor(i):
        dtype = getattr(torch, i.dtype)
        return torch.zeros(i.shape(dims), dtype=half if half and not amp and dtype.is_floating_point else dtype)

    host_x = [host_tensor(i) for i in spec.inputs]
    host_y = torch.zeros(spec.label_shape(dims), dtype=torch.long)
    parameters = [torch.empty(p.shape, device="meta") for p in model.parameters()]
    log = recording.Recorder(events is not None, ops)
    divided_loss = contextlib.nullcontext
    if c["loss_parallel"]:
        from torch.distributed.tensor.parallel import loss_parallel as divided_loss
    output = loss = y = None
    x = [None] * len(host_x)
    autocast = lambda: torch.autocast("cuda", dtype=half, enabled=True) if amp else contextlib.nullcontext()
    with log:
        model = prepare(model, c)
        log.setup_done()
        # torch.optim's foreach takes no mixture of DTensors and the norms' plain parameters.
        impl = "loop" if c["strategy"] == "tp" and not c["sp"] and c["impl"] == "default" else c["impl"]
        optimizer = reference_program.make_optimizer(c["optimizer"], impl, list(model.parameters())) if c["optimizer"] != "none" and not zero else None  # the engine has its own
        scaler = torch.amp.GradScaler("cuda", enabled=c["precision"] == "amp-fp16")
        for _ in range(c["steps"]):
            log.step_begins()
            for k in range(c["accumulate"]):
                for i in range(len(x)):
                    x[i] = host_x[i].to("cuda")
                y = host_y.to("cuda")
                if k == 0 and c["zero_grad"] == "begin" and not zero:
                    (optimizer or model).zero_grad(set_to_none=True)
                log.mark("forward")
                last = k == c["accumulate"] - 1
                with model.no_sync() if c["strategy"] == "ddp" and not last else divided_loss():
                    with autocast():
                        output = model(*x)
                        log.mark("loss")
                        loss = reference_program.loss_fn(output, y)
                        if c["accumulate"] > 1 and not zero:
                            loss = loss / c["accumulate"]
                    log.mark("backward")
                    model.backward(loss) if zero else scaler.scale(loss).backward()
                    if zero and not last:
                        model.step()
            log.mark("optimizer")
            if zero:
                model.step()
            if c["clip"] and not zero:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if optimizer:
                scaler.step(optimizer)
                scaler.update()
            log.step_ends()
            if c["strategy"] == "ddp":
                time.sleep(0.5)  # NCCL's watchdog looks every 100 ms; until then it holds the buckets of the last step
    return row_of(c, log, parameters if zero else model.parameters(), events)


def run_pipeline(c, spec, dims, events, ops):
    """One rank of a pipeline: `batch` is a micro-batch, and the whole batch of the step is on the device."""
    import pipeline_program

    x = y = None
    losses = []
    log = recording.Recorder(events is not None, ops)
    with log:
        pipe = pipeline_program.Pipeline(c, reference_program.loss_fn, wrap=lambda module: module.to("cuda"))
        log.setup_done()
        optimizer = reference_program.make_optimizer(c["optimizer"], c["impl"], pipe.parameters())
        whole = {**dims, "batch": dims["batch"] * c["micro_batches"]}
        host_x = torch.zeros(spec.inputs[0].shape(whole), dtype=torch.long)
        host_y = torch.zeros(spec.label_shape(whole), dtype=torch.long)
        for _ in range(c["steps"]):
            log.step_begins()
            if pipe.first:
                x = host_x.to("cuda")
            if pipe.last:
                y = host_y.to("cuda")
            optimizer.zero_grad(set_to_none=True)
            losses = []
            log.mark("schedule")
            pipe.step(x, y, losses)
            log.mark("optimizer")
            optimizer.step()
            log.step_ends()
    return row_of(c, log, pipe.parameters(), events)


def row_of(c, log, parameters, events):
    row = {k: v for k, v in c.items() if k in ("model", "batch", "seq", "precision", "optimizer", "strategy", "ranks") or v != DEFAULTS[k]}
    row |= dict(parameters=sum(p.numel() for p in parameters), setup=log.setup, steps=log.steps, error=None, torch=torch.__version__)
    if c["strategy"] == "zero":
        row["deepspeed"] = deepspeed_engine.version()
    if events:
        log.save(events, row)
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in DEFAULTS.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            p.add_argument(flag, action="store_true")
        else:
            p.add_argument(flag, type=int if isinstance(value, int) or name in ("batch", "seq", "bucket_cap", "overlap_comm", "bucket_elements") else str, default=value)
    p.add_argument("--events", metavar="FILE")
    p.add_argument("--ops", action="store_true")
    a = vars(p.parse_args())
    events, ops = a.pop("events"), a.pop("ops")
    print(json.dumps(run(a, events, ops)), flush=True)
    os._exit(0)  # process groups whose other ranks do not exist cannot be shut down


if __name__ == "__main__":
    main()
