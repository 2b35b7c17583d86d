"""Runs op programs in PyTorch and prints one JSON line each: events, marks, layouts, or the error.

    LD_PRELOAD=… python torch_events.py PROGRAMS.json

Events are what the caching allocator reports: ["+", bytes, id] and ["-", bytes, id]; what lives before the first mark
are the inputs. Before the programs, one of each library's lasting allocations is made (cuBLAS workspaces of both
threads, cuDNN's dropout state), as trace_program does.
"""
import gc
import json
import sys

import torch


def history():
    return torch.cuda.memory._snapshot()["device_traces"][0]


def argument(j, names):
    if isinstance(j, list):
        return [argument(x, names) for x in j]
    if isinstance(j, dict):
        return names[j["v"]] if "v" in j else getattr(torch, j["dtype"])
    return j


def mentions(j, name):
    if isinstance(j, dict):
        return j.get("v") == name
    return isinstance(j, list) and any(mentions(x, name) for x in j)


def operator(name):
    base, _, overload = name.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, base)
    if overload:
        return getattr(packet, overload)
    return packet.default if "default" in packet.overloads() else packet


def warm_up():
    x = torch.empty(64, 64, device="cuda", requires_grad=True)
    (torch.addmm(torch.empty(64, device="cuda"), x, x) @ x).sum().backward()
    lstm = torch.nn.LSTM(8, 8, 2, dropout=0.1).cuda()
    lstm(torch.zeros(2, 2, 8).cuda())


def run(p):
    names, marks, layouts = {}, [], []
    for v in p["values"]:
        place = "cpu" if v.get("host") else "cuda"
        kind = getattr(torch, v["dtype"])
        t = torch.empty_strided(v["sizes"], v["strides"], dtype=kind, device=place) if "strides" in v else torch.empty(v["sizes"], dtype=kind, device=place)
        if v.get("host"):
            t.zero_()
        names[v["name"]] = t.requires_grad_(v.get("requires_grad", False))
    t = None
    inputs = set(names)
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.memory._record_memory_history(max_entries=1000000, stacks="python", context=None)
    mark = lambda text: marks.append([text, len(history())])
    context = torch.autocast("cuda", dtype=getattr(torch, p["autocast"])) if "autocast" in p else torch.enable_grad()
    roots = p.get("backward", [])
    try:
        with context:
            for i, call in enumerate(p["calls"]):
                mark(call["op"])
                result = operator(call["op"])(*argument(call["args"], names), **{k: argument(v, names) for k, v in call.get("kwargs", {}).items()})
                several = isinstance(result, (tuple, list))
                for name, t in zip(call["outputs"], list(result) if several else [result]):
                    names[name] = t
                    if isinstance(t, torch.Tensor):
                        layouts.append([name, list(t.shape), list(t.stride()), str(t.dtype)[6:]])
                result = t = None
                for name in list(names):
                    rest = p["calls"][i + 1:]
                    used = any(mentions(c["args"], name) or any(mentions(v, name) for v in c.get("kwargs", {}).values()) for c in rest)
                    if name not in inputs and not used and name not in roots:
                        del names[name]
        for root in roots:
            mark("backward")
            gradient = torch.empty_like(names[root])
            names[root].backward(gradient)
            del gradient
            mark("backward end")
            del names[root]
        torch.cuda.synchronize()
        mark("end")
    except Exception as e:
        return {"name": p["name"], "error": (str(e).splitlines() or [repr(e)])[0]}
    finally:
        trace = history()
        names.clear()
    events, ids, positions = [], {}, []
    for e in trace:
        positions.append(len(events))
        if e["action"] == "alloc":
            ids[e["addr"]] = sum(1 for x in events if x[0] == "+")
            events.append(["+", e["size"], ids[e["addr"]]])
        elif e["action"] == "free_completed":
            events.append(["-", e["size"], ids.pop(e["addr"], -1)])
    positions.append(len(events))
    return {"name": p["name"], "events": events, "marks": [[m, positions[k]] for m, k in marks], "layouts": layouts}


def main():
    with open(sys.argv[1]) as f:
        programs = json.load(f)
    gc.disable()
    warm_up()
    for p in programs:
        print(json.dumps(run(p)), flush=True)


if __name__ == "__main__":
    main()
