"""A fit after one more label, and after more rows, beside fresh fits.

python benchmarks/refit.py [--rows 60000] [--labels 10 100] [--repeats 3] [--device cuda]

MNIST (random blobs where it is absent) with so many labels in all. `LDSUClassifier().fit(X, y, problem=problem)` after
one more label, several times, and after ``problem.add_rows`` of a sixtieth of the rows; each beside a fresh fit of the
same rows and labels. Seconds of the processor are given beside those of the clock, which other work makes longer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rows import RESULTS, Rows
from scale import data

from ldsu import LDSU, LDSUClassifier, Problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--labels", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    n, t = options.rows, max(1, options.rows // 60)
    X, y, X_more, y_more = data("mnist", n, t)
    rows = Rows("refit" if options.device == "cpu" else "refit-gpu")
    classifier = LDSUClassifier(LDSU(device=options.device))
    on_device = "" if options.device == "cpu" else f" on {options.device}"

    def timed(case: str, what: str, repeat: int, fit: Callable[[], LDSUClassifier], labels: np.ndarray) -> None:
        clock, processor = time.perf_counter(), time.process_time()
        model = fit()
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        truth = np.concatenate([y, y_more])[: labels.size]
        right = float(np.mean((model.transduction_ == truth)[labels < 0]))
        rows.add(case, n, what, repeat, clock, "s")
        rows.add(case, n, f"{what}, processor", repeat, processor, "s")
        rows.add(case, n, f"{what}, accuracy", repeat, right, "accuracy")
        rows.add(case, n, f"{what}, iterations", repeat, getattr(model.features_, "n_iter_", 0), "iterations")
        print(f"{case:12} {what:28} {clock:7.2f} s, processor {processor:6.2f} s, accuracy {right:.4f}", flush=True)

    for total in options.labels:
        case = f"{total} labels{on_device}"
        classes = np.unique(y)
        order = np.random.default_rng(0).permutation(len(y))
        by_class = [order[y[order] == label] for label in classes]
        first = np.concatenate([members[: max(1, total // len(classes))] for members in by_class])
        labels = np.full(len(y), -1)
        labels[first] = y[first]
        others = np.setdiff1d(order, first, assume_unique=True)
        problem = Problem(X, device=options.device)
        timed(case, "fresh fit", 0, lambda: classifier.fit(X, labels, problem=problem), labels)  # noqa: B023
        for repeat in range(options.repeats):
            labels[others[repeat]] = y[others[repeat]]
            timed(case, "one more label", repeat, lambda: classifier.fit(X, labels, problem=problem), labels)  # noqa: B023
        timed(case, "fresh fit of these labels", 0, lambda: classifier.fit(X, labels), labels)  # noqa: B023
    every, more = np.concatenate([X, X_more]), np.concatenate([labels, np.full(len(X_more), -1)])
    timed(case, "more rows", 0, lambda: classifier.fit(every, more, problem=problem.add_rows(X_more)), more)
    timed(case, "fresh fit with more rows", 0, lambda: classifier.fit(every, more), more)
    rows.write(options.out)


if __name__ == "__main__":
    main()
