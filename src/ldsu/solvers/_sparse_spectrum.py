"""The paper's filter at linear cost: the smallest pairs of ``M v = mu K^-1 v`` with the sparse solver's kernel.

``M = L_w + lam L`` is sparse, and ``K^-1 = Q - Q P (I + P^T Q P)^-1 P^T Q`` with ``Q = G^T G``, the sparse factor of
the residual. With ``v^T K^-1 v = 1`` the vectors v are the features of Algorithm 1 at the training points.

Where M is zero no iteration is needed: its null space are the vectors that are constant on each connected component of
the graph. The rest comes from a block Krylov method for ``(M + sigma K^-1)^-1 K^-1``, whose largest eigenvalues are
``1 / (mu + sigma)``. It is written as a Davidson method: the space grows by ``(M + sigma K^-1)^-1`` times residuals,
and the pairs are those of the pencil itself within that space. So the linear solves may be rough. They make it slower,
not wrong. A residual is measured by the norm that belongs to the shifted problem, ``rho^2 = res^T (M + sigma K^-1)^-1
res / (mu + sigma)``: there is an eigenvalue within ``rho (mu + sigma)`` of each mu, to first order.

What the pairs are worth: a small mu is a feature that is smooth on the graph, or one that the kernel hardly has, with
``v^T v`` tiny against ``v^T K^-1 v = 1``. Those of the second kind are many, close together, and of the smallest mu, so
they are the first to be kept. They live on the kernel's smallest eigenvalues, where the sparse factor is furthest from
the exact inverse: it knows a few neighbors only, and no conditional variance below `the nugget`. What
is found are the pairs of the approximate kernel, to the tolerance asked for. The exact kernel has more near-null
directions and smaller mu, so that unless it is far from singular the same r does not keep the same features: neither mu
nor span can be read as those of the exact solver. A larger n_conditioning brings them closer.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.sparse.csgraph import connected_components
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches

from ldsu.labels import class_counts
from ldsu.solvers._joint_system import JointSystem, conjugate_gradients
from ldsu.solvers._types import Settings
from ldsu.spectrum import fix_signs, resolve_n_components, symmetric_eigh

# Maximum number of pairs, and of graph components, whose null space is decomposed as a dense matrix.
MAX_PAIRS = 500
MAX_COMPONENTS = 4000
# sigma in units of M's mean diagonal.
SHIFT = 1e-3
# Directions added at a time, and relative residual of the solves that make them.
BLOCK = 64
SOLVE_TOLERANCE = 1e-1
# A direction with a smaller relative part orthogonal to the previous ones is dropped.
MIN_PART = 1e-10


def shifted_strength(weights: Any, codes: np.ndarray, lam: float) -> float:
    """1 / sigma, the strength of a `JointSystem` whose solves are those of this method.

    sigma is `SHIFT` of the mean diagonal of ``lam L``, from the cliques' Laplacians (n, k, k); of L_w where that is 0.
    """
    n, k = weights.shape[:2]
    counts = class_counts(codes).astype(np.float64)
    cliques = lam * float(weights.reshape(n, -1)[:, :: k + 1].sum())
    return n / (SHIFT * (cliques or float(np.sum(counts * (counts - 1))) or n))


def graph_components(members: np.ndarray, codes: np.ndarray, lam: float) -> np.ndarray:
    """Number of the connected component of M's graph that each sample is in, shape (n,).

    Samples of a clique (members (n, k)) are joined, unless lam is 0, and labelled samples of one class.
    """
    n, k = members.shape
    first, second = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    if lam > 0:
        first, second = np.repeat(members[:, 0], k), members.ravel()
    by_class = [np.flatnonzero(codes == t) for t in range(class_counts(codes).size)]
    first = np.concatenate([first, *(np.full(rows.size, rows[0]) for rows in by_class)])
    second = np.concatenate([second, *by_class])
    graph = scipy.sparse.coo_array((np.ones(first.size), (first, second)), shape=(n, n))
    return connected_components(graph, directed=False)[1]


@dataclass(frozen=True)
class Pencil:
    """M and K^-1 as operators, and an approximate inverse of ``M + sigma K^-1``."""

    system: JointSystem  # ``Q + eta M``, scaled, with ``eta = 1 / sigma``
    P: Any  # (n, p): landmark features
    inner: Any  # (p, p): ``(I + P^T Q P)^-1``
    H: Any  # (n, p): ``(Q + eta M)^-1 Q P``
    outer: Any  # (p, p): ``(I + P^T Q P - P^T Q H)^-1``
    max_iter: int  # of a linear solve

    @classmethod
    def build(cls, system: JointSystem, P: Any, max_iter: int) -> Pencil:
        """Solve for the landmarks' part of the inverse."""
        arrays = system.arrays
        p = P.shape[1]
        QP = _local(system, P)
        H = _solve_local(system, QP, max_iter)
        PQP = arrays.get(P.T @ QP)
        S, U = symmetric_eigh(np.eye(p) + _symmetric(PQP))
        inner = (U / np.maximum(S, 1)) @ U.T
        # S = I + P^T Q P - P^T Q H = I + eta P^T M H: rough solves must not take what is below the identity.
        S, U = symmetric_eigh(np.eye(p) + _symmetric(PQP - arrays.get(H.T @ QP)))
        outer = (U / np.maximum(S, 1)) @ U.T
        return cls(system, P, arrays.put(inner), H, arrays.put(outer), max_iter)

    def coefficients(self, V: Any) -> Any:
        """``W = (I + P^T Q P)^-1 P^T Q V``, the landmarks' share of V (n x q): shape (p, q)."""
        return self.inner @ (self.P.T @ _local(self.system, V))

    def precision(self, V: Any) -> Any:
        """``K^-1 @ V = Q (V - P W)``."""
        return _local(self.system, V - self.P @ self.coefficients(V))

    def graphs(self, V: Any) -> Any:
        """``M @ V``."""
        scale = self.system.scale[:, None]
        return self.system.graphs(V / scale) / (scale * self.system.strength)

    def inverse(self, R: Any) -> Any:
        """``(M + sigma K^-1)^-1 @ R``, roughly."""
        solution = _solve_local(self.system, R, self.max_iter) + self.H @ (self.outer @ (self.H.T @ R))
        return solution * self.system.strength


def _symmetric(A: np.ndarray) -> np.ndarray:
    return (A + A.T) / 2


def _local(system: JointSystem, V: Any) -> Any:
    """``Q @ V``."""
    scale = system.scale[:, None]
    return (system.G_T @ (system.G @ (V / scale))) / scale


def _solve_local(system: JointSystem, R: Any, max_iter: int) -> Any:
    """``(Q + eta M)^-1 @ R``, roughly."""
    arrays = system.arrays
    scale = system.scale[:, None]
    solution = arrays.zeros(tuple(R.shape), "float64")

    def fill(part: slice) -> None:
        X, _, _ = conjugate_gradients(
            system.apply, system.precondition, scale * R[:, part], SOLVE_TOLERANCE, max_iter, arrays.xp
        )
        solution[:, part] = scale * X

    parts = list(gen_batches(R.shape[1], arrays.columns))
    if len(parts) == 1:  # nothing for a second thread: starting one takes longer than a small solve
        fill(parts[0])
    else:
        arrays.map(fill, parts)
    return solution


def null_pairs(pencil: Pencil, component: np.ndarray, r: int) -> Any:
    """Features (n, min(r, components)) that are constant on each component of the graph, of largest variance first.

    All have mu = 0, so that any rotation of them solves the problem. Taken are those that are uncorrelated, as
    `spectrum.canonicalize_degenerate` does, with ``V^T K^-1 V = I``. `component` (n,) are the samples' components.
    """
    arrays = pencil.system.arrays
    n, c = component.size, int(component.max()) + 1
    if c > MAX_COMPONENTS:
        raise ValueError(
            f"With filter='truncate' solver='sparse' supports a graph of at most {MAX_COMPONENTS} components, but the "
            f"graph of these samples has {c}. Use a larger clique_size (and lam > 0), or solver='exact'."
        )
    C = scipy.sparse.csr_array((np.ones(n), (component, np.arange(n))), shape=(c, n))
    E = np.empty((c, c))
    for part in gen_batches(c, 256):
        E[:, part] = C @ arrays.get(pencil.precision(arrays.put(C[part].toarray().T)))
    sizes = np.bincount(component)
    # E w = 1 / variance diag(sizes) w, scaled to an ordinary problem.
    root = np.sqrt(sizes)
    S, U = scipy.linalg.eigh(_symmetric(E / root / root[:, None]))
    few = slice(min(r, c))
    return arrays.put((U[:, few] / np.sqrt(S[few]) / root[:, None])[component])


@dataclass(frozen=True)
class Pairs:
    """Smallest pairs found, and how well."""

    mu: np.ndarray  # (r,): ascending, not below zero
    V: Any  # (n, r): features at the training points, ``V^T K^-1 V = I``
    iterations: int  # blocks by which the Krylov space grew
    residual: float  # the largest rho of the pairs


def smallest_pairs(
    pencil: Pencil, null: Any, r: int, tol: float, max_iter: int, rng: np.random.Generator, block: int
) -> Pairs:
    """The r smallest pairs of ``M v = mu K^-1 v``, until every rho is at most `tol`.

    `null` (n, c) is the whole null space of M, or r vectors of it, ``null^T K^-1 null = I``. At most `max_iter` blocks
    of `block` directions are added to a space that starts from random vectors.
    """
    arrays, xp = pencil.system.arrays, pencil.system.arrays.xp
    n, c = null.shape
    wanted = r - c
    if wanted <= 0:
        return Pairs(np.zeros(r), null, 0, 0.0)
    sigma = 1 / pencil.system.strength
    most = space_size(n - c, wanted, block)
    basis = arrays.zeros((n, c + most), "float64")
    basis[:, :c] = null
    q = 0  # columns beside the null space
    A = np.zeros((most, most))  # M within them

    def grow(directions: Any) -> bool:
        """Add what is new in these directions; False if nothing is."""
        nonlocal q
        new = orthonormal(pencil, basis[:, : c + q], directions)[:, : most - q]
        added = new.shape[1]
        if added:
            basis[:, c + q : c + q + added] = new
            A[: q + added, q : q + added] = arrays.get(basis[:, c : c + q + added].T @ pencil.graphs(new))
            A[q : q + added, :q] = A[:q, q : q + added].T
            q += added
        return bool(added)

    grow(pencil.inverse(arrays.put(rng.standard_normal((n, min(max(block, wanted), most))))))
    while q < wanted:
        grow(arrays.put(rng.standard_normal((n, wanted - q))))
    rho = np.full(wanted, np.inf)
    steps, stuck = 1, False
    while True:
        mu, T = symmetric_eigh(_symmetric(A[:q, :q]))
        # Improve the first pairs that have not converged; check all before the end.
        stale = np.flatnonzero(rho > tol)
        ending = stuck or q == n - c or steps >= max_iter
        check = stale[:block] if stale.size and not ending else np.arange(wanted)
        Y = basis[:, c : c + q] @ arrays.put(T[:, check])
        residuals = pencil.graphs(Y) - pencil.precision(Y) * arrays.put(mu[check])
        directions = pencil.inverse(residuals)
        squares = arrays.get((residuals * directions).sum(axis=0))
        rho[check] = np.sqrt(np.maximum(squares, 0) / (np.maximum(mu[check], 0) + sigma))
        if ending or (check.size == wanted and rho.max() <= tol):
            break
        poor = np.flatnonzero(rho[check] > tol)[:block]
        if not poor.size:
            continue
        if q == most:  # start again from the best of the space
            q = wanted + 2 * block
            basis[:, c : c + q] = basis[:, c:] @ arrays.put(T[:, :q])
            A[:] = 0
            A[np.arange(q), np.arange(q)] = mu[:q]
        stuck = not grow(directions[:, arrays.put(poor)])
        steps += 1
    V = xp.concatenate([null, basis[:, c : c + q] @ arrays.put(T[:, :wanted])], axis=1)
    return Pairs(np.concatenate([np.zeros(c), np.maximum(mu[:wanted], 0)]), V, steps, float(rho.max()))


def orthonormal(pencil: Pencil, basis: Any, directions: Any) -> Any:
    """What directions (n x b) add to a basis (n x q), orthonormal under K^-1: shape (n, at most b)."""
    arrays, xp = pencil.system.arrays, pencil.system.arrays.xp
    E = pencil.precision(directions)
    lengths = xp.sqrt(xp.clip((directions * E).sum(axis=0), 0, None))
    used = lengths > 0
    directions, E = directions[:, used] / lengths[used], E[:, used] / lengths[used]
    for _ in range(2):
        directions = directions - basis @ (basis.T @ E)
        E = pencil.precision(directions)
        S, U = symmetric_eigh(_symmetric(arrays.get(directions.T @ E)))
        rotation = arrays.put(U[:, S > MIN_PART] / np.sqrt(S[S > MIN_PART]))
        directions, E = directions @ rotation, E @ rotation
    return directions


def truncated_features(
    system: JointSystem, P: Any, members: Any, codes: np.ndarray, settings: Settings
) -> tuple[Pairs, Any]:
    """The features that filter="truncate" keeps, at the training points, and the landmarks' share W (p, r) of them.

    The system is in double precision, with the strength `shifted_strength`; `members` (n, k) are those of the cliques.
    Features of a new point x are ``p(x)^T W + w(x)^T (V - P W)_N``.
    """
    arrays = system.arrays
    n = codes.shape[0]
    r = resolve_n_components(settings.n_components, n)
    pencil = Pencil.build(system, P, settings.max_iter)
    null = null_pairs(pencil, graph_components(arrays.get(members), codes, settings.lam), r)
    rng = np.random.default_rng(settings.random_state)
    pairs = smallest_pairs(pencil, null, r, settings.tol, settings.max_iter, rng, BLOCK)
    if pairs.residual > settings.tol:
        warnings.warn(
            f"The smallest eigenpairs did not converge: after {pairs.iterations} iterations (max_iter="
            f"{settings.max_iter}) the residual is {pairs.residual:.2g}, above tol={settings.tol:.2g}. Increase "
            f"max_iter or tol, or decrease n_components={settings.n_components}.",
            ConvergenceWarning,
            stacklevel=3,
        )
    # Signs as the exact solver has them: by the coefficients K^-1 V of the training points.
    coefficients = arrays.get(pencil.precision(pairs.V))
    signs = np.sign((fix_signs(coefficients.copy()) * coefficients).sum(axis=0))
    V = pairs.V * arrays.put(np.where(signs < 0, -1.0, 1.0))
    return replace(pairs, V=V), pencil.coefficients(V)


def pairs_memory(n: int, p: int, settings: Settings) -> int:
    """Bytes beside those of the sparse solver's system: the space with its restart, and a few blocks."""
    r = resolve_n_components(settings.n_components, n)
    return 8 * n * (2 * space_size(n, r, BLOCK) + 2 * p + 8 * BLOCK)


def space_size(n: int, wanted: int, block: int) -> int:
    """Most directions that are held at a time for so many pairs."""
    return min(n, max(3 * wanted, wanted + 8 * block))
