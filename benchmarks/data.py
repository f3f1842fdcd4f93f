"""How the data are prepared: which words make the ICU dictionary, and how faces are brought to 24 x 24.

python benchmarks/data.py [--splits 5] [--labels 1 3 5 10] [--stay-labels 25 100] [--parts words faces]
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rows import RESULTS, Rows
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC, LinearSVC

from ldsu import mean_average_precision
from ldsu.datasets import PREPROCESSINGS, Dataset, DatasetError, load
from ldsu.datasets.preprocessing import resize
from ldsu.kernels import Kernel, median_gamma

SIZE, SIDE = 500, 24
RULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "in most stays": lambda counts: (counts > 0).mean(axis=0) + 1e-9 * counts.mean(axis=0),
    "most often": lambda counts: counts.sum(axis=0),
    "in half of the stays": lambda counts: (counts > 0).var(axis=0),
    "largest variance of log counts": lambda counts: np.log1p(counts).var(axis=0),
}


def area_means(X: np.ndarray, side: int) -> np.ndarray:
    """Images brought to SIDE x SIDE by the mean over the area of each new pixel."""
    edges = np.arange(SIDE + 1) * side / SIDE
    overlap = np.minimum(edges[1:, None], np.arange(1, side + 1)) - np.maximum(edges[:-1, None], np.arange(side))
    weights = np.clip(overlap, 0, None) * SIDE / side
    return (weights @ X.reshape(-1, side, side) @ weights.T).reshape(len(X), -1)


def few_rows(y: np.ndarray, labels: int, seed: int) -> np.ndarray:
    """Some rows of each class."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(np.flatnonzero(y == k))[:labels] for k in np.unique(y)])


def word_rules(data: Dataset, labels: list[int], splits: int, rows: Rows) -> None:
    """MAP of an SVM with the chi2 kernel, the best of three C, by the rule that chooses the dictionary."""
    found = defaultdict(list)
    assert data.documents is not None
    for split in range(splits):
        train, test = train_test_split(np.arange(len(data.y)), test_size=0.5, stratify=data.y, random_state=split)
        counts = data.documents.counts(train)[0].toarray()
        for rule, value in [*RULES.items(), ("all words", None)]:
            chosen = np.arange(counts.shape[1]) if value is None else np.argsort(-value(counts[train]))[:SIZE]
            X = counts[:, chosen]
            kernel = Kernel("chi2", median_gamma(X[train], "chi2", 2.0))
            for m in labels:
                few = train[few_rows(data.y[train], m, split)]
                K, K_test = kernel(X[few]), kernel(X[test], X[few])
                models = (SVC(C=C, kernel="precomputed").fit(K, data.y[few]) for C in (1, 10, 100))
                scores = (model.decision_function(K_test) for model in models)
                best = max(mean_average_precision(data.y[test], score, classes=np.array([0, 1])) for score in scores)
                found[rule, m].append(best)
                rows.add(f"icu2012, {m} labels per class", len(train), rule, split, best, "MAP")
    for (rule, m), values in found.items():
        print(f"icu2012  {m:4d} labels  {rule:32s} {np.mean(values):.3f}", flush=True)


def face_sizes(data: Dataset, labels: list[int], splits: int, rows: Rows) -> None:
    """MAP of a linear SVM on faces by the way they are made smaller."""
    assert data.image_shape is not None
    side = data.image_shape[0]
    sizes = {
        "cubic splines": (resize(data.X, (side, side), (SIDE, SIDE)), SIDE),
        "means over areas": (area_means(data.X, side), SIDE),
        "32 x 32 as published": (data.X, side),
    }
    for name in ("pixels", "log", "local-contrast"):
        for size, (images, width) in sizes.items():
            X, _ = PREPROCESSINGS[name](images, (width, width))
            for m in labels:
                scores = []
                for split in range(splits):
                    train, test = train_test_split(
                        np.arange(len(X)), test_size=0.5, stratify=data.y, random_state=split
                    )
                    few = train[few_rows(data.y[train], m, split)]
                    centred = X - X[train].mean(axis=0)
                    centred /= np.sqrt(np.mean(np.sum(centred[train] ** 2, axis=1)))
                    model = LinearSVC(C=100, max_iter=300).fit(centred[few], data.y[few])
                    decisions = model.decision_function(centred[test])
                    scores.append(mean_average_precision(data.y[test], decisions, classes=model.classes_))
                    rows.add(f"yaleb/{name}, {m} labels per class", len(train), size, split, scores[-1], "MAP")
                print(f"yaleb/{name:15s} {m:3d} labels  {size:24s} {np.mean(scores):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, nargs="+", default=[1, 3, 5, 10])
    parser.add_argument("--stay-labels", type=int, nargs="+", default=[25, 100])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=["words", "faces"], default=["words", "faces"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.environ.setdefault("LDSU_DATA", str(Path(__file__).parents[2] / "shared" / "data"))
    rows = Rows("data")
    for part in options.parts:
        name, labels, measure = {
            "words": ("icu2012", options.stay_labels, word_rules),
            "faces": ("yaleb", options.labels, face_sizes),
        }[part]
        try:
            data = load(name, preprocessing=None if part == "words" else "none", download=False)
        except DatasetError as error:
            print(f"{name} left out: {error}")
            continue
        measure(data, labels, options.splits, rows)
    print(f"rows in {rows.write(options.out)}")


if __name__ == "__main__":
    main()
