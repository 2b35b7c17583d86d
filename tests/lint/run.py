#!/usr/bin/env python3
"""clang-tidy with the checks of .clang-tidy over the sources; no finding is let through.

    python tests/lint/run.py [--build build/release] [--since COMMIT | --recent] [--afresh]

Files of a folder are looked at together, as they are compiled, which takes a quarter of the time. Those without a finding are not looked
at again until one of their sources, of the project's headers that they include, of their compiler's flags or of the checks has changed:
BUILD/lint.json has a hash of all these. --afresh: all of them. --since: only what has a source, or includes a header, that differs from
COMMIT. --recent: from the last commit that was two hours old when the newest one was made, which is what `make test` does; `make lint`
looks at everything. Where clang-tidy 14 is not installed nothing is checked, and the last line says "0 passed, 0 failed".
"""
import argparse
import concurrent.futures
import functools
import hashlib
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
    """The program and what it says of its version, or nothing."""
    found = next((t for t in ("clang-tidy-14", "clang-tidy") if shutil.which(t)), None)
    if not found:
        return None, ""
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
    return (found, version) if re.search(r"version 14\.", version) else (None, "")


def members(path):
    """The sources that a file of the build stands for."""
    if "/Unity/" not in path:
        return [path]
    with open(path) as f:
        return re.findall(r'#include "([^"]+\.cpp)"', f.read())


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def some_hours_before():
    """The commit that --recent compares with; None where there is none, or no repository."""
    try:
        newest = int(git("log", "-1", "--format=%ct"))
        return git("log", "-1", f"--before={newest - 2 * 3600}", "--format=%H") or None
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def units(build, since):
    """{file of the build: its compiler's command}"""
    with open(os.path.join(build, "compile_commands.json")) as f:
        ours = {entry["file"]: entry["command"] for entry in json.load(f) if not any(part in entry["file"] for part in NOT_OURS)}
    if since is None:
        return ours
    changed = {os.path.join(ROOT, name) for name in git("diff", "--name-only", since, "--", "*.cpp", "*.h").split()}
    return {p: command for p, command in ours.items() if any(differs(source, changed) for source in members(p))}


def differs(source, changed):
    return source in changed or any(os.path.join(ROOT, name) in changed for name in text_and_includes(source)[1])


@functools.cache
def text_and_includes(path):
    with open(path, "rb") as f:
        text = f.read()
    return text, [name.decode() for name in re.findall(rb'^ *# *include *"([^"]+)"', text, re.M)]


def hash_of(path, command, rules, places):
    """Of all that a look at this file depends on, but for the headers of the system."""
    found = hashlib.sha256((rules + command).encode())
    waiting, seen = [path], {path}
    while waiting:
        text, includes = text_and_includes(waiting.pop())
        found.update(hashlib.sha256(text).digest())
        for name in includes:
            target = next((t for t in (os.path.join(place, name) for place in places) if os.path.isfile(t)), None)
            if target and target not in seen:
                seen.add(target)
                waiting.append(target)
    return found.hexdigest()


class Known:
    """Files that had no finding when they were last looked at, by what they were then."""

    def __init__(self, build, rules, afresh):
        self.path = os.path.join(build, "lint.json")
        self.rules, self.places = rules, ["", ROOT, os.path.join(build, "generated"), os.path.join(build, "onnx-proto")]
        self.clean = {}
        if not afresh and os.path.isfile(self.path):
            with open(self.path) as f:
                self.clean = json.load(f)

    def hash_of(self, path, command):
        return hash_of(path, command, self.rules, self.places)

    def write(self):
        with open(self.path + ".new", "w") as f:
            json.dump(self.clean, f, indent=1)
        os.replace(self.path + ".new", self.path)


def look_at(clang_tidy, build, path):
    done = subprocess.run([clang_tidy, "-p", build, "--quiet", f"--config-file={os.path.join(ROOT, '.clang-tidy')}", path], cwd=ROOT, capture_output=True, text=True)
    return path, done.returncode, done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--recent", action="store_true")
    parser.add_argument("--afresh", action="store_true")
    options = parser.parse_args()
    clang_tidy, version = tool()
    if not clang_tidy:
        print("clang-tidy 14 is not installed; as root: apt-get install clang-tidy\n0 passed, 0 failed")
        return 0
    with open(os.path.join(ROOT, ".clang-tidy")) as f:
        known = Known(options.build, version + f.read(), options.afresh)
    all_units = units(options.build, some_hours_before() if options.recent else options.since)
    hashes = {path: known.hash_of(path, command) for path, command in all_units.items()}
    left = [path for path in all_units if known.clean.get(path) != hashes[path]]
    passed, failed = len(all_units) - len(left), 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, status, findings in pool.map(lambda p: look_at(clang_tidy, options.build, p), left):
            if status == 0:
                passed += 1
                known.clean[path] = hashes[path]
                continue
            failed += 1
            print(f"{os.path.basename(path)}:\n{findings}")
    known.write()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
