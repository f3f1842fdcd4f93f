"""Herding: rows that together cover all others best, in the space of the features."""

from __future__ import annotations

import numpy as np


def unit_rows(Z: np.ndarray) -> np.ndarray:
    """Rows of Z (n, r) divided by their length; rows of zeros stay."""
    lengths = np.sqrt(np.einsum("ij,ij->i", Z, Z))
    return np.asarray(Z / np.where(lengths > 0, lengths, 1)[:, None])


def similarity(A: np.ndarray, B: np.ndarray, power: float) -> np.ndarray:
    """Similarities (p, q) of rows of unit length: a power of their cosine, 0 where that is negative."""
    S = A @ B.T
    return np.asarray(np.power(np.maximum(S, 0, out=S), power, out=S))


def herd(S: np.ndarray, covered: np.ndarray, weights: np.ndarray, n: int) -> np.ndarray:
    """Columns of S whose weight times gain in coverage, ``sum_x max_q S(x, q)``, is largest, one after the other.

    Parameters
    ----------
    S : ndarray of shape (t, q)
        Similarities of targets and candidates.
    covered : ndarray of shape (t,)
        Similarity of each target to what was chosen before.
    weights : ndarray of shape (q,)
        Factor of the gain of each candidate.
    n : int
        Number of columns, at most q.

    Returns
    -------
    columns : ndarray of int, shape (n,)
    """
    chosen: list[int] = []
    left = np.ones(S.shape[1], dtype=bool)
    for _ in range(n):
        gains = weights * np.maximum(S - covered[:, None], 0).sum(axis=0)
        chosen.append(int(np.where(left, gains, -np.inf).argmax()))
        left[chosen[-1]] = False
        covered = np.maximum(covered, S[:, chosen[-1]])
    return np.array(chosen, dtype=np.int64)
