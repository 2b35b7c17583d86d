#!/usr/bin/env python3
"""The Python module as people get it: python tests/python/run.py [--build build/release] [--from-source]

Makes a wheel with pip, installs it into a throw-away environment and runs cases.py there. The wheel holds the program
of --build; with --from-source pip compiles it. Cases with modules run where this interpreter, or the one that the build
knows as MEMPLAN_TORCH_PYTHON, has PyTorch. The last line is "N passed, N failed".
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import build_tree

ROOT = os.path.dirname(os.path.dirname(HERE))


def run(*words, **kw):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **kw)
    if done.returncode:
        print(done.stdout)
        raise RuntimeError(f"{' '.join(words[:6])} … ended with {done.returncode}")
    return done.stdout


def packages_of(python):
    """The folder of an interpreter's packages, if torch is among them."""
    try:
        return run(python, "-c", "import os, importlib.util as u; s = u.find_spec('torch'); print(os.path.dirname(os.path.dirname(s.origin)) if s else '')").strip()
    except (OSError, RuntimeError):
        return ""


def make_wheel(build, folder, from_source):
    words = [sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--quiet", "--disable-pip-version-check", "--wheel-dir", folder]
    if not from_source:
        words += ["-C", f"cmake.define.MEMPLAN_PREBUILT={os.path.join(build, 'memplan')}"]
    # Its own build folder, so that a wheel packed here and one of `pip install .` never mix.
    run(*words, "-C", f"build-dir={os.path.join(build, 'wheel-source' if from_source else 'wheel')}")
    return glob.glob(os.path.join(folder, "memplan-*.whl"))[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--from-source", action="store_true")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    with tempfile.TemporaryDirectory(prefix="memplan-python-") as folder:
        try:
            wheel = make_wheel(build, folder, options.from_source)
            torch_python = next((p for p in (sys.executable, build_tree.cached(build, "MEMPLAN_TORCH_PYTHON")) if p and packages_of(p)), None)
            venv = os.path.join(folder, "venv")
            run(torch_python or sys.executable, "-m", "venv", "--without-pip", venv)
            python = os.path.join(venv, "bin", "python")
            run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", wheel)
        except Exception as error:
            print(f"FAILED to make the wheel: {error}\n0 passed, 1 failed")
            return 1
        clean = {k: v for k, v in os.environ.items() if not k.startswith("MEMPLAN_") and k != "PYTHONPATH"}
        torch_folder = packages_of(torch_python) if torch_python else ""
        done = subprocess.run([python, os.path.join(HERE, "cases.py"), wheel, torch_folder], cwd=folder, env=clean | {"MEMPLAN_MODELS": os.path.join(ROOT, "data", "models")})
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
