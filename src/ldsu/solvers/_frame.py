"""Input rows as samples: centered, in the unit of their spread, in the working precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import row_norms

from ldsu._utils.arrays import CPU
from ldsu.kernels import Kernel, check_counts, column_means, shifted, without_duplicates
from ldsu.sample_kernels import PRODUCT_KERNELS, SampleKernel

# Upper limit of gamma, in units of the samples' spread; the kernel is zero between samples anyway.
LARGEST_GAMMA = 1e30
# Number of rows from which the spread of the samples, the unit of the computation, is estimated.
SPREAD_ROWS = 1000
# Samples are clipped to this range, in units of their spread.
MAX_MAGNITUDE = 1e15
# Numbers up to which starting threads takes longer than the work.
SMALL = 2**16


@dataclass(frozen=True)
class Frame:
    """Conversion of input rows to samples: ``(X - origin) / unit`` in the working precision.

    For the kernel "cosine" X are the rows at unit norm, for "chi2" square roots. The kernel of samples is that of input
    rows divided by `scale`, its mean diagonal.
    """

    origin: np.ndarray | None
    unit: float
    dtype: str
    kernel: str = "rbf"
    scale: float = 1.0

    @classmethod
    def of(cls, X: Any, origin: np.ndarray | None, dtype: str, kernel: str = "rbf") -> Frame:
        """The unit is the root mean square of some rows relative to the origin; 1 if that is 0."""
        some = X[:: max(1, X.shape[0] // SPREAD_ROWS)].astype(np.float64)
        if kernel == "chi2":
            some = np.sqrt(some)
        squares = some.multiply(some).mean() if scipy.sparse.issparse(some) else np.mean(shifted(some, origin) ** 2)
        return cls(origin, float(np.sqrt(squares)) or 1.0, dtype, kernel)

    @classmethod
    def of_kernel(cls, X: Any, kernel: Kernel, dtype: str) -> Frame:
        """The frame for a kernel of the rows of X."""
        name: Any = kernel.name
        if name == "chi2":
            check_counts(X)
        frame = cls.of(X, column_means(X) if name in ("rbf", "laplacian") else None, dtype, name)
        if name not in PRODUCT_KERNELS:
            return frame
        squares = row_norms(X, squared=True).astype(np.float64)
        if name == "cosine":
            scale = float(np.mean(squares > 0)) or 1.0
        else:
            unscaled = SampleKernel(name, kernel.gamma or 1.0, kernel.degree, kernel.coef0)
            scale = float(unscaled.of_products(squares).mean()) or 1.0
        return replace(frame, unit=frame.unit if name == "poly" else scale**0.5, scale=scale)

    def kernel_of(self, kernel: Kernel) -> SampleKernel:
        """The kernel of samples whose input rows have this kernel."""
        name: Any = kernel.name
        gamma = min(float(kernel.gamma or 1.0) * self.unit ** (1 if name == "laplacian" else 2), LARGEST_GAMMA)
        if name in ("linear", "cosine"):
            return SampleKernel(name)
        root = self.scale ** (1 / kernel.degree)
        return SampleKernel(name, gamma / root, kernel.degree, float(kernel.coef0) / root)

    def gram_unit(self, in_kernel: bool) -> float:
        """Inner products of input rows, or with `in_kernel` in their kernel's feature space, in units of samples'."""
        return self.scale if in_kernel else self.unit**2

    def __call__(self, X: Any, dtype: str | None = None, out: np.ndarray | None = None) -> Any:
        """Samples (n x d) of input rows, dense or sparse, clipped to what single precision can square.

        Those of dense rows are in `out`, if given.
        """
        dtype = dtype or self.dtype
        if self.kernel == "chi2":
            check_counts(X)
        if scipy.sparse.issparse(X):
            X = without_duplicates(X)
            X = normalize(X) if self.kernel == "cosine" else X
            values = np.sqrt(X.data) if self.kernel == "chi2" else X.data
            with np.errstate(over="ignore"):
                values = np.clip(values / self.unit, -MAX_MAGNITUDE, MAX_MAGNITUDE).astype(dtype)
            return scipy.sparse.csr_array((values, X.indices, X.indptr), shape=X.shape)
        samples = np.empty(X.shape, dtype=dtype) if out is None else out

        def fill(block: slice) -> None:
            rows = X[block] - (0 if self.origin is None else self.origin)
            if self.kernel == "cosine":
                rows = normalize(rows, copy=False)
            elif self.kernel == "chi2":
                np.sqrt(rows, out=rows)
            with np.errstate(over="ignore"):  # overflow is clipped
                rows /= self.unit
            samples[block] = np.clip(rows, -MAX_MAGNITUDE, MAX_MAGNITUDE, out=rows)

        if X.size <= SMALL:
            fill(slice(None))
        else:
            CPU.each(fill, X.shape[0], 8 * X.shape[1])
        return samples

    def input_rows(self, samples: Any) -> Any:
        """Rows that these are the samples of, in double precision."""
        rows = samples.astype(np.float64) * self.unit
        if self.kernel == "chi2":
            rows = rows * rows
        return rows if self.origin is None else rows + self.origin.astype(np.float64)
