"""From features to decisions when labels are few."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.linalg
import scipy.sparse
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
    _fit_context,
    clone,
)
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import accuracy_score
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted, validate_data

from ldsu.labels import class_counts, encode_labels
from ldsu.methods import LDSU

# Fewer unlabelled points a class than this say too little about the median and deviation of its scores.
MIN_UNLABELLED_PER_CLASS = 5
# With this many labels a class raw scores decide nearly as well, and do not assume classes of similar size.
MANY_LABELS_PER_CLASS = 10


class BlockScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Divide all features by one number, so that the mean squared norm of a training row is 1.

    Spectral features come with arbitrary, often tiny norms, and a linear classifier's C or alpha means nothing before
    they are rescaled. Column by column would undo what the features say; as one block only the unit changes.

    Attributes
    ----------
    scale_ : float
        The number; 1 where all training features are 0.

    Examples
    --------
    >>> from ldsu import BlockScaler
    >>> BlockScaler().fit_transform([[3.0, 0.0], [0.0, 4.0]]).round(3)
    array([[0.849, 0.   ],
           [0.   , 1.131]])
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Measure the mean squared norm of the rows of X (n, r)."""
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        entries = X.data if scipy.sparse.issparse(X) else X
        self.scale_ = float(scipy.linalg.norm(entries.ravel().astype(np.float64)) / np.sqrt(X.shape[0])) or 1.0
        return self

    def transform(self, X: Any) -> Any:
        """Divide X (q, r) by `scale_`."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return X / X.dtype.type(self.scale_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LabelledScoreMixin:
    """`score` over the labelled rows alone."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy over the rows of X whose y is a label.

        Parameters
        ----------
        X : array-like of shape (q, d)
        y : array-like of shape (q,)
        sample_weight : array-like of shape (q,), optional

        Returns
        -------
        score : float
        """
        codes, classes = encode_labels(y, _num_samples(X))
        rows = np.flatnonzero(codes >= 0)
        if rows.size == 0:
            raise ValueError("y holds no label, so there is nothing to score against.")
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)[rows]
        predicted = self.predict(_safe_indexing(X, rows))  # type: ignore[attr-defined]
        return float(accuracy_score(classes[codes[rows]], predicted, sample_weight=weight))


def _plain(features: Any) -> Any:
    """Features as an array or sparse matrix, whatever `set_output` made of them."""
    return features if scipy.sparse.issparse(features) else np.asarray(features)


def _estimator_has(method: str) -> Callable[[Any], bool]:
    def check(self: Any) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    return check


class LabelledOnly(LabelledScoreMixin, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Train any classifier on the labelled rows only.

    scikit-learn's classifiers read -1 as one more class. At the end of a pipeline this step lets the steps before it
    see every row and its classifier only the labelled ones.

    Parameters
    ----------
    estimator : classifier
        It is cloned, not changed.

    Attributes
    ----------
    estimator_ : classifier
        Fitted on the labelled rows.
    classes_ : ndarray of shape (c,)
        The labels seen.

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

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit a clone of `estimator` to the labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        y : array-like of shape (n,)
            Labels; -1, None, NaN or pandas.NA where there is none.
        sample_weight : array-like of shape (n,), optional
            Given to the estimator, for the labelled rows.

        Returns
        -------
        self : object
        """
        if y is None:
            raise ValueError("LabelledOnly requires y to be passed, but the target y is None.")
        codes, classes = encode_labels(y, _num_samples(X))
        rows = np.flatnonzero(codes >= 0)
        if rows.size == 0:
            raise ValueError("LabelledOnly found no label in y: every entry is -1, None or NaN.")
        arguments = {} if sample_weight is None else {"sample_weight": _check_sample_weight(sample_weight, X)[rows]}
        # A kernel or distance matrix has a column for each training row, and so has what predict is given.
        self._columns = rows if get_tags(self.estimator).input_tags.pairwise else None
        labelled_X = self._select(X if rows.size == codes.size else _safe_indexing(X, rows))
        with warnings.catch_warnings():
            # One label a class is not "a regression problem".
            warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
            self.estimator_ = clone(self.estimator).fit(labelled_X, classes[codes[rows]], **arguments)
        self.classes_ = self.estimator_.classes_
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Labels for X (q, d), by the fitted estimator."""
        check_is_fitted(self)
        return self.estimator_.predict(self._select(X))

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Scores for X (q, d), by the fitted estimator."""
        check_is_fitted(self)
        return self.estimator_.decision_function(self._select(X))

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities for X (q, d), by the fitted estimator."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(self._select(X))

    @available_if(_estimator_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities for X (q, d), by the fitted estimator."""
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


class LDSUClassifier(LabelledScoreMixin, ClassifierMixin, BaseEstimator):
    """Learn features from all rows and a linear classifier from the labelled ones.

    With few labels, scores rank well before they decide well: the scores of each class have a scale of their own, set
    by the density around its few labels, and the largest of them is often not the right one. Each class's score is
    therefore standardised by its median and mean deviation over the unlabelled training rows before the largest is
    taken. That changes no ranking within a class. It leans towards classes of similar size, which helps much with one
    or three labels a class and little with ten, and harms where classes are very unequal: "auto" standardises where
    it has much to give.

    Parameters
    ----------
    features : transformer, default=None
        Learns the features; None is ``LDSU()``. Any of `ldsu.METHODS` will do.
    classifier : classifier, default=None
        Linear classifier with a `decision_function`, fitted to the features of the labelled rows after they were scaled
        as one block; None is ``RidgeClassifier(alpha=0.1)``.
    standardize_scores : bool or "auto", default="auto"
        Standardise as described. "auto" does so with three classes or more, fewer than ten labels a class (the median
        class) and at least five unlabelled rows a class.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The labels seen.
    features_, scaler_, classifier_ : estimators
        The fitted steps.
    score_center_, score_scale_ : ndarray of shape (c,), or (1,) for two classes
        The raw scores less the first, divided by the second, are the scores that decide.
    transduction_ : ndarray of shape (n,)
        Labels of the training rows: the given ones, and predictions elsewhere.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ldsu import LDSUClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> few = y.copy()
    >>> few[30:] = -1  # thirty labels, 1767 rows without
    >>> model = LDSUClassifier().fit(X, few)
    >>> model.score(X[30:], y[30:]) > 0.9
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "features": [HasMethods(["fit", "transform"]), None],
        "classifier": [HasMethods(["fit", "decision_function"]), None],
        "standardize_scores": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self, features: Any = None, classifier: Any = None, *, standardize_scores: bool | Literal["auto"] = "auto"
    ) -> None:
        self.features = features
        self.classifier = classifier
        self.standardize_scores = standardize_scores

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any) -> Self:
        """Learn features and classifier.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Samples, labelled and unlabelled.
        y : array-like of shape (n,)
            Labels of at least two classes; -1, None, NaN or pandas.NA where there is none.

        Returns
        -------
        self : object
        """
        if y is None:
            raise ValueError("LDSUClassifier requires y to be passed, but the target y is None.")
        validate_data(self, X, skip_check_array=True)
        codes, self.classes_ = encode_labels(y, _num_samples(X))
        if self.classes_.size < 2:
            raise ValueError(
                f"LDSUClassifier needs labels of at least 2 classes, but y has {self.classes_.size} class(es): "
                f"{self.classes_.tolist()}."
            )
        self.features_ = clone(LDSU() if self.features is None else self.features).fit(X, y)
        self.scaler_ = BlockScaler()
        Z = self.scaler_.fit_transform(_plain(self.features_.transform(X)))
        classifier = RidgeClassifier(alpha=0.1) if self.classifier is None else self.classifier
        self.classifier_ = LabelledOnly(classifier).fit(Z, codes)
        raw = self._raw_scores(Z)
        self.score_center_, self.score_scale_ = self._standardization(raw, codes)
        predicted = self._decide((raw - self.score_center_) / self.score_scale_)
        self.transduction_ = self.classes_[np.where(codes >= 0, codes, predicted)]
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the classes, standardised as `predict` uses them.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (q, d)

        Returns
        -------
        scores : ndarray of shape (q, c), or (q,) for two classes, positive for the second
        """
        check_is_fitted(self)
        Z = self.scaler_.transform(_plain(self.features_.transform(X)))
        scores = (self._raw_scores(Z) - self.score_center_) / self.score_scale_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Labels for new samples.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (q, d)

        Returns
        -------
        labels : ndarray of shape (q,)
        """
        scores = self.decision_function(X)
        labels: np.ndarray = self.classes_[self._decide(scores.reshape(scores.shape[0], -1))]
        return labels

    def _raw_scores(self, Z: np.ndarray) -> np.ndarray:
        scores = np.asarray(self.classifier_.decision_function(Z))
        scores = scores.reshape(Z.shape[0], -1)
        c = self.classes_.size
        if scores.shape[1] != (1 if c == 2 else c) or getattr(self.classifier, "decision_function_shape", "") == "ovo":
            raise ValueError(
                f"{self.classifier} gives {scores.shape[1]} score(s) for {c} classes. LDSUClassifier needs one for each"
                " class against the rest (one in all for two classes): decision_function_shape='ovr', for example."
            )
        return scores

    def _standardization(self, raw: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        unlabelled = raw[codes < 0]
        counts = class_counts(codes)
        standardize = self.standardize_scores
        if standardize == "auto":
            few_labels = np.median(counts) < MANY_LABELS_PER_CLASS
            standardize = bool(
                few_labels and counts.size > 2 and len(unlabelled) >= MIN_UNLABELLED_PER_CLASS * counts.size
            )
        if not standardize or len(unlabelled) == 0:
            return np.zeros(raw.shape[1]), np.ones(raw.shape[1])
        center = np.median(unlabelled, axis=0)
        scale = np.abs(unlabelled - center).mean(axis=0)
        return center, np.where(scale > 0, scale, 1.0)

    @staticmethod
    def _decide(scores: np.ndarray) -> np.ndarray:
        return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(LDSU() if self.features is None else self.features).input_tags
        tags.target_tags.required = True
        return tags
