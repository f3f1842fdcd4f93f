"""Classification with few labels: self-training on features, and a vote with classifiers of the labelled rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context, clone
from sklearn.utils import check_array, get_tags
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from ldsu._utils.arrays import arrays_of, row_blocks
from ldsu._utils.fitting import atomic
from ldsu._utils.parameters import NonNegativeInt, parameters
from ldsu._utils.protocols import MatrixLike
from ldsu._utils.temporary import is_mapped
from ldsu.classifier._labelled_only import BLOCK_ENTRIES, BlockScaler, LabelledOnly, LabelledScoreMixin
from ldsu.classifier._ridge import RidgeFits, linear_scores, row_lengths
from ldsu.classifier._scores import (
    MeanOf,
    class_probabilities,
    class_softmax,
    decide,
    log_odds_of,
    matching_center,
    max_probabilities,
    mean_and_scale,
    mean_over,
    narrow,
    standardized_odds,
    wide,
)
from ldsu.classifier._shares import MIN_LABELS_FOR_SHARES, designed, estimate_shares, resolve_shares, similar_counts
from ldsu.classifier._supervised import (
    GAMMA_ROWS,
    MIN_WEIGHT,
    NAMES,
    ODDS,
    SHARPNESS,
    Scaling,
    Supervised,
    evidence_weights,
    fit_forest,
    fit_laplacian,
    fit_linear,
    no_forest,
    sharpness,
    smoothed_log,
    weight_prior,
)
from ldsu.kernels import FLOATS, is_float_matrix, mapped_floats, validate_data
from ldsu.labels import class_counts, encode_labels
from ldsu.methods import LDSU, log_likelihoods, sample_kinds, sample_rows
from ldsu.methods.ldsu import NOISE
from ldsu.solvers import Problem

# Minimum number of unlabelled points per class to estimate the mean and deviation of its scores.
MIN_UNLABELLED_PER_CLASS = 5
# With this many labels per class raw scores are nearly as accurate, and do not assume classes of similar size.
MANY_LABELS_PER_CLASS = 20
# Raw scores are used if standardization changes more decisions than this and makes left-out labels less likely.
MAX_CHANGED = 0.2
# The gain of their log-likelihood, times the part of the entropy of equal classes that they explain, must exceed this.
RAW_GAIN = 1 / 3
# Noise of a predicted label, in units of the squared norm of the labelled samples' features; given labels have
# `noise_`, from 0.001 to 1. Larger sets of unlabelled rows are subsampled to PSEUDO_ROWS.
PSEUDO_NOISE, PSEUDO_ROWS = 10.0, 5000
# A row is isolated if the norm of its features is below this fraction of the median over training rows.
ISOLATED = 1e-3
MAX_CERTAINTY = 0.999
# Weight of the fraction of labels kept by refinement, which keeps nearly every label, right or wrong, beside the
# leave-one-out accuracy, and alone.
KEPT_WEIGHT, KEPT_WEIGHT_ALONE = 0.9, 0.75
# Labels per class up to which scores are divided by their deviation, and from which on by its square root.
FULL_LABELS, ROOT_LABELS = 3, 5
# The same for the number of rows per label: with very many rows, the density around labels says less about classes.
FULL_ROWS, ROOT_ROWS = 300, 100
# Factor that converts raw scores to log-odds against all other classes; see `_standardized_odds` for the others.
RAW_ODDS = 4.0
# Estimated shares count in full if predictions of left-out labels explain this part of the entropy of equal classes.
FULL_EXPLAINED = 0.5
# Pooled log-odds are shifted by at most this, in the root mean square over classes, to give classes their shares. The
# intercepts of classifiers of few labelled rows are off by more, but larger shifts contradict unequal classes.
# Found on at most SHIFT_ROWS rows.
MAX_SHIFT, SHIFT_ROWS = 0.1, 20_000
# Shares and the factor of the scores depend on each other: they are found in turn.
SHARES_ALTERNATIONS = 3


def _plain(features: Any) -> Any:
    """Convert the output of `transform` to an array or sparse matrix, regardless of `set_output`."""
    return features if scipy.sparse.issparse(features) else np.asarray(features)


def _default_classifier(self: Any) -> bool:
    if self.classifier is not None:
        raise AttributeError("Only available with classifier=None: scores of other classifiers have no known scale.")
    return True


class TrainingRows:
    """Scaled features (n, r) of the training rows; subclasses may hold them elsewhere."""

    def __init__(self, Z: Any) -> None:
        self.Z = Z

    def __getitem__(self, rows: np.ndarray) -> Any:
        """Features of some rows, ascending."""
        return self.Z[arrays_of(self.Z).put(rows)]

    def lengths(self) -> np.ndarray:
        """Euclidean length of each row."""
        return row_lengths(self.Z)

    def compute_scores(self, model: LDSUClassifier) -> None:
        """Compute the raw scores (n, c), which the methods below use."""
        n = self.Z.shape[0]  # scikit-learn may make a copy in double precision
        step = BLOCK_ENTRIES // self.Z.shape[1] if is_mapped(self.Z) else n
        self.scores = np.concatenate([model._raw_scores(self.Z[block]) for block in row_blocks(n, step)])

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """A function of the scores of all rows."""
        return function(self.scores)

    def add_to_scores(self, scores: np.ndarray) -> None:
        """Add to the raw scores."""
        self.scores = self.scores + scores

    def mean_over(self, rows: np.ndarray) -> MeanOf:
        """Means over some rows, ascending."""
        return mean_over(self.scores[rows])


class Confidence(NamedTuple):
    """Two confidence measures of a predicted label.

    Attributes
    ----------
    margin : ndarray of shape (q,)
        Difference between the two largest class probabilities: near 0 between two classes.
    familiarity : ndarray of shape (q,)
        Fraction of training rows whose features have no larger norm: 0 far from all training rows.
    """

    margin: np.ndarray
    familiarity: np.ndarray


class TrainingView(NamedTuple):
    """Training samples as a fitted `LDSUClassifier` sees them.

    Attributes
    ----------
    features : ndarray of shape (n, r)
        Scaled features: their inner products are the covariance of a Gaussian process whose mean is the classifier.
    probabilities : ndarray of shape (n, c)
        Class probabilities.
    noise : float
        Variance of a label in the units of the features: the ridge of the classifier.
    gain : ndarray of shape (c,)
        Change of the logarithm of a probability, before normalization, with the score of the Gaussian process.
    """

    features: np.ndarray
    probabilities: np.ndarray
    noise: float
    gain: np.ndarray


@parameters
class LDSUClassifier(LabelledScoreMixin, ClassifierMixin, BaseEstimator):
    """Classify with few labels: semi-supervised features, a self-trained linear classifier, and a vote by evidence.

    Features are learned from all rows. Five steps follow.

    1. A ridge classifier is fitted to the labelled rows. ``LDSU(strength="auto")`` also chooses its ridge.
    2. Scores are standardized. With few labels the scale of a class's scores depends on the density around its labels,
       so scores rank rows well within a class but are not comparable between classes. Each class's score is centered at
       its mean over the unlabelled training rows and divided by its mean deviation (by a power of it that falls from 1
       with three labels per class to 0.5 with five, unless there are more than 100 rows per label). The ranking within
       a class does not change. This favors classes of similar size, which helps considerably with one to three labels
       per class and little with twenty: see `standardize_scores`.
    3. Refinement (self-training): unlabelled rows get their predicted label with a small weight, and the ridge
       classifier is fitted again to all rows.
    4. Pooling: log-odds of the features are added to those of three classifiers of the labelled rows alone, a random
       forest, a Laplacian kernel and a linear one. Weights maximize the leave-one-out likelihood of the labels under a
       prior that trusts the features where nearest neighbors are near, as of images, and the others elsewhere, as in
       tables. Images have no forest. If none of the three has weight, nothing is pooled: see `supervised`.
    5. Class shares are estimated from the predictions for unlabelled rows and the leave-one-out predictions for
       labelled ones, and scores are shifted accordingly: see `class_shares`.

    Parameters
    ----------
    features : transformer, default=None
        Feature extractor, for example any of `ldsu.METHODS`. None is ``LDSU()``.
    classifier : classifier, default=None
        Linear classifier with a `decision_function`, fitted to the block-scaled features of the labelled rows without
        steps 3 to 5. None is the classifier described above.
    standardize_scores : bool or "auto", default="auto"
        Whether to standardize scores before predicting. "auto" does so if the median class has fewer than twenty
        labels, label counts differ by no more than a factor of three or (unless most are equal) than by chance, and
        there are at least five unlabelled rows per class; but not if it changes more than a fifth of the predictions
        and makes left-out labels less likely, which indicates unequal class sizes.
    class_shares : {"auto", "equal", "labels"}, array-like of shape (c,) or dict, default="auto"
        Shares of the classes among the unlabelled rows. "auto" estimates them if the median class has at least three
        labels and most classes have equally many: unequal counts are taken as drawn like the rows. Otherwise scores are
        shifted so that the mean predicted probability of each class is its share: "equal" for equally large classes,
        "labels" for labels drawn like the rows, an array in the order of `classes_`, or a dict by class.
    n_refinements : int, default=4
        Number of refinement rounds, for ``classifier=None``.
    supervised : bool, default=True
        Whether classifiers of the labelled rows may be pooled with the features: for ``classifier=None`` and features
        of `LDSU`, but not for precomputed and callable kernels.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Class labels.
    features_, scaler_, classifier_ : estimators
        The fitted steps.
    supervised_ : Supervised or None
        The classifiers of the labelled rows; None if they have no weight.
    selection_ : list of dict or None
        What was pooled: "classifier" ("graph" for the features, "forest", "laplacian", "linear"), its "weight", its
        "prior" and the leave-one-out "accuracy", None if it was not evaluated. None if nothing was compared.
    score_center_, score_scale_ : ndarray of shape (c,), or (1,) for two classes
        Center and scale of the scores of the features, ``(raw - score_center_) / score_scale_``.
    class_shares_ : ndarray of shape (c,) or None
        Given shares, or the mean predicted probabilities of the unlabelled rows; None with another classifier.
    transduction_ : ndarray of shape (n,)
        Labels of the training rows: the given labels, and predictions for unlabelled rows.
    leave_one_out_accuracy_ : float or None
        Leave-one-out accuracy on the labelled rows (at most 500); None if it was not evaluated. Only with
        ``classifier=None``.
    expected_accuracy_ : float
        Estimated accuracy, to which `predict_proba` is calibrated: of pooled classifiers the mean largest probability
        of unlabelled rows; otherwise between the leave-one-out accuracy of the features and 0.9 times the fraction of
        unlabelled rows whose label refinement did not change. Only with ``classifier=None``.

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

    features: Annotated[Any, HasMethods(["fit", "transform"]), None] = field(default=None, kw_only=False)
    classifier: Annotated[Any, HasMethods(["fit", "decision_function"]), None] = field(default=None, kw_only=False)
    standardize_scores: bool | Literal["auto"] = "auto"
    class_shares: Annotated[Any, StrOptions({"auto", "equal", "labels"}), "array-like", dict] = "auto"
    n_refinements: NonNegativeInt = 4
    supervised: bool = True

    @atomic
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: MatrixLike, y: ArrayLike, *, problem: Problem | None = None) -> Self:
        """Fit the features and the classifier.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Samples, labelled and unlabelled.
        y : array-like of shape (n,)
            Labels of at least two classes; -1, None, NaN or pandas.NA for unlabelled rows.
        problem : Problem, optional
            Stages computed by earlier fits to these samples, which are reused, and kept for later fits.

        Returns
        -------
        self : object
        """
        validate_data(self, X, skip_check_array=True)
        X = mapped_floats(X)
        codes = self._encode(y, _num_samples(X))
        reused = {} if problem is None else {"problem": problem}
        self.features_ = clone(LDSU() if self.features is None else self.features)
        if not isinstance(self.features_, LDSU):
            features = self.features_.fit(X, y, **reused).transform(X)
        elif self.classifier is None:
            features = self.features_.fit_transform_on_device(X, y, **reused)
        else:  # which takes arrays
            features = self.features_.fit_transform(X, y, **reused)
        arrays = arrays_of(features)
        on_device = arrays.xp is not np
        Z = features if on_device else _plain(features)
        self.scaler_ = BlockScaler.of_lengths(row_lengths(Z), Z.shape[1]) if on_device else BlockScaler().fit(Z)
        if on_device or (isinstance(self.features_, LDSU) and is_mapped(Z)):  # in place: nobody else has them
            Z /= self.scaler_.scale_
        else:
            Z = self.scaler_.transform(Z)
        self._lengths = np.sort(row_lengths(Z))
        rows = TrainingRows(Z)
        self._fit_to_features(rows, codes, X if self._may_be_supervised() else None, problem)
        # Who passes a problem fits these samples again and again, and asks for their features in between.
        if problem is not None and on_device:
            rows.Z = arrays.get(Z)
        self._training_rows = None if problem is None else rows
        return self

    def _encode(self, y: ArrayLike | None, n: int) -> np.ndarray:
        """Class numbers of the n rows; sets `classes_` and `class_shares_`."""
        if y is None:
            raise ValueError("LDSUClassifier requires y to be passed, but the target y is None.")
        codes, self.classes_ = encode_labels(y, n)
        if self.classes_.size < 2:
            raise ValueError(
                f"LDSUClassifier needs labels of at least 2 classes, but y has {self.classes_.size} class(es): "
                f"{self.classes_.tolist()}."
            )
        self.class_shares_ = resolve_shares(self.class_shares, codes, self.classes_)
        return codes

    def _may_be_supervised(self) -> bool:
        """Whether classifiers of the labelled rows may be pooled: of samples with columns, beside LDSU itself."""
        ldsu = isinstance(self.features_, LDSU) and isinstance(self.features_.kernel, str)
        return self.supervised and self.classifier is None and ldsu and self.features_.kernel != "precomputed"

    def _fit_to_features(
        self, rows: TrainingRows, codes: np.ndarray, X: Any = None, problem: Problem | None = None
    ) -> Self:
        """Fit classifier, standardization and probabilities to scaled features; X (n, d) may be pooled with them."""
        labelled, unlabelled = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
        if self.classifier is None:
            power, pseudo_rows, first, log_shares = self._fit_self_training(rows, codes)
        else:
            self.classifier_ = LabelledOnly(self.classifier).fit(rows[labelled], codes[labelled])
            power = self._power(class_counts(codes), unlabelled.size)
        rows.compute_scores(self)
        mean_of = rows.mean_over(unlabelled if unlabelled.size else labelled)
        self.score_center_, self.score_scale_ = self._center_and_scale(mean_of, power)
        if self.classifier is None:
            shifted = self._shifted_center(log_shares)
            predicted = rows.map(partial(decide, center=shifted, scale=self.score_scale_))
            kept = float(np.mean(predicted[pseudo_rows] == first)) if pseudo_rows.size else 1.0
            left_out = self._left_out_scores(codes)
            self.supervised_: Supervised | None = None
            self.selection_: list[dict[str, Any]] | None = None
            if X is not None:
                left_out = self._fit_supervised(self._samples(X), rows, codes, left_out, problem)
                mean_of = rows.mean_over(unlabelled if unlabelled.size else labelled)
            if self.supervised_ is not None:
                log_shares = self._log_shares(mean_of, codes, left_out)
                if unlabelled.size and self.class_shares_ is None:
                    some = unlabelled[:: -(-unlabelled.size // SHIFT_ROWS)]
                    log_shares = log_shares + self._intercept_shift(rows.mean_over(some), log_shares)
            self.score_center_ = self._shifted_center(log_shares)
            self.leave_one_out_accuracy_ = None
            self._left_out = None
            if left_out is not None:
                self._left_out = left_out = left_out[0], left_out[1] + log_shares
                self.leave_one_out_accuracy_ = float(np.mean(left_out[1].argmax(axis=1) == codes[left_out[0]]))
            if self.supervised_ is None:
                self._scale_probabilities(mean_of, codes, kept)
            else:
                self._scale_pooled(mean_of, codes, left_out)
            if self.class_shares_ is None:
                self.class_shares_ = mean_of(self._by_scores(class_probabilities, self._sharpness))
        predicted = rows.map(partial(decide, center=self.score_center_, scale=self.score_scale_))
        self._warn_isolated(rows.lengths()[unlabelled], "unlabelled training row(s)")
        self.transduction_ = self.classes_[np.where(codes < 0, predicted, codes)]
        return self

    def left_out_probabilities(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows and leave-one-out probabilities (m, c) behind `leave_one_out_accuracy_`.

        None if it was not evaluated, and after loading.
        """
        found = getattr(self, "_left_out", None)
        return found and (found[0], class_softmax(found[1], self._sharpness / self._odds))

    def training_view(self, X: MatrixLike) -> TrainingView:
        """The training samples X (n, d) as the model sees them.

        After ``fit(X, y, problem=problem)`` features and scores are those of the fit; otherwise they are computed. Only
        with ``classifier=None``.
        """
        check_is_fitted(self)
        if self.classifier is not None:
            raise ValueError("training_view needs classifier=None: scores of other classifiers have no known scale.")
        rows = getattr(self, "_training_rows", None)
        if rows is None:
            Z = self._scaled_features(X)
            probabilities = self._probabilities(Z, X)
        else:
            Z = rows.Z
            probabilities = self._scores_to_probabilities((rows.scores - self.score_center_) / self.score_scale_, Z)
        gain = np.broadcast_to(self._sharpness / self.score_scale_, self.classes_.shape)
        return TrainingView(Z, probabilities, float(self.classifier_.alpha), gain)

    def _left_out_scores(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Labelled rows and their leave-one-out log-odds (m, c), of classes with two labels or more; None without."""
        found = self.features_.left_out_scores() if isinstance(self.features_, LDSU) else None
        if found is None:
            return None
        rows, scores = found
        several = class_counts(codes)[codes[rows]] > 1
        scores = (narrow(scores[several]) - self.score_center_) / self.score_scale_
        return (rows[several], self._odds * wide(scores)) if several.any() else None

    def _fit_supervised(
        self,
        X: Any,
        rows: TrainingRows,
        codes: np.ndarray,
        left_out: tuple[np.ndarray, np.ndarray] | None,
        problem: Problem | None,
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Pool the scores with those of classifiers of the labelled rows, if evidence and prior give these weight.

        Sets `supervised_` and `selection_`; returns the leave-one-out log-odds of the pool.
        """
        some = sample_rows(X)
        kinds = sample_kinds(some) if problem is None else problem.once("kinds", None, lambda: sample_kinds(some))
        prior = weight_prior(kinds, float(np.median(class_counts(codes))), X.shape[0])
        if prior[1:].max() < MIN_WEIGHT:
            return left_out
        labelled = np.flatnonzero(codes >= 0)
        scaling = Scaling.of(some)
        samples = scaling(X[labelled])
        with_forest = prior[1] >= MIN_WEIGHT  # it takes the most time
        forest, out_of_bag = fit_forest(samples, codes[labelled]) if with_forest else no_forest(codes[labelled])
        laplacian, laplacian_left_out = fit_laplacian(samples, codes[labelled], scaling(some[:GAMMA_ROWS]))
        linear, linear_left_out = fit_linear(samples, codes[labelled])
        weights, pooled = prior, None
        accuracies: list[float | None] = [None] * len(prior)
        if left_out is not None:
            at, graph = left_out
            places = np.searchsorted(labelled, at)
            kernels = (ODDS * left_out_scores(places) for left_out_scores in (laplacian_left_out, linear_left_out))
            log_odds = np.stack([graph, smoothed_log(out_of_bag[places]), *kernels])
            weights = evidence_weights(log_odds, codes[at], prior)
            accuracies = [float(np.mean(scores.argmax(axis=1) == codes[at])) for scores in log_odds]
            if not with_forest:
                weights[1], accuracies[1] = 0.0, None
            pooled = at, np.tensordot(weights, log_odds, 1)
        self.selection_ = [
            {"classifier": name, "weight": float(weight), "prior": float(before), "accuracy": accuracy}
            for name, weight, before, accuracy in zip(NAMES, weights, prior, accuracies, strict=True)
        ]
        if weights[1:].max() < MIN_WEIGHT:
            return left_out
        self.supervised_ = Supervised(scaling, forest, laplacian, linear, weights[1:] / self._odds)
        self.score_scale_ = self.score_scale_ / weights[0]
        rows.add_to_scores(self.score_scale_ * narrow(self.supervised_.log_odds(X)))
        return pooled

    def _log_shares(
        self, mean_of: MeanOf, codes: np.ndarray, left_out: tuple[np.ndarray, np.ndarray] | None
    ) -> np.ndarray:
        """Logarithms (c,) of the class shares that the predictions indicate, relative to equal ones.

        Zeros if shares are given, cannot be estimated, or labels were drawn like the rows. They count in full if the
        left-out labels are predicted clearly better than by chance: otherwise shares would be inferred from errors.
        """
        counts = class_counts(codes)
        known = self.class_shares_ is not None or (codes >= 0).all() or not designed(counts)
        if left_out is None or known or np.median(counts) < MIN_LABELS_FOR_SHARES:
            return np.zeros(counts.size)
        probabilities = softmax(left_out[1], axis=1)
        likelihood = np.log(probabilities[np.arange(left_out[0].size), codes[left_out[0]]]).mean()
        explained = float(np.clip(1 + likelihood / np.log(counts.size), 0, FULL_EXPLAINED))
        mean = mean_of(self._by_scores(class_probabilities, self._odds))
        shares = estimate_shares(probabilities, codes[left_out[0]], mean)
        return np.asarray(explained / FULL_EXPLAINED * np.log(counts.size * shares))

    def _intercept_shift(self, mean_of: MeanOf, log_shares: np.ndarray) -> np.ndarray:
        """Log-odds (c,) that correct the intercepts of pooled scores, which are uncertain with few labels.

        With all of the correction the mean probabilities of unlabelled rows would be the estimated shares. It is
        limited to `MAX_SHIFT`: where classifiers hardly separate the classes, this decides between 9 to 1 and 1 to 1.
        """
        matching = matching_center(mean_of, self.score_center_, self.score_scale_, self._odds, softmax(log_shares))
        needed = wide(self._odds * (self.score_center_ - matching)[None] / self.score_scale_)[0] - log_shares
        needed -= needed.mean()
        return needed * min(1.0, MAX_SHIFT / max(float(np.sqrt(np.mean(needed**2))), MAX_SHIFT))

    def _shifted_center(self, log_shares: np.ndarray) -> np.ndarray:
        """The center of the scores that accounts for class shares."""
        return np.asarray(self.score_center_ - self.score_scale_ * narrow(log_shares) / self._odds)

    def decision_function(self, X: MatrixLike) -> NDArray[np.floating]:
        """Compute class scores. `predict` returns the class with the largest score.

        With ``classifier=None`` and three or more classes, the score of a class is its log-odds against all others from
        the softmax of the (standardized) scores: a row between two classes ranks low for both. Otherwise it is the
        (standardized) score of the classifier.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (q, d)

        Returns
        -------
        scores : ndarray of shape (q, c), or (q,) for two classes, positive for the second
        """
        check_is_fitted(self)
        return self._decisions(self._scaled_features(X), X)

    def _decisions(self, Z: Any, X: Any = None) -> np.ndarray:
        """Class scores from scaled features and samples."""
        scores = self._scores(Z, X)
        if scores.shape[1] == 1:
            return scores[:, 0]
        if self.classifier is not None:
            return scores
        return log_odds_of(self._odds * scores)

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Predict labels of new samples. Warns about rows that lie far from all training rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (q, d)

        Returns
        -------
        labels : ndarray of shape (q,)
        """
        check_is_fitted(self)
        Z = self._scaled_features(X)
        self._warn_isolated(row_lengths(Z), "row(s)")
        return self._labels(Z, X)

    def _labels(self, Z: Any, X: Any = None) -> np.ndarray:
        """Labels from scaled features and samples."""
        return np.asarray(self.classes_[decide(self._scores(Z, X))])

    @available_if(_default_classifier)
    def predict_proba(self, X: MatrixLike) -> NDArray[np.floating]:
        """Predict class probabilities: the softmax of the scores, calibrated to `expected_accuracy_` on average.

        Rows far from all training rows get equal probabilities. With one label per class leave-one-out accuracy
        is not available, and probabilities are overconfident if the graph is misleading. Only with
        ``classifier=None``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (q, d)

        Returns
        -------
        probabilities : ndarray of shape (q, c)
        """
        check_is_fitted(self)
        return self._probabilities(self._scaled_features(X), X)

    @available_if(_default_classifier)
    def confidence(self, X: MatrixLike) -> Confidence:
        """Compute the confidence of predicted labels: margin between classes, and familiarity with the training data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (q, d)

        Returns
        -------
        confidence : Confidence
            `margin` and `familiarity`, each of shape (q,) and from 0 to 1.
        """
        return self._predict_with_confidence(X)[1]

    def _predict_with_confidence(self, X: Any) -> tuple[np.ndarray, Confidence, int]:
        """Probabilities (q, c), confidence and number of isolated rows, from one evaluation of the features."""
        check_is_fitted(self)
        Z = self._scaled_features(X)
        probabilities = self._probabilities(Z, X)
        ascending = np.sort(probabilities, axis=1)
        # Tolerance for rounding, which depends on the number of threads.
        no_larger = np.searchsorted(self._lengths, row_lengths(Z) * (1 + 1e-9), side="right")
        confidence = Confidence(ascending[:, -1] - ascending[:, -2], no_larger / self._lengths.size)
        return probabilities, confidence, int(self._isolated(row_lengths(Z)).sum())

    def _scaled_features(self, X: Any) -> Any:
        return self.scaler_.transform(_plain(self.features_.transform(X)))

    def _samples(self, X: Any) -> Any:
        """Samples, which the features have validated, as an array or CSR matrix with 32-bit indices."""
        if is_float_matrix(X):
            return X
        X = check_array(X, accept_sparse="csr", dtype=FLOATS, ensure_all_finite=False)
        # scikit-learn's distances and trees do not take 64-bit indices.
        if scipy.sparse.issparse(X) and X.nnz <= np.iinfo(np.int32).max:
            parts = X.data, X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int32, copy=False)
            X = scipy.sparse.csr_matrix(parts, shape=X.shape)
        return X

    def _scores(self, Z: Any, X: Any = None) -> np.ndarray:
        """Scores of scaled features, pooled with those of the samples if there is anything to pool."""
        scores = (self._raw_scores(Z) - self.score_center_) / self.score_scale_
        supervised = getattr(self, "supervised_", None)
        return scores if supervised is None else scores + narrow(supervised.log_odds(self._samples(X)))

    def _fit_self_training(self, Z: Any, codes: np.ndarray) -> tuple[float | None, np.ndarray, np.ndarray, np.ndarray]:
        """Fit the ridge classifier to the labelled rows, then repeatedly to all rows with predicted labels.

        Returns
        -------
        power : float or None
            Standardization of the scores, see `_power`.
        rows, first : ndarrays of int
            Unlabelled rows used, and their labels predicted from the labelled rows alone.
        log_shares : ndarray of shape (c,)
            Class shares estimated from the labelled rows' classifier, see `_log_shares`.
        """
        labelled, unlabelled = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
        counts = class_counts(codes)
        power = self._power(counts, unlabelled.size)
        if unlabelled.size > PSEUDO_ROWS:
            unlabelled = np.sort(np.random.default_rng(0).choice(unlabelled, PSEUDO_ROWS, replace=False))
        Z_labelled, Z_unlabelled = Z[labelled], Z[unlabelled]
        noise = float(getattr(self.features_, "noise_", NOISE))
        alpha = noise * float(np.mean(row_lengths(Z_labelled) ** 2)) or 1.0
        self.classifier_ = RidgeFits(Z_labelled, alpha, np.ones(labelled.size)).fit(codes[labelled])
        if unlabelled.size == 0:
            return power, unlabelled, codes[:0], np.zeros(counts.size)

        def standardized() -> np.ndarray:
            raw = self._raw_scores(Z_unlabelled)
            self.score_center_, self.score_scale_ = self._center_and_scale(mean_over(raw), power)
            return raw

        raw = standardized()
        changed = np.mean(decide(raw) != decide(raw, self.score_center_, self.score_scale_))
        if changed > MAX_CHANGED and self._raw_scores_are_likelier(codes):
            power = None
            standardized()
        log_shares = self._log_shares(mean_over(raw), codes, self._left_out_scores(codes))
        first = last = decide(raw, self._shifted_center(log_shares), self.score_scale_)
        sparse = scipy.sparse.issparse(Z_labelled)
        Z_all = (scipy.sparse.vstack if sparse else arrays_of(Z_labelled).xp.concatenate)([Z_labelled, Z_unlabelled])
        weights = np.repeat([1.0, noise / PSEUDO_NOISE], [labelled.size, unlabelled.size])
        ridge = RidgeFits(Z_all, alpha, weights)
        for _ in range(self.n_refinements):
            targets = np.concatenate([codes[labelled], last])
            self.classifier_ = ridge.fit(targets)
            last = decide(standardized(), self._shifted_center(log_shares), self.score_scale_)
        return power, unlabelled, first, log_shares

    def _raw_scores_are_likelier(self, codes: np.ndarray) -> bool:
        """Whether raw scores make left-out labels likelier than standardized ones.

        Standardization makes classes equally large. Where they are not, it misclassifies labels that are left out. The
        gain counts in proportion to what raw scores explain: raw scores of weak classifiers give all rows to one class.
        """
        if self.standardize_scores != "auto" or self.class_shares_ is not None:
            return False
        found = self._left_out_scores(codes)
        if found is None or np.median(class_counts(codes)) < MIN_LABELS_FOR_SHARES:
            return False
        rows, log_odds = found
        raw = wide(narrow(log_odds / self._odds) * self.score_scale_ + self.score_center_)
        present, numbers = np.unique(codes[rows], return_inverse=True)
        likelihood, standardized = (log_likelihoods(s[:, present], numbers).sum() for s in (raw, log_odds))
        explained = 1 + likelihood / (numbers.size * np.log(present.size))
        return bool(explained > 0 and (likelihood - standardized) * explained > RAW_GAIN)

    def _scale_probabilities(self, mean_of: MeanOf, codes: np.ndarray, kept: float) -> None:
        """Find the factor of the scores with which the mean predicted probability equals the expected accuracy.

        `kept` is the fraction of labels that refinement did not change. Given class shares are matched again.
        """
        selection = getattr(self.features_, "selection_", None)
        # Leave-one-out accuracy is based on fewer labels and no refinement, which matters less with more labels.
        kept_share = min(0.5, 2 / float(np.median(class_counts(codes)))) if selection else 1.0
        leave_one_out = float(selection[0]["accuracy"]) if selection else 0.0
        kept_weight = KEPT_WEIGHT if selection else KEPT_WEIGHT_ALONE
        self.expected_accuracy_ = kept_share * kept_weight * kept + (1 - kept_share) * leave_one_out
        target = float(np.clip(self.expected_accuracy_, 1.05 / self.classes_.size, MAX_CERTAINTY))

        def surplus(exponent: float) -> float:
            return float(mean_of(self._by_scores(max_probabilities, float(np.exp(exponent))))) - target

        for _ in range(1 if self.class_shares_ is None else SHARES_ALTERNATIONS):
            low, high = -20.0, 20.0
            inside = surplus(low) < 0 < surplus(high)
            exponent = scipy.optimize.brentq(surplus, low, high, xtol=1e-3) if inside else 0.0
            self._sharpness = float(np.exp(exponent))
            self._match_shares(mean_of)

    def _scale_pooled(self, mean_of: MeanOf, codes: np.ndarray, left_out: tuple[np.ndarray, np.ndarray] | None) -> None:
        """Find the factor of pooled scores from their leave-one-out likelihood; the expected accuracy follows."""
        factor = SHARPNESS if left_out is None else sharpness(left_out[1], codes[left_out[0]])
        self._sharpness = factor * self._odds
        self._match_shares(mean_of)
        self.expected_accuracy_ = float(mean_of(self._by_scores(max_probabilities, self._sharpness)))

    def _by_scores(self, function: Callable[..., np.ndarray], sharpness: float) -> Callable[[np.ndarray], np.ndarray]:
        """A function of probabilities as one of raw scores."""
        return partial(function, center=self.score_center_, scale=self.score_scale_, sharpness=sharpness)

    def _match_shares(self, mean_of: MeanOf) -> None:
        """Shift `score_center_` so that the mean probability of each class is its share, if shares are given."""
        if self.class_shares_ is not None:
            self.score_center_ = matching_center(
                mean_of, self.score_center_, self.score_scale_, self._sharpness, self.class_shares_
            )

    def _probabilities(self, Z: Any, X: Any = None) -> np.ndarray:
        return self._scores_to_probabilities(self._scores(Z, X), Z)

    def _scores_to_probabilities(self, scores: np.ndarray, Z: Any) -> np.ndarray:
        probabilities = class_softmax(scores, self._sharpness)
        isolated = self._isolated(row_lengths(Z))
        # Not exactly equal, so that the largest probability is still that of the predicted label.
        probabilities[isolated] = (1 - 1e-6) / self.classes_.size + 1e-6 * probabilities[isolated]
        return probabilities

    def _isolated(self, lengths: np.ndarray) -> np.ndarray:
        n = self._lengths.size
        median = (self._lengths[(n - 1) // 2] + self._lengths[n // 2]) / 2  # they are ascending
        return np.asarray(lengths < ISOLATED * median)

    def _warn_isolated(self, lengths: np.ndarray, what: str) -> None:
        if count := int(self._isolated(lengths).sum()):
            warnings.warn(
                f"{count} {what} lie far from all training rows: their labels are guesses. "
                "Use `confidence` to find them.",
                stacklevel=3,
            )

    def _raw_scores(self, Z: np.ndarray) -> np.ndarray:
        if self.classifier is None:
            return linear_scores(Z, self.classifier_)
        scores = np.asarray(self.classifier_.decision_function(Z))
        scores = scores.reshape(Z.shape[0], -1)
        c = self.classes_.size
        if scores.shape[1] != (1 if c == 2 else c) or getattr(self.classifier, "decision_function_shape", "") == "ovo":
            raise ValueError(
                f"{self.classifier} returns {scores.shape[1]} score(s) for {c} classes. LDSUClassifier requires "
                "one-vs-rest scores (a single one for two classes): use decision_function_shape='ovr', for example."
            )
        return scores

    def _power(self, counts: np.ndarray, n_unlabelled: int) -> float | None:
        """Power of the mean deviation by which scores are divided, from the label counts; None for raw scores.

        Power 1 makes all classes equally large; power 0 leaves class sizes to the density around the labels, which is
        not informative with few labels. The power falls from 1 to 0.5 as labels increase, and also per row.
        """
        if self.standardize_scores == "auto":
            similar = self.class_shares_ is not None or similar_counts(counts)
            few_labels = np.median(counts) < MANY_LABELS_PER_CLASS and similar
            standardize = few_labels and n_unlabelled >= MIN_UNLABELLED_PER_CLASS * counts.size
        else:
            standardize = self.standardize_scores and n_unlabelled > 0
        if not standardize:
            return None
        by_labels = np.interp(np.median(counts), (FULL_LABELS, ROOT_LABELS), (1.0, 0.5))
        rows_per_label = 1 + n_unlabelled / counts.sum()
        return float(max(by_labels, np.interp(np.log(rows_per_label), np.log([ROOT_ROWS, FULL_ROWS]), (0.5, 1.0))))

    def _standardization(self, raw: np.ndarray, power: float | None) -> tuple[np.ndarray, np.ndarray]:
        """Center and scale from the raw scores of unlabelled rows."""
        return self._center_and_scale(mean_over(raw), power)

    def _center_and_scale(self, mean_of: MeanOf, power: float | None) -> tuple[np.ndarray, np.ndarray]:
        self._odds = RAW_ODDS if power is None else standardized_odds(power)
        width = 1 if self.classes_.size == 2 else self.classes_.size
        center, scale = (np.zeros(width), np.ones(width)) if power is None else mean_and_scale(mean_of, power)
        if self.class_shares_ is not None:
            center = matching_center(mean_of, center, scale, self._odds, self.class_shares_)
        return center, scale

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(LDSU() if self.features is None else self.features).input_tags
        tags.target_tags.required = True
        return tags
