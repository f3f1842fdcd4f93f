"""Kernel locality preserving projections."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse
from sklearn.utils._param_validation import Interval

from ldsu.graphs import graph_laplacian, neighbor_weights
from ldsu.methods._base import KernelFeatures
from ldsu.spectrum import generalized_eigh, settle_degenerate, settle_n_components


class KLPP(KernelFeatures):
    """Kernel LPP: the smoothest directions on a neighbour graph, ``K L K a = mu (K D K + ridge K) a``, smallest mu.

    L = D - W, with heat-kernel weights ``W_ij = exp(-d_ij^2 / t)`` between neighbours and t in units of their mean
    squared distance. Unsupervised: labels are ignored.

    Parameters
    ----------
    n_components : int, float or None, default=50
        Features to keep: a count, a fraction of the rank, or all.
    n_neighbors : int, default=5
        Neighbours of a point in the graph (itself not counted); at most n - 1.
    heat_scale : float, default=1.0
        t, in units of the mean squared distance between neighbours.
    ridge : float, default=0.001
        Ridge, 0 for none. Without it and with a full-rank kernel the training features are those of Laplacian
        eigenmaps, and do not carry over to new points.
    kernel : {"rbf", "chi2", "linear", "poly", "cosine", "precomputed"} or callable, default="rbf"
        Kernel. A callable takes two rows and returns a number.
    gamma : float or "median", default="median"
        Bandwidth of rbf, chi2 and poly. "median" is ``gamma_scale / (2 median distance)``, see
        `ldsu.kernels.median_gamma`.
    gamma_scale : float, default=2.0
        Factor of the "median" rule.
    degree : int, default=3
        Degree of poly.
    coef0 : float, default=1
        Constant of poly.
    kernel_params : dict, optional
        Further arguments of a callable kernel.
    verbose : bool, default=False
        Write a line to standard error for each stage of `fit`.

    Attributes
    ----------
    coef_ : ndarray of shape (n, r)
        Coefficients: features are ``k(x, X_fit) @ coef_``.
    eigenvalues_ : ndarray of shape (r,)
        mu, ascending.
    gamma_ : float or None
        The bandwidth used.
    classes_ : ndarray of shape (c,)
        The labels seen.
    timings_ : dict of str to float
        Seconds of each stage of `fit`.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KernelFeatures._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "heat_scale": [Interval(Real, 0, None, closed="neither")],
        "ridge": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_components: int | float | None = 50,
        *,
        n_neighbors: int = 5,
        heat_scale: float = 1.0,
        ridge: float = 0.001,
        kernel: str | Callable[..., float] = "rbf",
        gamma: float | Literal["median"] = "median",
        gamma_scale: float = 2.0,
        degree: int = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            n_components,
            kernel=kernel,
            gamma=gamma,
            gamma_scale=gamma_scale,
            degree=degree,
            coef0=coef0,
            kernel_params=kernel_params,
            verbose=verbose,
        )
        self.n_neighbors = n_neighbors
        self.heat_scale = heat_scale
        self.ridge = ridge

    def _solve(self, K: np.ndarray, X: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        D2, neighbors = self._neighbors(K, X, self.n_neighbors)
        t = self.heat_scale * (D2.mean() or 1.0)
        W = neighbor_weights(neighbors, np.exp(-D2 / t))
        basis = self._basis(K, X)
        B = basis.coordinates
        BLB = B.T @ (graph_laplacian(W) @ B)
        BDB = B.T @ (scipy.sparse.diags_array(W.sum(axis=1)) @ B)
        BDB.flat[:: basis.rank + 1] += self.ridge
        mu, T = generalized_eigh(BLB, BDB)
        r = settle_n_components(self.n_components, basis.rank)
        settle_degenerate(mu, T, basis.eigenvalues, r)
        return mu[:r], basis.coefficients(T[:, :r])
