"""Features of new rows: landmarks plus a correction by the nearest training samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from joblib import effective_n_jobs

from ldsu._utils.arrays import Arrays, arrays_on, one_blas_thread, row_blocks
from ldsu._utils.memory import BLOCK_BYTES, require_memory
from ldsu._utils.stages import counter
from ldsu._utils.temporary import FileArrays, file_array
from ldsu.kernels import dense
from ldsu.neighbors import NeighborIndex
from ldsu.sample_kernels import SampleKernel, on, row_width
from ldsu.solvers._frame import Frame
from ldsu.solvers._landmarks import Landmarks

# Batch size of new samples.
BATCH, BATCH_BYTES = 2**15, 2**29


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
    points : ndarray or CSR array of shape (n, d)
        Training samples.
    gamma, nugget : float
        Bandwidth of the kernel of samples, and noise of its residual.
    index : NeighborIndex
        Index of `points`.
    landmarks : ndarray of shape (p, d)
    transform : ndarray of shape (p, q)
        ``p(x) = k(x, landmarks) @ transform``.
    P : ndarray of shape (n, at most q)
        Landmark features of the training samples: those that define R, the first ones.
    global_coefficients : ndarray of shape (q, r)
        C.
    local : ndarray of shape (n, r)
        F.
    n_conditioning : int
        Number of training samples in N, minus one.
    device : str
        Device of the computation.
    kernel_name, degree, coef0 : str, int, float
        The kernel of samples, see `SampleKernel`.
    """

    origin: np.ndarray | None
    unit: float
    points: Any
    gamma: float
    nugget: float
    index: NeighborIndex
    landmarks: Any
    transform: np.ndarray
    P: np.ndarray
    global_coefficients: np.ndarray
    local: np.ndarray
    n_conditioning: int
    device: str
    kernel_name: str = "rbf"
    degree: int = 3
    coef0: float = 1.0

    @property
    def sample_kernel(self) -> SampleKernel:
        """The kernel of samples."""
        return SampleKernel(self.kernel_name, self.gamma, self.degree, self.coef0)

    @property
    def frame(self) -> Frame:
        """Conversion of input rows to samples, in the precision of those of the fit."""
        return Frame(self.origin, self.unit, str(self.points.dtype), self.kernel_name)

    def __call__(self, X: Any, near: Any = None, arrays: Arrays | None = None) -> np.ndarray:
        """Features (len(X), r) of the rows of X, with the dtype of X, computed in blocks.

        `near` are the nearest training samples of each row (len(X), N), on the device; None to search for them.
        `arrays` stores the features, which by default are in memory.
        """
        in_memory = not isinstance(arrays, FileArrays)
        arrays = arrays_on(self.device)
        n, r = X.shape[0], self.local.shape[1]
        n_near = min(self.n_conditioning + 1, self.points.shape[0])  # one more than in training
        row_bytes = self._row_bytes(n_near, r)
        row_result = in_memory * r * X.dtype.itemsize
        if n * (row_bytes + row_result) > BLOCK_BYTES:  # asking for free memory takes longer than features of a row
            together = effective_n_jobs(arrays.n_jobs) * max(1, arrays.block_bytes // row_bytes)
            require_memory(
                min(n, together) * row_bytes + n * row_result,
                f"Computing features of {n:,} row(s) from {n_near:,} neighbors each",
                "Pass fewer rows at a time, or fit with a smaller n_conditioning.",
                arrays.free_memory(),
            )
        features = np.empty((n, r), dtype=X.dtype) if in_memory else file_array((n, r), X.dtype)
        computed = counter(n, "rows transformed")
        on_device = (on(self.points, arrays), arrays.put(self.P), arrays.put(self.local))
        with one_blas_thread():  # once: each part would limit and restore them
            for rows in row_blocks(n, min(BATCH, BATCH_BYTES // (8 * row_width(X)))):
                known = None if near is None else near[rows]
                some = self._like_points(X[rows])
                features[rows] = self._batch(some, known, n_near, row_bytes, *on_device, arrays=arrays)
                computed(some.shape[0])
        return features

    def neighbor_weights(self, samples: Callable[[slice], Any], near: Any, dtype: str, points: Any, P: Any) -> Any:
        """Weights of the nearest training samples `near` (q, N) of each of q samples: a sparse matrix (q, n).

        `samples` gives some of the samples, in the precision `dtype`. They, `points` and `P` are on the device.
        """
        arrays, n_samples = arrays_on(self.device), near.shape[0]
        landmarks = self._landmarks().without_labelled()
        weights = arrays.zeros(tuple(near.shape), dtype)

        def fill(block: slice) -> None:
            new = samples(block)
            P_new = landmarks.features(new, arrays)[0]
            found = landmarks.local_weights(new, P_new, near[block], points, P, self.nugget, arrays)
            weights[block] = arrays.put(found, dtype)

        arrays.each(fill, n_samples, self._row_bytes(near.shape[1], 0))
        rows = arrays.integers(n_samples)[:, None] + 0 * near
        return arrays.sparse(rows.reshape(-1), near.reshape(-1), weights.reshape(-1), (n_samples, points.shape[0]))

    def _landmarks(self) -> Landmarks:
        n_labelled = self.transform.shape[1] - self.P.shape[1]
        return Landmarks(self.landmarks, self.transform, self.sample_kernel, n_labelled)

    def _like_points(self, X: Any) -> Any:
        """Rows as an array, or as a CSR matrix if the points are."""
        return scipy.sparse.csr_array(X) if scipy.sparse.issparse(self.points) else dense(X)

    def _row_bytes(self, n_near: int, r: int) -> int:
        """Bytes per row, mostly for the systems of `conditional`."""
        s = n_near + 1
        return 8 * (s * (row_width(self.points, s) + self.P.shape[1] + r) + 4 * s * s)

    def _batch(
        self, X: Any, near: Any, n_near: int, row_bytes: int, points: Any, P: Any, local: Any, *, arrays: Arrays
    ) -> np.ndarray:
        # Single precision suffices for training; here a row's features would depend on other rows of its batch.
        dtype = np.result_type(X.dtype, self.points.dtype).name
        samples = self.frame(X, dtype)
        new, C = on(samples, arrays), arrays.put(self.global_coefficients, dtype)
        landmarks = self._landmarks()
        P_new, _ = landmarks.features(new, arrays)
        if near is None:
            queries = samples.astype(self.points.dtype, copy=False)
            near = self.index.query(queries, n_near, points, arrays, self.sample_kernel)
        features = arrays.zeros((samples.shape[0], local.shape[1]), dtype)

        def fill(block: slice) -> None:
            at = near[block]
            weights = landmarks.local_weights(new[block], P_new[block], at, points, P, self.nugget, arrays)
            added = (arrays.put(weights, dtype)[:, None] @ arrays.put(local[at], dtype))[:, 0]
            features[block] = P_new[block] @ C + added

        arrays.each(fill, samples.shape[0], row_bytes)
        return arrays.get(features)
