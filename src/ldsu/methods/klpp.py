"""Kernel locality preserving projections."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
import scipy.sparse

from ldsu._utils.parameters import Count, Fraction, NonNegative, Positive, parameters
from ldsu.graphs import graph_laplacian, neighbor_weights
from ldsu.methods._base import KernelFeatures
from ldsu.spectrum import GeneralizedEigh, KernelBasis, canonicalize_degenerate, generalized_eigh, resolve_n_components


@parameters
class KLPP(KernelFeatures):
    """Kernel LPP: smoothest directions on a neighbor graph, ``K L K a = mu (K D K + ridge K) a``, smallest mu.

    L = D - W, with heat-kernel weights ``W_ij = exp(-d_ij^2 / t)`` between neighbors and t in units of their mean
    squared distance. Unsupervised: labels are ignored.

    Parameters
    ----------
    n_components : int, float or None, default=50
        Number of features to keep: a count, a fraction of the rank, or all (None).
    n_neighbors : int, default=5
        Number of neighbors in the graph, without the point itself; at most n - 1.
    heat_scale : float, default=1.0
        t, in units of the mean squared distance between neighbors.
    ridge : float, default=0.001
        Ridge, 0 for none. Without a ridge and with a full-rank kernel the training features are those of Laplacian
        eigenmaps, and do not generalize to new points.
    {kernel parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (n, r)
        Coefficients: features are ``k(x, X_fit) @ coef_``.
    eigenvalues_ : ndarray of shape (r,)
        mu, ascending.
    {fitted attributes}

    References
    ----------
    X. He, P. Niyogi: Locality preserving projections. NIPS 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from ldsu import KLPP
    >>> X, _ = load_iris(return_X_y=True)
    >>> KLPP(n_components=2).fit_transform(X).shape
    (150, 2)
    """

    matrices = 8

    n_components: Count | Fraction | None = field(default=50, kw_only=False)
    n_neighbors: Count = 5
    heat_scale: Positive = 1.0
    ridge: NonNegative = 0.001

    def _solve(self, K: np.ndarray, X: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        D2, neighbors = self._neighbors(K, X, self.n_neighbors)
        with np.errstate(over="ignore"):  # very large and very small scales give weights 1 and 0
            t = max(self.heat_scale * (D2.mean() or 1.0), np.finfo(np.float64).tiny)
            W = neighbor_weights(neighbors, np.exp(-D2 / t))
        basis = self._basis(K, X)
        B = basis.coordinates
        BLB = B.T @ (graph_laplacian(W) @ B)
        BDB = B.T @ (scipy.sparse.diags_array(W.sum(axis=1)) @ B)
        mu, T = klpp_directions(basis, BLB, BDB, self.ridge, self.n_components)
        return mu, basis.coefficients(T)


def klpp_directions(
    basis: KernelBasis,
    BLB: np.ndarray,
    BDB: np.ndarray,
    ridge: float,
    n_components: Any = None,
    eigh: GeneralizedEigh = generalized_eigh,
) -> tuple[np.ndarray, np.ndarray]:
    """KLPP in coordinates B of the kernel: mu (r,) and directions (q, r) from ``B^T L B``, ``B^T D B``, overwritten."""
    BDB.flat[:: basis.rank + 1] += ridge
    mu, T = eigh(BLB, BDB)
    r = resolve_n_components(n_components, basis.rank)
    canonicalize_degenerate(mu, T, basis.eigenvalues, r)
    return mu[:r], T[:, :r]
