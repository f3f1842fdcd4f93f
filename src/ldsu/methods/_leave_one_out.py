"""How well labelled samples are foretold by the others, in closed form: nothing is fitted again.

Of a ridge regression on one class against the rest, the prediction for a sample left out follows from the fit to all of
them. So a kernel is judged by m x m algebra, m the number of labelled samples, once its values among them are known.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

# Ridges that are tried, in units of the mean diagonal of the kernel, and factors that make scores logarithms of odds.
NOISES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
TEMPERATURES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
# Weight of the evidence beside the labels left out.
EVIDENCE = 0.5
# Standard errors by which the graph must be shown to mislead.
ENOUGH = 1.0


def leave_one_out(G: np.ndarray, codes: np.ndarray, noises: Iterable[float]) -> Iterator[tuple[np.ndarray, float]]:
    """Scores of each labelled sample by the kernel ridge regression, with intercept, on all others; and the evidence.

    With ``[[G + noise I, 1], [1^T, 0]]^-1 = [[P, .], [., .]]`` and targets Y of 1 and -1 they are ``Y - P Y /
    diag(P)``. P has the eigenvectors of the centred G, but the constant one: one decomposition serves every noise.

    Parameters
    ----------
    G : ndarray of shape (m, m)
        Kernel values.
    codes : ndarray of shape (m,)
        Class numbers.
    noises : iterable of float
        Ridges, in units of the mean diagonal of G.

    Yields
    ------
    scores : ndarray of shape (m, c)
    evidence : float
        Logarithm of the density of Y, apart from its column means, under the Gaussian process whose covariance is the
        best multiple of ``G + noise I``, for one entry of Y and up to a constant.
    """
    m = codes.shape[0]
    Y = np.where(codes[:, None] == np.arange(codes.max() + 1), 1.0, -1.0)
    centered = G / (np.trace(G) / m or 1.0)
    centered = centered - centered.mean(axis=0)
    centered -= centered.mean(axis=1)[:, None]
    # The constant vector is given an eigenvalue above all others, and left out.
    largest = float(np.abs(centered).sum(axis=0).max()) + 1
    eigenvalues, V = np.linalg.eigh((centered + centered.T) / 2 + 2 * largest / m)
    eigenvalues, V = np.maximum(eigenvalues[:-1], 0), V[:, :-1]
    VY, squares = V.T @ Y, V**2
    for noise in noises:
        weights = 1 / (eigenvalues + noise)
        scores = Y - (V @ (weights[:, None] * VY)) / (squares @ weights)[:, None]
        variance = float((weights[:, None] * VY**2).mean()) or 1.0
        yield scores, float((1 - 1 / m) * (np.log(weights).mean() - np.log(variance)) / 2)


def log_likelihoods(scores: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Logarithms of the probability given to the true class, by the softmax of the scores times the best factor.

    Classes with one sample are left out: without it their scores know nothing of them. Shape (samples that count,).
    """
    rows = np.flatnonzero(np.bincount(codes)[codes] > 1)
    own = np.arange(rows.size), codes[rows]
    return max((log_softmax(factor * scores[rows], axis=1)[own] for factor in TEMPERATURES), key=np.mean)


def accuracy(scores: np.ndarray, codes: np.ndarray) -> float:
    """Share of the samples whose largest score is that of their class, with one success and one failure added.

    As in `log_likelihoods`, classes with one sample do not count.
    """
    rows = np.bincount(codes)[codes] > 1
    right = scores[rows].argmax(axis=1) == codes[rows]
    return float((right.sum() + 1) / (right.size + 2))


class Tried(NamedTuple):
    """A kernel by its number, the ridge beside it, and how well labels are foretold."""

    number: int
    noise: float
    log_likelihoods: np.ndarray
    evidence: float
    accuracy: float

    @property
    def criterion(self) -> float:
        """Mean log-likelihood of labels left out, and a part of the evidence, which varies less."""
        return float(self.log_likelihoods.mean()) + EVIDENCE * self.evidence


def choose(kernels: Iterable[tuple[int, np.ndarray]], codes: np.ndarray, trusted: Container[int]) -> list[Tried]:
    """Kernels and ridges, those first under which the labelled samples foretell each other best.

    Few labels tell little. A kernel that is not among the trusted ones comes first only where it beats the best of
    those by more than the standard error of the difference.

    Parameters
    ----------
    kernels : iterable of (int, ndarray of shape (m, m))
        A number, and the kernel's values among the labelled samples. Of equals the first wins.
    codes : ndarray of shape (m,)
    trusted : container of int
        Numbers of the kernels that are to be preferred.

    Returns
    -------
    tried : list of Tried
    """
    tried = []
    for number, G in kernels:
        for noise, (scores, evidence) in zip(NOISES, leave_one_out(G, codes, NOISES), strict=True):
            if np.isfinite(scores).all():
                tried.append(Tried(number, noise, log_likelihoods(scores, codes), evidence, accuracy(scores, codes)))
    tried.sort(key=lambda one: -one.criterion)
    best = next((one for one in tried if one.number in trusted), tried[0])
    differences = tried[0].log_likelihoods - best.log_likelihoods
    if tried[0].criterion - best.criterion <= ENOUGH * differences.std(ddof=1) / np.sqrt(differences.size):
        tried.remove(best)
        tried.insert(0, best)
    return tried
