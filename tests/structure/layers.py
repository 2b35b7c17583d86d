"""Which folder may include which: the one table, and how it is checked. docs/architecture.md shows the same table.

A folder includes itself and what its row lists, nothing else; a row lists only folders of earlier rows, so there are no circles.
Folders that are not in the table fail. `python tests/structure/layers.py --write` puts the table into docs/architecture.md.
"""
import os
import re
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PAGE = os.path.join(ROOT, "docs", "architecture.md")
BEGIN, END = "<!-- layers: made by tests/structure/layers.py --write -->", "<!-- end of layers -->"
TOPS = ("estimators", "planner", "cli", "memplan_torch")
# Implementations include the page of arrows that declares them, so it stands outside of the order.
ANYWHERE = {"estimators/pipeline.h"}
# Generated headers of libraries.
FOREIGN = {"onnx": {"estimators/frontends/onnx", "estimators/onnxruntime"}}

E = "estimators/"
# folder -> folders it may include, in the order of the flow. Short names are folders of estimators/.
TABLE = {
    "base": "",
    "companion": "base",
    "setup": "base",
    "facts": "base setup",
    "graph": "base setup",
    "tape": "base setup",
    "schedule": "base",
    "frontends/onnx": "base setup graph tape",
    "frontends/onnx/ops": "frontends/onnx",
    "frontends/onnx/patterns": "frontends/onnx",
    "restore": "base setup facts tape",
    "frontends/torch_export": "base setup graph tape frontends/onnx restore",
    "frontends/recording": "base setup facts graph tape schedule frontends/onnx frontends/torch_export",
    "frontends/torchscript": "base companion setup graph frontends/torch_export",
    "runtime": "setup facts tape schedule",
    "runtime/torch/allocator": "base setup runtime",
    "runtime/torch/profile": "setup runtime/torch/allocator",
    "runtime/torch/aten": "base setup facts tape schedule runtime/torch/profile",
    "resize": "base facts graph tape runtime/torch/profile runtime/torch/aten",
    "cudnn": "base companion facts runtime/torch/aten",
    "runtime/torch/autograd": "base setup tape runtime/torch/profile runtime/torch/aten",
    "runtime/torch/compiled": "base tape schedule runtime/torch/profile runtime/torch/aten runtime/torch/autograd",
    "runtime/torch/compiled/rows": "setup runtime/torch/profile runtime/torch/aten runtime/torch/compiled",
    "runtime/ort/versions": "base setup",
    "runtime/ort": "base setup facts graph tape schedule frontends/onnx runtime runtime/torch/aten runtime/ort/versions",
    "onnxruntime": "base companion setup graph frontends/onnx runtime/ort",
    "transforms": "base setup facts graph tape restore frontends/recording runtime/torch/aten runtime/torch/autograd",
    "estimate": "base setup facts graph tape schedule frontends/recording restore runtime transforms",
    "replay": "base setup facts schedule runtime",
    "measured": "base setup facts graph tape schedule frontends/recording estimate replay",
    "runtime/torch/wrappers": "base setup tape schedule runtime/torch/profile runtime/torch/aten runtime/torch/autograd transforms",
    "runtime/torch/step": "base setup facts tape schedule frontends/recording runtime/torch/profile runtime/torch/aten runtime/torch/autograd runtime/torch/compiled transforms runtime/torch/wrappers",
    "dryrun": "base companion setup facts tape schedule onnxruntime transforms measured runtime/torch/step",
    "planner/checkpointing": "base setup tape runtime estimate runtime/torch/profile runtime/torch/aten transforms runtime/torch/step",
    "planner/cost": "base setup facts runtime/torch/profile runtime/torch/aten transforms runtime/torch/step",
    "planner": "base setup graph estimate frontends/recording runtime/torch/profile transforms runtime/torch/step planner/checkpointing planner/cost",
    "cli/flags": "base setup graph runtime/torch/profile runtime/ort/versions estimate",
    "cli/terminal": "base companion cli/flags",
    "cli/python": "base companion cli/flags cli/terminal",
    "cli/calibration": "base companion facts cli/flags cli/terminal",
    "cli/program": "base setup runtime/torch/profile runtime/torch/autograd transforms runtime/torch/step planner/checkpointing cli/terminal",
    "cli/answer": "base setup facts graph frontends/recording cudnn runtime/ort onnxruntime runtime runtime/torch/profile runtime/ort/versions replay planner/checkpointing planner cli/flags cli/terminal cli/python cli/calibration cli/program",
    "cli/report": "base setup facts runtime runtime/torch/profile estimate measured planner cli/flags cli/terminal cli/program cli/answer",
    "cli/observe": "base facts estimate cli/flags cli/terminal cli/python",
    "cli/gate": "base planner cli/flags cli/terminal cli/report",
    "cli/commands": "base companion setup facts graph frontends/recording runtime/torch/profile runtime/torch/aten measured runtime/torch/step dryrun planner/checkpointing planner cli/flags cli/terminal cli/python cli/calibration cli/program cli/answer cli/report cli/observe cli/gate",
    "cli": "base companion cli/flags cli/terminal cli/answer cli/report cli/commands",
    "estimators": "base setup facts graph tape schedule estimate replay",
    "frontends": "base setup graph tape frontends/onnx frontends/torch_export frontends/recording frontends/torchscript",
    "runtime/torch": "base runtime runtime/torch/allocator runtime/torch/profile runtime/torch/step",
    "runtime/torch/aten/rows": "setup runtime/torch/profile runtime/torch/aten",
    "runtime/torch/versions": "base setup runtime/torch/profile runtime/torch/aten",
    "unroll": "base setup facts graph tape frontends/onnx frontends/torch_export frontends/torchscript runtime/torch/profile runtime/torch/aten",
    "memplan_torch": "base setup tape transforms dryrun",
}


def folder_of(path):
    """The row that a file belongs to."""
    return os.path.dirname(path)


def full(name):
    """The folder of a short name."""
    return name if name.split("/")[0] in TOPS else E + name


def allowed(table):
    """{folder: set of folders}"""
    return {full(name): {full(n) for n in row.split()} for name, row in table.items()}


def sources(root=ROOT):
    """{path: [included paths of this project or of onnx]} of every C++ file of the layers."""
    found = {}
    for top in TOPS:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".h", ".cpp")):
                    path = os.path.join(folder, name)
                    with open(path) as f:
                        found[os.path.relpath(path, root)] = re.findall(r'^#include "([^"]+)"', f.read(), re.M)
    return found


def problems(files, table=None):
    """What breaks the rules, one line each. `files` is as sources() gives it."""
    may = allowed(TABLE if table is None else table)
    folders = list(may)
    for folder, targets in may.items():
        for target in sorted(targets):
            if target not in may:
                yield f"the table's row of {folder} lists {target}, which has no row"
            elif folders.index(target) >= folders.index(folder):
                yield f"the table's row of {folder} lists {target}, which stands later: a circle, or a row out of order"
    used = {folder_of(path) for path in files}
    for folder in sorted(used - set(may)):
        yield f"{folder} is not in the table of tests/structure/layers.py"
    for folder in sorted(set(may) - used):
        yield f"{folder} stands in the table and has no source"
    for path, included in files.items():
        here = folder_of(path)
        for target in included:
            there = folder_of(target)
            if target in ANYWHERE or there == here or here not in may:
                continue
            if here in FOREIGN.get(os.path.dirname(target), ()):
                continue
            if there not in may[here]:
                yield f"{path} must not include {target}"


def broken_on_purpose(files):
    """(what was broken, files, table): every rule broken once, in each folder; each must give a problem."""
    may = allowed(TABLE)
    folders = list(may)
    for folder in folders:
        wrong = next((f for f in reversed(folders) if f not in may[folder] | {folder, "estimators"}), None)
        path = next(p for p in files if folder_of(p) == folder)
        if wrong:
            yield f"{path} includes {wrong}", {**files, path: files[path] + [wrong + "/any.h"]}, TABLE
        yield f"{path} includes a folder that is not there", {**files, path: files[path] + [folder + "/nowhere/any.h"]}, TABLE
    for top in TOPS:
        yield f"{top} has a folder without a row", {**files, f"{top}/unlisted/any.cpp": []}, TABLE
    names = list(TABLE)
    yield "a circle in the table", files, {**TABLE, names[0]: names[-1]}


def rendered():
    lines = [BEGIN, "| folder | may include |", "|---|---|"]
    for name, row in TABLE.items():
        lines.append(f"| `{name}` | {' '.join(f'`{n}`' for n in row.split()) or '(nothing)'} |")
    return "\n".join(lines + [END])


def page_says_so():
    with open(PAGE) as f:
        return rendered() in f.read()


def write():
    with open(PAGE) as f:
        text = f.read()
    if BEGIN not in text:
        text += f"\n{BEGIN}\n{END}\n"
    text = re.sub(re.escape(BEGIN) + r".*?" + re.escape(END), lambda _: rendered(), text, flags=re.S)
    with open(PAGE, "w") as f:
        f.write(text)


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    for problem in problems(sources()):
        print(problem)
