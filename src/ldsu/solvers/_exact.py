"""The exact solver: dense kernel matrix, no approximation.

There are two algorithms. The spectral algorithm (Algorithm 1 of the paper) decomposes K and then the joint problem; it
supports every filter, and its first half, a `KernelBasis`, can be reused. The direct algorithm is only for "tikhonov":
the filtered kernel at the anchors is one linear solve. Both run on ``settings.device``: samples and sparse graphs are
moved there, eigenvalues and coefficients back, and n x n matrices are not transferred.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from ldsu._utils.arrays import CPU, Arrays, arrays_on
from ldsu._utils.memory import require_memory
from ldsu._utils.stages import Stages
from ldsu.graphs import class_laplacian_rows, local_discriminant_graph
from ldsu.kernels import Kernel
from ldsu.solvers._expansion import KernelExpansion
from ldsu.solvers._filters import SMOOTH_FILTERS
from ldsu.solvers._types import Settings, Solution
from ldsu.spectrum import (
    EPS,
    KernelBasis,
    canonicalize_degenerate,
    fix_signs,
    numerical_rank,
    resolve_n_components,
)

# n x n arrays alive at the peak. Direct: K, M K with its LU factors in place, and one while the kernel is computed.
# Spectral: coordinates, joint matrix, its product with M, and LAPACK's workspace of two for "evd".
MATRICES = {"direct": 3, "spectral": 5}
# The same with PyTorch, which overwrites less: measured on a GPU by benchmarks/gpu.py.
DEVICE_MATRICES = {"direct": 4, "spectral": 8}
# In main memory, if the kernel is computed on the CPU and moved to a GPU: the kernel, and copies for its validation.
MOVED_MATRICES = 3
TRIANGLE_BLOCKS = 6
# Maximum relative asymmetry of a result that is symmetric in exact arithmetic; above it, the solve is inaccurate.
ASYMMETRY = 1e-8


def algorithm(settings: Settings, basis: KernelBasis | None) -> str:
    """Algorithm to use: "direct" if no decomposition is needed or given, else "spectral"."""
    return "direct" if settings.filter == "tikhonov" and basis is None else "spectral"


def exact_memory(X: Any, codes: np.ndarray, settings: Settings, *, basis: KernelBasis | None) -> int:
    """Peak main memory of the exact solver, in bytes; for a GPU, only of the results."""
    n = X.shape[0]
    matrices = MATRICES[algorithm(settings, basis)]
    if settings.device.startswith("cuda"):
        matrices = MOVED_MATRICES if settings.cliques_in_kernel_space or scipy.sparse.issparse(X) else 0
    return 8 * n * (matrices * n + _columns(n, codes, settings))


def _columns(n: int, codes: np.ndarray, settings: Settings) -> int:
    """Numbers stored per sample, in addition to n x n matrices."""
    if settings.filter == "truncate":
        return resolve_n_components(settings.n_components, n)
    return 6 * max(int(np.sum(codes >= 0)), settings.min_anchors)


def solve_exact(
    X: Any, codes: np.ndarray, kernel: Kernel, settings: Settings, *, basis: KernelBasis | None, stages: Stages
) -> Solution:
    """Minimize ``tr(a^T K (L_w + lam L) K a)`` subject to ``a^T K a = I``, or filter K smoothly by the same spectrum.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
    codes : ndarray of shape (n,)
        Class numbers, -1 where unlabelled.
    kernel : Kernel
    settings : Settings
    basis : KernelBasis or None
        The decomposed kernel matrix of X, if available.
    stages : Stages
    """
    arrays = arrays_on(settings.device)
    if arrays.xp is not np:
        n = X.shape[0]
        require_memory(
            8 * n * (DEVICE_MATRICES[algorithm(settings, basis)] * n + _columns(n, codes, settings)),
            f"The exact solver for {n} samples on device {settings.device!r}",
            "Use fewer samples, or device='cpu'.",
            arrays.free_memory(),
        )
    with stages("kernel"):
        needed = basis is None or settings.cliques_in_kernel_space
        K = kernel.train_matrix(X, arrays) if needed else np.empty((0, 0))
    with stages("graphs"):
        L, theta = local_discriminant_graph(
            X,
            K if settings.cliques_in_kernel_space else None,
            clique_size=settings.clique_size,
            theta=settings.theta,
            relative=settings.relative,
            arrays=arrays,
        )
        graph = arrays.put_sparse(L)
    eps = kernel.precision(X)
    result = None
    if algorithm(settings, basis) == "direct":
        result = _direct(K, graph, codes, settings, eps, stages, arrays)
    if result is None:
        if basis is None:
            with stages("decompose kernel"):
                basis = KernelBasis.from_kernel_matrix(K, eps=eps, arrays=arrays)
        else:
            basis = replace(basis, coordinates=arrays.put(basis.coordinates))
        del K  # free memory for the second decomposition
        result = _spectral(basis, graph, codes, settings, eps, stages, arrays)
    coefficients, eigenvalues, anchors = result
    with stages("features"):
        coefficients = arrays.get(coefficients)
        feature_map = KernelExpansion(kernel, kernel.support(X), coefficients, device=settings.device)
    return Solution(feature_map, coefficients, eigenvalues, anchors, lambda: L, theta)


# Coefficients or directions (on the device), eigenvalues and anchors.
Result = tuple[Any, np.ndarray, np.ndarray | None]


def _spectral(
    basis: KernelBasis, L: Any, codes: np.ndarray, settings: Settings, eps: float, stages: Stages, arrays: Arrays
) -> Result:
    """Coefficients, eigenvalues and anchors from the coordinates B of the kernel, ``K = B B^T``."""
    with stages("project graphs"):
        S = project(basis.coordinates, L, codes, settings.lam, arrays)
    with stages("decompose graphs"):
        T, eigenvalues, anchors = spectral_directions(basis, S, codes, settings, eps, arrays)
    with stages("features"):
        coefficients = basis.coefficients(T, arrays)
        return fix_signs(coefficients, arrays) if anchors is None else coefficients, eigenvalues, anchors


def spectral_directions(
    basis: KernelBasis, S: Any, codes: np.ndarray, settings: Settings, eps: float = EPS, arrays: Arrays = CPU
) -> Result:
    """Directions of the coordinates B that a filter keeps, their eigenvalues, and the anchors.

    Parameters
    ----------
    basis : KernelBasis
        Its coordinates are B (n x q).
    S : array of shape (q, q)
        ``B^T (L_w + lam L) B``; only the lower triangle is read. Overwritten.
    codes : ndarray of shape (n,)
    settings : Settings
    eps : float
        Relative error of the kernel.
    arrays : Arrays
        Device of B and S.

    Returns
    -------
    T : array of shape (q, r)
        Features are ``B @ T``.
    eigenvalues : ndarray of shape (r,)
    anchors : ndarray of int or None
    """
    B = basis.coordinates
    if settings.filter == "truncate":
        mu, omega = arrays.eigh(S)
        r = resolve_n_components(settings.n_components, basis.rank)
        canonicalize_degenerate(mu, omega, basis.eigenvalues, r, arrays)
        return omega[:, :r], np.maximum(mu[:r], 0), None
    get = arrays.get
    diagonal = get(arrays.xp.einsum("ij,ij->i", B, B))
    strength = scaled_strength(settings, float(diagonal.mean()))
    anchors = choose_anchors(
        codes, settings.min_anchors, lambda i: get(B @ B[i]), diagonal, lambda: get(B @ B.sum(axis=0)), eps=eps
    )
    B_A = B[arrays.put(anchors)]
    if settings.filter == "tikhonov":
        S *= strength
        _add_identity(S, arrays)
        filtered = arrays.solve(S, B_A.T, 1.0)  # (I + strength S)^-1 B_A^T, shape (q, |A|)
    else:
        mu, omega = arrays.eigh(S)
        kept = arrays.put(SMOOTH_FILTERS[settings.filter](np.maximum(mu, 0), strength))
        filtered = omega @ (kept[:, None] * (omega.T @ B_A.T))
    return *anchor_features(
        filtered, B_A @ filtered, float(diagonal.sum()), settings, eps, basis.coordinates.shape[0], arrays
    ), anchors


def _add_identity(A: Any, arrays: Arrays) -> None:
    diagonal = arrays.put(np.arange(A.shape[0]))
    A[diagonal, diagonal] += 1


def _direct(
    K: Any, L: Any, codes: np.ndarray, settings: Settings, eps: float, stages: Stages, arrays: Arrays
) -> Result | None:
    """The Tikhonov filter by one linear solve: ``C = (I + strength M K)^-1 E_A``, ``Kt_AA = K_A: C``.

    None if the solve is inaccurate, which is detected by the asymmetry of Kt_AA.
    """
    n = K.shape[0]
    get, xp = arrays.get, arrays.xp
    diagonal = get(K.diagonal())
    with stages("solve"):
        anchors = choose_anchors(
            codes, settings.min_anchors, lambda i: get(K[:, i]), diagonal, lambda: get(K.sum(axis=0)), eps=eps
        )
        MK = joint_dot(L, codes, settings.lam, K)
        MK *= scaled_strength(settings, float(diagonal.mean()))
        _add_identity(MK, arrays)
        at = arrays.put(anchors)
        C = arrays.zeros((n, anchors.size), "float64")
        C[at, arrays.put(np.arange(anchors.size))] = 1
        C = arrays.lu_solve(MK, C)
        Kt_AA = K[at] @ C
        if not xp.isfinite(Kt_AA).all():
            return None
        if anchors.size and not xp.abs(Kt_AA - Kt_AA.T).max() <= ASYMMETRY * xp.abs(Kt_AA).max():
            return None
    with stages("features"):
        return *anchor_features(C, Kt_AA, float(diagonal.sum()), settings, eps, n, arrays), anchors


def filtered_labelled_kernel(K: np.ndarray, L: Any, labelled: np.ndarray, strength: float) -> np.ndarray:
    """Entries of ``(K^-1 + strength L)^-1`` at the labelled points, strength in units of K's mean diagonal."""
    if strength == 0:
        return K[np.ix_(labelled, labelled)]
    LK = L @ K
    LK *= strength / (float(K.diagonal().mean()) or 1.0)
    _add_identity(LK, CPU)
    C = np.zeros((K.shape[0], labelled.size))
    C[labelled, np.arange(labelled.size)] = 1
    G: np.ndarray = K[labelled] @ CPU.lu_solve(LK, C)
    return (G + G.T) / 2


def anchor_features(
    C: Any, Kt_AA: Any, trace: float, settings: Settings, eps: float, n: int, arrays: Arrays = CPU
) -> tuple[Any, np.ndarray]:
    """Lossless features ``z(x) = S^-1/2 U^T Kt(A, x)`` from ``Kt(x, A) = k(x, X) C`` and ``Kt_AA = U S U^T``.

    Their inner products with features of the anchors equal those of Kt, so a classifier trained at the anchors loses
    nothing. C may be any linear map that gives ``Kt(., A)``. The numerical rank is relative to `trace`, the trace of K
    (n x n).
    """
    xp = arrays.xp
    if not (bool(xp.isfinite(C).all()) and bool(xp.isfinite(Kt_AA).all())):
        raise ValueError(
            f"strength = {settings.strength:.3g} with lam = {settings.lam:.3g} overflows for these data. "
            "Use smaller values."
        )
    S, U = arrays.eigh((Kt_AA + Kt_AA.T) / 2)
    rank = numerical_rank(S, n, eps=eps, unit=trace)
    if rank == 0:
        raise ValueError(
            f"No features are left: the kernel is zero, or strength = {settings.strength:.3g} removes all of it."
        )
    r = resolve_n_components(settings.n_components, rank)
    S, U = S[::-1][:r], fix_signs(xp.flip(U, (1,))[:, :r], arrays)
    return C @ (U / arrays.put(np.sqrt(S))), S


def scaled_strength(settings: Settings, typical_diagonal: float) -> float:
    """The filter's strength in the units of K: as given, or divided by K's mean diagonal."""
    return settings.strength / (typical_diagonal or 1.0) if settings.relative else settings.strength


def joint_dot(L: Any, codes: np.ndarray, lam: float, Z: Any) -> Any:
    """``M @ Z = (L_w + lam L) @ Z`` for a sparse L and Z (n x q), on any device."""
    product = L @ Z
    product *= lam
    for members, rows in class_laplacian_rows(codes, Z):
        product[members] += rows
    return product


def project(B: Any, L: Any, codes: np.ndarray, lam: float, arrays: Arrays = CPU) -> Any:
    """``B^T M B`` for B (n x q): only the lower triangle of the (q, q) result is defined."""
    MB = joint_dot(L, codes, lam, B)
    q = B.shape[1]
    S = arrays.zeros((q, q), "float64").T  # in LAPACK's order
    edges = np.linspace(0, q, TRIANGLE_BLOCKS + 1).astype(int)
    for start, stop in itertools.pairwise(edges):
        S[start:, start:stop] = (MB[:, start:stop].T @ B[:, start:]).T  # transposed: in the order of S
    return S


def class_projection(B: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two factors (q x m), (m x q) of ``B^T L_w B`` for B (n x q), the low-rank part that depends on labels."""
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
    """The labelled points, with landmarks added up to `min_anchors`.

    Landmarks are chosen greedily by the largest residual of the kernel (pivoted Cholesky); without labels, the first is
    the point with the largest kernel sum. The choice does not depend on the order of the rows.

    Parameters
    ----------
    codes : ndarray of shape (n,)
    min_anchors : int
    column : callable
        ``column(i)`` is the i-th column of K.
    diagonal : ndarray of shape (n,)
        Diagonal of K.
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
