"""Shares of the classes among the unlabelled rows: as given, or estimated from the predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
from scipy.special import chdtrc, softmax

from ldsu.labels import class_counts

# Given shares must sum to 1 up to this difference.
SHARES_TOLERANCE = 1e-3
# Pseudo-counts per class that pull estimated shares towards equal ones, and those that pull the covariance of
# probabilities towards that of random one-hot vectors.
PRIOR_COUNT, COVARIANCE_COUNT = 1.0, 2.0
# Relative variance of mean probabilities beyond that of finitely many labels: with all labels a classifier differs
# from those that were each fitted without one.
MODEL_VARIANCE = 0.2
MIN_VARIANCE = 1e-6
# With fewer labels in the median class they do not tell whether classes are equally large.
MIN_LABELS_FOR_SHARES = 3
# Of so many classes half with equally many labels are no coincidence.
MANY_CLASSES = 6
# Label counts with a larger ratio than this indicate unequal class sizes, unless equal classes would lead to counts as
# unequal as that with more than this probability.
UNEQUAL, CHANCE = 3, 0.01
# Largest ratio of estimated shares, as a logarithm.
MAX_LOG_RATIO = 8.0


def resolve_shares(shares: Any, codes: np.ndarray, classes: np.ndarray) -> np.ndarray | None:
    """Shares (c,) of the classes from the parameter `class_shares` and the labels; None for "auto"."""
    counts = class_counts(codes)
    if isinstance(shares, str):
        return {"auto": None, "equal": np.full(counts.size, 1 / counts.size), "labels": counts / counts.sum()}[shares]
    if isinstance(shares, dict):
        if set(shares) != set(classes.tolist()):
            raise ValueError(
                f"class_shares names {list(shares)}, but the classes with a label are {classes.tolist()}. "
                "Give one share for each of them."
            )
        shares = [shares[name] for name in classes.tolist()]
    resolved = np.asarray(shares, dtype=np.float64)
    if resolved.shape != classes.shape or not (resolved > 0).all() or abs(resolved.sum() - 1) > SHARES_TOLERANCE:
        raise ValueError(
            f"class_shares = {shares}, but must be {classes.size} positive numbers that sum to 1, "
            f"one for each of the classes {classes.tolist()}."
        )
    return resolved


def designed(counts: np.ndarray) -> bool:
    """Whether label counts (c,) look chosen rather than drawn: most classes have equally many, and none has more.

    Of many classes half suffice, which happens by chance with few classes only. Classes with fewer rows than that may
    have fewer labels. Counts that were chosen say nothing about shares.
    """
    share = np.mean(counts == counts.max())
    return bool(share > 0.5 or (share == 0.5 and counts.size >= MANY_CLASSES))


def similar_counts(counts: np.ndarray) -> bool:
    """Whether label counts (c,) may be those of equally large classes, drawn at random or chosen."""
    if counts.max() <= UNEQUAL * counts.min():
        return True
    excess = float(((counts - counts.mean()) ** 2).sum() / counts.mean())
    return not designed(counts) and bool(chdtrc(counts.size - 1, excess) > CHANCE)


def estimate_shares(left_out: np.ndarray, codes: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Shares of the classes: ``max_pi N(mean; C^T pi, S(pi)) prod_t pi_t^PRIOR_COUNT`` (black-box shift estimation).

    C_ts is the mean leave-one-out probability of class s over the labelled rows of class t. If rows have shares pi,
    their mean probabilities are ``C^T pi``. S is the covariance of that for as many labels as there are: with few, or
    if probabilities hardly depend on the class, the estimate stays near equal shares.

    Parameters
    ----------
    left_out : ndarray of shape (m, c)
        Leave-one-out probabilities of the labelled rows, for equal shares.
    codes : ndarray of shape (m,)
        Class numbers.
    mean : ndarray of shape (c,)
        Mean probabilities of the unlabelled rows, for equal shares.

    Returns
    -------
    shares : ndarray of shape (c,)
    """
    c = mean.size
    counts = np.bincount(codes, minlength=c)
    indicator = (codes[:, None] == np.arange(c)).astype(np.float64)
    C = indicator.T @ left_out / np.maximum(counts, 1)[:, None]
    C[counts == 0] = left_out.mean(axis=0)
    residuals = left_out - C[codes]
    one_hot = np.eye(c) / c - np.full((c, c), 1 / c**2)
    freedom = codes.size - np.count_nonzero(counts)
    covariance = (residuals.T @ residuals + COVARIANCE_COUNT * one_hot) / (freedom + COVARIANCE_COUNT)
    # Probabilities sum to 1: the last is redundant.
    eigenvalues, V = np.linalg.eigh(covariance[:-1, :-1])
    whitened = (mean - C)[:, :-1] @ V  # (c, c - 1); with pi their mean is the residual

    def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
        pi = softmax(v)
        spread = float((pi**2 / np.maximum(counts, 1)).sum()) + MODEL_VARIANCE
        variances = spread * eigenvalues + MIN_VARIANCE
        residual = pi @ whitened
        value = (residual**2 / variances).sum() / 2 + (c - 1) * np.log(spread) / 2 - PRIOR_COUNT * np.log(pi).sum()
        by_spread = -(residual**2 / variances**2 * eigenvalues).sum() / 2 + (c - 1) / (2 * spread)
        by_pi = whitened @ (residual / variances) + by_spread * 2 * pi / np.maximum(counts, 1) - PRIOR_COUNT / pi
        return float(value), pi * (by_pi - pi @ by_pi)

    bounds = [(-MAX_LOG_RATIO / 2, MAX_LOG_RATIO / 2)] * c
    return np.asarray(softmax(scipy.optimize.minimize(objective, np.zeros(c), jac=True, bounds=bounds).x))
