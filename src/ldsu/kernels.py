"""Kernel functions, bandwidth selection, and validation of kernel matrices and samples."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import joblib
import numpy as np
import scipy.linalg
import scipy.sparse
import sklearn.utils.validation
from scipy.spatial.distance import cdist, squareform
from sklearn.utils._param_validation import StrOptions

from ldsu._utils.arrays import CPU, Arrays, row_blocks
from ldsu._utils.memory import BLOCK_BYTES, available_memory, require_memory
from ldsu._utils.temporary import file_array, is_mapped

FLOATS = [np.float64, np.float32]
KERNELS = ("rbf", "laplacian", "chi2", "linear", "poly", "cosine", "precomputed")
KernelName = Annotated[str, StrOptions(set(KERNELS))]
GAMMA_KERNELS = ("rbf", "laplacian", "chi2", "poly")
# Kernels whose neighbors and cliques are computed in the input space: functions of Euclidean distance, and the linear
# kernel, whose feature space is the input space.
INPUT_SPACE_KERNELS = ("rbf", "linear")
# Kernels based on inner products, computed on the device; the others are computed on the CPU and moved.
DEVICE_KERNELS = ("rbf", "linear", "poly", "cosine")
MEDIAN_ROWS = 1000
# Bytes of samples that one thread sums.
SAMPLES_BLOCK = 2**24
# Larger copies of files mapped into memory, as a share of the free memory, are made in files.
MAPPED_SHARE = 0.25


@dataclass(frozen=True)
class CenteredPoints:
    """What every evaluation of an RBF kernel against the same points needs of them.

    Attributes
    ----------
    points : ndarray of shape (b, d)
        Relative to `origin`.
    origin : ndarray of shape (d,)
        Their mean.
    squares : ndarray of shape (b,)
        Squared lengths.
    """

    points: np.ndarray
    origin: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, Y: np.ndarray) -> CenteredPoints:
        """Points from the rows of Y (b x d), in double precision."""
        Y = Y.astype(np.float64, copy=False)
        origin = Y.mean(axis=0)
        points = Y - origin
        return cls(points, origin, np.einsum("ij,ij->i", points, points))

    def rbf(self, X: np.ndarray, gamma: float) -> np.ndarray:
        """``exp(-gamma |x - y|^2)`` (a, b) of the rows of X (a x d), with the operations of scikit-learn's kernel."""
        X = X - self.origin
        K: np.ndarray = X @ self.points.T
        K *= -2
        K += np.einsum("ij,ij->i", X, X)[:, None]
        K += self.squares
        np.maximum(K, 0, out=K)
        K *= -gamma
        return np.exp(K, out=K)


@dataclass(frozen=True)
class Kernel:
    """A kernel with resolved parameters. Call it to compute a kernel matrix."""

    name: str | Callable[..., float]  # one of `KERNELS`, or a function of two rows, as in `pairwise_kernels`
    gamma: float | None = None  # bandwidth of `GAMMA_KERNELS`
    degree: int = 3  # of poly
    coef0: float = 1  # of poly
    params: dict[str, Any] = field(default_factory=dict)  # additional keyword arguments of a callable

    def __call__(self, X: Any, Y: Any = None, arrays: Arrays = CPU) -> Any:
        """Evaluate the kernel between the rows of X (a x d) and Y (b x d): shape (a, b), on the device of `arrays`.

        Always in double precision: kernel matrices are nearly singular, and in single precision rounding hides the
        small eigenvalues that the methods use. For "precomputed", X holds kernel values against all training points
        and Y, if given, the indices of the columns to select. For "rbf" on the CPU, Y may be `CenteredPoints`.
        """
        on_device = arrays.xp is not np
        if on_device and (self.name not in DEVICE_KERNELS or scipy.sparse.issparse(X) or scipy.sparse.issparse(Y)):
            return arrays.put(self(X, Y))
        if self.name == "precomputed":
            return np.asarray(X if Y is None else X[:, Y], dtype=np.float64)
        if isinstance(Y, CenteredPoints):
            assert self.gamma is not None  # of every RBF kernel
            with np.errstate(all="ignore"):  # overflow is reported below
                K = Y.rbf(X.astype(np.float64, copy=False), self.gamma)
        elif on_device:
            K = _product_kernel(self, arrays.put(X, "float64"), Y if Y is None else arrays.put(Y, "float64"), arrays.xp)
        elif callable(self.name):
            rows = (Z if Z is None else dense(Z).astype(np.float64) for Z in (X, Y))
            try:
                K = pairwise_kernels(*rows, metric=self.name, **self.params)
            except TypeError as error:
                raise ValueError(
                    f"The kernel function failed on two rows of X ({error}). It is called as "
                    "kernel(x, y, **kernel_params) with two 1-d arrays and must return a number."
                ) from error
        else:
            X = X.astype(np.float64, copy=False)
            Y = None if Y is None else Y.astype(np.float64, copy=False)
            if scipy.sparse.issparse(X) and (Y is None or scipy.sparse.issparse(Y)):
                X, Y = _without_empty_columns(X, Y)
            if self.name in ("laplacian", "chi2"):
                distances = chi2_distances if self.name == "chi2" else manhattan_distances
                K = np.exp(-(self.gamma or 0.0) * distances(X, X if Y is None else Y))
            else:
                if self.name == "rbf":
                    origin = column_means(X if Y is None else Y)
                    X, Y = shifted(X, origin), None if Y is None else shifted(Y, origin)
                arguments = {
                    "rbf": {"gamma": self.gamma},
                    "poly": {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0},
                }
                with np.errstate(all="ignore"):  # overflow is reported below
                    K = dense(pairwise_kernels(X, Y, metric=self.name, **arguments.get(self.name, {})))
        if not bool(arrays.xp.isfinite(K).all()):
            raise ValueError(
                f"{self} is NaN or infinite for some pair of rows. Rescale X, or use smaller kernel parameters."
            )
        return K

    def train_matrix(self, X: Any, arrays: Arrays = CPU) -> Any:
        """Kernel matrix (n, n) of the training samples: validated if user-defined, and safe to overwrite."""
        if callable(self.name) or self.name == "precomputed":
            K = self(X)
            check_kernel_matrix(K, self.precision(X))
            return arrays.put((K + K.T) / 2)
        return self(X, arrays=arrays)

    def precision(self, X: Any) -> float:
        """Relative rounding error of the kernel values: that of X if precomputed, else of double precision."""
        return float(np.finfo(X.dtype if self.name == "precomputed" else np.float64).eps)

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Equal for kernels that are the same function, including array-valued parameters."""
        return self.name, self.gamma, self.degree, self.coef0, joblib.hash(self.params) if self.params else None

    def support(self, X: Any, rows: np.ndarray | None = None) -> Any:
        """Data needed to evaluate the kernel against the training samples (or some rows) later.

        A copy of the samples, so that modifying them later does not change the model; for "precomputed", the column
        indices.
        """
        if self.name == "precomputed":
            return np.arange(X.shape[0]) if rows is None else rows
        return X.copy() if rows is None else X[rows]


def resolve_kernel(
    X: Any,
    *,
    kernel: str | Callable[..., float] = "rbf",
    gamma: float | Literal["median"] = "median",
    gamma_scale: float = 2.0,
    degree: int = 3,
    coef0: float = 1,
    kernel_params: dict[str, Any] | None = None,
) -> Kernel:
    """Turn an estimator's kernel parameters into a `Kernel` for the rows of X (n x d)."""
    if kernel not in GAMMA_KERNELS:
        resolved = None
    elif gamma == "median":
        resolved = median_gamma(X, kernel, gamma_scale)
    else:
        resolved = float(gamma)
    if resolved is not None and not 0 < resolved < np.inf:
        raise ValueError(f"gamma is {resolved:.3g}, but must be positive and finite. Rescale X, or set gamma.")
    return Kernel(kernel, resolved, degree, coef0, dict(kernel_params or {}))


def median_gamma(X: Any, kernel: str = "rbf", scale: float = 1.0) -> float:
    """Bandwidth in units of the data: ``scale / (2 median_{i<j} d(x_i, x_j))``.

    d is the squared Euclidean distance for rbf and poly, the sum of absolute differences for laplacian and the chi2
    distance ``sum (x-y)^2 / (x+y)`` for chi2.
    For more than 1,000 rows the median is taken over a fixed random subset of 1,000. If more than half of the pairs are
    duplicates, the mean replaces the median; if all are, gamma is `scale`.

    Examples
    --------
    >>> median_gamma(np.array([[0.0], [1.0], [3.0]]))  # squared distances 1, 4, 9
    0.125
    """
    from sklearn.metrics.pairwise import euclidean_distances  # slow to import, and only for fits

    n = X.shape[0]
    if n > MEDIAN_ROWS:
        X = X[np.random.default_rng(0).choice(n, MEDIAN_ROWS, replace=False)]
    if kernel == "chi2":
        distances = chi2_distances(X, X)
    elif kernel == "laplacian":
        distances = manhattan_distances(X, X)
    else:
        distances = euclidean_distances(shifted(X, column_means(X)), squared=True)
    pairs = squareform(distances, checks=False).astype(np.float64)
    typical = (np.median(pairs) or pairs.mean()) if pairs.size else 0.0
    with np.errstate(over="ignore"):  # `resolve_kernel` rejects values that are not finite
        return float(scale / (2 * typical)) if typical > 0 else float(scale)


def pairwise_kernels(*samples: Any, **options: Any) -> Any:
    """Call scikit-learn's function, which is slow to import: features of new rows with an RBF kernel do without."""
    from sklearn.metrics import pairwise

    return pairwise.pairwise_kernels(*samples, **options)


def _product_kernel(kernel: Kernel, X: Any, Y: Any, xp: Any) -> Any:
    """A kernel of `DEVICE_KERNELS` from inner products, of tensors X (a x d) and Y (b x d), or of X with itself."""
    same = Y is None
    Y = X if same else Y
    if kernel.name == "cosine":
        X, Y = _unit_rows(X, xp), _unit_rows(Y, xp)
    if kernel.name == "rbf":
        origin = Y.mean(axis=0)
        X, Y = X - origin, Y - origin
    K = X @ Y.T
    if kernel.name == "rbf":
        K *= -2
        K += (X * X).sum(axis=1)[:, None]
        K += (Y * Y).sum(axis=1)
        if same:  # zero distance to itself, exactly
            diagonal = xp.arange(K.shape[0], device=K.device)
            K[diagonal, diagonal] = 0
        xp.clip(K, 0, None, out=K)
        K *= -(kernel.gamma or 0.0)
        xp.exp(K, out=K)
    elif kernel.name == "poly":
        K *= kernel.gamma
        K += kernel.coef0
        K **= kernel.degree
    return K


def _unit_rows(X: Any, xp: Any) -> Any:
    """Rows of X scaled to unit norm; zero rows are left unchanged."""
    lengths = xp.sqrt((X * X).sum(axis=1))
    return X / xp.where(lengths > 0, lengths, xp.ones_like(lengths))[:, None]


def kernel_squared_distances(K_rows: np.ndarray, diagonal_rows: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
    """Squared distances in the kernel's feature space, ``K_ii + K_jj - 2 K_ij``, for a block of rows of K."""
    D2 = diagonal_rows[:, None] + diagonal[None, :] - 2 * K_rows
    return np.maximum(D2, 0, out=D2)


def column_means(X: Any) -> np.ndarray | None:
    """Column means of a dense X (n x d); None for a sparse X, which centering would make dense."""
    if scipy.sparse.issparse(X):
        return None
    sums = _of_blocks(lambda rows: rows.sum(axis=0, dtype=np.float64), X)
    means: np.ndarray = (sum(sums) / X.shape[0]).astype(X.dtype)
    return means


def _of_blocks(function: Callable[[Any], Any], X: Any) -> list[Any]:
    """Results of a function of X, or of blocks of its rows, in parallel, if they take longer than starting threads."""
    if X.nbytes <= SAMPLES_BLOCK:
        return [function(X)]
    return CPU.map(lambda rows: function(X[rows]), row_blocks(X.shape[0], SAMPLES_BLOCK // max(1, X[:1].nbytes)))


def shifted(X: Any, origin: np.ndarray | None) -> Any:
    """``X - origin``: preserves distances, and avoids rounding errors from a large common offset."""
    return X if origin is None else X - origin


def check_kernel_matrix(K: np.ndarray, precision: float = np.finfo(np.float64).eps) -> None:
    """Raise a ValueError for a square matrix that is not symmetric positive semi-definite.

    Rounding errors are tolerated: asymmetry and negative eigenvalues up to the square root of `precision`, the relative
    error of the entries, times the largest of them (times n for eigenvalues). The test is one Cholesky factorization;
    eigenvalues are computed only for the error message.
    """
    n = K.shape[0]
    tolerance = np.sqrt(precision) * max(np.abs(K).max(initial=0), np.finfo(np.float64).tiny)
    asymmetry = max((np.abs(K[i] - K[:, i]).max() for i in range(n)), default=0.0)
    if asymmetry > tolerance:
        raise ValueError(
            f"The precomputed kernel is not symmetric: K[i, j] and K[j, i] differ by {asymmetry:.3g}. "
            "If this is rounding error, symmetrize it with (K + K.T) / 2."
        )
    shifted = np.array(K, order="F")
    shifted.flat[:: n + 1] += n * tolerance
    _, failed = scipy.linalg.lapack.get_lapack_funcs("potrf", (shifted,))(shifted, lower=True, overwrite_a=True)
    if failed:
        lowest = scipy.linalg.eigvalsh(K)[0]  # all: for a single one of many equal eigenvalues LAPACK may fail
        raise ValueError(
            f"The kernel matrix is not positive semi-definite: its smallest eigenvalue is {lowest:.6g}. "
            "Clip its eigenvalues at zero, or use another kernel."
        )


def validate_data(estimator: Any, X: Any, **options: Any) -> Any:
    """scikit-learn's `validate_data`, preceded by a check for masked entries, which it ignores."""
    check_mask(X)
    return sklearn.utils.validation.validate_data(estimator, X, **options)


def validate_new(estimator: Any, X: Any) -> Any:
    """New samples of a fitted estimator, validated: an array of floats or a CSR matrix with the columns of `fit`.

    scikit-learn's checks take longer than a product with one row. An array that they would return as it is needs none.
    """
    if is_float_matrix(X) and X.shape[0] and X.shape[1] == getattr(estimator, "n_features_in_", None):
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(X.sum())  # not if a value is not, or the sum overflows
        if finite and not hasattr(estimator, "feature_names_in_"):  # scikit-learn warns of missing names
            return X
    return validate_data(estimator, X, accept_sparse="csr", dtype=FLOATS, reset=False)


def is_float_matrix(X: Any) -> bool:
    """Whether X is a plain matrix of floats, which scikit-learn's validation returns as it is if it accepts it."""
    return type(X) is np.ndarray and X.ndim == 2 and X.dtype in FLOATS


def check_mask(X: Any) -> None:
    """Raise a ValueError for samples with masked entries, which are missing values like NaN."""
    masked = np.count_nonzero(X.mask) if isinstance(X, np.ma.MaskedArray) else 0
    if masked:
        raise ValueError(
            f"X is a masked array with {masked:,} masked entries, which are missing values. Fill them, for example "
            "with X.filled(np.nan) and sklearn.impute.SimpleImputer, or drop their rows."
        )


def check_magnitude(X: Any, *, also_small: bool) -> None:
    """Raise a ValueError if squares of X overflow its dtype, or, with `also_small`, underflow."""
    values = X.data if scipy.sparse.issparse(X) else X
    largest = float(max(_of_blocks(lambda some: max(some.max(initial=0), -some.min(initial=0)), values)))
    limits = np.finfo(X.dtype)
    too_small = also_small and 0 < largest < np.sqrt(float(limits.tiny))
    if too_small or largest > np.sqrt(float(limits.max)) / max(X.shape):
        raise ValueError(
            f"The largest absolute value in X is {largest:.3g}, and its square does not fit {X.dtype}. "
            "Rescale the data first, for example with sklearn.preprocessing.StandardScaler."
        )


def samples_memory(X: Any, kernel: Any) -> int:
    """Bytes needed for copies of the samples X (n x d) while a kernel is evaluated."""
    n, d = X.shape
    if kernel == "precomputed":
        return 0
    if scipy.sparse.issparse(X) and not callable(kernel):
        return 2 * (X.data.nbytes + X.indices.nbytes)
    return 8 * 2 * n * d


def stacked(A: Any, B: Any) -> Any:
    """The rows of A (a x d) and B (b x d), both arrays or both CSR matrices."""
    return scipy.sparse.vstack([A, B], format="csr") if scipy.sparse.issparse(A) else np.concatenate([A, B])


def mapped_floats(X: Any) -> Any:
    """X; if it is a file of integers mapped into memory that does not fit as floats, a temporary file of floats."""
    if not is_mapped(X) or X.ndim != 2 or X.dtype.kind not in "biuf" or X.dtype in FLOATS:
        return X
    if X.size * np.dtype(np.float64).itemsize <= MAPPED_SHARE * available_memory():
        return X
    floats = file_array(X.shape, np.result_type(X, np.float32))
    for rows in row_blocks(X.shape[0], BLOCK_BYTES // max(1, floats[:1].nbytes)):
        floats[rows] = X[rows]
    return floats


def dense(X: Any) -> np.ndarray:
    """Convert X to a dense array."""
    if not scipy.sparse.issparse(X):
        return np.asarray(X)
    n, d = X.shape
    require_memory(
        n * d * X.dtype.itemsize, f"A dense copy of a sparse X of {n:,} x {d:,}", "Use fewer rows or columns."
    )
    return X.toarray()


def _without_empty_columns(X: Any, Y: Any) -> tuple[Any, Any]:
    """Drop empty columns of X and Y (CSR) if most are empty: SciPy allocates memory for every column."""
    parts = [X] if Y is None else [X, Y]
    if X.shape[1] <= sum(part.nnz for part in parts):
        return X, Y
    used = np.unique(np.concatenate([part.indices for part in parts]))

    def kept(part: Any) -> Any:
        indices = np.searchsorted(used, part.indices).astype(part.indices.dtype)
        return type(part)((part.data, indices, part.indptr), shape=(part.shape[0], max(used.size, 1)))

    return kept(X), None if Y is None else kept(Y)


def chi2_distances(A: Any, B: Any) -> np.ndarray:
    """Distances ``sum (x-y)^2 / (x+y)``, 0 where both are 0, between the rows of A (a x d) and B (b x d): (a, b)."""
    check_counts(A)
    check_counts(B)
    if scipy.sparse.issparse(A) and scipy.sparse.issparse(B):
        # (x-y)^2 / (x+y) is x + y - 4 x y / (x+y), whose last term is 0 unless both are there.
        return _distances_by_shared(A, B, lambda x, y: 4 * x * y / np.maximum(x + y, np.finfo(float).tiny))
    from sklearn.metrics.pairwise import additive_chi2_kernel  # slow to import

    A, B = (Z if Z.flags.writeable else Z.copy() for Z in (dense(A), dense(B)))
    return -np.asarray(additive_chi2_kernel(A, B))


def manhattan_distances(A: Any, B: Any) -> np.ndarray:
    """Distances ``sum |x-y|`` between the rows of A (a x d) and B (b x d): shape (a, b)."""
    if scipy.sparse.issparse(A) and scipy.sparse.issparse(B):
        return _distances_by_shared(A, B, lambda x, y: np.abs(x) + np.abs(y) - np.abs(x - y))
    return np.asarray(cdist(dense(A), dense(B), "cityblock"))


def _distances_by_shared(A: Any, B: Any, shared: Callable[[Any, Any], Any]) -> np.ndarray:
    """``sum |x| + sum |y| - sum shared(x, y)`` between the rows of CSR matrices; shared(x, 0) = 0."""
    A, B = (without_duplicates(Z.astype(np.float64, copy=False)) for Z in (A, B))
    sums = [np.asarray(abs(Z).sum(axis=1)).ravel() for Z in (A, B)]
    rows, row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)), np.zeros(A.shape[1])
    distances = sums[0][:, None] + sums[1]
    for j in range(B.shape[0]):
        entries = slice(B.indptr[j], B.indptr[j + 1])
        row[B.indices[entries]] = B.data[entries]
        common = np.flatnonzero(row[A.indices])
        terms = shared(A.data[common], row[A.indices[common]])
        distances[:, j] -= np.bincount(rows[common], terms, minlength=A.shape[0])
        row[B.indices[entries]] = 0
    return np.maximum(distances, 0)


def without_duplicates(X: Any) -> Any:
    """A CSR matrix with at most one entry for each place: X, or a copy."""
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def check_counts(X: Any) -> None:
    """Raise a ValueError for samples that the chi2 kernel is not defined for."""
    lowest = (X.data if scipy.sparse.issparse(X) else X).min(initial=0)
    if lowest < 0:
        raise ValueError(f"Negative values in data: chi2 requires counts, but the minimum of X is {lowest:.3g}.")
