"""Process groups of which only one rank exists.

The ranks of a job are independent here: collectives of NCCL are answered by the emulated GPU and move no data, so nobody
has to wait for anybody. What would wait is the rendezvous, and what would fail are exchanges of Python objects."""
import os
import time

_stores = []


def _with_fake_host_backend(backend):
    """NCCL stays, PyTorch's own "fake" backend stands in for those that need peers."""
    if backend is None:
        return "cpu:fake,cuda:nccl"
    text = str(backend).lower()
    if ":" not in text:
        return "cpu:fake,cuda:nccl" if text == "nccl" else "fake" if text in ("gloo", "mpi", "ucc") else backend
    return ",".join(part if part.endswith(":nccl") else part.split(":")[0] + ":fake" for part in text.split(","))


def _lonely_store(c10d):
    """What other ranks would have written is there already: NCCL's id, a counter that has reached its number."""
    from torch._C import _distributed_c10d as native

    inner = native.HashStore()

    class Store(c10d.Store):
        def set(self, key, value):
            inner.set(key, value)

        def get(self, key):
            if not inner.check([key]):
                inner.set(key, b"\x07" * 128)
            return inner.get(key)

        def add(self, key, amount):
            return inner.add(key, amount)

        def check(self, keys):
            return True

        def wait(self, keys, timeout=None):
            return None

        def delete_key(self, key):
            return inner.delete_key(key)

        def num_keys(self):
            return inner.num_keys()

        def set_timeout(self, timeout):
            inner.set_timeout(timeout)

        def compare_set(self, key, expected, desired):
            return inner.compare_set(key, expected, desired)

        def clone(self):
            return self

    _stores.append(Store())  # C++ alone would not keep the Python object alive
    return _stores[-1]


def after_c10d(c10d):
    """Runs right after torch.distributed.distributed_c10d: torch.distributed takes the names from there."""
    import functools

    started = c10d.init_process_group
    subgroup = c10d.new_group

    @functools.wraps(started)
    def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, *rest, **more):
        import torch.testing._internal.distributed.fake_pg  # noqa: F401  (registers the backend "fake")

        # The monitor of NCCL's watchdog polls the store for peers in trouble.
        os.environ["TORCH_NCCL_ENABLE_MONITORING"] = os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"
        world = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1"))
        number = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
        if timeout is not None:
            more["timeout"] = timeout
        started(_with_fake_host_backend(backend), None, world_size=world, rank=number, store=_lonely_store(c10d), *rest, **more)
        from . import record

        record.joined(number, world)

    @functools.wraps(subgroup)
    def new_group(ranks=None, timeout=None, backend=None, *rest, **more):
        return subgroup(ranks, timeout, _with_fake_host_backend(backend) if backend is not None else None, *rest, **more)

    c10d.init_process_group = init_process_group
    c10d.new_group = new_group

    # Objects travel as bytes of tensors, and those come back as zeros: every rank answers with this one's object.
    def all_gather_object(object_list, obj, group=None):
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None, **_):
        return None

    def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None):
        if scatter_object_input_list:
            scatter_object_output_list[0] = scatter_object_input_list[c10d.get_rank() % len(scatter_object_input_list)]

    for f in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list):
        setattr(c10d, f.__name__, functools.wraps(getattr(c10d, f.__name__))(f))


def after_distributed(dist):
    # DistributedDataParallel compares the shapes of its parameters over all ranks, through the device.
    dist._verify_params_across_processes = lambda *_: None


def settle():
    """Between two steps. NCCL's watchdog holds the buffers of a collective until it has seen it finish, for which it looks
    every 0.1 s; a step is much shorter than that here, and would find buffers still taken that a device has long freed."""
    time.sleep(0.25)
