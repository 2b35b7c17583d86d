"""Scripts of users, recorded: python jobs.py MEMPLAN PYTHON [--all | CASE …], run by run.py.

`memplan observe --record` runs each script of jobs/; what `memplan FILE` says of the setup that ran must be what PyTorch counted, to the byte, in a run of its own with
nobody recording. Then changes that memplan's flags say are made in the script, and the changed script is observed: requested bytes agree within 0.5 %."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
COUNTERS = ("requested", "allocated", "reserved")
CLOSE = 0.005  # of what PyTorch requested

# name: (script, words, batches, [(flags of memplan, the script's own words for the same)], exact counters)
AMP, ADAM, SGD = ["--amp", "bf16"], ["--optimizer", "adam"], ["--optimizer", "sgd"]
CASES = {
    "tutorial": ("tutorial", [], "64,96,128", [(["--batch", "80"], ["--batch", "80"]), (ADAM, ["--optimizer", "Adam"]), (AMP, ["--amp"])]),
    "function": ("function", [], "", [(AMP, ["--amp"])]),
    "checkpoint": ("checkpoint", [], "8,12,17", [(["--checkpoint", "blocks.*"], ["--checkpoint"]), (["--batch", "10"], ["--batch", "10"]), (AMP, ["--amp"]),
                                                 (SGD, ["--optimizer", "SGD"])]),
    "checkpointed": ("checkpoint", ["--checkpoint"], "", [(AMP, ["--amp"]), (SGD, ["--optimizer", "SGD"])]),
    "containers": ("containers", [], "16,24,33", [(["--batch", "20"], ["--batch", "20"]), (AMP, ["--amp"])]),
    "hooks": ("hooks", [], "", [(SGD, ["--optimizer", "SGD"])]),
    "trainer_lora": ("trainer_lora", [], "", [(AMP, ["--bf16"])]),
    "trainer": ("trainer_lora", ["--full", "--checkpoint", "--bf16", "--accumulate", "2"], "", [(["--optimizer", "adagrad"], ["--optimizer", "adagrad"])]),
    "dpo": ("dpo", [], "2,4,7", [(["--batch", "3"], ["--batch", "3"]), (AMP, ["--amp"])]),
    "ema": ("ema", [], "32,64,97", [(["--batch", "48"], ["--batch", "48"]), (SGD, ["--optimizer", "SGD"]), (AMP, ["--amp"])]),
    "accumulation": ("accumulation", [], "", [(["--accumulate", "2"], ["--accumulate", "2"]), (AMP, ["--amp"])]),
    "scaler": ("scaler", [], "", [(ADAM, ["--optimizer", "Adam"])]),
    "frozen": ("frozen", [], "", [(SGD, ["--optimizer", "SGD"])]),
    "two_losses": ("two_losses", [], "", []),
    "two_losses_apart": ("two_losses", ["--apart"], "", "several backward passes"),
    "gan": ("gan", [], "", "several optimizers"),
    "accelerated": ("accelerated", [], "", []),
    "siamese": ("siamese", [], "16,24,33", [(["--batch", "20"], ["--batch", "20"]), (AMP, ["--amp"])]),
    "diffusion": ("diffusion", [], "", [(AMP, ["--amp"]), (SGD, ["--optimizer", "SGD"])]),
    "distill": ("distill", [], "", [(ADAM, ["--optimizer", "Adam"])]),
    "growing": ("growing", [], "", []),
    "bf16": ("bf16", [], "", [(["--checkpoint", "model.layers.*"], ["--checkpoint"])]),
}
# What does not hold to 0.5 %, or lies outside of the stated range, and why.
KNOWN = {"containers --amp bf16": "0.04 %, outside of the range",
         "dpo --batch 3": "1,077 bytes below the range",
         "trainer --optimizer adagrad": "the Trainer has two groups of parameters, the estimate one: 0.03 %, outside of the range",
         "diffusion --amp bf16": "0.07 %, outside of the range",
         "bf16 --checkpoint model.layers.*": "768 bytes outside of the range"}
SAMPLE = ["tutorial", "function", "two_losses_apart"]


class Jobs:
    def __init__(self, program, python):
        self.program, self.python = program, os.path.abspath(python)
        self.failures, self.passed = [], 0

    def check(self, good, text):
        self.passed += bool(good)
        if not good:
            self.failures.append(text)

    def run(self, *words):
        environment = dict(os.environ, MEMPLAN_TORCH_PYTHON=self.python)  # its cuDNN is asked about convolutions
        done = subprocess.run([self.program, *words], capture_output=True, text=True, timeout=900, env=environment)
        try:
            return json.loads(done.stdout), done
        except json.JSONDecodeError:
            raise AssertionError(f"{' '.join(words)}: {done.stderr[-2000:]}") from None

    def observe(self, script, words, *flags):
        """[requested, allocated, reserved], what was said"""
        document, done = self.run("observe", "--format", "json", "--exit-zero", *flags, "--", self.python, os.path.join(HERE, "jobs", script + ".py"), *words)
        if "error" in document:
            raise AssertionError(document["error"]["message"])
        return [document["ranks"][0][f"{k}_bytes"] for k in COUNTERS], done.stderr

    def estimate(self, file, *flags):
        document, _ = self.run(file, "--format", "json", "--no-search", "--exit-zero", *flags)
        if "error" in document:
            return None, document["error"]["message"]
        return [max(s["peak"][f"{k}_bytes"] for s in document["steps"]) for k in COUNTERS], document

    def case(self, name, folder):
        script, words, batches, changes = CASES[name]
        file = os.path.join(folder, name + ".memplan")
        record = ["--record", file, *(["--batches", batches] if batches else [])]
        ran, said = self.observe(script, [*words, *(["--batch", "{batch}"] if batches else [])], *record)
        alone, _ = self.observe(script, words)
        ours, document = self.estimate(file)
        self.row(name, [], ours, alone)
        exact = COUNTERS[:1] if name == "growing" else COUNTERS
        self.check(ours and ours[:len(exact)] == alone[:len(exact)] == ran[:len(exact)], f"{name}: {ours or document}, and PyTorch {alone} alone, {ran} recorded")
        if isinstance(changes, str):
            self.check(changes in said, f"{name}: {said[-300:]}")
            nothing, message = self.estimate(file, "--optimizer", "adagrad")
            self.check(nothing is None and changes in message, f"{name}: {message}")
            return
        self.check("answers what ran" not in said, f"{name}: {said[-300:]}")
        for flags, own in changes:
            theirs, _ = self.observe(script, [*words, *own])
            ours, document = self.estimate(file, *flags)
            self.row(name, flags, ours, theirs)
            close = ours and abs(ours[0] - theirs[0]) <= CLOSE * theirs[0]
            told = document["ranges"]["requested_bytes"] if ours else dict(low_bytes=0, high_bytes=0)
            inside = told["low_bytes"] <= theirs[0] <= told["high_bytes"]
            case = f"{name} {' '.join(flags)}"
            if case in KNOWN:
                self.check(not (close and inside), f"{case} agrees now: take it off the list of what is known")
                continue
            self.check(close, f"{case}: {ours or document}, and PyTorch {theirs}")
            self.check(inside, f"{case}: {theirs[0]} is not in {told}")

    @staticmethod
    def row(name, flags, ours, theirs):
        cells = ["exact" if a == b else f"{100 * (a / b - 1):+.3f} %" for a, b in zip(ours, theirs)] if ours else ["refused"] * 3
        print(f"| {name} | {' '.join(flags) or 'as it ran'} | {theirs[0]:,} | {' | '.join(cells)} |", flush=True)


def main():
    jobs, only = Jobs(os.path.abspath(sys.argv[1]), sys.argv[2]), sys.argv[3:]
    print("| script | asked | requested peak | requested | allocated | reserved |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES if only == ["--all"] else only or SAMPLE:
            try:
                jobs.case(name, folder)
            except AssertionError as error:
                jobs.failures.append(f"{name}: {error}")
    for failure in jobs.failures:
        print("FAILED", failure)
    print(f"{jobs.passed} passed, {len(jobs.failures)} failed")
    return 1 if jobs.failures else 0


if __name__ == "__main__":
    sys.exit(main())
