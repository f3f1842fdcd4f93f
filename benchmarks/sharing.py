"""How many times cheaper the cells of an experiment are when they share work than as independent fits.

python benchmarks/sharing.py [--data digits] [--rows 1000] [--sample 5]

The methods and grids are those of experiments/table1.toml, one split, on one data set. The shared way is run whole. Of
the independent way a random sample of cells of each method is fitted and scored alone, and its mean time multiplied by
the number of cells: to run all of them would take days.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
from rows import RESULTS, Rows, seconds

from ldsu.bench import engine
from ldsu.bench.experiment_file import load_experiment
from ldsu.bench.protocol import few_labels, folds, load_split
from ldsu.bench.spec import DataSpec
from ldsu.bench.tasks import Task

EXPERIMENT = Path(__file__).parents[1] / "experiments" / "table1.toml"
METHODS = ("KDA", "KPCA", "KSDA", "KSELF", "KLPP", "EnFS", "LDSU truncate", "LDSU", "SVM-RBF")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--rows", type=int, help="a random subset of the data")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--sample", type=int, default=5, help="independent fits of each method")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    whole = load_experiment(EXPERIMENT)
    spec = DataSpec(options.data, options.data, None, options.data, "rbf", (1, 3, 5, 10), None, options.rows)
    experiment = replace(
        whole, data=(spec,), repetitions=1, methods=tuple(m for m in whole.methods if m.key in options.methods)
    )
    task = Task(spec.key, 0)
    split = load_split(experiment, spec.key, 0)
    n = len(split.y_train)
    rows = Rows("sharing")

    shared, cells = Counter(), defaultdict(list)
    start = time.perf_counter()
    for batch in engine.run_task(experiment, task, lambda cell: False, lambda text: None):
        now = time.perf_counter()
        shared[batch[0].cell.method] += now - start
        cells[batch[0].cell.method] += [row.cell for row in batch]
        start = now

    rng = np.random.default_rng(0)
    total = {"shared": 0.0, "independent": 0.0}
    for method in experiment.methods:
        times = []
        for i in rng.choice(len(cells[method.key]), options.sample, replace=False):
            cell = cells[method.key][i]
            y, X_new = few_labels(split, cell.labels), split.X_test
            if cell.fold >= 0:
                y, held_out = folds(y, cell.labels, experiment.folds, split.seed)[cell.fold]
                X_new = split.X_train[held_out]
            setting = {**json.loads(cell.params), "C": cell.C}
            model = engine.independent_model(method, spec.kernel, setting)
            times.append(seconds(lambda: model.fit(split.X_train, y).decision_function(X_new)))  # noqa: B023
        count = len(cells[method.key])
        independent = float(np.mean(times)) * count
        total["shared"] += shared[method.key]
        total["independent"] += independent
        rows.add(method.key, n, "shared", 0, shared[method.key], "s")
        rows.add(method.key, n, "independent, extrapolated", 0, independent, "s")
        print(
            f"{method.key:15} {count:6} cells  shared {shared[method.key]:8.1f} s  independent {independent:10.0f} s",
            flush=True,
        )
    ratio = total["independent"] / total["shared"]
    rows.add("all", n, "independent over shared", 0, ratio, "ratio")
    print(f"n = {n}: {sum(map(len, cells.values()))} cells, {ratio:.0f} times cheaper")
    rows.write(options.out)


if __name__ == "__main__":
    main()
