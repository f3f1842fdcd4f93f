"""What goes into a solver and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Annotated, Any, Literal

import numpy as np
import scipy.sparse
from sklearn.utils._param_validation import Interval

from ldsu._utils.parameters import Count, Fraction, NonNegative, NonNegativeInt, Positive, parameters


@parameters
class Settings:
    """The parameters of LDSU that shape the problem, with "auto" resolved; see `ldsu.LDSU` for their meaning."""

    n_components: Count | Fraction | None = field(default=None, kw_only=False)
    filter: Literal["tikhonov", "heat", "truncate"] = "tikhonov"
    strength: NonNegative = 100.0
    lam: NonNegative = 1.0
    clique_size: Count = 3
    theta: Positive = 0.1
    scaling: Literal["relative", "absolute"] = "relative"
    cliques: Literal["input", "kernel"] = "input"
    min_anchors: Count = 200
    # Of the sparse solver.
    n_landmarks: NonNegativeInt | None = None
    landmark_noise: NonNegative | None = None
    n_conditioning: Count = 15
    nugget: Positive = 0.01
    tol: Annotated[float, Interval(Real, 0, 1, closed="neither")] = 1e-2
    max_iter: Count = 1000
    neighbor_search: Literal["auto", "exact", "cells"] = "auto"
    random_state: NonNegativeInt = 0
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
    anchor_kernel : array of shape (anchors, anchors) or None
        The filtered kernel at the anchors without the same-class graph, on the device, where it is computed.
    graphs : callable
        Gives L, sparse (n, n), in the units in which lam multiplies it, and the nearest other rows (n, l) of each row,
        or None where they were not searched.
    theta : float
        The ridge in the units of the data.
    iterations, residual : int, float
        Of an iterative solve: steps of the slowest right-hand side, and the largest relative residual.
    training : callable or None
        Gives the features of the training rows (n, r), on the device, if these are at hand.
    """

    feature_map: Callable[[Any], np.ndarray]
    coefficients: np.ndarray | None
    eigenvalues: np.ndarray
    anchors: np.ndarray | None
    graphs: Callable[[], tuple[scipy.sparse.csr_array, np.ndarray | None]]
    theta: float
    iterations: int = 1
    residual: float = 0.0
    training: Callable[[], Any] | None = None
    anchor_kernel: Any = None

    def clique_laplacian(self) -> scipy.sparse.csr_array:
        """L."""
        return self.graphs()[0]

    @property
    def neighbors(self) -> np.ndarray | None:
        """The nearest other rows of each row, where they were searched."""
        return self.graphs()[1]
