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
    # Of the sparse solver.
    n_landmarks: int | None = None
    landmark_noise: float | None = None
    n_conditioning: int = 15
    nugget: float = 0.01
    tol: float = 1e-2
    max_iter: int = 1000
    neighbor_search: str = "auto"
    seed: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class Solution:
    """A solved problem.

    Attributes
    ----------
    feature_map : callable
        Features of new rows, ``feature_map(X) -> (len(X), r)``.
    coefficients : ndarray of shape (n, r) or None
        Weights of the training points in the features, where they are computed.
    eigenvalues : ndarray of shape (r,)
        With "truncate" the kept mu, ascending; with a smooth filter the sums of squares of the features over the
        anchors, descending.
    anchors : ndarray of int or None
        Rows of X that the features of a smooth filter are anchored at.
    clique_laplacian : callable
        Gives L, sparse (n, n), in the units in which lam multiplies it.
    theta : float
        The ridge in the units of the data.
    iterations, residual : int, float
        Of an iterative solve: steps of the slowest right-hand side, and the largest relative residual.
    neighbors : ndarray of shape (n, l) or None
        The nearest other rows of each row, where they were searched.
    """

    feature_map: Callable[[Any], np.ndarray]
    coefficients: np.ndarray | None
    eigenvalues: np.ndarray
    anchors: np.ndarray | None
    clique_laplacian: Callable[[], scipy.sparse.csr_array]
    theta: float
    iterations: int = 1
    residual: float = 0.0
    neighbors: np.ndarray | None = None
