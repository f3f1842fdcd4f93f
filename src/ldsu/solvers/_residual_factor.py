"""The local part of the kernel: a sparse factor of the inverse of the residual (Vecchia), row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from ldsu._utils.arrays import Arrays
from ldsu.sample_kernels import SampleKernel, for_each_set, take_sets

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

    `neighbors` (n, l) are nearest first; ranks of the n points are followed by those of other points that occur as
    neighbors. Missing neighbors are filled with the point itself.
    """
    xp = arrays.xp
    n, listed = neighbors.shape
    sets = xp.empty_like(neighbors[:, : min(size, listed)])
    sets[:] = arrays.put(arrays.integers(n), arrays.dtype_of(sets))[:, None]

    def fill(block: slice) -> None:
        near = neighbors[block]
        before = rank[near] < rank[block, None]
        place = xp.cumsum(before, axis=1) - 1
        kept = before & (place < sets.shape[1])
        at = xp.where(kept)[0] + block.start
        sets[at, place[kept]] = near[kept]

    arrays.each(fill, n, 5 * 8 * listed)
    return sets


def residual_factor(
    X: Any, P: Any, sets: Any, kernel: SampleKernel, nugget: float, arrays: Arrays
) -> tuple[Any, Any, Any]:
    """G with ``R^-1 = G^T G`` approximately: row i is the point minus its conditional mean, over the deviation.

    The first n rows of X (n or more x d) and of its landmark features P are the points of the sets (n x s). G is
    returned as triplets by row, including the diagonal.
    """
    xp, dtype = arrays.xp, arrays.dtype_of(X)
    n, s = sets.shape
    points = arrays.put(arrays.integers(n), arrays.dtype_of(sets))
    columns = xp.concatenate([sets, points[:, None]], axis=1)
    values = arrays.zeros((n, s + 1), dtype)

    def fill(block: slice) -> None:
        members = columns[block]
        Y = take_sets(X, members, arrays)
        weights, variance = conditional(Y, P[members], sets[block] == points[block, None], kernel, nugget, arrays)
        deviation = xp.sqrt(variance)
        values[block, :s] = arrays.put(-weights / deviation[:, None], dtype)
        values[block, s] = arrays.put(1 / deviation, dtype)

    itemsize = np.dtype(dtype).itemsize
    other = (s + 1) * P.shape[1] * itemsize + 4 * 8 * (s + 1) ** 2
    for_each_set(fill, X, columns, (s + 1) * itemsize, other, arrays)
    kept = columns != points[:, None]
    kept[:, s] = True
    return (points[:, None] + 0 * columns)[kept], columns[kept], values[kept]


def conditional(Y: Any, P: Any, missing: Any, kernel: SampleKernel, nugget: float, arrays: Arrays) -> tuple[Any, Any]:
    """Weights and variance of a point given others under the residual kernel ``R = k - P P^T``.

    Parameters
    ----------
    Y : array of shape (b, s + 1, d)
        The others, then the point itself.
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
    R = kernel.within(Y, xp) - P @ xp.swapaxes(P, 1, 2)
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
