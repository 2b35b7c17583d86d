#!/usr/bin/env python3
"""memplan as people install it: python tests/install/run.py [--build build/release] [--wheel FILE] [--torch PYTHON …]

The wheel that `make wheel` made, in fresh environments, with nothing on PATH but what they bring: its size, what it needs of the
machine, how long it takes to install and to start, and `memplan observe` with the PyTorch of every --torch (MEMPLAN_TORCH_PYTHONS,
separated by colons; otherwise the build's). Without a wheel only what needs none is tested, and that is said. A cross-built wheel for
64-bit ARM (`make wheel-aarch64`) runs under qemu-aarch64-static, and its answer is that of --build. The last line is "N passed, N failed".
"""
import argparse
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.dirname(HERE))
import build_tree

MODEL = os.path.join(ROOT, "data", "models", "gpt2.onnx")
SCRIPT = os.path.join(HERE, "train.py")
settings = argparse.Namespace()


def run(*words, code=0, **kw):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", timeout=600, **kw)
    assert done.returncode == code, f"{' '.join(words)[:120]} ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}"
    return done


def environment(folder, python=sys.executable):
    """An environment without pip, into which this interpreter's pip installs the wheel. The Python, and the seconds that took."""
    run(python, "-m", "venv", "--without-pip", folder)
    inside = os.path.join(folder, "bin", "python")
    started = time.monotonic()
    run(sys.executable, "-m", "pip", "--python", inside, "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", settings.wheel)
    return inside, time.monotonic() - started


def bare(folder):
    """Nothing on PATH but the environment: no compiler, and none of this machine's memplan."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MEMPLAN_", "EMULATED_GPU")) and k not in ("PYTHONPATH", "CC", "CXX")}
    return clean | {"PATH": os.path.join(folder, "bin")}


def test_configures_in_an_activated_environment():
    """What stands between a clone and `pip install .`: the build asks neither pip nor the network for anything."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", "--without-pip", os.path.join(folder, "venv"))
        path = os.path.join(folder, "venv", "bin") + ":" + os.environ["PATH"]
        run("cmake", "-S", ROOT, "-B", os.path.join(folder, "build"), "-G", "Ninja", "-DMEMPLAN_TESTS=OFF", env=os.environ | {"PATH": path, "VIRTUAL_ENV": os.path.join(folder, "venv")})


def needs_wheel_size_and_tags():
    assert os.path.getsize(settings.wheel) <= 25 << 20
    assert re.search(r"-py3-none-manylinux_2_17_\w+\.musllinux_1_1_\w+\.whl$", settings.wheel), settings.wheel
    names = zipfile.ZipFile(settings.wheel).namelist()
    for licence in ("LICENSE", "onnx", "protobuf", "libzip", "mimalloc"):
        assert any(name.endswith("/licenses/" + licence) for name in names), licence


def needs_wheel_program_needs_no_library():
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(settings.wheel) as wheel:
            for name in wheel.namelist():
                if name.endswith("/scripts/memplan") or name.endswith(".so"):
                    wheel.extract(name, folder)
        program, library = glob.glob(f"{folder}/*/scripts/memplan")[0], glob.glob(f"{folder}/*/data/lib/memplan/*.so")[0]
        assert "NEEDED" not in run("readelf", "-d", program).stdout
        asked = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", run("objdump", "-T", library).stdout)]
        assert max(asked) <= (2, 17), max(asked)
        asked = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBCXX_([0-9.]+)", run("objdump", "-T", library).stdout)]
        assert max(asked) <= (3, 4, 19), max(asked)  # the one of manylinux_2_17
        if os.geteuid() == 0:  # a root folder with nothing in it but the program and a model
            os.chmod(program, 0o755)
            inside = os.path.join(folder, "root")
            os.mkdir(inside)
            for file in (program, MODEL):
                os.link(file, os.path.join(inside, os.path.basename(file))) if os.stat(file).st_dev == os.stat(inside).st_dev else run("cp", file, inside)
            answer = run("chroot", inside, "/memplan", "/gpt2.onnx", "--gpu", "24GB", "--batch", "8", "--seq", "1024")
            assert "FITS" in answer.stdout


def needs_wheel_installs_and_starts_fast():
    with tempfile.TemporaryDirectory() as folder:
        _, seconds = environment(folder)
        program = os.path.join(folder, "bin", "memplan")
        run(program, "--version", env=bare(folder))
        starts = []
        for _ in range(20):
            begin = time.perf_counter()
            run(program, "--version", env=bare(folder))
            starts.append(time.perf_counter() - begin)
        print(f"installed in {seconds:.1f} s; --version in {min(starts) * 1000:.1f} ms")
        # The quickest of twenty: the machine may be busy with other tests.
        assert min(starts) < 0.010, starts
        assert seconds < 5 * max(1.0, os.getloadavg()[0] / os.cpu_count()), seconds


def arm_wheel_answers_alike():
    """The whole answer of the cross-built program, figure by figure: `char` has no sign there, and long double is another."""
    program = os.path.join(settings.build, "memplan")
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(settings.arm_wheel) as wheel:
            names = [name for name in wheel.namelist() if name.endswith("/scripts/memplan")]
            wheel.extract(names[0], folder)
        arm = os.path.join(folder, names[0])
        os.chmod(arm, 0o755)
        assert os.path.getsize(settings.arm_wheel) <= 25 << 20
        assert re.search(r"-py3-none-manylinux_2_17_aarch64\.musllinux_1_1_aarch64\.whl$", settings.arm_wheel), settings.arm_wheel
        assert "NEEDED" not in run("readelf", "-d", arm).stdout and "AArch64" in run("readelf", "-h", arm).stdout
        for flags in (["--batch", "8", "--seq", "1024"], ["--batch", "8", "--seq", "512", "--amp", "bf16", "--checkpoint", "blocks"]):
            words = [MODEL, "--gpu", "24GB", "--format", "json", *flags]
            assert run("qemu-aarch64-static", arm, *words).stdout == run(program, *words).stdout, flags


def observe_with(python):
    packages = run(python, "-c", "import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))").stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        inside, _ = environment(folder, python)
        own = run(inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        with open(os.path.join(own, "torch_of_the_test.pth"), "w") as f:
            f.write(packages + "\n")
        answer = run("memplan", "observe", "--gpu", "h100-80gb", "--format", "json", "--", "python", SCRIPT, env=bare(folder))
        report = json.loads(answer.stdout)
        counters = [tuple(map(int, m)) for m in re.findall(r"own counters: (\d+) (\d+) (\d+)", answer.stderr)]
        rank = report["ranks"][0]
        print(f"PyTorch {report['torch']}: requested {rank['requested_bytes']}, reserved {rank['reserved_bytes']}")
        assert (rank["requested_bytes"], rank["allocated_bytes"], rank["reserved_bytes"]) == counters[-1], (rank, counters)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--wheel", default=max(glob.glob(os.path.join(ROOT, "build", "dist", f"memplan-*_{platform.machine()}.whl")), key=os.path.getmtime, default=None))
    parser.add_argument("--torch", nargs="*", default=[p for p in os.environ.get("MEMPLAN_TORCH_PYTHONS", "").split(":") if p])
    parser.parse_args(namespace=settings)
    tests = [(name, f) for name, f in sorted(globals().items()) if name.startswith("test_")]
    if settings.wheel:
        settings.wheel = os.path.abspath(settings.wheel)
        tests += [(name, f) for name, f in sorted(globals().items()) if name.startswith("needs_wheel_")]
        given = settings.torch or [p for p in [build_tree.cached(settings.build, "MEMPLAN_TORCH_PYTHON")] if p]
        tests += [(f"observe with {python}", lambda python=python: observe_with(python)) for python in given]
    settings.arm_wheel = max(glob.glob(os.path.join(ROOT, "build", "dist", "memplan-*_aarch64.whl")), key=os.path.getmtime, default=None)
    if settings.arm_wheel and platform.machine() == "x86_64" and shutil.which("qemu-aarch64-static"):
        tests.append(("wheel for 64-bit ARM", arm_wheel_answers_alike))
    if not settings.wheel:
        print("there is no wheel below build/dist (make wheel): what needs one is left out")
    failed = 0
    for name, test in tests:
        try:
            test()
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
