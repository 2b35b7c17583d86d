#!/usr/bin/env python3
"""The measurement campaign: what a GPU says, to be compared with the estimates and with the emulated GPU.

    python tools/measure.py                                  on a machine with a GPU
    python tools/measure.py --emulated LIBRARY [--gpu h100]  the same from start to end on the emulated GPU
    python tools/measure.py --list                           what it would do

Runs of the reference program (models x batch x precision x optimizer x checkpointing) and probes (context and libraries,
cuDNN batch norm and recurrent layers, convolutions, cuBLAS, NCCL, FSDP2, DDP), each in a process of its own, with PyTorch's
counters and NVML's word on the process. Writes data/measured/<real|emulated>-<card>-torch<version>.json after every run,
and goes on where it was stopped; --minutes is when it stops by itself. Needs PyTorch with CUDA, torchvision and transformers
(tests/requirements-torch.txt). Exit status: 0 when everything is measured, 1 when something failed or is left.
"""
import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(HERE, "measurement"), os.path.join(ROOT, "tests", "accuracy"), os.path.join(ROOT, "python")]
import forked


def key(task):
    return json.dumps(task, sort_keys=True)


def tasks():
    import campaign

    found = [dict(kind="probe", name=name, arguments=arguments) for name, arguments in campaign.probes()[:3]]
    found += [dict(kind="run", config=config) for config in campaign.runs()]
    return found + [dict(kind="probe", name=name, arguments=arguments) for name, arguments in campaign.probes()[3:]]


# ---- in the worker: PyTorch is imported once, and every task gets a process that has not touched CUDA before

def measure(task):
    """One task; runs in its own process."""
    import torch
    from memplan._calibrate import nvml

    try:
        device = nvml.Nvml()
        before = device.used()
    except OSError:
        device, before = None, 0
    if task["kind"] == "probe":
        import probes

        return getattr(probes, task["name"])(probes.Watch(device, before), **task["arguments"])
    import reference_program

    config = dict(task["config"])
    if config.get("alloc_conf"):
        os.environ["PYTORCH_ALLOC_CONF"] = config["alloc_conf"]
        torch._C._accelerator_setAllocatorSettings(config["alloc_conf"])
    # A GPU computes with what is in the weights; the emulated one does not look.
    row = reference_program.run({**config, "fill": "EMULATED_GPU" not in os.environ})
    row.pop("device"), row.pop("torch"), row.pop("fill", None)
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    row["reserved_bytes"] = torch.cuda.memory_reserved()
    row["device_used_bytes"] = total - free
    if device:
        row["nvml_used_bytes"] = device.used()
        row["nvml_process_bytes"] = device.used_by_this_process()
        row["outside_bytes"] = row["nvml_used_bytes"] - before - row["reserved_bytes"]
    return row


def about():
    import torch
    import torchvision
    import transformers
    from memplan._calibrate import nvml

    try:
        device = nvml.Nvml()
        driver, name, total = device.driver(), device.name(), device.total()
    except OSError:
        driver, name, total = None, torch.cuda.get_device_name(), torch.cuda.mem_get_info()[1]
    return dict(device=name, total_bytes=total, capability=list(torch.cuda.get_device_capability()),
                multiprocessors=torch.cuda.get_device_properties(0).multi_processor_count, driver=driver, torch=torch.__version__, cuda=torch.version.cuda,
                cudnn=torch.backends.cudnn.version(), nccl=".".join(map(str, torch.cuda.nccl.version())), torchvision=torchvision.__version__,
                transformers=transformers.__version__, python=sys.version.split()[0])


def worker():
    forked.import_models("T5ForConditionalGeneration", "BertForMaskedLM")
    import probes  # noqa: F401
    import reference_program  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        task = json.loads(line)
        row = forked.row_of(lambda: about() if task["kind"] == "about" else measure(task))
        print(json.dumps(row), file=answers, flush=True)


class Worker:
    def __init__(self, environment, log):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=log, text=True)

    def ask(self, task):
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"the worker ended with {self.process.wait()}: see the log")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def save(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.part"
    with open(part, "w") as f:
        f.write("{\n")
        f.write(f' "about": {json.dumps(content["about"], indent=1)},\n "results": [\n')
        f.write(",\n".join("  " + json.dumps(r, separators=(",", ":")) for r in content["results"]))
        f.write("\n ]\n}\n")
    os.replace(part, path)


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--emulated", metavar="LIBRARY", help="the emulated GPU's library instead of a GPU")
    p.add_argument("--gpu", default="h100", help="the card that is emulated")
    p.add_argument("--out", help="file to write, and to go on from")
    p.add_argument("--only", help="regular expression on tasks, as --list prints them")
    p.add_argument("--minutes", type=float, default=25)
    p.add_argument("--list", action="store_true")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.worker:
        return worker()
    wanted = [t for t in tasks() if not a.only or re.search(a.only, key(t))]
    if a.list:
        print("\n".join(map(key, wanted)))
        print(f"{sum(t['kind'] == 'run' for t in wanted)} runs, {sum(t['kind'] == 'probe' for t in wanted)} probes")
        return 0
    environment = dict(os.environ)
    if a.emulated:
        environment |= {"LD_PRELOAD": os.path.abspath(a.emulated), "EMULATED_GPU": a.gpu}
    start = time.monotonic()
    log_path = os.path.join(ROOT, "build", "measure.log")
    os.makedirs(os.path.dirname(log_path), exist_ok=True)
    with open(log_path, "a") as log:
        w = Worker(environment, log)
        here = w.ask(dict(kind="about"))
        if "failed" in here:
            sys.exit(f"PyTorch finds no GPU: {here['failed']}")
        path = a.out or os.path.join(ROOT, "data", "measured", f"{'emulated' if a.emulated else 'real'}-{slug(here['device'].removeprefix('NVIDIA '))}-"
                                                               f"torch{'.'.join(here['torch'].split('.')[:2])}.json")
        content = dict(about={}, results=[])
        if os.path.exists(path):
            with open(path) as f:
                content = json.load(f)
            differs = [k for k in here if content["about"].get(k) != here[k]]
            if differs:
                sys.exit(f"{path} was made with another {', '.join(differs)}: move it away or give --out")
        content["about"] = {**here, "emulated": bool(a.emulated), "gpu": a.gpu if a.emulated else None, "date": datetime.date.today().isoformat(),
                            "command": "python tools/measure.py" + (f" --emulated LIBRARY --gpu {a.gpu}" if a.emulated else "")}
        done = {key(r["task"]) for r in content["results"]}
        failed = left = made = 0
        for task in wanted:
            if key(task) in done:
                continue
            if time.monotonic() - start > a.minutes * 60:
                left += 1
                continue
            began = time.monotonic()
            row = w.ask(task)
            if "failed" in row:
                failed += 1
                print(f"FAILED {key(task)}: {row['failed']}", flush=True)
                continue
            made += 1
            content["results"].append(dict(task=task, **row))
            save(path, content)
            print(f"{time.monotonic() - began:5.1f} s  {key(task)}", flush=True)
        w.close()
    print(f"{made} measured in {(time.monotonic() - start) / 60:.1f} minutes, {len(done)} were there, {failed} failed, {left} left; {os.path.relpath(path, ROOT)}")
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
