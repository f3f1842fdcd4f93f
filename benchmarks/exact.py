"""The exact solver beside its floor (two symmetric eigendecompositions) and beside Algorithm 1 written literally.

python benchmarks/exact.py [--sizes 2000 4649] [--repeats 5 3]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.linalg
from rows import RESULTS, Rows, load, seconds
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import NearestNeighbors

from ldsu import LDSU, Problem
from ldsu.kernels import Kernel
from ldsu.solvers import Settings

FLOOR = "two eigendecompositions"


def samples(n: int) -> tuple[np.ndarray, np.ndarray, str]:
    """N rows of USPS with 10 labels per class, or random ones where the data set is not there."""
    usps = load("usps.npz")
    rng = np.random.default_rng(0)
    if usps is not None:
        chosen = rng.permutation(len(usps[0]))[:n]
        X, y, name = usps[0][chosen].astype(np.float64), usps[1][chosen], "usps"
    else:
        X, y, name = rng.standard_normal((n, 256)), rng.integers(0, 10, n), "random"
    few = np.full(len(y), -1)
    for label in range(10):
        rows = np.flatnonzero(y == label)[:10]
        few[rows] = label
    return X, few, name


def literal_algorithm(
    X: np.ndarray, y: np.ndarray, gamma: float, k: int, theta: float, lam: float, r: int
) -> np.ndarray:
    """Algorithm 1 as printed, with dense matrices throughout."""
    n = len(X)
    K = rbf_kernel(X, gamma=gamma)
    W = ((y[:, None] == y) & (y[:, None] >= 0)).astype(float)
    L_w = np.diag(W.sum(axis=1)) - W
    L = np.zeros((n, n))
    H = np.eye(k) - 1 / k
    for clique in NearestNeighbors(n_neighbors=k).fit(X).kneighbors(X, return_distance=False):
        X_i = X[clique].T @ H
        L[np.ix_(clique, clique)] += H @ np.linalg.inv(X_i.T @ X_i + theta * np.eye(k)) @ H
    eigenvalues, V = scipy.linalg.eigh(K)
    kept = eigenvalues > n * np.finfo(float).eps * eigenvalues.max()
    eigenvalues, V = eigenvalues[kept], V[:, kept]
    root = np.sqrt(eigenvalues)
    _, omega = scipy.linalg.eigh((V * root).T @ (L_w + lam * L) @ (V * root))
    return (V / root) @ omega[:, :r]


def cases(X: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    fitted = LDSU(filter="truncate").fit(X, y)
    gamma, r = fitted.gamma_, fitted.coef_.shape[1]
    K = rbf_kernel(X, gamma=gamma)
    problem, kernel = Problem(X), Kernel("rbf", gamma)
    S = problem.project(kernel, "cliques", lambda: problem.clique_graph(kernel, Settings())[0])
    return {
        FLOOR: lambda: [scipy.linalg.eigh(A, driver="evd") for A in (K, S)],
        "two eigendecompositions, scipy's default driver": lambda: [scipy.linalg.eigh(A) for A in (K, S)],
        "Algorithm 1, literal": lambda: literal_algorithm(X, y, gamma, 3, 0.1, 1.0, r),
        "LDSU truncate, fit": lambda: LDSU(filter="truncate").fit(X, y),
        "LDSU truncate, fit, all components": lambda: LDSU(None, filter="truncate").fit(X, y),
        "LDSU truncate, fit with a problem": lambda: LDSU(filter="truncate").fit(X, y, problem=problem),
        "LDSU tikhonov, fit": lambda: LDSU().fit(X, y),
        "LDSU truncate, transform": lambda: fitted.transform(X),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 4649])
    parser.add_argument("--repeats", type=int, nargs="+", default=[5, 3], help="for each size; the last one goes on")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows("exact")
    repeats = itertools.chain(options.repeats, itertools.repeat(options.repeats[-1]))
    for n, times in zip(options.sizes, repeats, strict=False):
        X, y, name = samples(n)
        timed = cases(X, y)
        for repeat in range(times):  # side by side, so that a slow moment hits all of them
            for what, function in timed.items():
                rows.add(name, n, what, repeat, seconds(function), "s")
        floor = rows.median(FLOOR, n)
        print(f"{name}, n = {n}, medians of {times}")
        for what in timed:
            value = rows.median(what, n)
            print(f"  {what:48s} {value:8.3f} s   {value / floor:6.2f} x the two eigendecompositions")
    print(f"rows in {rows.write(options.out)}")


if __name__ == "__main__":
    main()
