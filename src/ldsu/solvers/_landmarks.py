"""Global part of a kernel: landmark features."""

from __future__ import annotations

from typing import Any

import numpy as np

from ldsu._utils.arrays import Arrays
from ldsu.labels import sample_labelled_balanced, sample_others

# Maximum number of labelled points used as landmarks, balanced over classes.
MAX_LABELLED = 1000
# Additional landmarks: 500 for a few thousand samples, down to 100 for many.
MAX_LANDMARKS, MIN_LANDMARKS, LANDMARK_BUDGET = 500, 100, 2_000_000
# Noise of landmarks per sample, in units of k(x, x), so that part of their variance stays local. Without it labels
# propagate too little through the graph (USPS, MNIST), with much more too little beyond it (Yale B): docs/decisions.md.
NOISE = 2e-5
# Minimum number of directions of the landmark features.
MIN_DIRECTIONS = 50


def resolve_n_landmarks(n_landmarks: int | None, n: int) -> int:
    """Number of landmarks in addition to the labelled points: as given, or by the number n of samples."""
    if n_landmarks is not None:
        return min(n_landmarks, n)
    return int(np.clip(LANDMARK_BUDGET // n, MIN_LANDMARKS, MAX_LANDMARKS))


def resolve_n_directions(n: int) -> int:
    """Number of directions of the landmark features to keep: all for a few thousand samples, 50 for many."""
    return max(MIN_DIRECTIONS, LANDMARK_BUDGET // n)


def choose_landmarks(codes: np.ndarray, n_added: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Choose the labelled points and random other points as landmarks.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Class numbers, -1 where unlabelled.
    n_added : int
        Number of random points; at least one landmark is chosen in any case.
    rng : Generator

    Returns
    -------
    landmarks : ndarray of int
        Row indices, labelled points first: at most 1,000 of them, balanced over classes.
    n_labelled : int
        Number of labelled landmarks.
    """
    labelled = sample_labelled_balanced(codes, MAX_LABELLED, rng)
    added = sample_others(codes.size, labelled, max(n_added, 0 if labelled.size else 1), rng)
    return np.concatenate([labelled, added]), labelled.size


def rbf(A: Any, B: Any, gamma: float, xp: Any) -> Any:
    """``exp(-gamma |a - b|^2)`` between the rows of A (u x d) and B (v x d)."""
    D2 = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1)[None, :] - 2 * (A @ B.T)
    return xp.exp(-gamma * xp.clip(D2, 0, None))


def landmark_transform(Z: Any, gamma: float, noise: float, arrays: Arrays) -> Any:
    """T (p x p) such that ``P = k(X, Z) T`` satisfies ``P P^T = k(X, Z) (k(Z, Z) + noise I)^-1 k(Z, X)``.

    The residual ``K - P P^T`` is positive semi-definite for any noise.
    """
    xp = arrays.xp
    Z = arrays.put(Z, "float64")
    K = rbf(Z, Z, gamma, xp)
    S, U = xp.linalg.eigh(K)
    floor = S.shape[0] * float(np.finfo(np.float64).eps) * float(S[-1])  # for duplicate landmarks without noise
    return U / xp.sqrt(xp.clip(S, floor, None) + noise)


def landmark_features(X: Any, Z: Any, transform: Any, gamma: float, arrays: Arrays) -> tuple[Any, Any]:
    """P (n x q), ``k(X, Z) @ transform`` for the rows of X, in blocks, and the nearest landmark of each."""
    dtype = arrays.dtype_of(X)
    # Double precision: products lose digits of small distances between samples far from the origin.
    Z, transform = arrays.put(Z, "float64"), arrays.put(transform, "float64")
    P = arrays.zeros((X.shape[0], transform.shape[1]), dtype)
    nearest = arrays.zeros((X.shape[0],), "int64")

    def fill(block: slice) -> None:
        K = rbf(arrays.put(X[block], "float64"), Z, gamma, arrays.xp)
        P[block] = arrays.put(K @ transform, dtype)
        nearest[block] = K.argmax(axis=1)

    arrays.each(fill, X.shape[0], 8 * (4 * Z.shape[0] + X.shape[1]))
    return P, nearest
