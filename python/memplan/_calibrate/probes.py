"""Questions to one card that PyTorch's counters do not answer: what the driver holds beside PyTorch's segments, and what libraries ask
PyTorch for. tools/measure.py asks them too. Each runs in a process that has not touched CUDA before."""
import contextlib
import warnings

import torch


class Watch:
    """Bytes of the driver beside PyTorch's segments, in the order of what happened: context, libraries, NCCL."""

    def __init__(self, nvml, before):
        self.nvml, self.before, self.rows = nvml, before, []
        self.lacking = []  # what could not be called, and why

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
    try:
        torch.cuda.memory._record_memory_history("all", context=None, clear_history=True)
    except TypeError:  # before 2.7; nothing was recorded before either
        torch.cuda.memory._record_memory_history("all", context=None)
    yield
    torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    short = {"alloc": "alloc", "free_requested": "free"}
    found += [[short[e["action"]], e["size"]] for e in trace if e["action"] in short]
    torch.cuda.memory._record_memory_history(None)


def attention(q):
    return torch.nn.functional.scaled_dot_product_attention(q, q, q)


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
    torch.nn.Linear(64, 64, device="cuda")(x).sum().backward()
    watch.note("a backward pass")
    warnings.simplefilter("ignore")  # of features that are in beta
    for what, call in (
        ("cuDNN convolution", lambda: torch.nn.functional.conv2d(torch.zeros(1, 8, 16, 16, device="cuda"), torch.zeros(8, 8, 3, 3, device="cuda"))),
        ("attention", lambda: attention(torch.zeros(1, 8, 128, 64, device="cuda", dtype=torch.float16))),
        ("cuDNN LSTM", lambda: torch.nn.LSTM(64, 64, device="cuda")(x[None])),
        ("cuFFT", lambda: torch.fft.fft(x)),
        ("cuSOLVER", lambda: torch.linalg.qr(x)),
        ("cuSPARSE", lambda: torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.long), torch.zeros(1), (64, 64)).cuda().to_sparse_csr() @ x),
    ):
        try:
            call()
        except RuntimeError as error:  # a build of PyTorch, or a card, that lacks one
            watch.lacking.append(f"{what}: {str(error).splitlines()[0][:200]}")
            continue
        watch.note(what)
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


def join(backend, world, rank=0):
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
    dist = join("nccl", 1)
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
