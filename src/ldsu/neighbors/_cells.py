"""Approximate nearest neighbors of many rows: search only nearby k-means cells.

Cells are computed on the leading principal components. The rows of a cell are searched together by matrix products; the
remaining candidates are then compared in all columns, in the distance of a kernel. Sparse rows have few components, for
the choice of cells, and are all compared in all columns. Results depend on the seed, not on the number of threads.
``benchmarks/neighbors.py`` compares it with other libraries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.extmath import randomized_svd, row_norms

from ldsu._utils.arrays import CPU, Arrays, in_threads, one_blas_thread
from ldsu._utils.stages import counter
from ldsu.sample_kernels import EUCLIDEAN_KERNELS, SampleKernel

CANDIDATES = 6000  # rows searched per row: trade-off between recall and time
DIMENSIONS, VARIANCE = 64, 0.85  # minimum number of principal components, and explained variance
VOTERS, VOTES = 32, 16  # rows of a cell that vote for cells to search, and votes of each
MAX_COLUMNS = 2000  # with more columns, components are computed from this many rows
GROUP = 512  # maximum number of rows searched together
OTHER_DISTANCES = 5  # candidates per neighbor, by Euclidean distance, for neighbors in another distance


@dataclass(frozen=True)
class CellIndex:
    """Rows sorted by cell: r components, C cells."""

    mean: np.ndarray  # (d,)
    axes: np.ndarray  # (d, r), orthogonal, divided by the scale of the rows so that any unit fits float32
    centres: np.ndarray  # (C, r)
    starts: np.ndarray  # (C + 1,): cell j has rows[starts[j]:starts[j + 1]]
    order: np.ndarray  # (n,): index in X of each of `rows`
    rows: np.ndarray  # (n, r)


def cell_index(X: Any, seed: int = 0, n_jobs: int = -1, arrays: Arrays = CPU) -> CellIndex:
    """Sort the rows of X (n x d, finite) into k-means cells of about ``sqrt(n) / 2.5`` rows, at least 64."""
    rng = np.random.default_rng(seed)
    with one_blas_thread():
        mean, axes = principal_axes(X[rows_for_axes(X.shape[0], rng)])
        Z = project(X, mean, axes, n_jobs, arrays.stored((X.shape[0], axes.shape[1]), "float32"))
        centers = cell_centers(Z[rows_for_centers(Z.shape[0], rng)], Z.shape[0], rng, n_jobs)
        cells = nearest_center(Z, centers, n_jobs)
    order, starts = sort_into_cells(Z, cells, cell_size(X.shape[0]))
    rows = take_rows(Z, order, arrays)
    return CellIndex(mean, axes, cell_means(rows, starts), starts, order, rows)


def take_rows(X: Any, rows: np.ndarray, arrays: Arrays) -> Any:
    """``X[rows]``, where `arrays` stores it."""
    if scipy.sparse.issparse(X):
        return X[rows]
    taken: np.ndarray = arrays.stored((rows.size, X.shape[1]), X.dtype.name)
    return np.take(X, rows, axis=0, out=taken, mode="clip")  # other modes make a copy first


def add_to_cells(index: CellIndex, X: Any, n_jobs: int = -1) -> CellIndex:
    """The index with further rows X (t x d), each in the cell with the nearest center; the cells remain."""
    Z = project(X, index.mean, index.axes, n_jobs)
    with one_blas_thread():
        added = nearest_center(Z, index.centres, n_jobs)
    cells = np.concatenate([np.repeat(np.arange(index.centres.shape[0]), np.diff(index.starts)), added])
    order = np.argsort(cells, kind="stable")
    starts = np.searchsorted(cells[order], np.arange(index.centres.shape[0] + 1))
    rows = np.concatenate([index.order, index.order.size + np.arange(X.shape[0])])
    return replace(index, starts=starts, order=rows[order], rows=np.concatenate([index.rows, Z])[order])


def cell_size(n: int) -> int:
    """Target number of rows per cell."""
    return max(64, int(n**0.5 / 2.5))


def rows_for_axes(n: int, rng: np.random.Generator) -> np.ndarray:
    """Sample of n rows to compute the principal axes from."""
    return np.sort(rng.choice(n, min(n, 8000), replace=False))


def rows_for_centers(n: int, rng: np.random.Generator) -> np.ndarray:
    """Sample of n rows to compute the cell centers from: 40 per cell."""
    return np.sort(rng.choice(n, min(n, 40 * max(1, n // cell_size(n))), replace=False))


def principal_axes(sample: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d,) and leading axes (d, r) of a sample of rows (s x d), as in `CellIndex`; of sparse rows without mean."""
    sample = sample.astype(np.float64)
    if scipy.sparse.issparse(sample):
        scale = abs(sample).max() or 1.0
        axes = randomized_svd(sample, min(DIMENSIONS, *sample.shape), n_iter=4, random_state=0)[2].T
        return np.zeros(sample.shape[1]), axes / scale
    mean = sample.mean(axis=0)
    scale = np.abs(sample - mean).max() or 1.0
    sample = (sample - mean) / scale
    if sample.shape[1] > MAX_COLUMNS:  # use the smaller product
        sample = sample[:: -(-len(sample) // MAX_COLUMNS)]
        variances, U = np.linalg.eigh(sample @ sample.T)
        V = sample.T @ (U / np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny)))
    else:
        variances, V = np.linalg.eigh(sample.T @ sample)
    explained = np.cumsum(variances[::-1])
    r = max(DIMENSIONS, int(np.searchsorted(explained, VARIANCE * explained[-1])) + 1)
    return mean, V[:, : -r - 1 : -1] / scale


def sort_into_cells(Z: np.ndarray, cells: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Order of the rows (n,) by cell, and start of each cell; cells much larger than `size` are split."""
    order = np.argsort(cells, kind="stable")
    parts: list[np.ndarray] = []
    for part in np.split(order, np.cumsum(np.bincount(cells))[:-1]):
        if part.size > 4 * size:  # dense cell: split along its widest component
            part = part[np.argsort(Z[part, np.ptp(Z[part], axis=0).argmax()], kind="stable")]
        parts += np.array_split(part, -(-part.size // (4 * size))) if part.size else []
    return np.concatenate(parts), np.cumsum([0, *(part.size for part in parts)])


def cell_means(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Mean of the rows of each cell, float32 (C x r)."""
    return np.add.reduceat(rows, starts[:-1], axis=0) / np.diff(starts)[:, None].astype(np.float32)


def cell_neighbors(
    index: CellIndex,
    X: Any,
    Q: Any,
    k: int,
    exclude_self: bool = False,
    n_jobs: int = -1,
    arrays: Arrays = CPU,
    kernel: SampleKernel | None = None,
) -> np.ndarray:
    """Indices (m, k) of (almost all of) the rows of X (n x d) nearest to each row of Q (m x d), nearest first.

    Euclidean distances are computed from the differences in all columns; those of another `kernel` as it says, among
    the rows that are near by Euclidean distance. Ties are ordered by index. With `exclude_self`, Q is X
    and rows are not their own neighbors; duplicates of a row are.
    """
    n = X.shape[0]
    k = min(k, n - exclude_self)
    indices: np.ndarray = arrays.stored((Q.shape[0], k), arrays.integers(n).dtype.name)
    if k == 0 or Q.shape[0] == 0:
        return indices
    euclidean = kernel is None or kernel.name in EUCLIDEAN_KERNELS
    keep = min(candidates_kept(k, index.axes) if euclidean else OTHER_DISTANCES * k, n - exclude_self)
    sizes = np.diff(index.starts)
    sparse = scipy.sparse.issparse(X)
    squares = row_norms(X, squared=True) if sparse else np.empty(0)

    def search(cell: int, queries: np.ndarray, sorted_rows: np.ndarray) -> None:
        # Z (m x r) relative to the cell center, so that float32 suffices for differences.
        Z = index.rows[sorted_rows] if exclude_self else project(Q[queries], index.mean, index.axes, 1)
        Z = Z - index.centres[cell]
        near_cells = cells_to_search(index.centres, sizes, cell, Z, keep)
        columns = np.concatenate([np.arange(index.starts[j], index.starts[j + 1]) for j in near_cells])
        if sparse:
            rows = index.order[columns]
            scores = sparse_partial_distances(Q[queries], X[rows], squares[rows])
        else:
            scores = partial_distances(Z, index.rows[columns] - index.centres[cell])
        if exclude_self:
            scores[np.arange(sorted_rows.size), np.searchsorted(columns, sorted_rows)] = np.inf
        best = smallest(scores, keep)
        by_index = np.argsort(index.order[columns[best]], axis=1)
        best = np.take_along_axis(best, by_index, axis=1)
        near = index.order[columns[best]]
        known: np.ndarray | None = None
        if kernel and not euclidean:
            known = kernel.distances_to(X, near, Q[queries])
        elif sparse:  # all columns were compared
            known = np.take_along_axis(scores, best, axis=1)
        indices[queries] = nearest_candidates(X, Q[queries], near, k, known)[1]
        finished(queries.size)

    finished = counter(Q.shape[0], "rows searched")
    with one_blas_thread():  # parallel over cells
        if exclude_self:
            order, starts = index.order, index.starts
        else:
            cells = nearest_center(project(Q, index.mean, index.axes, n_jobs), index.centres, n_jobs)
            order = np.argsort(cells, kind="stable")
            starts = np.searchsorted(cells[order], np.arange(index.centres.shape[0] + 1))
        groups = row_groups(starts)
        in_threads(lambda group: search(group[0], order[slice(*group[1:])], np.arange(*group[1:])), groups, n_jobs)
    return indices


def candidates_kept(k: int, axes: np.ndarray) -> int:
    """Number of candidates for k neighbors to compare in all columns, given the axes (d, r)."""
    # If the components are complete, only rounding can misplace a candidate.
    return 2 * k if axes.shape[1] < axes.shape[0] else k + 8


def row_groups(starts: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Groups of rows that are searched together: cell, start and stop."""
    for cell in range(starts.size - 1):
        for start in range(starts[cell], starts[cell + 1], GROUP):
            yield cell, start, min(start + GROUP, starts[cell + 1])


def nearest_candidates(
    X: Any, Q: Any, near: np.ndarray, k: int, scores: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of the candidates `near` (m x keep; rows of X, ascending) of each row of Q, by scores if given."""
    if scores is not None:
        nearest = np.argsort(scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, nearest, axis=1), np.take_along_axis(near, nearest, axis=1)
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


def project(X: Any, mean: np.ndarray, axes: np.ndarray, n_jobs: int, out: np.ndarray | None = None) -> np.ndarray:
    """Principal components of the rows, float32 (n x r), in `out` if given."""
    dtype = np.result_type(X.dtype, np.float32)
    shift, rotation = mean.astype(dtype), axes.astype(dtype)
    components = np.empty((X.shape[0], axes.shape[1]), dtype=np.float32) if out is None else out

    def fill(start: int) -> None:
        rows = X[start : start + 4096]
        components[start : start + 4096] = (rows if scipy.sparse.issparse(rows) else rows - shift) @ rotation

    in_threads(fill, range(0, X.shape[0], 4096), n_jobs)
    return components


def partial_distances(Z: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Squared distances (m x w) minus the squared norm of each row, which does not affect the ranking."""
    S = Z @ (np.float32(-2) * Y.T)
    S += np.einsum("ij,ij->i", Y, Y)
    return S


def sparse_partial_distances(Q: Any, X: Any, squares: np.ndarray) -> np.ndarray:
    """`partial_distances` between the rows of CSR matrices Q (m x d) and X (w x d), with the squared norms of those."""
    used, place = np.unique(Q.indices), np.zeros(Q.shape[1], dtype=np.int32)
    place[used] = np.arange(1, used.size + 1)
    columns = place[X.indices]
    kept = columns > 0
    starts = np.concatenate([[0], np.cumsum(kept)])[X.indptr]
    X = scipy.sparse.csr_array((X.data[kept], columns[kept] - 1, starts), shape=(X.shape[0], used.size))
    dense = np.zeros((used.size, Q.shape[0]), dtype=X.dtype)
    dense[place[Q.indices] - 1, np.repeat(np.arange(Q.shape[0]), np.diff(Q.indptr))] = Q.data
    return np.ascontiguousarray((squares[:, None] - 2 * (X @ dense)).T)


def nearest_center(Z: np.ndarray, centers: np.ndarray, n_jobs: int) -> np.ndarray:
    """Index of the nearest center (C x r) of each row of Z (n x r)."""

    def nearest(start: int) -> np.ndarray:
        return partial_distances(Z[start : start + 1024], centers).argmin(axis=1)

    return np.concatenate(in_threads(nearest, range(0, Z.shape[0], 1024), n_jobs))


def cell_centers(S: np.ndarray, n: int, rng: np.random.Generator, n_jobs: int) -> np.ndarray:
    """k-means centers (C x r) for n rows from six iterations on a sample (s x r), ordered by location.

    An empty cell keeps its center.
    """
    n_cells = max(1, n // cell_size(n))
    centers = S[rng.choice(S.shape[0], n_cells, replace=False)]
    for _ in range(6):
        cells = nearest_center(S, centers, n_jobs)
        order, counts = np.argsort(cells, kind="stable"), np.bincount(cells, minlength=n_cells)
        filled, starts = counts > 0, np.cumsum(counts) - counts
        sums = np.add.reduceat(S[order], starts[filled], axis=0)
        centers[filled] = sums / counts[filled, None].astype(np.float32)
    return centers[_order_by_location(centers, np.arange(n_cells))]


def _order_by_location(centers: np.ndarray, subset: np.ndarray) -> np.ndarray:
    """Order centers by location: split recursively at the median of the widest component."""
    if subset.size <= 2:
        return subset
    widest = np.ptp(centers[subset], axis=0).argmax()
    subset = subset[np.argsort(centers[subset, widest], kind="stable")]
    middle = subset.size // 2
    return np.concatenate([_order_by_location(centers, subset[:middle]), _order_by_location(centers, subset[middle:])])


def cells_to_search(centers: np.ndarray, sizes: np.ndarray, cell: int, Z: np.ndarray, keep: int) -> np.ndarray:
    """Cells, ascending, to search for rows Z (m x r, relative to their cell's center): by votes, then distance."""
    n_candidates = max(CANDIDATES, 2 * keep + 1)
    centers = centers - centers[cell]
    S = partial_distances(Z[:: -(-Z.shape[0] // VOTERS)], centers)
    p = min(VOTES, S.shape[1] - 1)
    S -= np.partition(S, p, axis=1)[:, p : p + 1]
    votes = np.minimum(S, 0).sum(axis=0)
    votes[cell] = -np.inf
    ranked = np.lexsort((np.einsum("ij,ij->i", centers, centers), votes))
    return np.sort(ranked[: np.searchsorted(np.cumsum(sizes[ranked]), n_candidates) + 1])


def smallest(scores: np.ndarray, keep: int) -> np.ndarray:
    """Columns of the `keep` smallest scores of each row, unordered: several times faster than argpartition.

    The keep-th smallest of the minima over groups of columns bounds the keep-th smallest score from above; only the few
    scores below it are partitioned.
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
