"""Nearest neighbors in the input space or in the kernel's feature space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from sklearn.utils import gen_batches

from ldsu._utils.arrays import CPU, Arrays, one_blas_thread, one_openmp_thread
from ldsu._utils.memory import BLOCK_BYTES
from ldsu._utils.sizes import PicklesFields
from ldsu.kernels import column_means, kernel_squared_distances, shifted, stacked
from ldsu.neighbors._cells import (
    CellIndex,
    add_to_cells,
    cell_index,
    cell_neighbors,
    nearest_candidates,
    take_rows,
)
from ldsu.neighbors._device import ALL_PAIRS_ROWS, nearest, nearest_in_cells
from ldsu.sample_kernels import EUCLIDEAN_KERNELS, SampleKernel

if TYPE_CHECKING:
    from sklearn.neighbors import NearestNeighbors

# Up to this many rows all pairs are compared.
EXACT_ROWS = 8000
# Smaller searches take only some hundredths of a second in one thread.
FEW_PRODUCTS = 2**26


def input_neighbors(X: Any, n_neighbors: int, Q: Any = None, arrays: Arrays = CPU) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances and indices (n, n_neighbors) of the nearest *other* rows of each row of X (n x d).

    Nearest first by Euclidean distance, comparing all pairs. A row is not its own neighbor; duplicates of it are. If Q
    (m x d) is given, the nearest rows of X to each row of Q. Dense rows are compared on the device of `arrays`.
    """
    if arrays.xp is not np and not scipy.sparse.issparse(X):
        points = arrays.put(X, "float64")
        queries = points if Q is None else arrays.put(Q, "float64")
        distances, indices = nearest(points, queries, n_neighbors, Q is None, arrays.xp)
        return arrays.get(distances), arrays.get(indices)
    origin = column_means(X)
    queries = None if Q is None else shifted(Q, origin)
    return _compare_all(_all_pairs(shifted(X, origin)), X.shape, n_neighbors, queries)


def _all_pairs(X: Any) -> NearestNeighbors:
    from sklearn.neighbors import NearestNeighbors  # slow to import, and the exact solver's predictions do without

    return NearestNeighbors(algorithm="brute").fit(X)


def _compare_all(
    search: NearestNeighbors, shape: tuple[int, int], k: int, Q: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances and indices of the nearest of the rows (n x d, the shape) to other rows, or to those of Q."""
    m = shape[0] if Q is None else Q.shape[0]
    if k == 0:
        return np.empty((m, 0)), np.empty((m, 0), dtype=np.int64)
    # scikit-learn limits BLAS threads itself, but not thread-safely.
    with one_blas_thread(), one_openmp_thread(unless=m * shape[0] * shape[1] > FEW_PRODUCTS):
        distances, indices = search.kneighbors(Q, k)
    return np.asarray(distances, dtype=np.float64) ** 2, indices.astype(np.int64, copy=False)


def kernel_neighbors(K: np.ndarray, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
    """Like `input_neighbors`, from a kernel matrix K (n x n), by ``K_ii + K_jj - 2 K_ij``."""
    n = K.shape[0]
    diagonal = K.diagonal()
    distances = np.empty((n, n_neighbors))
    indices = np.empty((n, n_neighbors), dtype=np.int64)
    for block in gen_batches(n, max(1, BLOCK_BYTES // (K.itemsize * n))):
        D2 = kernel_squared_distances(K[block], diagonal[block], diagonal)
        rows = np.arange(D2.shape[0])
        D2[rows, np.arange(block.start, block.stop)] = np.inf
        # Sorted by index first, so that the stable sort below orders ties by index.
        nearest = np.sort(np.argpartition(D2, min(n_neighbors, n - 1), axis=1)[:, :n_neighbors], axis=1)
        order = np.argsort(np.take_along_axis(D2, nearest, axis=1), axis=1, kind="stable")
        indices[block] = np.take_along_axis(nearest, order, axis=1)
        distances[block] = np.take_along_axis(D2, indices[block], axis=1)
    return distances, indices


def cliques(neighbors: Any, arrays: Arrays = CPU) -> Any:
    """Cliques (n, k): each point followed by its neighbors (n x (k-1))."""
    points = arrays.integers(neighbors.shape[0])
    return arrays.xp.concatenate([points[:, None], neighbors], axis=1)


def sample_neighbors(X: Any, n_neighbors: int, Q: Any, kernel: SampleKernel) -> tuple[np.ndarray, np.ndarray]:
    """Like `input_neighbors`, in the distance of a kernel of samples, dense or sparse."""
    queries, n = X if Q is None else Q, X.shape[0]
    m = queries.shape[0]
    distances, indices = np.empty((m, n_neighbors)), np.empty((m, n_neighbors), dtype=np.int64)

    def fill(block: slice) -> None:
        D = kernel.distances(queries[block], X)
        if Q is None:
            D[np.arange(D.shape[0]), np.arange(n)[block]] = np.inf
        near = np.sort(np.argpartition(D, min(n_neighbors, n - 1), axis=1)[:, :n_neighbors], axis=1)
        scores = np.take_along_axis(D, near, axis=1)
        distances[block], indices[block] = nearest_candidates(X, queries, near, n_neighbors, scores)

    CPU.each(fill, m, 4 * 8 * n)
    return distances, indices


@dataclass(frozen=True)
class NeighborIndex(PicklesFields):
    """Nearest-neighbor index of X (n x d): exact for few rows, approximate with k-means cells for many."""

    X: Any  # dense or sparse; near the origin, so that matrix products give accurate distances
    cells: CellIndex | None  # None if all pairs are compared, and for the search on a GPU

    @cached_property
    def _search(self) -> NearestNeighbors:
        return _all_pairs(self.X)

    def with_rows(self, X: Any) -> NeighborIndex:
        """The index of these and further rows X (t x d)."""
        cells = None if self.cells is None else add_to_cells(self.cells, X)
        return NeighborIndex(stacked(self.X, X), cells)

    def query(self, Q: Any, k: int, points: Any, arrays: Arrays = CPU, kernel: SampleKernel | None = None) -> Any:
        """Indices (q, k), nearest first, of the rows nearest to each row of Q (q x d); None is each row of X to others.

        `points` is X on the device. Near by Euclidean distance, or in the feature space of a kernel: that of sparse
        rows, and of kernels that are not Euclidean, is searched on the CPU.
        """
        exclude_self = Q is None
        if kernel and (kernel.name not in EUCLIDEAN_KERNELS or scipy.sparse.issparse(self.X)):
            if self.cells is None:
                found = sample_neighbors(self.X, k, Q, kernel)[1]
            else:
                queries = self.X if Q is None else Q
                found = cell_neighbors(
                    self.cells, self.X, queries, k, exclude_self, arrays=_on_cpu(arrays), kernel=kernel
                )
            return found if arrays.xp is np else arrays.put(found, "int64")
        if arrays.xp is not np:
            search = nearest if self.X.shape[0] <= ALL_PAIRS_ROWS else nearest_in_cells
            return search(points, points if Q is None else arrays.put(Q), k, exclude_self, arrays.xp)[1]
        if self.cells is None:
            return input_neighbors(self.X, k)[1] if Q is None else _compare_all(self._search, self.X.shape, k, Q)[1]
        return cell_neighbors(self.cells, self.X, self.X if Q is None else Q, k, exclude_self, arrays=arrays)


def _on_cpu(arrays: Arrays) -> Arrays:
    """The same arrays if they are NumPy's, in memory or in files; otherwise those in memory."""
    return arrays if arrays.xp is np else CPU


def uses_cells(n: int, search: str) -> bool:
    """Whether the neighbors of n rows are searched in nearby cells ("cells") or among all rows ("exact")."""
    return n > EXACT_ROWS if search == "auto" else search == "cells"


def neighbor_index(
    X: Any, arrays: Arrays = CPU, search: str = "auto", *, on_device: bool = True
) -> tuple[NeighborIndex, np.ndarray]:
    """Index of ``X[order]`` (n x d), and the order: unchanged if all pairs are compared, otherwise sorted by cell.

    Nearby rows are then adjacent in memory. `on_device` says whether the device, if there is one, searches.
    """
    n = X.shape[0]
    if (arrays.xp is not np and on_device) or not uses_cells(n, search):
        return NeighborIndex(X, None), np.arange(n)
    arrays = _on_cpu(arrays)
    cells = cell_index(X, arrays=arrays)
    return NeighborIndex(take_rows(X, cells.order, arrays), replace(cells, order=np.arange(n))), cells.order
