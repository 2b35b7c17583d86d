#!/usr/bin/env python3
"""The planner's floating-point operations against torch.utils.flop_counter, op by op as PyTorch dispatches them.

    LD_PRELOAD=…/libemulated_gpu.so EMULATED_GPU=h100 python tests/accuracy/flops.py --record

asks PyTorch and writes data/measured/flops-2.11.json. Without --record the recorded counts are compared with those of
tests/tools/step_cost (no PyTorch needed); the last line is "N passed, N failed".
"""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import zoo

RECORD = os.path.join(zoo.ROOT, "data", "measured", "flops-2.11.json")
RUNS = [
    dict(model="mlp", batch=64, precision="fp32"), dict(model="resnet18", batch=4, precision="fp32"), dict(model="resnet50", batch=4, precision="amp-bf16"),
    dict(model="vgg16", batch=2, precision="fp32"), dict(model="alexnet", batch=4, precision="fp32"), dict(model="unet", batch=2, precision="fp32"),
    dict(model="convnext_tiny", batch=2, precision="fp32"), dict(model="vit_b_16", batch=2, precision="amp-bf16"), dict(model="swin_t", batch=2, precision="fp32"),
    dict(model="gpt2", batch=2, seq=128, precision="fp32"), dict(model="gpt2", batch=2, seq=512, precision="amp-bf16"), dict(model="bert-base", batch=2, seq=128, precision="fp32"),
    dict(model="llama-tiny", batch=2, seq=256, precision="bf16"), dict(model="t5-small", batch=2, seq=64, precision="fp32"), dict(model="opt-125m", batch=2, seq=128, precision="fp32"),
    dict(model="pythia-160m", batch=2, seq=128, precision="fp32"),
]
# PyTorch's formula for the weight gradient of a grouped convolution counts every pair of channels, also those of different
# groups, so its backward count is too large by the number of groups there; the forward one is right.
GROUPED = {"convnext_tiny"}


def count(run):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    import models
    from reference_program import HALF, loss_fn

    spec = models.REGISTRY[run["model"]]
    dims = {"batch": run["batch"], "seq": run.get("seq")}
    half, amp = HALF.get(run["precision"]), run["precision"].startswith("amp")
    model = models.build(run["model"], fill=False).train()
    if half and not amp:
        model.to(half)
    model.to("cuda")
    x = [torch.zeros(i.shape(dims), dtype=half if half and not amp and getattr(torch, i.dtype).is_floating_point else getattr(torch, i.dtype), device="cuda") for i in spec.inputs]
    y = torch.zeros(spec.label_shape(dims), dtype=torch.long, device="cuda")
    with FlopCounterMode(display=False) as forward:
        with torch.autocast("cuda", dtype=half or torch.bfloat16, enabled=amp):
            loss = loss_fn(model(*x), y)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return dict(run, forward=forward.get_total_flops(), backward=backward.get_total_flops())


def compare(build):
    with open(RECORD) as f:
        rows = json.load(f)["runs"]
    lines = "".join(json.dumps(dict(r, path=os.path.relpath(zoo.model_file(r["model"]), zoo.ROOT))) + "\n" for r in rows)
    done = subprocess.run([os.path.join(build, "tests", "step_cost")], input=lines, capture_output=True, text=True, cwd=zoo.ROOT)
    passed = failed = 0
    for row, line in zip(rows, done.stdout.splitlines(), strict=True):
        ours = json.loads(line)
        for part in ("forward", "backward"):
            if part == "backward" and row["model"] in GROUPED:
                continue
            good = ours.get(part) == row[part]
            passed, failed = passed + good, failed + (not good)
            if not good:
                print(f"FAILED {row['model']} {row['precision']} {part}: PyTorch {row[part]:,}, memplan {ours.get(part, ours.get('error'))}")
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(zoo.ROOT, "build", "release"))
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if options.record:
        import torch

        rows = [count(run) for run in RUNS]
        with open(RECORD, "w") as f:
            f.write(json.dumps({"command": "python tests/accuracy/flops.py --record", "torch": torch.__version__}, indent=1)[:-2] + ',\n "runs": [\n')
            f.write(",\n".join("  " + json.dumps(r) for r in rows) + "\n ]\n}\n")
        return 0
    passed, failed = compare(options.build)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
