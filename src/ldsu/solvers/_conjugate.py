"""Conjugate gradients for many right-hand sides at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Solved columns are put aside when no more than this share of them are left.
FEW_LEFT = 0.7


def conjugate_gradients(
    apply: Callable[[Any], Any],
    precondition: Callable[[Any], Any],
    B: Any,
    tol: float,
    max_iter: int,
    xp: Any,
    inner_products: Callable[[Any, Any], Any] | None = None,
) -> tuple[Any, int, float]:
    """Solve ``A X = B`` for a symmetric positive definite A, until every residual is `tol` of its right-hand side.

    Columns that are solved are put aside when there are many of them: `apply` and `precondition` see fewer and fewer.

    Parameters
    ----------
    apply : callable
        ``apply(V)`` is ``A @ V``.
    precondition : callable
        ``precondition(R)`` is nearly ``A^-1 @ R``, linear, symmetric and positive definite.
    B : array of shape (n, q), or callable
        ``B()`` makes it: once to begin with, and again for the residual at the end, instead of keeping it.
    tol : float
    max_iter : int
    xp : module
        NumPy or PyTorch.
    inner_products : callable or None
        ``inner_products(A, B)`` are those of each column of A with that of B. Rows may lie in several processes, each
        of which calls this function with its own, if it tells all the same here.

    Returns
    -------
    X : array of shape (n, q)
    iterations : int
    residual : float
        The largest relative residual, computed anew.
    """

    def products(A: Any, B: Any) -> Any:
        # Without an array for the products of entries.
        return xp.einsum("ij,ij->j", A, B) if inner_products is None else inner_products(A, B)

    def some_columns(A: Any, which: Any) -> Any:
        """A copy, row by row, of some columns."""
        copy = xp.zeros_like(A[:, : which.shape[0]])
        copy += A[:, which]
        return copy

    right_hand_sides = B if callable(B) else lambda: B
    R = right_hand_sides()
    if not callable(B):  # what is given stays as it is
        R = xp.zeros_like(R)
        R += B
    squares = products(R, R)
    unit = every_unit = xp.where(squares > 0, squares, xp.ones_like(squares))
    solved = X = xp.zeros_like(R)
    D = precondition(R)
    inner = products(R, D)
    (columns,), iterations = xp.where(unit > 0), 0  # all of them, on the device
    while iterations < max_iter:
        unsolved = squares > tol**2 * unit
        left = int(unsolved.sum())
        if not left:
            break
        if left <= FEW_LEFT * columns.shape[0]:
            if X is not solved:
                solved[:, columns] = X
            (which,) = xp.where(unsolved)
            columns, unit, inner, unsolved = columns[which], unit[which], inner[which], unsolved[which]
            X = some_columns(X, which)  # one after the other: for all there may be no room
            R = some_columns(R, which)
            D = some_columns(D, which)
        AD = apply(D)
        energy = products(D, AD)
        # A column that is solved, or zero, stays as it is.
        going = unsolved & (energy > 0)
        ones = xp.ones_like(energy)
        step = xp.where(going, inner / xp.where(going, energy, ones), 0 * ones)
        AD *= step
        R -= AD
        xp.multiply(D, step, out=AD)  # arrays of this size cost as much to make as to fill
        X += AD
        squares = products(R, R)
        Z = precondition(R)
        before, inner = xp.where(inner > 0, inner, ones), products(R, Z)
        D *= inner / before
        D += Z
        iterations += 1
        del AD, Z  # the next product takes their place
    if X is not solved:
        solved[:, columns] = X
    del R, D, X
    # Rounding lets the residual that is carried along drift from the true one.
    R = apply(solved)
    R -= right_hand_sides()
    return solved, iterations, float((products(R, R) / every_unit).max()) ** 0.5
