#!/usr/bin/env bash
# The memplan that a CI job uses: the one that was named, else what install.sh finds or installs. Writes its path as the
# step's output "memplan".
set -euo pipefail
found=${MEMPLAN_GIVEN:-}
if [ -n "$found" ] && [ ! -x "$found" ]; then
  echo "::error title=memplan::there is no program at ${found//$'\n'/ }"
  exit 2
fi
if [ -z "$found" ] && ! found=$("$(dirname "${BASH_SOURCE[0]}")/install.sh"); then
  echo "::error title=memplan::no memplan could be installed; the input 'memplan' names a program, 'wheel' a wheel"
  exit 2
fi
printf 'memplan=%s\n' "$found" >>"$GITHUB_OUTPUT"
"$found" --version
