"""What goes into a solver and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse


@dataclass(frozen=True)
class Settings:
    """The parameters of LDSU that shape the problem; see `ldsu.LDSU` for their meaning."""

    clique_size: int
    cliques_in_kernel_space: bool
    theta: float
    relative: bool
    lam: float
    filter: str
    strength: float
    n_components: int | float | None
    min_anchors: int


@dataclass(frozen=True)
class Solution:
    """A solved problem.

    Attributes
    ----------
    feature_map : callable
        Features of new rows, ``feature_map(X) -> (len(X), r)``.
    coefficients : ndarray of shape (n, r)
        Weights of the training points in the features.
    eigenvalues : ndarray of shape (r,)
        With "truncate" the kept mu, ascending; with a smooth filter the sums of squares of the features over the
        anchors, descending.
    anchors : ndarray of int or None
        Rows of X that the features of a smooth filter are anchored at.
    clique_laplacian : sparse array of shape (n, n)
        L, in the units in which lam multiplies it.
    theta : float
        The ridge in the units of the data.
    """

    feature_map: Callable[[Any], np.ndarray]
    coefficients: np.ndarray
    eigenvalues: np.ndarray
    anchors: np.ndarray | None
    clique_laplacian: scipy.sparse.csr_array
    theta: float
