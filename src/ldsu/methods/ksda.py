"""Kernel semi-supervised discriminant analysis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ldsu._utils.parameters import Count, NonNegative, Positive, parameters
from ldsu.graphs import class_indicator, graph_laplacian, neighbor_weights
from ldsu.methods._base import KernelFeatures
from ldsu.spectrum import ShiftedSolve, numerical_rank, resolve_n_components, solve_shifted, symmetric_eigh


@parameters
class KSDA(KernelFeatures):
    """Kernel SDA: maximize ``a^T K W K a / a^T (K (I_lab + alpha L) K + beta K) a``.

    W is the same-class graph of the labelled points, its blocks divided by the class counts; I_lab the identity on
    labelled rows; L the Laplacian of the unweighted nearest-neighbor graph of all points.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of features to keep: a count, a fraction of c, or all c (None).
    n_neighbors : int, default=5
        Number of neighbors in the graph, without the point itself; at most n - 1.
    alpha : float, default=0.01
        Weight of the neighbor graph.
    beta : float, default=0.01
        Ridge, > 0.
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
    D. Cai, X. He, J. Han: Semi-supervised discriminant analysis. ICCV 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from ldsu import KSDA
    >>> X, y = load_iris(return_X_y=True)
    >>> y[10::3] = -1
    >>> KSDA().fit_transform(X, y).shape
    (150, 3)
    """

    min_classes = 2
    matrices = 6
    labelled_matrices = 1

    n_neighbors: Count = 5
    alpha: NonNegative = 0.01
    beta: Positive = 0.01

    def _solve(self, K: np.ndarray, X: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        L = graph_laplacian(neighbor_weights(self._neighbors(K, X, self.n_neighbors)[1]))
        basis = self._basis(K, X)
        B = basis.coordinates
        mu, T = ksda_directions(B, B.T @ (L @ B), codes, self.alpha, self.beta, self.n_components)
        return mu, basis.coefficients(T)


def ksda_directions(
    B: np.ndarray,
    BLB: np.ndarray,
    codes: np.ndarray,
    alpha: float,
    beta: float,
    n_components: Any = None,
    solve: ShiftedSolve = solve_shifted,
) -> tuple[np.ndarray, np.ndarray]:
    """KSDA in coordinates B (n x q) of the kernel, ``K = B B^T``, from ``B^T L B``: ratios (r,), directions (q, r).

    The denominator is ``A = B^T (I_lab + alpha L) B + beta I``. ``W = Q Q^T`` has rank c, so the maximizers are ``A^-1
    B^T Q u``, and u solves the c x c problem ``Q^T B A^-1 B^T Q u = mu u``.
    """
    labelled = codes >= 0
    A = B[labelled].T @ B[labelled]
    A += alpha * BLB
    A.flat[:: A.shape[0] + 1] += beta
    BQ = B.T @ class_indicator(codes, unit_columns=True).toarray()
    G = solve(A, BQ, beta)
    P = BQ.T @ G
    mu, U = symmetric_eigh((P + P.T) / 2)
    r = resolve_n_components(n_components, numerical_rank(mu, B.shape[0]))
    mu, U = mu[::-1][:r], U[:, ::-1][:, :r]
    return mu, G @ (U / np.sqrt(mu))
