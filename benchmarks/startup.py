"""What people feel: seconds to import, seconds of `ldsu fit` for a small table, single rows a second.

python benchmarks/startup.py [--repeats 7] [--before PATH]

PATH is the `src` folder of another version, measured in turn with this one. Each measurement is a process of its own,
with one BLAS thread. Other work on the machine disturbs processor time less than the clock. "numpy" and "sklearn.base"
are imports that every estimator needs.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from made_tables import few
from rows import RESULTS, Rows
from sklearn.datasets import load_wine

SRC = Path(__file__).parents[1] / "src"
IMPORTS = {
    "numpy": "import numpy",
    "sklearn.base": "import sklearn.base",
    "LDSUClassifier": "from ldsu import LDSUClassifier",
}
CALLS, ROUNDS = 30, 5
# Run with the version that is measured.
SINGLE_ROWS = f"""
import json, time
import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import scale
from ldsu import LDSU, LDSUClassifier, load_model, save_model
from ldsu.bench.protocol import label_order

rates = {{}}
digits, wine = load_digits(return_X_y=True), load_wine(return_X_y=True)
cases = {{
    "300 digits, exact": (LDSU(), digits[0][:300], digits[1][:300]),
    "1797 digits, sparse": (LDSU(solver="sparse"), *digits),
    "178 wines, pooled": (LDSU(), scale(wine[0]), wine[1]),
}}
for case, (features, X, y) in cases.items():
    save_model(LDSUClassifier(features).fit(X, np.where(label_order(y, 0) < 5, y, -1)), "model.ldsu")
    model = load_model("model.ldsu")
    rows = [X[i : i + 1] for i in range({CALLS})]
    for method in (model.features_.transform, model.predict, model.predict_proba):
        seconds = []
        method(rows[0])
        for _ in range({ROUNDS}):
            start = time.process_time()
            for row in rows:
                method(row)
            seconds.append(time.process_time() - start)
        rates[f"{{case}}: {{method.__name__}}"] = len(rows) / min(seconds)
print(json.dumps(rates))
"""


def run(src: Path, folder: str, *arguments: str) -> tuple[float, float, str]:
    """Seconds on the clock, of processor time, and the output of a Python process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(src), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, check=True, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - start
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, done.stdout


def write_wine(path: Path) -> None:
    """The wine table with five labels per class."""
    bunch = load_wine()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*bunch.feature_names, "kind"])
        labels = few(bunch.target_names[bunch.target], 5, 0)
        writer.writerows([*row.tolist(), label] for row, label in zip(bunch.data, labels, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--before", type=Path, help="src folder of another version")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows("startup")
    versions = {"now": SRC} | ({"before": options.before.resolve()} if options.before else {})
    with tempfile.TemporaryDirectory() as folder:
        write_wine(Path(folder, "wine.csv"))
        for repeat in range(options.repeats):
            for version, src in versions.items():
                commands = {f"import {name}": ("-c", code) for name, code in IMPORTS.items()}
                commands["ldsu fit"] = ("-m", "ldsu", "fit", "wine.csv", "--label", "kind", "--quiet", "--force")
                for what, arguments in commands.items():
                    seconds, processor, _ = run(src, folder, *arguments)
                    rows.add(version, 178, f"{version}: {what}", repeat, seconds, "s")
                    rows.add(version, 178, f"{version}: {what}, processor", repeat, processor, "s")
                for what, rate in json.loads(run(src, folder, "-c", SINGLE_ROWS)[2]).items():
                    rows.add(version, 1, f"{version}: {what}", repeat, rate, "1/s")
            rows.write(options.out)
    for what, n in dict.fromkeys((str(row["what"]), int(str(row["n"]))) for row in rows.rows):
        print(f"{what:48s} {rows.median(what, n):8.4g}")


if __name__ == "__main__":
    main()
