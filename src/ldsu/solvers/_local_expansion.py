"""Feature map by landmarks and nearest training points."""

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

# Samples are clipped to this range, in units of their spread.
MAX_MAGNITUDE = 1e15
# Maximum number of samples to condition on: each row needs a dense system of that size.
MAX_CONDITIONING = 2000
# Batch size of new samples.
BATCH, BATCH_BYTES = 2**15, 2**29


def in_units(X: np.ndarray, origin: np.ndarray | None, unit: float, dtype: str) -> np.ndarray:
    """``(X - origin) / unit``, clipped to what single precision can square."""
    samples = X - (0 if origin is None else origin)
    with np.errstate(over="ignore"):  # overflow is clipped
        samples /= unit
    return np.clip(samples, -MAX_MAGNITUDE, MAX_MAGNITUDE, out=samples).astype(dtype, copy=False)


def neighbor_weights(
    near: Any,
    new: Any,
    P_new: Any,
    points: Any,
    P: Any,
    gamma: float,
    nugget: float,
    dtype: str,
    arrays: Arrays,
) -> Any:
    """Weights (b, k) of the training samples `near` in the features of new samples (b, d)."""
    xp = arrays.xp
    Y = arrays.put(points[near], dtype) - new[:, None]
    Y = xp.concatenate([Y, xp.zeros_like(Y[:, :1])], axis=1)
    P_all = xp.concatenate([arrays.put(P[near], dtype), P_new[:, None]], axis=1)
    return conditional(Y, P_all, near < 0, gamma, nugget, arrays)[0]


@dataclass(frozen=True)
class LocalExpansion:
    """``features(x) = p(x)^T C + w(x)^T F_N``: landmarks plus a correction by the nearest training points N.

    ``w = R_NN^-1 r_N(x)`` are the weights of N under the residual kernel ``R = k - P P^T``.

    Attributes
    ----------
    origin : ndarray of shape (d,) or None
        Subtracted from samples.
    unit : float
        Scale of samples, after centering.
    points : ndarray of shape (n, d)
        Training samples.
    gamma, nugget : float
        Bandwidth of the kernel, and noise of its residual.
    index : NeighborIndex
        Index of `points`.
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
        Number of training samples in N, minus one.
    device : str
        Device of the computation.
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
        """Features (len(X), r) of the rows of X, with the dtype of X, computed in blocks."""
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
        on_device = (arrays.put(self.points), arrays.put(self.P), arrays.put(self.local))
        for rows in gen_batches(n, max(1, min(BATCH, BATCH_BYTES // (8 * X.shape[1])))):
            features[rows] = self._batch(dense(X[rows]), *on_device, arrays=arrays)
        return features

    def _batch(self, X: np.ndarray, points: Any, P: Any, local: Any, *, arrays: Arrays) -> np.ndarray:
        # Single precision suffices for training; here a row's features would depend on other rows of its batch.
        dtype = np.result_type(X, self.points).name
        samples = in_units(X, self.origin, self.unit, dtype)
        new = arrays.put(samples)
        landmarks, C = arrays.put(self.landmarks, dtype), arrays.put(self.global_coefficients, dtype)
        P_new, _ = landmark_features(new, landmarks, self.transform, self.gamma, arrays)
        near = self.index.query(samples.astype(self.points.dtype, copy=False), self._n_near, points, arrays)
        features = arrays.zeros((samples.shape[0], local.shape[1]), dtype)

        def fill(block: slice) -> None:
            at = near[block]
            weights = neighbor_weights(at, new[block], P_new[block], points, P, self.gamma, self.nugget, dtype, arrays)
            features[block] = (
                P_new[block] @ C + (arrays.put(weights, dtype)[:, None] @ arrays.put(local[at], dtype))[:, 0]
            )

        arrays.each(fill, samples.shape[0], self._row_bytes)
        return arrays.get(features)

    @property
    def _n_near(self) -> int:
        """Number of training samples in N: one more than in training, at most all."""
        return min(self.n_conditioning + 1, self.points.shape[0])

    @property
    def _row_bytes(self) -> int:
        """Memory of `_batch` per row, mostly for the systems of `conditional`."""
        s = self._n_near + 1
        return 8 * (s * (self.points.shape[1] + self.P.shape[1] + self.local.shape[1]) + 4 * s * s)
