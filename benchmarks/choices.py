"""What the defaults were chosen by: held-out MAP and accuracy of one changed setting at a time.

Half of each class is held out, some labels per class are kept in the other half, and nothing is tuned.

python benchmarks/choices.py [--splits 3] [--labels 1 3 10] [--sets digits umist ...]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
from rows import RESULTS, Rows, load
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.svm import LinearSVC

from ldsu import LDSU, LDSUClassifier, mean_average_precision

DATA_SETS = ["digits", "digits-unequal", "umist", "coil20", "usps", "yaleb", "pcmac", "pcmac-unequal"]
SVM = LinearSVC(C=1.0, random_state=0, max_iter=20_000)
SETTINGS = {
    "default": {},
    "raw scores": {"standardize_scores": False},
    "standardized scores": {"standardize_scores": True},
    "linear SVM, C = 1": {"classifier": SVM},
    "ridge, alpha = 0.01": {"classifier": RidgeClassifier(alpha=0.01)},
    "ridge, alpha = 1": {"classifier": RidgeClassifier(alpha=1.0)},
    "theta absolute 0.1, L and strength unscaled": {"scaling": "absolute"},
    "theta relative 0.01": {"theta": 0.01},
    "theta relative 1": {"theta": 1.0},
    "gamma scale 1": {"gamma_scale": 1.0},
    "gamma scale 4": {"gamma_scale": 4.0},
    "clique size 5": {"clique_size": 5},
    "strength 10": {"strength": 10.0},
    "strength 1000": {"strength": 1000.0},
    "filter heat, 10": {"filter": "heat", "strength": 10.0},
    "filter truncate, 0.3": {"filter": "truncate", "n_components": 0.3},
    "filter truncate, 0.5": {"filter": "truncate", "n_components": 0.5},
    "filter truncate, 0.7": {"filter": "truncate", "n_components": 0.7},
}


def data_set(name: str) -> tuple[np.ndarray, np.ndarray, dict[str, str]] | None:
    """Samples, labels and kernel of a data set; None where it is not there."""
    rng = np.random.default_rng(0)
    if name.startswith("digits"):
        X, y = load_digits(return_X_y=True)
        if name == "digits-unequal":  # class t keeps a share of 0.7^t: 178 of the first, 7 to 8 of the last
            kept = [rng.permutation(np.flatnonzero(y == t))[: max(8, int(178 * 0.7**t))] for t in range(10)]
            X, y = X[np.concatenate(kept)], y[np.concatenate(kept)]
        return X, y, {}
    loaded = load(f"{name.removesuffix('-unequal')}.npz")
    if loaded is None:
        return None
    X, y = loaded[0].astype(np.float64), loaded[1]
    if name == "umist":  # exact copies of other images would leak from one half to the other
        _, first = np.unique(X, axis=0, return_index=True)
        X, y = X[np.sort(first)], y[np.sort(first)]
    if name == "yaleb":
        X = np.log1p(X)
        X -= X.mean(axis=1, keepdims=True)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    if name == "usps":
        rows = rng.permutation(len(X))[:4000]
        X, y = X[rows], y[rows]
    if name == "pcmac-unequal":  # one of the second class to ten of the first
        rows = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:98]])
        X, y = X[rows], y[rows]
    return X, y, {"kernel": "cosine"} if name.startswith("pcmac") else {}


def halves(y: np.ndarray, labels: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, their labels, most of them missing, and test rows."""
    rng = np.random.default_rng(seed)
    train, test, labelled = [], [], []
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        train.extend(rows[: len(rows) // 2])
        test.extend(rows[len(rows) // 2 :])
        labelled.extend(rows[: min(labels, len(rows) // 2)])
    return np.array(train), np.where(np.isin(train, labelled), y[train], -1), np.array(test)


def model(setting: dict, kernel: dict) -> LDSUClassifier:
    outer = {key: setting[key] for key in ("standardize_scores", "classifier") if key in setting}
    inner = {key: value for key, value in setting.items() if key not in outer}
    return LDSUClassifier(LDSU(**inner, **kernel), **outer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=DATA_SETS)
    parser.add_argument("--labels", type=int, nargs="+", default=[1, 3, 10])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows("choices")
    for name in options.sets:
        loaded = data_set(name)
        if loaded is None:
            print(f"{name}: not found in LDSU_DATA or ../shared/data, left out")
            continue
        X, y, kernel = loaded
        for labels in options.labels:
            table = defaultdict(list)
            for split in range(options.splits):
                train, few, test = halves(y, labels, split)
                for setting in options.settings:
                    fitted = model(SETTINGS[setting], kernel).fit(X[train], few)
                    scores = {
                        "MAP": mean_average_precision(y[test], fitted.decision_function(X[test])),
                        "accuracy": fitted.score(X[test], y[test]),
                    }
                    table[setting].append(list(scores.values()))
                    for unit, value in scores.items():
                        rows.add(f"{name}, {labels} labels per class", len(train), setting, split, value, unit)
            for setting, values in table.items():
                MAP, accuracy = np.mean(values, axis=0)
                print(
                    f"{name:15s} {labels:3d} labels  {setting:44s} MAP {MAP:.3f}  accuracy {accuracy:.3f}", flush=True
                )
    print(f"rows in {rows.write(options.out)}")


if __name__ == "__main__":
    main()
