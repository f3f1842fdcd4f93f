"""Kernel semi-supervised local Fisher discriminant analysis."""

from __future__ import annotations

from dataclasses import field
from numbers import Real
from typing import Annotated, Any

import numpy as np
from sklearn.utils._param_validation import Interval

from ldsu._utils.parameters import Count, Fraction, NonNegative, parameters
from ldsu.kernels import kernel_squared_distances
from ldsu.labels import class_counts
from ldsu.methods._base import KernelFeatures
from ldsu.spectrum import (
    GeneralizedEigh,
    KernelBasis,
    canonicalize_degenerate,
    generalized_eigh,
    numerical_rank,
    resolve_n_components,
)


@parameters
class KSELF(KernelFeatures):
    """Kernel SELF: ``max tr((T^T S_w' T)^-1 T^T S_b' T)`` with local Fisher scatters mixed with the total scatter.

    ``S_b' = (1 - beta) S_lb + beta S_t`` and ``S_w' = (1 - beta) S_lw + (beta + ridge) I`` in the kernel's feature
    space: S_lb and S_lw are the local between- and within-class scatters of the labelled points (affinities scaled by
    the 7th neighbor of the same class), S_t the total scatter of all points. beta = 1 is kernel PCA, beta = 0 kernel
    LFDA.

    Parameters
    ----------
    n_components : int, float or None, default=100
        Number of features to keep: a count, a fraction of those with a positive eigenvalue, or all (None).
    beta : float, default=0.1
        Mixing weight, from supervised (0) to unsupervised (1).
    ridge : float, default=0.001
        Ridge of the within-class scatter; required if beta is 0.
    local_neighbor : int, default=7
        Index of the neighbor whose distance scales the affinities; at most the class size minus one.
    {kernel parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (n, r)
        Coefficients: features are ``k(x, X_fit) @ coef_``.
    eigenvalues_ : ndarray of shape (r,)
        The maximized ratios, descending.
    {fitted attributes}

    References
    ----------
    M. Sugiyama, T. Ide, S. Nakajima, J. Sese: Semi-supervised local Fisher discriminant analysis for dimensionality
    reduction. Machine Learning 78, 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from ldsu import KSELF
    >>> X, y = load_iris(return_X_y=True)
    >>> y[10::3] = -1
    >>> KSELF(n_components=2).fit_transform(X, y).shape
    (150, 2)
    """

    matrices = 9
    labelled_matrices = 3

    n_components: Count | Fraction | None = field(default=100, kw_only=False)
    beta: Annotated[float, Interval(Real, 0, 1, closed="both")] = 0.1
    ridge: NonNegative = 0.001
    local_neighbor: Count = 7

    def _solve(self, K: np.ndarray, X: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.beta + self.ridge == 0:
            raise ValueError("KSELF with beta=0 requires ridge > 0: the local within-class scatter alone is singular.")
        labelled = np.flatnonzero(codes >= 0)
        weights = local_fisher_weights(K[np.ix_(labelled, labelled)], codes[labelled], self.local_neighbor)
        basis = self._basis(K, X)
        mu, T = kself_directions(basis, labelled, *weights, self.beta, self.ridge, self.n_components)
        return mu, basis.coefficients(T)


def kself_directions(
    basis: KernelBasis,
    labelled: np.ndarray,
    W_lw: np.ndarray,
    W_lb: np.ndarray,
    beta: float,
    ridge: float,
    n_components: Any = None,
    eigh: GeneralizedEigh = generalized_eigh,
) -> tuple[np.ndarray, np.ndarray]:
    """KSELF in the coordinates of a basis: ratios (r,) and directions (q, r) from pair weights of the labelled rows."""
    B_l, q = basis.coordinates[labelled], basis.rank
    S_b = (1 - beta) * _scatter(B_l, W_lb)
    if beta:
        mean = basis.coordinates.mean(axis=0)
        S_b -= beta * basis.coordinates.shape[0] * np.outer(mean, mean)
        S_b.flat[:: q + 1] += beta * basis.eigenvalues  # B^T B is diagonal
    S_w = (1 - beta) * _scatter(B_l, W_lw)
    S_w.flat[:: q + 1] += beta + ridge
    mu, T = (pairs[..., ::-1] for pairs in eigh(S_b, S_w))
    r = resolve_n_components(n_components, numerical_rank(mu, q))
    canonicalize_degenerate(mu, T, basis.eigenvalues, r)
    return mu[:r], T[:, :r]


def local_fisher_weights(K: np.ndarray, codes: np.ndarray, local_neighbor: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Pair weights of the local scatters of m labelled points: ``W_lw = A / m_t`` and ``W_lb = A (1/m - 1/m_t)`` within
    a class, 0 and 1/m between classes, ``A_ij = exp(-d_ij^2 / (sigma_i sigma_j))`` from kernel distances.
    """
    m = codes.shape[0]
    W_lw = np.zeros((m, m))
    W_lb = np.full((m, m), 1 / m) if m else np.zeros((0, 0))
    for t, m_t in enumerate(class_counts(codes)):
        members = np.flatnonzero(codes == t)
        within = np.ix_(members, members)
        diagonal = K[members, members]
        D2 = kernel_squared_distances(K[within], diagonal, diagonal)
        np.fill_diagonal(D2, 0)
        sigma = np.sqrt(np.sort(D2, axis=1)[:, min(local_neighbor, m_t - 1)])
        scale = np.outer(sigma, sigma)
        A = np.where(scale > 0, np.exp(-D2 / np.where(scale > 0, scale, 1)), 0)
        np.fill_diagonal(A, 1)
        W_lw[within] = A / m_t
        W_lb[within] = A * (1 / m - 1 / m_t)
    return W_lw, W_lb


def _scatter(B: np.ndarray, W: np.ndarray) -> np.ndarray:
    """``1/2 sum_ij W_ij (b_i - b_j)(b_i - b_j)^T = B^T (D - W) B``."""
    return B.T @ (W.sum(axis=1)[:, None] * B - W @ B)
