"""A map of many samples: two coordinates per row, near rows near each other, that stays where it is."""

from __future__ import annotations

import numpy as np

from ldsu.neighbors import neighbor_index, principal_axes, project

# Rows that axes are computed from, principal components in which neighbors are searched, and neighbors per row.
SAMPLE, COMPONENTS, NEIGHBORS = 5000, 30, 10
# Rounds of attraction and repulsion, rows that repel each row in one, and the step of the first round.
ROUNDS, REPELLING, STEP = 200, 5, 0.5
# How far rows are drawn to the middle of their predicted class.
PULL = 0.3


def principal_components(X: np.ndarray) -> np.ndarray:
    """Coordinates (n, p) of X (n, d) along its principal axes, two or more, from a sample of the rows."""
    rows = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:SAMPLE])
    mean, axes = principal_axes(X[rows])
    Z = project(X, mean, axes[:, :COMPONENTS], n_jobs=1)
    return Z if Z.shape[1] > 1 else np.hstack([Z, np.zeros_like(Z)])


def neighbor_layout(Z: np.ndarray) -> np.ndarray:
    """Coordinates (n, 2) of rows Z (n, p): neighbors attract each other, other rows repel.

    From the first two columns, by stochastic gradient steps on the objective of UMAP with ``1 / (1 + d^2)``, all rows
    at once. Time is in proportion to n.
    """
    n = Z.shape[0]
    index, order = neighbor_index(Z)
    k = min(NEIGHBORS, n - 1)
    near = np.empty((n, k), dtype=np.int64)
    near[order] = order[index.query(None, k, index.X)]
    rng = np.random.default_rng(0)
    Y = (10 * Z[:, :2] / max(float(np.abs(Z[:, :2]).max()), 1e-30)).astype(np.float32)
    Y += 1e-3 * rng.standard_normal(Y.shape, dtype=np.float32)
    for step in np.linspace(STEP, 0, ROUNDS, endpoint=False, dtype=np.float32):
        # One neighbor per row and round: the row moves to it, and it to the row.
        to = near[np.arange(n), rng.integers(k, size=n)]
        difference = Y - Y[to]
        pull = difference * (-2 / (1 + _squares(difference)))
        move = pull - np.stack([np.bincount(to, pull[:, axis], n) for axis in range(2)], axis=1).astype(np.float32)
        for _ in range(REPELLING):
            difference = Y - Y[(np.arange(n) + rng.integers(1, n)) % n] if n > 1 else 0 * Y
            d2 = _squares(difference)
            move += difference * (2 / ((0.01 + d2) * (1 + d2)))
        Y += step * np.clip(move, -4, 4)
    return Y


def drawn_to_classes(base: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Coordinates (n, 2) between those of `base` and the mean of the rows with the same code; -1 is left there."""
    sums = np.stack([np.bincount(codes + 1, base[:, axis], n_classes + 1) for axis in range(2)], axis=1)
    counts = np.bincount(codes + 1, minlength=n_classes + 1)
    middles = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
    return np.where(codes[:, None] < 0, base, base + PULL * (middles[codes + 1] - base))


def aligned(Y: np.ndarray, to: np.ndarray) -> np.ndarray:
    """Y (n, 2), turned, mirrored and moved to the least sum of squared distances to another layout (Procrustes).

    It is not scaled: repeated alignments would shrink it.

    Examples
    --------
    >>> Y = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> bool(np.allclose(aligned(Y @ [[0, 1], [1, 0]] + 5, to=Y), Y))
    True
    """
    middle, middle_to = Y.mean(axis=0), to.mean(axis=0)
    A, B = Y - middle, to - middle_to
    U, _, Vt = np.linalg.svd(A.T.astype(np.float64) @ B)
    return (A @ (U @ Vt) + middle_to).astype(Y.dtype)


def unit(Y: np.ndarray) -> np.ndarray:
    """Y (n, 2) in the square from -1 to 1; a few rows far outside are moved to its border."""
    low, high = np.quantile(Y, [0.001, 0.999], axis=0)
    size = max(float((high - low).max()), 1e-30)
    return np.clip((2 * Y - (low + high)) / size, -1.1, 1.1).astype(np.float32)


def _squares(D: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", D, D)[:, None]
