"""Base class of the kernel methods: validation, kernel, memory check, transform."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import field
from textwrap import dedent
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils.validation import check_is_fitted

from ldsu._utils.fitting import atomic
from ldsu._utils.memory import available_memory, require_memory
from ldsu._utils.parameters import Count, Fraction, NonNegative, Positive, parameters
from ldsu._utils.protocols import MatrixLike
from ldsu._utils.stages import Stages
from ldsu.kernels import (
    FLOATS,
    INPUT_SPACE_KERNELS,
    Kernel,
    KernelName,
    check_magnitude,
    dense,
    mapped_floats,
    samples_memory,
    validate_data,
    validate_new,
)
from ldsu.labels import encode_labels
from ldsu.neighbors import input_neighbors, kernel_neighbors
from ldsu.solvers import KernelExpansion, Problem
from ldsu.spectrum import KernelBasis, fix_signs

SHARED_DOCS = {
    "kernel parameters": """\
    kernel : {"rbf", "laplacian", "chi2", "linear", "poly", "cosine", "precomputed"} or callable, default="rbf"
        Kernel. A callable takes two rows as 1-d arrays and returns a number.
    gamma : float or "median", default="median"
        Bandwidth of rbf, laplacian, chi2 and poly. "median" is ``gamma_scale / (2 median distance)``, see
        `ldsu.kernels.median_gamma`.
    gamma_scale : float, default=2.0
        Factor of the "median" rule. The default of `LDSU` is "auto": 2, or chosen together with the strength.
    degree : int, default=3
        Degree of the poly kernel.
    coef0 : float, default=1
        Constant term of the poly kernel.
    kernel_params : dict, optional
        Additional keyword arguments of a callable kernel.
    verbose : bool, default=False
        Whether to print the stages of `fit` to standard error.
""",
    "fitted attributes": """\
    gamma_ : float or None
        Bandwidth.
    classes_ : ndarray of shape (c,)
        Class labels.
    timings_ : dict of str to float
        Seconds of each stage of `fit`.
""",
}


@parameters
class KernelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the kernel methods: features are ``k(x, X_fit) @ coef_``.

    A subclass implements `_solve` on the kernel matrix and declares its requirements as class attributes. Its
    parameters are dataclass fields, in addition to the inherited kernel parameters; shared docs are in `SHARED_DOCS`.

    Attributes
    ----------
    min_classes : int
        Minimum number of labelled classes.
    matrices : int
        Number of n x n arrays of doubles alive at peak memory.
    labelled_matrices : int
        Number of m x n arrays in addition, m the number of labelled samples.
    labelled_only : bool
        Whether only labelled rows are used.
    """

    min_classes: ClassVar[int] = 0
    matrices: ClassVar[int] = 5
    labelled_matrices: ClassVar[int] = 0
    labelled_only: ClassVar[bool] = False

    n_components: Count | Fraction | None = field(default=None, kw_only=False)
    kernel: KernelName | Callable[..., float] = "rbf"
    gamma: Positive | Literal["median"] = "median"
    gamma_scale: Positive = 2.0
    degree: Count = 3
    coef0: NonNegative = 1
    kernel_params: dict[str, Any] | None = None
    verbose: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        doc = cls.__doc__ or ""
        for placeholder, text in SHARED_DOCS.items():
            # Python >= 3.13 strips the indentation of docstrings.
            doc = doc.replace(f"    {{{placeholder}}}\n", text).replace(f"{{{placeholder}}}\n", dedent(text))
        cls.__doc__ = doc

    @atomic
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y: ArrayLike | None = None) -> Self:
        """Learn the features.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Labelled and unlabelled samples; with ``kernel="precomputed"`` the kernel matrix (n, n).
        y : array-like of shape (n,), optional
            Labels; -1, None, NaN or pandas.NA for unlabelled rows.

        Returns
        -------
        self : object
        """
        self._fit(X, y)
        return self

    def transform(self, X: MatrixLike) -> NDArray[np.floating]:
        """Compute the features of new samples.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (q, d)
            Samples; with ``kernel="precomputed"`` their kernel values against the training samples (q, n).

        Returns
        -------
        features : ndarray of shape (q, r)
        """
        check_is_fitted(self)
        samples = validate_new(self, X)
        check_magnitude(samples, also_small=False)
        return self.feature_map_(dense(samples) if self.kernel == "precomputed" else samples)

    def _fit(self, X: Any, y: Any, **reused: Any) -> Callable[[], Any] | None:
        """Fit, and return what `_learn` returns."""
        X, codes = self._validate(X, y, **reused)
        n, needed = X.shape[0], self._needed_memory(X, codes)
        fits = int(n * np.sqrt(min(1.0, available_memory() / max(needed, 1))))
        require_memory(
            needed,
            f"{type(self).__name__} for {n} samples",
            f"Fit on a subset of at most {fits} rows that contains the labelled rows, then transform all rows.",
        )
        stages = Stages(type(self).__name__, self.verbose)
        problem = self._problem(X, codes, stages, **reused)
        with stages("bandwidth"):
            kernel = self._resolve_kernel(problem, self.gamma_scale)
        kernel = self._choose(problem, codes, kernel)
        training = self._learn(problem, codes, kernel)
        if self.coef_ is not None and not np.all(np.isfinite(self.coef_)):
            raise ValueError(
                f"{type(self).__name__} has infinite coefficients with {self.get_params()}. "
                "The regularization is too weak for these data: increase it, or rescale X."
            )
        self.gamma_ = kernel.gamma
        self.timings_ = stages.seconds
        return training

    def _problem(self, X: Any, codes: np.ndarray, stages: Stages) -> Problem:
        return Problem.once_for(X, stages=stages)

    def _resolve_kernel(self, problem: Problem, gamma_scale: float) -> Kernel:
        return problem.kernel(
            kernel=self.kernel,
            gamma=self.gamma,
            gamma_scale=gamma_scale,
            degree=self.degree,
            coef0=self.coef0,
            kernel_params=self.kernel_params,
        )

    def _choose(self, problem: Problem, codes: np.ndarray, kernel: Kernel) -> Kernel:
        """Resolve "auto" parameters and return the kernel to use."""
        return kernel

    def _validate(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        name = type(self).__name__
        if y is None and self.min_classes:
            raise ValueError(f"{name} requires y to be passed, but the target y is None.")
        X = validate_data(self, mapped_floats(X), accept_sparse="csr", dtype=FLOATS, ensure_min_samples=2)
        check_magnitude(X, also_small=self.kernel != "precomputed")
        codes, self.classes_ = encode_labels(y, X.shape[0])
        if self.classes_.size < self.min_classes:
            raise ValueError(
                f"{name} needs labels of at least {self.min_classes} classes, but y has {self.classes_.size} class(es)"
                f": {self.classes_.tolist()}. Label samples of another class, or use an unsupervised method."
            )
        if self.kernel == "precomputed":
            if X.shape[0] != X.shape[1]:
                raise ValueError(f"A precomputed kernel must be square, but X has shape {X.shape}.")
            X = dense(X)
        return X, codes

    def _learn(self, problem: Problem, codes: np.ndarray, kernel: Kernel) -> Callable[[], Any] | None:
        """Set the fitted attributes; return a function for the features of the training samples if there is one."""
        X, stages = problem.X, problem.stages
        support = kernel.support(X, np.flatnonzero(codes >= 0) if self.labelled_only else None)
        if self.labelled_only:
            X, codes = X[codes >= 0], codes[codes >= 0]
        with stages("kernel"):
            K = kernel.train_matrix(X[:, support] if kernel.name == "precomputed" else X)
        with stages("solve"):
            eigenvalues, coefficients = self._solve(K, X, codes)
        if coefficients.shape[1] == 0:
            raise ValueError(
                f"{type(self).__name__} found no features: the samples have no variance. Are all rows of X equal?"
            )
        self.coef_ = fix_signs(coefficients)
        self.eigenvalues_ = eigenvalues
        self.feature_map_: Callable[[Any], np.ndarray] = KernelExpansion(
            kernel, support, self.coef_, getattr(self, "offset_", 0.0)
        )
        return None

    def _solve(self, K: np.ndarray, X: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute eigenvalues (r,) and coefficients (n, r) from K (n, n), which may be overwritten."""
        raise TypeError(f"{type(self).__name__} must define _solve")

    def _basis(self, K: np.ndarray, X: Any) -> KernelBasis:
        """Coordinates of the kernel matrix, which is overwritten."""
        return KernelBasis.from_kernel_matrix(K, eps=Kernel(self.kernel).precision(X))

    def _neighbors(self, K: np.ndarray, X: Any, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices of nearest other samples, in the space of the kernel."""
        k = self._clip_parameter(n_neighbors, K.shape[0] - 1, "n_neighbors")
        return input_neighbors(X, k) if self.kernel in INPUT_SPACE_KERNELS else kernel_neighbors(K, k)

    def _clip_parameter(self, value: int, limit: int, name: str) -> int:
        if value > limit:
            warnings.warn(
                f"{name}={value} is too large for these data; {type(self).__name__} uses {limit}.", stacklevel=2
            )
        return min(value, limit)

    def _memory(self, X: Any, codes: np.ndarray) -> int:
        """Peak memory of the solution in bytes, without copies of X."""
        m = int(np.sum(codes >= 0))
        n = m if self.labelled_only else X.shape[0]
        return 8 * (self.matrices * n * n + self.labelled_matrices * m * n)

    def _needed_memory(self, X: Any, codes: np.ndarray) -> int:
        """Peak memory of `fit` in bytes, without X."""
        return self._memory(X, codes) + samples_memory(X, self.kernel)

    @property
    def _n_features_out(self) -> int:
        return int(self.eigenvalues_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.positive_only = self.kernel == "chi2"
        tags.target_tags.required = self.min_classes > 0
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
