"""Accuracy on the unlabelled rows of whole data sets: ours beside graph methods, at their own defaults.

python benchmarks/transduction.py [--sets usps umist ...] [--labels 1 3 5 10] [--draws 5] [--methods ldsu ...] [--annoy]

Laplace learning, Poisson learning and PoissonMBO (Calder, Cook, Thorpe, Slepcev 2020) come from their authors' package,
``pip install graphlearning annoy``; without it the other methods run. It may live in another environment: rows of the
file that this run does not measure again are kept. What it measures again (the same set, labels per class, number of
rows and method) is replaced, all draws of it.

Nothing is tuned, and no method gets a label beyond those drawn, with one exception: PoissonMBO needs the share of each
class. "true" counts the hidden labels for it, as its authors do, and for ours, to compare both told the same; "uniform"
knows nothing and says that all classes have the same size.

The graph is the package's: 10 neighbors, Gaussian weights scaled by the tenth distance. Its search for them, by Annoy,
is approximate and misses up to one of seven, at a cost in accuracy, so exact neighbors are given to it instead;
``--annoy`` measures with its own search, as methods of their own. Where the graph is in several pieces, the conjugate
gradients that are the package's default for Poisson learning diverge (the sources within a piece do not sum to 0), and
the iteration of the paper, its ``gradient_descent``, is taken there.

``draws(name)`` gives the samples, the labels and the draws of a set to others.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.metadata
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from rows import RESULTS, Rows
from scipy.sparse.csgraph import connected_components
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors
from sklearn.semi_supervised import LabelSpreading

from ldsu import LDSUClassifier
from ldsu.datasets import load

# name: data set, preprocessing (None: its default), number of rows (None: all)
SETS: dict[str, tuple[str, str | None, int | None]] = {
    "usps": ("usps", None, 3000),
    "usps-all": ("usps", None, None),
    "coil20": ("coil20", None, None),
    "umist": ("umist", "distinct", None),
    "digits": ("digits", None, None),
    "yaleb-local-contrast": ("yaleb", "local-contrast", None),
    "yaleb-log": ("yaleb", "log", None),
    "mnist": ("mnist", None, 3000),
}
LABELS = (1, 3, 5, 10)
NEIGHBORS = 10  # the choice of the authors of Poisson learning
ANNOY = ", annoy"
INSTALL = (
    "Laplace learning, Poisson learning and PoissonMBO need graphlearning: pip install graphlearning annoy, here or in "
    "another environment that has ldsu (it is compiled, with a C++ compiler)."
)


def draws(
    name: str, rows: int | None = None, count: int = 5, labels: Iterable[int] = LABELS
) -> tuple[np.ndarray, np.ndarray, list[dict[int, np.ndarray]]]:
    """Samples, labels and draws of one of `SETS`.

    Parameters
    ----------
    name : str
        One of `SETS`.
    rows : int, optional
        Rows to keep, at random, of each class its share; the number of `SETS` where not given.
    count : int, default=5
        Draws; the i-th takes its labels by ``np.random.default_rng(i)``, whatever the others are.
    labels : iterable of int, default=(1, 3, 5, 10)
        Labels per class.

    Returns
    -------
    X : ndarray of shape (n, d), float64
    y : ndarray of shape (n,)
        Codes of the classes, 0 to c - 1.
    draws : list of dict
        For each draw, by the number m of labels per class, codes (n,): y in m rows of each class and -1 elsewhere. The
        rows of a smaller m are among those of a larger one.
    """
    source, preprocessing, usual = SETS[name]
    data = load(source) if preprocessing is None else load(source, preprocessing=preprocessing)
    X, y = np.asarray(data.X), np.unique(data.y, return_inverse=True)[1]
    rows = rows or usual
    if rows is not None and rows < y.size:
        kept = np.sort(train_test_split(np.arange(y.size), train_size=rows, stratify=y, random_state=0)[0])
        X, y = X[kept], y[kept]
    drawn = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        orders = [rng.permutation(np.flatnonzero(y == code)) for code in range(y.max() + 1)]
        codes = {m: np.full(y.size, -1) for m in labels}
        for m, few in codes.items():
            for code, order in enumerate(orders):
                few[order[:m]] = code
        drawn.append(codes)
    return X.astype(np.float64), y, drawn


def graphlearning() -> Any:
    """The package, which need not be installed."""
    return importlib.import_module("graphlearning")


class Problem:
    """What the methods are given, and the graph that some of them share.

    ``shares``, of each class among all rows, is what only a method that says so may read.
    """

    def __init__(self, X: np.ndarray, shares: np.ndarray, annoy: bool) -> None:
        self.X, self.shares, self.annoy = X, shares, annoy

    @cached_property
    def weights(self) -> Any:
        """The weight matrix (n, n), sparse."""
        if self.annoy:
            return graphlearning().weightmatrix.knn(self.X, NEIGHBORS)
        distances, neighbors = NearestNeighbors(n_neighbors=NEIGHBORS + 1).fit(self.X).kneighbors(self.X)
        return graphlearning().weightmatrix.knn(self.X, NEIGHBORS, knn_data=(neighbors, distances))

    @cached_property
    def solver(self) -> str:
        """Of the Poisson equation: the package's default, or the paper's where that one diverges."""
        return "conjugate_gradient" if connected_components(self.weights)[0] == 1 else "gradient_descent"


Method = Callable[[Problem, np.ndarray], np.ndarray]


def learned(model: Any, few: np.ndarray) -> np.ndarray:
    """Labels of all rows by a model of graphlearning."""
    known = np.flatnonzero(few >= 0)
    return np.asarray(model.fit_predict(known, few[known]))


def laplace(problem: Problem, few: np.ndarray) -> np.ndarray:
    return learned(graphlearning().ssl.laplace(problem.weights), few)


def poisson(problem: Problem, few: np.ndarray) -> np.ndarray:
    return learned(graphlearning().ssl.poisson(problem.weights, solver=problem.solver), few)


def poisson_descent(problem: Problem, few: np.ndarray) -> np.ndarray:
    return learned(graphlearning().ssl.poisson(problem.weights, solver="gradient_descent"), few)


def poisson_mbo_true(problem: Problem, few: np.ndarray) -> np.ndarray:
    return learned(graphlearning().ssl.poisson_mbo(problem.weights, problem.shares, solver=problem.solver), few)


def poisson_mbo_uniform(problem: Problem, few: np.ndarray) -> np.ndarray:
    uniform = np.full(problem.shares.size, 1 / problem.shares.size)
    return learned(graphlearning().ssl.poisson_mbo(problem.weights, uniform, solver=problem.solver), few)


def label_spreading(problem: Problem, few: np.ndarray) -> np.ndarray:
    # scikit-learn divides 0 by 0 for points that no label reaches, and stops at 30 iterations: its default.
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(LabelSpreading(kernel="knn", n_neighbors=7).fit(problem.X, few).transduction_)


def ours(problem: Problem, few: np.ndarray) -> np.ndarray:
    return np.asarray(LDSUClassifier().fit(problem.X, few).transduction_)


def ours_true(problem: Problem, few: np.ndarray) -> np.ndarray:
    return np.asarray(LDSUClassifier(class_shares=problem.shares).fit(problem.X, few).transduction_)


OF_GRAPHLEARNING: dict[str, Method] = {
    "laplace": laplace,
    "poisson": poisson,
    "poisson-descent": poisson_descent,
    "poisson-mbo-true": poisson_mbo_true,
    "poisson-mbo-uniform": poisson_mbo_uniform,
}
METHODS: dict[str, Method] = {
    **OF_GRAPHLEARNING,
    "label-spreading": label_spreading,
    "ldsu": ours,
    "ldsu-true": ours_true,
}


def measure(
    rows: Rows, name: str, size: int | None, count: int, labels: list[int], methods: list[str], annoy: bool
) -> None:
    """Add a row for each draw, number of labels and method."""
    X, y, drawn = draws(name, size, count, labels)
    problem = Problem(X, np.bincount(y) / y.size, annoy)
    for method in methods:
        start = time.perf_counter()
        for m in labels:
            for repeat, codes in enumerate(drawn):
                hidden = codes[m] < 0
                found = METHODS[method](problem, codes[m].copy())
                accuracy = float(np.mean(found[hidden] == y[hidden]))
                rows.add(f"{name} {m} per class", y.size, f"{method}{ANNOY * annoy}", repeat, accuracy, "accuracy")
                if method in OF_GRAPHLEARNING:
                    rows.rows[-1]["versions"] = f"{rows.rows[-1]['versions']} {peer_versions(annoy)}"
        print(f"{name}, {y.size} rows, {method}: {time.perf_counter() - start:.0f} s", flush=True)


def peer_versions(annoy: bool) -> str:
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in ["graphlearning", "annoy"][: 1 + annoy])


def place(row: dict[str, Any]) -> tuple[int, int, int, bool, int, int]:
    """Where a row stands in the file: by set, rows, labels, graph, method, draw."""
    name, m = str(row["case"]).split(" ")[:2]
    method = str(row["what"])
    kind = list(METHODS).index(method.removesuffix(ANNOY))
    return list(SETS).index(name), int(row["n"]), int(m), method.endswith(ANNOY), kind, int(row["repeat"])


def merge(rows: Rows, folder: Path) -> None:
    """Take up the rows of the file that this run has not measured again, and sort."""
    path = folder / f"{rows.benchmark}.csv"
    if path.exists():
        measured = {place(row)[:-1] for row in rows.rows}
        with path.open(newline="") as file:
            rows.rows += [row for row in csv.DictReader(file) if place(row)[:-1] not in measured]
    rows.rows.sort(key=place)


TITLES = {
    "laplace": "Laplace",
    "poisson": "Poisson",
    "poisson-descent": "Poisson, gradient descent",
    "poisson-mbo-true": "PoissonMBO, true class shares",
    "poisson-mbo-uniform": "PoissonMBO, equal shares",
    "label-spreading": "LabelSpreading",
    "ldsu": "LDSUClassifier()",
    "ldsu-true": "LDSUClassifier, true class shares",
}


def table(rows: list[dict[str, Any]]) -> None:
    """Print mean and standard error of each case and method, a table for each search of neighbors."""
    for suffix in ("", ANNOY):
        cells: dict[tuple[str, str], dict[str, list[float]]] = {}
        for row in rows:
            if str(row["what"]).endswith(ANNOY) == bool(suffix):
                case = cells.setdefault((str(row["case"]), str(row["n"])), {})
                case.setdefault(str(row["what"]).removesuffix(ANNOY), []).append(float(row["value"]))
        methods = [method for method in METHODS if any(method in case for case in cells.values())]
        if not methods:
            continue
        print(f"\nneighbors by {'Annoy' if suffix else 'exact search'}\n")
        print("| | rows |", " | ".join(TITLES.get(method, method) for method in methods), "|")
        print("|---|---|" + "---|" * len(methods))
        for (case_name, n), case in cells.items():
            print(f"| {case_name} | {n} |", " | ".join(cell(case.get(method, [])) for method in methods), "|")


def wins(rows: list[dict[str, Any]], ours: str, rivals: tuple[str, ...]) -> str:
    """In how many cases ours is at or above each rival, on average."""
    cases: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        cases.setdefault(f"{row['case']} {row['n']}", {}).setdefault(str(row["what"]), []).append(float(row["value"]))
    whole = [case for case in cases.values() if all(name in case for name in (ours, *rivals))]
    won = sum(round(mean(case[ours]), 3) >= max(round(mean(case[name]), 3) for name in rivals) for case in whole)
    return f"{TITLES[ours]} at or above {'; '.join(TITLES[rival] for rival in rivals)}: {won} of {len(whole)}"


def summary(rows: list[dict[str, Any]]) -> None:
    """Print the tables, and in how many cases ours is at or above the graph methods."""
    print("\nAccuracy on the unlabelled rows: mean over the draws ± standard error")
    table(rows)
    compared = [row for row in rows if not str(row["case"]).startswith("usps-all")]
    print()
    for name, shares in (("ldsu", "uniform"), ("ldsu", "true"), ("ldsu-true", "true")):
        print(wins(compared, name, ("laplace", "poisson", f"poisson-mbo-{shares}")))


def cell(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}".replace("0.", ".") if values else ""
    return f"{mean(values):.3f} ± {stdev(values) / len(values) ** 0.5:.3f}".replace("0.", ".")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--rows", type=int, help="keep so many rows of each set (default: all, usps and mnist 3,000)")
    parser.add_argument("--labels", nargs="+", type=int, default=list(LABELS), help="labels per class")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), help="default: all that are installed")
    parser.add_argument("--annoy", action="store_true", help="neighbors by graphlearning's own, approximate search")
    parser.add_argument("--kept", action="store_true", help="measure nothing: print the tables of the kept rows")
    parser.add_argument("--tiny", action="store_true", help="200 digits, 1 and 3 labels per class, 2 draws: a trial")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.kept:
        summary(Rows.kept("transduction", options.out).rows)
        return
    if options.tiny:
        options.sets, options.rows, options.labels, options.draws = ["digits"], 200, [1, 3], 2
    methods = options.methods or list(METHODS)
    needed = ["graphlearning", "annoy"] if options.annoy else ["graphlearning"]
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing and set(methods) & set(OF_GRAPHLEARNING):
        if options.methods:
            parser.error(f"{' and '.join(missing)} not installed. {INSTALL}")
        print(f"LEFT OUT: {', '.join(OF_GRAPHLEARNING)}. {INSTALL}\n")
        methods = [method for method in methods if method not in OF_GRAPHLEARNING]
    if options.annoy:  # the other methods have no use for the graph
        methods = [method for method in methods if method in OF_GRAPHLEARNING]
        if not methods:
            parser.error(f"--annoy is a search of graphlearning's methods. {INSTALL}")
    cases: set[tuple[Any, ...]] = set()
    everything: list[dict[str, Any]] = []
    path = options.out / "transduction.csv"
    for name in options.sets:  # written after each set, so that a run may be broken off
        rows = Rows("transduction")
        measure(rows, name, options.rows, options.draws, options.labels, methods, options.annoy)
        cases |= {place(row)[:3] for row in rows.rows}
        merge(rows, options.out)
        path = rows.write(options.out)
        everything = rows.rows
    summary([row for row in everything if place(row)[:3] in cases])
    print(f"\nrows in {path}")


if __name__ == "__main__":
    main()
