"""A learned feature map without kernel sums: landmarks, and the nearest training points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from ldsu.arrays import Arrays, arrays_on
from ldsu.kernels import dense
from ldsu.landmarks import landmark_features
from ldsu.neighbors import NeighborIndex
from ldsu.precision import conditional

# Samples farther out than this, in units of their spread, are taken for this far.
FARTHEST = 1e15
# New samples that are searched for and computed together.
BATCH, BATCH_BYTES = 2**15, 2**29


def in_units(X: np.ndarray, origin: np.ndarray | None, unit: float, dtype: str) -> np.ndarray:
    """``(X - origin) / unit``, clipped to what single precision can square."""
    samples = X - (0 if origin is None else origin)
    with np.errstate(over="ignore"):  # what overflows is clipped
        samples /= unit
    return np.clip(samples, -FARTHEST, FARTHEST, out=samples).astype(dtype, copy=False)


@dataclass(frozen=True)
class LocalExpansion:
    """``features(x) = p(x)^T C + w(x)^T F_N``: landmarks, and what the nearest training points N add to them.

    ``w = R_NN^-1 r_N(x)`` are the weights of N under the residual kernel ``R = k - P P^T``.

    Attributes
    ----------
    origin : ndarray of shape (d,) or None
        Subtracted from new samples, as it was from `points`.
    unit : float
        What they are divided by then.
    points : ndarray of shape (n, d)
        The training samples.
    gamma, nugget : float
        Of the kernel, and of its residual.
    index : NeighborIndex
        Of `points`.
    landmarks : ndarray of shape (p, d)
    transform : ndarray of shape (p, q)
        ``p(x) = k(x, landmarks) @ transform``.
    P : ndarray of shape (n, q)
        Landmark features of the training samples.
    global_coefficients : ndarray of shape (q, r)
        C.
    local : ndarray of shape (n, r)
        F.
    n_conditioning : int
        How many training samples N holds, less one.
    device : str
        Where the work is done.
    """

    origin: np.ndarray | None
    unit: float
    points: np.ndarray
    gamma: float
    nugget: float
    index: NeighborIndex
    landmarks: np.ndarray
    transform: np.ndarray
    P: np.ndarray
    global_coefficients: np.ndarray
    local: np.ndarray
    n_conditioning: int
    device: str

    def __call__(self, X: Any) -> np.ndarray:
        """Features of the rows of X, shape (len(X), r), in its precision; in blocks."""
        arrays = arrays_on(self.device)
        features = np.empty((X.shape[0], self.local.shape[1]), dtype=X.dtype)
        there = (arrays.put(self.points), arrays.put(self.P), arrays.put(self.local))
        for rows in gen_batches(X.shape[0], max(1, min(BATCH, BATCH_BYTES // (8 * X.shape[1])))):
            features[rows] = self._batch(dense(X[rows]), *there, arrays=arrays)
        return features

    def _batch(self, X: np.ndarray, points: Any, P: Any, local: Any, *, arrays: Arrays) -> np.ndarray:
        # Training in single precision serves; here it would let a row's features depend on the rows beside it.
        xp, dtype = arrays.xp, np.result_type(X, self.points).name
        samples = in_units(X, self.origin, self.unit, dtype)
        new = arrays.put(samples)
        landmarks, C = arrays.put(self.landmarks, dtype), arrays.put(self.global_coefficients, dtype)
        P_new, _ = landmark_features(new, landmarks, self.transform, self.gamma, arrays)
        # One more than training samples have: all of them where each of those has all others.
        k = min(self.n_conditioning + 1, points.shape[0])
        near = self.index.of(samples.astype(self.points.dtype, copy=False), k, points, arrays)
        features = arrays.zeros((samples.shape[0], local.shape[1]), dtype)

        def fill(block: slice) -> None:
            at = near[block]
            Y = arrays.put(points[at], dtype) - new[block][:, None]
            Y = xp.concatenate([Y, xp.zeros_like(Y[:, :1])], axis=1)
            P_all = xp.concatenate([arrays.put(P[at], dtype), P_new[block][:, None]], axis=1)
            weights, _ = conditional(Y, P_all, at < 0, self.gamma, self.nugget, arrays)
            features[block] = (
                P_new[block] @ C + (arrays.put(weights, dtype)[:, None] @ arrays.put(local[at], dtype))[:, 0]
            )

        arrays.each(fill, samples.shape[0], (near.shape[1] + 1) * (X.shape[1] + P.shape[1] + local.shape[1]) * 8)
        return arrays.get(features)
