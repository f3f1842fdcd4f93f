"""Stages shared by all settings of one split, computed once: kernel, decomposition, neighbors, projected graphs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ldsu._utils.shared_work import Pieces
from ldsu.bench.linalg import DenseAlgebra
from ldsu.bench.protocol import Split
from ldsu.graphs import (
    clique_grams,
    clique_grams_kernel,
    graph_laplacian,
    neighbor_weights,
    scaled_clique_laplacian,
)
from ldsu.kernels import INPUT_SPACE_KERNELS, Kernel, resolve_kernel
from ldsu.neighbors import cliques, input_neighbors, kernel_neighbors
from ldsu.spectrum import KernelBasis


@dataclass(frozen=True)
class Coordinates:
    """Training and test half in the coordinates of the kernel: ``K = B B^T``, ``K_test = B_test B^T``.

    Attributes
    ----------
    basis : KernelBasis
        Its coordinates are B (n x rank).
    test : ndarray of shape (q, rank)
        B_test.
    K : ndarray of shape (n, n) or None
        The kernel matrix, kept only if neighbors are searched in the kernel's space.
    """

    basis: KernelBasis
    test: np.ndarray
    K: np.ndarray | None


class SplitWork(Pieces):
    """The shared stages of a split, each in a small cache; settings are processed in an order that suits it.

    Parameters
    ----------
    split : Split
    kernel : str
        The kernel of every method.
    algebra : DenseAlgebra
        Multiplies and decomposes large matrices.
    """

    # Cache size per stage. Settings are sorted by bandwidth, then graph, so a small cache suffices.
    KEEP = 2

    def __init__(self, split: Split, kernel: str, algebra: DenseAlgebra) -> None:
        super().__init__(self.KEEP)
        self.split = split
        self.kernel = kernel
        self.algebra = algebra
        self.in_kernel_space = kernel not in INPUT_SPACE_KERNELS

    def resolved_kernel(self, gamma_scale: float) -> Kernel:
        """The kernel with its bandwidth set from the training half."""
        return self.once(
            "kernel",
            gamma_scale,
            lambda: resolve_kernel(self.split.X_train, kernel=self.kernel, gamma_scale=gamma_scale),
        )

    def coordinates(self, gamma_scale: float) -> Coordinates:
        """Both halves in the coordinates of the kernel: the decomposition that all kernel methods share."""

        def make() -> Coordinates:
            kernel = self.resolved_kernel(gamma_scale)
            K = kernel.train_matrix(self.split.X_train)
            kept = K.copy() if self.in_kernel_space else None
            basis = KernelBasis.from_kernel_matrix(K, kernel=kernel, arrays=self.algebra)
            to_coordinates = basis.coordinates / basis.eigenvalues
            test = self.algebra.dot(kernel(self.split.X_test, self.split.X_train), to_coordinates)
            return Coordinates(basis, test, kept)

        return self.once("coordinates", gamma_scale, make)

    def neighbors(self, gamma_scale: float, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices of the nearest other training points, in the space of the kernel's methods."""
        n = self.split.X_train.shape[0]
        limit = min(64, n - 1)
        if n_neighbors > limit:
            raise ValueError(f"n_neighbors = {n_neighbors}, but it must be at most {limit}.")

        def make() -> tuple[np.ndarray, np.ndarray]:
            if self.in_kernel_space:
                K = self.coordinates(gamma_scale).K
                assert K is not None
                return kernel_neighbors(K, limit)
            return input_neighbors(self.split.X_train, limit)

        distances, indices = self.once("neighbors", gamma_scale if self.in_kernel_space else None, make)
        return distances[:, :n_neighbors], indices[:, :n_neighbors]

    def project(self, kind: str, gamma_scale: float, key: Hashable, make: Callable[[], Any]) -> np.ndarray:
        """``B^T L B`` for the sparse matrix L returned by `make`."""
        B = self.coordinates(gamma_scale).basis.coordinates

        def product() -> np.ndarray:
            return self.algebra.dot(B.T, make() @ B)

        return self.once(kind, (gamma_scale, key), product)

    def projected_cliques(self, gamma_scale: float, clique_size: int, theta: float) -> np.ndarray:
        """``B^T L B`` for the local discriminant Laplacian L, in relative units."""

        def laplacian() -> scipy.sparse.csr_array:
            members = cliques(self.neighbors(gamma_scale, clique_size - 1)[1])
            if self.in_kernel_space:
                K = self.coordinates(gamma_scale).K
                assert K is not None
                grams = clique_grams_kernel(K, members)
            else:
                grams = self.once("grams", clique_size, lambda: clique_grams(self.split.X_train, members))
            return scaled_clique_laplacian(grams, members, theta, relative=True)[0]

        return self.project("cliques", gamma_scale, (clique_size, theta), laplacian)

    def projected_neighbors(self, gamma_scale: float, n_neighbors: int) -> np.ndarray:
        """``B^T L B`` for the Laplacian L of the unweighted neighbor graph."""

        def laplacian() -> scipy.sparse.csr_array:
            return graph_laplacian(neighbor_weights(self.neighbors(gamma_scale, n_neighbors)[1]))

        return self.project("plain graph", gamma_scale, n_neighbors, laplacian)

    def projected_heat(self, gamma_scale: float, n_neighbors: int, heat_scale: float) -> tuple[np.ndarray, np.ndarray]:
        """``B^T L B`` and ``B^T D B`` for the neighbor graph with heat-kernel weights."""

        def weights() -> scipy.sparse.csr_array:
            D2, indices = self.neighbors(gamma_scale, n_neighbors)
            return neighbor_weights(indices, np.exp(-D2 / (heat_scale * (D2.mean() or 1.0))))

        key = (n_neighbors, heat_scale)
        BLB = self.project("heat graph", gamma_scale, key, lambda: graph_laplacian(weights()))
        BDB = self.project("heat degrees", gamma_scale, key, lambda: scipy.sparse.diags_array(weights().sum(axis=1)))
        return BLB, BDB
