#!/usr/bin/env bash
# The hook of pre-commit: memplan check with the memplan of install.sh.
set -euo pipefail
memplan=$("$(dirname "${BASH_SOURCE[0]}")/install.sh")
exec "$memplan" check "$@"
