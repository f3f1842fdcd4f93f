"""Scaled features, and classifiers of labelled rows alone, for pipelines with unlabelled rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
    _fit_context,
    clone,
)
from sklearn.utils import _safe_indexing, assert_all_finite, get_tags
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted

from ldsu._utils.arrays import ignoring_warnings, row_blocks
from ldsu._utils.fitting import atomic
from ldsu._utils.protocols import MatrixLike
from ldsu.kernels import FLOATS, check_mask, validate_data, validate_new
from ldsu.labels import encode_labels

# Entries of features that are copied in double precision at a time.
BLOCK_ENTRIES = 2**24


class BlockScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale all features by a single factor so that the mean squared norm of the training rows is 1.

    Spectral features have arbitrary, often tiny norms, so a linear classifier's C or alpha is not comparable without
    rescaling. Scaling column by column would change the relative weights of features; a single factor does not.

    Attributes
    ----------
    scale_ : float
        The divisor; 1 if all training features are 0.

    Examples
    --------
    >>> from ldsu import BlockScaler
    >>> BlockScaler().fit_transform([[3.0, 0.0], [0.0, 4.0]]).round(3)
    array([[0.849, 0.   ],
           [0.   , 1.131]])
    """

    @atomic
    def fit(self, X: MatrixLike, y: ArrayLike | None = None) -> Self:
        """Compute the root mean squared norm of the rows of X (n, r)."""
        Z = validate_data(self, X, accept_sparse="csr", dtype=FLOATS)
        entries = Z.data[:, None] if scipy.sparse.issparse(Z) else Z
        blocks = row_blocks(entries.shape[0], BLOCK_ENTRIES // max(1, entries.shape[1]))
        lengths = [scipy.linalg.norm(entries[block].ravel().astype(np.float64)) for block in blocks]
        self.scale_ = float(scipy.linalg.norm(lengths) / np.sqrt(Z.shape[0])) or 1.0
        return self

    @classmethod
    def of_lengths(cls, lengths: np.ndarray, n_features: int) -> Self:
        """The scaler fitted to rows of which only the lengths (n,) are at hand."""
        assert_all_finite(lengths)
        scaler = cls()
        scaler.scale_ = float(np.sqrt(np.mean(lengths.astype(np.float64) ** 2))) or 1.0
        scaler.n_features_in_ = n_features
        return scaler

    def transform(self, X: MatrixLike) -> Any:
        """Divide X (q, r) by `scale_`."""
        check_is_fitted(self)
        Z = validate_new(self, X)
        return Z / Z.dtype.type(self.scale_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LabelledScoreMixin:
    """Mixin with a `score` that ignores unlabelled rows."""

    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy over the labelled rows.

        Parameters
        ----------
        X : array-like of shape (q, d)
        y : array-like of shape (q,)
        sample_weight : array-like of shape (q,), optional

        Returns
        -------
        score : float
        """
        from sklearn.metrics import accuracy_score  # slow to import, and only for scores

        codes, classes = encode_labels(y, _num_samples(X))
        rows = np.flatnonzero(codes >= 0)
        if rows.size == 0:
            raise ValueError("y has no labelled entries, so a score cannot be computed.")
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)[rows]
        predicted = self.predict(_safe_indexing(X, rows))  # type: ignore[attr-defined]
        return float(accuracy_score(classes[codes[rows]], predicted, sample_weight=weight))


def _estimator_has(method: str) -> Callable[[Any], bool]:
    def check(self: Any) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    return check


class LabelledOnly(LabelledScoreMixin, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Fit any classifier on the labelled rows only.

    scikit-learn's classifiers treat -1 as another class. As the last step of a pipeline, this meta-estimator lets
    the steps before it use every row and the classifier only the labelled rows.

    Parameters
    ----------
    estimator : classifier
        Classifier to clone and fit.

    Attributes
    ----------
    estimator_ : classifier
        Classifier fitted on the labelled rows.
    classes_ : ndarray of shape (c,)
        Class labels.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import LinearSVC
    >>> from ldsu import LDSU, BlockScaler, LabelledOnly
    >>> X, y = load_digits(return_X_y=True)
    >>> few = y.copy()
    >>> few[100:] = -1
    >>> model = make_pipeline(LDSU(), BlockScaler(), LabelledOnly(LinearSVC())).fit(X, few)
    >>> sorted(set(model.predict(X).tolist())) == list(range(10))
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"estimator": [HasMethods(["fit", "predict"])]}

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    @atomic
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a clone of `estimator` to the labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        y : array-like of shape (n,)
            Labels; -1, None, NaN or pandas.NA for unlabelled rows.
        sample_weight : array-like of shape (n,), optional
            Sample weights; those of labelled rows are passed to the estimator.

        Returns
        -------
        self : object
        """
        if y is None:
            raise ValueError("LabelledOnly requires y to be passed, but the target y is None.")
        check_mask(X)
        codes, classes = encode_labels(y, _num_samples(X))
        rows = np.flatnonzero(codes >= 0)
        if rows.size == 0:
            raise ValueError("LabelledOnly found no label in y: every entry is -1, None or NaN.")
        arguments = {} if sample_weight is None else {"sample_weight": _check_sample_weight(sample_weight, X)[rows]}
        # A kernel or distance matrix has a column for each training row, and so does the input of predict.
        self._columns = rows if get_tags(self.estimator).input_tags.pairwise else None
        labelled_X = self._select(X if rows.size == codes.size else _safe_indexing(X, rows))
        # One label per class is not "a regression problem".
        with ignoring_warnings("The number of unique classes is greater than 50%"):
            self.estimator_ = clone(self.estimator).fit(labelled_X, classes[codes[rows]], **arguments)
        self.classes_ = self.estimator_.classes_
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Predict labels for X (q, d) with the fitted estimator."""
        check_is_fitted(self)
        return self.estimator_.predict(self._select(X))

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: MatrixLike) -> NDArray[np.floating]:
        """Compute scores for X (q, d) with the fitted estimator."""
        check_is_fitted(self)
        return self.estimator_.decision_function(self._select(X))

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: MatrixLike) -> NDArray[np.floating]:
        """Predict class probabilities for X (q, d) with the fitted estimator."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(self._select(X))

    @available_if(_estimator_has("predict_log_proba"))
    def predict_log_proba(self, X: MatrixLike) -> NDArray[np.floating]:
        """Predict logarithms of class probabilities for X (q, d) with the fitted estimator."""
        check_is_fitted(self)
        return self.estimator_.predict_log_proba(self._select(X))

    def _select(self, X: Any) -> Any:
        return X if self._columns is None else _safe_indexing(X, self._columns, axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.classifier_tags = inner.classifier_tags
        tags.target_tags.required = True
        return tags
