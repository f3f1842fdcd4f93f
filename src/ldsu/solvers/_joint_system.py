"""The sparse system of kernel and graphs, scaled, and its solution by conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from ldsu._utils.arrays import Arrays
from ldsu._utils.stages import counter
from ldsu.labels import class_counts
from ldsu.solvers._aggregates import Aggregates
from ldsu.solvers._types import Settings

# Entries whose squares are summed together, in double precision.
ENTRIES = 2**24
# Converged columns are dropped when at most this fraction of the columns is left.
MAX_LEFT = 0.7
# Directions of known solutions with less than this share of the largest eigenvalue are not used to start others.
SPAN_PRECISION = 1e-6


@dataclass(frozen=True)
class JointSystem:
    """``B = G^T G + eta (L_w + lam L)`` scaled to a diagonal of ones: ``D^-1/2 B D^-1/2``."""

    arrays: Arrays
    dtype: str
    G: Any  # sparse (n, n): ``G D^-1/2``
    G_T: Any  # its transpose
    L: Any  # sparse (n, n): ``eta lam D^-1/2 L D^-1/2``
    scale: Any  # (n,): ``D^-1/2``
    labelled: Any  # (m,)
    classes: Any  # sparse (c, m): indicator of their classes
    classes_T: Any
    counts: Any  # (m,): eta times the size of its class
    strength: float  # eta
    precondition: Aggregates

    @classmethod
    def build(
        cls,
        factor: tuple[Any, Any, Any],
        members: Any,
        weights: Any,
        codes: np.ndarray,
        settings: Settings,
        arrays: Arrays,
        dtype: str,
    ) -> JointSystem:
        """Build from triplets of G, the cliques' members (n, k) and Laplacians (n, k, k)."""
        xp = arrays.xp
        n, k = members.shape
        rows, columns, values = factor
        eta = settings.strength
        weights = arrays.put(weights * (eta * settings.lam), dtype)
        diagonals = weights.reshape(n, -1)[:, :: k + 1]
        labelled = np.flatnonzero(codes >= 0)
        class_sizes = class_counts(codes)
        sizes = class_sizes[codes[labelled]]
        diagonal = 0
        for block in gen_batches(columns.shape[0], ENTRIES):
            diagonal = diagonal + xp.bincount(columns[block], weights=values[block] ** 2, minlength=n)
        diagonal = diagonal + xp.bincount(members.reshape(-1), weights=diagonals.reshape(-1), minlength=n)
        diagonal[arrays.put(labelled)] += arrays.put(eta * (sizes - 1.0), "float64")
        scale = arrays.put(1 / xp.sqrt(diagonal), dtype)
        values = values * scale[columns]
        first = (members[:, :, None] + 0 * members[:, None, :]).reshape(-1)
        second = (members[:, None, :] + 0 * members[:, :, None]).reshape(-1)
        L = arrays.sparse(first, second, weights.reshape(-1) * scale[first] * scale[second], (n, n))
        del first, second, weights, diagonals  # memory for the aggregates
        G, G_T = arrays.sparse(rows, columns, values, (n, n)), arrays.sparse(columns, rows, values, (n, n))
        del factor, rows, columns, values
        m, c = labelled.size, class_sizes.size
        ones, numbers, classes = arrays.put(np.ones(m), dtype), arrays.put(np.arange(m)), arrays.put(codes[labelled])
        labelled, counts = arrays.put(labelled), arrays.put(eta * sizes, dtype)
        return cls(
            arrays,
            dtype,
            G,
            G_T,
            L,
            scale,
            labelled,
            arrays.sparse(classes, numbers, ones, (c, m)),
            arrays.sparse(numbers, classes, ones, (m, c)),
            counts,
            eta,
            Aggregates.build((G, G_T), L, 1 / scale, (labelled, classes, counts, eta), arrays),
        )

    def graphs(self, V: Any) -> Any:
        """``eta D^-1/2 M D^-1/2 @ V``."""
        product = self.L @ V
        if self.labelled.shape[0]:
            scale = self.scale[self.labelled][:, None]
            U = V[self.labelled] * scale
            product[self.labelled] += scale * (
                self.counts[:, None] * U - self.strength * (self.classes_T @ (self.classes @ U))
            )
        return product

    def apply(self, V: Any) -> Any:
        """``D^-1/2 B D^-1/2 @ V``."""
        local = self.G_T @ (self.G @ V)  # first: two products are held at a time
        product = self.graphs(V)
        product += local
        return product

    def solve(
        self,
        anchors: np.ndarray,
        P: Any,
        settings: Settings,
        known: tuple[Any, np.ndarray] | None = None,
        start: tuple[Any, Any] | None = None,
    ) -> tuple[Any, Any, Any, int, float]:
        """``B^-1 E_A``, ``eta M P``, ``H = P - B^-1 eta M P``, iterations, and the largest relative residual.

        `known` are columns of ``B^-1`` as rows (k, n), and their places: solves start from their best combination. Or
        they start from approximations, as rows, of ``B^-1 E_A`` and ``B^-1 eta M P``.
        """
        arrays = self.arrays
        span = None if known is None else (known[0], self._inverse_gram(*known))
        n, p = P.shape
        # By columns, in files: those of a block are written together.
        Z = arrays.stored((n, anchors.size), self.dtype, "F")
        MP = arrays.stored((n, p), self.dtype, "F")
        H = arrays.stored((n, p), self.dtype, "F")
        solved = counter(anchors.size + p, "columns solved")

        def fill(part: slice) -> tuple[int, float]:
            first, second = columns_of(part, anchors.size)
            Z[:, first], MP[:, second], H[:, second], iterations, residual = self.solve_columns(
                anchors[first],
                P[:, second],
                settings,
                span,
                None if start is None else arrays.xp.concatenate([start[0][first], start[1][second]]).T,
            )
            solved(part.stop - part.start)
            return iterations, residual

        outcomes = arrays.map(fill, gen_batches(anchors.size + p, arrays.columns))
        return Z, MP, H, max(i for i, _ in outcomes), max(r for _, r in outcomes)

    def _inverse_gram(self, Z: Any, places: np.ndarray) -> Any:
        """Pseudo-inverse of the entries of ``B^-1`` at some places, whose columns are the rows of Z (k, n)."""
        Z_AA = self.arrays.put(Z[:, self.arrays.put(places)], "float64")
        S, U = self.arrays.eigh((Z_AA + Z_AA.T) / 2)
        S, U = S[SPAN_PRECISION * S[-1] < S], U[:, self.arrays.put(SPAN_PRECISION * S[-1] < S)]
        return self.arrays.put((U / self.arrays.put(S)) @ U.T, self.dtype)

    def solve_columns(
        self,
        anchors: np.ndarray,
        P: Any,
        settings: Settings,
        span: tuple[Any, Any] | None = None,
        start: Any = None,
    ) -> tuple[Any, Any, Any, int, float]:
        """`solve` for some anchors and some columns of P (n x b) together."""
        arrays, xp = self.arrays, self.arrays.xp
        rows, a = arrays.put(anchors), anchors.size
        scale = self.scale[:, None]

        def right_hand_sides() -> Any:  # made again rather than kept
            rhs = arrays.zeros((self.scale.shape[0], a + P.shape[1]), self.dtype)
            rhs[rows, xp.arange(a)] = self.scale[rows]
            if P.shape[1]:
                rhs[:, a:] = self.graphs(P / scale)
            return rhs

        if span is not None:  # Z Z_AA^-1 Z^T is the inverse of B in the span of columns Z of B^-1
            start = span[0].T @ (span[1] @ (span[0] @ (right_hand_sides() / scale)))
        start = None if start is None else start / scale
        solution, iterations, residual = conjugate_gradients(
            self.apply, self.precondition, right_hand_sides, settings.tol, settings.max_iter, xp, start=start
        )
        solution *= scale
        MP = self.graphs(P / scale) / scale if P.shape[1] else P
        return solution[:, :a], MP, P - solution[:, a:], iterations, residual


def columns_of(part: slice, a: int) -> tuple[slice, slice]:
    """Split a slice of columns, the first `a` of which belong to anchors, into anchors and other columns."""
    first = slice(min(part.start, a), min(part.stop, a))
    return first, slice(max(part.start - a, 0), max(part.stop - a, 0))


def conjugate_gradients(
    apply: Callable[[Any], Any],
    precondition: Callable[[Any], Any],
    B: Any,
    tol: float,
    max_iter: int,
    xp: Any,
    inner_products: Callable[[Any, Any], Any] | None = None,
    start: Any = None,
) -> tuple[Any, int, float]:
    """Solve ``A X = B`` for a symmetric positive definite A until the relative residual of every column is below `tol`.

    Converged columns are dropped from time to time, so that `apply` and `precondition` work on fewer columns.

    Parameters
    ----------
    apply, precondition : callables
        ``apply(V)`` is ``A @ V``; ``precondition(R)`` approximates ``A^-1 @ R``, linear, symmetric, positive definite.
    B : array of shape (n, q), or callable
        Right-hand sides. A callable returns them: it is called at the start and again for the final residual, to save
        memory.
    tol, max_iter : float, int
    xp : module
        NumPy or PyTorch.
    inner_products : callable or None
        ``inner_products(A, B)`` are those of each column of A with that of B. Rows may be distributed over processes
        that all call this function, if it returns the same result in all of them.
    start : array of shape (n, q) or None
        First approximation of X, which is overwritten; None is 0.

    Returns
    -------
    X, iterations, residual : array of shape (n, q), int, float
        With the largest relative residual, recomputed at the end.
    """

    def products(A: Any, B: Any) -> Any:
        if inner_products is not None:
            return inner_products(A, B)
        # NumPy's einsum does not allocate the elementwise product; PyTorch's copies both arrays transposed.
        return xp.einsum("ij,ij->j", A, B) if xp is np else (A * B).sum(axis=0)

    def some_columns(A: Any, which: Any) -> Any:
        """A copy of some columns, in C order."""
        copy = xp.zeros_like(A[:, : which.shape[0]])
        copy += A[:, which]
        return copy

    right_hand_sides = B if callable(B) else lambda: B
    R = right_hand_sides()
    if not callable(B):  # do not modify the input
        R = xp.zeros_like(R)
        R += B
    squares = products(R, R)
    unit = every_unit = xp.where(squares > 0, squares, xp.ones_like(squares))
    solved = X = xp.zeros_like(R) if start is None else start
    if start is not None:
        R -= apply(X)
        squares = products(R, R)
    D = precondition(R)
    inner = products(R, D)
    (columns,), iterations = xp.where(unit > 0), 0  # all of them, on the device
    while iterations < max_iter:
        unsolved = squares > tol**2 * unit
        left = int(unsolved.sum())
        if not left:
            break
        if left <= MAX_LEFT * columns.shape[0]:
            if X is not solved:
                solved[:, columns] = X
            (which,) = xp.where(unsolved)
            columns, unit, inner, unsolved = columns[which], unit[which], inner[which], unsolved[which]
            X = some_columns(X, which)  # one at a time, to limit peak memory
            R = some_columns(R, which)
            D = some_columns(D, which)
        AD = apply(D)
        energy = products(D, AD)
        # Converged and zero columns are not updated.
        going = unsolved & (energy > 0)
        ones = xp.ones_like(energy)
        step = xp.where(going, inner / xp.where(going, energy, ones), 0 * ones)
        AD *= step
        R -= AD
        xp.multiply(D, step, out=AD)  # reuse memory: allocation is as expensive as the product
        X += AD
        del AD  # free memory for the next product
        squares = products(R, R)
        Z = precondition(R)
        before, inner = xp.where(inner > 0, inner, ones), products(R, Z)
        D *= inner / before
        D += Z
        iterations += 1
        del Z
    if X is not solved:
        solved[:, columns] = X
    del R, D, X
    # By rounding the recursive residual drifts from the true one.
    R = apply(solved)
    R -= right_hand_sides()
    return solved, iterations, float((products(R, R) / every_unit).max()) ** 0.5
