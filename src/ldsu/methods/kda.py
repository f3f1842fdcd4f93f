"""Kernel discriminant analysis through spectral regression."""

from __future__ import annotations

from typing import Any

import numpy as np

from ldsu._utils.parameters import Positive, parameters
from ldsu.graphs import class_indicator
from ldsu.methods._base import KernelFeatures
from ldsu.spectrum import resolve_n_components, solve_shifted


@parameters
class KDA(KernelFeatures):
    """Kernel discriminant analysis: regress class responses, ``(K_l + delta I) alpha = response``.

    The responses are the class indicators of the labelled points, made orthogonal to the constant and to each other:
    c - 1 eigenvectors of the same-class graph. Unlabelled points are only used for the "median" bandwidth.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of features to keep: a count, a fraction of c - 1, or all (None).
    delta : float, default=0.01
        Ridge of the regression.
    {kernel parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (m, r)
        Coefficients: features are ``k(x, X_fit) @ coef_``.
    eigenvalues_ : ndarray of shape (r,)
        All 1: the responses share one eigenvalue of the same-class graph.
    {fitted attributes}

    References
    ----------
    D. Cai, X. He, J. Han: Speed up kernel discriminant analysis. The VLDB Journal 20, 2011.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from ldsu import KDA
    >>> X, y = load_iris(return_X_y=True)
    >>> y[10::3] = -1
    >>> KDA().fit_transform(X, y).shape
    (150, 2)
    """

    min_classes = 2
    matrices = 4
    labelled_only = True

    delta: Positive = 0.01

    def _solve(self, K: np.ndarray, X: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        coefficients = kda_coefficients(K, codes, self.delta, self.n_components)
        return np.ones(coefficients.shape[1]), coefficients


def kda_coefficients(K: np.ndarray, codes: np.ndarray, delta: float, n_components: Any = None) -> np.ndarray:
    """Solve ``(K + delta I) alpha = responses`` for the labelled points, K (m x m) overwritten: alpha (m, r)."""
    m = K.shape[0]
    responses, _ = np.linalg.qr(np.column_stack([np.ones(m), class_indicator(codes).toarray()[:, :-1]]))
    r = resolve_n_components(n_components, responses.shape[1] - 1)
    K.flat[:: m + 1] += delta
    return solve_shifted(K, responses[:, 1 : r + 1], delta)
