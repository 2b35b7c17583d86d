"""What needs no GPU and no PyTorch: recordings that are stored here (models.py, batches 3, 6 and 10; made again by `cases.py PROGRAM LIBRARY --store`).

Both routes of a recording say the same of a setup that ran, and damaged calls end in one clear error."""
import copy
import glob
import json
import os
import random
import subprocess
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
MUTATIONS = 300
CALLS = "runs/0/calls.json"
ODD = (None, -1, 0, 7, 10**6, 2**31, 2**53, -(2**62), 2**70, 1.5, True, "", "aten.relu.default", "9223372036854775807", [], [[]], {}, {"v": 3}, {"v": 10**9}, {"b": [1, 2]},
       {"b": [2**49, 2**49]}, {"b": 3}, {"d": "float99"}, {"f": "x"}, {"v": -1, "d": 2}, [0] * 70)


# Requested bytes that the calls may be off by, as a share, and why; the range of every what-if holds it.
KNOWN = {"own": (0.015, "what a checkpointed function unpacks for its backward pass goes with the names there; the calls keep it until that pass ends"),
         "mamba2": (0.03, "copies that einsum makes of its operands in fp32")}


def routes(tool, *files):
    """Rows of the tool both_routes."""
    done = subprocess.run([tool, *files], capture_output=True, text=True, env=dict(os.environ, MEMPLAN_CHECK="1"))
    return [json.loads(line) for line in done.stdout.splitlines()]


def first_run(path, to):
    """The recording as if its first setup were all that was recorded."""
    with zipfile.ZipFile(path) as z, zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as out:
        index = json.loads(z.read("memplan_recording.json"))
        index["runs"] = index["runs"][:1]
        out.writestr("memplan_recording.json", json.dumps(index))
        for member in ("events", "calls"):
            out.writestr(index["runs"][0][member], z.read(index["runs"][0][member]))


def agrees(row):
    """None where both routes have the same peaks in every step and counter. Scratch memory that cuDNN chooses, and temporaries of an op without a row, are
    named among the facts; then the range has to hold the difference, which is what it is made of."""
    if "error" in row:
        return row["error"]
    most = KNOWN.get(os.path.basename(row["file"]).removesuffix(".memplan"), (0, ""))[0]
    if row["steps"] == row["calls"] or max(abs(c[0] - s[0]) for c, s in zip(row["calls"], row["steps"])) <= most * max(s[0] for s in row["steps"]) and most:
        return None
    if any("cuDNN" in f or "temporaries" in f for f in row.get("facts", ())):
        return None
    return f"{row['file']} {row['run']} batch {row['batch']}: the steps have {row['steps']}, the calls {row['calls']}"


# Other setups of stored recordings, asked of their first run alone.
WHAT_IFS = (["--amp", "bf16", "--optimizer", "sgd", "--momentum", "0.9"], ["--mode", "inference"])
CLOSE = 0.005  # of the requested peak; KNOWN differences may be larger, within the range


def requested(program, path, *flags):
    """The requested peak and its range."""
    done = subprocess.run([program, path, "--format", "json", "--no-search", "--exit-zero", *flags], capture_output=True, text=True)
    document = json.loads(done.stdout)
    if "error" in document:
        raise AssertionError(document["error"]["message"])
    return max(s["peak"]["requested_bytes"] for s in document["steps"]), document["ranges"]["requested_bytes"]


def what_ifs(program):
    """What the calls of fp32 training say of autocast and inference, against the steps that were recorded with them."""
    good, wrong = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(glob.glob(os.path.join(HERE, "stored", "*.memplan"))):
            first, name = os.path.join(folder, os.path.basename(path)), os.path.basename(path).removesuffix(".memplan")
            first_run(path, first)
            for flags in WHAT_IFS:
                for batch in ("3", "6", "10"):
                    theirs, _ = requested(program, path, "--batch", batch, *flags)
                    ours, told = requested(program, first, "--batch", batch, *flags)
                    close = abs(ours - theirs) <= max(CLOSE, KNOWN.get(name, (0,))[0]) * theirs
                    good += close and told["low_bytes"] <= theirs <= told["high_bytes"]
                    if not close or not told["low_bytes"] <= theirs <= told["high_bytes"]:
                        wrong.append(f"what-if {name} {' '.join(flags)} batch {batch}: {ours} in {told}, and PyTorch {theirs}")
    return good, wrong


def same_by_both_routes(tool):
    files = sorted(glob.glob(os.path.join(HERE, "stored", "*.memplan")))
    rows = routes(tool, *files)
    wrong = [text for row in rows if (text := agrees(row))]
    if len(rows) < 3 * len(files) or not files:
        wrong.append(f"{len(rows)} rows of {len(files)} stored recordings")
    return len(rows) - len(wrong), wrong


def _places(value, path=()):
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _places(inner, (*path, key))


def _damaged(document, chance):
    out = copy.deepcopy(document)
    path = chance.choice(PLACES)
    at = out
    for key in path[:-1]:
        at = at[key]
    if not path:
        return chance.choice(ODD)
    if chance.random() < 0.2 and isinstance(at, (dict, list)):
        del at[path[-1]]
    elif chance.random() < 0.2 and isinstance(at, list) and at:
        at.insert(path[-1], copy.deepcopy(chance.choice(at)))
    else:
        at[path[-1]] = chance.choice(ODD)
    return out


def damaged_calls(program):
    """Every one of them is refused with one error, or estimated; nothing crashes, hangs or calls itself a bug."""
    source = os.path.join(HERE, "stored", "own.memplan")
    with zipfile.ZipFile(source) as z:
        members = {n: z.read(n) for n in z.namelist()}
    document, chance = json.loads(members[CALLS]), random.Random(15)
    global PLACES
    PLACES = list(_places(document))
    passed, wrong = 0, []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "damaged.memplan")
        for i in range(MUTATIONS):
            text = json.dumps(_damaged(document, chance))
            with zipfile.ZipFile(path, "w") as z:
                for name, data in members.items():
                    z.writestr(name, text if name == CALLS else data)
            done = subprocess.run([program, path, "--gpu", "h100-80gb", "--optimizer", "sgd", "--quiet"], capture_output=True, text=True, timeout=60,
                                  env=dict(os.environ, MEMPLAN_CHECK="1"))
            clean = done.returncode in (0, 1) or done.returncode in (2, 3) and done.stderr.startswith("error:")
            passed += clean
            if not clean:
                wrong.append(f"damaged calls {i}: exit {done.returncode}: {done.stderr.strip()[:300]}")
    return passed, wrong
