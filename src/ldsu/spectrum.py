"""Eigendecompositions: order, sign, rank and the number of features, settled in one place."""

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

# n x n arrays alive while a kernel matrix is decomposed: it, LAPACK's workspace of two for "evd", and the coordinates.
BASIS_MATRICES = 5
EPS = float(np.finfo(np.float64).eps)
# Systems and all pairs of ``A w = mu B w`` for methods that are not written on `Arrays`. Whoever brings another engine
# hands these in. They may overwrite the matrices they decompose.
ShiftedSolve = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
GeneralizedEigh = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# On the CPU.
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
        Relative error of its entries.
    unit : float, optional
        Size of the numbers it was computed from. Default: the largest eigenvalue.
    """
    unit = max(eigenvalues.max(initial=0), 0) if unit is None else unit
    return int(np.sum(eigenvalues > n * eps * unit))


def canonicalize_degenerate(mu: np.ndarray, T: Any, variances: np.ndarray, r: int, arrays: Arrays = CPU) -> Any:
    """Choose one basis where eigenvalues coincide, in place, for every group that reaches into the first r.

    A graph of several components has a zero eigenvalue for each of them, and any rotation of their eigenvectors
    solves the problem. Of these the one is taken whose features are uncorrelated, the largest variance first: it
    depends on the data and not on the order of the rows.

    Parameters
    ----------
    mu : ndarray of shape (q,)
        Eigenvalues, sorted.
    T : array of shape (q, q)
        Eigenvectors in its columns, as directions of the coordinates B of a `KernelBasis`.
    variances : ndarray of shape (q,)
        Eigenvalues of the kernel matrix, ``B^T B = diag(variances)``.
    r : int
        Columns that will be kept.
    arrays : Arrays
        Where T is.
    """
    if mu.size == 0:
        return T
    # Eigenvalues are known to this much; what differs by less, from the first of a group, coincides.
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
    """Turn each column so that its entry of largest magnitude is positive, in place."""
    xp = arrays.xp
    if 0 not in columns.shape:
        largest = columns[xp.abs(columns).argmax(axis=0), arrays.put(np.arange(columns.shape[1]))]
        columns *= xp.where(largest < 0, -1, 1)
    return columns


def resolve_n_components(n_components: Any, available: int) -> int:
    """How many of `available` features to keep: all (None), a count, or a fraction of them."""
    if n_components is None:
        return available
    if isinstance(n_components, Integral):
        return min(int(n_components), available)
    return max(1, round(float(n_components) * available)) if available else 0


@dataclass(frozen=True)
class KernelBasis:
    """The kernel matrix as coordinates: ``K = B B^T``, ``B = V Lambda^1/2`` from ``K = V Lambda V^T``.

    This is the half of the exact solver that depends on nothing but samples and kernel. Make it once and hand it to
    every fit that differs in labels, lam, theta, clique_size, n_components, filter or strength only. It saves half of
    the work of "truncate" and "heat"; "tikhonov" decomposes nothing, and a basis gains it nothing.

    Attributes
    ----------
    eigenvalues : ndarray of shape (rank,)
        Lambda, descending, numerically zero ones dropped.
    coordinates : array of shape (n, rank)
        B, where the kernel matrix was: NumPy's, unless a solver made the basis on a device.
    kernel : Kernel or None
        The kernel, where it is known.
    fingerprint : str
        Hash of the samples, by which a basis made from others is recognised.

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
        settled = resolve_kernel(
            X,
            kernel=kernel,
            gamma=gamma,
            gamma_scale=gamma_scale,
            degree=degree,
            coef0=coef0,
            kernel_params=kernel_params,
        )
        K = settled.train_matrix(dense(X) if kernel == "precomputed" else X)
        return cls.from_kernel_matrix(K, eps=settled.precision(X), kernel=settled, fingerprint=joblib.hash(X))

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
        """Decompose K (n x n), whose entries are known to a relative `eps`, where it is. K is overwritten."""
        n = K.shape[0]
        eigenvalues, V = arrays.eigh(K.T)  # a symmetric C-ordered matrix is the Fortran-ordered one LAPACK wants
        rank = numerical_rank(eigenvalues, n, eps=eps)
        if rank == 0:
            raise ValueError("The kernel matrix of X is zero, and has no features. Use another kernel, or other data.")
        eigenvalues = eigenvalues[n - rank :][::-1]
        coordinates = arrays.contiguous(arrays.xp.flip(V[:, n - rank :], (1,)))
        coordinates *= arrays.put(np.sqrt(eigenvalues))
        return cls(eigenvalues, coordinates, kernel, fingerprint)

    @property
    def rank(self) -> int:
        """Numerical rank of K."""
        return self.eigenvalues.size

    def coefficients(self, T: Any, arrays: Arrays = CPU) -> Any:
        """Write directions T (rank x r) of the coordinates as kernel coefficients: ``K @ coefficients(T) = B @ T``."""
        return self.coordinates @ (T / arrays.put(self.eigenvalues)[:, None])

    def check_matches(self, X: Any, kernel: Kernel) -> None:
        """Refuse a basis that was made from other samples or another kernel."""
        if joblib.hash(X) != self.fingerprint:
            raise ValueError("basis was made from other samples than X. Make a new one with KernelBasis.from_data(X).")
        if self.kernel is None or not kernel.same_as(self.kernel):
            raise ValueError(
                f"basis was made with {self.kernel}, but the estimator's kernel is {kernel}. "
                "Give KernelBasis.from_data the same kernel parameters as the estimator."
            )
