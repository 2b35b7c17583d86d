#!/usr/bin/env bash
# install.sh: prints the path of a memplan for CI jobs and hooks. That is the one on PATH, else the wheel that MEMPLAN_WHEEL names (a file, an
# address, or a requirement for pip; without it this version from PyPI), in an environment of its own that later runs use again. Nothing is compiled.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -z "${MEMPLAN_WHEEL:-}" ] && found=$(command -v memplan); then
  printf '%s\n' "$found"
  exit
fi
version=$(sed -n 's/^project(memplan VERSION \([0-9.]*\).*/\1/p' "$here/CMakeLists.txt")
wheel=${MEMPLAN_WHEEL:-memplan==$version}
sum=$(printf '%s' "$wheel" | cksum | cut -d' ' -f1)
[ ! -f "$wheel" ] || sum=$(cksum <"$wheel" | tr ' ' -)
folder=${RUNNER_TEMP:-${XDG_CACHE_HOME:-$HOME/.cache}}/memplan/wheel-$sum
if [ ! -x "$folder/bin/memplan" ]; then
  rm -rf "$folder"
  { python3 -m venv "$folder" && "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$wheel"; } >&2 || {
    rm -rf "$folder"
    echo "memplan could not be installed from '$wheel': put memplan on PATH, or let MEMPLAN_WHEEL name a wheel (make wheel makes one)" >&2
    exit 2
  }
fi
printf '%s\n' "$folder/bin/memplan"
