"""What lies at which address: parameters, their gradients, buffers, and the state of optimizers."""
import gc


def _local(tensor):
    """The part of a DTensor that lies on this rank."""
    return getattr(tensor, "_local_tensor", tensor)


def _address(tensor):
    tensor = _local(tensor)
    if tensor.device.type != "cuda":
        return None
    return tensor.untyped_storage().data_ptr()


def of_addresses(torch, optimizers):
    """{address: (kind, name)} of what is alive now."""
    found, named = {}, {}

    def add(tensor, kind, name):
        try:
            address = _address(tensor)
        except Exception:  # subclasses without a storage
            return
        if address:
            found.setdefault(address, (kind, name))

    modules = [m for m in gc.get_objects() if issubclass(type(m), torch.nn.Module)]  # isinstance would ask lazy objects for their class
    inner = {id(c) for m in modules for c in m._modules.values() if c is not None}
    for root in modules:
        if id(root) in inner:
            continue
        for name, p in root.named_parameters():
            named[id(p)] = name
            add(p, "parameters", name)
            if p.grad is not None:
                add(p.grad, "gradients", name)
        for name, b in root.named_buffers():
            add(b, "buffers", name)
    for optimizer in list(optimizers):
        for p, values in optimizer.state.items():
            name = named.get(id(p), "")
            for key, value in values.items() if isinstance(values, dict) else ():
                if isinstance(value, torch.Tensor):
                    add(value, "optimizer", f"{key} of {name}" if name else key)
    return found
