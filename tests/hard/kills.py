#!/usr/bin/env python3
"""memplan and the processes that it starts are ended at random times: nothing is left of them.

    python tests/hard/kills.py [--build build/release] [--torch PYTHON] [--rounds 40] [--seed 1]

Commands that start others (memplan-torch for TorchScript, Python for observe) and long searches get SIGTERM, SIGINT, SIGHUP or
SIGKILL after a random part of their usual time, or their child gets SIGKILL. Afterwards no process of theirs runs, no temporary
folder is there (one of a memplan that got SIGKILL goes with the next run), no file is half written; a memplan whose child was killed
says so in one message, with exit code 3, or has its answer.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.dirname(HERE))
import build_tree  # noqa: E402

from faults import processes_of  # noqa: E402

SCRIPT = """import torch
m = torch.nn.Linear(1024, 1024).cuda()
o = torch.optim.AdamW(m.parameters())
for _ in range(3):
    o.zero_grad()
    m(torch.randn(8, 1024, device="cuda")).sum().backward()
    o.step()
"""


def commands(torch):
    models = os.path.join(ROOT, "data", "models")
    found = {"search": ["suggest", os.path.join(models, "llama-2-7b.onnx.gz") if os.path.exists(os.path.join(models, "llama-2-7b.onnx.gz")) else os.path.join(models, "gpt2.onnx"),
                        "--gpu", "h100-80gb", "--gpus", "64", "--seq", "512", "--format", "json", "-o", "out.json"],
             "report": [os.path.join(models, "gpt2.onnx"), "--gpu", "24GB", "--batch", "8", "--seq", "1024", "--format", "html", "-o", "out.html"]}
    if torch:
        script = os.path.join(ROOT, "tests", "torchscript", "versions", "torch-2.6.0.trace.pt")
        found["torchscript"] = [script, "--input", "float32:batch,4", "--batch", "2", "--gpu", "80GB", "--format", "json", "-o", "out.json"]
        found["observe"] = ["observe", "--gpu", "80GB", "--format", "json", "-o", "out.json", "--", torch, "train.py"]
    return found


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(p) for p in f.read().split()]
    except OSError:
        return []


def start(binary, words, folder, temporary, torch):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MEMPLAN")} | {"TMPDIR": temporary, "HOME": temporary}
    environment |= {"MEMPLAN_PYTHON": "/nonexistent/python3"} | ({"MEMPLAN_TORCH_PYTHON": torch} if torch else {})
    with open(os.path.join(folder, "..", "err"), "wb") as err:
        return subprocess.Popen([binary, *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True)


def once(binary, words, torch, usual, how, r):
    """What is wrong after one run that was disturbed."""
    top = tempfile.mkdtemp(prefix="memplan-kills-")
    folder, temporary = os.path.join(top, "here"), os.path.join(top, "tmp")
    os.mkdir(folder), os.mkdir(temporary)
    with open(os.path.join(folder, "train.py"), "w") as f:
        f.write(SCRIPT)
    wrong = []
    try:
        process = start(binary, words, folder, temporary, torch)
        time.sleep(r.random() * usual)
        hit = True
        if how == "child":
            found = children_of(process.pid)
            hit = bool(found)
            for child in found:
                os.kill(child, signal.SIGKILL)
        elif process.poll() is None:
            process.send_signal(how)
        code = process.wait(timeout=120)
        with open(os.path.join(top, "err"), "rb") as f:
            err = f.read()
        if how == "child":
            if code not in (0, 1, 2, 3, 4) and not (words[0] == "observe" and hit):
                wrong.append(f"exit {code}: {err[-300:]!r}")
            if code in (2, 3, 4) and not err.strip():
                wrong.append(f"exit {code} without a word")
        elif code < 0 and code != -how or code in (70, 134, 139):
            wrong.append(f"exit {code}: {err[-300:]!r}")
        # What dies with memplan is gone a moment later, and so is its folder.
        until = time.monotonic() + 5
        while time.monotonic() < until and (processes_of(process.pid) or (how != signal.SIGKILL and os.listdir(temporary))):
            time.sleep(0.02)
        if left := processes_of(process.pid):
            wrong.append(f"processes left: {left}")
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        if how != signal.SIGKILL and (left := [n for n in os.listdir(temporary) if n.startswith("memplan")]):
            wrong.append(f"left in TMPDIR: {left}")
        for name in os.listdir(folder):
            if name.endswith(".tmp") and how != signal.SIGKILL:
                wrong.append(f"left: {name}")
            if name.startswith("out."):
                with open(os.path.join(folder, name), "rb") as f:
                    if not f.read().rstrip().endswith((b"}", b"</html>")):
                        wrong.append(f"half of {name}")
    finally:
        shutil.rmtree(top, ignore_errors=True)
    return wrong


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--torch", help="a Python with PyTorch; by default the one that the build knows")
    p.add_argument("--rounds", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", nargs="+")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    torch = a.torch or (build_tree.cached(a.build, "MEMPLAN_TORCH_PYTHON") if os.path.exists(os.path.join(a.build, "memplan-torch")) else None)
    binary, r, failed, done = os.path.join(a.build, "memplan"), random.Random(a.seed), 0, 0
    for name, words in commands(torch).items():
        if a.only and name not in a.only:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as top:
            os.mkdir(os.path.join(top, "here")), os.mkdir(os.path.join(top, "tmp"))
            with open(os.path.join(top, "here", "train.py"), "w") as f:
                f.write(SCRIPT)
            code = start(binary, words, os.path.join(top, "here"), os.path.join(top, "tmp"), torch).wait()
            with open(os.path.join(top, "err"), "rb") as f:
                said = f.read()
        usual = time.monotonic() - began
        if code not in (0, 1):
            print(f"FAILED {name} ends with {code} by itself: {said[-300:]!r}")
            failed += 1
            continue
        ways = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL] + (["child"] if name in ("torchscript", "observe") else [])
        for i in range(a.rounds):
            how = ways[i % len(ways)]
            wrong = once(binary, words, torch, usual, how, r)
            done += 1
            failed += bool(wrong)
            if wrong:
                print(f"FAILED {name}, {how if how == 'child' else signal.Signals(how).name}: {'; '.join(wrong)}", flush=True)
        print(f"{name:12} {usual:5.2f} s by itself, {a.rounds} times ended", flush=True)
    print(f"{done - failed} passed, {failed} failed")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
