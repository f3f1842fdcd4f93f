"""Learning curves of LDSUClassifier(): accuracy, calibration and expected accuracy from 1 to 25 labels per class.

Half of each class is unseen, labels are nested (three include the one), nothing is tuned. Where accuracy falls from one
number of labels to the next by more than two standard errors of the difference over splits, the row says so.

python benchmarks/curves.py [--sets digits usps page-blocks ...] [--labels 1 2 3 5 10 25] [--splits 5] [--rows 2000]
"""

from __future__ import annotations

import argparse
import warnings
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
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = Rows("curves")
    errors: dict[int, list[tuple[float, float]]] = {}
    falls = 0
    print(f"| | {' | '.join(map(str, options.labels))} | falls |\n|---|{'---|' * len(options.labels)}---|")
    for key in options.sets:
        whole = known[key]
        data = tuple(replace(spec, rows=min(spec.rows or options.rows, options.rows)) for spec in whole.data)
        experiment = replace(whole, data=data)
        accuracy = np.zeros((options.splits, len(options.labels)))
        for split in range(options.splits):
            for number, labels in enumerate(options.labels):
                accuracy[split, number], error, expected = measure(experiment, key, split, labels)
                case = f"{key}, {labels} per class"
                rows.add(case, options.rows, "LDSUClassifier()", split, accuracy[split, number], "accuracy")
                rows.add(case, options.rows, "LDSUClassifier()", split, error, "calibration error")
                rows.add(case, options.rows, "LDSUClassifier()", split, expected, "expected accuracy")
                errors.setdefault(labels, []).append((error, expected - accuracy[split, number]))
        steps = np.diff(accuracy, axis=1)
        spread = steps.std(axis=0, ddof=1) / np.sqrt(options.splits) if options.splits > 1 else np.zeros(steps.shape[1])
        fallen = [
            f"{options.labels[i]} to {options.labels[i + 1]}"
            for i in np.flatnonzero(steps.mean(axis=0) < -np.maximum(2 * spread, 0.005))
        ]
        falls += len(fallen)
        print(f"| {key} | {' | '.join(f'{value:.3f}' for value in accuracy.mean(axis=0))} | {', '.join(fallen)} |")
    print(f"\n{falls} falls. Over all sets and splits:\n")
    print(
        "| labels per class | calibration error | expected less true accuracy | the same, absolute |\n|---|---|---|---|"
    )
    for labels, found in errors.items():
        error, bias = np.mean(found, axis=0)
        print(f"| {labels} | {error:.3f} | {bias:+.3f} | {np.abs(np.array(found)[:, 1]).mean():.3f} |")
    rows.write(options.out)


if __name__ == "__main__":
    main()
