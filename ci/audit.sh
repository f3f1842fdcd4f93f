#!/usr/bin/env bash
# Ask the public list of known vulnerabilities about every version in the lock.
#   exit 0: asked about all of them, none is known    exit 1: some are known, or the list could not be asked (it says which)
# --strict matters: without it pip-audit ends well where the list knows none of the packages, as behind an index mirror.
set -euo pipefail
cd "$(dirname "$0")/.."
LOCK=ci/requirements-py311.lock
WORK=${WORK:-${TMPDIR:-/tmp}/ldsu-audit}
[ -x "$WORK/bin/pip-audit" ] || {
  "${PYTHON:-python3}" -m venv "$WORK"
  "$WORK/bin/python" -m pip install --quiet --disable-pip-version-check pip-audit
}
said=$(mktemp)
trap 'rm -f "$said"' EXIT
if "$WORK/bin/pip-audit" --strict --disable-pip --require-hashes --requirement "$LOCK" --progress-spinner off >"$said" 2>&1; then
  cat "$said"
elif grep -qE '^Found [0-9]+ known vulnerabilit' "$said"; then
  cat "$said"
  exit 1
else
  echo "Not audited: the list of known vulnerabilities could not be asked about $LOCK from here. It said:"
  tail -n 1 "$said" | cut -c1-300
  echo "Run it where the network reaches the Python package index itself, not a mirror of it."
  exit 1
fi
