"""The allocator's record of a script's run for `memplan observe --record`: the first steps as they are, as many as PyTorch's counters grow in, and of the later ones
the one that needs most. Of what lies between stays what it leaves behind, so that the requested bytes of every step that is kept are those of the run."""
from .recording import trace

KEPT = 8  # steps that are kept as they are
LEAST = 3  # that stay whatever they need


class Steps(trace.Trace):
    """observe reads PyTorch's record for its own report and hands it on (take); `look` makes it do so now. `counters`: PyTorch's highest so far."""

    def __init__(self, torch, look, counters):
        self.torch, self._look, self._counters = torch, look, counters
        self.events, self.names, self.peaks = [], [], []
        self.marks = []  # of the steps that are kept
        self.step, self.phase = 0, "setup"
        self.clips = self.ran_modules = False  # after the last backward pass; since it
        self._marks = [(0, "setup")]  # of this step
        self._sizes, self._total = {}, 0
        self._ends = []  # events up to the end of set-up and of each of the first steps
        self._high = self._highest = 0  # requested bytes in this step, and in those that are kept
        self._first = self._end = self._early = 0  # events before this step, up to the last kept one, and up to the last of the first KEPT

    def _drain(self):
        self._look()

    def take(self, entries):
        for e in entries:
            frames = e.get("frames") or ()
            if any(f["name"] == "_call_impl" and f["filename"].endswith("torch/nn/modules/module.py") for f in frames):
                self.ran_modules = True
                if self.step == 0:
                    self._begin_steps()
                if self.phase == "data":
                    self._enter("forward")
            if self.phase == "clip" and any(f["filename"].endswith("torch/nn/utils/clip_grad.py") for f in frames):
                self.clips = True
            self._take([e])
            self._count(e)

    def _count(self, e):
        kind = trace.KINDS.get(e["action"])
        if kind == 1:
            self._sizes[e["addr"]] = e["size"]
            self._total += e["size"]
        elif kind == -1:
            self._total -= self._sizes.pop(e["addr"], 0)
        self._high = max(self._high, self._total)

    def _enter(self, phase):
        self.phase = phase
        self._marks.append((len(self.events), phase))

    def enter(self, phase):
        """What comes from here on is of another phase."""
        self._drain()
        if self.step == 0:  # a script without modules
            self._begin_steps()
        if phase != self.phase:
            self._enter(phase)

    def _begin_steps(self):
        self.peaks.append(self._counters())
        self._keep(0)
        self._next()

    def _next(self):
        self.step += 1
        self._first, self._high = len(self.events), self._total
        self._marks = []
        self._enter("data")

    def step_ends(self):
        self._drain()
        if self.step <= KEPT or self._high > self._highest:
            self._keep_step()
        else:
            self._fold(self._end, len(self.events))
        self._next()

    def _keep(self, number):
        self.marks += [(at, number, phase) for at, phase in self._marks]
        self._highest, self._end = max(self._highest, self._high), len(self.events)
        if number <= KEPT:
            self._early = self._end
            self._ends.append(self._end)

    def _keep_step(self):
        self.peaks.append(self._counters())
        if self.step <= KEPT:
            self._keep(self.step)
        else:
            self._keep_late()

    def _keep_late(self):
        """In the place of another one; what the steps between leave behind is this one's beginning."""
        self.marks = [m for m in self.marks if m[1] <= KEPT]
        self.peaks[KEPT + 1:-1] = []
        gone = self._fold(self._early, self._first)
        self._marks = [(at - gone, phase) for at, phase in self._marks]
        self._marks[0] = (self._early, "data")
        self._keep(len(self.peaks) - 1)

    def _fold(self, begin, end):
        """Takes out what is made and freed between; how many events that is."""
        made, gone = {}, set()
        for i in range(begin, end):
            kind, address = self.events[i][:2]
            if kind > 0:
                made[address] = i
            elif address in made:
                gone |= {i, made.pop(address)}
        self.events[begin:end] = [self.events[i] for i in range(begin, end) if i not in gone]
        self.names = [(at if at <= begin else at - len(gone), *what) for at, *what in self.names if at <= begin or at >= end]
        return len(gone)

    def ends(self, trim=True):
        """The script is over. What came after its last step is one more where it needed more than any. trim: without steps that add nothing; several runs of a
        script have to keep the same."""
        self._drain()
        if self.step == 0:
            self._begin_steps()
        if self.step == 1 or self._high > self._highest:
            self._keep_step()
        if trim:
            self._trim()
        del self.events[self._end:]
        self.names = [n for n in self.names if n[0] <= self._end]

    def _trim(self):
        """Steps at the end in which no counter has grown."""
        while LEAST < len(self.peaks) - 1 <= KEPT and self.peaks[-1] == self.peaks[-2]:
            self.peaks.pop()
            self._ends.pop()
            self._end = self._ends[-1]
            self.marks = [m for m in self.marks if m[1] < len(self.peaks)]
