"""From scores to decisions: accuracy on the unseen half with raw scores, standardized ones, and the default rule.

Data sets, and tables as `ldsu fit` reads them (classes of at least eight rows, 2,000 rows at random of larger ones).
The rule was found on every other table, beginning with the first by name ("find"), and checked on the rest ("check").

python benchmarks/scores.py [--splits 5] [--labels 1 3 10] [--sets digits ... tables]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
from choices import DATA_SETS, data_set, halves
from rows import RESULTS, Rows, find_data

from ldsu import LDSU, LDSUClassifier

SETTINGS = {"raw": False, "standardized": True, "default": "auto"}
MIN_CLASS, MAX_ROWS = 8, 2000


def tables() -> list[Path]:
    folder = find_data("tables")
    return sorted(folder.glob("*.csv")) if folder else []


def table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Points and classes of a table whose column `class` is complete."""
    from ldsu.tables.model import prepare
    from ldsu.tables.readers import read_table

    task = prepare(read_table(path), "class")
    _, y, counts = np.unique(task.labels.astype(str), return_inverse=True, return_counts=True)
    rows = np.flatnonzero(counts[y] >= MIN_CLASS)
    if rows.size > MAX_ROWS:
        rows = np.random.default_rng(0).permutation(rows)[:MAX_ROWS]
        rows = rows[np.bincount(y[rows], minlength=counts.size)[y[rows]] >= MIN_CLASS]
    return task.X[rows], np.unique(y[rows], return_inverse=True)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=[*DATA_SETS, "tables"])
    parser.add_argument("--labels", type=int, nargs="+", default=[1, 3, 10])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows("scores")
    means: dict[tuple[str, int, str], list[float]] = defaultdict(list)

    def measure(name: str, part: str, X: np.ndarray, y: np.ndarray, kernel: dict[str, str]) -> None:
        for labels in options.labels:
            accuracies = defaultdict(list)
            for split in range(options.splits):
                train, few, test = halves(y, labels, split)
                if np.mean(few < 0) < 0.5:
                    continue
                for what, standardize in SETTINGS.items():
                    model = LDSUClassifier(LDSU(**kernel), standardize_scores=standardize).fit(X[train], few)
                    accuracy = model.score(X[test], y[test])
                    accuracies[what].append(accuracy)
                    rows.add(f"{name}, {labels} labels per class", len(train), what, split, accuracy, "accuracy")
            for what, values in accuracies.items():
                means[part, labels, what].append(float(np.mean(values)))
            print(
                f"{name:20s} {labels:3d} " + "  ".join(f"{w} {np.mean(a):.3f}" for w, a in accuracies.items()),
                flush=True,
            )

    for name in options.sets:
        if name == "tables":
            for number, path in enumerate(tables()):
                measure(path.stem, "tables, check" if number % 2 else "tables, find", *table(path), {})
        elif (loaded := data_set(name)) is not None:
            measure(name, "data sets", *loaded)
        else:
            print(f"{name}: not found in LDSU_DATA or ../shared/data, left out")
    for part, labels in dict.fromkeys((part, labels) for part, labels, _ in means):
        print(
            f"mean {part}, {labels} labels per class: "
            + "  ".join(f"{what} {np.mean(means[part, labels, what]):.3f}" for what in SETTINGS)
        )
    print(f"rows in {rows.write(options.out)}")


if __name__ == "__main__":
    main()
