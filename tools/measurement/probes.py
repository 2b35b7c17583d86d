"""Questions to one device that PyTorch's counters of a whole run do not answer. Each runs in a process of its own."""
import torch
from memplan._calibrate.probes import allocations, cublas, join, libraries, nccl, Watch  # noqa: F401


def batch_norm(watch, shape, dtype, channels_last):
    x = torch.zeros(shape, device="cuda", dtype=getattr(torch, dtype))
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    x.requires_grad_()
    layer = (torch.nn.BatchNorm2d if len(shape) == 4 else torch.nn.BatchNorm1d)(shape[1], device="cuda", dtype=getattr(torch, dtype))
    forward, backward = [], []
    with allocations(forward):
        y = layer(x)
    g = torch.zeros_like(y)
    with allocations(backward):
        y.backward(g)
    return dict(forward=forward, backward=backward)


def convolution(watch, x, w, stride, padding, groups, dtype, channels_last):
    x, w = torch.zeros(x, device="cuda", dtype=getattr(torch, dtype)), torch.zeros(w, device="cuda", dtype=getattr(torch, dtype))
    if channels_last:
        x, w = x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)
    x.requires_grad_()
    w.requires_grad_()
    forward, backward = [], []
    with allocations(forward):
        y = torch.nn.functional.conv2d(x, w, stride=stride, padding=padding, groups=groups)
    g = torch.zeros_like(y)
    with allocations(backward):
        y.backward(g)
    return dict(forward=forward, backward=backward)


def recurrent(watch, kind, layers, hidden, length, batch, dtype):
    layer = getattr(torch.nn, kind)(hidden, hidden, num_layers=layers, device="cuda", dtype=getattr(torch, dtype))
    x = torch.zeros(length, batch, hidden, device="cuda", dtype=getattr(torch, dtype), requires_grad=True)
    forward, backward = [], []
    with allocations(forward):
        y, _ = layer(x)
    g = torch.zeros_like(y)
    with allocations(backward):
        y.backward(g)
    return dict(forward=forward, backward=backward)


def _counters():
    s = torch.cuda.memory_stats()
    return {c: s[f"{c}_bytes.all.peak"] for c in ("requested", "allocated", "reserved")}


def _train(step, steps=3):
    rows = []
    for _ in range(steps):
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        rows.append(_counters())
    return rows


def fsdp2(watch, world, layers, hidden, precision):
    """Rank 0 of a world whose other ranks do not exist (PyTorch's "fake" backend)."""
    import transformers
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist = join("fake", world)
    mesh = init_device_mesh("cuda", (world,))
    config = transformers.LlamaConfig(hidden_size=hidden, intermediate_size=hidden * 11 // 4, num_hidden_layers=layers, num_attention_heads=8, num_key_value_heads=8,
                                      vocab_size=32000, use_cache=False)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    settings = dict(mesh=mesh)
    if precision == "bf16":
        settings["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, **settings)
    fully_shard(model, **settings)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.zeros(2, 512, dtype=torch.long, device="cuda")

    def step():
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    steps = _train(step)
    dist.destroy_process_group()
    return dict(steps=steps)


def ddp(watch, model, as_view):
    """DistributedDataParallel over NCCL with one rank: its buckets are those of any world size."""
    import time

    import models

    dist = join("nccl", 1)
    # It compares shapes over ranks through the device; a rank alone agrees with itself, and the emulated GPU has no values.
    dist._verify_params_across_processes = lambda *_: None
    spec = models.REGISTRY[model]
    dims = dict(batch=8, seq=256)
    module = torch.nn.parallel.DistributedDataParallel(models.build(model, fill=False).cuda(), gradient_as_bucket_view=as_view)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    x = [torch.zeros(i.shape(dims), dtype=getattr(torch, i.dtype), device="cuda") for i in spec.inputs]
    y = torch.zeros(spec.label_shape(dims), dtype=torch.long, device="cuda")

    def step():
        out = module(*x)
        torch.nn.functional.cross_entropy(out.flatten(0, -2) if out.dim() == 3 else out, y.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.5)  # NCCL's watchdog lets go of finished buffers every 0.1 s

    steps = _train(step)
    dist.destroy_process_group()
    return dict(steps=steps)
