"""What PyTorch's caching allocator says while a program runs: counters per step, and the event stream if asked for."""
import gzip
import json

import torch

COUNTERS = {"requested": "requested_bytes", "allocated": "allocated_bytes", "reserved": "reserved_bytes"}


class Recorder:
    """Counters of each step; with `history` also every allocation and free; with `ops` the op that made it."""

    def __init__(self, history=False, ops=False):
        self.history, self.with_ops = history, history and ops
        self.setup, self.steps, self.marks = None, [], []
        self._profiler = None

    def __enter__(self):
        torch.cuda.init()
        if self.history:
            # No stacks: collecting them is slow and nothing here needs them.
            torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
        if self.with_ops:
            from torch.profiler import ProfilerActivity, profile

            self._profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
            self._profiler.__enter__()
        return self

    def __exit__(self, *exc):
        if self._profiler:
            self._profiler.__exit__(*exc)

    def _trace(self):
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        return [e for e in trace if e["action"] in ("alloc", "free_requested", "segment_alloc", "segment_free")]

    def mark(self, text):
        """Notes where in the stream a phase begins."""
        if self.history:
            self.marks.append([text, len(self._trace())])

    @staticmethod
    def _now():
        stats = torch.cuda.memory_stats()
        return {k: stats[f"{v}.all.current"] for k, v in COUNTERS.items()}

    def setup_done(self):
        self.setup = self._now()

    def step_begins(self):
        torch.cuda.reset_peak_memory_stats()
        self.mark(f"step {len(self.steps) + 1}")

    def step_ends(self):
        stats = torch.cuda.memory_stats()
        row = {k: stats[f"{v}.all.peak"] for k, v in COUNTERS.items()}
        row["after"] = self._now()
        row["segments"] = stats["segment.all.current"]
        row["retries"] = stats["num_alloc_retries"]
        self.steps.append(row)

    def events(self):
        """[action, bytes, address, stream] in order; "alloc" and "free" carry requested bytes, segment_* what the
        driver was asked for. With ops, a fifth entry: the innermost op."""
        short = {"free_requested": "free"}
        rows = [[short.get(e["action"], e["action"]), e["size"], e["addr"], e["stream"]] for e in self._trace()]
        if self.with_ops:
            # The profiler misses a few (those outside any op on the engine's thread): matched by address, in order.
            seen = _op_names(self._profiler)
            at = 0
            for row in rows:
                if row[0] in ("alloc", "free"):
                    hit = at < len(seen) and seen[at][0] == row[2] and (seen[at][1] > 0) == (row[0] == "alloc")
                    row.append(seen[at][2] if hit else "")
                    at += hit
            if at != len(seen):
                raise RuntimeError(f"{len(seen) - at} of the profiler's {len(seen)} memory events have no match")
        return rows

    def save(self, path, row):
        """Writes the row of a run with its events and marks; compressed where the name ends in .gz."""
        with gzip.open(path, "wt") if path.endswith(".gz") else open(path, "w") as f:
            json.dump(dict(row, events=self.events(), marks=self.marks), f, separators=(",", ":"))


def _op_names(profiler):
    """[address, size change, names] of each device allocation or free; names of the ops around it, outermost first."""
    from torch._C._profiler import _EventType

    found = []

    def visit(event, path):
        if event.tag == _EventType.Allocation:
            if event.extra_fields.device.type == "cuda":
                f = event.extra_fields
                found.append((event.start_time_ns, len(found), (f.ptr, f.alloc_size, " > ".join(path))))
            return
        name = event.name
        for child in event.children:
            visit(child, path + [name])

    for root in profiler.profiler.kineto_results.experimental_event_tree():
        visit(root, [])
    return [row for _, _, row in sorted(found)]
