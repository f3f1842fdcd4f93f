"""Leave-one-out evaluation of kernels in closed form, without refitting.

For one-vs-rest ridge regression, leave-one-out predictions follow from the fit to all labelled samples. A kernel is
evaluated with m x m matrices, m the number of labelled samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ldsu._utils.arrays import CPU, Arrays

# Candidate ridges, in units of the mean diagonal of the kernel, and candidate factors of scores in the softmax.
NOISES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
TEMPERATURES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
# Weight of the evidence in the criterion.
EVIDENCE = 0.5


def leave_one_out(
    G: Any, codes: np.ndarray, noises: Iterable[float], arrays: Arrays = CPU
) -> Iterator[tuple[np.ndarray, float]]:
    """Leave-one-out scores of kernel ridge regression with intercept, and the evidence.

    With ``[[G + noise I, 1], [1^T, 0]]^-1 = [[P, .], [., .]]`` and targets Y of 1 and -1 the scores are ``Y - P Y /
    diag(P)``. P has the eigenvectors of the centered G, but the constant one: one decomposition serves every noise.

    The labels without sample i have another mean, so that every classifier would lean against the class of i: without
    any structure in G, all of equally many labels per class would be misclassified. Targets are therefore shifted to
    keep their mean, which adds ``(Y_i - mean(Y)) / (m - 1)`` to the scores of i.

    Parameters
    ----------
    G : array of shape (m, m)
        Kernel values, on the device of `arrays`.
    codes : ndarray of shape (m,)
        Class numbers.
    noises : iterable of float
        Ridges, in units of the mean diagonal of G.
    arrays : Arrays
        Where the computation is.

    Yields
    ------
    scores : ndarray of shape (m, c)
    evidence : float
        Logarithm of the density of Y, apart from its column means, under the Gaussian process whose covariance is the
        best multiple of ``G + noise I``, for one entry of Y and up to a constant.
    """
    m = codes.shape[0]
    Y = np.where(codes[:, None] == np.arange(codes.max() + 1), 1.0, -1.0)
    centered = G / (float(G.diagonal().sum()) / m or 1.0)
    centered = centered - centered.mean(axis=0)
    centered -= centered.mean(axis=1)[:, None]
    # Give the constant vector the largest eigenvalue, and drop it.
    largest = float(abs(centered).sum(axis=0).max()) + 1
    eigenvalues, V = arrays.eigh((centered + centered.T) / 2 + 2 * largest / m)
    eigenvalues, V = np.maximum(eigenvalues[:-1], 0), V[:, :-1]
    VY, squares = V.T @ arrays.put(Y), V**2
    VY_squares = arrays.get(VY) ** 2
    kept_mean = Y + (Y - Y.mean(axis=0)) / max(m - 1, 1)
    for noise in noises:
        weights = 1 / (eigenvalues + noise)
        on_device = arrays.put(weights)[:, None]
        scores = kept_mean - arrays.get((V @ (on_device * VY)) / (squares @ on_device))
        variance = float((weights[:, None] * VY_squares).mean()) or 1.0
        yield scores, float((1 - 1 / m) * (np.log(weights).mean() - np.log(variance)) / 2)


def log_likelihoods(scores: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Log-probabilities of the true class, by the softmax of the scores with the best factor.

    Classes with a single sample are excluded. Shape (samples included,).
    """
    rows = np.flatnonzero(np.bincount(codes)[codes] > 1)
    true_class = np.arange(rows.size), codes[rows]
    scaled = np.array(TEMPERATURES)[:, None, None] * scores[rows]
    scaled -= scaled.max(axis=2, keepdims=True)
    candidates = scaled[:, *true_class] - np.log(np.exp(scaled).sum(axis=2))
    best: np.ndarray = candidates[candidates.mean(axis=1).argmax()]
    return best


def accuracy(scores: np.ndarray, codes: np.ndarray) -> float:
    """Leave-one-out accuracy, with one success and one failure added.

    As in `log_likelihoods`, classes with a single sample are excluded.
    """
    rows = np.bincount(codes)[codes] > 1
    right = scores[rows].argmax(axis=1) == codes[rows]
    return float((right.sum() + 1) / (right.size + 2))


class Candidate(NamedTuple):
    """A kernel (by number) with a ridge, and its leave-one-out performance."""

    number: int
    noise: float
    scores: np.ndarray
    log_likelihoods: np.ndarray
    evidence: float
    accuracy: float
    log_prior: float

    @property
    def criterion(self) -> float:
        """Mean over labels of log-likelihood plus weighted evidence, which has less variance, and of the log-prior."""
        likelihood = float(self.log_likelihoods.mean()) + EVIDENCE * self.evidence
        return likelihood + self.log_prior / self.log_likelihoods.size


def choose(kernels: Iterable[tuple[int, Any, float]], codes: np.ndarray, arrays: Arrays = CPU) -> list[Candidate]:
    """Rank kernels and ridges by leave-one-out performance and prior, best first.

    The criterion of few labels is noisy: the prior decides between kernels unless the labels differ by more.

    Parameters
    ----------
    kernels : iterable of (int, array of shape (m, m), float)
        A number, the kernel matrix of the labelled samples, and the logarithm of the prior. Ties are won by the first.
    codes : ndarray of shape (m,)
    arrays : Arrays
        Where the kernel matrices are.

    Returns
    -------
    candidates : list of Candidate
    """
    candidates = [
        Candidate(number, noise, scores, log_likelihoods(scores, codes), evidence, accuracy(scores, codes), log_prior)
        for number, G, log_prior in kernels
        for noise, (scores, evidence) in zip(NOISES, leave_one_out(G, codes, NOISES, arrays), strict=True)
        if np.isfinite(scores).all()
    ]
    return sorted(candidates, key=lambda candidate: -candidate.criterion)
