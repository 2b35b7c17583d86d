#!/bin/sh
# clang-tidy with the checks of .clang-tidy: tools/lint.sh BUILD [--changed [COMMIT]]. Files of a folder are looked at together, as
# they are compiled, which takes a quarter of the time. --changed: only folders with a source that differs from COMMIT (the commit
# before this one). Ends with 1 and the findings where there are any.
set -eu
build=${1:-build/release}
since=
[ "${2:-}" = --changed ] && since=${3:-HEAD~1}
command -v clang-tidy >/dev/null || { echo "clang-tidy is not installed; as root: apt-get install clang-tidy" >&2; exit 1; }
[ -e "$build/compile_commands.json" ] || { echo "$build has no compile_commands.json: make build first" >&2; exit 1; }
if [ -n "$since" ] && ! git rev-parse --quiet --verify "$since^{commit}" >/dev/null; then
  echo "$since is not in this clone: nothing to compare with, nothing is linted" >&2
  exit 0
fi
python3 - "$build" "$since" <<'PY' | xargs -r -P "$(nproc)" -n 1 clang-tidy -p "$build" --quiet --config-file=.clang-tidy 2>/dev/null
import json, os, re, subprocess, sys

build, since = sys.argv[1:]
changed = subprocess.run(["git", "diff", "--name-only", since, "--", "*.cpp", "*.h"], capture_output=True, text=True, check=True).stdout.split() if since else []
folders = {os.path.dirname(os.path.abspath(path)) for path in changed}


def members(path):
    """The sources that a file of the build stands for."""
    if "/Unity/" not in path:
        return [path]
    with open(path) as f:
        return re.findall(r'#include "([^"]+\.cpp)"', f.read())


for entry in json.load(open(os.path.join(build, "compile_commands.json"))):
    path = entry["file"]
    if any(part in path for part in ("/generated/", "onnx-proto", "/tests/", "/emulated_gpu/", "/memplan_torch/")):
        continue
    if not since or any(os.path.dirname(source) in folders for source in members(path)):
        print(path)
PY
