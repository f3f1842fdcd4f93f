"""Active learning with `LDSUClassifier`: a loop that starts without labels, and suggestions for a fitted model."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, _fit_context, clone
from sklearn.utils import check_array
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from ldsu._utils.fitting import atomic
from ldsu._utils.parameters import NonNegativeInt, parameters
from ldsu._utils.protocols import MatrixLike
from ldsu.active._copies import first_copies, suggestible
from ldsu.active._review import THRESHOLD, DoubtfulLabel, Forecast, doubtful_labels, forecast
from ldsu.active._strategies import Pool, choose_rows
from ldsu.classifier import BlockScaler, LDSUClassifier, TrainingView
from ldsu.kernels import FLOATS
from ldsu.labels import encode_labels
from ldsu.methods import LDSU
from ldsu.methods.ldsu import NOISE
from ldsu.solvers import Problem

# Chosen by measurement: docs/decisions.md.
DEFAULT = "herding"
STRATEGIES = {
    "auto": f"{DEFAULT}, the best in measurements",
    "typical": "rows that cover all rows best",
    "herding": "uncertain rows that cover best what labelled rows do not",
    "margin": "rows between two classes, diverse",
    "norm": "rows that the labels reach least, diverse",
    "expected_error": "of the rows of herding, those whose labels leave the smallest expected error",
    "variance": "rows with the largest posterior variance",
    "vopt": "rows whose labels decrease the sum of all posterior variances most",
    "sigmaopt": "rows whose labels decrease the posterior variance of the sum of all scores most",
    "random": "rows at random",
}


def suggest(
    model: LDSUClassifier,
    X: MatrixLike,
    y: ArrayLike,
    n: int = 10,
    *,
    strategy: str = "auto",
    exclude: ArrayLike | None = None,
    random_state: int = 0,
) -> np.ndarray:
    """Suggest the next rows to label for a fitted model.

    Parameters
    ----------
    model : LDSUClassifier
        Model fitted to X and y. With ``fit(X, y, problem=problem)`` its features of the rows are not computed again.
    X : array-like or sparse matrix of shape (n, d)
    y : array-like of shape (n,)
        Labels; -1, None, NaN or pandas.NA for unlabelled rows.
    n : int, default=10
        Number of rows.
    strategy : str, default="auto"
        A key of `STRATEGIES`.
    exclude : array-like of int, optional
        Rows not to suggest.
    random_state : int, default=0
        Seed of samples of rows, and of ``strategy="random"``.

    Returns
    -------
    rows : ndarray of int, shape (at most n,)
        Best first. Rows equal to a labelled, excluded or suggested one are left out while there are others.
    """
    X = _samples(X)
    codes, _ = encode_labels(y, X.shape[0])
    pool = _model_pool(model.training_view(X), codes)
    return _suggest(pool, first_copies(X), n, strategy, exclude, random_state)


def _samples(X: Any) -> Any:
    return check_array(X, accept_sparse="csr", dtype=FLOATS, ensure_min_samples=2)


def _model_pool(view: TrainingView, codes: np.ndarray) -> Pool:
    return Pool(view.features, codes, codes < 0, view.noise, np.random.default_rng(), view.probabilities, view.gain)


def _suggest(pool: Pool, first: np.ndarray, n: int, strategy: str, exclude: Any, random_state: int) -> np.ndarray:
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy={strategy!r} is not known. Use one of {', '.join(map(repr, STRATEGIES))}.")
    if n < 0:
        raise ValueError(f"n={n} rows cannot be suggested: use n >= 0.")
    taken = pool.codes >= 0
    if exclude is not None:
        rows = np.asarray(exclude).ravel()
        if rows.size and (rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= taken.size):
            raise ValueError(f"exclude={rows[:10].tolist()} are not row numbers from 0 to {taken.size - 1}.")
        taken[rows.astype(np.int64)] = True
    strategy = DEFAULT if strategy == "auto" else strategy
    chosen = np.empty(0, dtype=np.int64)
    while chosen.size < n and not taken.all():  # copies only follow when nothing else is left
        pool = pool._replace(candidates=suggestible(first, taken), rng=np.random.default_rng(random_state))
        more = choose_rows(pool, n - chosen.size, strategy)
        taken[more] = True
        chosen = np.concatenate([chosen, more])
    return chosen


@parameters
class ActiveLearner(BaseEstimator):
    """Ask for the labels that teach most, from the first one on.

    Without labels, or with one class, it suggests rows that cover all rows; then rows by the predictions of an
    `LDSUClassifier`. Fit it again, to the same samples, after every few labels: kernel, neighbors and graphs are
    reused.

    Parameters
    ----------
    estimator : LDSUClassifier, default=None
        Model, with features of `LDSU` and ``classifier=None``. None is ``LDSUClassifier(standardize_scores=True)``:
        labels of suggested rows do not show how large classes are. Where classes are very unequal, pass
        ``LDSUClassifier()``.
    strategy : str, default="auto"
        A key of `STRATEGIES`.
    random_state : int, default=0
        Seed of samples of rows, and of ``strategy="random"``.

    Attributes
    ----------
    model_ : LDSUClassifier or None
        Model; None with labels of fewer than two classes.
    classes_ : ndarray of shape (c,)
        Class labels so far.
    y_ : ndarray of shape (n,)
        Labels so far, None for unlabelled rows.
    n_labels_ : int
        Number of labels.
    phase_ : {"no labels", "one class", "model"}
        What suggestions rest on.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ldsu.active import ActiveLearner
    >>> X, y = load_digits(return_X_y=True)
    >>> X, y = X[:500], y[:500]
    >>> learner = ActiveLearner().fit(X)
    >>> for _ in range(3):
    ...     rows = learner.suggest(10)
    ...     learner = learner.label(rows, y[rows])  # here a person answers
    >>> bool(learner.model_.score(X, y) > 0.9)
    True
    """

    estimator: Annotated[Any, LDSUClassifier, None] = field(default=None, kw_only=False)
    strategy: Annotated[str, StrOptions(set(STRATEGIES))] = "auto"
    random_state: NonNegativeInt = 0

    @atomic
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y: ArrayLike | None = None) -> Self:
        """Fit the model to the labels so far, if these are of two classes or more.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            All samples. With the samples of the last fit, what does not depend on labels is reused.
        y : array-like of shape (n,), optional
            Labels; -1, None, NaN or pandas.NA for unlabelled rows. None if nothing is labelled.

        Returns
        -------
        self : object
        """
        X = _samples(X)
        codes, self.classes_ = encode_labels(y, X.shape[0])
        model = LDSUClassifier(standardize_scores=True) if self.estimator is None else clone(self.estimator)
        features = LDSU() if model.features is None else model.features
        if not isinstance(features, LDSU) or model.classifier is not None:
            raise ValueError(
                f"ActiveLearner needs an estimator with features of LDSU and classifier=None, but got {model}. "
                "Pass LDSUClassifier(), or LDSUClassifier(LDSU(...))."
            )
        self._start(X, features)
        self.y_ = np.full(codes.size, None, dtype=object)
        self.y_[codes >= 0] = self.classes_[codes[codes >= 0]]
        self._codes, self.n_labels_ = codes, int((codes >= 0).sum())
        self.model_: LDSUClassifier | None = None
        if self.classes_.size > 1:
            self.model_ = model.fit(X, self.y_, problem=self._problem)
        self.phase_ = ("no labels", "one class", "model")[min(self.classes_.size, 2)]
        return self

    def _start(self, X: Any, features: LDSU) -> None:
        """Compute what does not depend on labels, unless it was computed before."""
        before: Problem | None = getattr(self, "_problem", None)
        parameters = str(features.get_params())
        if before is not None and getattr(self, "_parameters", None) == parameters:
            try:
                before.check_samples(X, features.device)
                return
            except ValueError:  # other samples
                pass
        self._problem: Problem = Problem(X, device=features.device)
        self._parameters = parameters
        self._features = BlockScaler().fit_transform(clone(features).fit_transform(X, problem=self._problem))
        self._first = first_copies(X)

    def label(self, rows: ArrayLike, labels: ArrayLike) -> Self:
        """Set labels and fit again.

        Parameters
        ----------
        rows : array-like of int, shape (k,)
        labels : array-like of shape (k,)
            Labels; None removes one.

        Returns
        -------
        self : object
        """
        check_is_fitted(self)
        y = self.y_.copy()
        y[np.asarray(rows, dtype=np.int64)] = np.asarray(labels).tolist()
        return self.fit(self._problem.X, y)

    def suggest(self, n: int = 10, *, exclude: ArrayLike | None = None, strategy: str | None = None) -> np.ndarray:
        """Suggest the next rows to label; the learner does not change.

        Parameters
        ----------
        n : int, default=10
            Number of rows.
        exclude : array-like of int, optional
            Rows not to suggest: skipped ones, for example.
        strategy : str, optional
            Another strategy than that of the learner.

        Returns
        -------
        rows : ndarray of int, shape (at most n,)
            Best first. Rows equal to a labelled, excluded or suggested one are left out while there are others.
        """
        check_is_fitted(self)
        return _suggest(self._pool(), self._first, n, strategy or self.strategy, exclude, self.random_state)

    def _pool(self) -> Pool:
        if self.model_ is not None:
            return _model_pool(self.model_.training_view(self._problem.X), self._codes)
        noise = NOISE * float(np.mean(np.einsum("ij,ij->i", self._features, self._features)))
        return Pool(self._features, self._codes, self._codes < 0, noise, np.random.default_rng())

    def probabilities(self) -> np.ndarray | None:
        """Class probabilities (n, c) of all rows; None without a model."""
        check_is_fitted(self)
        return None if self.model_ is None else self.model_.training_view(self._problem.X).probabilities

    def uncertainty(self) -> np.ndarray:
        """1 minus the probability (n,) of the predicted class of each row; 1 without a model."""
        P = self.probabilities()
        return np.ones(self._codes.size) if P is None else 1 - P.max(axis=1)

    def variance(self) -> np.ndarray:
        """Posterior variance (n,) of each row, as a share of that without labels: 1 far from all labels."""
        check_is_fitted(self)
        pool = self._pool()
        before = np.einsum("ij,ij->i", pool.features, pool.features)
        return np.asarray(pool.posterior().variance() / np.where(before > 0, before, 1))

    def doubtful_labels(self, threshold: float = THRESHOLD) -> list[DoubtfulLabel]:
        """Given labels that the others contradict, most doubtful first: see `ldsu.active.doubtful_labels`."""
        check_is_fitted(self)
        return [] if self.model_ is None else doubtful_labels(self.model_, self.y_, threshold)

    def forecast(self, n_labels: int = 10) -> Forecast | None:
        """Expected accuracy after more labels: see `ldsu.active.forecast`; None without a model."""
        check_is_fitted(self)
        if self.model_ is None:
            return None
        accuracy = self.model_.expected_accuracy_
        return forecast(self._features, self._codes, accuracy, n_labels, self.random_state)
