"""Conjugate gradients for many right-hand sides at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def conjugate_gradients(
    apply: Callable[[Any], Any], precondition: Callable[[Any], Any], B: Any, tol: float, max_iter: int, xp: Any
) -> tuple[Any, int, float]:
    """Solve ``A X = B`` for a symmetric positive definite A, until every residual is `tol` of its right-hand side.

    Parameters
    ----------
    apply : callable
        ``apply(V)`` is ``A @ V``.
    precondition : callable
        ``precondition(R)`` is nearly ``A^-1 @ R``, linear, symmetric and positive definite.
    B : array of shape (n, q)
    tol : float
    max_iter : int
    xp : module
        NumPy or PyTorch.

    Returns
    -------
    X : array of shape (n, q)
    iterations : int
    residual : float
        The largest relative residual, computed anew.
    """

    def products(A: Any, B: Any) -> Any:
        """Of each column of A with that of B, without an array for their entries."""
        return xp.einsum("ij,ij->j", A, B)

    ones = xp.ones_like(B[0])
    squares = products(B, B)
    unit = xp.where(squares > 0, squares, ones)
    X = xp.zeros_like(B)
    R = xp.zeros_like(B)
    R += B
    D = precondition(R)
    inner = products(R, D)
    iterations = 0
    while iterations < max_iter and bool((squares > tol**2 * unit).any()):
        AD = apply(D)
        energy = products(D, AD)
        # A column that is solved, or zero, stays as it is.
        going = (squares > tol**2 * unit) & (energy > 0)
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
    # Rounding lets the residual that is carried along drift from the true one.
    R = B - apply(X)
    return X, iterations, float((products(R, R) / unit).max()) ** 0.5
