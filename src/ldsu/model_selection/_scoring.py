"""Cross-validation and scores for partially labelled data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import get_scorer
from sklearn.model_selection import BaseCrossValidator, RepeatedStratifiedKFold
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from ldsu._utils.protocols import Classifier, MatrixLike
from ldsu.labels import class_counts, encode_labels


class FewLabelKFold(BaseCrossValidator):
    """Stratified K-fold over the labelled rows; every unlabelled row is in every training set.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds; at most the number of labels of the smallest class.
    n_repeats : int, default=1
        Number of repetitions.
    random_state : int, default=0
        Seed of the shuffles.

    Examples
    --------
    >>> from ldsu import FewLabelKFold
    >>> y = [0, 0, 1, 1, -1, -1]
    >>> for train, test in FewLabelKFold(n_splits=2).split(y, y):
    ...     print(train, test)
    [0 3 4 5] [1 2]
    [1 2 4 5] [0 3]
    """

    def __init__(self, n_splits: int = 5, *, n_repeats: int = 1, random_state: int = 0) -> None:
        self.n_splits = n_splits
        self.n_repeats = n_repeats
        self.random_state = random_state

    def split(
        self, X: MatrixLike, y: ArrayLike | None = None, groups: object = None
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Yield training and test rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
            Labels; -1, None, NaN or pandas.NA for unlabelled rows.
        groups : object
            Ignored.

        Yields
        ------
        train, test : ndarrays of int
            `test` holds labelled rows only.
        """
        if y is None:
            raise ValueError("FewLabelKFold requires y to be passed.")
        if self.n_splits < 2:
            raise ValueError(f"n_splits={self.n_splits}, but must be at least 2.")
        codes, classes = encode_labels(y, _num_samples(X))
        if classes.size == 0:
            raise ValueError("FewLabelKFold found no label in y: every entry is -1, None or NaN.")
        counts = class_counts(codes)
        if counts.min() < self.n_splits:
            rare = int(counts.argmin())
            advice = f"Use n_splits<={counts[rare]}" if counts[rare] > 1 else "A single label cannot be held out"
            raise ValueError(
                f"Class {classes[rare]!r} has {counts[rare]} labelled point(s), fewer than n_splits={self.n_splits}. "
                f"{advice}, or label more points."
            )
        labelled = np.flatnonzero(codes >= 0)
        folds = RepeatedStratifiedKFold(
            n_splits=self.n_splits, n_repeats=self.n_repeats, random_state=self.random_state
        )
        for _, held_out in folds.split(labelled, codes[labelled]):
            test = labelled[held_out]
            train = np.ones(codes.shape[0], dtype=bool)
            train[test] = False
            yield np.flatnonzero(train), test

    def get_n_splits(self, X: object = None, y: object = None, groups: object = None) -> int:
        """Return the number of splits."""
        return self.n_splits * self.n_repeats


def mean_average_precision(y_true: ArrayLike, y_score: ArrayLike, *, classes: ArrayLike | None = None) -> float:
    """Mean over classes of the average precision (one-vs-rest).

    Parameters
    ----------
    y_true : array-like of shape (n,)
        Labels; unlabelled rows (-1, None, NaN or pandas.NA) are ignored.
    y_score : array-like of shape (n, c), or (n,) for two classes
        Scores, one column per class; a 1-d array scores the second class, and its negative the first.
    classes : array-like of shape (c,), optional
        Classes of the columns, as in `classes_` of a fitted classifier. Default: the sorted labels of `y_true`.

    Returns
    -------
    score : float
        Mean over the classes that occur in `y_true`.

    Examples
    --------
    >>> from ldsu import mean_average_precision
    >>> mean_average_precision(["a", "b", None, "a"], [-2.0, 1.0, 9.0, 1.5])
    0.6666666666666666
    """
    y_score = np.asarray(y_score, dtype=np.float64)
    codes, present = encode_labels(y_true, y_score.shape[0])
    if present.size == 0:
        raise ValueError("y_true has no labelled entries, so a score cannot be computed.")
    classes = present if classes is None else np.asarray(classes)
    if y_score.ndim == 1:
        y_score = np.column_stack([-y_score, y_score])
    if y_score.shape[1] != classes.shape[0]:
        raise ValueError(
            f"y_score has {y_score.shape[1]} column(s) for {classes.shape[0]} class(es): {classes.tolist()}. "
            "Pass classes=, in the order of the columns."
        )
    column_of = {label: column for column, label in enumerate(classes.tolist())}
    unknown = [label for label in present.tolist() if label not in column_of]
    if unknown:
        raise ValueError(f"y_true contains labels without a column in y_score: {unknown}.")
    rows = codes >= 0
    columns = [column_of[label] for label in present.tolist()]
    truth = codes[rows][:, None] == np.arange(present.size)
    scores = y_score[rows][:, columns]
    if not np.all(np.isfinite(scores)):
        raise ValueError("y_score contains NaN or infinity, which cannot be ranked.")
    return float(np.mean(average_precisions(truth, scores)))


def average_precisions(truth: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Average precision of each column, ``sum_t (R_t - R_t-1) P_t`` over its distinct scores t in falling order.

    For truth (n, c) of bool and finite scores (n, c); NaN for a column without positive entries.
    """
    n = scores.shape[0]
    order = np.argsort(-scores, axis=0, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=0)
    hits = np.cumsum(np.take_along_axis(truth, order, axis=0), axis=0)
    precision = hits / np.arange(1, n + 1)[:, None]
    # Ties are retrieved together: all have the precision after the last of them.
    for column in np.flatnonzero(np.any(ranked[1:] == ranked[:-1], axis=0)):
        last_of_ties = np.append(np.flatnonzero(ranked[1:, column] != ranked[:-1, column]), n - 1)
        precision[:, column] = precision[np.repeat(last_of_ties, np.diff(last_of_ties, prepend=-1)), column]
    gained = np.diff(hits, axis=0, prepend=0)
    with np.errstate(invalid="ignore"):
        return np.sum(gained * precision, axis=0) / truth.sum(axis=0)


def mean_average_precision_scorer(estimator: Any, X: MatrixLike, y: ArrayLike) -> float:
    """Score a fitted classifier by `mean_average_precision` of its decision function (or probabilities).

    For ``GridSearchCV(scoring=mean_average_precision_scorer)``.
    """
    scores = estimator.decision_function(X) if hasattr(estimator, "decision_function") else estimator.predict_proba(X)
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    return mean_average_precision(y, scores, classes=estimator.classes_)


class LabelledScorer:
    """Apply a scikit-learn scorer to the labelled rows only.

    Parameters
    ----------
    scoring : str or callable, default="accuracy"
        A scorer, or the name of one.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> from ldsu import LabelledScorer
    >>> model = DummyClassifier(strategy="constant", constant=1).fit([[0], [0]], [0, 1])
    >>> LabelledScorer("accuracy")(model, [[0], [0], [0]], [1, -1, 1])
    1.0
    """

    def __init__(self, scoring: str | Callable[..., float] = "accuracy") -> None:
        self.scoring = scoring

    def __call__(self, estimator: Classifier, X: MatrixLike, y: ArrayLike) -> float:
        """Score `estimator` on the rows of X whose y is a label."""
        codes, classes = encode_labels(y, _num_samples(X))
        rows = np.flatnonzero(codes >= 0)
        if rows.size == 0:
            raise ValueError("y has no labelled entries, so a score cannot be computed.")
        return float(get_scorer(self.scoring)(estimator, _safe_indexing(X, rows), classes[codes[rows]]))

    def __repr__(self) -> str:
        return f"LabelledScorer({self.scoring!r})"
