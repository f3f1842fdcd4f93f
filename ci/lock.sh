#!/usr/bin/env bash
# Write ci/requirements-py311.lock anew. Versions stay as they are in .venv where that has them; for newer ones make a new
# .venv first (make clean test). Takes some minutes: the hashes of all files of every package are asked for.
set -euo pipefail
cd "$(dirname "$0")/.."
LOCK=ci/requirements-py311.lock
PYTHON=${PYTHON:-python3.11}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
  { echo "The lock is that of Python 3.11, but $PYTHON is $("$PYTHON" --version). Try: PYTHON=/path/to/python3.11 ci/lock.sh"; exit 1; }
"$PYTHON" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check pip-tools
touch "$work/installed"
if [ -x .venv/bin/python ]; then
  .venv/bin/python -m pip freeze --exclude-editable --disable-pip-version-check | grep '==' | grep -v '^torch==' >"$work/installed"
fi
# What an editable install needs beside the extras: with everything pinned, pip must not fetch a builder of its own.
printf 'hatchling\neditables\n' >"$work/builder.in"
"$work/tools/bin/pip-compile" --quiet --generate-hashes --allow-unsafe --strip-extras --no-annotate --no-header \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --constraint "$work/installed" \
  --extra dev --extra docs --output-file "$work/lock" pyproject.toml "$work/builder.in"
{
  echo '# Exact versions, with the hashes of their files, of everything that CI installs on Python 3.11 (Linux): the extras dev and docs, and'
  echo "# hatchling, which builds. PyTorch is apart, see .ci/run. Written by ci/lock.sh; where from is left to pip's configuration."
  # The package itself is no part of its lock, nor is where a tool would have it found.
  grep -v -e '^#' -e '^ldsu' -e '^--' "$work/lock"
} >"$LOCK"
echo "$LOCK: $(grep -c '^[a-z].*==' "$LOCK") packages"
