"""The tensors that were alive when a device held most, from PyTorch's own record of allocations and frees."""
from . import autograd, frames


def _place(event):
    """(frames, the note of a backward pass)"""
    return tuple((f["filename"], f["line"], f["name"]) for f in event.get("frames") or ()), event.get("user_metadata") or ""


NOWHERE = ((), "")


def _of_optimizer(place):
    return any(frames.is_torch(f[0], "optim") for f in place[0])


def describe(place):
    """{"script", "code", "text", "op"}, as frames.describe(); of a backward pass the lines of the forward pass and the node."""
    found = frames.describe(place[0])
    if found:
        return found
    node = autograd.node(place[1])
    if node is not None:
        return {**{k: v for k, v in frames.describe(node[1]).items() if k != "op"}, "op": f"backward: {node[0]}"}
    # After the first steps nobody looks any more; before, what has no frames belongs to no backward pass.
    return {"op": "backward pass"} if autograd.missed() else {}


class Block:
    __slots__ = ("size", "place", "address", "stays")

    def __init__(self, size, place, address, stays):
        self.size, self.place, self.address, self.stays = size, place, address, stays


class Follower:
    """Looks at the record of one device from time to time, and keeps what was alive at the highest point so far."""

    def __init__(self, device):
        self.device = device
        self.highest = -1
        self.alive = []
        self.at = NOWHERE  # the allocation that made the peak
        self.known = {}  # address -> (place, time), of what is alive since before the record's beginning
        self.complete = True

    def look(self, snapshot, most_entries, aborted_since=None):
        """Reads the events since the last look (the caller clears the record afterwards). aborted_since: the program cannot go on, so that what the step
        had made since that time (µs) was not freed, but would have been."""
        events = [e for e in snapshot["device_traces"][self.device] if e["action"] in ("alloc", "free_requested")]
        if len(snapshot["device_traces"][self.device]) >= most_entries:
            self.complete = False
        now = {}
        for segment in snapshot["segments"]:
            if segment["device"] != self.device:
                continue
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    place, born = self.known.get(block["address"], (_place(block), 0))
                    now[block["address"]] = (block["requested_size"], place, born)
        for e in events:
            if e["action"] == "alloc" and e["addr"] in now:
                now[e["addr"]] = (now[e["addr"]][0], _place(e), e.get("time_us", 0))
        # Backwards from now to what was alive when the record began.
        before = dict(now)
        for e in reversed(events):
            if e["action"] == "alloc":
                before.pop(e["addr"], None)
            else:
                place, born = self.known.get(e["addr"], (NOWHERE, 0))
                before[e["addr"]] = (e["size"], place, born)
        total = sum(size for size, _, _ in before.values())
        best, best_at = total, -1
        for i, e in enumerate(events):
            total += e["size"] if e["action"] == "alloc" else -e["size"]
            if total > best:
                best, best_at = total, i
        if best > self.highest:
            self.highest = best
            alive = dict(before)
            for e in events[: best_at + 1]:
                if e["action"] == "alloc":
                    alive[e["addr"]] = (e["size"], _place(e), e.get("time_us", 0))
                else:
                    alive.pop(e["addr"], None)
            freed = {e["addr"] for e in events[best_at + 1 :] if e["action"] == "free_requested"}
            self.alive = [Block(size, place, a, a not in freed and not (aborted_since is not None and born >= aborted_since)) for a, (size, place, born) in alive.items()]
            self.at = _place(events[best_at]) if best_at >= 0 else NOWHERE
        self.known = {a: (place, born) for a, (_, place, born) in now.items()}

    def _kind(self, block, names):
        """(kind, name, owner)"""
        if block.address in names and (block.stays or names[block.address][0] in ("parameters", "buffers")):
            return names[block.address]
        return ("optimizer" if _of_optimizer(block.place) else "step" if not block.stays else "other", None, "")

    def table(self, names, rows=200):
        """[{bytes, count, kind, …}] largest first; equal places share a row. names: address -> (kind, name, owner)."""
        groups = {}
        for block in self.alive:
            kind, name, owner = self._kind(block, names)
            where = describe(block.place)
            key = (kind, owner, tuple(sorted(where.items())))
            row = groups.setdefault(key, dict(bytes=0, count=0, largest=0, kind=kind, names=[], **({"owner": owner} if owner else {}), **where))
            row["bytes"] += block.size
            row["count"] += 1
            row["largest"] = max(row["largest"], block.size)
            if name and len(row["names"]) < 3:
                row["names"].append(name)
        return sorted(groups.values(), key=lambda r: -r["bytes"])[:rows]

    def by_kind(self, names):
        found = {}
        for block in self.alive:
            kind = self._kind(block, names)[0]
            found[kind] = found.get(kind, 0) + block.size
        return found

    def checkpoints(self):
        """Whether anything at the peak was made under torch.utils.checkpoint."""
        def under(stack):
            return any(f[0].endswith("torch/utils/checkpoint.py") for f in stack)

        return any(under(b.place[0]) or under((autograd.node(b.place[1]) or ("", ()))[1]) for b in self.alive)


def phase_of(place):
    if not place[0]:
        return "backward" if autograd.node(place[1]) or autograd.missed() else ""
    if _of_optimizer(place) or any("clip_grad" in f[0] for f in place[0]):
        return "optimizer"
    return "backward" if autograd.node(place[1]) else "forward"
