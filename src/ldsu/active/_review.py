"""What the labels so far say: which of them look wrong, and what more of them would bring."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ldsu.active._posterior import posterior_mean
from ldsu.classifier import LDSUClassifier
from ldsu.labels import encode_labels
from ldsu.methods.ldsu import NOISE

# Default threshold of doubtful labels.
THRESHOLD = 0.05
# Forecast: splits of the labels, fractions that are kept by them, rows that scores are standardized over, draws of the
# interval, and its quantiles.
SPLITS, FRACTIONS, STANDARD_ROWS, DRAWS, INTERVAL = 20, (0.5, 0.9), 1000, 2000, (0.1, 0.9)
# Mean and deviation of the prior of the exponent by which the error falls with the number of labels; its largest value.
EXPONENT, DEVIATION, MAX_EXPONENT = 0.5, 0.5, 2.0


class DoubtfulLabel(NamedTuple):
    """A given label that the other labels contradict.

    Attributes
    ----------
    row : int
    given, suggested : object
        The given label, and the most probable one if it is left out.
    probability : float
        Leave-one-out probability of the given label.
    """

    row: int
    given: Any
    suggested: Any
    probability: float


def doubtful_labels(model: LDSUClassifier, y: ArrayLike, threshold: float = THRESHOLD) -> list[DoubtfulLabel]:
    """Given labels that are less probable than another and than `threshold` if they are left out, most doubtful first.

    Leave-one-out probabilities exist with two labels in the median class or more, for at most 500 labels; labels that
    are the only one of their class are never doubtful.

    Parameters
    ----------
    model : LDSUClassifier
        A fitted model, not a loaded one.
    y : array-like of shape (n,)
        Labels of its fit.
    threshold : float, default=0.05
        Probability below which a label is doubtful. If this share of all labels is wrong, a label of this probability
        is as likely wrong as right.

    Returns
    -------
    labels : list of DoubtfulLabel
    """
    found = model.left_out_probabilities()
    if found is None:
        return []
    rows, P = found
    codes, classes = encode_labels(y, model.transduction_.shape[0])
    given, best = codes[rows], P.argmax(axis=1)
    probability = P[np.arange(rows.size), given]
    doubtful = np.flatnonzero((best != given) & (probability < threshold))
    return [
        DoubtfulLabel(int(rows[i]), classes[given[i]], classes[best[i]], float(probability[i]))
        for i in doubtful[np.argsort(probability[doubtful], kind="stable")]
    ]


class Forecast(NamedTuple):
    """What more labels are expected to bring.

    Attributes
    ----------
    accuracy : float
        Expected accuracy now.
    expected : float
        Expected accuracy with more labels.
    low, high : float
        Interval that contains the accuracy with more labels with probability 0.8, if the estimates are right.
    """

    accuracy: float
    expected: float
    low: float
    high: float


def forecast(Z: np.ndarray, codes: np.ndarray, accuracy: float, n_labels: int, random_state: int = 0) -> Forecast:
    """Extrapolate the expected accuracy to more labels by a power of their number.

    The error falls as ``m^-b`` with the number m of labels. The exponent b comes from left-out labels, of classifiers
    of half and of nine tenths of the labels, under a prior. The interval has the uncertainty of b and that of the
    accuracy, as if it had been counted on m labels.

    Parameters
    ----------
    Z : ndarray of shape (n, r)
        Features that do not depend on the labels.
    codes : ndarray of int, shape (n,)
        Class numbers of at least two classes, -1 where unlabelled.
    accuracy : float
        Expected accuracy now.
    n_labels : int
        Number of labels to be added.
    random_state : int, default=0
        Seed of splits and draws.

    Returns
    -------
    forecast : Forecast
    """
    rng = np.random.default_rng(random_state)
    labelled = np.flatnonzero(codes >= 0)
    m = labelled.size
    rows = np.concatenate([labelled, rng.permutation(np.flatnonzero(codes < 0))[:STANDARD_ROWS]])
    errors = [_error_draws(Z[rows], codes[labelled], round(fraction * m), rng) for fraction in FRACTIONS]
    exponents = np.log(errors[0] / errors[1]) / np.log(FRACTIONS[1] / FRACTIONS[0])
    weights = np.array([1 / DEVIATION**2, 1 / exponents.var()])
    mean = float(weights @ [EXPONENT, exponents.mean()] / weights.sum())
    growth = (m + n_labels) / m
    drawn = growth ** -np.clip(rng.normal(mean, weights.sum() ** -0.5, DRAWS), 0, MAX_EXPONENT)
    error = rng.beta((1 - accuracy) * m + 0.5, accuracy * m + 0.5, DRAWS)
    low, high = np.quantile(1 - error * drawn, INTERVAL)
    expected = 1 - (1 - accuracy) * growth ** -np.clip(mean, 0, MAX_EXPONENT)
    return Forecast(accuracy, float(expected), float(low), float(high))


def _error_draws(Z: np.ndarray, codes: np.ndarray, kept: int, rng: np.random.Generator) -> np.ndarray:
    """Draws (DRAWS,) of the error of classifiers of `kept` labels on the others; labels are the first rows of Z."""
    m, wrong, tested = codes.size, 0, 0
    for _ in range(SPLITS):
        order = rng.permutation(m)
        train, test = order[:kept], order[kept:]
        classes, numbers = np.unique(codes[train], return_inverse=True)
        targets = np.where(numbers[:, None] == np.arange(classes.size), 1.0, -1.0)
        noise = NOISE * float(np.mean((Z[train] ** 2).sum(axis=1))) or 1.0
        scores = posterior_mean(Z, train, targets, noise)
        scores = scores - scores[m:].mean(axis=0) if scores.shape[0] > m else scores
        scores /= np.maximum(np.abs(scores).mean(axis=0), np.finfo(np.float64).tiny)
        wrong += int((classes[scores[test].argmax(axis=1)] != codes[test]).sum())
        tested += test.size
    # Splits share their labels: together they are worth one test of all labels.
    share = min(1.0, m / max(tested, 1))
    return rng.beta(wrong * share + 0.5, (tested - wrong) * share + 0.5, DRAWS)
