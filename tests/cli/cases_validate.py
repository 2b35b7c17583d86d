"""memplan validate without PyTorch: figures, snapshots, and what is said when something is missing. With PyTorch and the
emulated GPU in the build: the dry runs themselves."""
import json
import os
import pickle
import signal
import subprocess
import tempfile
import time

from support import BUILD, ROOT, check, equal, memplan, model, write

MLP = (model("mlp"), "--gpu", "h100-80gb", "--batch", "8")
SNAPSHOT = "data/measured/snapshots/mlp-h100.pickle"
STATS = "data/measured/snapshots/mlp-h100.stats.json"
# The counters of that run, as torch.cuda.memory_stats() of PyTorch 2.11.0 gave them.
TRUTH = {"requested": 184673356, "allocated": 184676864, "reserved": 195035136}


def refused(code, *words, env=None, must_say=()):
    answer = memplan("validate", *words, env=env)
    equal(answer.code, code, "exit code of validate " + " ".join(map(str, words)) + "\n" + answer.err)
    equal(answer.out, "", "stdout")
    equal(answer.err.count("\n"), 1, "lines of " + answer.err)
    for text in must_say:
        check(text in answer.err, f"{text!r} is missing in: {answer.err}")
    error = json.loads(memplan("validate", *words, "--format", "json", env=env).out)["error"]
    equal(error["code"], code, "code in JSON")


def test_a_compiled_setup_is_not_compared_with_an_eager_run():
    answer = memplan("validate", model("mlp"), "--compile", "--gpu", "h100-80gb")
    equal(answer.code, 2, "exit code")
    check("validate runs the eager program" in answer.err and answer.err.count("\n") == 1, answer.err)


def test_a_snapshot_is_compared_event_by_event():
    answer = memplan("validate", *MLP, "--measured", SNAPSHOT, "--format", "json")
    equal(answer.code, 0, answer.err)
    report = answer.json()
    for counter in ("requested", "reserved"):
        equal(report["peak"][counter], {"predicted_bytes": TRUTH[counter], "measured_bytes": TRUTH[counter]}, counter)
    check("allocated" not in report["peak"], "a trace does not tell block sizes")
    events = report["events"]
    equal(events["equal_allocations"], events["measured_allocations"], "allocations")
    equal(events["predicted_allocations"], events["measured_allocations"], "allocations")
    equal(report["first_divergence"], None, "divergence")
    equal(sum(b["bytes"] for b in report["largest_at_measured_peak"]), TRUTH["requested"], "blocks at the peak")
    check("AGREES" in memplan("validate", *MLP, "--measured", SNAPSHOT).out, "text")


def test_another_setup_differs_and_says_where():
    answer = memplan("validate", model("mlp"), "--gpu", "h100-80gb", "--batch", "64", "--measured", SNAPSHOT, "--format", "json", "--tolerance", "0")
    equal(answer.code, 1, answer.err)
    report = answer.json()
    first = report["first_divergence"]
    equal((first["kind"], first["step"], first["phase"]), ("size", 1, "data"), "first divergence")
    # The batch: float32[N, 1024] of the model's index.
    equal((first["predicted_bytes"] % 64, first["measured_bytes"] * 8), (0, first["predicted_bytes"]), "bytes of the batch")
    equal(report["agrees"], False, "agrees")


def test_memory_stats():
    answer = memplan("validate", *MLP, "--measured", STATS, "--format", "json")
    equal(answer.code, 0, answer.err)
    for counter, size in TRUTH.items():
        equal(answer.json()["peak"][counter], {"predicted_bytes": size, "measured_bytes": size}, counter)


def test_figures():
    for figure, counter, code in ((TRUTH["allocated"], "allocated", 0), ("176.12MiB", "allocated", 0), ("170MiB", "allocated", 1), ("186MiB", "reserved", 0)):
        words = ("validate", *MLP, "--measured", figure, "--counter", counter)
        equal(memplan(*words).code, code, f"{figure} {counter}")
    equal(memplan("validate", *MLP, "--measured", "170MiB", "--tolerance", "5%").code, 0, "tolerance")
    # nvidia-smi: the process, with its context
    report = memplan("validate", *MLP, "--measured", "700MiB", "--counter", "process", "--format", "json").json()
    equal(list(report["peak"]), ["process"], "counters")
    check(report["peak"]["process"]["predicted_bytes"] > TRUTH["reserved"], "a context")


def test_the_json_is_as_published():
    import jsonschema

    with open(os.path.join(ROOT, "docs", "validate.schema.json")) as f:
        schema = json.load(f)
    for words in ((*MLP, "--measured", SNAPSHOT), (*MLP, "--measured", STATS), (*MLP, "--measured", "1GiB"), (*MLP, "--measured", "nothing"), (*MLP, "--on", "moon")):
        jsonschema.validate(json.loads(memplan("validate", *words, "--format", "json").out), schema)


def test_the_same_input_gives_the_same_bytes():
    words = ("validate", *MLP, "--measured", SNAPSHOT, "--format", "json")
    equal(memplan(*words).out, memplan(*words).out, "two runs")


class Evil:
    def __reduce__(self):
        return (os.system, ("touch " + os.path.join(tempfile.gettempdir(), "memplan-was-fooled"),))


def test_hostile_files():
    marker = os.path.join(tempfile.gettempdir(), "memplan-was-fooled")
    if os.path.exists(marker):
        os.remove(marker)
    for protocol in range(2, 6):
        path = write(f"evil{protocol}.pickle", pickle.dumps({"segments": [], "device_traces": [Evil()]}, protocol))
        refused(3, *MLP, "--measured", path, must_say=("code",))
    check(not os.path.exists(marker), "code of a pickle was run")
    whole = open(os.path.join(ROOT, SNAPSHOT), "rb").read()
    for name, data in {"cut.pickle": whole[:len(whole) // 2], "empty.pickle": b"", "text.pickle": b"hello", "other.pickle": pickle.dumps([1, 2, 3]), "odd.json": b'{"a": 1}',
                       "list.json": b"[1]", "deep.json": b"[" * 100000, "negative.json": b'{"allocated_bytes.all.peak": -5}',
                       "types.pickle": pickle.dumps({"segments": 5, "device_traces": 6}), "sizes.pickle": pickle.dumps({"segments": [{"total_size": -1}], "device_traces": []}),
                       "action.pickle": pickle.dumps({"segments": [], "device_traces": [[{"action": 7}]]}), "deep.pickle": b"\x80\x04" + b"(" * 1000000}.items():
        refused(3, *MLP, "--measured", write(name, data))
    # One list in many places: the work is bounded, too.
    inner = [{"action": "alloc", "size": 1, "addr": i} for i in range(1000)]
    answer = memplan("validate", *MLP, "--measured", write("many.pickle", pickle.dumps({"segments": [{"blocks": inner, "total_size": 1}] * 200000, "device_traces": []}, 4)))
    equal(answer.code, 3, answer.err)


def test_snapshots_of_several_devices_and_frames():
    frames = [{"filename": "??", "name": "malloc", "line": 0}, {"filename": "/x/torch/nn/functional.py", "name": "linear", "line": 5}, {"filename": "/src/train.py", "name": "step", "line": 17}]
    frames[1:1] = [{"filename": f"/srv/build/torch/lib/python3.11/{p}-packages/torch/nn/functional.py", "name": "linear", "line": 4} for p in ("site", "dist")]
    frames.insert(2, {"filename": "??", "name": "PyEval", "line": 0})
    trace = [{"action": "segment_alloc", "size": 2 << 20, "addr": 4096, "stream": 0}, {"action": "alloc", "size": 1 << 20, "addr": 4096, "stream": 0, "frames": frames}]
    segment = {"device": 1, "address": 4096, "total_size": 2 << 20, "allocated_size": 1 << 20, "stream": 0, "segment_type": "small",
               "blocks": [{"address": 4096, "size": 1 << 20, "requested_size": 1 << 20, "state": "active_allocated", "frames": frames}, {"address": 4096 + (1 << 20), "size": 1 << 20, "state": "inactive"}]}
    for name, data in (("two.pickle", pickle.dumps({"segments": [segment], "device_traces": [[], trace]}, 4)), ("two.json", json.dumps({"segments": [segment], "device_traces": [[], trace]}).encode())):
        report = memplan("validate", *MLP, "--measured", write(name, data), "--format", "json").json()
        equal(report["largest_at_measured_peak"], [{"bytes": 1 << 20, "where": "train.py:17 step"}], name)
        equal(report["peak"]["reserved"]["measured_bytes"], 2 << 20, name)
    # A library's line, of an environment that lies in a folder "torch": it is not PyTorch's.
    frames.insert(0, {"filename": "/srv/build/torch/lib/python3.11/site-packages/transformers/loss.py", "name": "fixed_cross_entropy", "line": 36})
    report = memplan("validate", *MLP, "--measured", write("three.pickle", pickle.dumps({"segments": [segment], "device_traces": [[], trace]}, 4)), "--format", "json").json()
    equal(report["largest_at_measured_peak"], [{"bytes": 1 << 20, "where": "loss.py:36 fixed_cross_entropy"}])


def test_what_cannot_be_run_is_refused_with_its_reason():
    for words, said in (("--gpus 2", "--gpus: a dry run cannot execute a job of several GPUs"), ("--gpus 2 --fsdp", "several GPUs"), ("--tp 2", "--tp: "), ("--pp 2", "--pp: "),
                        ("--checkpoint blocks --checkpoint-save matmul", "selective checkpointing"), ("--checkpoint optimal", "yet to be chosen"),
                        ("--mode inference --offload parameters", "accelerate's hooks"), ("--offload activations --checkpoint blocks", "which arguments of a module are keywords"),
                        ("--qlora r=8", "bitsandbytes"), ("--optimizer adamw8bit", "bitsandbytes"), ("--optimizer-impl fused --precision amp-fp16", "under a gradient scaler")):
        refused(2, model("llama-tiny"), "--batch", "2", "--seq", "64", "--on", "emulated:l4", *words.split(), must_say=(said,))


def test_what_is_missing_is_said_in_one_line():
    nowhere = {"MEMPLAN_TORCH": "/nonexistent/memplan-torch"}
    refused(2, *MLP[:1], "--batch", "8", "--on", "cuda", env=nowhere, must_say=("pip install torch",))
    refused(2, *MLP[:1], "--batch", "8", "--on", "emulated:l4", env={"MEMPLAN_EMULATED_GPU": "/nonexistent/lib.so"}, must_say=("MEMPLAN_EMULATED_GPU",))
    # A program that is there but has no PyTorch to load: the dynamic loader ends it with 127.
    stub = write("memplan-torch", b"#!/bin/sh\nexit 127\n")
    os.chmod(stub, 0o755)
    lonely = {"MEMPLAN_TORCH": stub, "MEMPLAN_TORCH_PYTHON": "", "PATH": "/nonexistent"}
    refused(2, *MLP[:1], "--batch", "8", "--on", "cuda", env=lonely, must_say=("PyTorch", "pip install torch"))
    refused(2, *MLP, "--on", "moon", must_say=("emulated", "cuda"))
    refused(2, *MLP, "--on", "emulated:l4", must_say=("--gpu",))
    refused(2, model("mlp"), "--on", "emulated:l9", must_say=("l9",))
    refused(2, *MLP, "--on", "cuda", "--measured", "1GiB", must_say=("--measured",))
    refused(2, *MLP, "--measured", "1GiB", "--counter", "active", must_say=("requested",))
    refused(3, *MLP, "--measured", "no-such-file", must_say=("figure",))
    refused(3, "no-such-model.onnx", "--measured", "1GiB")


def test_a_companion_that_misbehaves():
    library = write("lib.so", b"")
    for name, script, says in (("crash", "kill -SEGV $$", "signal"), ("nonsense", "cat > /dev/null; echo nonsense", "no answer"), ("empty", "exit 0", "no answer"),
                               ("half", "printf '{\"reply\": {\"steps\": ['", "no answer"), ("odd", "echo '{\"reply\": {\"steps\": 5}}'", "not as expected"),
                               ("slow", "exec sleep 60", "longer than 1 s")):
        path = write("memplan-torch-" + name, ("#!/bin/sh\n" + script + "\n").encode())
        os.chmod(path, 0o755)
        refused(70, *MLP, "--on", "cuda", "--timeout", "1" if name == "slow" else "60", env={"MEMPLAN_TORCH": path, "MEMPLAN_EMULATED_GPU": library}, must_say=(says,))


def live():
    return os.path.exists(os.path.join(BUILD, "memplan-torch")) and os.path.exists(os.path.join(BUILD, "emulated_gpu", "libemulated_gpu.so"))


def test_dry_runs_agree():
    if not live():
        return
    for words in ((model("mlp"), "--batch", "8"), (model("resnet18"), "--batch", "4", "--amp", "fp16", "--clip", "--accumulate", "2"),
                  (model("gpt2"), "--batch", "2", "--seq", "128", "--optimizer", "sgd-momentum", "--precision", "bf16"),
                  (model("gpt2"), "--batch", "2", "--seq", "256", "--checkpoint", "blocks"), (model("resnet18"), "--batch", "4", "--mode", "inference")):
        answer = memplan("validate", *words, "--on", "emulated:a100-80gb", "--format", "json", timeout=300)
        equal(answer.code, 0, answer.out + answer.err)
        report = answer.json()
        for counter, pair in report["peak"].items():
            equal(pair["predicted_bytes"], pair["measured_bytes"], f"{counter} of {words}")
        # Where modules run again, some frees come between other allocations: docs/validate.md, "Limits".
        if "--checkpoint" not in words:
            equal(report["first_divergence"], None, "divergence of " + " ".join(words))


def test_a_dry_run_on_a_card_that_is_too_small():
    if not live():
        return
    answer = memplan("validate", model("gpt2"), "--batch", "64", "--seq", "1024", "--on", "emulated:t4", "--format", "json", timeout=300)
    equal(answer.code, 0, answer.out + answer.err)
    check(answer.json()["out_of_memory"]["measured"] and answer.json()["out_of_memory"]["predicted"], "both run out of memory")


def test_a_dry_run_that_is_killed_leaves_nothing():
    if not live():
        return
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "report.json")
        p = subprocess.Popen([os.path.join(BUILD, "memplan"), "validate", model("gpt2"), "--batch", "4", "--seq", "512", "--on", "emulated:a100-80gb", "-o", out], cwd=ROOT,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        child = None
        for _ in range(500):
            kids = subprocess.run(["ps", "--ppid", str(p.pid), "-o", "pid="], stdout=subprocess.PIPE, text=True).stdout.split()
            if kids:
                child = int(kids[0])
                break
            time.sleep(0.01)
        check(child, "memplan-torch was not started")
        p.send_signal(signal.SIGKILL)
        p.wait()
        for _ in range(500):
            # A zombie without a parent is init's business; anything else has to be gone.
            try:
                with open(f"/proc/{child}/stat") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                        break
            except OSError:
                break
            time.sleep(0.01)
        else:
            raise AssertionError("memplan-torch outlives memplan")
        equal(os.listdir(folder), [], "files left behind")
