"""A learned feature map: kernel values against the training points, times coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from ldsu.kernels import Kernel
from ldsu.memory import BLOCK_BYTES


@dataclass(frozen=True)
class KernelExpansion:
    """``features(x) = k(x, points) @ coefficients - offset``.

    Attributes
    ----------
    kernel : Kernel
        The kernel k.
    points : array or sparse matrix of shape (b, d)
        The points the features are written in.
    coefficients : ndarray of shape (b, r)
        Their weights.
    offset : ndarray of shape (r,) or float
        Subtracted from the features.
    """

    kernel: Kernel
    points: Any
    coefficients: np.ndarray
    offset: np.ndarray | float = 0.0

    def __call__(self, X: Any) -> np.ndarray:
        """Features of the rows of X, shape (len(X), r), in its precision; in blocks, to hold few kernel values."""
        n, (b, r) = X.shape[0], self.coefficients.shape
        features = np.empty((n, r), dtype=X.dtype)
        for block in gen_batches(n, max(1, BLOCK_BYTES // (8 * max(b, 1)))):
            features[block] = self.kernel(X[block], self.points) @ self.coefficients - self.offset
        return features
