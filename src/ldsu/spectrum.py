"""Eigendecompositions: order, sign, rank and number of features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import joblib
import numpy as np
from sklearn.utils import check_array

from ldsu._utils.arrays import CPU, Arrays
from ldsu._utils.memory import require_memory
from ldsu.kernels import Kernel, check_magnitude, check_mask, dense, resolve_kernel

# n x n arrays alive while a kernel matrix is decomposed: the matrix, LAPACK's workspace for "evd" and the coordinates.
BASIS_MATRICES = 5
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
    """Count eigenvalues above rounding error, ``n eps unit``.

    Parameters
    ----------
    eigenvalues : ndarray
        In any order.
    n : int
        Size of the matrix.
    eps : float
        Relative error of the matrix entries.
    unit : float, optional
        Magnitude of the numbers it was computed from. Default: the largest eigenvalue.
    """
    unit = max(eigenvalues.max(initial=0), 0) if unit is None else unit
    return int(np.sum(eigenvalues > n * eps * unit))


def canonicalize_degenerate(mu: np.ndarray, T: Any, variances: np.ndarray, r: int, arrays: Arrays = CPU) -> Any:
    """Choose a unique basis for each group of equal eigenvalues that overlaps the first r, in place.

    A graph of several components has a zero eigenvalue for each of them, and any rotation of their eigenvectors
    solves the problem. The rotation with uncorrelated features, largest variance first, is chosen: it depends on the
    data and not on the order of the rows.

    Parameters
    ----------
    mu : ndarray of shape (q,)
        Eigenvalues, sorted.
    T : array of shape (q, q)
        Eigenvectors in columns, as directions of the coordinates B of a `KernelBasis`.
    variances : ndarray of shape (q,)
        Eigenvalues of the kernel matrix, ``B^T B = diag(variances)``.
    r : int
        Number of columns that will be kept.
    arrays : Arrays
        Device of T.
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
    """The kernel matrix as coordinates: ``K = B B^T``, ``B = V Lambda^1/2`` from ``K = V Lambda V^T``.

    This half of the exact solver depends only on samples and kernel. Compute it once and pass it to all fits that
    differ only in labels, lam, theta, clique_size, n_components, filter or strength. It saves half of the time of
    "truncate" and "heat"; "tikhonov" needs no decomposition and does not benefit.

    Attributes
    ----------
    eigenvalues : ndarray of shape (rank,)
        Lambda, descending, without numerically zero eigenvalues.
    coordinates : array of shape (n, rank)
        B, on the device of the kernel matrix: a NumPy array unless computed by a solver on another device.
    kernel : Kernel or None
        The kernel, if known.
    fingerprint : str
        Hash of the samples, used to detect a basis computed from other samples.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from ldsu import LDSU, KernelBasis
    >>> X, y = load_iris(return_X_y=True)
    >>> y[::2] = -1
    >>> basis = KernelBasis.from_data(X)
    >>> [LDSU(filter="truncate", lam=lam, n_components=2).fit(X, y, basis=basis).coef_.shape for lam in (0.1, 1, 10)]
    [(150, 2), (150, 2), (150, 2)]
    """

    eigenvalues: np.ndarray
    coordinates: Any
    kernel: Kernel | None
    fingerprint: str

    @classmethod
    def from_data(
        cls,
        X: Any,
        *,
        kernel: str | Callable[..., float] = "rbf",
        gamma: float | Literal["median"] = "median",
        gamma_scale: float = 2.0,
        degree: int = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
    ) -> KernelBasis:
        """Decompose the kernel matrix of the rows of X. The parameters are those of `LDSU`."""
        check_mask(X)
        X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)
        check_magnitude(X, also_small=kernel != "precomputed")
        if kernel == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(f"A precomputed kernel must be square, but X has shape {X.shape}.")
        n = X.shape[0]
        require_memory(BASIS_MATRICES * 8 * n * n, f"The basis of a kernel matrix of {n} samples", "Use fewer samples.")
        resolved = resolve_kernel(
            X,
            kernel=kernel,
            gamma=gamma,
            gamma_scale=gamma_scale,
            degree=degree,
            coef0=coef0,
            kernel_params=kernel_params,
        )
        K = resolved.train_matrix(dense(X) if kernel == "precomputed" else X)
        return cls.from_kernel_matrix(K, eps=resolved.precision(X), kernel=resolved, fingerprint=joblib.hash(X))

    @classmethod
    def from_kernel_matrix(
        cls,
        K: Any,
        *,
        eps: float = EPS,
        kernel: Kernel | None = None,
        fingerprint: str = "",
        arrays: Arrays = CPU,
    ) -> KernelBasis:
        """Decompose K (n x n), whose entries have relative error `eps`, on its device. K is overwritten."""
        n = K.shape[0]
        eigenvalues, V = arrays.eigh(K.T)  # transposed: Fortran order, as LAPACK requires
        rank = numerical_rank(eigenvalues, n, eps=eps)
        if rank == 0:
            raise ValueError("The kernel matrix of X is zero: it has no features. Use another kernel.")
        eigenvalues = eigenvalues[n - rank :][::-1]
        coordinates = arrays.contiguous(arrays.xp.flip(V[:, n - rank :], (1,)))
        coordinates *= arrays.put(np.sqrt(eigenvalues))
        return cls(eigenvalues, coordinates, kernel, fingerprint)

    @property
    def rank(self) -> int:
        """Numerical rank of K."""
        return self.eigenvalues.size

    def coefficients(self, T: Any, arrays: Arrays = CPU) -> Any:
        """Convert directions T (rank x r) of coordinates to kernel coefficients: ``K @ coefficients(T) = B @ T``."""
        return self.coordinates @ (T / arrays.put(self.eigenvalues)[:, None])

    def check_matches(self, X: Any, kernel: Kernel) -> None:
        """Raise a ValueError if the basis was computed from other samples or another kernel."""
        if joblib.hash(X) != self.fingerprint:
            raise ValueError("basis was computed from samples other than X. Compute it with KernelBasis.from_data(X).")
        if self.kernel is None or not kernel.same_as(self.kernel):
            raise ValueError(
                f"basis was computed with {self.kernel}, but the estimator's kernel is {kernel}. "
                "Pass the estimator's kernel parameters to KernelBasis.from_data."
            )
