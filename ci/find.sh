#!/usr/bin/env bash
# The memplan that a CI job uses: the one that was named, the one on PATH, or one built here. Writes its path as the
# step's output "memplan".
set -euo pipefail
found=${MEMPLAN_GIVEN:-}
if [ -n "$found" ] && [ ! -x "$found" ]; then
  echo "::error title=memplan::there is no program at ${found//$'\n'/ }"
  exit 2
fi
[ -n "$found" ] || found=$(command -v memplan || true)
if [ -z "$found" ]; then
  make -C "$MEMPLAN_SOURCES" build >&2
  found=$MEMPLAN_SOURCES/build/release/memplan
fi
printf 'memplan=%s\n' "$found" >>"$GITHUB_OUTPUT"
"$found" --version
