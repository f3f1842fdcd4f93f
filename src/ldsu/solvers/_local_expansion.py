"""A learned feature map without kernel sums: landmarks, and the nearest training points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import gen_batches

from ldsu._utils.arrays import Arrays, arrays_on
from ldsu._utils.memory import require_memory
from ldsu.kernels import dense
from ldsu.neighbors import NeighborIndex
from ldsu.solvers._landmarks import landmark_features
from ldsu.solvers._precision import conditional

# Samples farther out than this, in units of their spread, are taken for this far.
FARTHEST = 1e15
# A sample is conditioned on so many others at most: each costs a dense system of that size.
MOST_CONDITIONING = 2000
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
        n, r = X.shape[0], self.local.shape[1]
        together = effective_n_jobs(arrays.n_jobs) * max(1, arrays.block_bytes // self._row_bytes)
        require_memory(
            min(n, together) * self._row_bytes + n * r * X.dtype.itemsize,
            f"Computing features of {n:,} row(s) from {self._n_near:,} neighbors each",
            "Pass fewer rows at a time, or fit with a smaller n_conditioning.",
            arrays.free_memory(),
        )
        features = np.empty((n, r), dtype=X.dtype)
        there = (arrays.put(self.points), arrays.put(self.P), arrays.put(self.local))
        for rows in gen_batches(n, max(1, min(BATCH, BATCH_BYTES // (8 * X.shape[1])))):
            features[rows] = self._batch(dense(X[rows]), *there, arrays=arrays)
        return features

    def _batch(self, X: np.ndarray, points: Any, P: Any, local: Any, *, arrays: Arrays) -> np.ndarray:
        # Training in single precision serves; here it would let a row's features depend on the rows beside it.
        xp, dtype = arrays.xp, np.result_type(X, self.points).name
        samples = in_units(X, self.origin, self.unit, dtype)
        new = arrays.put(samples)
        landmarks, C = arrays.put(self.landmarks, dtype), arrays.put(self.global_coefficients, dtype)
        P_new, _ = landmark_features(new, landmarks, self.transform, self.gamma, arrays)
        near = self.index.of(samples.astype(self.points.dtype, copy=False), self._n_near, points, arrays)
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

        arrays.each(fill, samples.shape[0], self._row_bytes)
        return arrays.get(features)

    @property
    def _n_near(self) -> int:
        """How many training samples N holds: one more than for those, and all where each of those has all others."""
        return min(self.n_conditioning + 1, self.points.shape[0])

    @property
    def _row_bytes(self) -> int:
        """What `_batch` takes for a row, most of it for the systems of `conditional`."""
        s = self._n_near + 1
        return 8 * (s * (self.points.shape[1] + self.P.shape[1] + self.local.shape[1]) + 4 * s * s)
