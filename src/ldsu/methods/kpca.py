"""Kernel principal component analysis: a wrapper of scikit-learn's KernelPCA."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from ldsu.methods._base import KernelFeatures
from ldsu.spectrum import fix_signs, numerical_rank, resolve_n_components

if TYPE_CHECKING:
    from sklearn.decomposition import KernelPCA


class KPCA(KernelFeatures):
    """Kernel PCA: directions of largest variance, ``max tr(a^T K H K a)`` subject to ``a^T K a = I``.

    Wraps scikit-learn's `KernelPCA` with the interface of the other methods: their kernels and "median" bandwidth.
    Unsupervised: labels are ignored.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of features to keep: a count, a fraction of the rank, or all (None).
    {kernel parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (n, r)
        Coefficients: features are ``k(x, X_fit) @ coef_``.
    offset_ : ndarray of shape (r,)
        Subtracted from ``k(x, X) @ coef_``: the features of the mean.
    eigenvalues_ : ndarray of shape (r,)
        Eigenvalues of the centered kernel matrix, descending.
    {fitted attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from ldsu import KPCA
    >>> X, _ = load_iris(return_X_y=True)
    >>> KPCA(n_components=2).fit_transform(X).shape
    (150, 2)
    """

    matrices = 6

    def _solve(self, K: np.ndarray, X: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, means = K.shape[0], K.mean(axis=0)
        count = self.n_components if isinstance(self.n_components, Integral) else None
        solver = _principal_components(K, count)
        rank = numerical_rank(solver.eigenvalues_, n)
        r = resolve_n_components(self.n_components, rank)
        eigenvalues = solver.eigenvalues_[:r]
        coefficients = fix_signs(solver.eigenvectors_[:, :r] / np.sqrt(eigenvalues))
        self.offset_ = means @ coefficients
        return eigenvalues, coefficients


def _principal_components(K: np.ndarray, count: int | None) -> KernelPCA:
    """Some or all eigenpairs of the centered kernel matrix."""
    from sklearn.decomposition import KernelPCA  # slow to import, and no other method needs it

    solver = KernelPCA(n_components=count, kernel="precomputed", random_state=0)
    try:
        return solver.fit(K)
    except ValueError:
        # LAPACK may fail to compute a subset of many equal eigenvalues, but computes all of them.
        if count is None:
            raise
        return solver.set_params(n_components=None).fit(K)
