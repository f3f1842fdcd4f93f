"""Nearest neighbors in the input space or in the kernel's feature space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches

from ldsu._utils.arrays import CPU, Arrays, one_blas_thread, one_openmp_thread
from ldsu._utils.memory import BLOCK_BYTES
from ldsu.kernels import column_means, kernel_squared_distances, shifted
from ldsu.neighbors._cells import CellIndex, cell_index, cell_neighbors, take_rows
from ldsu.neighbors._device import ALL_PAIRS_ROWS, nearest, nearest_in_cells

# Up to this many rows all pairs are compared.
EXACT_ROWS = 8000
# Smaller searches take only some hundredths of a second in one thread.
FEW_PRODUCTS = 2**26


def input_neighbors(X: Any, n_neighbors: int, Q: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances and indices (n, n_neighbors) of the nearest *other* rows of each row of X (n x d).

    Nearest first by Euclidean distance, comparing all pairs. A row is not its own neighbor; duplicates of it are. If Q
    (m x d) is given, the nearest rows of X to each row of Q; both must be near the origin.
    """
    m = X.shape[0] if Q is None else Q.shape[0]
    if n_neighbors == 0:
        return np.empty((m, 0)), np.empty((m, 0), dtype=np.int64)
    if Q is None:
        X = shifted(X, column_means(X))
    search = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(X)
    # scikit-learn limits BLAS threads itself, but not thread-safely.
    with one_blas_thread(), one_openmp_thread(unless=m * X.shape[0] * X.shape[1] > FEW_PRODUCTS):
        distances, indices = search.kneighbors(Q)
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


@dataclass(frozen=True)
class NeighborIndex:
    """Nearest-neighbor index of X (n x d): exact for few rows, approximate with k-means cells for many."""

    X: np.ndarray  # near the origin, so that matrix products give accurate distances
    cells: CellIndex | None  # None if all pairs are compared, and for the search on a GPU

    def query(self, Q: np.ndarray | None, k: int, points: Any, arrays: Arrays = CPU) -> Any:
        """Indices (q, k), nearest first, of the rows nearest to each row of Q (q x d); None is each row of X to others.

        `points` is X on the device.
        """
        exclude_self = Q is None
        if arrays.xp is not np:
            search = nearest if self.X.shape[0] <= ALL_PAIRS_ROWS else nearest_in_cells
            return search(points, points if Q is None else arrays.put(Q), k, exclude_self, arrays.xp)[1]
        if self.cells is None:
            return input_neighbors(self.X, k, Q)[1]
        return cell_neighbors(self.cells, self.X, self.X if Q is None else Q, k, exclude_self, arrays=arrays)


def uses_cells(n: int, search: str) -> bool:
    """Whether the neighbors of n rows are searched in nearby cells ("cells") or among all rows ("exact")."""
    return n > EXACT_ROWS if search == "auto" else search == "cells"


def neighbor_index(X: np.ndarray, arrays: Arrays = CPU, search: str = "auto") -> tuple[NeighborIndex, np.ndarray]:
    """Index of ``X[order]`` (n x d), and the order: unchanged if all pairs are compared, otherwise sorted by cell.

    Nearby rows are then adjacent in memory.
    """
    n = X.shape[0]
    if arrays.xp is not np or not uses_cells(n, search):
        return NeighborIndex(X, None), np.arange(n)
    cells = cell_index(X, arrays=arrays)
    return NeighborIndex(take_rows(X, cells.order, arrays), replace(cells, order=np.arange(n))), cells.order
