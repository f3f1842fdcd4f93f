"""How far the sparse solver is from the exact one, in mean average precision on held-out halves of real data.

python benchmarks/agreement.py [--splits 5] [--sets usps umist coil20 yaleb] [--variants default ...]

Nothing is tuned. The first variant of a table is the exact solver; the others are the sparse one with other landmarks,
neighbors, nugget or tolerance.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from statistics import mean

import numpy as np
from rows import RESULTS, Rows
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import train_test_split

from ldsu import LDSU, BlockScaler
from ldsu.datasets import load
from ldsu.model_selection import mean_average_precision

PREPARED = {"yaleb": "log"}
VARIANTS = {
    "exact": {"solver": "exact"},
    "sparse": {},
    "no landmarks": {"landmark_noise": 1e6},
    "hard landmarks": {"landmark_noise": 1e-6},
    "8 neighbors": {"n_conditioning": 8},
    "30 neighbors": {"n_conditioning": 30},
    "nugget 1e-4": {"nugget": 1e-4},
    "nugget 0.03": {"nugget": 0.03},
    "nugget 0.1": {"nugget": 0.1},
    "tol 1e-2": {"tol": 1e-2},
    "tol 1e-5": {"tol": 1e-5},
}


def measure(rows: Rows, name: str, splits: int, labels: list[int], variants: list[str]) -> None:
    data = load(name, preprocessing=PREPARED[name]) if name in PREPARED else load(name)
    X, y = np.asarray(data.X, dtype=np.float32), data.y
    for split in range(splits):
        train, test = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=split)
        for m in labels:
            few = np.full(train.size, -1)
            rng = np.random.default_rng(split)
            for label in np.unique(y):
                few[rng.permutation(np.flatnonzero(y[train] == label))[:m]] = label
            for variant in variants:
                model = LDSU(**{"solver": "sparse", **VARIANTS[variant]}).fit(X[train], few)
                scaler = BlockScaler().fit(model.transform(X[train]))
                known = few >= 0
                Z = scaler.transform(model.transform(X[train][known]))
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="The number of unique classes")
                    classifier = RidgeClassifier(alpha=0.1).fit(Z, few[known])
                scores = classifier.decision_function(scaler.transform(model.transform(X[test])))
                case = f"{name} {m} per class"
                rows.add(case, train.size, f"MAP {variant}", split, mean_average_precision(y[test], scores), "MAP")
                rows.add(case, train.size, f"iterations {variant}", split, model.n_iter_, "iterations")
                rows.add(case, train.size, f"seconds {variant}", split, sum(model.timings_.values()), "s")
        print(f"{name}, split {split + 1} of {splits}", flush=True)


def table(rows: Rows, variants: list[str]) -> None:
    print("\nMAP, means over the splits (iterations of the sparse solver; seconds of the fit)\n")
    cases = list(dict.fromkeys(row["case"] for row in rows.rows))
    print("| |", " | ".join(variants), "|")
    print("|---|" + "---|" * len(variants))
    for case in cases:
        cells = []
        for variant in variants:
            of = {
                kind: mean(
                    float(r["value"]) for r in rows.rows if r["case"] == case and r["what"] == f"{kind} {variant}"
                )
                for kind in ("MAP", "iterations", "seconds")
            }
            cells.append(f"{of['MAP']:.4f} ({of['iterations']:.0f}; {of['seconds']:.2f} s)")
        print(f"| {case} |", " | ".join(cells), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["usps", "umist", "coil20", "yaleb"])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--labels", nargs="+", type=int, default=[1, 3, 5, 10])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--kept", action="store_true", help="measure nothing: print the table of the kept rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.kept:
        rows = Rows.kept("agreement", options.out)
        measured = {str(row["what"]).removeprefix("MAP ") for row in rows.rows}
        table(rows, [variant for variant in VARIANTS if variant in measured])
        return
    rows = Rows("agreement")
    for name in options.sets:
        measure(rows, name, options.splits, options.labels, options.variants)
    table(rows, options.variants)
    print(rows.write(options.out))


if __name__ == "__main__":
    main()
