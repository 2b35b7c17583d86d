"""The tensors that were alive when a device held most, from PyTorch's own record of allocations and frees."""
from . import frames


def _place(frame_list):
    return tuple((f["filename"], f["line"], f["name"]) for f in frame_list or ())


def _of_optimizer(place):
    return any(frames.is_torch(f[0], "optim") for f in place)


class Follower:
    """Looks at the record of one device from time to time, and keeps what was alive at the highest point so far."""

    def __init__(self, device):
        self.device = device
        self.highest = -1
        self.alive = []  # (bytes, frames, address, lives on)
        self.at = ()  # frames of the allocation that made the peak
        self.known = {}  # address -> frames, of what is alive since before the record's beginning
        self.complete = True

    def look(self, snapshot, most_entries):
        """Reads the events since the last look (the caller clears the record afterwards)."""
        events = [e for e in snapshot["device_traces"][self.device] if e["action"] in ("alloc", "free_requested")]
        if len(snapshot["device_traces"][self.device]) >= most_entries:
            self.complete = False
        now = {}
        for segment in snapshot["segments"]:
            if segment["device"] != self.device:
                continue
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    now[block["address"]] = (block["requested_size"], _place(block.get("frames")))
        # Backwards from now to what was alive when the record began.
        before = dict(now)
        for e in reversed(events):
            if e["action"] == "alloc":
                before.pop(e["addr"], None)
            else:
                before[e["addr"]] = (e["size"], self.known.get(e["addr"], ()))
        total = sum(size for size, _ in before.values())
        best, best_at = total, -1
        for i, e in enumerate(events):
            total += e["size"] if e["action"] == "alloc" else -e["size"]
            if total > best:
                best, best_at = total, i
        if best > self.highest:
            self.highest = best
            alive = {a: (size, place, None) for a, (size, place) in before.items()}
            for i, e in enumerate(events[: best_at + 1]):
                if e["action"] == "alloc":
                    alive[e["addr"]] = (e["size"], _place(e.get("frames")), i)
                else:
                    alive.pop(e["addr"], None)
            freed = {e["addr"] for e in events[best_at + 1 :] if e["action"] == "free_requested"}
            self.alive = [(size, place, a, a not in freed) for a, (size, place, _) in alive.items()]
            self.at = _place(events[best_at].get("frames")) if best_at >= 0 else ()
        self.known = {a: place for a, (_, place) in now.items()}

    def table(self, names, rows=200):
        """[{bytes, count, kind, …}] largest first; equal places share a row. names: address -> (kind, name)."""
        groups = {}
        for size, place, address, stays in self.alive:
            kind, name = names.get(address, (None, None)) if stays else (None, None)
            if kind is None:
                kind = "optimizer" if _of_optimizer(place) else "step" if not stays else "other"
            where = frames.describe(place)
            if not where and kind == "step":
                where = {"op": "backward pass"}  # its threads have no Python frames
            key = (kind, tuple(sorted(where.items())))
            row = groups.setdefault(key, dict(bytes=0, count=0, largest=0, kind=kind, names=[], **where))
            row["bytes"] += size
            row["count"] += 1
            row["largest"] = max(row["largest"], size)
            if name and len(row["names"]) < 3:
                row["names"].append(name)
        return sorted(groups.values(), key=lambda r: -r["bytes"])[:rows]

    def by_kind(self, names):
        found = {}
        for size, place, address, stays in self.alive:
            kind = names.get(address, (None, None))[0] if stays else None
            if kind is None:
                kind = "optimizer" if _of_optimizer(place) else "step" if not stays else "other"
            found[kind] = found.get(kind, 0) + size
        return found


def phase_of(place):
    if not place:
        return "backward"
    if _of_optimizer(place) or any("clip_grad" in f[0] for f in place):
        return "optimizer"
    return "forward"
