"""memplan calibrate: what it keeps of a card, how estimates take it, and that nothing half-made or impossible is taken."""
import csv
import json
import os
import signal
import subprocess
import time

import build_tree
from support import BUILD, ROOT, check, equal, memplan, model, scratch, write

MIB = 1 << 20
PROFILE = """format = 1
date = 2026-11-22
card = "rtx3060-12gb"
name = "NVIDIA GeForce RTX 3060"
driver = "580.65.06"
torch = "2.11.0+cu130"
cuda = "13.0"
cudnn = "9.19.0"
nccl = "2.28.9"
module_loading = "LAZY"
platform = "linux"
compute_capability = 86
multiprocessors = 28
threads_per_multiprocessor = 1536
[memory]
total = 12000000000
nvidia_smi_total = 12884901888
free = 11000000000
[context]
least = 209715200
usual = 314572800
most = 471859200
[[library]]
after = "cuBLAS"
bytes = 209715200
"""
SAID = dict(name="NVIDIA GeForce RTX 3060", driver="580.65.06", capability=[8, 6], multiprocessors=28, threads_per_multiprocessor=1536, torch="2.11.0+cu130", cuda="13.0",
            cudnn="9.19.0", nccl="2.28.9", loading="LAZY", platform="linux", mig=False, total_bytes=12627203850, smi_total_bytes=12 << 30, free_bytes=11 << 30,
            growth=[dict(after="a backward pass", bytes=200 * MIB), dict(after="attention", bytes=300 * MIB), dict(after="cuSPARSE", bytes=450 * MIB)],
            context=dict(least=200 * MIB, usual=300 * MIB, most=450 * MIB), workspaces=dict(cublas=8519680), allocator=dict(block=512), lacking=[])


def settings(name, text=None, card="rtx3060-12gb"):
    """A folder of settings, with a profile or without."""
    folder = scratch("config-" + name)
    os.makedirs(os.path.join(folder, "memplan", "gpus"), exist_ok=True)
    if text is not None:
        with open(profile(folder, card), "w") as f:
            f.write(text)
    return folder


def profile(folder, card="rtx3060-12gb"):
    return os.path.join(folder, "memplan", "gpus", card + ".toml")


def ask(folder, *words, gpu="rtx3060-12gb", code=0):
    answer = memplan(model("mlp"), "--gpu", gpu, "--no-search", "--format", "json", *words, env={"XDG_CONFIG_HOME": folder})
    equal(answer.code, code, answer.out + answer.err)
    return answer.json()


def python_that(name, script):
    """A Python that has torch as far as anybody looks, and measures as `script` says."""
    path = scratch(name)
    with open(path, "w") as f:
        f.write("#!/bin/sh\ncase \"$2\" in *find_spec*) exit 0;; esac\n" + script + "\n")
    os.chmod(path, 0o755)
    return path


def says(name, *lines):
    return python_that(name, "cat <<'END'\n" + "\n".join(map(json.dumps, lines)) + "\nEND")


def calibrate(python, folder, *words, code=0, **env):
    answer = memplan("calibrate", *words, env={"MEMPLAN_TORCH_PYTHON": python, "XDG_CONFIG_HOME": folder, **env})
    equal(answer.code, code, answer.out + answer.err)
    return answer


def test_an_estimate_takes_what_was_measured_of_the_card():
    report = ask(settings("taken", PROFILE))
    equal(report["device"]["usable_bytes"], 12000000000)
    equal(report["device"]["context_bytes"], 300 * MIB)
    part = [p for p in report["breakdown"] if p["category"] == "context"][0]
    equal((part["bytes"], part["basis"]), (300 * MIB, "calibrated"))
    counters, ranges = report["counters"], report["ranges"]
    equal(counters["process_bytes"] - counters["reserved_bytes"], 300 * MIB)
    beside = {key: ranges["process_bytes"][key] - ranges["reserved_bytes"][key] for key in ("low_bytes", "high_bytes")}
    equal(beside, {"low_bytes": 200 * MIB, "high_bytes": 450 * MIB})
    check(any("measured here on 2026-11-22, driver 580.65.06, PyTorch 2.11.0+cu130" in a for a in report["assumptions"]), report["assumptions"])
    check("measured here" in memplan("devices", "rtx3060-12gb", env={"XDG_CONFIG_HOME": settings("taken", PROFILE)}).out, "memplan devices says so")


def test_what_is_given_and_what_names_no_card_stays():
    folder, own = settings("stays", PROFILE), settings("none")

    def figures(report):
        return report["device"], report["ranges"]["process_bytes"]

    equal(figures(ask(folder, "--calibration", "none")), figures(ask(own)))
    for gpu in ("12GB", "h100-80gb"):  # a class of cards; another card
        equal(figures(ask(folder, gpu=gpu)), figures(ask(own, gpu=gpu)))
    equal(ask(folder, "--reserve", "1GiB")["device"]["context_bytes"], 1 << 30)
    elsewhere = os.path.join(settings("elsewhere", PROFILE), "memplan", "gpus", "rtx3060-12gb.toml")
    equal(ask(own, "--calibration", elsewhere)["device"]["context_bytes"], 300 * MIB)
    other = memplan(model("mlp"), "--gpu", "t4", "--calibration", elsewhere)
    equal(other.code, 2)
    check("the profile is of rtx3060-12gb, and t4 is estimated" in other.err, other.err)


def test_a_card_that_no_table_has():
    text = PROFILE.replace("rtx3060-12gb", "nvidia-geforce-rtx-9070").replace("NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 9070")
    folder = settings("unknown", text, "nvidia-geforce-rtx-9070")
    report = ask(folder, gpu="nvidia-geforce-rtx-9070")
    equal((report["device"]["key"], report["device"]["usable_bytes"]), ("nvidia-geforce-rtx-9070", 12000000000))
    check("unknown GPU" in memplan(model("mlp"), "--gpu", "nvidia-geforce-rtx-9070").err, "without the profile nobody knows it")


def test_a_gate_is_the_same_on_every_machine():
    config = write("calibrated.toml", '[[target]]\nname = "one"\nmodel = "mlp.onnx"\ngpu = "rtx3060-12gb"\n'.encode())
    with open(os.path.join(ROOT, model("mlp")), "rb") as f:
        write("mlp.onnx", f.read())
    peaks = [memplan("check", "--config", config, "--format", "json", env={"XDG_CONFIG_HOME": folder}).json()["targets"][0]["report"]["summary"]["peak_bytes"]
             for folder in (settings("gate", PROFILE), settings("none"))]
    equal(peaks[0], peaks[1])


def test_profiles_that_cannot_be_are_refused():
    for name, before, after, says_what in (
        ("text", PROFILE, "[`a]", "this is not TOML"),
        ("format", "format = 1", "format = 2", "reads profiles of format 1"),
        ("lacks", 'driver = "580.65.06"\n', "", "lacks 'driver'"),
        ("key", 'cuda = "13.0"', 'cuda = "13.0"\ncolour = "red"', "'colour' is no key of a profile"),
        ("inner", "free = 11000000000", "free = 11000000000\nspare = 1", "'spare' is no key of [memory]"),
        ("type", "total = 12000000000", 'total = "12 GB"', "'total' is no whole number"),
        ("huge", "total = 12000000000", "total = 9000000000000000000", "which no card has"),
        ("negative", "least = 209715200", "least = -1", "which no card has"),
        ("order", "usual = 314572800", "usual = 514572800", "not in this order"),
        ("beyond", "most = 471859200", "most = 13000000000", "not in this order"),
        ("other", 'card = "rtx3060-12gb"', 'card = "t4"', "not the card that the file is named after"),
        ("date", "date = 2026-11-22", 'date = "today"', "'date' is no date"),
        ("escape", "NVIDIA GeForce RTX 3060", "\\u001b[31m", "'name' is no short text"),
        ("large", "format = 1", "format = 1 #" + 70000 * "x", "larger than 64 KiB"),
        ("row", 'after = "cuBLAS"', 'after = "cuBLAS"\nwhy = 1', "'why' is no key of [[library]]"),
    ):
        answer = memplan(model("mlp"), "--gpu", "rtx3060-12gb", env={"XDG_CONFIG_HOME": settings("bad-" + name, PROFILE.replace(before, after))})
        equal(answer.code, 2, name)
        check(says_what in " ".join(answer.err.split()) and answer.err.count("error:") == 1, f"{name}: {answer.err}")


def test_what_was_measured_is_kept_and_read_again():
    folder = scratch("config-kept")
    answer = calibrate(says("measures", dict(measured=SAID), dict(nccl=[dict(after="communicator", bytes=96 * MIB)])), folder)
    check("rtx3060-12gb" in answer.out and "300.0 MiB with convolutions and attention" in answer.out, answer.out)
    equal(os.listdir(os.path.dirname(profile(folder))), ["rtx3060-12gb.toml"])
    with open(profile(folder)) as f:
        check("communicator" in f.read(), "NCCL's step is there")
    report = ask(folder)
    equal((report["device"]["usable_bytes"], report["device"]["context_bytes"]), (12627203850, 300 * MIB))


def test_rows_for_the_tables():
    answer = calibrate(says("submits", dict(measured=SAID)), scratch("config-submitted"), "--submit")
    check(not os.path.exists(scratch("config-submitted")), "nothing is kept")
    with open(os.path.join(ROOT, "data", "context", "rows.csv"), newline="") as f:
        head = next(csv.reader(f))
    lines = answer.out.splitlines()
    row = dict(zip(head, next(csv.reader([lines[1]])), strict=True))
    equal((row["card"], row["sm"], row["multiprocessors"], row["outside_MiB"], row["used"], row["loading"]), ("rtx3060-12gb", "86", "28", "300", "yes", "lazy"))
    equal(json.loads(lines[-1])["outside_bytes"]["cuSPARSE"], 450 * MIB)
    wsl = calibrate(says("wsl", dict(measured=dict(SAID, platform="wsl"))), scratch("config-submitted"), "--submit")
    check(wsl.out.splitlines()[1].endswith(",no,WSL"), wsl.out)


def test_a_card_that_cannot_be_measured_leaves_no_profile():
    folder = scratch("config-refused")
    for name, python, says_what in (
        ("busy", says("busy", dict(refused="the GPU is busy: 90 MiB of 12042 are free", hint="try again later")), "the GPU is busy"),
        ("dies", python_that("dies", "echo 'Segmentation fault' >&2; exit 139"), "PyTorch ended before it said anything: Segmentation fault"),
        ("garbage", python_that("calibration-garbage", "echo hello; echo '[1, 2]'; head -c 100 /dev/urandom"), "PyTorch ended before it said anything"),
        ("none", "/nonexistent/python3", "a card is measured by PyTorch, and no Python runs here"),
    ):
        answer = calibrate(python, folder, code=2)
        check(says_what in " ".join(answer.err.split()) and answer.err.count("error:") == 1, f"{name}: {answer.err}")
    equal(calibrate(says("odd", dict(measured=dict(SAID, capability="8.6"))), folder, code=70).out, "")
    equal(calibrate(says("beside", dict(measured=SAID)), write("no-folder", b""), code=3).out, "")  # the settings' folder is a file
    check(not os.path.exists(folder), "no profile")


def test_killed_half_way():
    folder = scratch("config-killed")
    python = says("slow", dict(measured=SAID))
    with open(python, "a") as f:
        f.write("sleep 60\n")
    env = dict(os.environ, MEMPLAN_TORCH_PYTHON=python, XDG_CONFIG_HOME=folder)
    process = subprocess.Popen([os.path.join(BUILD, "memplan"), "calibrate"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    check(not os.path.exists(folder), "nothing was written")


def test_pytorch_measures_the_emulated_card():
    found = build_tree.emulated(BUILD)
    if not found:
        return
    python, library = found
    folder, emulated = scratch("config-live"), dict(LD_PRELOAD=library, EMULATED_GPU="l4", EMULATED_GPU_CONTEXT=str(600 * MIB))

    def live(*words, code=0, **env):
        answer = memplan("calibrate", *words, timeout=200, env={"MEMPLAN_TORCH_PYTHON": python, "XDG_CONFIG_HOME": folder, **env})
        equal(answer.code, code, answer.out + answer.err)
        return answer

    check("PyTorch finds no GPU here" in live(code=2, CUDA_VISIBLE_DEVICES="").err, "without the emulated card")
    check("there is no GPU 3" in live("--device", "3", code=2, **emulated).err, "one that is not there")
    check("the GPU is busy" in live(code=2, **{**emulated, "EMULATED_GPU_TOTAL": str(800 * MIB)}).err, "too little is free")
    check(not os.path.exists(folder), "no profile")
    live(**emulated)
    report = ask(folder, gpu="l4")
    equal(report["device"]["context_bytes"], 600 * MIB)
    with open(profile(folder, "l4")) as f:
        text = f.read()
    # PyTorch's own constants: kMinBlockSize, kSmallBuffer, kLargeBuffer, kRoundLarge; the workspace of cuBLAS before Hopper (4096 KiB x 2 + 16 KiB x 8).
    for name, size in (("block", 512), ("small_segment", 2 * MIB), ("large_segment", 20 * MIB), ("granularity", 2 * MIB), ("cublas", 8 * MIB + 128 * 1024)):
        check(f'after = "{name}"\nbytes = {size}\n' in text, f"{name}: {text}")
