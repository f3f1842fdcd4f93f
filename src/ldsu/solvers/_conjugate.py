"""Conjugate gradients for multiple right-hand sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Converged columns are dropped when at most this fraction of the columns is left.
MAX_LEFT = 0.7


def conjugate_gradients(
    apply: Callable[[Any], Any],
    precondition: Callable[[Any], Any],
    B: Any,
    tol: float,
    max_iter: int,
    xp: Any,
    inner_products: Callable[[Any, Any], Any] | None = None,
) -> tuple[Any, int, float]:
    """Solve ``A X = B`` for a symmetric positive definite A until the relative residual of every column is below `tol`.

    Converged columns are dropped from time to time, so that `apply` and `precondition` work on fewer columns.

    Parameters
    ----------
    apply : callable
        ``apply(V)`` is ``A @ V``.
    precondition : callable
        ``precondition(R)`` approximates ``A^-1 @ R``; linear, symmetric and positive definite.
    B : array of shape (n, q), or callable
        Right-hand sides. A callable returns them: it is called at the start and again for the final residual, to save
        memory.
    tol : float
    max_iter : int
    xp : module
        NumPy or PyTorch.
    inner_products : callable or None
        ``inner_products(A, B)`` are those of each column of A with that of B. Rows may be distributed over processes
        that all call this function, if it returns the same result in all of them.

    Returns
    -------
    X : array of shape (n, q)
    iterations : int
    residual : float
        The largest relative residual, recomputed at the end.
    """

    def products(A: Any, B: Any) -> Any:
        # einsum does not allocate the elementwise product.
        return xp.einsum("ij,ij->j", A, B) if inner_products is None else inner_products(A, B)

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
    solved = X = xp.zeros_like(R)
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
        squares = products(R, R)
        Z = precondition(R)
        before, inner = xp.where(inner > 0, inner, ones), products(R, Z)
        D *= inner / before
        D += Z
        iterations += 1
        del AD, Z  # free memory for the next product
    if X is not solved:
        solved[:, columns] = X
    del R, D, X
    # By rounding the recursive residual drifts from the true one.
    R = apply(solved)
    R -= right_hand_sides()
    return solved, iterations, float((products(R, R) / every_unit).max()) ** 0.5
