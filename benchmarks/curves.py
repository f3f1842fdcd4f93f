"""Learning curves of LDSUClassifier(): accuracy, calibration and expected accuracy from 1 to 25 labels per class.

Half of each class is unseen, labels are nested (three include the one), nothing is tuned. Where accuracy falls from one
number of labels to the next by more than two standard errors of the difference over splits, the row says so.

python benchmarks/curves.py [--sets digits usps page-blocks ...] [--labels 1 2 3 5 10 25] [--splits 5] [--rows 2000]
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
from rows import RESULTS, Rows

from ldsu import LDSU, LDSUClassifier
from ldsu.bench.experiment_file import load_experiment
from ldsu.bench.protocol import few_labels, load_split
from ldsu.bench.spec import Experiment

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
LABELS = (1, 2, 3, 5, 10, 25)
BINS = 10
UNITS = ("accuracy", "calibration error", "expected accuracy")


def calibration_error(probabilities: np.ndarray, y: np.ndarray) -> float:
    """Mean difference between the largest probability and accuracy, over ten bins of that probability."""
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = [abs(float((sure - right)[bins == number].sum())) for number in range(BINS)]
    return sum(gaps) / y.size


def measure(experiment: Experiment, key: str, split: int, labels: int) -> tuple[float, float, float]:
    """Accuracy on unseen rows, calibration error, and expected accuracy."""
    parts = load_split(experiment, key, split)
    y = few_labels(parts, labels)
    model = LDSUClassifier(LDSU(kernel=experiment.data_spec(key).kernel)).fit(parts.X_train, y)
    probabilities = model.predict_proba(parts.X_test)
    accuracy = float(np.mean(probabilities.argmax(axis=1) == parts.y_test))
    return accuracy, calibration_error(probabilities, parts.y_test), model.expected_accuracy_


def table(rows: Rows) -> None:
    """Print the accuracy by data set and labels, where it falls, and the errors over all sets and splits."""
    found: dict[str, dict[int, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows.rows:
        key, _, labels = str(row["case"]).partition(", ")
        found[key][int(labels.split()[0])][str(row["unit"])].append(float(str(row["value"])))
    numbers = list(next(iter(found.values())))
    print(f"| | {' | '.join(map(str, numbers))} | falls |\n|---|{'---|' * len(numbers)}---|")
    falls = 0
    for key, by_labels in found.items():
        accuracy = np.array([by_labels[labels]["accuracy"] for labels in numbers]).T
        steps, splits = np.diff(accuracy, axis=1), len(accuracy)
        spread = steps.std(axis=0, ddof=1) / np.sqrt(splits) if splits > 1 else np.zeros(steps.shape[1])
        fallen = [
            f"{numbers[i]} to {numbers[i + 1]}"
            for i in np.flatnonzero(steps.mean(axis=0) < -np.maximum(2 * spread, 0.005))
        ]
        falls += len(fallen)
        print(f"| {key} | {' | '.join(f'{value:.3f}' for value in accuracy.mean(axis=0))} | {', '.join(fallen)} |")
    print(f"\n{falls} falls of {len(found) * (len(numbers) - 1)} steps. Over the {len(found)} sets and all splits:\n")
    print(
        "| labels per class | accuracy | calibration error | expected less true accuracy | the same, absolute |\n"
        "|---|---|---|---|---|"
    )
    for labels in numbers:
        accuracy, error, expected = (
            np.concatenate([by_labels[labels][unit] for by_labels in found.values()]) for unit in UNITS
        )
        bias = expected - accuracy
        means = f"{accuracy.mean():.3f} | {error.mean():.3f} | {bias.mean():+.3f} | {np.abs(bias).mean():.3f}"
        print(f"| {labels} | {means} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known: dict[str, Experiment] = {}
    for name in ("fewlabels", "tables"):
        experiment = load_experiment(EXPERIMENTS / f"{name}.toml")
        known |= {spec.key: experiment for spec in experiment.data if spec.draw == "class" and spec.labels[0] == 1}
    parser.add_argument("--sets", nargs="+", choices=known, default=list(known), metavar="SET")
    parser.add_argument("--labels", nargs="+", type=int, default=LABELS)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2000, help="largest number of rows of a set")
    parser.add_argument("--kept", action="store_true", help="measure nothing: print the tables of the kept rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.kept:
        table(Rows.kept("curves", options.out))
        return
    rows = Rows("curves")
    for key in options.sets:
        whole = known[key]
        data = tuple(replace(spec, rows=min(spec.rows or options.rows, options.rows)) for spec in whole.data)
        experiment = replace(whole, data=data)
        for split in range(options.splits):
            for labels in options.labels:
                case = f"{key}, {labels} per class"
                for unit, value in zip(UNITS, measure(experiment, key, split, labels), strict=True):
                    rows.add(case, options.rows, "LDSUClassifier()", split, value, unit)
    table(rows)
    rows.write(options.out)


if __name__ == "__main__":
    main()
