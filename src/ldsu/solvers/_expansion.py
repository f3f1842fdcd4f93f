"""Feature map by kernel values at the training points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from ldsu._utils.arrays import arrays_on
from ldsu._utils.memory import BLOCK_BYTES
from ldsu.kernels import Kernel


@dataclass(frozen=True)
class KernelExpansion:
    """``features(x) = k(x, points) @ coefficients - offset``.

    Attributes
    ----------
    kernel : Kernel
        The kernel k.
    points : array or sparse matrix of shape (b, d)
        Training points.
    coefficients : ndarray of shape (b, r)
        Weights of the points.
    offset : ndarray of shape (r,) or float
        Subtracted from the features.
    device : str
        Device of the computation, see `ldsu._utils.arrays.arrays_on`.
    """

    kernel: Kernel
    points: Any
    coefficients: np.ndarray
    offset: np.ndarray | float = 0.0
    device: str = "cpu"

    def __call__(self, X: Any) -> np.ndarray:
        """Features (len(X), r) of the rows of X, with the dtype of X, computed in blocks."""
        arrays = arrays_on(self.device)
        n, (b, r) = X.shape[0], self.coefficients.shape
        features = np.empty((n, r), dtype=X.dtype)
        coefficients = arrays.put(self.coefficients)
        for block in gen_batches(n, max(1, max(BLOCK_BYTES, arrays.block_bytes) // (8 * max(b, 1)))):
            K = self.kernel(X[block], self.points, arrays)
            with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported below
                features[block] = arrays.get(K @ coefficients) - self.offset
        if not np.isfinite(features).all():
            largest = float(np.abs(self.coefficients).max(initial=0))
            raise ValueError(
                f"The features of some rows do not fit {X.dtype}: the largest model coefficient is {largest:.3g}. "
                "Increase the regularization, or rescale X."
            )
        return features
