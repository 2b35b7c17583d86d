#!/usr/bin/env python3
"""What PyTorch's compiler keeps for the backward pass, without code generation: python saved_values.py FOLDER [--sealed] [--joint] [--budgets] [NAME …], on the emulated device

    LD_PRELOAD=…/libemulated_gpu.so EMULATED_GPU=h100 PYTHONPATH=python python tests/recording/saved_values.py FOLDER

Writes FOLDER/NAME.pt2 and FOLDER/NAME.json: the values that the partitioner chose, with their sizes. Dynamo and AOTAutograd run as they are, Inductor's passes over the joint graph
too; what follows is left out. --joint adds the joint graph, --budgets the values that are kept under each activation_memory_budget of BUDGETS.
"""
import contextlib
import json
import os
import sys
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "accuracy"), HERE]  # "models" is the zoo
import torch
import torch._functorch.partitioners as partitioners

import models
import saved_programs

BUDGETS = (0.9, 0.7, 0.5, 0.3, 0.1, 0.0)
DTYPES = {"amp-bf16": torch.bfloat16, "bf16": torch.bfloat16}


class Stop(BaseException):
    pass


def described(node):
    v = node.meta.get("val")
    if isinstance(v, torch.Tensor):
        return [str(v.dtype).replace("torch.", ""), list(v.shape), list(v.stride())]
    return [described_value(x) for x in v] if isinstance(v, (list, tuple)) else str(v)


def described_value(x):
    return [str(x.dtype).replace("torch.", ""), list(x.shape)] if isinstance(x, torch.Tensor) else str(x)


def own_values(saved):
    return [n for n in saved if n.op != "placeholder"]


def size(nodes):
    return sum(n.meta["val"].numel() * n.meta["val"].itemsize for n in nodes)


def watch_budgets(found):
    choose = partitioners.choose_saved_values_set

    def chosen(graph, info, memory_budget=1):
        found["budgets"] = {}
        for b in BUDGETS:
            own = own_values(choose(graph, info, memory_budget=b))
            found["budgets"][str(b)] = dict(saved=[[n.name, str(n.target), *described(n)] for n in own], bytes=size(own))
        return choose(graph, info, memory_budget=memory_budget)

    partitioners.choose_saved_values_set = chosen


def watch(found, joint):
    extract = partitioners._extract_fwd_bwd_modules

    def extracted(module, saved, **rest):
        result = extract(module, saved, **rest)
        root = lambda n: n.meta["val"].untyped_storage()._cdata  # noqa: E731
        own = own_values(saved)
        storages = {}
        for n in own:
            storages[root(n)] = max(storages.get(root(n), 0), n.meta["val"].untyped_storage().nbytes())
        found.update(saved=[[n.name, str(n.target), *described(n)] for n in own], bytes=size(own),
                     storage_bytes=sum(storages.values()), primals=[n.name for n in saved if n.op == "placeholder"])
        if joint:
            found["joint"] = [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs), described(n), [u.name for u in n.users]] for n in module.graph.nodes]
        raise Stop

    partitioners._extract_fwd_bwd_modules = extracted


def truth(make, precision, joint, budgets):
    with models.values_do_not_matter():
        module, args, kwargs = make()
    module.train()
    if precision == "bf16":
        module.to(torch.bfloat16)
    module.to("cuda")
    move = lambda t: t.to("cuda", torch.bfloat16 if precision == "bf16" and t.is_floating_point() else t.dtype)  # noqa: E731
    found = {}
    watch(found, joint)
    if budgets:
        watch_budgets(found)
    torch._dynamo.reset()
    began = time.process_time()
    amp = torch.autocast("cuda", dtype=torch.bfloat16) if precision.startswith("amp") else contextlib.nullcontext()
    try:
        with amp:
            torch.compile(module, fullgraph=True)(*map(move, args), **{k: move(v) for k, v in kwargs.items()})
    except Stop:
        pass
    return dict(found, precision=precision, batch=next(iter([*args, *kwargs.values()])).shape[0], seconds=round(time.process_time() - began, 1))


def export(make, path):
    import memplan

    with models.values_do_not_matter():
        module, args, kwargs = make()
    module.train()
    memplan.export(module, args, kwargs, path, recorded=False)


def main():
    folder, names = sys.argv[1], [a for a in sys.argv[2:] if not a.startswith("--")]
    programs = saved_programs.SEALED if "--sealed" in sys.argv else saved_programs.OPEN
    os.makedirs(folder, exist_ok=True)
    for name in names or programs:
        make, precision = programs[name]
        path = os.path.join(folder, name)
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        warnings.simplefilter("ignore")
        try:
            if not os.path.exists(path + ".pt2"):
                export(make, path + ".pt2")
            row = truth(make, precision, "--joint" in sys.argv, "--budgets" in sys.argv)
        except Exception as error:  # noqa: BLE001 (a program that cannot be compiled is a row, too)
            row = dict(error=f"{type(error).__name__}: {error}"[:400])
        with open(path + ".json", "w") as f:
            json.dump(row, f)
        print(name, row.get("error") or f"{len(row.get('saved', []))} values, {row.get('bytes')} bytes, {row['seconds']} s", flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()
