#!/usr/bin/env python3
"""Checkpointing under a budget, on ten models: the plan costs no more than any uniform policy that stays under the same
budget, and PyTorch itself stays under it when it runs the plan.

    python tests/accuracy/checkpoint_plans.py [--build build/release]     what PyTorch said is recorded: a plan that changes fails
    python tests/accuracy/checkpoint_plans.py --record build/release/emulated_gpu/libemulated_gpu.so     PyTorch runs every plan anew

The recorded peaks are data/measured/emulated/checkpoint-plans-2.11.jsonl.

Uniform policies are every block, every 2nd, 3rd, 4th … block, and blocks 2, 3, 4 … at a time. Budgets lie a quarter, half
and three quarters of the way from the least peak that a uniform policy reaches to the peak without checkpoints. Ends with
"N passed, N failed".
"""
import argparse
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import zoo

RECORDED = os.path.join(zoo.ROOT, "data", "measured", "emulated", "checkpoint-plans-2.11.jsonl")
MODELS = ["resnet50", "vit_b_16", "gpt2", "llama-tiny", "bert-base", "convnext_tiny", "densenet121", "regnet_y_400mf", "opt-125m", "pythia-160m"]
UNIFORM = ["blocks"] + [f"every:{n}" for n in (2, 3, 4, 6)] + [f"groups:{n}" for n in (2, 3, 4, 6)]


def ask(tool, **run):
    out = subprocess.run([tool], input=json.dumps(run) + "\n", capture_output=True, text=True)
    return json.loads(out.stdout) if out.stdout else {"error": f"it died with {out.returncode}"}


def recorded():
    """{(model, budget): what PyTorch said of the plan}"""
    with open(RECORDED) as f:
        return {(r["model"], r["budget"]): r for r in map(json.loads, f)}


class PyTorch:
    """Runs plans on the emulated GPU and writes down what PyTorch says."""

    def __init__(self, library):
        import record

        self.workers, self.rows = record.Workers(os.path.abspath(library), subprocess.DEVNULL), []

    def row(self, model, budget, modules, sizes):
        run = dict(device="h100", model=model, mode="train", precision="fp32", optimizer="sgd", steps=2, checkpoint=modules, **sizes)
        row = self.workers.run(run)
        row = dict(model=model, budget=budget, checkpoint=modules, **sizes, steps=row.get("steps"), failed=row.get("failed") or row.get("error"), torch=row.get("torch"))
        self.rows.append({k: v for k, v in row.items() if v is not None})
        return self.rows[-1]

    def close(self):
        self.workers.close()
        with open(RECORDED, "w") as f:
            f.writelines(json.dumps(r, separators=(",", ":")) + "\n" for r in self.rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(zoo.ROOT, "build", "release"))
    parser.add_argument("--record", metavar="LIB", help="the emulated GPU's library")
    parser.add_argument("--only", default="")
    a = parser.parse_args()
    if a.record and a.only:
        parser.error("--record runs all plans")
    tool = os.path.join(a.build, "tests", "predict_runs")
    index, passed, failed = zoo.index(), 0, 0
    pytorch = PyTorch(a.record) if a.record else None
    known = {} if a.record else recorded()

    def verdict(good, text):
        nonlocal passed, failed
        passed, failed = passed + good, failed + (not good)
        print(("" if good else "FAILED ") + text, flush=True)

    for name in MODELS:
        if a.only not in name:
            continue
        spec = index[name]
        sizes = {"batch": spec["batch"], **({"seq": spec["seq"]} if spec["seq"] else {})}
        run = dict(path=zoo.model_file(name), gpu="h100", optimizer="sgd", precision="fp32", repeat=2, recompute=True, **sizes)
        peak = lambda answer: max(step["allocated"] for step in answer["steps"])
        plain, uniform = ask(tool, **run), []
        for policy in UNIFORM:
            answer = ask(tool, **run, checkpoint=policy)
            if "error" not in answer:
                uniform.append((policy, peak(answer), answer["recompute"]["share"]))
        top, least = peak(plain), min(p for _, p, _ in uniform)
        for part in (1, 2, 3):
            budget = least + (top - least) * part // 4
            begin = time.time()
            plan = ask(tool, **run, checkpoint_optimal=budget)
            seconds = time.time() - begin
            if "error" in plan:
                verdict(False, f"{name} under {budget:,}: {plan['error']}")
                continue
            cost, policy = min((share, policy) for policy, p, share in uniform if p <= budget)
            mine = plan["recompute"]["share"]
            good = mine <= cost + 1e-12 and peak(plan) <= budget
            text = f"{name} under {budget:,}: {mine:.1%} of the forward pass runs twice, {cost:.1%} with {policy}; {peak(plan):,} bytes, {seconds:.1f} s"
            modules = ",".join(plan["recompute"]["modules"])
            row = pytorch.row(name, budget, modules, sizes) if pytorch else known.get((name, budget))
            if not row or row["checkpoint"] != modules:
                good, text = False, text + f"; PyTorch ran {row['checkpoint'] if row else 'nothing under this budget'}, this plan is {modules}: record anew"
            elif "failed" in row:
                good, text = False, text + f"; PyTorch: {row['failed']}"
            else:
                good, text = good and peak(row) <= budget, text + f"; PyTorch {peak(row):,}"
            verdict(good, text)
    if pytorch:
        pytorch.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
