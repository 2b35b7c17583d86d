#!/usr/bin/env python3
"""Tests of `memplan observe`: python tests/observe/run.py [--build build/release] [--only TEXT] [--turn] [--seconds]

The scripts of scripts/ run on the emulated GPU and print PyTorch's own counters; the report must say the same. Where the
build has no emulated GPU (cmake -DMEMPLAN_TORCH_PYTHON=…) only what needs none is tested, and that is said. The last
line is "N passed, N failed". They take a quarter of an hour: with --turn, as `make test` calls them, each commit runs
every third one of those that need PyTorch, and the commit's number says which.
"""
import argparse
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.dirname(HERE))
import build_tree
SCRIPTS = os.path.join(HERE, "scripts")
settings = argparse.Namespace()


def observe(*words, env=None):
    """(exit code, stdout, stderr)"""
    run = subprocess.run([os.path.join(settings.build, "memplan"), "observe", *words], capture_output=True, text=True, timeout=900,
                         env={**os.environ, **(env or {})}, cwd=ROOT)
    return run.returncode, run.stdout, run.stderr


def script(name, *arguments):
    return ["--", settings.python, os.path.join(SCRIPTS, name + ".py"), *arguments]


def report(*words, code=0, env=None):
    got, out, err = observe("--format", "json", *words, env=env)
    assert got == code, f"exit code {got} instead of {code}:\n{err[-2000:]}"
    return as_published(json.loads(out)), err


def as_published(document):
    """Every report of these tests is held against docs/observe.schema.json."""
    import jsonschema

    with open(os.path.join(ROOT, "docs", "observe.schema.json")) as f:
        jsonschema.validate(document, json.load(f))
    return document


def own_counters(text):
    """What the scripts print of torch.cuda.memory_stats()."""
    return [tuple(map(int, m.groups())) for m in re.finditer(r"own counters: (\d+) (\d+) (\d+)", text)]


def counters(rank):
    return rank["requested_bytes"], rank["allocated_bytes"], rank["reserved_bytes"]


# ---- without PyTorch

def test_usage():
    for words, said in ([], "behind two dashes"), (["--world", "2", "--ranks", "2", "--", "true"], "rank 2 is not one of 2"), \
                       (["--devices", "99", "--", "true"], "at most 16"), (["--gpu", "h1000", "--", "true"], "unknown GPU"):
        code, _, err = observe(*words)
        assert code == 2 and said in err, (words, code, err)


def test_library_is_missing():
    code, _, err = observe("--", "true", env={"MEMPLAN_EMULATED_GPU": "/nowhere/lib.so"})
    assert code == 2 and "MEMPLAN_EMULATED_GPU" in err, (code, err)


def test_the_json_is_as_published():
    """Without PyTorch there are errors only; report() looks at every report."""
    for words in (["--devices", "99", "--", "true"], ["--gpu", "h1000", "--", "true"], ["--", "true"]):
        _, out, _ = observe("--format", "json", *words, env={"MEMPLAN_EMULATED_GPU": "/nowhere/lib.so"})
        assert as_published(json.loads(out))["error"]["code"] == 2


def test_whose_a_frame_is():
    """By its place below the packages of a Python alone: environments lie in checkouts, and in folders of any name."""
    sys.path[:0] = [os.path.join(ROOT, "emulated_gpu", "observer"), os.path.join(ROOT, "python")]
    import memplan._recording.compiled  # lies in the observer's folder where that is written out

    sys.modules["memplan_observer.recording"] = memplan._recording
    from memplan_observer import frames

    def described(*files):
        found = frames.describe([(f, i, f"f{i}") for i, f in enumerate(files)])
        return found.get("script"), found.get("code"), found.get("op")

    for packages in ("/srv/project/build/torch/lib/python3.11/site-packages", "/usr/lib/python3/dist-packages", os.path.dirname(os.__file__) + "/site-packages"):
        assert described(f"{packages}/torch/nn/functional.py", f"{packages}/transformers/loss.py", "/srv/torch/train.py") == \
            ("/srv/torch/train.py:2", "transformers/loss.py:1 in f1", "f0"), packages
        assert frames.is_torch(f"{packages}/torch/optim/adamw.py", "optim") and not frames.is_torch(f"{packages}/torch_geometric/optim/a.py")
    assert described(os.__file__, "/torch/optim/mine.py") == ("/torch/optim/mine.py:1", "/torch/optim/mine.py:1 in f1", None)
    assert not frames.is_torch("/srv/torch/optim/mine.py", "optim")


# ---- with it

def test_live_counters_are_the_scripts_own():
    r, err = report("--gpu", "a100-80gb", *script("plain"))
    (rank,) = r["ranks"]
    assert own_counters(err) == [counters(rank)], (own_counters(err), rank)
    assert rank["driver_bytes"] == rank["reserved_bytes"]
    assert rank["process_bytes"] == rank["reserved_bytes"] + r["context_bytes"] == r["peak_bytes"]
    assert rank["peak"]["requested_bytes"] == rank["requested_bytes"], "the history's peak is the counter's"
    assert sum(b["bytes"] for b in rank["peak"]["blocks"]) == sum(rank["peak"]["by_kind"].values()) == rank["requested_bytes"]
    assert r["verdict"] == "fits" and rank["steps"] == 4 and rank["finished"]
    # 4 layers of GPT-2 in fp32: 4·7,087,872 + 50,257·768 + 1,024·768 + 2·768 parameters, and AdamW's two moments with a step each.
    parameters = 4 * 7_087_872 + 50_257 * 768 + 1024 * 768 + 2 * 768
    assert rank["peak"]["by_kind"]["parameters"] == 4 * parameters
    assert rank["peak"]["by_kind"]["optimizer"] == 8 * parameters
    # The line of the library, wherever that is installed, and the script's own that called it.
    loss = [b for b in rank["peak"]["blocks"][:5] if "cross_entropy" in b.get("text", "")]
    assert loss and all(b["code"].startswith("transformers/") and "plain.py:" in b["script"] for b in loss), rank["peak"]["blocks"][:5]
    reads = {x["script"]: x["count"] for x in r["values_read"] if "loss.item()" in x.get("text", "")}
    assert list(reads.values()) == [4], r["values_read"]


def compiled(how, *words):
    """A script under torch.compile, where no compiler is to be found. The document, and the counters that every run printed."""
    with tempfile.TemporaryDirectory() as empty:
        r, err = report("--gpu", "h100-80gb", *words, *script("compiled", how), env={"PATH": empty})
    return r, own_counters(err)


def test_live_compiled_again():
    r, printed = compiled("whole", "--rerun")
    runs = r["compiled"]["runs"]
    assert [x["caches"] for x in runs] == ["cold", "warm", "padded"], runs
    assert printed == [(x["requested_bytes"], x["allocated_bytes"], x["reserved_bytes"]) for x in runs], (printed, runs)
    assert runs[1]["requested_bytes"] <= runs[0]["requested_bytes"], "the trials of compiling are cold only"
    assert r["peak_bytes"] == max(x["process_bytes"] for x in runs)
    assert (r["compiled"]["graphs"], r["compiled"]["breaks"]) == (1, []) and r["compiled"]["padding_measured"] > 0


def test_live_compiled_in_pieces():
    r, printed = compiled("break", "--rerun")
    runs = r["compiled"]["runs"]
    assert [x["caches"] for x in runs] == ["cold", "warm"] and r["compiled"]["padding_measured"] == 0, r["compiled"]
    assert printed == [(x["requested_bytes"], x["allocated_bytes"], x["reserved_bytes"]) for x in runs], (printed, runs)
    assert runs[0]["requested_bytes"] == runs[1]["requested_bytes"], "what is asked for does not depend on caches"
    assert r["compiled"]["graphs"] > 1 and "graph_break" in r["compiled"]["breaks"][0]["reason"], r["compiled"]
    blocks = r["ranks"][0]["peak"]["blocks"]
    assert not any("_orig_mod" in name for b in blocks for name in b.get("names", ())), "names are the model's own"
    assert not any("inductor" in b.get("code", "") for b in blocks), "places are the program's, not those of generated code"
    assert any("compiled.py" in b.get("code", "") and b.get("op", "").startswith("compiled: aten.") for b in blocks), blocks[:6]


def test_live_compiled_dynamic():
    r, printed = compiled("dynamic")
    assert printed == [counters(r["ranks"][0])] and r["compiled"]["graphs"] < 3, "not one for each size"
    assert any("warm caches" in note for note in r["notes"])


def test_live_compiled_with_checkpoints():
    r, printed = compiled("checkpoint")
    assert printed == [counters(r["ranks"][0])] and r["compiled"]["breaks"] == [], r["compiled"]


def test_live_text():
    code, out, err = observe("--gpu", "l4", *script("plain", "--layers", "2", "--steps", "3"))
    assert code == 0 and out.startswith("observed: ") and "fits on l4" in out and "values read from the device" in out, (code, out)
    assert "step 2" in err and "step 2" not in out, "the script's own words go to stderr"


def test_live_stop_after():
    r, err = report("--stop-after", "2", *script("plain", "--layers", "1", "--steps", "50"))
    assert r["ranks"][0]["steps"] == 2 and "step 3" not in err


def test_live_out_of_memory():
    r, err = report("--gpu", "2GiB", *script("oom"), code=1)
    assert r["verdict"] == "no-fit" and "CUDA out of memory. Tried to allocate 300.00 MiB" in err, err
    assert "this process has" in err, "NVML says what the process uses"
    (x,) = r["out_of_memory"]
    assert x["wanted_bytes"] == 300 << 20 and x["script"].endswith("oom.py:3")
    assert r["peak_bytes"] < 2 << 30 and r["ran_out_at_bytes"] is None and r["advice"]
    r, err = report("--gpu", "2GiB", "--rerun", *script("oom"), code=1)
    assert r["ranks"][0]["requested_bytes"] == 8 * 300 << 20 and r["ran_out_at_bytes"] < 2 << 30 < r["peak_bytes"] and len(r["out_of_memory"]) == 1
    r, err = report("--gpu", "2GiB", "--no-limit", *script("oom"), code=1)
    assert r["verdict"] == "no-fit" and r["ranks"][0]["requested_bytes"] == 8 * 300 << 20 and "has" in err


def test_live_out_of_memory_in_a_step():
    """What was alive belongs to the step, though nothing was freed any more; PyTorch's words end with a sentence; the report says what to do."""
    words = ["--gpu", "1300MiB", "--width", "200", *script("plain", "--layers", "2")]
    code, out, _ = observe(*words)
    assert code == 1 and "does not fit" in out and "more wanted (--rerun" in out and "What to change" in out and "gradient_checkpointing_enable" in out, out
    assert re.search(r"the script ended with OutOfMemoryError: .*(\n.+)*\.$", out, re.MULTILINE), out
    r, _ = report(*words, code=1)
    kinds = r["ranks"][0]["peak"]["by_kind"]
    assert kinds["step"] > 10 * kinds.get("other", 0), kinds
    code, out, _ = observe("--rerun", *words)
    whole, _ = report("--no-limit", *words, code=1)
    assert code == 1 and re.match(r"observed: needs [\d.]+ GiB; does not fit on", out), out
    again, _ = report("--rerun", *words, code=1)
    assert again["peak_bytes"] == whole["peak_bytes"] > 1300 << 20


def test_live_one_step_is_not_enough():
    r, _ = report("--stop-after", "1", *script("plain", "--layers", "1"), code=1)
    assert r["verdict"] == "unknown" and any("--stop-after 2" in n for n in r["notes"]), r["notes"]
    r, _ = report("--stop-after", "2", *script("plain", "--layers", "1"))
    assert r["verdict"] == "fits" and not r["notes"]


def test_live_two_modules_of_one_class():
    r, _ = report(*script("reference"))
    owners = {b["owner"]: b["bytes"] for b in r["ranks"][0]["peak"]["blocks"] if b["kind"] == "parameters"}
    # Two layers of 512x2048 with biases each.
    assert owners == dict.fromkeys(("Net #1, trained", "Net #2, not trained"), 4 * (2 * 512 * 2048 + 2048 + 512)), owners


def test_live_backward_rows():
    """Node and forward line; the counters are those of the same script with nobody looking on."""
    r, _ = report("--gpu", "a100-80gb", *script("plain"))
    rows = [b for b in r["ranks"][0]["peak"]["blocks"] if b.get("op", "").startswith("backward: ")]
    assert any("LogSoftmaxBackward" in b["op"] and "cross_entropy" in b["text"] for b in rows), rows
    assert not any(b.get("op") == "backward pass" for b in r["ranks"][0]["peak"]["blocks"])
    library = os.path.join(settings.build, "emulated_gpu", "libemulated_gpu.so")
    alone = subprocess.run(script("plain")[1:], capture_output=True, text=True, env={**os.environ, "LD_PRELOAD": library, "EMULATED_GPU": "a100-80gb"})
    assert own_counters(alone.stdout) == [counters(r["ranks"][0])], alone.stderr[-1000:]


def test_live_no_backward_no_frames():
    r, _ = report("--", settings.python, "-c", "import torch; x = torch.zeros(3).cuda()")
    (block,) = r["ranks"][0]["peak"]["blocks"]
    assert block["script"] == "<string>:1" and "backward" not in block.get("op", ""), block


def test_live_ddp_world_of_8():
    r, err = report("--world", "8", *script("ddp"))
    assert [x["rank"] for x in r["ranks"]] == list(range(8)) and {x["device"] for x in r["ranks"]} == set(range(8))
    assert own_counters(err) == [counters(r["ranks"][0])]
    assert len({counters(x) for x in r["ranks"]}) == 1, "ranks of a data-parallel job need the same"
    # One group talks; data/nccl/memory.csv has the figure of NVIDIA/nccl#1685 for it.
    for rank in r["ranks"]:
        assert (rank["nccl_bytes"], rank["process_bytes"]) == (1_060_000_000, rank["driver_bytes"] + 1_060_000_000 + r["context_bytes"])
    # Gradients lie in DDP's buckets, so parameters are there at least twice; SGD's momentum is the third.
    assert r["ranks"][0]["requested_bytes"] > 3 * 4 * 11_689_512


def test_live_fsdp2_world_of_8():
    r, err = report("--world", "8", "--ranks", "0,3,7", *script("fsdp2"))
    assert [x["rank"] for x in r["ranks"]] == [0, 3, 7]
    assert own_counters(err) == [counters(r["ranks"][0])]
    # Shards of an eighth: (32,000·512·2 + 4·(4·512·512 + 3·512·1,376 + 2·512) + 512)/8 fp32 parameters.
    shard = (32_000 * 512 * 2 + 4 * (4 * 512 * 512 + 3 * 512 * 1376 + 2 * 512) + 512) // 8
    for x in r["ranks"]:
        assert x["peak"]["by_kind"]["parameters"] == 4 * shard, x["peak"]["by_kind"]
        assert x["peak"]["by_kind"]["optimizer"] == 8 * shard


def test_live_torchrun():
    r, _ = report("--devices", "2", "--", settings.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", os.path.join(SCRIPTS, "ddp.py"))
    assert [x["rank"] for x in r["ranks"]] == [0, 1], r["ranks"]


def test_live_exit_codes():
    report(*script("ends", "--gpu"))
    r, _ = report(*script("ends", "--gpu", "--fail"), code=7)
    assert r["verdict"] == "unknown" and r["script_exit_codes"] == [7]
    code, _, err = observe(*script("ends"))
    assert code == 3 and "without having used a GPU" in err, (code, err)
    code, _, err = observe(*script("ends", "--fail"))
    assert code == 7, (code, err)
    code, _, err = observe("--", "no-such-command-of-anybody")
    assert code == 2 and "cannot be started" in err, (code, err)


def test_live_decisions_are_named():
    r, _ = report(*script("decides"))
    assert any("widths.tolist()" in x.get("text", "") for x in r["values_read"]), r["values_read"]


def test_live_sizes_that_depend_on_values():
    r, err = report(*script("masked"), code=1)
    assert "the size of this result depends on values on the device" in err, err
    assert r["verdict"] == "unknown"
    r, err = report("--sizes", "empty", *script("masked"), code=1)
    assert "kept 0" in err and r["verdict"] == "unknown" and any("lower bound" in n for n in r["notes"]), r["notes"]
    r, _ = report("--sizes", "empty", *script("plain", "--layers", "1", "--steps", "2"))
    assert r["verdict"] == "fits" and not r["notes"]


def test_live_every_size_that_depends_on_values():
    """Each op says so; told how large its result is, the last three work."""
    _, err = report(*script("sizes"))
    said = dict(re.findall(r"^(\w+): (.*)$", err, re.MULTILINE))
    loud = ("nonzero", "where", "mask", "masked_select", "argwhere", "unique", "unique_consecutive", "unique_dim", "bincount", "one_hot", "repeat_interleave")
    assert {x: said.get(x, "")[:13] for x in loud} == dict.fromkeys(loud, "emulated GPU:"), said
    assert (said["told_one_hot"], said["told_repeat_interleave"], said["largest"]) == ("[8, 5]", "[20]", "[]"), said


def test_live_what_a_device_would_know():
    r, _ = report(*script("unknown"))
    names = [x["what"] for x in r["not_known"]]
    assert "cufftXtMakePlanMany" in names and any("recurrent" in x for x in names) and any("channels-last" in x for x in names), names


def test_live_events():
    """Memory that another stream uses (record_stream) is free at once, or only after somebody waits."""
    at_once, _ = report(*script("streams"))
    late, _ = report(*script("streams"), code=0, env={"EMULATED_GPU_EVENTS": "late"})
    # Four pairs of 64 MiB, of which each follows the last one; finished work leaves room for the next pair.
    assert (at_once["ranks"][0]["reserved_bytes"], late["ranks"][0]["reserved_bytes"]) == (128 << 20, 5 * 64 << 20)


def test_live_recorded_jobs():
    """Scripts of users, recorded, changed and observed again (jobs.py)."""
    words = [sys.executable, os.path.join(HERE, "jobs.py"), os.path.join(settings.build, "memplan"), settings.python, *(["--all"] if settings.all else [])]
    done = subprocess.run(words, capture_output=True, text=True)
    print(done.stdout, end="")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def test_live_compiled_scripts():
    """Scripts of users with torch.compile (compiled_scripts.py)."""
    words = [sys.executable, os.path.join(HERE, "compiled_scripts.py"), os.path.join(settings.build, "memplan"), settings.python, *(["--all"] if settings.all else [])]
    done = subprocess.run(words, capture_output=True, text=True)
    print(done.stdout, end="")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def test_kept_steps():
    """Weights are 1,000 bytes, a loss 8, which lives until the next one is there: a step has 1,008 and its activations, and from the second one on 8 more."""
    from kept_steps import kept

    for activations, wanted in (([50] * 12, [1058, 1066, 1066]), ([50, 60, 70, 80, 90], [1058, 1076, 1086, 1096, 1106]),
                                ([50] * 10 + [500, 50, 900, 50, 50], [1058] + [1066] * 7 + [1916]), ([50, 40], [1058, 1056])):
        found = kept(activations)
        assert found == wanted, (activations, found, wanted)


def test_record_usage():
    for words, said in (["--record", "x.memplan", "--batches", "2,4", "--", "true"], "{batch}"), (["--batches", "2,4", "--", "true", "{batch}"], "--record"), \
                       (["--record", "x.memplan", "--batches", "2,2", "--", "true", "{batch}"], "twice"), (["--world", "2", "--record", "x.memplan", "--", "true"], "one process"):
        code, _, err = observe(*words)
        assert code == 2 and said in err, (words, code, err)


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_live_killed():
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        with tempfile.TemporaryDirectory() as folder:
            note, out = os.path.join(folder, "pids"), os.path.join(folder, "report.json")
            temporary = os.path.join(folder, "tmp")
            os.mkdir(temporary)
            p = subprocess.Popen([os.path.join(settings.build, "memplan"), "observe", "--format", "json", "-o", out, *script("waits", note)], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": temporary})
            until = time.monotonic() + 300
            while not os.path.exists(note) and time.monotonic() < until:
                time.sleep(0.1)
            with open(note) as f:
                pids = [int(x) for x in f.read().split()]
            assert all(map(_alive, pids))
            p.send_signal(number)
            assert p.wait(30) == code
            assert not any(map(_alive, pids)), "processes are left"
            assert not os.path.exists(out) and not glob.glob(out + "*") and not os.listdir(temporary), "files are left"


def whose_turn(names):
    """Of the live tests those of this commit, and those that a user would meet first; all where there is no repository."""
    live = [name for name in names if name.startswith("test_live")]
    skipped = set(live) - set(build_tree.whose_turn(live, 3)) - {"test_live_counters_are_the_scripts_own", "test_live_exit_codes", "test_live_killed"}
    return [name for name in names if name not in skipped]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--only", default="")
    p.add_argument("--turn", action="store_true", help="every third live test, by the commit")
    p.add_argument("--seconds", action="store_true", help="say how long each test took")
    p.add_argument("--all", action="store_true", help="every script of jobs/, which takes minutes")
    p.add_argument("--python", help="a Python with PyTorch (default: the one of the build)")
    a = p.parse_args()
    settings.build, settings.all = os.path.abspath(a.build), a.all
    settings.python = a.python or build_tree.cached(settings.build, "MEMPLAN_TORCH_PYTHON")
    live = settings.python and os.path.exists(os.path.join(settings.build, "emulated_gpu", "libemulated_gpu.so"))
    passed = failed = 0
    names = [name for name in globals() if name.startswith("test_")]
    for name in whose_turn(names) if a.turn else names:
        if a.only not in name or (name.startswith("test_live") and not live):
            continue
        started = time.monotonic()
        try:
            globals()[name]()
            passed += 1
        except Exception:
            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc(limit=-2, file=sys.stdout)
        if a.seconds:
            print(f"{time.monotonic() - started:6.1f} s  {name}", flush=True)
    if not live:
        print("live: left out, it needs PyTorch (cmake -DMEMPLAN_TORCH_PYTHON=…, see emulated_gpu/README.md)")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
