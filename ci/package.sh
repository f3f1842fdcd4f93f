#!/usr/bin/env bash
# Build the source distribution and the wheel into dist/, and check them: the first holds every file of the repository and
# its tests collect, those that read its files pass without git, and the second works without any extra.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$PWD/.venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

rm -rf dist
"$python" -m build
mkdir "$work/source"
tar -xzf dist/*.tar.gz -C "$work/source" --strip-components=1
missing=$(git ls-files | while read -r file; do [ -e "$work/source/$file" ] || echo "$file"; done)
[ -z "$missing" ] || { echo "Missing in the source distribution: $missing"; exit 1; }
(
  cd "$work/source"
  export PYTHONPATH=$PWD/src OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
  "$python" -m pytest -q --collect-only | tail -n 1
  "$python" -m pytest -q -n auto -k "not (benchmark or demo or commands_)" tests/test_{project,documents,docs_site,supply_chain}.py
)

"$python" -m venv "$work/bare"
"$work/bare/bin/python" -m pip install --quiet --disable-pip-version-check dist/*.whl
version=$("$work/bare/bin/ldsu" --version)
[ -f "dist/${version/ /-}.tar.gz" ] || { echo "This is not $version: $(ls dist)"; exit 1; }
"$work/bare/bin/python" -c '
from sklearn.datasets import load_iris
from ldsu import LDSUClassifier
X, y = load_iris(return_X_y=True)
y[::2] = -1
assert LDSUClassifier().fit(X, y).score(X[1::2], y[1::2]) > 0.9'
said=$("$work/bare/bin/ldsu" fit table.csv 2>&1) && exit 1
[[ $said == *"pip install 'ldsu[cli]'"* ]] || { echo "Without the extra cli, ldsu fit said: $said"; exit 1; }
echo "$version: source distribution and wheel are complete"
