"""The local part of a kernel: a sparse factor of the inverse of its residual (Vecchia's approximation)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ldsu._utils.arrays import Arrays

# Copies of a sample make a set's matrix singular without some noise.
LEAST_NUGGET = 1e-12


def random_ranks(rows: np.ndarray, seed: int) -> np.ndarray:
    """Numbers (int64) that put rows in a random order, each from the row's number alone (splitmix64)."""
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(1)).astype(np.int64)


def conditioning_sets(neighbors: Any, rank: Any, size: int, arrays: Arrays) -> Any:
    """The nearest listed neighbours of each point that come before it, shape (n, at most `size`).

    Parameters
    ----------
    neighbors : int array of shape (n, l)
        Nearest first.
    rank : int array of shape (n or more,)
        Places in the order of the points, and of others after them that are listed.
    size : int
        s, how many to keep.

    Returns
    -------
    sets : int array of shape (n, min(s, l))
        A point stands in for each neighbour that it lacks.
    """
    xp = arrays.xp
    n, listed = neighbors.shape
    sets = xp.empty_like(neighbors[:, : min(size, listed)])
    own = arrays.put(np.arange(n))[:, None]
    sets[:] = own
    before = rank[neighbors] < rank[:n, None]
    place = xp.cumsum(before, axis=1) - 1
    kept = before & (place < sets.shape[1])
    sets[(own + 0 * neighbors)[kept], place[kept]] = neighbors[kept]
    return sets


def conditional(Y: Any, P: Any, lacking: Any, gamma: float, nugget: float, arrays: Arrays) -> tuple[Any, Any]:
    """Weights and variance of a point given others under the residual kernel ``R = k - P P^T``.

    Parameters
    ----------
    Y : array of shape (b, s + 1, d)
        The others, and last the point itself; all about the point, so that small distances keep their digits.
    P : array of shape (b, s + 1, p)
        Their landmark features.
    lacking : bool array of shape (b, s)
        Others that are only there to fill the array.

    Returns
    -------
    weights : array of shape (b, s)
        ``w = R_NN^-1 r_N``, zero for those lacking.
    variance : array of shape (b,)
        ``R_ii - w^T r_N``, not below the nugget.
    """
    xp = arrays.xp
    squares = (Y * Y).sum(axis=2)
    D2 = squares[:, :, None] + squares[:, None, :] - 2 * (Y @ xp.swapaxes(Y, 1, 2))
    R = xp.exp(-gamma * xp.clip(D2, 0, None)) - P @ xp.swapaxes(P, 1, 2)
    R = arrays.put(R, "float64")
    s = R.shape[1] - 1
    present = arrays.put(~lacking, "float64")
    R_NN = R[:, :s, :s] * present[:, :, None] * present[:, None, :]
    diagonal = xp.arange(s)
    R_NN[:, diagonal, diagonal] += 1 - present + max(nugget, LEAST_NUGGET)
    r_N = R[:, :s, s] * present
    weights = xp.linalg.solve(R_NN, r_N[:, :, None])[:, :, 0]
    variance = xp.clip(R[:, s, s] - (weights * r_N).sum(axis=1), nugget, None)
    return weights, variance


def residual_factor(X: Any, P: Any, sets: Any, gamma: float, nugget: float, arrays: Arrays) -> tuple[Any, Any, Any]:
    """G with ``R^-1 = G^T G`` approximately: row i is the point less what its set tells of it, over the deviation.

    The first n rows of X (n or more x d) and of its landmark features P are the points of the sets (n x s).

    Returns
    -------
    rows, columns, values : arrays of shape (entries,)
        Row by row, the diagonal included.
    """
    xp, dtype = arrays.xp, arrays.dtype_of(X)
    n, s = sets.shape
    own = arrays.put(np.arange(n))
    values = arrays.zeros((n, s + 1), dtype)

    def fill(block: slice) -> None:
        members = xp.concatenate([sets[block], own[block, None]], axis=1)
        Y = X[members] - X[block][:, None]
        weights, variance = conditional(Y, P[members], sets[block] == own[block, None], gamma, nugget, arrays)
        deviation = xp.sqrt(variance)
        values[block, :s] = arrays.put(-weights / deviation[:, None], dtype)
        values[block, s] = arrays.put(1 / deviation, dtype)

    arrays.each(fill, n, (s + 1) * (X.shape[1] + P.shape[1]) * X.itemsize + 4 * 8 * (s + 1) ** 2)
    columns = xp.concatenate([sets, own[:, None]], axis=1)
    kept = columns != own[:, None]
    kept[:, s] = True
    return (own[:, None] + 0 * columns)[kept], columns[kept], values[kept]
