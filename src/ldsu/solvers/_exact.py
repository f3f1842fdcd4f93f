"""The exact solver: dense kernel matrix, no approximation.

A direction with a large eigenvalue mu of the joint problem is not smooth on the graphs. The filter multiplies its part
of the kernel by f(mu): the filtered kernel is ``K f(M K)``. There are two algorithms. The direct algorithm is for
"tikhonov": one linear solve gives the filtered kernel at the anchors. The spectral algorithm (Algorithm 1 of the paper)
decomposes K and then the joint problem; it supports every filter, and serves many settings at once. Both run on the
device of the problem: samples and sparse graphs are moved there, eigenvalues and coefficients back, and n x n matrices
are not transferred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from ldsu._utils.arrays import arrays_on, row_blocks
from ldsu._utils.memory import BLOCK_BYTES, require_memory
from ldsu._utils.sizes import PicklesFields
from ldsu.graphs import class_graph_correction
from ldsu.kernels import CenteredPoints, Kernel
from ldsu.labels import class_counts
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


def tikhonov(mu: np.ndarray, strength: float) -> np.ndarray:
    """``f(mu) = 1 / (1 + strength mu)``: the kernel becomes ``(K^-1 + strength M)^-1``, one linear solve."""
    return 1 / (1 + strength * mu)


def heat(mu: np.ndarray, strength: float) -> np.ndarray:
    """``f(mu) = exp(-strength mu)``: diffusion for a time `strength`."""
    return np.exp(-strength * mu)


SMOOTH_FILTERS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {"tikhonov": tikhonov, "heat": heat}
# "truncate" is the paper's filter: 1 for the r smallest mu, 0 above. Solvers implement it by keeping r columns.
FILTERS = ("truncate", *SMOOTH_FILTERS)


def exact_memory(X: Any, codes: np.ndarray, settings: Settings, *, on_device: bool = False) -> int:
    """Peak memory of the exact solver in bytes: on the device, or main memory (for a GPU, only of the results)."""
    n = X.shape[0]
    matrices = (DEVICE_MATRICES if on_device else MATRICES)["direct" if settings.filter == "tikhonov" else "spectral"]
    if settings.device.startswith("cuda") and not on_device:
        matrices = MOVED_MATRICES if settings.cliques == "kernel" or scipy.sparse.issparse(X) else 0
    if settings.filter == "truncate":
        columns = resolve_n_components(settings.n_components, n)
    else:
        columns = 6 * max(int(np.sum(codes >= 0)), settings.min_anchors)
    return 8 * n * (matrices * n + columns)


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
    arrays = problem.arrays
    if arrays.xp is not np:
        require_memory(
            exact_memory(problem.X, codes, settings, on_device=True),
            f"The exact solver for {problem.n} samples on device {settings.device!r}",
            "Use fewer samples, or device='cpu'.",
            arrays.free_memory(),
        )
    result = _direct(problem, codes, kernel, settings) if settings.filter == "tikhonov" else None
    coefficients, eigenvalues, anchors, kernel_AA = result or _spectral(problem, codes, kernel, settings)
    with problem.stages("features"):
        coefficients = arrays.get(coefficients)
        feature_map = KernelExpansion(kernel, kernel.support(problem.X), coefficients, device=settings.device)
    L, theta = problem.clique_graph(kernel, settings)
    graphs = (L, None)
    return Solution(feature_map, coefficients, eigenvalues, anchors, lambda: graphs, theta, anchor_kernel=kernel_AA)


# Coefficients (on the device), eigenvalues, anchors, and the filtered kernel at these without the same-class graph.
Result = tuple[Any, np.ndarray, np.ndarray | None, Any]


def _direct(problem: Problem, codes: np.ndarray, kernel: Kernel, settings: Settings) -> Result | None:
    """The Tikhonov filter by one linear solve, ``C = (I + strength lam L K)^-1 E_A``; the same-class graph follows.

    None if the solve is inaccurate.
    """
    K, arrays = problem.kernel_matrix(kernel), problem.arrays
    anchors, diagonal = choose_anchors(problem, codes, kernel, settings, True)
    strength = scaled_strength(settings, diagonal)
    C = problem.filtered_columns(kernel, settings, strength * settings.lam, anchors)
    with problem.stages("features"):
        Kt_AA = arrays.dot(K[arrays.put(anchors)], C)
        mapped = anchor_map(Kt_AA, codes[anchors], strength, float(diagonal.sum()), problem, kernel, settings)
        return None if mapped is None else (arrays.dot(C, mapped[0]), mapped[1], anchors, Kt_AA)


def _spectral(problem: Problem, codes: np.ndarray, kernel: Kernel, settings: Settings) -> Result:
    """Coefficients, eigenvalues and anchors from the joint spectrum."""
    arrays = problem.arrays
    if settings.filter == "truncate":
        mu, directions = truncated_directions(problem, codes, kernel, settings)
        with problem.stages("features"):
            return fix_signs(problem.basis(kernel).coefficients(directions, arrays), arrays), mu, None, None
    mu, directions = problem.spectrum(kernel, settings, codes, settings.lam)
    basis = problem.basis(kernel)
    anchors, diagonal = choose_anchors(problem, codes, kernel, settings, False)
    strength = scaled_strength(settings, diagonal)
    with problem.stages("features"):
        F_A = arrays.dot(basis.coordinates[arrays.put(anchors)], directions)
        W = arrays.put(SMOOTH_FILTERS[settings.filter](np.maximum(mu, 0), strength))[:, None] * F_A.T
        mapped = anchor_map(arrays.dot(F_A, W), None, strength, float(diagonal.sum()), problem, kernel, settings)
        assert mapped is not None  # symmetric by construction
        coefficients = basis.coefficients(arrays.dot(directions, arrays.dot(W, mapped[0])), arrays)
        return coefficients, mapped[1], anchors, None


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
    """Features of training and new rows, ``left @ right``, computed for the rows that are asked for."""

    left: np.ndarray  # (n + t, p)
    right: np.ndarray  # (p, r)

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
    anchors, diagonal = choose_anchors(problem, codes, kernel, settings, direct)
    strength = scaled_strength(settings, diagonal)
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

    `codes` are the class numbers of the anchors, -1 for landmarks, or None if the same-class graph is part of Kt. The
    strength is in the units of K, and the numerical rank relative to its trace. None if the solves are inaccurate,
    which shows in the asymmetry of Kt_AA.
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


def filtered_labelled_kernel(
    problem: Problem, kernel: Kernel, settings: Settings, strength: float, labelled: np.ndarray
) -> Any:
    """Entries of ``(K^-1 + strength L)^-1`` at the labelled points, strength in units of K's mean diagonal.

    On the device of the problem.
    """
    K = problem.kernel_matrix(kernel)
    arrays = problem.arrays
    weight = strength / (float(K.diagonal().mean()) or 1.0)
    C = problem.filtered_columns(kernel, settings, weight, labelled)
    G = arrays.dot(K[arrays.put(labelled)], C)
    return (G + G.T) / 2


def scaled_strength(settings: Settings, diagonal: np.ndarray) -> float:
    """The filter's strength in the units of K: as given, or divided by K's mean diagonal."""
    return settings.strength / (float(diagonal.mean()) or 1.0) if settings.scaling == "relative" else settings.strength


@stage(lambda codes, kernel, settings, direct: (kernel.key, direct, settings.min_anchors, (codes >= 0).tobytes()))
def choose_anchors(
    problem: Problem, codes: np.ndarray, kernel: Kernel, settings: Settings, direct: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The labelled points, with landmarks added up to `min_anchors`, and the diagonal of K.

    Landmarks are chosen greedily by the largest residual of the kernel (pivoted Cholesky); without labels, the first is
    the point with the largest kernel sum. The choice does not depend on the order of the rows. The entries of K are
    those that a fit reads: K for the direct algorithm, else its coordinates.
    """
    n, get = problem.n, problem.arrays.get
    A = problem.kernel_matrix(kernel) if direct else problem.basis(kernel).coordinates
    diagonal = get(A.diagonal() if direct else problem.arrays.xp.einsum("ij,ij->i", A, A))
    labelled = np.flatnonzero(codes >= 0)
    limit = min(settings.min_anchors, n)
    if labelled.size >= limit:
        return labelled, diagonal
    with problem.stages("solve"):
        residual = np.array(diagonal, dtype=np.float64)
        smallest = n * kernel.precision(problem.X) * residual.max()
        factor = np.zeros((n, settings.min_anchors))
        chosen: list[int] = []
        queue = labelled.tolist()
        while len(chosen) < limit:
            if queue:
                pivot = queue.pop(0)
            else:
                sums = None if chosen else get(A.sum(axis=0) if direct else A @ A.sum(axis=0))
                pivot = int(residual.argmax() if sums is None else sums.argmax())
                if residual[pivot] <= smallest:
                    break
            step = len(chosen)
            chosen.append(pivot)
            if residual[pivot] > smallest:
                column = get(A[:, pivot] if direct else A @ A[pivot])
                factor[:, step] = column - factor[:, :step] @ factor[pivot, :step]
                factor[:, step] /= np.sqrt(residual[pivot])
                residual -= factor[:, step] ** 2
            residual[pivot] = 0
        return np.array(chosen, dtype=np.int64), diagonal


@dataclass(frozen=True)
class KernelExpansion(PicklesFields):
    """``features(x) = k(x, points) @ coefficients - offset``.

    Attributes
    ----------
    kernel : Kernel
        The kernel k.
    points : array or sparse matrix of shape (b, d)
        Training points.
    coefficients : ndarray of shape (b, r)
        Weights of the points.
    offset : ndarray of shape (r,) or float
        Subtracted from the features.
    device : str
        Device of the computation, see `ldsu._utils.arrays.arrays_on`.
    """

    kernel: Kernel
    points: Any
    coefficients: np.ndarray
    offset: np.ndarray | float = 0.0
    device: str = "cpu"

    @cached_property
    def _centered(self) -> CenteredPoints | None:
        """The points as an RBF kernel needs them: a copy, which is kept if it is no larger than a block."""
        dense_rbf = self.kernel.name == "rbf" and self.device == "cpu" and isinstance(self.points, np.ndarray)
        return CenteredPoints.of(self.points) if dense_rbf and 8 * self.points.size <= BLOCK_BYTES else None

    def __call__(self, X: Any) -> np.ndarray:
        """Features (len(X), r) of the rows of X, with the dtype of X, computed in blocks."""
        arrays = arrays_on(self.device)
        n, (b, r) = X.shape[0], self.coefficients.shape
        features = np.empty((n, r), dtype=X.dtype)
        coefficients = arrays.put(self.coefficients)
        points = self.points if self._centered is None or scipy.sparse.issparse(X) else self._centered
        for block in row_blocks(n, max(BLOCK_BYTES, arrays.block_bytes) // (8 * max(b, 1))):
            K = self.kernel(X[block], points, arrays)
            with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported below
                features[block] = arrays.get(K @ coefficients) - self.offset
        if not np.isfinite(features).all():
            largest = float(np.abs(self.coefficients).max(initial=0))
            raise ValueError(
                f"The features of some rows do not fit {X.dtype}: the largest model coefficient is {largest:.3g}. "
                "Increase the regularization, or rescale X."
            )
        return features
