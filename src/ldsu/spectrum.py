"""Eigendecompositions: order, sign, rank and number of features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from ldsu._utils.arrays import CPU, Arrays

EPS = float(np.finfo(np.float64).eps)
# Linear solves and eigenpairs of ``A w = mu B w`` for methods that do not use `Arrays`. Another backend can be passed
# instead. They may overwrite their input matrices.
ShiftedSolve = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
GeneralizedEigh = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# CPU implementations.
symmetric_eigh = CPU.eigh
generalized_eigh: GeneralizedEigh = CPU.generalized_eigh
solve_shifted: ShiftedSolve = CPU.solve


def numerical_rank(eigenvalues: np.ndarray, n: int, *, eps: float = EPS, unit: float | None = None) -> int:
    """Count eigenvalues of an n x n matrix above its rounding error, ``n eps unit``.

    `eps` is the relative error of its entries, `unit` the magnitude of the numbers it was computed from, by default the
    largest eigenvalue.
    """
    unit = max(eigenvalues.max(initial=0), 0) if unit is None else unit
    return int(np.sum(eigenvalues > n * eps * unit))


def canonicalize_degenerate(mu: np.ndarray, T: Any, variances: np.ndarray, r: int, arrays: Arrays = CPU) -> Any:
    """Choose a unique basis for each group of equal eigenvalues that overlaps the first r, in place.

    A graph of several components has a zero eigenvalue for each of them, and any rotation of their eigenvectors
    solves the problem. The rotation with uncorrelated features, largest variance first, is chosen: it depends on the
    data and not on the order of the rows. `mu` (q,) is sorted; the columns of T (q, q) are directions of the
    coordinates B of a `KernelBasis`, ``B^T B = diag(variances)``.
    """
    if mu.size == 0:
        return T
    # Accuracy of the eigenvalues: those that differ by less from the first of a group are considered equal.
    tolerance = mu.size * EPS * np.abs(mu).max()
    stop = 0
    for start in np.flatnonzero(np.abs(np.diff(mu)) <= tolerance).tolist():
        if stop <= start < r:
            stop = start + int(np.searchsorted(np.abs(mu[start:] - mu[start]), tolerance, side="right"))
            span = slice(start, stop)
            _, rotation = arrays.eigh(T[:, span].T @ (arrays.put(variances)[:, None] * T[:, span]))
            T[:, span] = T[:, span] @ arrays.xp.flip(rotation, (1,))
    return T


def fix_signs(columns: Any, arrays: Arrays = CPU) -> Any:
    """Flip the sign of each column, in place, so that its entry of largest magnitude is positive."""
    xp = arrays.xp
    if 0 not in columns.shape:
        largest = columns[xp.abs(columns).argmax(axis=0), arrays.put(np.arange(columns.shape[1]))]
        columns *= xp.where(largest < 0, -1, 1)
    return columns


def resolve_n_components(n_components: Any, available: int) -> int:
    """Number of features to keep out of `available`: all (None), a count, or a fraction."""
    if n_components is None:
        return available
    if isinstance(n_components, Integral):
        return min(int(n_components), available)
    return max(1, round(float(n_components) * available)) if available else 0


@dataclass(frozen=True)
class KernelBasis:
    """The kernel matrix as coordinates: ``K = B B^T``, ``B = V Lambda^1/2`` from ``K = V Lambda V^T``."""

    eigenvalues: np.ndarray  # Lambda (rank,), descending, without numerically zero eigenvalues
    coordinates: Any  # B (n, rank), on the device of the kernel matrix

    @classmethod
    def from_kernel_matrix(cls, K: Any, *, eps: float = EPS, arrays: Arrays = CPU) -> KernelBasis:
        """Decompose K (n x n), whose entries have relative error `eps`, on its device. K is overwritten."""
        n = K.shape[0]
        eigenvalues, V = arrays.eigh(K.T)  # transposed: Fortran order, as LAPACK requires
        rank = numerical_rank(eigenvalues, n, eps=eps)
        if rank == 0:
            raise ValueError("The kernel matrix of X is zero: it has no features. Use another kernel.")
        eigenvalues = eigenvalues[n - rank :][::-1]
        coordinates = arrays.contiguous(arrays.xp.flip(V[:, n - rank :], (1,)))
        coordinates *= arrays.put(np.sqrt(eigenvalues))
        return cls(eigenvalues, coordinates)

    @property
    def rank(self) -> int:
        """Numerical rank of K."""
        return self.eigenvalues.size

    def coefficients(self, T: Any, arrays: Arrays = CPU) -> Any:
        """Convert directions T (rank x r) of coordinates to kernel coefficients: ``K @ coefficients(T) = B @ T``."""
        return self.coordinates @ (T / arrays.put(self.eigenvalues)[:, None])
