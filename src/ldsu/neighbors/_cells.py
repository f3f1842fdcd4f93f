"""Nearest neighbours of many rows, almost all of the true ones: search the cells around each row instead of all rows.

k-means cells of the rows' leading principal components. The rows of a cell search the cells around it together, so that
the work is matrix products; the few candidates these leave are then compared in all columns. The same seed gives the
same answer whatever the number of threads. ``benchmarks/neighbors.py`` compares it with libraries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed

from ldsu._utils.arrays import one_blas_thread

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
    rng = np.random.default_rng(seed)
    with one_blas_thread():
        mean, axes = principal_axes(X[rows_for_axes(X.shape[0], rng)])
        Z = project(X, mean, axes, n_jobs)
        centres = cell_centres(Z[rows_for_centres(Z.shape[0], rng)], Z.shape[0], rng, n_jobs)
        cells = nearest_centre(Z, centres, n_jobs)
    order, starts = sort_into_cells(Z, cells, cell_size(X.shape[0]))
    return CellIndex(mean, axes, cell_means(Z[order], starts), starts, order, Z[order])


def cell_size(n: int) -> int:
    """Rows of a cell, more or less."""
    return max(64, int(n**0.5 / 2.5))


def rows_for_axes(n: int, rng: np.random.Generator) -> np.ndarray:
    """Which of n rows tell the principal axes."""
    return np.sort(rng.choice(n, min(n, 8000), replace=False))


def rows_for_centres(n: int, rng: np.random.Generator) -> np.ndarray:
    """Which of n rows the centres of cells are found from: 40 a cell."""
    return np.sort(rng.choice(n, min(n, 40 * max(1, n // cell_size(n))), replace=False))


def principal_axes(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d,) and leading axes (d, r), as a `CellIndex` has them, of some rows (s x d)."""
    sample = sample.astype(np.float64)
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
    return mean, V[:, : -r - 1 : -1] / scale


def sort_into_cells(Z: np.ndarray, cells: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Order of the rows (n,) cell by cell, and where each cell starts; those much larger than `size` are cut."""
    order = np.argsort(cells, kind="stable")
    parts: list[np.ndarray] = []
    for part in np.split(order, np.cumsum(np.bincount(cells))[:-1]):
        if part.size > 4 * size:  # many rows in one place: cut across their widest component
            part = part[np.argsort(Z[part, np.ptp(Z[part], axis=0).argmax()], kind="stable")]
        parts += np.array_split(part, -(-part.size // (4 * size))) if part.size else []
    return np.concatenate(parts), np.cumsum([0, *(part.size for part in parts)])


def cell_means(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Mean of the rows of each cell, float32 (C x r)."""
    return np.add.reduceat(rows, starts[:-1], axis=0) / np.diff(starts)[:, None].astype(np.float32)


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
    keep = min(candidates_kept(k, index.axes), n - exclude_self)
    sizes = np.diff(index.starts)

    def search(cell: int, places: np.ndarray, own: np.ndarray) -> None:
        # Z (m x r) from rows around this cell: float32 keeps what their differences need, wherever the cell is.
        Z = (index.rows[own] if exclude_self else project(Q[places], index.mean, index.axes, 1)) - index.centres[cell]
        near_cells = cells_to_search(index.centres, sizes, cell, Z, keep)
        columns = np.concatenate([np.arange(index.starts[j], index.starts[j + 1]) for j in near_cells])
        scores = scores_of(Z, index.rows[columns] - index.centres[cell])
        if exclude_self:
            scores[np.arange(own.size), np.searchsorted(columns, own)] = np.inf
        near = np.sort(index.order[columns[smallest(scores, keep)]], axis=1)
        distances[places], indices[places] = nearest_of(X, Q[places], near, k)

    with one_blas_thread():  # the threads are the cells'
        if exclude_self:
            order, starts = index.order, index.starts
        else:
            cells = nearest_centre(project(Q, index.mean, index.axes, n_jobs), index.centres, n_jobs)
            order = np.argsort(cells, kind="stable")
            starts = np.searchsorted(cells[order], np.arange(index.centres.shape[0] + 1))
        Parallel(n_jobs, backend="threading", batch_size=4)(
            delayed(search)(cell, order[start:stop], np.arange(start, stop))
            for cell, start, stop in groups_of_rows(starts)
        )
    return distances, indices


def candidates_kept(k: int, axes: np.ndarray) -> int:
    """How many candidates for k neighbours are compared in all columns, by the axes (d, r) that named them."""
    # Where the components are all there is, only rounding can misplace a candidate.
    return 2 * k if axes.shape[1] < axes.shape[0] else k + 8


def groups_of_rows(starts: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Rows that search together: their cell, the first of them, and the one after the last."""
    for cell in range(starts.size - 1):
        for start in range(starts[cell], starts[cell + 1], GROUP):
            yield cell, start, min(start + GROUP, starts[cell + 1])


def nearest_of(X: np.ndarray, Q: np.ndarray, near: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of the candidates `near` (m x keep; rows of X, ascending) of each row of Q, as `cell_neighbors`."""
    distances, indices = np.empty((Q.shape[0], k)), np.empty((Q.shape[0], k), dtype=np.int64)
    step = max(1, 2**17 // (near.shape[1] * X.shape[1]))
    for start in range(0, Q.shape[0], step):
        at = slice(start, start + step)
        difference = np.subtract(X[near[at]], Q[at, None], dtype=np.result_type(X, Q, np.float32))
        squared = np.einsum("ijd,ijd->ij", difference, difference)
        nearest = np.argsort(squared, axis=1, kind="stable")[:, :k]
        distances[at] = np.take_along_axis(squared, nearest, axis=1)
        indices[at] = np.take_along_axis(near[at], nearest, axis=1)
    return distances, indices


def project(X: np.ndarray, mean: np.ndarray, axes: np.ndarray, n_jobs: int) -> np.ndarray:
    """Components of the rows, float32 (n x r)."""
    dtype = np.result_type(X, np.float32)
    shift, turn = mean.astype(dtype), axes.astype(dtype)
    blocks = Parallel(n_jobs, backend="threading")(
        delayed(lambda start: ((X[start : start + 4096] - shift) @ turn).astype(np.float32))(start)
        for start in range(0, X.shape[0], 4096)
    )
    return np.concatenate(blocks)


def scores_of(Z: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Squared distances (m x w) less each row's own square, which its ranking does not need."""
    S = Z @ (np.float32(-2) * Y.T)
    S += np.einsum("ij,ij->i", Y, Y)
    return S


def nearest_centre(Z: np.ndarray, centres: np.ndarray, n_jobs: int) -> np.ndarray:
    """Which of the centres (C x r) is nearest to each row of Z (n x r)."""
    blocks = Parallel(n_jobs, backend="threading")(
        delayed(lambda start: scores_of(Z[start : start + 1024], centres).argmin(axis=1))(start)
        for start in range(0, Z.shape[0], 1024)
    )
    return np.concatenate(blocks)


def cell_centres(S: np.ndarray, n: int, rng: np.random.Generator, n_jobs: int) -> np.ndarray:
    """k-means centres for n rows from six rounds over some (s x r) of them, near ones near each other (C x r).

    A cell that runs empty keeps its centre.
    """
    n_cells = max(1, n // cell_size(n))
    centres = S[rng.choice(S.shape[0], n_cells, replace=False)]
    for _ in range(6):
        cells = nearest_centre(S, centres, n_jobs)
        order, counts = np.argsort(cells, kind="stable"), np.bincount(cells, minlength=n_cells)
        filled, starts = counts > 0, np.cumsum(counts) - counts
        sums = np.add.reduceat(S[order], starts[filled], axis=0)
        centres[filled] = sums / counts[filled, None].astype(np.float32)
    return centres[_in_halves(centres, np.arange(n_cells))]


def _in_halves(centres: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Order of some centres in which near ones are near each other: halved across the widest component, and so on."""
    if some.size <= 2:
        return some
    widest = np.ptp(centres[some], axis=0).argmax()
    some = some[np.argsort(centres[some, widest], kind="stable")]
    middle = some.size // 2
    return np.concatenate([_in_halves(centres, some[:middle]), _in_halves(centres, some[middle:])])


def cells_to_search(centres: np.ndarray, sizes: np.ndarray, cell: int, Z: np.ndarray, keep: int) -> np.ndarray:
    """Cells, ascending, for rows Z (m x r, about the centre of their cell): its own, those they vote for, the next."""
    enough = max(CANDIDATES, 2 * keep + 1)
    centres = centres - centres[cell]
    S = scores_of(Z[:: -(-Z.shape[0] // VOTERS)], centres)
    p = min(VOTES, S.shape[1] - 1)
    S -= np.partition(S, p, axis=1)[:, p : p + 1]
    votes = np.minimum(S, 0).sum(axis=0)
    votes[cell] = -np.inf
    ranked = np.lexsort((np.einsum("ij,ij->i", centres, centres), votes))
    return np.sort(ranked[: np.searchsorted(np.cumsum(sizes[ranked]), enough) + 1])


def smallest(scores: np.ndarray, keep: int) -> np.ndarray:
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
