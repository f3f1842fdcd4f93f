"""From features to decisions when labels are few."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
from scipy.special import log_softmax, logsumexp, softmax
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
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted

from ldsu._utils.arrays import ignoring_warnings
from ldsu._utils.fitting import atomic
from ldsu.kernels import check_mask, validate_data
from ldsu.labels import class_counts, encode_labels
from ldsu.methods import LDSU
from ldsu.methods.ldsu import LABELS_TO_CHOOSE, NOISE

# Fewer unlabelled points a class than this say too little about the mean and deviation of its scores.
MIN_UNLABELLED_PER_CLASS = 5
# With this many labels a class raw scores decide nearly as well, and do not assume classes of similar size.
MANY_LABELS_PER_CLASS = 20
# Labels this unequal in number are a sample of unequal classes.
UNEQUAL = 3
# Classes of similar size are a correction, not evidence: where it would change more than this share of the decisions,
# and the labels left out are predicted this much of the way from chance to certainty, the scores are believed instead.
MOST_CHANGED, BETTER_THAN_CHANCE = 0.2, 0.1
# A predicted label counts as if it were seen with so much noise, in units of the squared norm of the labelled samples'
# features; a given one is seen with `noise_`, from 0.001 to 1. Of more unlabelled rows a random choice says as much.
PSEUDO_NOISE, PSEUDO_ROWS = 10.0, 5000
# A row whose features are shorter than this share of the median training row's lies far from everything.
ISOLATED = 1e-3
SURE = 0.999
# Refinement keeps nearly every label, right or wrong: so much of that share is believed.
BELIEVED = 0.9
# Factors with which scores, standardised or not, become logarithms of odds against all other classes.
STANDARDIZED_ODDS, RAW_ODDS = {1.0: 0.5, 0.5: 2.0}, 4.0


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

    @atomic
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

    @atomic
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
        check_mask(X)
        codes, classes = encode_labels(y, _num_samples(X))
        rows = np.flatnonzero(codes >= 0)
        if rows.size == 0:
            raise ValueError("LabelledOnly found no label in y: every entry is -1, None or NaN.")
        arguments = {} if sample_weight is None else {"sample_weight": _check_sample_weight(sample_weight, X)[rows]}
        # A kernel or distance matrix has a column for each training row, and so has what predict is given.
        self._columns = rows if get_tags(self.estimator).input_tags.pairwise else None
        labelled_X = self._select(X if rows.size == codes.size else _safe_indexing(X, rows))
        # One label a class is not "a regression problem".
        with ignoring_warnings("The number of unique classes is greater than 50%"):
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


def _default_classifier(self: Any) -> bool:
    if self.classifier is not None:
        raise AttributeError("This method is there with classifier=None only: other scores are of no known scale.")
    return True


def row_lengths(Z: Any) -> np.ndarray:
    """Euclidean lengths of the rows of Z (n, r)."""
    return scipy.sparse.linalg.norm(Z, axis=1) if scipy.sparse.issparse(Z) else np.sqrt(np.einsum("ij,ij->i", Z, Z))


def _center_and_scale(scores: np.ndarray, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean of each column, and a power of its mean deviation."""
    center = scores.mean(axis=0)
    scale = np.abs(scores - center).mean(axis=0) ** power
    return center, np.where(scale > 0, scale, 1.0)


def _log_odds(scores: np.ndarray) -> np.ndarray:
    """Logarithms of the odds of each class against all others, by the softmax of the scores (q, c)."""
    rows, top = np.arange(scores.shape[0]), scores.argmax(axis=1)
    log_p = log_softmax(scores, axis=1)
    with np.errstate(divide="ignore"):  # the largest comes next, without the difference of nearly equal numbers
        odds: np.ndarray = log_p - np.log1p(-np.exp(log_p))
    others = scores.copy()
    others[rows, top] = -np.inf
    odds[rows, top] = scores[rows, top] - logsumexp(others, axis=1)
    return odds


def _softmax(scores: np.ndarray, sharpness: float) -> np.ndarray:
    """Probabilities (q, c) from scores (q, c), or (q, 1) for two classes."""
    if scores.shape[1] == 1:
        scores = np.hstack([-scores, scores])
    below = scores - scores.max(axis=1, keepdims=True)  # so that only what has no weight is cut off
    probabilities: np.ndarray = softmax(np.maximum(sharpness * below, -1e9), axis=1)
    return probabilities


def certainties(scores: np.ndarray, sharpness: float) -> np.ndarray:
    """Probability of the class predicted for each row, from scores (q, c) or (q, 1)."""
    return _softmax(scores, sharpness).max(axis=1)


class Confidence(NamedTuple):
    """Two reasons to doubt a predicted label.

    Attributes
    ----------
    margin : ndarray of shape (q,)
        Probability of the predicted class less that of the next one: near 0 between two classes.
    familiarity : ndarray of shape (q,)
        Share of the training rows that lie no deeper in the data: the length of their features is no greater. 0 far
        from everything.
    """

    margin: np.ndarray
    familiarity: np.ndarray


class LDSUClassifier(LabelledScoreMixin, ClassifierMixin, BaseEstimator):
    """Learn features from all rows, and a linear classifier from the labelled ones and then from all.

    Three steps follow the features.

    1. A ridge classifier on the labelled rows. With ``LDSU(strength="auto")`` its ridge is chosen with the strength.
    2. Scores are standardised. With few labels they rank well before they decide well: the scores of each class have a
       scale of their own, set by the density around its few labels. Each class's score is therefore standardised by its
       mean and mean deviation (with three labels a class or more its square root) over the unlabelled training rows
       before the largest is taken. That changes no ranking within a class. It leans towards classes of similar size,
       which helps much with one or three labels a class and little with twenty: "auto" standardises where it has
       much to give.
    3. Rounds of refinement: all rows get the label predicted so far, count little beside the given labels, and the
       ridge classifier is fitted again. Rows deep inside a class then speak for it as a few labels cannot.

    Parameters
    ----------
    features : transformer, default=None
        Learns the features; None is ``LDSU()``. Any of `ldsu.METHODS` will do.
    classifier : classifier, default=None
        Linear classifier with a `decision_function`, fitted to the features of the labelled rows after they were scaled
        as one block, without refinement. None is the ridge classifier described.
    standardize_scores : bool or "auto", default="auto"
        Standardize the scores that decide. "auto" does so with fewer than twenty labels per class (the median class),
        no class with more than three times the labels of another, and at least five unlabelled rows per class; but not
        where it would change more than a fifth of the decisions although leave-one-out accuracy is well above chance:
        classes are then of unequal size. With one or two labels per class that cannot be seen; use False where classes
        are known to be of very unequal size.
    n_refinements : int, default=4
        Rounds of the third step, for ``classifier=None``.

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
    expected_accuracy_ : float
        What `predict_proba` is scaled to: between the accuracy for labels left out, where `features_` measured it, and
        nine tenths of the share of unlabelled rows whose label the refinement kept. Only with ``classifier=None``.

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
    >>> model.predict_proba(X[:2]).shape
    (2, 10)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "features": [HasMethods(["fit", "transform"]), None],
        "classifier": [HasMethods(["fit", "decision_function"]), None],
        "standardize_scores": ["boolean", StrOptions({"auto"})],
        "n_refinements": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        features: Any = None,
        classifier: Any = None,
        *,
        standardize_scores: bool | Literal["auto"] = "auto",
        n_refinements: int = 4,
    ) -> None:
        self.features = features
        self.classifier = classifier
        self.standardize_scores = standardize_scores
        self.n_refinements = n_refinements

    @atomic
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
        self._lengths = np.sort(row_lengths(Z))
        if self.classifier is None:
            power, asked, first = self._learn_from_all(Z, codes)
        else:
            self.classifier_ = LabelledOnly(self.classifier).fit(Z, codes)
            power = self._power(class_counts(codes), int(np.sum(codes < 0)))
        raw = self._raw_scores(Z)
        self.score_center_, self.score_scale_ = self._standardization(raw[codes < 0], power)
        scores = (raw - self.score_center_) / self.score_scale_
        predicted = self._decide(scores)
        if self.classifier is None:
            kept = float(np.mean(predicted[asked] == first)) if asked.size else 1.0
            rows = scores[codes < 0] if np.any(codes < 0) else scores
            self._scale_probabilities(lambda sharpness: float(certainties(rows, sharpness).mean()), codes, kept)
        unlabelled = codes < 0
        self._warn_of_isolated(Z[unlabelled], "unlabelled training row(s)")
        self.transduction_ = self.classes_[np.where(unlabelled, predicted, codes)]
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the classes. The largest is that of the class `predict` gives.

        With ``classifier=None`` and three classes or more, the score of a class is the logarithm of its odds against
        all others by the softmax of the (standardised) scores: a row that two classes claim ranks low for both.
        Otherwise it is the (standardised) score of the classifier.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (q, d)

        Returns
        -------
        scores : ndarray of shape (q, c), or (q,) for two classes, positive for the second
        """
        check_is_fitted(self)
        return self._decisions(self._scaled_features(X))

    def _decisions(self, Z: Any) -> np.ndarray:
        """Scores of the classes for scaled features."""
        scores = self._scores(Z)
        if scores.shape[1] == 1:
            return scores[:, 0]
        if self.classifier is not None:
            return scores
        return _log_odds(self._odds * scores)

    def predict(self, X: Any) -> np.ndarray:
        """Labels for new samples. A warning counts those that lie far from all training rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (q, d)

        Returns
        -------
        labels : ndarray of shape (q,)
        """
        check_is_fitted(self)
        Z = self._scaled_features(X)
        self._warn_of_isolated(Z, "row(s)")
        labels: np.ndarray = self.classes_[self._decide(self._scores(Z))]
        return labels

    @available_if(_default_classifier)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes: the softmax of the scores, as sure on average as the labels left out allow.

        Rows far from all training rows get equal probabilities. With one or two labels a class nothing can be left
        out, and probabilities are then too sure wherever the graph misleads. Only with ``classifier=None``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (q, d)

        Returns
        -------
        probabilities : ndarray of shape (q, c)
        """
        check_is_fitted(self)
        return self._probabilities(self._scaled_features(X))

    @available_if(_default_classifier)
    def confidence(self, X: Any) -> Confidence:
        """Why a predicted label may be wrong: between two classes, or far from everything.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (q, d)

        Returns
        -------
        confidence : Confidence
            With `margin` and `familiarity`, each of shape (q,) and from 0 to 1.
        """
        return self._judge(X)[1]

    def _judge(self, X: Any) -> tuple[np.ndarray, Confidence, int]:
        """Probabilities (q, c), confidence, and how many rows lie far from everything, from one set of features."""
        check_is_fitted(self)
        Z = self._scaled_features(X)
        probabilities = self._probabilities(Z)
        ascending = np.sort(probabilities, axis=1)
        # A training row lies as far out as itself, however many threads summed it up.
        deeper = np.searchsorted(self._lengths, row_lengths(Z) * (1 + 1e-9), side="right")
        confidence = Confidence(ascending[:, -1] - ascending[:, -2], deeper / self._lengths.size)
        return probabilities, confidence, int(self._isolated(Z).sum())

    def _scaled_features(self, X: Any) -> Any:
        return self.scaler_.transform(_plain(self.features_.transform(X)))

    def _scores(self, Z: Any) -> np.ndarray:
        return (self._raw_scores(Z) - self.score_center_) / self.score_scale_

    def _learn_from_all(self, Z: Any, codes: np.ndarray) -> tuple[float | None, np.ndarray, np.ndarray]:
        """Ridge classifier on the labelled rows, then on all with the labels it predicts.

        Returns
        -------
        power : float or None
            How scores are standardized, as `_power` gives it.
        rows, first : ndarrays of int
            Unlabelled rows that took part, and the labels that the labelled rows alone gave them.
        """
        labelled, unlabelled = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
        counts = class_counts(codes)
        power = self._power(counts, unlabelled.size)
        if unlabelled.size > PSEUDO_ROWS:
            unlabelled = np.sort(np.random.default_rng(0).choice(unlabelled, PSEUDO_ROWS, replace=False))
        refine = partial(self._refine, Z[labelled], Z[unlabelled], codes[labelled])
        first, last = refine(power)
        if power is not None and self._may_doubt_equal_shares(counts):
            standardized = self.classifier_
            first_raw, last_raw = refine(None)
            if np.mean(last != last_raw) > MOST_CHANGED:
                power, first = None, first_raw
            else:
                self.classifier_ = standardized
        return power, unlabelled, first

    def _refine(
        self, Z_labelled: Any, Z_unlabelled: Any, codes: np.ndarray, power: float | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fit `classifier_` to the labelled rows, then in rounds to all; the first and the last labels of the others.

        Scores are standardized with a `power` of their mean deviation, or taken as they are where it is None.
        """
        noise = float(getattr(self.features_, "noise_", NOISE))
        ridge = RidgeClassifier(alpha=noise * float(np.mean(row_lengths(Z_labelled) ** 2)) or 1.0)
        self.classifier_ = clone(ridge).fit(Z_labelled, codes)
        n = Z_unlabelled.shape[0]
        if n == 0:
            return codes[:0], codes[:0]

        def predicted() -> np.ndarray:
            raw = self._raw_scores(Z_unlabelled)
            center, scale = (0.0, 1.0) if power is None else _center_and_scale(raw, power)
            return self._decide((raw - center) / scale)

        first = last = predicted()
        Z_all = (scipy.sparse.vstack if scipy.sparse.issparse(Z_labelled) else np.vstack)([Z_labelled, Z_unlabelled])
        weights = np.repeat([1.0, noise / PSEUDO_NOISE], [codes.size, n])
        for _ in range(self.n_refinements):
            self.classifier_ = clone(ridge).fit(Z_all, np.concatenate([codes, last]), sample_weight=weights)
            last = predicted()
        return first, last

    def _may_doubt_equal_shares(self, counts: np.ndarray) -> bool:
        """Whether leaving labels out has shown that the scores mean something."""
        selection = getattr(self.features_, "selection_", None)
        if self.standardize_scores != "auto" or not selection:
            return False
        chance = 1 / counts.size
        return float(selection[0]["accuracy"]) >= chance + BETTER_THAN_CHANCE * (1 - chance)

    def _scale_probabilities(self, certainty: Callable[[float], float], codes: np.ndarray, kept: float) -> None:
        """Find the factor of the scores with which unlabelled rows are, on average, as sure as they are right.

        `certainty` gives the mean probability of the class predicted for a factor, `kept` is the share of labels that
        refinement left as they were.
        """
        selection = getattr(self.features_, "selection_", None)
        # Labels left out are foretold from fewer labels and without refinement, which matters less the more there are.
        doubt = min(0.5, 2 / float(np.median(class_counts(codes)))) if selection else 1.0
        left_out = float(selection[0]["accuracy"]) if selection else 0.0
        self.expected_accuracy_ = doubt * BELIEVED * kept + (1 - doubt) * left_out
        c = self.classes_.size
        wanted = float(np.clip(self.expected_accuracy_, 1.05 / c, SURE))

        def surplus(exponent: float) -> float:
            return certainty(float(np.exp(exponent))) - wanted

        low, high = -20.0, 20.0
        inside = surplus(low) < 0 < surplus(high)
        exponent = scipy.optimize.brentq(surplus, low, high, xtol=1e-3) if inside else 0.0
        self._sharpness = float(np.exp(exponent))

    def _probabilities(self, Z: Any) -> np.ndarray:
        probabilities = _softmax(self._scores(Z), self._sharpness)
        isolated = self._isolated(Z)
        # Nearly: so that the largest probability is still that of the label predicted.
        probabilities[isolated] = (1 - 1e-6) / self.classes_.size + 1e-6 * probabilities[isolated]
        return probabilities

    def _isolated(self, Z: Any) -> np.ndarray:
        return row_lengths(Z) < ISOLATED * float(np.median(self._lengths))

    def _warn_of_isolated(self, Z: Any, what: str) -> None:
        self._warn_of_count(int(self._isolated(Z).sum()), what, stacklevel=4)

    @staticmethod
    def _warn_of_count(count: int, what: str, stacklevel: int = 3) -> None:
        if count:
            warnings.warn(
                f"{count} {what} lie far from everything the features were learned from: their labels are guesses. "
                "`confidence` tells which.",
                stacklevel=stacklevel,
            )

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

    def _power(self, counts: np.ndarray, n_unlabelled: int) -> float | None:
        """Power of the mean deviation that scores are divided by, from the labels of each class; None for raw scores.

        The whole deviation makes all classes equally large; none of it, as large as the density around their labels
        makes them. With one or two labels per class that density says nothing of the class; with more, half of it is
        believed.
        """
        if self.standardize_scores == "auto":
            few_labels = np.median(counts) < MANY_LABELS_PER_CLASS and counts.max() <= UNEQUAL * counts.min()
            standardize = few_labels and n_unlabelled >= MIN_UNLABELLED_PER_CLASS * counts.size
        else:
            standardize = self.standardize_scores and n_unlabelled > 0
        if not standardize:
            return None
        return 1.0 if np.median(counts) < LABELS_TO_CHOOSE else 0.5

    def _standardization(self, raw: np.ndarray, power: float | None) -> tuple[np.ndarray, np.ndarray]:
        """Center and scale from the raw scores of unlabelled rows."""
        self._odds = RAW_ODDS if power is None else STANDARDIZED_ODDS[power]
        if power is None:
            return np.zeros(raw.shape[1]), np.ones(raw.shape[1])
        return _center_and_scale(raw, power)

    @staticmethod
    def _decide(scores: np.ndarray) -> np.ndarray:
        return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(LDSU() if self.features is None else self.features).input_tags
        tags.target_tags.required = True
        return tags
