"""Measures one card and prints what it found, a line of JSON each: {"refused": why, "hint": what next}, {"measured": …}, {"nccl": …}.

The card is as it was afterwards: a process holds a few MiB for some seconds. Nothing is written here.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
from typing import Any, Dict, List, Optional

LEAST_FREE = 1 << 30
# Memory of others may move by a desktop's window, not by a job's start.
MOST_DRIFT = 16 << 20


class Refused(Exception):
    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.hint = hint


def _say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def _check(torch: Any, index: int) -> None:
    if not torch.version.cuda:
        raise Refused(f"PyTorch {torch.__version__} is built without CUDA", "install a build with CUDA, or set MEMPLAN_TORCH_PYTHON to a Python that has one")
    count = torch.cuda.device_count()
    if not count:
        raise Refused("PyTorch finds no GPU here", "see what nvidia-smi lists; CUDA_VISIBLE_DEVICES hides cards")
    if index >= count:
        raise Refused(f"there is no GPU {index}: PyTorch finds {count}", f"give --device 0{'' if count == 1 else f' to {count - 1}'}")


def _card_of(torch: Any, cards: List[Any], index: int) -> Optional[Any]:
    """The card of NVML that CUDA calls `index`; None where nothing says which."""
    wanted = f"GPU-{getattr(torch.cuda.get_device_properties(index), 'uuid', '')}"
    for card in cards:
        if card.uuid() == wanted:
            return card
    return cards[0] if len(cards) == 1 else None


def _others(rows: List[Dict[str, Any]]) -> List[int]:
    """What other processes held while each row was read; empty where the driver does not tell processes apart."""
    return [r["nvml_used_bytes"] - r["nvml_process_bytes"] for r in rows if r.get("nvml_process_bytes")]


def _growth(rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Bytes beside PyTorch's segments after each step: the process's own where the driver tells them, else what the card's use grew by."""
    others = _others(rows)
    if len(others) == len(rows) and max(others) - min(others) > MOST_DRIFT:
        raise Refused(f"the GPU is busy: others' memory moved by {(max(others) - min(others)) >> 20} MiB while it was measured", "try again when nothing else starts or ends on it")
    return [dict(after=r["after"], bytes=r["nvml_process_bytes"] - r["reserved_bytes"] if len(others) == len(rows) else r["outside_bytes"]) for r in rows]


def _context(growth: List[Dict[str, Any]]) -> Dict[str, int]:
    """Least: what any training step has loaded; usual: convolutions and attention too; most: every library."""
    every = [r["after"] for r in growth]

    def up_to(name: str) -> int:
        return max(r["bytes"] for r in growth[: every.index(name) + 1])

    step = up_to("a backward pass")
    return dict(least=step, usual=max([step, *(up_to(name) for name in ("cuDNN convolution", "attention") if name in every)]), most=max(r["bytes"] for r in growth))


def _workspaces(torch: Any, probes: Any, watch: Any) -> Dict[str, int]:
    """What a product of two 256 x 256 matrices asks for besides its result, the first time."""
    torch._C._cuda_clearCublasWorkspaces()
    rows = probes.cublas(watch)["allocations"]
    return {name: sum(size for what, size in rows[task] if what == "alloc") - 256 * 256 * 4 for name, task in (("cublas", "mm fp32"), ("cublaslt", "linear fp32"))}


def _allocator(torch: Any) -> Dict[str, int]:
    """Steps in which PyTorch's allocator takes memory when it holds none: a block, a segment for small ones, one for larger ones, and beyond that."""
    found, kept = {}, []
    for name, size in (("small_segment", 1), ("large_segment", (1 << 20) + 1), ("granularity", (20 << 20) + 1)):
        before = torch.cuda.memory_reserved()
        kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        found[name] = torch.cuda.memory_reserved() - before
        found.setdefault("block", torch.cuda.memory_allocated())
    found["granularity"] -= 20 << 20
    kept.clear()
    torch.cuda.empty_cache()
    return found


def _about(torch: Any, card: Optional[Any], index: int) -> Dict[str, Any]:
    p = torch.cuda.get_device_properties(index)
    cudnn = torch.backends.cudnn.version() or 0
    nccl = torch.cuda.nccl.version() if torch.distributed.is_available() and torch.distributed.is_nccl_available() else ()
    return dict(name=p.name, driver=card.driver() if card else "not told", capability=[p.major, p.minor], multiprocessors=p.multi_processor_count,
                threads_per_multiprocessor=getattr(p, "max_threads_per_multi_processor", 0), torch=torch.__version__, cuda=torch.version.cuda,
                cudnn=f"{cudnn // 10000}.{cudnn % 10000 // 100}.{cudnn % 100}" if cudnn else "none", nccl=".".join(map(str, nccl)) or "none",
                loading=os.environ.get("CUDA_MODULE_LOADING", "LAZY"), platform="wsl" if "microsoft" in platform.release().lower() else platform.system().lower(),
                mig=" MIG " in p.name)


def measure(index: int) -> None:
    import torch

    from . import nvml, probes

    _check(torch, index)
    cards = nvml.Nvml.every()
    used = {id(card): card.used() for card in cards}  # before this process makes its context
    torch.cuda.set_device(index)
    free, total = torch.cuda.mem_get_info(index)
    if free < LEAST_FREE:
        raise Refused(f"the GPU is busy: {free >> 20} MiB of {total >> 20} are free, and measuring takes up to {LEAST_FREE >> 20}", "try again when other processes have ended; nvidia-smi lists them")
    card = _card_of(torch, cards, index)
    watch = probes.Watch(card, used[id(card)] if card else total - free)
    allocator = _allocator(torch)
    probes.libraries(watch)
    rows = list(watch.rows)
    workspaces = _workspaces(torch, probes, watch)
    watch.note("the end")
    growth = _growth(watch.rows)[: len(rows)]  # the last row shows whether others moved meanwhile
    _say(measured=dict(_about(torch, card, index), total_bytes=total, smi_total_bytes=card.total() if card else 0, free_bytes=free, growth=growth, context=_context(growth), workspaces=workspaces,
                       allocator=allocator, lacking=watch.lacking))
    try:
        before = len(watch.rows)
        probes.nccl(watch)
        first, *more = _growth(watch.rows[before:])
        _say(nccl=[dict(after=r["after"], bytes=r["bytes"] - first["bytes"]) for r in more])
    except Exception as error:  # noqa: BLE001  # PyTorch without NCCL, no network: the rest holds
        _say(nccl_lacking=_first_line(error))


def run(words: List[str]) -> int:
    p = argparse.ArgumentParser(prog="memplan calibrate")
    p.add_argument("--device", type=int, default=0)
    index = p.parse_args(words).device
    try:
        measure(index)
    except Refused as error:
        _say(refused=str(error), hint=error.hint)
    except Exception as error:  # noqa: BLE001  # CUDA's own words: a card in exclusive use, a driver that is too old, memory that is gone
        busy = any(word in str(error) for word in ("busy or unavailable", "out of memory"))
        _say(refused=f"{'the GPU is busy' if busy else 'PyTorch cannot use the GPU'}: {_first_line(error)}",
             hint="try again when other processes have ended; nvidia-smi lists them" if busy else "try python3 -c 'import torch; torch.zeros(1).cuda()'")
    return 0
