#!/usr/bin/env python3
"""Generated programs and whole models, exported and estimated, against PyTorch's own counters on the emulated GPU (docs/zoo.md).

    python tests/programs/run.py --build build/release                             the sample of the tests; with --turn a third of it, by the commit
    python tests/programs/run.py --search [--random 100] [--only one/0] [--build …]   all of them: a search for causes
    python tests/programs/run.py --search --only sealed/                           totals of models that nobody looks at
    python tests/programs/run.py --search --only sealed/ --recordings              by recordings of the models as well (half a minute per model)

A search prints what is not exact, and totals by route; it takes three seconds per program the first time. Sources, exports and truths
are kept in build/programs (MEMPLAN_PROGRAMS names another folder). The sample has expressions whose rules were found by a search;
it is left out where PyTorch is not set up (make live).
"""
import argparse
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "zoo")]
import build_tree
import generate
import naming

FOLDER = os.environ.get("MEMPLAN_PROGRAMS", os.path.join(ROOT, "build", "programs"))
# y = one of these; a method or a model of one of these names.
NAMED = ["dense/000", "dense/014h", "dense/031h", "model/distill", "model/siamese_triplet", "model/vit_masked", "model/contrastive", "model/parallel_norms", "model/converted", "model/grouped_query",
         "model/two_heads", "model/unfolded", "model/checkpointed_blocks", "model/checkpointed_steps", "model/one_dimensional", "model/windows", "model/nested", "model/views", "model/judged", "model/scaled", "model/translator", "model/widened",
         "model/dictation_once", "model/detector", "model/listed_states", "model/handed", "model/regularized", "model/trend", "model/denoiser", "model/graphs",
         "model/evaluated", "model/shifted", "model/modulated"]
SAMPLE = ["(h - h.mean(-1, keepdim=True)) / (h.std(-1, keepdim=True) + 1e-6)", "torch.nan_to_num(h)", "F.cosine_similarity(h, x, dim=-1).unsqueeze(-1) * h", "h - 1 / (1 + h.abs())",
          "h.sort(dim=1)[0]", "F.dropout1d(h.transpose(1, 2), 0.1, self.training).transpose(1, 2)", "h * torch.sigmoid(x)", "h / h.norm()", "torch.special.expit(h)",
          "F.pad(h.transpose(1, 2), (1, 1), mode='reflect').transpose(1, 2)[:, 1:-1]", "F.interpolate(h.transpose(1, 2), scale_factor=2.0).transpose(1, 2)[:, ::2]", "torch.bernoulli(h.sigmoid()) * h", "self.bn(h.transpose(1, 2)).transpose(1, 2)"]


def is_sealed(name):
    """Rules are not found by these models: of them there are totals only, with --only sealed/."""
    return name.startswith("sealed/")


def ask(task, names, python, more=None):
    """{name: answer} of a worker, whose environment has `more`."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", **(more or {}))
    done = subprocess.run([python, os.path.join(HERE, "worker.py"), task, FOLDER], input="\n".join(names), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    return dict(json.loads(line) for line in done.stdout.splitlines())


def sample(sources, turn):
    """The programs of the tests, or every third of them."""
    names = [n for n, s in sources.items() if n in NAMED or any(f" y = {e}\n" in s for e in SAMPLE)]
    assert len(names) == len(SAMPLE + NAMED)
    return build_tree.whose_turn(sorted(names), 3) if turn else names


def prepare(options, python, library):
    """Sources, exports and truths of the programs asked for; {name: {set-up: truth}}, none for a program without a truth."""
    every = generate.programs(options.random)
    sources = {n: every[n] for n in (every if options.search else sample(every, options.turn)) if re.search(options.only, n)}
    kept = os.path.join(FOLDER, "truths.json")
    truths = json.load(open(kept)) if os.path.exists(kept) else {}
    changed = []
    for name, source in sources.items():
        path = os.path.join(FOLDER, name + ".py")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.exists(path) or open(path).read() != source:
            open(path, "w").write(source)
            for made in (".pt2", ".onnx", ".memplan"):  # a run that is stopped here does not keep those of the old source
                if os.path.exists(path.removesuffix(".py") + made):
                    os.remove(path.removesuffix(".py") + made)
            truths.pop(name, None)
            changed.append(name)
    missing = [n for n in sources if n in changed or not os.path.exists(os.path.join(FOLDER, n + ".pt2"))]
    failed = {n: a for n, a in ask("export", missing, python).items() if a} if missing else {}
    for name, why in failed.items():
        if not is_sealed(name):
            print(f"{name}: no export: {why['failed'].splitlines()[-1][:100]}")
    missing = [n for n in sources if n in changed or n not in truths]
    if missing:
        truths.update(ask("truth", missing, python, dict(LD_PRELOAD=os.path.abspath(library), EMULATED_GPU=naming.GPU)))
        with open(kept + ".part", "w") as f:
            json.dump(truths, f)
        os.replace(kept + ".part", kept)
    if options.recordings:
        missing = [n for n in sources if n in changed or not os.path.exists(os.path.join(FOLDER, n + ".memplan"))]
        with_device = dict(MEMPLAN_PROGRAM=os.path.join(os.path.abspath(options.build), "memplan"), MEMPLAN_EMULATED_GPU=os.path.abspath(library))
        for name, why in ask("record", missing, python, with_device).items() if missing else ():
            if why and not is_sealed(name):
                print(f"{name}: no recording: {why['failed'].splitlines()[-1][:100]}")
    return {n: truths.get(n, {}) for n in sources}


def estimate(memplan, path, flags, python):
    # The cuDNN that the truths ran with is asked: few programs have the convolutions of the tables.
    environment = dict(os.environ, MEMPLAN_PYTHON=python)
    done = subprocess.run([memplan, path, "--gpu", naming.GPU, "--batch", "8", "--no-search", "--exit-zero", "--format", "json", *flags], capture_output=True, text=True, env=environment)
    if not done.stdout.startswith("{"):
        return None, None, done.stderr.strip()[:100]
    report = json.loads(done.stdout)
    if "error" in report:
        return None, None, report["error"]["message"][:100]
    span = report["ranges"]["requested_bytes"]
    return report["counters"]["requested_bytes"], (span["low_bytes"], span["high_bytes"]), ""


def look(options, name, setup, truth, totals, python):
    """What of the program's run is not exact; adds to the totals by route."""
    if not isinstance(truth, list):
        return [f"no truth: {truth['failed'][:100]}"]
    said = []
    for route in totals:
        path = os.path.join(FOLDER, name + naming.ROUTES[route])
        if not os.path.exists(path):
            continue
        bytes_, span, why = estimate(os.path.join(options.build, "memplan"), path, naming.SETUPS[setup][1], python)
        inside = bool(span) and span[0] <= truth[0] <= span[1]
        totals[route]["runs"] += 1
        totals[route]["exact"] += bytes_ == truth[0]
        totals[route]["outside"] += not inside
        if bytes_ != truth[0]:
            said.append(f"{route} {100 * (bytes_ - truth[0]) / truth[0]:+.3f} %{'' if inside else ' outside'}" if bytes_ else f"{route} {why}")
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--search", action="store_true", help="all programs, not the sample of the tests")
    parser.add_argument("--turn", action="store_true", help="every third program of the sample, by the commit")
    parser.add_argument("--random", type=int, default=100, metavar="N", help="random programs beside those of one expression")
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--recordings", action="store_true", help="record the programs as well")
    options = parser.parse_args()
    emulated = build_tree.emulated(options.build)
    if not emulated:
        print("PyTorch is not set up (make live): no program is run\n0 passed, 0 failed")
        return 0
    totals = {r: dict(runs=0, exact=0, outside=0) for r in naming.ROUTES if r != "recording" or options.recordings}
    truths = prepare(options, *emulated)
    for name in sorted(truths):
        for setup, truth in truths[name].items():
            if (said := look(options, name, setup, truth, totals, emulated[0])) and not is_sealed(name):
                print(name, setup, "  ".join(said))
    if not options.search:
        passed = sum(t["exact"] for t in totals.values())
        failed = len(truths) * len(naming.SETUPS) * len(totals) - passed  # what has no export or truth counts, too
        print(f"{passed} passed, {failed} failed")
        return 1 if failed else 0
    print("| route | runs | requested exact | outside of the range |\n|---|---|---|---|")
    for route, t in totals.items():
        print(f"| {route} | {t['runs']} | {100 * t['exact'] / max(1, t['runs']):.1f} % | {100 * t['outside'] / max(1, t['runs']):.1f} % |")


if __name__ == "__main__":
    sys.exit(main())
