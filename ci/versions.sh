#!/usr/bin/env bash
# Run the tests on the oldest versions that pyproject.toml promises and on the newest that pip finds, each in an environment
# of its own under $WORK (kept, so that a second run is quick; remove it to have newer versions).
#
#   ci/versions.sh                                the whole suite: oldest on python3.11, newest on python3.12 and python3.13
#   ci/versions.sh oldest:python3.11 newest:python3.12 -- tests/test_golden.py
set -euo pipefail
cd "$(dirname "$0")/.."
WORK=${WORK:-${TMPDIR:-/tmp}/ldsu-versions}
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

combinations=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do combinations+=("$1"); shift; done
[ $# -gt 0 ] && shift
[ ${#combinations[@]} -gt 0 ] || combinations=(oldest:python3.11 newest:python3.12 newest:python3.13)

mkdir -p "$WORK"
failed=()
for combination in "${combinations[@]}"; do
  ages=${combination%%:*} python=${combination#*:}
  case $ages in oldest | newest) ;; *)
    echo "$combination is no combination: say oldest:PYTHON or newest:PYTHON." >&2; exit 2 ;;
  esac
  if ! command -v "$python" >/dev/null; then
    echo "== $combination: there is no $python here; not tested" && failed+=("$combination (no $python)") && continue
  fi
  venv="$WORK/$ages-$(basename "$python")"
  : >"$WORK/$ages.txt"
  [ "$ages" = newest ] || "$python" ci/oldest.py >"$WORK/$ages.txt"
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$WORK/$ages.txt" --editable '.[test]'
  echo "== $combination: $("$venv/bin/python" -m pip freeze --exclude-editable --disable-pip-version-check |
    grep -iE '^(numpy|scipy|scikit-learn|joblib|pyarrow|pandas|click|rich|pytest)==' | tr '\n' ' ')"
  "$venv/bin/python" -m pytest -n auto -q -p no:cacheprovider "$@" || failed+=("$combination")
done
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
