#!/usr/bin/env python3
"""Peaks of compiled programs, from PyTorch itself: python saved_peaks.py MEMPLAN LIBRARY FOLDER [--sealed] [--budget=0.5] NAME …, with the Python that has PyTorch, transformers, torchvision and timm.

Records each program of saved_programs.py compiled (`memplan record --setup compile=true`) and writes FOLDER/NAME.peak.json: the greatest of each counter, for warm, cold and padded runs. With an
activation_memory_budget it is FOLDER/NAME.peak-0.5.json.
Twenty to sixty seconds of processor time for each.
"""
import json
import os
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
SETUPS = {"fp32": "mode=training", "amp-bf16": "mode=training,precision=amp-bf16", "bf16": "mode=training,precision=bf16"}


def main():
    program, library, folder, *rest = sys.argv[1:]
    sys.path[:0] = [os.path.join(HERE, "..", "accuracy"), HERE]
    import saved_programs

    programs = saved_programs.SEALED if "--sealed" in rest else saved_programs.OPEN
    os.environ.update(MEMPLAN_EMULATED_GPU=os.path.abspath(library), PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
                      PYTHONPATH=os.pathsep.join(sys.path[:2]))
    budget = next((a.partition("=")[2] for a in rest if a.startswith("--budget=")), "")
    for name in [n for n in rest if not n.startswith("--")]:
        with tempfile.TemporaryDirectory() as scratch:
            source, path = os.path.join(scratch, "program.py"), os.path.join(folder, name + budget + ".memplan")
            with open(source, "w") as f:
                f.write(f"import saved_programs\n\n\ndef make(batch=None):\n    return {{**saved_programs.OPEN, **saved_programs.SEALED}}[{name!r}][0]()\n")
            done = subprocess.run([program, "record", source + ":make", "-o", path, "--setup", SETUPS[programs[name][1]] + ",compile=true" + (f",activation_memory_budget={budget}" if budget else "")], capture_output=True, text=True)
            if done.returncode:
                print(name, "not recorded", done.stderr[-400:], flush=True)
                continue
            with zipfile.ZipFile(path) as z:
                run = json.loads(z.read("memplan_recording.json"))["runs"][0]
                recorded = json.loads(z.read(run["events"]))["programs"][0]
        peak = [max(step[c] for step in recorded["peaks"][0]) for c in range(3)]
        with open(os.path.join(folder, name + (f".peak-{budget}.json" if budget else ".peak.json")), "w") as f:
            json.dump(dict(warm=peak, others={o["how"]: o["peak"] for o in run["others"]}, batch=recorded["batches"][0]), f)
        print(name, peak, flush=True)


if __name__ == "__main__":
    main()
