"""The global part of a kernel: features of a few landmarks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ldsu._utils.arrays import Arrays
from ldsu.labels import sample_labelled_balanced, sample_others

# Of the labelled points so many become landmarks, the classes in turn.
MOST_LABELLED = 1000
# Beside them as many as cost little: 500 for a few thousand samples, 100 where there are many.
MOST_LANDMARKS, LEAST_LANDMARKS, LANDMARK_BUDGET = 500, 100, 2_000_000
# Landmarks are seen with so much noise a sample, in units of k(x, x), that part of their variance stays local. Without
# it labels reach too little through the graph (USPS, MNIST), with much more too little beyond it (Yale B):
# docs/decisions.md.
NOISE = 2e-5
# Directions of the landmarks' features to keep at least.
LEAST_DIRECTIONS = 50


def resolve_n_landmarks(n_landmarks: int | None, n: int) -> int:
    """How many landmarks to add to the labelled points: as given, or by the number n of samples."""
    if n_landmarks is not None:
        return min(n_landmarks, n)
    return int(np.clip(LANDMARK_BUDGET // n, LEAST_LANDMARKS, MOST_LANDMARKS))


def resolve_n_directions(n: int) -> int:
    """How many directions of the landmarks' features to keep: all of them for a few thousand samples, 50 for many."""
    return max(LEAST_DIRECTIONS, LANDMARK_BUDGET // n)


def choose_landmarks(codes: np.ndarray, n_added: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Take the labelled points as landmarks, and add others at random.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Class numbers, -1 where unlabelled.
    n_added : int
        How many to add; at least one landmark is chosen in any case.
    rng : Generator

    Returns
    -------
    landmarks : ndarray of int
        Row numbers, the labelled ones first. Of more than 1,000 labelled points the classes give in turn.
    n_labelled : int
        How many of them are labelled.
    """
    labelled = sample_labelled_balanced(codes, MOST_LABELLED, rng)
    added = sample_others(codes.size, labelled, max(n_added, 0 if labelled.size else 1), rng)
    return np.concatenate([labelled, added]), labelled.size


def rbf(A: Any, B: Any, gamma: float, xp: Any) -> Any:
    """``exp(-gamma |a - b|^2)`` between the rows of A (u x d) and B (v x d)."""
    D2 = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1)[None, :] - 2 * (A @ B.T)
    return xp.exp(-gamma * xp.clip(D2, 0, None))


def landmark_transform(Z: Any, gamma: float, noise: float, arrays: Arrays) -> Any:
    """T (p x p) with which ``P = k(X, Z) T`` gives ``P P^T = k(X, Z) (k(Z, Z) + noise I)^-1 k(Z, X)``.

    Together with the residual ``K - P P^T``, positive semi-definite for any noise, it is the whole kernel.
    """
    xp = arrays.xp
    Z = arrays.put(Z, "float64")
    K = rbf(Z, Z, gamma, xp)
    S, U = xp.linalg.eigh(K)
    floor = S.shape[0] * float(np.finfo(np.float64).eps) * float(S[-1])  # copies among the landmarks, and no noise
    return U / xp.sqrt(xp.clip(S, floor, None) + noise)


def landmark_features(X: Any, Z: Any, transform: Any, gamma: float, arrays: Arrays) -> tuple[Any, Any]:
    """P (n x q), ``k(X, Z) @ transform`` for the rows of X, in blocks; and the nearest of the landmarks Z for each."""
    dtype = arrays.dtype_of(X)
    # Products lose the digits of small distances between samples far from the origin: in double precision few.
    Z, transform = arrays.put(Z, "float64"), arrays.put(transform, "float64")
    P = arrays.zeros((X.shape[0], transform.shape[1]), dtype)
    nearest = arrays.zeros((X.shape[0],), "int64")

    def fill(block: slice) -> None:
        K = rbf(arrays.put(X[block], "float64"), Z, gamma, arrays.xp)
        P[block] = arrays.put(K @ transform, dtype)
        nearest[block] = K.argmax(axis=1)

    arrays.each(fill, X.shape[0], 8 * (4 * Z.shape[0] + X.shape[1]))
    return P, nearest
