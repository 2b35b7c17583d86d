"""A module without its weights: pickled with sizes in the place of tensors, so that another process can build it again in address space."""
from __future__ import annotations

import mmap
import pickle
from typing import Any, BinaryIO, Dict, List

try:  # takes classes of a notebook and local functions along
    from cloudpickle import CloudPickler as _Pickler
except ImportError:
    _Pickler = pickle.Pickler  # type: ignore[misc, assignment]

RESERVED = 1 << 20  # bytes: larger storages are address space alone
KEPT = 1 << 16  # bytes: contents of small tensors that are no weights go along, since Python code may look at them on the CPU


class _Writer(_Pickler):  # type: ignore[misc, valid-type]
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, protocol=4)
        self.alive: List[Any] = []  # ids of tensors are only good while they live

    def persistent_id(self, obj: Any) -> Any:
        import torch

        if isinstance(obj, torch.Tensor):
            self.alive.append(obj)
            return _describe(obj, torch)
        if isinstance(obj, (torch.UntypedStorage, torch.storage.TypedStorage)):
            raise pickle.PicklingError("a storage that belongs to no tensor")
        return None


def _describe(tensor: Any, torch: Any) -> Dict[str, Any]:
    from torch._subclasses.fake_tensor import FakeTensor

    parameter = isinstance(tensor, torch.nn.Parameter)
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and not isinstance(tensor, FakeTensor) and not parameter:
        raise pickle.PicklingError(f"a tensor of the class {type(tensor).__module__}.{type(tensor).__qualname__}")
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        raise pickle.PicklingError("a lazy parameter, which has no size before the module has run once")
    if tensor.layout is not torch.strided:
        raise pickle.PicklingError(f"a tensor of the layout {tensor.layout}")
    hollow = tensor.device.type == "meta" or isinstance(tensor, FakeTensor)
    kept = None
    if not parameter and not hollow and 0 < tensor.numel() * tensor.element_size() <= KEPT:
        kept = bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    # Views of one storage stay views of one storage.
    storage = tensor.untyped_storage()
    return dict(id=id(tensor), storage=storage._cdata, bytes=storage.nbytes(), offset=tensor.storage_offset(), size=tuple(tensor.shape), stride=tensor.stride(),
                dtype=tensor.dtype, requires_grad=tensor.requires_grad and (parameter or tensor.is_leaf), parameter=parameter, kept=kept)


def _address_space(size: int, torch: Any) -> Any:
    """A storage that nobody touches. Of a large model the kernel must not count it as memory: else a process with more than the machine has cannot be copied."""
    if size < RESERVED:
        return torch.UntypedStorage(size)
    room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000))
    return torch.frombuffer(room, dtype=torch.uint8).untyped_storage()


class _Reader(pickle.Unpickler):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.tensors: Dict[int, Any] = {}
        self.storages: Dict[int, Any] = {}

    def persistent_load(self, d: Any) -> Any:
        import torch

        if d["id"] in self.tensors:
            return self.tensors[d["id"]]
        if d["storage"] not in self.storages:
            self.storages[d["storage"]] = _address_space(d["bytes"], torch)
        t = torch.empty(0, dtype=d["dtype"]).set_(self.storages[d["storage"]], d["offset"], d["size"], d["stride"])
        if d["kept"] is not None:
            t.copy_(torch.frombuffer(bytearray(d["kept"]), dtype=d["dtype"]).reshape(d["size"]))
        if d["parameter"]:
            t = torch.nn.Parameter(t, requires_grad=d["requires_grad"])
        elif d["requires_grad"]:
            t.requires_grad_()
        self.tensors[d["id"]] = t
        return t


def write(value: Any, file: BinaryIO) -> None:
    """Raises pickle.PicklingError, AttributeError or TypeError for what cannot go to another process."""
    _Writer(file).dump(value)


def read(file: BinaryIO) -> Any:
    return _Reader(file).load()
