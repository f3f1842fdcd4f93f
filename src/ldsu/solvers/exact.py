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
from ldsu.graphs import class_laplacian_dot, local_discriminant_graph
from ldsu.kernels import Kernel
from ldsu.progress import Stages
from ldsu.solvers._seam import Settings, Solution
from ldsu.spectrum import KernelBasis, fix_signs, numerical_rank, settle_degenerate, settle_n_components, symmetric_eigh

# n x n arrays alive at the peak: K, M K and its LU factors in place, one more while the kernel is made; against
# coordinates, joint matrix and LAPACK's workspace of two for "evd".
MATRICES = {"direct": 3, "spectral": 5}
TRIANGLE_BLOCKS = 4


def exact_memory(n: int, settings: Settings) -> int:
    """Bytes the exact solver holds at its peak for n samples (see `MATRICES`), beside X itself."""
    road = "direct" if settings.filter == "tikhonov" else "spectral"
    return MATRICES[road] * n * n * 8


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
    K = None
    if basis is None or settings.cliques_in_kernel_space:
        with stages("kernel"):
            K = kernel.train_matrix(X)
    with stages("graphs"):
        L, theta = local_discriminant_graph(
            X,
            K if settings.cliques_in_kernel_space else None,
            clique_size=settings.clique_size,
            theta=settings.theta,
            relative=settings.relative,
        )
    if K is not None and basis is None and settings.filter == "tikhonov":
        coefficients, eigenvalues, anchors = _direct(K, L, codes, settings, stages)
    else:
        if basis is None:
            assert K is not None
            with stages("decompose kernel"):
                basis = KernelBasis.from_kernel_matrix(K, X, kernel)
        coefficients, eigenvalues, anchors = _spectral(basis, L, codes, settings, stages)
    return Solution(
        KernelExpansion(kernel, kernel.support(X), coefficients), coefficients, eigenvalues, anchors, L, theta
    )


def _spectral(
    basis: KernelBasis, L: scipy.sparse.csr_array, codes: np.ndarray, settings: Settings, stages: Stages
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    with stages("project graphs"):
        S = project(basis.coordinates, L, codes, settings.lam)
    with stages("decompose graphs"):
        mu, omega = symmetric_eigh(S)
        mu = np.maximum(mu, 0)
    with stages("features"):
        if settings.filter == "truncate":
            r = settle_n_components(settings.n_components, basis.rank)
            settle_degenerate(mu, omega, basis.eigenvalues, r)
            return fix_signs(basis.coefficients(omega[:, :r])), mu[:r], None
        B = basis.coordinates
        typical = float(np.einsum("ij,ij->", B, B) / B.shape[0])
        kept = SMOOTH_FILTERS[settings.filter](mu, settle_strength(settings, typical))
        anchors = choose_anchors(
            codes, settings.min_anchors, lambda i: B @ B[i], np.einsum("ij,ij->i", B, B), lambda: B @ B.sum(axis=0)
        )
        at_anchors = omega.T @ B[anchors].T  # (rank, |A|): the anchors in the eigenbasis of the joint problem
        C = basis.coefficients(omega @ (kept[:, None] * at_anchors))
        return *_anchored(C, at_anchors.T @ (kept[:, None] * at_anchors), settings), anchors


def _direct(
    K: np.ndarray, L: scipy.sparse.csr_array, codes: np.ndarray, settings: Settings, stages: Stages
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Anchored features of the Tikhonov filter: ``C = (I + strength M K)^-1 E_A``, ``Kt_AA = K_A: C``."""
    n = K.shape[0]
    diagonal = K.diagonal()
    with stages("solve"):
        anchors = choose_anchors(codes, settings.min_anchors, lambda i: K[:, i], diagonal, lambda: K.sum(axis=0))
        MK = joint_dot(L, codes, settings.lam, K)
        MK *= settle_strength(settings, float(diagonal.mean()))
        MK.flat[:: n + 1] += 1
        C = np.zeros((n, anchors.size))
        C[anchors, np.arange(anchors.size)] = 1
        # The transpose of a C-ordered matrix is what LAPACK reads without a copy; trans=1 undoes it.
        C = scipy.linalg.lu_solve(
            scipy.linalg.lu_factor(MK.T, overwrite_a=True, check_finite=False),
            C,
            trans=1,
            overwrite_b=True,
            check_finite=False,
        )
    with stages("features"):
        return *_anchored(C, K[anchors] @ C, settings), anchors


def _anchored(C: np.ndarray, Kt_AA: np.ndarray, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Lossless short features ``z(x) = S^-1/2 U^T Kt(A, x)`` from ``Kt(x, A) = k(x, X) C`` and ``Kt_AA = U S U^T``.

    They have the inner products of Kt on everything a classifier trained at the anchors can see.
    """
    if not (np.all(np.isfinite(C)) and np.all(np.isfinite(Kt_AA))):
        raise ValueError(
            f"strength = {settings.strength:.3g} with lam = {settings.lam:.3g} overflows for these data. "
            "Use smaller ones."
        )
    # The eigenvalues of Kt are at most those of K, whose rounding error is the unit in which "zero" must be read.
    S, U = symmetric_eigh((Kt_AA + Kt_AA.T) / 2)
    rank = numerical_rank(S, C.shape[0])
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
    labelled = np.flatnonzero(codes >= 0)
    product[labelled] += class_laplacian_dot(codes[labelled], Z[labelled])
    return product


def project(B: np.ndarray, L: scipy.sparse.csr_array, codes: np.ndarray, lam: float) -> np.ndarray:
    """``B^T M B`` for B (n x q), in the lower triangle alone: the rest of the (q, q) result is not meant to be read."""
    MB = joint_dot(L, codes, lam, B)
    q = B.shape[1]
    S = np.zeros((q, q), order="F")
    edges = np.linspace(0, q, TRIANGLE_BLOCKS + 1).astype(int)
    for start, stop in itertools.pairwise(edges):
        S[start:, start:stop] = B[:, start:].T @ MB[:, start:stop]
    return S


def choose_anchors(
    codes: np.ndarray,
    min_anchors: int,
    column: Callable[[int], np.ndarray],
    diagonal: np.ndarray,
    column_sums: Callable[[], np.ndarray],
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
    """
    labelled = np.flatnonzero(codes >= 0)
    n = codes.shape[0]
    if labelled.size >= min(min_anchors, n):
        return labelled
    residual = np.array(diagonal, dtype=np.float64)
    smallest = n * np.finfo(diagonal.dtype).eps * residual.max()
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
