#!/usr/bin/env python3
"""Checkpointing under a budget, on ten models: the plan costs no more than any uniform policy that stays under the same
budget, and (with --emulated) PyTorch itself stays under it when it runs the plan.

    python tests/accuracy/checkpoint_plans.py [--build build/release] [--emulated build/release/emulated_gpu/libemulated_gpu.so]

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

MODELS = ["resnet50", "vit_b_16", "gpt2", "llama-tiny", "bert-base", "convnext_tiny", "densenet121", "regnet_y_400mf", "opt-125m", "pythia-160m"]
UNIFORM = ["blocks"] + [f"every:{n}" for n in (2, 3, 4, 6)] + [f"groups:{n}" for n in (2, 3, 4, 6)]


def ask(tool, **run):
    out = subprocess.run([tool], input=json.dumps(run) + "\n", capture_output=True, text=True)
    return json.loads(out.stdout) if out.stdout else {"error": f"it died with {out.returncode}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(zoo.ROOT, "build", "release"))
    parser.add_argument("--emulated")
    parser.add_argument("--only", default="")
    a = parser.parse_args()
    tool = os.path.join(a.build, "tests", "predict_runs")
    index, passed, failed = zoo.index(), 0, 0
    workers = None
    if a.emulated:
        import record

        workers = record.Workers(os.path.abspath(a.emulated), subprocess.DEVNULL)

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
            if workers:
                modules = ",".join(plan["recompute"]["modules"])
                row = workers.run(dict(device="h100", model=name, mode="train", precision="fp32", optimizer="sgd", steps=2, checkpoint=modules, **sizes))
                real = max(step["allocated"] for step in row["steps"]) if "steps" in row else 0
                good = good and 0 < real <= budget
                text += f"; PyTorch {real:,}" if real else f"; PyTorch: {row.get('failed', row.get('error'))}"
            verdict(good, text)
    if workers:
        workers.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
