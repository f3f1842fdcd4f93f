"""Aggregates of samples that the graphs couple strongly, on several levels: the preconditioner of the sparse system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ldsu._utils.arrays import Arrays

# The system between at most this many aggregates is inverted as a dense matrix.
MAX_COARSEST = 256
# The last level is that which leaves more than this fraction of its aggregates.
MAX_LEFT = 0.9
# Strengths of coupling, at most 1, that round to the same multiple of this are ties: rounding would decide otherwise.
STRENGTH_UNIT = 1e-3


@dataclass(frozen=True)
class Level:
    """Aggregates of the samples, or of the aggregates of the level below."""

    spread: Any  # sparse (n, p): values of aggregates to their members
    gather: Any  # its transpose
    inverse: Any  # (p, 1): inverse diagonal of the system between aggregates; (p, p): its inverse

    def solve(self, R: Any) -> Any:
        """Approximate solution between aggregates."""
        return self.inverse @ R if self.inverse.shape[1] > 1 else self.inverse * R


@dataclass(frozen=True)
class Aggregates:
    """``I + sum_l C_l D_l^-1 C_l^T`` for a system with a diagonal of ones, with the levels' indicators C_l.

    D_l is the diagonal of ``C_l^T B C_l``, or on the coarsest level all of it. It is symmetric and positive definite by
    construction. Strongly coupled samples have nearly equal values in the small eigenvectors, which diagonal scaling
    alone leaves.
    """

    levels: tuple[Level, ...]

    @classmethod
    def build(
        cls,
        factor: tuple[Any, Any],
        L: Any,
        weights: Any,
        labelled: tuple[Any, Any, Any, float],
        arrays: Arrays,
    ) -> Aggregates:
        """Build from the scaled system ``B = G^T G + L`` and the graph of labelled samples.

        Parameters
        ----------
        factor : two sparse matrices of shape (n, n)
            G and its transpose.
        L : sparse matrix of shape (n, n)
            Its entries couple the samples of the first level; all of B couples aggregates.
        weights : array of shape (n,)
            Values of the samples of an aggregate: the vector that is constant in the units before scaling.
        labelled : tuple
            Labelled samples, their classes (m,), the diagonal of their graph (m,) and the weight of its other entries.
        arrays : Arrays
        """
        xp, dtype = arrays.xp, arrays.dtype_of(weights)
        n = weights.shape[0]
        numbers, p = aggregate(*arrays.triplets(L), n, arrays)
        spread, gather = _indicator(numbers, weights, p, arrays)
        G, G_T = factor
        parts = [arrays.triplets((gather @ G_T) @ (G @ spread)), arrays.triplets(gather @ (L @ spread))]
        rows, classes, diagonal, weight = labelled
        parts.append((numbers[rows], numbers[rows], diagonal))
        i, j, values = (xp.concatenate(part) for part in zip(*parts, strict=True))
        del parts
        i, j, values = arrays.triplets(arrays.sparse(i, j, values, (p, p)))
        values = arrays.put(values, "float64")  # sums of many terms that cancel
        members = numbers[rows]
        levels = []
        while True:
            finer = spread, gather
            numbers, q = aggregate(i, j, values, p, arrays) if p > MAX_COARSEST else (numbers, p)
            if p <= MAX_COARSEST or q > MAX_LEFT * p:
                break
            levels.append(Level(*finer, _inverse_diagonal(i, j, values, p, dtype, arrays)))
            spread, gather = _indicator(numbers, xp.ones_like(weights[:p]), q, arrays)
            i, j, values = arrays.triplets(arrays.sparse(numbers[i], numbers[j], values, (q, q)))
            members, p = numbers[members], q
        if p > MAX_COARSEST:
            inverse = _inverse_diagonal(i, j, values, p, dtype, arrays)
        else:
            E = arrays.zeros((p, p), "float64")
            E[i, j] = values
            if classes.shape[0]:
                by_class = xp.bincount(classes * p + members, minlength=(int(classes.max()) + 1) * p).reshape(-1, p)
                U = arrays.put(by_class, "float64")
                E -= weight * (U.T @ U)
            inverse = coarse_inverse_of(E, dtype, arrays)
        return cls((*levels, Level(*finer, inverse)))

    def __call__(self, R: Any) -> Any:
        """Apply to residuals (n, q)."""
        residuals = [R]
        for level in self.levels:
            residuals.append(level.gather @ residuals[-1])
        correction = 0
        for level, residual in zip(self.levels[::-1], residuals[:0:-1], strict=True):
            correction = level.spread @ (level.solve(residual) + correction)
        correction += R
        return correction


def aggregate(rows: Any, columns: Any, values: Any, n: int, arrays: Arrays) -> tuple[Any, int]:
    """Join each row of a symmetric matrix (n, n) with the one that it is coupled with most strongly.

    Parameters
    ----------
    rows, columns, values : arrays
        The entries by row; each row has a diagonal one. The strength of others is that of the matrix scaled to a
        diagonal of ones, and only negative ones couple.
    n : int
    arrays : Arrays

    Returns
    -------
    numbers : array of int of shape (n,)
        That of each row's aggregate.
    count : int
    """
    xp = arrays.xp
    scale = arrays.put(_inverse(_diagonal(rows, columns, values, n, xp), xp) ** 0.5, arrays.dtype_of(values))
    strength = values * (-1 / STRENGTH_UNIT)
    strength *= scale[rows]  # in place: of many samples these are the largest arrays of the system
    strength *= scale[columns]
    strength[rows == columns] = 0
    strength = xp.round(strength)
    strongest = arrays.row_maxima(strength, rows, n)
    partner = arrays.row_maxima(xp.where(strength >= strongest[rows], columns, -1 + 0 * columns), rows, n)
    own = arrays.put(arrays.integers(n), arrays.dtype_of(partner))
    # Along the links strength grows, by row where it is equal: they form trees, also if rounding is not symmetric.
    theirs = strongest[partner]
    linked = (strongest > 0) & ((theirs > strongest) | ((theirs == strongest) & (partner > own)))
    root = xp.where(linked, partner, own)
    while True:
        further = root[root]
        if bool((further == root).all()):
            break
        root = further
    numbers = xp.cumsum(root == own, 0) - 1
    return arrays.put(numbers[root], arrays.dtype_of(own)), int(numbers[-1]) + 1


def coarse_inverse_of(E: Any, dtype: str, arrays: Arrays) -> Any:
    """Inverse of the coarse system (p, p), in the working precision."""
    xp = arrays.xp
    S, U = xp.linalg.eigh((E + E.T) / 2)
    # Empty groups, and eigenvalues that are zero up to rounding, are not corrected.
    known = float(S[-1]) * E.shape[0] * float(np.finfo(dtype).eps) < S
    inverse = xp.where(known, 1 / xp.where(known, S, xp.ones_like(S)), 0 * S)
    return arrays.put((U * inverse) @ U.T, dtype)


def _indicator(numbers: Any, weights: Any, p: int, arrays: Arrays) -> tuple[Any, Any]:
    """Sparse matrix (n, p) with the weights (n,) of the members of each of p aggregates, and its transpose."""
    n = numbers.shape[0]
    samples = arrays.put(arrays.integers(n), arrays.dtype_of(numbers))
    return arrays.sparse(samples, numbers, weights, (n, p)), arrays.sparse(numbers, samples, weights, (p, n))


def _inverse_diagonal(rows: Any, columns: Any, values: Any, p: int, dtype: str, arrays: Arrays) -> Any:
    return arrays.put(_inverse(_diagonal(rows, columns, values, p, arrays.xp), arrays.xp), dtype)[:, None]


def _diagonal(rows: Any, columns: Any, values: Any, n: int, xp: Any) -> Any:
    """Diagonal (n,) of a matrix with these entries."""
    at = rows == columns
    return xp.bincount(rows[at], weights=values[at], minlength=n)


def _inverse(diagonal: Any, xp: Any) -> Any:
    """Inverse of a diagonal; 0 where rounding left nothing of it."""
    positive = diagonal > 0
    return xp.where(positive, 1 / xp.where(positive, diagonal, xp.ones_like(diagonal)), 0 * diagonal)
