"""Many at once, and many one after the other: throughput and memory, and whether they stay as they were.

python benchmarks/load.py [--parts processes transforms fits] [--transforms 1000000] [--fits 10000]

- processes: eight processes that fit digits at the same moment, each its own; beside one alone.
- transforms: single rows through a model that was saved and loaded, one call each.
- fits: tiny problems, fitted and forgotten, in one process.

The last two are cut into tenths: seconds and memory of each tenth tell whether anything grows.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
from rows import RESULTS, Rows
from sklearn.datasets import load_digits

from ldsu import LDSUClassifier, load_model, save_model
from ldsu.bench.protocol import label_order

PROCESSES = 8


def digits(n: int, labels: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """The first n digits, with a few labels per class."""
    X, y = load_digits(return_X_y=True)
    return X[:n], np.where(label_order(y[:n], 0) < labels, y[:n], -1)


def memory() -> float:
    """MiB this process holds."""
    return psutil.Process().memory_info().rss / 2**20


def fit_once(n: int, start: float) -> tuple[float, float, float]:
    """Wait for a moment, fit, and give the time it ended, the memory held and a sum that tells the result."""
    time.sleep(max(0.0, start - time.time()))
    X, few = digits(n)
    model = LDSUClassifier().fit(X, few)
    return time.time(), memory(), float(np.abs(model.decision_function(X[:50])).sum())


def together(rows: Rows, n: int) -> None:
    """One process, then eight at once."""
    sums = set()
    for count in (1, PROCESSES):
        context = multiprocessing.get_context("spawn")
        with context.Pool(count) as pool:
            pool.starmap(fit_once, [(60, 0.0)] * count)  # imports
            start = time.time() + 0.5
            found = pool.starmap(fit_once, [(n, start)] * count, chunksize=1)
        seconds = max(end for end, _, _ in found) - start
        sums |= {round(total, 6) for _, _, total in found}
        rows.add("processes", count, "all done", 0, seconds, "s")
        rows.add("processes", count, "memory of the largest", 0, max(held for _, held, _ in found), "MiB")
        print(f"{count} process(es): {seconds:.1f} s, {count / seconds:.2f} fits a second", flush=True)
    print(f"results alike: {len(sums) == 1}", flush=True)
    rows.add("processes", PROCESSES, "different results", 0, len(sums), "results")


def in_tenths(rows: Rows, what: str, total: int, step: Callable[[int], object]) -> None:
    """Call `step` for 0 ... total - 1, and write seconds and memory of each tenth."""
    for number in range(max(1, total // 100)):
        step(number)  # a hundredth to warm up
    tenth = max(1, total // 10)
    for part in range(10):
        start = time.perf_counter()
        for number in range(part * tenth, (part + 1) * tenth):
            step(number)
        seconds = time.perf_counter() - start
        gc.collect()
        rows.add(what, total, "calls a second", part, tenth / seconds, "1/s")
        rows.add(what, total, "memory", part, memory(), "MiB")
        print(f"{what} {(part + 1) * tenth:,}: {tenth / seconds:,.0f} a second, {memory():.1f} MiB", flush=True)


def transforms(rows: Rows, total: int, n: int) -> None:
    X, few = digits(n)
    with tempfile.TemporaryDirectory() as folder:
        save_model(LDSUClassifier().fit(X, few), Path(folder, "digits.ldsu"))
        model = load_model(Path(folder, "digits.ldsu"))
    features, singles = model.features_, [X[i : i + 1] for i in range(len(X))]
    in_tenths(rows, "transforms", total, lambda number: features.transform(singles[number % n]))


def fits(rows: Rows, total: int) -> None:
    X, few = digits(40, labels=1)
    in_tenths(rows, "fits", total, lambda number: LDSUClassifier().fit(X, np.roll(few, number % 3)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["processes", "transforms", "fits"])
    parser.add_argument("--rows", type=int, default=1500, help="digits that each of the eight processes fits")
    parser.add_argument("--transforms", type=int, default=1_000_000)
    parser.add_argument("--model-rows", type=int, default=300, help="digits of the model of the transforms")
    parser.add_argument("--fits", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the processes started from here
    rows = Rows("load")
    if "processes" in options.parts:
        together(rows, options.rows)
    if "transforms" in options.parts:
        transforms(rows, options.transforms, options.model_rows)
    if "fits" in options.parts:
        fits(rows, options.fits)
    print(rows.write(options.out))


if __name__ == "__main__":
    main()
