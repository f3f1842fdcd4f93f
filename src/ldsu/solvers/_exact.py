"""The exact solver: dense kernel matrix, no approximation.

There are two algorithms. The direct algorithm is for "tikhonov": one linear solve gives the filtered kernel at the
anchors. The spectral algorithm (Algorithm 1 of the paper) decomposes K and then the joint problem; it supports every
filter, and serves many settings at once. Both run on the device of the problem: samples and sparse graphs are moved
there, eigenvalues and coefficients back, and n x n matrices are not transferred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ldsu._utils.arrays import CPU, Arrays
from ldsu._utils.memory import require_memory
from ldsu.graphs import class_laplacian_rows
from ldsu.kernels import Kernel
from ldsu.labels import class_counts
from ldsu.solvers._expansion import KernelExpansion
from ldsu.solvers._filters import SMOOTH_FILTERS
from ldsu.solvers._problem import Problem, graph_key, rounded_product, stage
from ldsu.solvers._types import Settings, Solution
from ldsu.spectrum import canonicalize_degenerate, fix_signs, numerical_rank, resolve_n_components

# n x n arrays alive at the peak. Direct: K, L K with its LU factors in place, and one while the kernel is computed.
# Spectral: coordinates, joint matrix, its product with M, and LAPACK's workspace of two for "evd".
MATRICES = {"direct": 3, "spectral": 5}
# The same with PyTorch, which overwrites less: measured on a GPU by benchmarks/gpu.py.
DEVICE_MATRICES = {"direct": 4, "spectral": 8}
# In main memory, if the kernel is computed on the CPU and moved to a GPU: the kernel, and copies for its validation.
MOVED_MATRICES = 3
# Maximum relative asymmetry of a result that is symmetric in exact arithmetic; above it, the solve is inaccurate.
ASYMMETRY = 1e-8


def algorithm(settings: Settings) -> str:
    """Algorithm to use: "direct" if no decomposition is needed, else "spectral"."""
    return "direct" if settings.filter == "tikhonov" else "spectral"


def exact_memory(X: Any, codes: np.ndarray, settings: Settings) -> int:
    """Peak main memory of the exact solver, in bytes; for a GPU, only of the results."""
    n = X.shape[0]
    matrices = MATRICES[algorithm(settings)]
    if settings.device.startswith("cuda"):
        matrices = MOVED_MATRICES if settings.cliques == "kernel" or scipy.sparse.issparse(X) else 0
    return 8 * n * (matrices * n + _columns(n, codes, settings))


def _columns(n: int, codes: np.ndarray, settings: Settings) -> int:
    """Numbers stored per sample, in addition to n x n matrices."""
    if settings.filter == "truncate":
        return resolve_n_components(settings.n_components, n)
    return 6 * max(int(np.sum(codes >= 0)), settings.min_anchors)


def solve_exact(problem: Problem, codes: np.ndarray, kernel: Kernel, settings: Settings) -> Solution:
    """Minimize ``tr(a^T K (L_w + lam L) K a)`` subject to ``a^T K a = I``, or filter K smoothly by the same spectrum.

    Parameters
    ----------
    problem : Problem
        The samples, and the stages computed from them.
    codes : ndarray of shape (n,)
        Class numbers, -1 where unlabelled.
    kernel : Kernel
    settings : Settings
    """
    arrays, n = problem.arrays, problem.n
    if arrays.xp is not np:
        require_memory(
            8 * n * (DEVICE_MATRICES[algorithm(settings)] * n + _columns(n, codes, settings)),
            f"The exact solver for {n} samples on device {settings.device!r}",
            "Use fewer samples, or device='cpu'.",
            arrays.free_memory(),
        )
    result = _direct(problem, codes, kernel, settings) if algorithm(settings) == "direct" else None
    coefficients, eigenvalues, anchors = result or _spectral(problem, codes, kernel, settings)
    with problem.stages("features"):
        coefficients = arrays.get(coefficients)
        feature_map = KernelExpansion(kernel, kernel.support(problem.X), coefficients, device=settings.device)
    L, theta = problem.clique_graph(kernel, settings)
    return Solution(feature_map, coefficients, eigenvalues, anchors, lambda: L, theta)


# Coefficients (on the device), eigenvalues and anchors.
Result = tuple[Any, np.ndarray, np.ndarray | None]


def _direct(problem: Problem, codes: np.ndarray, kernel: Kernel, settings: Settings) -> Result | None:
    """The Tikhonov filter by one linear solve, ``C = (I + strength lam L K)^-1 E_A``; the same-class graph follows.

    None if the solve is inaccurate.
    """
    K, arrays = problem.kernel_matrix(kernel), problem.arrays
    diagonal = arrays.get(K.diagonal())
    strength = scaled_strength(settings, float(diagonal.mean()))
    anchors = kernel_anchors(problem, codes, kernel, settings)
    C = problem.filtered_columns(kernel, settings, strength * settings.lam, anchors)
    with problem.stages("features"):
        Kt_AA = arrays.dot(K[arrays.put(anchors)], C)
        mapped = anchor_map(Kt_AA, codes[anchors], strength, float(diagonal.sum()), problem, kernel, settings)
        return None if mapped is None else (arrays.dot(C, mapped[0]), mapped[1], anchors)


def _spectral(problem: Problem, codes: np.ndarray, kernel: Kernel, settings: Settings) -> Result:
    """Coefficients, eigenvalues and anchors from the joint spectrum."""
    arrays = problem.arrays
    if settings.filter == "truncate":
        mu, directions = truncated_directions(problem, codes, kernel, settings)
        with problem.stages("features"):
            return fix_signs(problem.basis(kernel).coefficients(directions, arrays), arrays), mu, None
    mu, directions = problem.spectrum(kernel, settings, codes, settings.lam)
    basis = problem.basis(kernel)
    B = basis.coordinates
    diagonal = arrays.get(arrays.xp.einsum("ij,ij->i", B, B))
    strength = scaled_strength(settings, float(diagonal.mean()))
    anchors = coordinate_anchors(problem, codes, kernel, settings)
    with problem.stages("features"):
        F_A = arrays.dot(B[arrays.put(anchors)], directions)
        W = arrays.put(SMOOTH_FILTERS[settings.filter](np.maximum(mu, 0), strength))[:, None] * F_A.T
        mapped = anchor_map(arrays.dot(F_A, W), None, strength, float(diagonal.sum()), problem, kernel, settings)
        assert mapped is not None  # symmetric by construction
        return basis.coefficients(arrays.dot(directions, arrays.dot(W, mapped[0])), arrays), mapped[1], anchors


def truncated_directions(
    problem: Problem, codes: np.ndarray, kernel: Kernel, settings: Settings
) -> tuple[np.ndarray, Any]:
    """The smallest mu (r,), and directions (q, r) of the coordinates, with a unique basis where several are equal."""
    basis = problem.basis(kernel)
    r = resolve_n_components(settings.n_components, basis.rank)
    mu, directions = problem.spectrum(kernel, settings, codes, settings.lam)
    directions = problem.arrays.copy(directions) if problem.reusable else directions
    canonicalize_degenerate(mu, directions, basis.eigenvalues, r, problem.arrays)
    return np.maximum(mu[:r], 0), directions[:, :r]


@dataclass(frozen=True)
class RowFeatures:
    """Features of training and new rows, ``left @ right``, computed for the rows that are asked for.

    Attributes
    ----------
    left : ndarray of shape (n + t, p)
    right : ndarray of shape (p, r)
    """

    left: np.ndarray
    right: np.ndarray

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Features of some rows."""
        return self.left[rows] @ self.right


def smooth_features(
    problem: Problem, codes: np.ndarray, kernel: Kernel, settings: Settings, *, joint: bool = False
) -> RowFeatures | None:
    """Features ``Kt(x, A) Kt_AA^-1/2`` with a smooth filter, from a spectrum that serves many settings.

    With "tikhonov" the spectrum of the local graph serves all labels, lam and strengths. None if that is inaccurate;
    with `joint` each label and lam has its own spectrum, which is always accurate.
    """
    direct = settings.filter == "tikhonov"
    diagonal = _kernel_diagonal(problem, kernel, direct)
    strength = scaled_strength(settings, float(diagonal.mean()))
    anchors = (kernel_anchors if direct else coordinate_anchors)(problem, codes, kernel, settings)
    # If no class has two labels L_w is zero, and lam multiplies the eigenvalues as strength does.
    has_pairs = bool(class_counts(codes).max(initial=0) > 1)
    apart = (direct and not joint) or not has_pairs
    lam = None if apart else settings.lam
    factor = strength * settings.lam if apart else strength
    if not np.isfinite(factor):
        return None
    key = (graph_key(kernel, settings), lam, settings.filter, rounded_product(factor, 1.0), anchors.tobytes())

    def filtered() -> np.ndarray:
        mu, F = problem.rotated(kernel, settings, codes, lam)
        with problem.stages("filter"):
            weights = SMOOTH_FILTERS[settings.filter](mu, factor)
            columns: np.ndarray = problem.arrays.dot(F, weights[:, None] * F[anchors].T)
            return columns

    Kt_A = problem.once("filtered", key, filtered)
    with problem.stages("features"):
        labels = codes[anchors] if apart and has_pairs else None
        mapped = anchor_map(Kt_A[anchors], labels, strength, float(diagonal.sum()), problem, kernel, settings)
        return None if mapped is None else RowFeatures(Kt_A, mapped[0])


def anchor_map(
    Kt_AA: Any,
    codes: np.ndarray | None,
    strength: float,
    trace: float,
    problem: Problem,
    kernel: Kernel,
    settings: Settings,
) -> tuple[Any, np.ndarray] | None:
    """R (a x r) such that ``Kt(., A) R`` are lossless features, and their sums of squares over the anchors.

    First the same-class graph joins: ``(Kt^-1 + strength L_w)^-1 = Kt (I + strength L_w Kt)^-1``, and L_w joins
    labelled points only, all of them anchors, so this is a system of the size of the anchors. Then ``Kt_AA = U S U^T``
    gives features ``S^-1/2 U^T Kt(A, x)``, whose inner products with features of the anchors equal those of Kt: a
    classifier trained at the anchors loses nothing.

    Parameters
    ----------
    Kt_AA : array of shape (a, a)
        The filtered kernel at the anchors.
    codes : ndarray of shape (a,) or None
        Class numbers of the anchors, -1 for landmarks; None if the same-class graph is part of Kt.
    strength : float
        In the units of K.
    trace : float
        Trace of K: the numerical rank is relative to it.

    Returns
    -------
    R, eigenvalues : array of shape (a, r), ndarray of shape (r,)
        None if the solves are inaccurate, which shows in the asymmetry of Kt_AA.
    """
    arrays, xp = problem.arrays, problem.arrays.xp
    C = None
    if codes is not None:
        if not _symmetric(Kt_AA, xp):
            return None
        C = class_graph_correction(Kt_AA, codes, strength, arrays)
        if C is not None:
            Kt_AA = Kt_AA @ C
            if not _symmetric(Kt_AA, xp):
                return None
    elif not bool(xp.isfinite(Kt_AA).all()):
        raise ValueError(
            f"strength = {settings.strength:.3g} with lam = {settings.lam:.3g} overflows for these data. "
            "Use smaller values."
        )
    S, U = arrays.eigh((Kt_AA + Kt_AA.T) / 2)
    rank = numerical_rank(S, problem.n, eps=kernel.precision(problem.X), unit=trace)
    if rank == 0:
        raise ValueError(
            f"No features are left: the kernel is zero, or strength = {settings.strength:.3g} removes all of it."
        )
    r = resolve_n_components(settings.n_components, rank)
    S, U = S[::-1][:r], fix_signs(xp.flip(U, (1,))[:, :r], arrays)
    R = U / arrays.put(np.sqrt(S))
    return R if C is None else C @ R, S


def _symmetric(A: Any, xp: Any) -> bool:
    return not A.shape[0] or bool(xp.isfinite(A).all() and xp.abs(A - A.T).max() <= ASYMMETRY * xp.abs(A).max())


def class_graph_correction(Kt_AA: Any, codes: np.ndarray, strength: float, arrays: Arrays = CPU) -> Any:
    """C (a x a) with ``Kt C = (Kt^-1 + strength L_w)^-1`` at the anchors, ``C = (I + strength L_w Kt_AA)^-1``.

    None if no class has two labels: L_w is then zero.
    """
    if not class_counts(codes).max(initial=0) > 1:
        return None
    system = arrays.put(np.eye(codes.size))
    for members, rows in class_laplacian_rows(codes, Kt_AA):
        system[members] += strength * rows
    return arrays.lu_solve(arrays.lu_factor(system), arrays.put(np.eye(codes.size)))


def filtered_labelled_kernel(
    problem: Problem, kernel: Kernel, settings: Settings, strength: float, labelled: np.ndarray
) -> np.ndarray:
    """Entries of ``(K^-1 + strength L)^-1`` at the labelled points, strength in units of K's mean diagonal."""
    K = problem.kernel_matrix(kernel)
    arrays = problem.arrays
    weight = strength / (float(K.diagonal().mean()) or 1.0)
    C = problem.filtered_columns(kernel, settings, weight, labelled)
    G = arrays.get(arrays.dot(K[arrays.put(labelled)], C))
    return (G + G.T) / 2


def scaled_strength(settings: Settings, typical_diagonal: float) -> float:
    """The filter's strength in the units of K: as given, or divided by K's mean diagonal."""
    return settings.strength / (typical_diagonal or 1.0) if settings.scaling == "relative" else settings.strength


def _kernel_diagonal(problem: Problem, kernel: Kernel, direct: bool) -> np.ndarray:
    """Diagonal of K, from the numbers that a fit reads: K for the direct algorithm, else its coordinates."""
    if direct:
        return problem.arrays.get(problem.kernel_matrix(kernel).diagonal())
    B = problem.basis(kernel).coordinates
    return problem.arrays.get(problem.arrays.xp.einsum("ij,ij->i", B, B))


@stage(lambda codes, kernel, settings: (kernel.key, settings.min_anchors, (codes >= 0).tobytes()))
def kernel_anchors(problem: Problem, codes: np.ndarray, kernel: Kernel, settings: Settings) -> np.ndarray:
    """Anchors chosen by the entries of K."""
    K, get = problem.kernel_matrix(kernel), problem.arrays.get
    sources = (lambda i: get(K[:, i]), _kernel_diagonal(problem, kernel, True), lambda: get(K.sum(axis=0)))
    with problem.stages("solve"):
        return choose_anchors(codes, settings.min_anchors, *sources, eps=kernel.precision(problem.X))


@stage(lambda codes, kernel, settings: (kernel.key, settings.min_anchors, (codes >= 0).tobytes()))
def coordinate_anchors(problem: Problem, codes: np.ndarray, kernel: Kernel, settings: Settings) -> np.ndarray:
    """Anchors chosen by the coordinates of K."""
    B, get = problem.basis(kernel).coordinates, problem.arrays.get
    sources = (lambda i: get(B @ B[i]), _kernel_diagonal(problem, kernel, False), lambda: get(B @ B.sum(axis=0)))
    with problem.stages("solve"):
        return choose_anchors(codes, settings.min_anchors, *sources, eps=kernel.precision(problem.X))


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
