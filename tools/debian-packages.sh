#!/bin/sh
# Installs the Debian packages that the build and the tests need, where this user may; says what to type otherwise.
set -eu
needed="cmake g++ ninja-build protobuf-compiler libprotobuf-dev nlohmann-json3-dev libcli11-dev libfmt-dev libzip-dev zlib1g-dev libjs-dygraphs libtomlplusplus-dev pkg-config doctest-dev python3-venv"
useful="ccache hyperfine libmimalloc-dev libzstd-dev $*"  # faster builds, benchmarks, faster estimates, models in .zst files, and what is asked for: their absence stops nothing

command -v dpkg-query >/dev/null || exit 0  # not Debian: CMake says what is missing
missing() {
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s ' "$package"
  done
}
# Word splitting is meant: the lists hold several names.
# shellcheck disable=SC2086
absent=$(missing $needed)
# shellcheck disable=SC2086
wished=$(missing $useful)
[ -n "$absent$wished" ] || exit 0

if [ "$(id -u)" = 0 ]; then run=""; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then run="sudo"; else
  [ -n "$absent" ] || exit 0
  echo "missing Debian packages; as root: apt-get install $absent" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
install() { $run apt-get install -y -q --no-install-recommends "$@" >/dev/null; }
echo "installing Debian packages: $absent$wished"
# shellcheck disable=SC2086
if [ -n "$absent" ] && ! install $absent; then
  $run apt-get update -q >/dev/null
  install $absent || { echo "could not install: $absent" >&2; exit 1; }
fi
# shellcheck disable=SC2086
[ -z "$wished" ] || install $wished || echo "goes on without: $wished" >&2
