"""Nearest neighbours of many rows, almost all of the true ones: search the cells around each row instead of all rows.

k-means cells of the rows' leading principal components. The rows of a cell search the cells around it together, so that
the work is matrix products; the few candidates these leave are then compared in all columns. The same seed gives the
same answer whatever the number of threads. ``benchmarks/neighbors.py`` compares it with libraries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed

from ldsu.arrays import one_blas_thread

CANDIDATES = 6000  # rows searched for each row: the knob between recall and time
DIMENSIONS, VARIANCE = 64, 0.85  # principal components: at least so many, and more where they hold less than this
VOTERS, VOTES = 32, 16  # the rows of a cell that choose the cells to search, and how many each of them votes for
MOST_COLUMNS = 2000  # above so many the components are those of as many rows
GROUP = 512  # rows that search together, at most


@dataclass(frozen=True)
class CellIndex:
    """Rows sorted into cells, as plain arrays: r components, C cells."""

    mean: np.ndarray  # (d,)
    axes: np.ndarray  # (d, r), orthogonal, and over the rows' spread, so that any unit of measurement fits float32
    centres: np.ndarray  # (C, r)
    starts: np.ndarray  # (C + 1,): cell j has rows[starts[j]:starts[j + 1]]
    order: np.ndarray  # (n,): which row of X each of `rows` is
    rows: np.ndarray  # (n, r)


def cell_index(X: np.ndarray, seed: int = 0, n_jobs: int = -1) -> CellIndex:
    """Sort the rows of X (n x d, finite) into k-means cells of some ``sqrt(n) / 2.5`` rows, at least 64."""
    n = X.shape[0]
    rng = np.random.default_rng(seed)
    with one_blas_thread():
        sample = X[np.sort(rng.choice(n, min(n, 8000), replace=False))].astype(np.float64)
        mean = sample.mean(axis=0)
        scale = np.abs(sample - mean).max() or 1.0
        sample = (sample - mean) / scale
        if sample.shape[1] > MOST_COLUMNS:  # more columns than rows say anything about: the other product is smaller
            sample = sample[:: -(-len(sample) // MOST_COLUMNS)]
            variances, U = np.linalg.eigh(sample @ sample.T)
            V = sample.T @ (U / np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny)))
        else:
            variances, V = np.linalg.eigh(sample.T @ sample)
        held = np.cumsum(variances[::-1])
        r = max(DIMENSIONS, int(np.searchsorted(held, VARIANCE * held[-1])) + 1)
        axes = V[:, : -r - 1 : -1] / scale
        Z = _project(X, mean, axes, n_jobs)
        size = max(64, int(n**0.5 / 2.5))
        centres = _centres(Z, max(1, n // size), rng, n_jobs)
        cells = _nearest_centre(Z, centres, n_jobs)
    order = np.argsort(cells, kind="stable")
    parts: list[np.ndarray] = []
    for part in np.split(order, np.cumsum(np.bincount(cells))[:-1]):
        if part.size > 4 * size:  # many rows in one place: cut across their widest component
            part = part[np.argsort(Z[part, np.ptp(Z[part], axis=0).argmax()], kind="stable")]
        parts += np.array_split(part, -(-part.size // (4 * size))) if part.size else []
    order = np.concatenate(parts)
    rows = Z[order]
    starts = np.cumsum([0, *(part.size for part in parts)])
    centres = np.add.reduceat(rows, starts[:-1], axis=0) / np.diff(starts)[:, None].astype(np.float32)
    return CellIndex(mean, axes, centres, starts, order, rows)


def cell_neighbors(
    index: CellIndex, X: np.ndarray, Q: np.ndarray, k: int, exclude_self: bool = False, n_jobs: int = -1
) -> tuple[np.ndarray, np.ndarray]:
    """Find (almost all of) the k nearest rows of X (n x d) for each row of Q (m x d) by Euclidean distance.

    Parameters
    ----------
    index : CellIndex
        Of X.
    exclude_self : bool
        Q is X, and no row shall list itself, whatever copies of it there are.
    n_jobs : int
        Threads, as joblib counts them.

    Returns
    -------
    distances : float64 ndarray of shape (m, min(k, rows there are to list))
        Squared distances, ascending, computed from the differences in all columns.
    indices : int64 ndarray of the same shape
        Equal distances by index.
    """
    n = X.shape[0]
    k = min(k, n - exclude_self)
    distances, indices = np.empty((Q.shape[0], k)), np.empty((Q.shape[0], k), dtype=np.int64)
    if k == 0 or Q.shape[0] == 0:
        return distances, indices
    # Where the components are all there is, only rounding can misplace a candidate.
    keep = min(2 * k if index.axes.shape[1] < X.shape[1] else k + 8, n - exclude_self)

    def search(cell: int, places: np.ndarray, own: np.ndarray) -> None:
        # Z (m x r) from rows around this cell: float32 keeps what their differences need, wherever the cell is.
        Z = (index.rows[own] if exclude_self else _project(Q[places], index.mean, index.axes, 1)) - index.centres[cell]
        columns = _candidates(index, cell, Z, max(CANDIDATES, 2 * keep + 1))
        scores = _scores(Z, index.rows[columns] - index.centres[cell])
        if exclude_self:
            scores[np.arange(own.size), np.searchsorted(columns, own)] = np.inf
        near = np.sort(index.order[columns[_smallest(scores, keep)]], axis=1)
        step = max(1, 2**17 // (keep * X.shape[1]))
        for start in range(0, places.size, step):
            at, these = places[start : start + step], near[start : start + step]
            difference = np.subtract(X[these], Q[at, None], dtype=np.result_type(X, Q, np.float32))
            squared = np.einsum("ijd,ijd->ij", difference, difference)
            nearest = np.argsort(squared, axis=1, kind="stable")[:, :k]
            distances[at] = np.take_along_axis(squared, nearest, axis=1)
            indices[at] = np.take_along_axis(these, nearest, axis=1)

    with one_blas_thread():  # the threads are the cells'
        if exclude_self:
            order, starts = index.order, index.starts
        else:
            cells = _nearest_centre(_project(Q, index.mean, index.axes, n_jobs), index.centres, n_jobs)
            order = np.argsort(cells, kind="stable")
            starts = np.searchsorted(cells[order], np.arange(index.centres.shape[0] + 1))
        Parallel(n_jobs, backend="threading", batch_size=4)(
            delayed(search)(cell, order[start:stop], np.arange(start, stop))
            for cell in range(starts.size - 1)
            for start in range(starts[cell], starts[cell + 1], GROUP)
            for stop in [min(start + GROUP, starts[cell + 1])]
        )
    return distances, indices


def _project(X: np.ndarray, mean: np.ndarray, axes: np.ndarray, n_jobs: int) -> np.ndarray:
    """Components of the rows, float32 (n x r)."""
    dtype = np.result_type(X, np.float32)
    shift, turn = mean.astype(dtype), axes.astype(dtype)
    blocks = Parallel(n_jobs, backend="threading")(
        delayed(lambda start: ((X[start : start + 4096] - shift) @ turn).astype(np.float32))(start)
        for start in range(0, X.shape[0], 4096)
    )
    return np.concatenate(blocks)


def _scores(Z: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Squared distances (m x w) less each row's own square, which its ranking does not need."""
    S = Z @ (np.float32(-2) * Y.T)
    S += np.einsum("ij,ij->i", Y, Y)
    return S


def _nearest_centre(Z: np.ndarray, centres: np.ndarray, n_jobs: int) -> np.ndarray:
    blocks = Parallel(n_jobs, backend="threading")(
        delayed(lambda start: _scores(Z[start : start + 1024], centres).argmin(axis=1))(start)
        for start in range(0, Z.shape[0], 1024)
    )
    return np.concatenate(blocks)


def _centres(Z: np.ndarray, n_cells: int, rng: np.random.Generator, n_jobs: int) -> np.ndarray:
    """k-means centres from six rounds over 40 rows a cell; a cell that runs empty keeps its centre."""
    S = Z[np.sort(rng.choice(Z.shape[0], min(Z.shape[0], 40 * n_cells), replace=False))]
    centres = S[rng.choice(S.shape[0], n_cells, replace=False)]
    for _ in range(6):
        cells = _nearest_centre(S, centres, n_jobs)
        order, counts = np.argsort(cells, kind="stable"), np.bincount(cells, minlength=n_cells)
        filled, starts = counts > 0, np.cumsum(counts) - counts
        sums = np.add.reduceat(S[order], starts[filled], axis=0)
        centres[filled] = sums / counts[filled, None].astype(np.float32)
    return centres


def _candidates(index: CellIndex, cell: int, Z: np.ndarray, enough: int) -> np.ndarray:
    """Places in ``index.rows``, ascending, of the cells to search: its own, those its rows vote for, the next ones."""
    centres = index.centres - index.centres[cell]
    S = _scores(Z[:: -(-Z.shape[0] // VOTERS)], centres)
    p = min(VOTES, S.shape[1] - 1)
    S -= np.partition(S, p, axis=1)[:, p : p + 1]
    votes = np.minimum(S, 0).sum(axis=0)
    votes[cell] = -np.inf
    ranked = np.lexsort((np.einsum("ij,ij->i", centres, centres), votes))
    sizes = np.diff(index.starts)[ranked]
    ranked = np.sort(ranked[: np.searchsorted(np.cumsum(sizes), enough) + 1])
    return np.concatenate([np.arange(index.starts[j], index.starts[j + 1]) for j in ranked])


def _smallest(scores: np.ndarray, keep: int) -> np.ndarray:
    """Columns of the `keep` smallest scores of each row, in no order: argpartition, several times as fast.

    The keep-th smallest of the minima of many groups of columns bounds the keep-th smallest score from above; few
    scores are below it, and only these are partitioned.
    """
    m, w = scores.shape
    groups = max(256, 4 * keep)
    whole = w // groups * groups
    if whole < 2 * groups:
        return np.argpartition(scores, min(keep, w - 1), axis=1)[:, :keep]
    minima = scores[:, :whole].reshape(m, -1, groups).min(axis=1)
    bound = np.partition(minima, keep - 1, axis=1)[:, keep - 1 : keep]
    below = np.flatnonzero(scores <= bound)
    row = below // w
    counts = np.bincount(row, minlength=m)
    place = np.arange(below.size) - (np.cumsum(counts) - counts)[row]
    few = np.full((m, counts.max()), np.inf, dtype=scores.dtype)
    columns = np.zeros(few.shape, dtype=np.int64)
    few[row, place] = scores.ravel()[below]
    columns[row, place] = below - row * w
    return np.take_along_axis(columns, np.argpartition(few, keep - 1, axis=1)[:, :keep], axis=1)
