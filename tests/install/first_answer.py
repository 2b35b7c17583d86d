#!/usr/bin/env python3
"""How long a newcomer waits for the first answer: python tests/install/first_answer.py [--source] [--wheel FILE]

--source: a clone of this repository's last commit, `make demo` there, without a compiler cache; processor time of all of it.
--wheel: a fresh environment, `pip install FILE` and one question; seconds. Debian's packages are there already in both. The last line is "N passed, N failed":
a first answer has to come within 5 minutes of processor time from source, and within 30 seconds with the wheel.
"""
import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
QUESTION = ("--gpu", "24GB", "--batch", "8", "--seq", "1024")


def measured(name, words, **kw):
    """Runs it. Seconds that passed, and seconds of processors."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **kw)
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name}: {seconds:.1f} s, {used / 60:.2f} minutes of processor time", flush=True)
    assert done.returncode == 0, done.stdout[-3000:]
    return seconds, used, done.stdout


def from_source():
    with tempfile.TemporaryDirectory() as folder:
        clone = os.path.join(folder, "memplan")
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", clone], check=True)
        _, used, text = measured("make demo", ["make", "-C", clone, "demo"], env=os.environ | {"CCACHE_DISABLE": "1"})
        assert "FITS" in text and "warning:" not in text, text[-3000:]
        return used <= 5 * 60


def with_wheel(wheel):
    with tempfile.TemporaryDirectory() as folder:
        inside = os.path.join(folder, "venv", "bin")
        answer = f'"{sys.executable}" -m venv venv && venv/bin/python -m pip install --quiet --disable-pip-version-check --no-index "{wheel}" && venv/bin/memplan "{ROOT}/data/models/gpt2.onnx" {" ".join(QUESTION)}'
        seconds, _, text = measured("wheel", ["sh", "-c", answer], cwd=folder, env=os.environ | {"PATH": inside + ":/usr/bin:/bin"})
        assert "FITS" in text, text[-3000:]
        return seconds <= 30


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", action="store_true")
    parser.add_argument("--wheel")
    a = parser.parse_args()
    results = ([from_source()] if a.source else []) + ([with_wheel(os.path.abspath(a.wheel))] if a.wheel else [])
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
