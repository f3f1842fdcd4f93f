"""From scores to decisions: accuracy on the unseen half by the way each class's scores are standardised.

python benchmarks/scores.py [--splits 5] [--labels 1 3 10] [--sets digits ...]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
from choices import DATA_SETS, data_set, halves
from rows import RESULTS, Rows

from ldsu import LDSU, LDSUClassifier


def variants(unlabelled: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of the test rows (q x c), standardised by those of the unlabelled training rows in several ways."""
    median = np.median(unlabelled, axis=0)
    return {
        "raw": test,
        "mean and standard deviation": (test - unlabelled.mean(axis=0)) / unlabelled.std(axis=0),
        "median and mean absolute deviation": (test - median) / np.abs(unlabelled - median).mean(axis=0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=DATA_SETS)
    parser.add_argument("--labels", type=int, nargs="+", default=[1, 3, 10])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows("scores")
    for name in options.sets:
        loaded = data_set(name)
        if loaded is None:
            print(f"{name}: not found in LDSU_DATA or ../shared/data, left out")
            continue
        X, y, kernel = loaded
        for labels in options.labels:
            accuracies = defaultdict(list)
            for split in range(options.splits):
                train, few, test = halves(y, labels, split)
                model = LDSUClassifier(LDSU(**kernel), standardize_scores=False).fit(X[train], few)
                unlabelled, new = (model.decision_function(X[part]) for part in (train[few < 0], test))
                if new.ndim == 1:
                    unlabelled, new = (np.column_stack([-s, s]) for s in (unlabelled, new))
                for way, scores in variants(unlabelled, new).items():
                    accuracy = float(np.mean(scores.argmax(axis=1) == y[test]))
                    accuracies[way].append(accuracy)
                    rows.add(f"{name}, {labels} labels a class", len(train), way, split, accuracy, "accuracy")
            print(
                f"{name:15s} {labels:3d} labels  "
                + "  ".join(f"{way} {np.mean(a):.3f}" for way, a in accuracies.items()),
                flush=True,
            )
    print(f"rows in {rows.write(options.out)}")


if __name__ == "__main__":
    main()
