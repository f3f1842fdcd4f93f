"""Eigendecompositions: order, sign, rank and the number of features, settled in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
import scipy.linalg
import scipy.sparse
from sklearn.utils import check_array

from ldsu.kernels import Kernel, check_magnitude, settle_kernel


def symmetric_eigh(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All eigenpairs of a symmetric matrix, ascending. Reads the lower triangle; A is overwritten.

    Divide and conquer ("evd"), the fastest of LAPACK's drivers for all pairs at every size measured.
    """
    try:
        return scipy.linalg.eigh(A, driver="evd", overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"The eigendecomposition of a {A.shape[0]} x {A.shape[0]} matrix failed ({error}). "
            "The data are probably scaled very unevenly: rescale the columns of X."
        ) from error


def generalized_eigh(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of ``A w = mu B w``, ascending, ``w^T B w = 1``; A symmetric, B positive definite, both overwritten."""
    try:
        return scipy.linalg.eigh(A, B, driver="gvd", overwrite_a=True, overwrite_b=True, check_finite=False)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"A generalised eigenproblem of size {A.shape[0]} is singular ({error}). Use a larger ridge."
        ) from error


def numerical_rank(eigenvalues: np.ndarray, n: int) -> int:
    """Count eigenvalues above rounding error, ``n eps max``; `eigenvalues` in any order."""
    largest = eigenvalues.max(initial=0)
    return int(np.sum(eigenvalues > n * np.finfo(eigenvalues.dtype).eps * max(largest, 0)))


def settle_degenerate(mu: np.ndarray, T: np.ndarray, variances: np.ndarray, r: int) -> np.ndarray:
    """Choose one basis where eigenvalues coincide, in place, for every group that reaches into the first r.

    A graph of several components has a zero eigenvalue for each of them, and any rotation of their eigenvectors
    solves the problem. Of these the one is taken whose features are uncorrelated, the largest variance first: it
    depends on the data and not on the order of the rows.

    Parameters
    ----------
    mu : ndarray of shape (q,)
        Eigenvalues, sorted.
    T : ndarray of shape (q, q)
        Eigenvectors in its columns, as directions of the coordinates B of a `KernelBasis`.
    variances : ndarray of shape (q,)
        Eigenvalues of the kernel matrix, ``B^T B = diag(variances)``.
    r : int
        Columns that will be kept.
    """
    if mu.size == 0:
        return T
    tolerance = np.finfo(mu.dtype).eps ** (2 / 3) * np.abs(mu).max()
    groups = np.split(np.arange(mu.size), np.flatnonzero(np.abs(np.diff(mu)) > tolerance) + 1)
    for group in groups:
        if group.size > 1 and group[0] < r:
            span = slice(group[0], group[-1] + 1)
            _, rotation = symmetric_eigh(T[:, span].T @ (variances[:, None] * T[:, span]))
            T[:, span] = T[:, span] @ rotation[:, ::-1]
    return T


def fix_signs(columns: np.ndarray) -> np.ndarray:
    """Turn each column so that its entry of largest magnitude is positive, in place."""
    if columns.size:
        largest = columns[np.abs(columns).argmax(axis=0), np.arange(columns.shape[1])]
        columns *= np.where(largest < 0, -1, 1).astype(columns.dtype)
    return columns


def settle_n_components(n_components: Any, available: int) -> int:
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
    every fit that differs in labels, lam, theta, clique_size, n_components, filter or strength only.

    Attributes
    ----------
    X : array or sparse matrix of shape (n, d)
        The samples.
    kernel : Kernel
        The kernel.
    eigenvalues : ndarray of shape (rank,)
        Lambda, descending, numerically zero ones dropped.
    coordinates : ndarray of shape (n, rank)
        B.

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

    X: Any
    kernel: Kernel
    eigenvalues: np.ndarray
    coordinates: np.ndarray

    @classmethod
    def from_data(
        cls,
        X: Any,
        *,
        kernel: str | Callable[..., float] = "rbf",
        gamma: float | Literal["median"] = "median",
        gamma_scale: float = 2.0,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
    ) -> KernelBasis:
        """Decompose the kernel matrix of the rows of X. The parameters are those of `LDSU`."""
        X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
        check_magnitude(X)
        settled = settle_kernel(
            X,
            kernel=kernel,
            gamma=gamma,
            gamma_scale=gamma_scale,
            degree=degree,
            coef0=coef0,
            kernel_params=kernel_params,
        )
        return cls.from_kernel_matrix(settled.train_matrix(X), X, settled)

    @classmethod
    def from_kernel_matrix(cls, K: np.ndarray, X: Any, kernel: Kernel) -> KernelBasis:
        """Decompose K (n x n), the matrix of `kernel` on X. K is overwritten."""
        n = K.shape[0]
        eigenvalues, V = symmetric_eigh(
            K.T
        )  # a symmetric C-ordered matrix, seen as the Fortran-ordered one LAPACK wants
        rank = numerical_rank(eigenvalues, n)
        eigenvalues = eigenvalues[n - rank :][::-1]
        coordinates = np.ascontiguousarray(V[:, n - rank :][:, ::-1])
        coordinates *= np.sqrt(eigenvalues)
        return cls(X, kernel, eigenvalues, coordinates)

    @property
    def rank(self) -> int:
        """Numerical rank of K."""
        return self.eigenvalues.size

    def coefficients(self, T: np.ndarray) -> np.ndarray:
        """Write directions T (rank x r) of the coordinates as kernel coefficients: ``K @ coefficients(T) = B @ T``."""
        return self.coordinates @ (T / self.eigenvalues[:, None])

    def check_matches(self, X: Any, kernel: Kernel) -> None:
        """Refuse a basis that was made from other samples or another kernel."""
        if not _same_array(X, self.X):
            raise ValueError("basis was made from other samples than X. Make a new one with KernelBasis.from_data(X).")
        if kernel != self.kernel:
            raise ValueError(
                f"basis was made with {self.kernel}, but the estimator's kernel is {kernel}. "
                "Give KernelBasis.from_data the same kernel parameters as the estimator."
            )


def _same_array(A: Any, B: Any) -> bool:
    if A is B:
        return True
    if A.shape != B.shape or scipy.sparse.issparse(A) != scipy.sparse.issparse(B):
        return False
    return (A != B).nnz == 0 if scipy.sparse.issparse(A) else bool(np.array_equal(A, B))
