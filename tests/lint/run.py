#!/usr/bin/env python3
"""clang-tidy with the checks of .clang-tidy over the sources; no finding is let through.

    python tests/lint/run.py [--build build/release] [--since COMMIT]

Files of a folder are looked at together, as they are compiled, which takes a quarter of the time. --since: only folders with a
source that differs from COMMIT. Where clang-tidy 14 is not installed nothing is checked, and the last line says "0 passed, 0 failed".
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
# Sources of others, and what is compiled against PyTorch's headers, which its own build looks at.
NOT_OURS = ("/generated/", "onnx-proto", "/tests/", "/emulated_gpu/", "/memplan_torch/")


def tool():
    found = next((t for t in ("clang-tidy-14", "clang-tidy") if shutil.which(t)), None)
    if not found:
        return None
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
    return found if re.search(r"version 14\.", version) else None


def members(path):
    """The sources that a file of the build stands for."""
    if "/Unity/" not in path:
        return [path]
    with open(path) as f:
        return re.findall(r'#include "([^"]+\.cpp)"', f.read())


def changed_folders(since):
    names = subprocess.run(["git", "diff", "--name-only", since, "--", "*.cpp", "*.h"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {os.path.dirname(os.path.join(ROOT, name)) for name in names.split()}


def units(build, since):
    with open(os.path.join(build, "compile_commands.json")) as f:
        paths = [entry["file"] for entry in json.load(f)]
    ours = [p for p in paths if not any(part in p for part in NOT_OURS)]
    if since is None:
        return ours
    folders = changed_folders(since)
    return [p for p in ours if any(os.path.dirname(source) in folders for source in members(p))]


def look_at(clang_tidy, build, path):
    done = subprocess.run([clang_tidy, "-p", build, "--quiet", f"--config-file={os.path.join(ROOT, '.clang-tidy')}", path], cwd=ROOT, capture_output=True, text=True)
    return path, done.returncode, done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--since", metavar="COMMIT")
    options = parser.parse_args()
    clang_tidy = tool()
    if not clang_tidy:
        print("clang-tidy 14 is not installed; as root: apt-get install clang-tidy\n0 passed, 0 failed")
        return 0
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, status, findings in pool.map(lambda p: look_at(clang_tidy, options.build, p), units(options.build, options.since)):
            if status == 0:
                passed += 1
                continue
            failed += 1
            print(f"{os.path.basename(path)}:\n{findings}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
