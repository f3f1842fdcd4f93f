"""The sparse system of kernel and graphs, scaled, and its solution by conjugate gradients."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches

from ldsu._utils.arrays import Arrays
from ldsu.labels import class_counts
from ldsu.solvers._conjugate import conjugate_gradients
from ldsu.solvers._types import Settings


@dataclass(frozen=True)
class JointSystem:
    """``B = G^T G + eta (L_w + lam L)`` scaled to a diagonal of ones: ``D^-1/2 B D^-1/2``.

    Attributes
    ----------
    G, G_T, L : sparse matrices of shape (n, n)
        ``G D^-1/2``, its transpose, and ``eta lam D^-1/2 L D^-1/2``.
    scale : array of shape (n,)
        ``D^-1/2``.
    labelled : int array of shape (m,)
    classes, classes_T : sparse matrices of shape (c, m), (m, c)
        Indicator of their classes.
    counts : array of shape (m,)
        ``eta`` times the size of its class.
    strength : float
        eta.
    groups, groups_T : sparse matrices of shape (n, p), (p, n)
        ``D^1/2`` times the indicator of the samples that share their nearest landmark.
    coarse : array of shape (p, p)
        Inverse of the system between groups.
    """

    arrays: Arrays
    dtype: str
    G: Any
    G_T: Any
    L: Any
    scale: Any
    labelled: Any
    classes: Any
    classes_T: Any
    counts: Any
    strength: float
    groups: Any
    groups_T: Any
    coarse: Any = None

    @classmethod
    def build(
        cls,
        factor: tuple[Any, Any, Any],
        members: Any,
        weights: Any,
        groups: Any,
        codes: np.ndarray,
        settings: Settings,
        arrays: Arrays,
        dtype: str,
    ) -> JointSystem:
        """Build from triplets of G, the cliques' members (n, k) and Laplacians (n, k, k), and the samples' groups."""
        xp = arrays.xp
        n, k = members.shape
        rows, columns, values = factor
        eta = settings.strength
        weights = arrays.put(weights * (eta * settings.lam), dtype)
        diagonals = weights.reshape(n, -1)[:, :: k + 1]
        labelled = np.flatnonzero(codes >= 0)
        sizes = class_counts(codes)[codes[labelled]]
        diagonal = xp.bincount(columns, weights=values**2, minlength=n)
        diagonal = diagonal + xp.bincount(members.reshape(-1), weights=diagonals.reshape(-1), minlength=n)
        diagonal[arrays.put(labelled)] += arrays.put(eta * (sizes - 1.0), "float64")
        scale = arrays.put(1 / xp.sqrt(diagonal), dtype)
        values = values * scale[columns]
        first = (members[:, :, None] + 0 * members[:, None, :]).reshape(-1)
        second = (members[:, None, :] + 0 * members[:, :, None]).reshape(-1)
        L = arrays.sparse(first, second, weights.reshape(-1) * scale[first] * scale[second], (n, n))
        samples, p = arrays.put(np.arange(n)), int(groups.max()) + 1
        system = cls(
            arrays,
            dtype,
            arrays.sparse(rows, columns, values, (n, n)),
            arrays.sparse(columns, rows, values, (n, n)),
            L,
            scale,
            arrays.put(labelled),
            *_indicators(codes[labelled], arrays, dtype),
            arrays.put(eta * sizes, dtype),
            eta,
            arrays.sparse(samples, groups, 1 / scale, (n, p)),
            arrays.sparse(groups, samples, 1 / scale, (p, n)),
        )
        return replace(system, coarse=system.coarse_inverse(groups, p))

    def coarse_inverse(self, groups: Any, p: int) -> Any:
        """Inverse of ``C^T (D^-1/2 B D^-1/2) C`` with C the matrix (n x p) of the groups."""
        arrays = self.arrays
        E = arrays.zeros((p, p), "float64")
        samples = arrays.put(np.arange(self.scale.shape[0]))

        def fill(part: slice) -> None:
            C = arrays.zeros((self.scale.shape[0], part.stop - part.start), self.dtype)
            inside = (groups >= part.start) & (groups < part.stop)
            C[samples[inside], groups[inside] - part.start] = 1 / self.scale[inside]
            E[:, part] = arrays.put(self.groups_T @ self.apply(C), "float64")

        arrays.map(fill, gen_batches(p, arrays.columns))
        return coarse_inverse_of(E, self.dtype, arrays)

    def precondition(self, R: Any) -> Any:
        """Two-level preconditioner: the residual plus a coarse correction of groups."""
        correction = self.groups @ (self.coarse @ (self.groups_T @ R))
        correction += R
        return correction

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
        product = self.graphs(V)
        product += self.G_T @ (self.G @ V)
        return product

    def _conjugate(self, rhs: Any, settings: Settings) -> tuple[Any, int, float]:
        return conjugate_gradients(self.apply, self.precondition, rhs, settings.tol, settings.max_iter, self.arrays.xp)

    def solve(self, anchors: np.ndarray, P: Any, settings: Settings) -> tuple[Any, Any, Any, int, float]:
        """``B^-1 E_A``, ``eta M P``, ``H = P - B^-1 eta M P``, iterations, and the largest relative residual."""
        arrays = self.arrays
        n, p = P.shape
        Z = arrays.zeros((n, anchors.size), self.dtype)
        MP = arrays.zeros((n, p), self.dtype)
        H = arrays.zeros((n, p), self.dtype)

        def fill(part: slice) -> tuple[int, float]:
            first, second = columns_of(part, anchors.size)
            Z[:, first], MP[:, second], H[:, second], iterations, residual = self.solve_columns(
                anchors[first], P[:, second], settings
            )
            return iterations, residual

        outcomes = arrays.map(fill, gen_batches(anchors.size + p, arrays.columns))
        iterations, residual = max(i for i, _ in outcomes), max(r for _, r in outcomes)
        warn_residual(residual, settings)
        return Z, MP, H, iterations, residual

    def solve_columns(self, anchors: np.ndarray, P: Any, settings: Settings) -> tuple[Any, Any, Any, int, float]:
        """`solve` for some anchors and some columns of P (n x b) together."""
        arrays, xp = self.arrays, self.arrays.xp
        rows, a = arrays.put(anchors), anchors.size
        scale = self.scale[:, None]
        rhs = arrays.zeros((self.scale.shape[0], a + P.shape[1]), self.dtype)
        rhs[rows, xp.arange(a)] = self.scale[rows]
        if P.shape[1]:
            rhs[:, a:] = self.graphs(P / scale)
        solution, iterations, residual = self._conjugate(rhs, settings)
        solution *= scale
        return solution[:, :a], rhs[:, a:] / scale, P - solution[:, a:], iterations, residual


def columns_of(part: slice, a: int) -> tuple[slice, slice]:
    """Split a slice of columns, the first `a` of which belong to anchors, into anchors and other columns."""
    first = slice(min(part.start, a), min(part.stop, a))
    return first, slice(max(part.start - a, 0), max(part.stop - a, 0))


def coarse_inverse_of(E: Any, dtype: str, arrays: Arrays) -> Any:
    """Inverse of the coarse system (p, p), in the working precision."""
    xp = arrays.xp
    S, U = xp.linalg.eigh((E + E.T) / 2)
    # Empty groups, and eigenvalues that are zero up to rounding, are not corrected.
    known = float(S[-1]) * E.shape[0] * float(np.finfo(dtype).eps) < S
    inverse = xp.where(known, 1 / xp.where(known, S, xp.ones_like(S)), 0 * S)
    return arrays.put((U * inverse) @ U.T, dtype)


def warn_residual(residual: float, settings: Settings) -> None:
    """Warn if the linear solves did not converge."""
    if not residual <= 2 * settings.tol:  # tolerance for rounding in the recursive residual
        warnings.warn(
            f"The linear solve stopped after max_iter={settings.max_iter} iterations with a residual of "
            f"{residual:.2g}, above tol={settings.tol:.2g}. Increase max_iter, tol or nugget, or decrease strength="
            f"{settings.strength:.3g}.",
            ConvergenceWarning,
            stacklevel=4,
        )


def _indicators(codes: np.ndarray, arrays: Arrays, dtype: str) -> tuple[Any, Any]:
    """Class membership of labelled samples, by classes (c x m) and by samples (m x c)."""
    m, c = codes.size, int(codes.max(initial=-1)) + 1
    ones, samples, classes = arrays.put(np.ones(m), dtype), arrays.put(np.arange(m)), arrays.put(codes)
    return arrays.sparse(classes, samples, ones, (c, m)), arrays.sparse(samples, classes, ones, (m, c))
