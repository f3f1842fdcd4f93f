"""Posterior covariance of a Gaussian process on features, and what one more label does to it, in closed form.

The prior covariance of scores is ``Z Z^T``, labels have independent noise. With ``A = Z_l^T Z_l + noise I`` of the
labelled rows the posterior covariance is ``noise Z A^-1 Z^T``: it does not depend on which labels were given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy.linalg


@dataclass(frozen=True)
class Posterior:
    """Gaussian process of n rows, given the labels of some.

    Attributes
    ----------
    W : ndarray of shape (n, r)
        Features whose inner products are the posterior covariance.
    noise : float
        Variance of a label.
    """

    W: np.ndarray
    noise: float

    @classmethod
    def of(cls, Z: np.ndarray, labelled: np.ndarray, noise: float) -> Self:
        """Posterior of rows with features Z (n, r) after labels of the rows `labelled`."""
        noise = max(noise, np.finfo(np.float64).eps * float(np.mean(Z**2)) or 1.0)
        Z_l = Z[labelled].astype(np.float64)
        A = Z_l.T @ Z_l
        A[np.diag_indices_from(A)] += noise
        L = scipy.linalg.cholesky(A, lower=True)
        return cls(np.sqrt(noise) * scipy.linalg.solve_triangular(L, Z.T, lower=True).T, noise)

    def variance(self) -> np.ndarray:
        """Posterior variance (n,)."""
        return np.einsum("ij,ij->i", self.W, self.W)

    def covariance(self, rows: np.ndarray) -> np.ndarray:
        """Posterior covariance (n, q) of all rows with some."""
        return np.asarray(self.W @ self.W[rows].T)

    def given(self, row: int) -> Self:
        """Posterior after a label of one more row."""
        w = self.W[row]
        square = float(w @ w)
        if square == 0:
            return self
        # (I - shrink w w^T)^2 = I - w w^T / (square + noise)
        shrink = (1 - np.sqrt(self.noise / (square + self.noise))) / square
        return replace(self, W=self.W - np.outer(self.W @ w, shrink * w))

    def vopt(self) -> np.ndarray:
        """Decrease (n,) of the sum of all variances by a label of each row."""
        return np.einsum("ij,ij->i", self.W @ (self.W.T @ self.W), self.W) / (self.variance() + self.noise)

    def sigmaopt(self) -> np.ndarray:
        """Decrease (n,) of the variance of the sum of all scores by a label of each row."""
        return (self.W @ self.W.sum(axis=0)) ** 2 / (self.variance() + self.noise)


def posterior_mean(Z: np.ndarray, labelled: np.ndarray, targets: np.ndarray, noise: float) -> np.ndarray:
    """Posterior mean (n, c) of rows with features Z (n, r), from targets (m, c) of labelled rows: 0 far from them."""
    Z_l = Z[labelled].astype(np.float64)
    weights = scipy.linalg.solve(Z_l @ Z_l.T + noise * np.eye(labelled.size), targets, assume_a="pos")
    return np.asarray(Z @ (Z_l.T @ weights))


def expected_errors(
    covariance: np.ndarray,
    variance: np.ndarray,
    means: np.ndarray,
    target_probabilities: np.ndarray,
    probabilities: np.ndarray,
    noise: float,
    gain: np.ndarray,
    n_labels: int,
) -> np.ndarray:
    """Expected mean error of t target rows after a label of each of q candidates, without refitting.

    A label y of candidate q adds ``covariance(x, q) / (variance(q) + noise) (y - mean(q))`` to the scores of x, with
    targets y of 1 and -1. The error is ``1 - max probability``, in expectation over the most probable labels of q.

    Parameters
    ----------
    covariance : ndarray of shape (t, q)
        Posterior covariance of targets and candidates.
    variance : ndarray of shape (q,)
        Posterior variance of the candidates.
    means : ndarray of shape (q, c)
        Posterior means of the candidates.
    target_probabilities, probabilities : ndarrays of shapes (t, c) and (q, c)
        Probabilities of targets and of candidates.
    noise : float
        Variance of a label.
    gain : ndarray of shape (c,)
        Change of the log-probabilities, before normalization, with the scores.
    n_labels : int
        Number of most probable labels of each candidate.

    Returns
    -------
    errors : ndarray of shape (q,)
    """
    log_p = np.log(np.maximum(target_probabilities, np.finfo(np.float64).tiny))
    errors = np.empty(variance.size)
    for q in range(variance.size):
        step = covariance[:, q] / (variance[q] + noise)
        likely = np.argsort(-probabilities[q], kind="stable")[:n_labels]
        error = 0.0
        for label in likely:
            y = np.where(np.arange(gain.size) == label, 1.0, -1.0)
            scores = log_p + np.outer(step, gain * (y - means[q]))
            scores -= scores.max(axis=1, keepdims=True)
            error += probabilities[q, label] * float(np.mean(1 - 1 / np.exp(scores).sum(axis=1)))
        errors[q] = error / probabilities[q, likely].sum()
    return errors
