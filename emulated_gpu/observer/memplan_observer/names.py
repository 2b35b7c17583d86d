"""What lies at which address: parameters, their gradients, buffers, and the state of optimizers, each with the module that it belongs to."""
import gc


def _local(tensor):
    """The part of a DTensor that lies on this rank."""
    return getattr(tensor, "_local_tensor", tensor)


def _address(tensor):
    tensor = _local(tensor)
    if tensor.device.type != "cuda":
        return None
    return tensor.untyped_storage().data_ptr()


def _roots(torch):
    """Modules that are part of no other one."""
    modules = [m for m in gc.get_objects() if issubclass(type(m), torch.nn.Module)]  # isinstance would ask lazy objects for their class
    inner = {id(c) for m in modules for c in m._modules.values() if c is not None}
    return [m for m in modules if id(m) not in inner]


def _safe_address(tensor):
    try:
        return _address(tensor)
    except Exception:  # subclasses without a storage
        return None


def _class(root):
    """"DistributedDataParallel(LlamaForCausalLM)": a wrapper says what it wraps."""
    inner = root._modules.get("module")
    if "_orig_mod" in root._modules:  # torch.compile's own wrapper says nothing
        return _class(root._modules["_orig_mod"])
    return f"{type(root).__name__}({type(inner).__name__})" if inner is not None and len(root._modules) == 1 else type(root).__name__


def _owners(roots, trained):
    """{id(root): "LlamaForCausalLM #2, no optimizer has it"}; only where several modules have parameters on the device."""
    rows = []
    for root in roots:
        addresses = [a for a in map(_safe_address, root.parameters()) if a]
        if addresses:
            rows.append((min(addresses), root))
    if len(rows) < 2:
        return {}
    rows.sort(key=lambda r: r[0])  # in the order in which they came to the device
    count, found = {}, {}
    kinds = [_class(r) for _, r in rows]
    several = {c for c in kinds if kinds.count(c) > 1}
    for _, root in rows:
        kind = _class(root)
        count[kind] = count.get(kind, 0) + 1
        label = f"{kind} #{count[kind]}" if kind in several else kind
        if trained:
            label += ", trained" if any(id(p) in trained for p in root.parameters()) else ", not trained"
        found[id(root)] = label
    return found


def of_addresses(torch, optimizers):
    """{address: (kind, name, owner)} of what is alive now."""
    found, named = {}, {}

    def add(tensor, kind, name, owner=""):
        address = _safe_address(tensor)
        if address:
            found.setdefault(address, (kind, name, owner))

    trained = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
    roots = _roots(torch)
    owners = _owners(roots, trained)
    for root in roots:
        owner = owners.get(id(root), "")
        for name, p in root.named_parameters():
            name = name.replace("_orig_mod.", "")
            named[id(p)] = name
            add(p, "parameters", name, owner)
            if p.grad is not None:
                add(p.grad, "gradients", name, owner)
        for name, b in root.named_buffers():
            add(b, "buffers", name.replace("_orig_mod.", ""), owner)
    for optimizer in list(optimizers):
        for p, values in optimizer.state.items():
            name = named.get(id(p), "")
            for key, value in values.items() if isinstance(values, dict) else ():
                if isinstance(value, torch.Tensor):
                    add(value, "optimizer", f"{key} of {name}" if name else key)
    return found


def live_optimizers(torch):
    """Also those that have not stepped yet."""
    return [o for o in gc.get_objects() if issubclass(type(o), torch.optim.Optimizer)]


def untrained(torch):
    """Bytes of the parameters that no optimizer has, of modules that no optimizer has any of; 0 where there are no optimizers."""
    optimizers = live_optimizers(torch)
    trained = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
    if not trained:
        return 0
    idle = [r for r in _roots(torch) if not any(id(p) in trained for p in r.parameters())]
    seen = {a: _local(p).untyped_storage().nbytes() for r in idle for p in r.parameters() if (a := _safe_address(p))}
    return sum(seen.values())
