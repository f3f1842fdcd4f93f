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
    ones = xp.ones_like(B[0])
    squares = (B * B).sum(axis=0)
    unit = xp.where(squares > 0, squares, ones)
    X = xp.zeros_like(B)
    R = xp.zeros_like(B)
    R += B
    D = precondition(R)
    inner = (R * D).sum(axis=0)
    iterations = 0
    while iterations < max_iter and bool((squares > tol**2 * unit).any()):
        AD = apply(D)
        energy = (D * AD).sum(axis=0)
        # A column that is solved, or zero, stays as it is.
        going = (squares > tol**2 * unit) & (energy > 0)
        step = xp.where(going, inner / xp.where(going, energy, ones), 0 * ones)
        X += step * D
        AD *= step
        R -= AD
        squares = (R * R).sum(axis=0)
        Z = precondition(R)
        before, inner = xp.where(inner > 0, inner, ones), (R * Z).sum(axis=0)
        D *= inner / before
        D += Z
        iterations += 1
    # Rounding lets the residual that is carried along drift from the true one.
    R = B - apply(X)
    return X, iterations, float(((R * R).sum(axis=0) / unit).max()) ** 0.5
