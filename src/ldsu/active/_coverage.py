"""Herding: rows that together cover all others best, in the space of the features."""

from __future__ import annotations

import numpy as np
from sklearn.utils import gen_batches

# Rows whose gains are computed at a time.
BLOCK = 256


def unit_rows(Z: np.ndarray) -> np.ndarray:
    """Rows of Z (n, r) divided by their length; rows of zeros stay."""
    lengths = np.sqrt(np.einsum("ij,ij->i", Z, Z))
    return np.asarray(Z / np.where(lengths > 0, lengths, 1)[:, None])


def similarity(A: np.ndarray, B: np.ndarray, power: int) -> np.ndarray:
    """Similarities (p, q) of rows of unit length: their cosine to a power of two, 0 where it is negative."""
    S = A @ B.T
    np.maximum(S, 0, out=S)
    while power > 1:  # squares are many times faster than `np.power`
        np.square(S, out=S)
        power //= 2
    return np.asarray(S)


def herd(S: np.ndarray, covered: np.ndarray, weights: np.ndarray, n: int) -> np.ndarray:
    """Rows of S whose weight times gain in coverage, ``sum_x max_q S(q, x)``, is largest, one after the other.

    Gains only decrease as more is covered. So the last gain of a row bounds its next one, and few are computed again.

    Parameters
    ----------
    S : ndarray of shape (q, t)
        Similarities of candidates and targets.
    covered : ndarray of shape (t,)
        Similarity of each target to what was chosen before.
    weights : ndarray of shape (q,)
        Factor of the gain of each candidate, 0 or more.
    n : int
        Number of rows, at most q.

    Returns
    -------
    rows : ndarray of int, shape (n,)
    """
    q = weights.size
    bounds, known = np.empty(q), np.full(q, 0)  # and after how many choices each was computed
    for rows in gen_batches(q, BLOCK):
        bounds[rows] = weights[rows] * np.maximum(S[rows] - covered, 0).sum(axis=1)
    chosen = np.empty(n, dtype=np.int64)
    for number in range(n):
        while known[best := int(bounds.argmax())] < number:
            bounds[best] = weights[best] * np.maximum(S[best] - covered, 0).sum()
            known[best] = number
        chosen[number] = best
        bounds[best], known[best] = -np.inf, n
        covered = np.maximum(covered, S[best])
    return chosen
