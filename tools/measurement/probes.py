"""Questions to one device that PyTorch's counters of a whole run do not answer. Each runs in a process of its own."""
import contextlib

import torch


class Watch:
    """Bytes of the driver beside PyTorch's segments, in the order of what happened: context, libraries, NCCL."""

    def __init__(self, nvml, before):
        self.nvml, self.before, self.rows = nvml, before, []

    def note(self, what):
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        row = dict(after=what, reserved_bytes=torch.cuda.memory_reserved(), device_used_bytes=total - free)
        if self.nvml:
            row |= dict(nvml_used_bytes=self.nvml.used(), nvml_process_bytes=self.nvml.used_by_this_process())
            row["outside_bytes"] = self.nvml.used() - self.before - row["reserved_bytes"]
        else:
            row["outside_bytes"] = row["device_used_bytes"] - row["reserved_bytes"]
        self.rows.append(row)


@contextlib.contextmanager
def allocations(found):
    """Puts what PyTorch's allocator is asked for inside into `found`: ["alloc" or "free", bytes]."""
    torch.cuda.memory._record_memory_history("all", context=None, clear_history=True)
    yield
    torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    short = {"alloc": "alloc", "free_requested": "free"}
    found += [[short[e["action"]], e["size"]] for e in trace if e["action"] in short]
    torch.cuda.memory._record_memory_history(None)


def libraries(watch):
    """How the process grows with the first use of each library."""
    torch.cuda.init()
    torch.empty(1, device="cuda")
    watch.note("context and first allocation")
    x = torch.zeros(64, 64, device="cuda")
    (x + x).sum()
    watch.note("first kernels")
    x @ x
    watch.note("cuBLAS")
    torch.nn.functional.linear(x, x, x[0])
    watch.note("cuBLASLt")
    torch.nn.functional.conv2d(torch.zeros(1, 8, 16, 16, device="cuda"), torch.zeros(8, 8, 3, 3, device="cuda"))
    watch.note("cuDNN convolution")
    q = torch.zeros(1, 8, 128, 64, device="cuda", dtype=torch.bfloat16)
    torch.nn.functional.scaled_dot_product_attention(q, q, q)
    watch.note("attention, bf16")
    torch.nn.LSTM(64, 64, device="cuda")(x[None])
    watch.note("cuDNN LSTM")
    torch.fft.fft(x)
    watch.note("cuFFT")
    torch.linalg.qr(x)
    watch.note("cuSOLVER")
    torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.long), torch.zeros(1), (64, 64)).cuda().to_sparse_csr() @ x
    watch.note("cuSPARSE")
    torch.nn.Linear(64, 64, device="cuda")(x).sum().backward()
    watch.note("a backward pass")
    return dict(growth=watch.rows)


def cublas(watch):
    """Workspaces that PyTorch takes for cuBLAS and cuBLASLt: forward, and in the backward pass's thread."""
    rows = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        x = torch.zeros(256, 256, device="cuda", dtype=dtype, requires_grad=True)
        for what, call in (("mm", lambda: x @ x), ("linear", lambda: torch.nn.functional.linear(x, x, x[0])), ("backward", lambda: (x @ x).sum().backward())):
            found = []
            with allocations(found):
                result = call()
            rows[f"{what} {name}"] = found
            del result
    return dict(allocations=rows)


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


def _join(backend, world, rank=0):
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    store = FakeStore() if backend == "fake" else dist.HashStore()
    dist.init_process_group(backend, store=store, world_size=world, rank=rank)
    return dist


def nccl(watch):
    """A communicator of one rank: what NCCL and its first collectives take outside of PyTorch."""
    torch.cuda.set_device(0)
    x = torch.zeros(1 << 20, device="cuda")
    watch.note("before NCCL")
    dist = _join("nccl", 1)
    dist.all_reduce(x)
    watch.note("communicator and first all_reduce")
    out = torch.zeros(1 << 20, device="cuda")
    dist.all_gather_into_tensor(out, x)
    dist.reduce_scatter_tensor(out, x)
    watch.note("all_gather and reduce_scatter")
    group = dist.new_group([0])
    dist.all_reduce(x, group=group)
    watch.note("a second communicator")
    dist.destroy_process_group()
    return dict(growth=watch.rows)


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

    dist = _join("fake", world)
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

    dist = _join("nccl", 1)
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
