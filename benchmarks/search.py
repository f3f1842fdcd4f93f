"""How many times faster `LDSUSearch` is than scikit-learn's `GridSearchCV` on the same grid and folds.

python benchmarks/search.py [--rows 2000] [--grid-part 1.0] [--sample 12]

USPS (random numbers where it is absent) with 10 labels per class, 7 lam x 7 theta x 6 clique_size x 10 strength x 7
alpha of a ridge classifier, 5 folds. The shared search is run whole. Of the ordinary search a random sample of settings
is fitted and scored, on one random fold each, in the same process, and the mean time multiplied by the number of fits:
to run all of them would take a day. Every sampled score is compared with that of the shared search. Seconds of the
processor are given beside those of the clock, which other work on the machine makes longer.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from rows import RESULTS, Rows, load
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, ParameterGrid

from ldsu import LDSU, FewLabelKFold, LDSUClassifier, LDSUSearch

PENALTIES = [1e-2, 1.0, 1e-3, 1e2, 1e-4, 1e3, 1e4]  # the middle first: a part of the grid keeps the first
GRID = {
    "features__theta": PENALTIES,
    "features__clique_size": [3, 1, 5, 10, 15, 20],
    "features__lam": PENALTIES,
    "features__strength": [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0],
    "classifier__alpha": PENALTIES,
}


def grid_part(part: float) -> dict[str, list[float]]:
    """About this part of the grid: fewer graphs first, which are independent of each other, then less of each."""
    grid = {name: list(values) for name, values in GRID.items()}
    whole = len(ParameterGrid(grid))
    for name in grid:
        while len(ParameterGrid(grid)) > part * whole and len(grid[name]) > 1:
            grid[name].pop()
    return grid


def few_labelled(rows: int, per_class: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    loaded = load("usps.npz")
    if loaded is None:
        print("USPS is not here: random numbers")
        loaded = rng.standard_normal((2000, 256)), np.arange(2000) % 10
    X, y = loaded
    chosen = rng.choice(len(y), min(rows, len(y)), replace=False)
    X, y = X[chosen].astype(np.float64), y[chosen]
    few = np.full(y.shape, -1)
    for label in np.unique(y):
        few[np.flatnonzero(y == label)[:per_class]] = label
    return X, few


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--grid-part", type=float, default=1.0, help="part of the settings to search")
    parser.add_argument("--sample", type=int, default=12, help="fits of the ordinary search")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    X, y = few_labelled(options.rows, 10)
    n = len(y)
    model = LDSUClassifier(LDSU(), RidgeClassifier())
    grid = grid_part(options.grid_part)
    settings = list(ParameterGrid(grid))
    folds = list(FewLabelKFold().split(X, y))
    rng = np.random.default_rng(0)
    rows = Rows("search")
    case = f"{len(settings)} settings, {len(folds)} folds"

    # Half of the sample before the shared search and half after it: the machine may not be as quick all the time.
    sample = [(int(rng.integers(len(settings))), int(rng.integers(len(folds)))) for _ in range(options.sample)]
    times, cpu_times, scores = [], [], []

    def ordinary(part: list[tuple[int, int]]) -> None:
        for i, fold in part:
            setting = {name: [value] for name, value in settings[i].items()}
            start, cpu_start = time.perf_counter(), time.process_time()
            search = GridSearchCV(model, setting, cv=[folds[fold]], refit=False).fit(X, y)
            times.append(time.perf_counter() - start)
            cpu_times.append(time.process_time() - cpu_start)
            scores.append(search.cv_results_["mean_test_score"][0])

    ordinary(sample[: len(sample) // 2])
    start, cpu_start = time.perf_counter(), time.process_time()
    shared = LDSUSearch(model, grid, cv=folds, refit=False, verbose=True).fit(X, y)
    shared_seconds, shared_cpu = time.perf_counter() - start, time.process_time() - cpu_start
    ordinary(sample[len(sample) // 2 :])

    fits = len(settings) * len(folds)
    ordinary_seconds = float(np.mean(times)) * fits
    ordinary_cpu = float(np.mean(cpu_times)) * fits
    ratio, cpu_ratio = ordinary_seconds / shared_seconds, ordinary_cpu / shared_cpu
    got = [shared.cv_results_[f"split{fold}_test_score"][i] for i, fold in sample]
    equal = int(np.sum(np.isclose(got, scores, rtol=0, atol=1e-12)))
    rows.add(case, n, "LDSUSearch", 0, shared_seconds, "s")
    rows.add(case, n, f"GridSearchCV, extrapolated from {len(sample)} of {fits} fits", 0, ordinary_seconds, "s")
    rows.add(case, n, "GridSearchCV over LDSUSearch", 0, ratio, "ratio")
    rows.add(case, n, "LDSUSearch, processor", 0, shared_cpu, "s")
    rows.add(case, n, "GridSearchCV, processor, extrapolated", 0, ordinary_cpu, "s")
    rows.add(case, n, "GridSearchCV over LDSUSearch, processor", 0, cpu_ratio, "ratio")
    rows.add(case, n, f"equal scores of {len(sample)} sampled", 0, equal, "scores")
    for stage, seconds in shared.timings_.items():
        rows.add(case, n, f"LDSUSearch, {stage}", 0, max(seconds, 1e-9), "s")
    print(f"n = {n}, {case}")
    print(f"LDSUSearch    {shared_seconds:10.1f} s  ({', '.join(f'{k} {v:.0f}' for k, v in shared.timings_.items())})")
    print(f"GridSearchCV  {ordinary_seconds:10.1f} s, extrapolated from {len(sample)} of {fits} fits")
    print(f"{ratio:.0f} times faster ({cpu_ratio:.0f} times by seconds of the processor)")
    print(f"{equal} of {len(sample)} sampled scores are equal")
    for (i, fold), one, other in zip(sample, got, scores, strict=True):
        if not np.isclose(one, other, rtol=0, atol=1e-12):
            print(f"  fold {fold}, {settings[i]}: {one:.4f}, but {other:.4f} from GridSearchCV")
    rows.write(options.out)


if __name__ == "__main__":
    main()
