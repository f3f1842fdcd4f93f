"""Who is near whom: nearest neighbours in the input space or in the kernel's."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches

from ldsu.kernels import column_means, kernel_squared_distances, shifted
from ldsu.memory import BLOCK_BYTES


def input_neighbors(X: Any, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest *other* rows of each row of X (n x d) by Euclidean distance.

    Returns
    -------
    distances : ndarray of shape (n, n_neighbors)
        Squared distances, ascending.
    indices : ndarray of shape (n, n_neighbors)
        A row never lists itself, whatever copies of it there are.
    """
    n = X.shape[0]
    if n_neighbors == 0:
        return np.empty((n, 0)), np.empty((n, 0), dtype=np.int64)
    search = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(shifted(X, column_means(X)))
    distances, indices = search.kneighbors()
    return np.asarray(distances, dtype=np.float64) ** 2, indices.astype(np.int64, copy=False)


def kernel_neighbors(K: np.ndarray, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
    """The same from a kernel matrix K (n x n), by ``K_ii + K_jj - 2 K_ij``."""
    n = K.shape[0]
    diagonal = K.diagonal()
    distances = np.empty((n, n_neighbors))
    indices = np.empty((n, n_neighbors), dtype=np.int64)
    for block in gen_batches(n, max(1, BLOCK_BYTES // (K.itemsize * n))):
        D2 = kernel_squared_distances(K[block], diagonal[block], diagonal)
        rows = np.arange(D2.shape[0])
        D2[rows, np.arange(block.start, block.stop)] = np.inf
        # In index order first, so that the stable sort that follows puts equal distances by index.
        nearest = np.sort(np.argpartition(D2, min(n_neighbors, n - 1), axis=1)[:, :n_neighbors], axis=1)
        order = np.argsort(np.take_along_axis(D2, nearest, axis=1), axis=1, kind="stable")
        indices[block] = np.take_along_axis(nearest, order, axis=1)
        distances[block] = np.take_along_axis(D2, indices[block], axis=1)
    return distances, indices


def cliques(neighbors: np.ndarray) -> np.ndarray:
    """Put each point before its neighbours (n x (k-1)): the cliques, shape (n, k)."""
    return np.column_stack([np.arange(neighbors.shape[0]), neighbors])
