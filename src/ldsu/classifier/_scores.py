"""Class scores: standardized over rows, shifted to class shares, as decisions, log-odds and probabilities."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_softmax

from ldsu.classifier._shares import SHARES_TOLERANCE

# Rounds to reach given class shares, and the largest step of a round.
SHARES_ROUNDS, MAX_STEP = 100, 3.0
# The mean over rows of a function of their scores.
MeanOf = Callable[[Callable[[np.ndarray], np.ndarray]], np.ndarray]


def mean_over(scores: np.ndarray) -> MeanOf:
    """Means over the rows of scores (q, c) in memory."""
    return lambda function: function(scores).mean(axis=0)


def mean_and_scale(mean_of: MeanOf, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean of each column, and a power of its mean absolute deviation."""
    center = mean_of(np.asarray)
    scale = mean_of(partial(_deviations, center=center)) ** power
    return center, np.where(scale > 0, scale, 1.0)


def _deviations(scores: np.ndarray, center: np.ndarray) -> np.ndarray:
    return np.abs(scores - center)


def standardized_odds(power: float) -> float:
    """Factor that converts scores, divided by a power of their deviation, to log-odds against all other classes."""
    return 0.5 * 16.0 ** (1 - power)


def decide(scores: np.ndarray, center: Any = 0.0, scale: Any = 1.0) -> np.ndarray:
    """Codes of the classes with the largest standardized scores."""
    scores = (scores - center) / scale
    return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)


def log_odds_of(scores: np.ndarray) -> np.ndarray:
    """Log-odds of each class against all others, from the softmax of the scores (q, c)."""
    rows, top = np.arange(scores.shape[0]), scores.argmax(axis=1)
    log_p = log_softmax(scores, axis=1)
    with np.errstate(divide="ignore"):  # the largest is computed below, without cancellation
        odds: np.ndarray = log_p - np.log1p(-np.exp(log_p))
    others = scores.copy()
    others[rows, top] = -np.inf
    second = others.max(axis=1)
    # scipy.special.logsumexp is slower than all else here for a single row.
    odds[rows, top] = scores[rows, top] - second - np.log(np.exp(others - second[:, None]).sum(axis=1))
    return odds


def narrow(scores: np.ndarray) -> np.ndarray:
    """Scores (..., c) as a classifier has them: for two classes half of their difference, (..., 1)."""
    return (scores[..., 1:] - scores[..., :1]) / 2 if scores.shape[-1] == 2 else scores


def wide(scores: np.ndarray) -> np.ndarray:
    """Scores (q, c) from scores (q, c), or (q, 1) for two classes."""
    return np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores


def class_softmax(scores: np.ndarray, sharpness: float) -> np.ndarray:
    """Probabilities (q, c) from scores (q, c), or (q, 1) for two classes."""
    scores = wide(scores)
    below = scores - scores.max(axis=1, keepdims=True)  # clipping then only affects negligible terms
    # In place: scipy.special.softmax takes twice as long, and this is called again and again.
    below *= sharpness
    probabilities: np.ndarray = np.exp(np.maximum(below, -1e9, out=below), out=below)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities


def matching_center(
    mean_of: MeanOf, center: np.ndarray, scale: np.ndarray, sharpness: float, shares: np.ndarray
) -> np.ndarray:
    """The center of the scores with which the mean probability of each class is its share."""
    for _ in range(SHARES_ROUNDS):
        found = mean_of(partial(class_probabilities, center=center, scale=scale, sharpness=sharpness))
        if np.abs(found - shares).max() <= SHARES_TOLERANCE:
            break
        step = np.clip(np.log(shares / np.maximum(found, np.finfo(np.float64).tiny)), -MAX_STEP, MAX_STEP) / sharpness
        center = center - scale * (step if center.size > 1 else (step[1:] - step[:1]) / 2)
    return center


def class_probabilities(scores: np.ndarray, center: np.ndarray, scale: np.ndarray, sharpness: float) -> np.ndarray:
    """Probabilities (q, c) from raw scores (q, c) or (q, 1)."""
    return class_softmax((scores - center) / scale, sharpness)


def max_probabilities(scores: np.ndarray, center: np.ndarray, scale: np.ndarray, sharpness: float) -> np.ndarray:
    """Probability of the predicted class of each row, from raw scores (q, c) or (q, 1)."""
    return np.asarray(class_probabilities(scores, center, scale, sharpness).max(axis=1))
