"""The exact solver: dense kernel matrix, no approximation.

Two roads. The spectral one (Algorithm 1 of the paper) decomposes K and then the joint problem; it serves every filter,
and its first half, a `KernelBasis`, can be reused. The direct one is for "tikhonov" alone: the filtered kernel at the
anchors is one linear solve.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from ldsu.expansion import KernelExpansion
from ldsu.filters import SMOOTH_FILTERS
from ldsu.graphs import class_laplacian_rows, local_discriminant_graph
from ldsu.kernels import Kernel
from ldsu.progress import Stages
from ldsu.solvers._seam import Settings, Solution
from ldsu.spectrum import (
    EPS,
    KernelBasis,
    ShiftedSolve,
    SymmetricEigh,
    fix_signs,
    numerical_rank,
    settle_degenerate,
    settle_n_components,
    solve_shifted,
    symmetric_eigh,
)

# n x n arrays alive at the peak. Direct: K, M K with its LU factors in place, and one while the kernel is made.
# Spectral: coordinates, joint matrix, its product with M, and LAPACK's workspace of two for "evd".
MATRICES = {"direct": 3, "spectral": 5}
TRIANGLE_BLOCKS = 6
# A solve whose symmetric result comes out less symmetric than this has lost its accuracy.
ASYMMETRY = 1e-8


def road(settings: Settings, basis: KernelBasis | None) -> str:
    """Which way to go: "direct" where no decomposition is needed and none is given, else "spectral"."""
    return "direct" if settings.filter == "tikhonov" and basis is None else "spectral"


def exact_memory(X: Any, codes: np.ndarray, settings: Settings, *, basis: KernelBasis | None) -> int:
    """Bytes the exact solver holds at its peak: `MATRICES`, and a few arrays with a row for each sample."""
    n = X.shape[0]
    if settings.filter == "truncate":
        columns = settle_n_components(settings.n_components, n)
    else:
        columns = 6 * max(int(np.sum(codes >= 0)), settings.min_anchors)
    return 8 * n * (MATRICES[road(settings, basis)] * n + columns)


def solve_exact(
    X: Any, codes: np.ndarray, kernel: Kernel, settings: Settings, *, basis: KernelBasis | None, stages: Stages
) -> Solution:
    """Minimise ``tr(a^T K (L_w + lam L) K a)`` subject to ``a^T K a = I``, or filter K smoothly by the same spectrum.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
    codes : ndarray of shape (n,)
        Class numbers, -1 where unlabelled.
    kernel : Kernel
    settings : Settings
    basis : KernelBasis or None
        The decomposed kernel matrix of X, if the caller has it.
    stages : Stages
    """
    with stages("kernel"):
        K = kernel.train_matrix(X) if basis is None or settings.cliques_in_kernel_space else np.empty((0, 0))
    with stages("graphs"):
        L, theta = local_discriminant_graph(
            X,
            K if settings.cliques_in_kernel_space else None,
            clique_size=settings.clique_size,
            theta=settings.theta,
            relative=settings.relative,
        )
    eps = kernel.precision(X)
    answer = None
    if road(settings, basis) == "direct":
        answer = _direct(K, L, codes, settings, eps, stages)
    if answer is None:
        if basis is None:
            with stages("decompose kernel"):
                basis = KernelBasis.from_kernel_matrix(K, eps=eps)
        answer = _spectral(basis, L, codes, settings, eps, stages)
    coefficients, eigenvalues, anchors = answer
    feature_map = KernelExpansion(kernel, kernel.support(X), coefficients)
    return Solution(feature_map, coefficients, eigenvalues, anchors, L, theta)


Answer = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def _spectral(
    basis: KernelBasis, L: scipy.sparse.csr_array, codes: np.ndarray, settings: Settings, eps: float, stages: Stages
) -> Answer:
    """Coefficients, eigenvalues and anchors from the coordinates B of the kernel, ``K = B B^T``."""
    with stages("project graphs"):
        S = project(basis.coordinates, L, codes, settings.lam)
    with stages("decompose graphs"):
        T, eigenvalues, anchors = spectral_directions(basis, S, codes, settings, eps)
    with stages("features"):
        coefficients = basis.coefficients(T)
        return fix_signs(coefficients) if anchors is None else coefficients, eigenvalues, anchors


def spectral_directions(
    basis: KernelBasis,
    S: np.ndarray,
    codes: np.ndarray,
    settings: Settings,
    eps: float = EPS,
    eigh: SymmetricEigh = symmetric_eigh,
    solve: ShiftedSolve = solve_shifted,
) -> Answer:
    """Directions of the coordinates B that a filter keeps, their eigenvalues, and the anchors.

    Parameters
    ----------
    basis : KernelBasis
        Its coordinates are B (n x q).
    S : ndarray of shape (q, q)
        ``B^T (L_w + lam L) B``; the lower triangle is read, and all of it overwritten.
    codes : ndarray of shape (n,)
    settings : Settings
    eps : float
        Relative error of the kernel.
    eigh, solve : callable
        How a symmetric matrix is decomposed, and a system with it solved.

    Returns
    -------
    T : ndarray of shape (q, r)
        Features are ``B @ T``.
    eigenvalues : ndarray of shape (r,)
    anchors : ndarray of int or None
    """
    B = basis.coordinates
    if settings.filter == "truncate":
        mu, omega = eigh(S)
        r = settle_n_components(settings.n_components, basis.rank)
        settle_degenerate(mu, omega, basis.eigenvalues, r)
        return omega[:, :r], np.maximum(mu[:r], 0), None
    diagonal = np.einsum("ij,ij->i", B, B)
    strength = settle_strength(settings, float(diagonal.mean()))
    anchors = choose_anchors(
        codes, settings.min_anchors, lambda i: B @ B[i], diagonal, lambda: B @ B.sum(axis=0), eps=eps
    )
    B_A = B[anchors]
    if settings.filter == "tikhonov":
        S *= strength
        S.flat[:: basis.rank + 1] += 1
        filtered = solve(S, B_A.T, 1.0)  # (I + strength S)^-1 B_A^T, shape (q, |A|)
    else:
        mu, omega = eigh(S)
        kept = SMOOTH_FILTERS[settings.filter](np.maximum(mu, 0), strength)
        filtered = omega @ (kept[:, None] * (omega.T @ B_A.T))
    return *_anchored(
        filtered, B_A @ filtered, float(diagonal.sum()), settings, eps, basis.coordinates.shape[0]
    ), anchors


def _direct(
    K: np.ndarray, L: scipy.sparse.csr_array, codes: np.ndarray, settings: Settings, eps: float, stages: Stages
) -> Answer | None:
    """The Tikhonov filter by one linear solve: ``C = (I + strength M K)^-1 E_A``, ``Kt_AA = K_A: C``.

    None where the solve lost its accuracy, which shows in the asymmetry of Kt_AA.
    """
    n = K.shape[0]
    diagonal = K.diagonal()
    with stages("solve"):
        anchors = choose_anchors(
            codes, settings.min_anchors, lambda i: K[:, i], diagonal, lambda: K.sum(axis=0), eps=eps
        )
        MK = joint_dot(L, codes, settings.lam, K)
        MK *= settle_strength(settings, float(diagonal.mean()))
        MK.flat[:: n + 1] += 1
        C = np.zeros((n, anchors.size))
        C[anchors, np.arange(anchors.size)] = 1
        # The transpose of a C-ordered matrix is what LAPACK reads without a copy; trans=1 undoes it.
        factor = scipy.linalg.lu_factor(MK.T, overwrite_a=True, check_finite=False)
        C = scipy.linalg.lu_solve(factor, C, trans=1, overwrite_b=True, check_finite=False)
        Kt_AA = K[anchors] @ C
        if not np.abs(Kt_AA - Kt_AA.T).max(initial=0) <= ASYMMETRY * np.abs(Kt_AA).max(initial=0):
            return None
    with stages("features"):
        return *_anchored(C, Kt_AA, float(diagonal.sum()), settings, eps, n), anchors


def _anchored(
    C: np.ndarray, Kt_AA: np.ndarray, trace: float, settings: Settings, eps: float, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Lossless short features ``z(x) = S^-1/2 U^T Kt(A, x)`` from ``Kt(x, A) = k(x, X) C`` and ``Kt_AA = U S U^T``.

    They have the inner products of Kt on everything a classifier trained at the anchors can see. C may stand for any
    linear map of which ``Kt(., A)`` is made. What is zero is read in the units of K (n x n), of which Kt is computed:
    `trace` is K's.
    """
    if not (np.all(np.isfinite(C)) and np.all(np.isfinite(Kt_AA))):
        raise ValueError(
            f"strength = {settings.strength:.3g} with lam = {settings.lam:.3g} overflows for these data. "
            "Use smaller ones."
        )
    S, U = symmetric_eigh((Kt_AA + Kt_AA.T) / 2)
    rank = numerical_rank(S, n, eps=eps, unit=trace)
    if rank == 0:
        raise ValueError(
            f"No feature is left: the kernel is zero, or strength = {settings.strength:.3g} damps all of it."
        )
    r = settle_n_components(settings.n_components, rank)
    S, U = S[::-1][:r], fix_signs(U[:, ::-1][:, :r])
    return C @ (U / np.sqrt(S)), S


def settle_strength(settings: Settings, typical_diagonal: float) -> float:
    """The filter's strength in the units of K: as given, or divided by K's mean diagonal."""
    return settings.strength / (typical_diagonal or 1.0) if settings.relative else settings.strength


def joint_dot(L: scipy.sparse.csr_array, codes: np.ndarray, lam: float, Z: np.ndarray) -> np.ndarray:
    """``M @ Z = (L_w + lam L) @ Z`` for Z (n x q)."""
    product = L @ Z
    product *= lam
    for members, rows in class_laplacian_rows(codes, Z):
        product[members] += rows
    return product


def project(B: np.ndarray, L: scipy.sparse.csr_array, codes: np.ndarray, lam: float) -> np.ndarray:
    """``B^T M B`` for B (n x q), in the lower triangle alone: the rest of the (q, q) result is not meant to be read."""
    MB = joint_dot(L, codes, lam, B)
    q = B.shape[1]
    S = np.zeros((q, q), order="F")
    edges = np.linspace(0, q, TRIANGLE_BLOCKS + 1).astype(int)
    for start, stop in itertools.pairwise(edges):
        S[start:, start:stop] = (MB[:, start:stop].T @ B[:, start:]).T  # transposed: in the order of S
    return S


def class_projection(B: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two factors (q x m), (m x q) of ``B^T L_w B`` for B (n x q): its part that depends on labels, of low rank."""
    rows = list(class_laplacian_rows(codes, B))
    labelled = np.concatenate([members for members, _ in rows])
    return B[labelled].T, np.vstack([L_wB for _, L_wB in rows])


def choose_anchors(
    codes: np.ndarray,
    min_anchors: int,
    column: Callable[[int], np.ndarray],
    diagonal: np.ndarray,
    column_sums: Callable[[], np.ndarray],
    *,
    eps: float,
) -> np.ndarray:
    """The labelled points, and landmarks where there are fewer than `min_anchors` of them.

    Landmarks are taken greedily where the kernel is least explained so far (pivoted Cholesky); the first one, where
    nothing is labelled, is the point most like all others. So they follow the data, not the order of the rows.

    Parameters
    ----------
    codes : ndarray of shape (n,)
    min_anchors : int
    column : callable
        ``column(i)`` is the i-th column of K.
    diagonal : ndarray of shape (n,)
        Of K.
    column_sums : callable
        ``column_sums()`` are the sums of the columns of K.
    eps : float
        Relative error of the entries of K.
    """
    labelled = np.flatnonzero(codes >= 0)
    n = codes.shape[0]
    if labelled.size >= min(min_anchors, n):
        return labelled
    residual = np.array(diagonal, dtype=np.float64)
    smallest = n * eps * residual.max()
    factor = np.zeros((n, min_anchors))
    chosen: list[int] = []
    queue = labelled.tolist()
    while len(chosen) < min(min_anchors, n):
        if queue:
            pivot = queue.pop(0)
        else:
            pivot = int(residual.argmax()) if chosen else int(column_sums().argmax())
            if residual[pivot] <= smallest:
                break
        step = len(chosen)
        chosen.append(pivot)
        if residual[pivot] > smallest:
            factor[:, step] = column(pivot) - factor[:, :step] @ factor[pivot, :step]
            factor[:, step] /= np.sqrt(residual[pivot])
            residual -= factor[:, step] ** 2
        residual[pivot] = 0
    return np.array(chosen, dtype=np.int64)
