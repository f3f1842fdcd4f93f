"""Local part of a kernel: sparse factor of the inverse residual (Vecchia approximation)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ldsu._utils.arrays import Arrays

# Without noise, duplicate samples make the matrix of a conditioning set singular.
MIN_NUGGET = 1e-12


def random_ranks(rows: np.ndarray, seed: int) -> np.ndarray:
    """Random ranks (int64) of rows, each computed from the row index alone (splitmix64)."""
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(1)).astype(np.int64)


def conditioning_sets(neighbors: Any, rank: Any, size: int, arrays: Arrays) -> Any:
    """The nearest neighbors of each point that precede it in the order, shape (n, at most `size`).

    Parameters
    ----------
    neighbors : int array of shape (n, l)
        Nearest first.
    rank : int array of shape (n or more,)
        Ranks of the points, followed by those of other points that occur as neighbors.
    size : int
        s, number of neighbors to keep.

    Returns
    -------
    sets : int array of shape (n, min(s, l))
        Missing neighbors are filled with the point itself.
    """
    xp = arrays.xp
    n, listed = neighbors.shape
    sets = xp.empty_like(neighbors[:, : min(size, listed)])
    points = arrays.put(np.arange(n))[:, None]
    sets[:] = points
    before = rank[neighbors] < rank[:n, None]
    place = xp.cumsum(before, axis=1) - 1
    kept = before & (place < sets.shape[1])
    sets[(points + 0 * neighbors)[kept], place[kept]] = neighbors[kept]
    return sets


def conditional(Y: Any, P: Any, missing: Any, gamma: float, nugget: float, arrays: Arrays) -> tuple[Any, Any]:
    """Weights and variance of a point given others under the residual kernel ``R = k - P P^T``.

    Parameters
    ----------
    Y : array of shape (b, s + 1, d)
        The others, then the point itself; relative to the point, for accurate small distances.
    P : array of shape (b, s + 1, p)
        Their landmark features.
    missing : bool array of shape (b, s)
        Mask of fill-in entries.

    Returns
    -------
    weights : array of shape (b, s)
        ``w = R_NN^-1 r_N``, zero for fill-in entries.
    variance : array of shape (b,)
        ``R_ii - w^T r_N``, at least the nugget.
    """
    xp = arrays.xp
    squares = (Y * Y).sum(axis=2)
    D2 = squares[:, :, None] + squares[:, None, :] - 2 * (Y @ xp.swapaxes(Y, 1, 2))
    R = xp.exp(-gamma * xp.clip(D2, 0, None)) - P @ xp.swapaxes(P, 1, 2)
    R = arrays.put(R, "float64")
    s = R.shape[1] - 1
    present = arrays.put(~missing, "float64")
    R_NN = R[:, :s, :s] * present[:, :, None] * present[:, None, :]
    diagonal = xp.arange(s)
    R_NN[:, diagonal, diagonal] += 1 - present + max(nugget, MIN_NUGGET)
    r_N = R[:, :s, s] * present
    weights = xp.linalg.solve(R_NN, r_N[:, :, None])[:, :, 0]
    variance = xp.clip(R[:, s, s] - (weights * r_N).sum(axis=1), nugget, None)
    return weights, variance


def residual_factor(X: Any, P: Any, sets: Any, gamma: float, nugget: float, arrays: Arrays) -> tuple[Any, Any, Any]:
    """G with ``R^-1 = G^T G`` approximately: row i is the point minus its conditional mean, over the deviation.

    The first n rows of X (n or more x d) and of its landmark features P are the points of the sets (n x s).

    Returns
    -------
    rows, columns, values : arrays of shape (entries,)
        Triplets by row, including the diagonal.
    """
    xp, dtype = arrays.xp, arrays.dtype_of(X)
    n, s = sets.shape
    points = arrays.put(np.arange(n))
    values = arrays.zeros((n, s + 1), dtype)

    def fill(block: slice) -> None:
        members = xp.concatenate([sets[block], points[block, None]], axis=1)
        Y = X[members] - X[block][:, None]
        weights, variance = conditional(Y, P[members], sets[block] == points[block, None], gamma, nugget, arrays)
        deviation = xp.sqrt(variance)
        values[block, :s] = arrays.put(-weights / deviation[:, None], dtype)
        values[block, s] = arrays.put(1 / deviation, dtype)

    arrays.each(fill, n, (s + 1) * (X.shape[1] + P.shape[1]) * X.itemsize + 4 * 8 * (s + 1) ** 2)
    columns = xp.concatenate([sets, points[:, None]], axis=1)
    kept = columns != points[:, None]
    kept[:, s] = True
    return (points[:, None] + 0 * columns)[kept], columns[kept], values[kept]
