"""The part of parallel_program.py that is DeepSpeed's: its engine around the model.

DeepSpeed 0.19.8 from PyPI (`DS_BUILD_OPS=0 pip install --no-deps deepspeed==0.19.8`, and what it imports: hjson, py-cpuinfo,
msgpack, einops, ninja). Its fused Adam and its Adam on the host are compiled when they are first used: CUDA_HOME must name a CUDA
13 toolkit. Nothing else in the project needs it.
"""
import os


def before_import():
    """DeepSpeed asks for a device while it is imported, and for the place of this process among the others."""
    os.environ.setdefault("DS_ACCELERATOR", "cuda")
    for name, value in dict(RANK="0", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT="29511").items():
        os.environ.setdefault(name, value)


def settings(c):
    """ds_config.json of a run: what a user writes, all else DeepSpeed's default."""
    zero = {"stage": c["zero"]}
    if c["offload"]:
        parts = c["offload"].split(",")
        for part, name in (("optimizer", "offload_optimizer"), ("parameters", "offload_param")):
            if part in parts:
                zero[name] = {"device": "cpu", "pin_memory": True}
    if c["overlap_comm"] is not None:
        zero["overlap_comm"] = bool(c["overlap_comm"])
    if c["bucket_elements"]:
        zero["reduce_bucket_size"] = c["bucket_elements"]
    config = {"train_micro_batch_size_per_gpu": c["batch"], "gradient_accumulation_steps": c["accumulate"], "zero_optimization": zero,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}}}
    if c["precision"] in ("bf16", "fp16"):
        config[c["precision"]] = {"enabled": True}
    if c["clip"]:
        config["gradient_clipping"] = 1.0
    return config


def heaviest_rank(model, c):
    """Stages 1 and 2 keep whole gradients of every parameter that a rank's partition touches: the rank that keeps most."""
    if c["zero"] == 3:
        return 0
    sizes = [p.numel() for p in model.parameters() if p.requires_grad]
    ranks = c["ranks"]
    partition = -(-sum(sizes) // (2 * ranks)) * 2
    kept = [0] * ranks
    begin = 0
    for size in sizes:
        for rank in range(begin // partition, -(-(begin + size) // partition)):
            kept[rank] += size
        begin += size
    return kept.index(max(kept))


def wrap(model, c):
    """deepspeed.initialize on a model in host memory."""
    import torch

    os.environ["WORLD_SIZE"] = str(c["ranks"])
    before_import()
    import deepspeed

    # Stage 3 formats its arguments for a log that nobody sees, and with them every weight on the device.
    torch.nn.Parameter.__repr__ = lambda self: f"Parameter{tuple(self.shape)}"
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings(c))[0]


def version():
    import deepspeed

    return deepspeed.__version__

