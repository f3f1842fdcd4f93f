"""The sparse solver: time and memory linear in n, for every kernel of `SAMPLE_KERNELS`, of dense and of sparse samples.

The kernel is written ``K = P P^T + R``. P (n x p) are the features of p landmarks, the labelled points among them: the
global part. The inverse of the residual R, the local part, is approximated by a sparse factor, ``R^-1 = G^T G``
(Vecchia): the points are put in a random order, and each is conditioned on those of its nearest neighbors that come
before it. With ``B = G^T G + eta M`` and ``H = P - B^-1 eta M P`` the filtered kernel ``(K^-1 + eta M)^-1`` is then
``B^-1 + H S^-1 H^T``, ``S = I + eta P^T M H``: a sparse positive definite system with a right-hand side for each anchor
and landmark, and a small dense one. Nothing else is approximated: when every point is conditioned on all that come
before it, the result is that of the exact solver, whatever the landmarks. Only kernel values between landmarks and
samples and among neighbors are computed. In the unit of the computation K has the mean diagonal 1; where R is singular,
as with the linear kernel of fewer columns than rows, the nugget keeps R^-1 finite.

With "tikhonov" labels enter after the solve, in `anchored_features`: the system is that of landmarks drawn without
labels and of ``M = lam L``, and the columns of a labelled point depend on no other label. So other labels only need
columns of the points that had no label before, and a `Problem` keeps the others.

`solve_sparse` is the order of the work, wherever the arrays live. `SparseStages` does it in this process, and
`ldsu.dask` on a cluster.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from sklearn.utils import gen_batches
from sklearn.utils.extmath import row_norms

from ldsu._utils.arrays import CPU, Arrays, arrays_on, one_blas_thread, row_blocks
from ldsu._utils.memory import BLOCK_BYTES, require_memory
from ldsu._utils.sizes import HoldsArrays
from ldsu._utils.stages import StageCache, Stages, counter
from ldsu._utils.temporary import FileArrays, file_array
from ldsu.graphs import assemble_cliques, class_laplacian, clique_grams, clique_weights, double_centered
from ldsu.kernels import (
    INPUT_SPACE_KERNELS,
    Kernel,
    check_counts,
    column_means,
    dense,
    shifted,
    stacked,
    without_duplicates,
)
from ldsu.labels import class_counts, sample_labelled_balanced, sample_others
from ldsu.neighbors import DIMENSIONS, NeighborIndex, cliques, neighbor_index
from ldsu.sample_kernels import (
    EUCLIDEAN_KERNELS,
    PRODUCT_KERNELS,
    SAMPLE_KERNELS,
    SampleKernel,
    row_width,
    set_batches,
    take_sets,
)
from ldsu.solvers._joint_system import JointSystem
from ldsu.solvers._solved_columns import SolvedColumns
from ldsu.solvers._sparse_spectrum import MAX_PAIRS, pairs_memory, shifted_strength, truncated_features
from ldsu.solvers._types import Settings, Solution
from ldsu.spectrum import fix_signs, resolve_n_components, symmetric_eigh

# A smaller tolerance, or a larger weight of the graphs relative to the kernel, requires double precision.
SINGLE_TOLERANCE, SINGLE_STRENGTH = 1e-5, 1e4
# A smaller nugget does, too: the factor contains the inverse of its square root. Where the residual of a kernel may be
# singular, its rounding errors must be small beside the nugget.
SINGLE_NUGGET, SINGLE_NUGGET_PRODUCTS = 1e-12, 1e-4
# For a larger weight of the graphs relative to the kernel, the tolerance is reduced in proportion.
USUAL_STRENGTH, MIN_TOLERANCE = 1e3, 1e-8
# Labels per class that the weight of the same-class graph assumes, where it is no part of the system.
USUAL_LABELS = 10
# Upper limit of gamma, in units of the samples' spread; the kernel is zero between samples anyway.
LARGEST_GAMMA = 1e30
# Number of rows from which the spread of the samples, the unit of the computation, is estimated.
SPREAD_ROWS = 1000
# Samples are clipped to this range, in units of their spread.
MAX_MAGNITUDE = 1e15
# Maximum number of labelled points used as anchors, balanced over classes; with more the system contains their graph.
MAX_LABELLED = 1000
# Additional landmarks: 500 for a few thousand samples, down to 100 for many.
MAX_LANDMARKS, MIN_LANDMARKS, LANDMARK_BUDGET = 500, 100, 2_000_000
# Noise of landmarks per sample, in units of k(x, x), so that part of their variance stays local. Without it labels
# propagate too little through the graph (USPS, MNIST), with much more too little beyond it (Yale B): docs/decisions.md.
NOISE = 2e-5
# Minimum number of directions of the landmark features.
MIN_DIRECTIONS = 50
# Without noise, duplicate samples make the matrix of a conditioning set singular.
MIN_NUGGET = 1e-12
# Maximum number of samples to condition on: each row needs a dense system of that size.
MAX_CONDITIONING = 2000
# Bytes up to which factors and solutions for other bandwidths and strengths are kept, at about this many per row.
KEPT_BYTES, ROW_BYTES, MAX_KEPT = 2**29, 4096, 4
# Numbers up to which starting threads takes longer than the work.
SMALL = 2**16
# Numbers of right-hand sides that are solved together if arrays are in files, and the share of the free memory.
FILE_COLUMNS, FILES_SHARE = (32, 28, 24, 20, 16, 12, 8, 4), 0.75
# Batch size of new samples.
BATCH, BATCH_BYTES = 2**15, 2**29


def unsupported_reason(X: Any, kernel_name: Any, settings: Settings) -> str | None:
    """Why the sparse solver does not support a problem, as the end of a sentence; None if it does."""
    if kernel_name not in SAMPLE_KERNELS:
        named = repr(kernel_name) if isinstance(kernel_name, str) else "a function"
        return f"it supports the kernels {', '.join(SAMPLE_KERNELS)}, not {named}"
    if settings.cliques == "input" and kernel_name not in INPUT_SPACE_KERNELS:
        return f"with kernel={kernel_name!r} it only supports cliques='kernel'"
    if settings.filter == "heat":
        return "it supports filter='tikhonov' and 'truncate', not 'heat'"
    if settings.n_conditioning > MAX_CONDITIONING:
        return f"n_conditioning must be at most {MAX_CONDITIONING:,}, not {settings.n_conditioning:,}"
    n = X.shape[0]
    if settings.filter == "truncate" and (r := resolve_n_components(settings.n_components, n)) > MAX_PAIRS:
        return (
            f"with filter='truncate' n_components={settings.n_components} is {r} features of {n} samples, "
            f"but at most {MAX_PAIRS} are supported"
        )
    return None


def labels_in_system(codes: np.ndarray, settings: Settings) -> bool:
    """Whether the sparse system contains the same-class graph: with "truncate", or if not all labels are anchors."""
    return settings.filter == "truncate" or int(np.sum(codes >= 0)) > MAX_LABELLED


def working_precision(codes: np.ndarray, settings: Settings, kernel_name: Any = "rbf") -> tuple[str, float]:
    """Single precision, unless tolerance, strength, nugget or eigenvectors require double; and the tolerance.

    That is reduced for strong graphs.
    """
    # Weight of the graphs relative to the kernel, which has diagonal 1.
    weight = settings.strength * max(settings.lam, float(class_counts(codes).max(initial=USUAL_LABELS)))
    if settings.filter == "truncate":
        return "float64", settings.tol
    single = weight <= SINGLE_STRENGTH and settings.nugget >= SINGLE_NUGGET and settings.tol >= SINGLE_TOLERANCE
    if kernel_name in PRODUCT_KERNELS:  # with absolute scaling the weight is in units of their diagonal
        single = single and settings.nugget >= SINGLE_NUGGET_PRODUCTS and settings.scaling == "relative"
    tol = max(settings.tol / max(1.0, weight / USUAL_STRENGTH), min(settings.tol, MIN_TOLERANCE))
    return "float32" if single else "float64", tol


def sparse_memory(X: Any, codes: np.ndarray, settings: Settings) -> int:
    """Peak memory of the sparse solver in bytes, without X and its copy."""
    n = X.shape[0]
    itemsize, landmarks, _, anchors = _widths(n, codes, settings)
    # Of sparse samples a second copy while they are sorted, and the components of their cells.
    samples = 2 * row_width(X) * (itemsize + 8) + 8 * 64 if scipy.sparse.issparse(X) else itemsize * X.shape[1]
    solving = 8 * CPU.columns * (os.cpu_count() or 1)
    listed = max(2 * settings.n_conditioning, settings.clique_size - 1)
    graph = 2 * 16 * listed + 4 * 24 * (settings.n_conditioning + 1) + 3 * 24 * settings.clique_size**2
    pairs = pairs_memory(n, landmarks, settings) if settings.filter == "truncate" else 0
    return n * (samples + itemsize * (solving + 3 * landmarks + 3 * anchors) + graph) + pairs + 2**29


def memory_with_files(X: Any, codes: np.ndarray, settings: Settings, columns: int) -> int:
    """Peak memory of the sparse solver with `FileArrays` of so many columns, in bytes, without files and X."""
    n, s, k = X.shape[0], settings.n_conditioning + 1, settings.clique_size
    itemsize = np.dtype(working_precision(codes, settings)[0]).itemsize
    # The triplets of the factor while the system is built; then the system, and six arrays of each right-hand side.
    build = (36 + 2 * itemsize) * s + 28 * k**2
    solve = (4 + itemsize) * (2 * s + k**2) + 6 * itemsize * columns * effective_n_jobs(CPU.n_jobs)
    return n * (130 + max(build, solve)) + 2**29


def disk_with_files(X: Any, codes: np.ndarray, settings: Settings) -> int:
    """Temporary files of the sparse solver with `FileArrays`, and of the features of training samples, in bytes."""
    n, d = X.shape
    itemsize, landmarks, _, anchors = _widths(n, codes, settings)
    listed = max(2 * settings.n_conditioning, settings.clique_size - 1)
    row = itemsize * (d + 3 * landmarks) + 4 * listed + 8 * settings.clique_size**2 + X.dtype.itemsize * anchors
    return n * row + model_memory(X, codes, settings)


def model_memory(X: Any, codes: np.ndarray, settings: Settings) -> int:
    """Bytes of the samples, their landmark features and the local part, which the features of new rows are made of."""
    n, d = X.shape
    itemsize, _, drawn, anchors = _widths(n, codes, settings)
    return n * (itemsize * (d + drawn + anchors) + 4 * max(d, DIMENSIONS))


def _widths(n: int, codes: np.ndarray, settings: Settings) -> tuple[int, int, int, int]:
    """Bytes of a number, and numbers of landmark features, of those that do not depend on labels, and of anchors."""
    m, directions = min(int(np.sum(codes >= 0)), MAX_LABELLED), resolve_n_directions(n)
    drawn = min(resolve_n_landmarks(settings.n_landmarks, n), directions)
    itemsize = np.dtype(working_precision(codes, settings)[0]).itemsize
    return itemsize, drawn + min(m, directions), drawn, max(m, settings.min_anchors)


def arrays_in_files(X: Any, codes: np.ndarray, settings: Settings, available: int) -> FileArrays | None:
    """Arrays in files, for samples that do not fit into `available` bytes of memory otherwise; None if unsupported.

    As many right-hand sides are solved together as fit into a share of the memory: the system keeps in the rest of it
    what is in use of the files.
    """
    if scipy.sparse.issparse(X) or settings.filter != "tikhonov" or settings.device != "cpu":
        return None
    fitting = (c for c in FILE_COLUMNS if memory_with_files(X, codes, settings, c) <= FILES_SHARE * available)
    return FileArrays(next(fitting, FILE_COLUMNS[-1]))


def resolve_n_landmarks(n_landmarks: int | None, n: int) -> int:
    """Number of landmarks in addition to the labelled points: as given, or by the number n of samples."""
    if n_landmarks is not None:
        return min(n_landmarks, n)
    return int(np.clip(LANDMARK_BUDGET // n, MIN_LANDMARKS, MAX_LANDMARKS))


def resolve_n_directions(n: int) -> int:
    """Number of directions of the landmark features to keep, and at most of labelled landmarks: 50 of many samples."""
    return max(MIN_DIRECTIONS, LANDMARK_BUDGET // n)


def solve_sparse(problem: SparseStages, codes: np.ndarray, kernel: Kernel, settings: Settings) -> Solution:
    """Filter the kernel, ``(K^-1 + strength M)^-1`` with ``M = L_w + lam L``, at linear cost.

    With "truncate" the features are the smallest pairs of ``M v = mu K^-1 v``: see `_sparse_spectrum`.

    Parameters
    ----------
    problem : Problem
        The samples, and the stages computed from them: neighbors and cliques, which do not depend on labels, are kept.
    codes : ndarray of shape (n,)
        Class numbers, -1 where unlabelled.
    kernel : Kernel
        One of `SAMPLE_KERNELS`.
    settings : Settings
    """
    reason = unsupported_reason(problem.X, kernel.name, settings)
    if reason:
        raise ValueError(f"solver='sparse' does not support this: {reason}. Use solver='exact'.")
    n, arrays, stages, k = problem.n, problem.arrays, problem.stages, settings.clique_size
    truncate = settings.filter == "truncate"
    system_codes = codes if labels_in_system(codes, settings) else np.full_like(codes, -1)
    dtype, tol = working_precision(system_codes, settings, kernel.name)
    settings = replace(settings, tol=tol)
    listed = min(max(2 * settings.n_conditioning, k - 1), n - 1)
    # Neighbors of the other kernels are the same with any bandwidth.
    key: tuple[Any, ...] = (dtype, settings.neighbor_search, kernel.key if kernel.name == "poly" else kernel.name)
    samples = problem.once("sorted_samples", key, lambda: problem.sort_samples(settings, dtype, kernel))
    frame = samples.frame
    sample_kernel = frame.kernel_of(kernel)
    if settings.scaling == "absolute":
        settings = replace(settings, strength=settings.strength * frame.scale)
    key = (*key, settings.n_conditioning, k)
    neighbors = problem.once("listed_neighbors", key, lambda: problem.find_neighbors(samples, listed))
    in_kernel = settings.cliques == "kernel"
    key = (*key, settings.theta, settings.scaling, kernel.key if in_kernel else None)
    make_cliques = partial(sparse_cliques, problem, samples, neighbors, settings, sample_kernel)
    weights, theta = problem.once("sparse_cliques", key, make_cliques)
    with stages("landmarks"):
        n_drawn = problem.n_drawn
        n_added = resolve_n_landmarks(settings.n_landmarks, n_drawn)
        rng = np.random.default_rng(settings.random_state)
        chosen, m, drawn = choose_landmarks(codes, n_added, rng, n_drawn)
        places, points = problem.locate(samples, chosen)
        anchors = places[: max(m, min(settings.min_anchors, chosen.size))]
        noise = NOISE * n_drawn if settings.landmark_noise is None else settings.landmark_noise
        drawn_points = points if truncate else points[drawn]
        transform = landmark_transform(drawn_points, sample_kernel, noise, arrays)[:, -resolve_n_directions(n_drawn) :]
        landmarks = Landmarks(drawn_points, arrays.get(transform), sample_kernel)
        added = np.arange(0)  # labelled points, among the anchors, that become landmarks after the solve
        if not truncate:
            among = np.full_like(codes, -1)
            among[chosen[:m]] = codes[chosen[:m]]
            added = sample_labelled_balanced(among, resolve_n_directions(n_drawn), rng)
            added = np.searchsorted(chosen[:m], added)
            landmarks = landmarks.with_labelled(points[added], arrays)
        key = factor_key = (*key, sample_kernel, noise, n_added, settings.random_state, settings.nugget)
    with stages("factor"):
        joint = settings
        if truncate:
            joint = replace(settings, strength=shifted_strength(weights, codes, settings.lam))
        system, P = problem.joint_system(key, samples, neighbors, weights, landmarks, system_codes, joint)
    collect = problem.graphs(samples, neighbors, weights)
    members = cliques(neighbors[:, : k - 1], arrays) if truncate else None
    nearest = problem.nearest_of_rows(samples, neighbors, settings)
    del neighbors, weights, make_cliques  # memory for the solve
    with stages("solve"):
        if truncate:
            pairs, W = truncated_features(system, P, members, codes[samples.order], settings)
            iterations, residual = pairs.iterations, pairs.residual
        else:
            label_key = codes.tobytes() if system_codes is codes else None
            key = (*key, settings.strength, settings.lam, tol, settings.max_iter, label_key)
            at = places[added]
            P, Z, MP, H, iterations, residual = problem.solve(key, samples, system, P, landmarks, anchors, at, settings)
            if not residual <= 2 * settings.tol:  # tolerance for rounding in the recursive residual
                warnings.warn(
                    f"The linear solve stopped after max_iter={settings.max_iter} iterations with a residual of "
                    f"{residual:.2g}, above tol={settings.tol:.2g}. Increase max_iter, tol or nugget, or decrease "
                    f"strength={settings.strength:.3g}.",
                    ConvergenceWarning,
                    stacklevel=2,
                )
    del system
    with stages("features"):
        if truncate:
            root = frame.scale**0.5
            C, local, eigenvalues = root * arrays.get(W), root * (pairs.V - P @ W), frame.scale * pairs.mu
        else:
            MPH = problem.total("products", products, (MP, H), arrays)
            Z_A, P_A, H_A = (problem.rows_at(samples, anchors, block) for block in (Z, P, H))
            L_w = np.zeros((m, m)) if system_codes is codes else class_laplacian(codes[chosen[:m]]).toarray()
            T, C, eigenvalues = anchored_features(Z_A, P_A, H_A, MPH, L_w, added, noise, settings, dtype)
            T, C, eigenvalues = frame.scale**0.5 * T, frame.scale**0.5 * C, frame.scale * eigenvalues
            coefficients = (problem.put("coefficients", values, dtype) for values in (T, C))
            local = problem.map("local", _local_part, (Z, H, P), *coefficients)
        feature_map = problem.feature_map(samples, landmarks, P, C, local, settings)
    return Solution(
        feature_map=feature_map,
        coefficients=None,
        eigenvalues=eigenvalues,
        anchors=None if truncate else chosen[: anchors.size],
        graphs=cache(lambda: _graphs_of_rows(k, *collect())),
        theta=theta * frame.gram_unit(in_kernel),
        iterations=iterations,
        residual=residual,
        training=nearest
        and (lambda: problem._training_features(factor_key, samples, feature_map, nearest, P, C, local)),
    )


def sparse_cliques(
    problem: SparseStages, samples: Any, neighbors: Any, settings: Settings, kernel: SampleKernel
) -> tuple[Any, float]:
    """Laplacians (n, k, k) of the cliques, in the units that lam multiplies, and the ridge."""
    n, k, relative = problem.n, settings.clique_size, settings.scaling == "relative"
    in_kernel = settings.cliques == "kernel"
    unit = samples.frame.gram_unit(in_kernel)
    with problem.stages("graphs"):
        grams = problem.grams(samples, neighbors, k, kernel if in_kernel else None)
        scatter = problem.total("scatter", _sum_of_diagonals, (grams,)) / (n * k)
        theta = settings.theta * ((scatter or 1.0) if relative else 1 / unit)
        weights = problem.map("weights", clique_weights, (grams,), theta, problem.arrays.xp)
        diagonal = problem.total("scatter", _sum_of_diagonals, (weights,)) / n
        scale = 1 / (diagonal or 1.0) if relative else 1 / unit
        return problem.map("weights", operator.mul, (weights,), scale), theta


def _sum_of_diagonals(matrices: Any) -> float:
    n, k = matrices.shape[:2]
    return float(matrices.reshape(n, -1)[:, :: k + 1].sum())


def anchored_features(
    Z_A: np.ndarray,
    P_A: np.ndarray,
    H_A: np.ndarray,
    MPH: np.ndarray,
    L_w: np.ndarray,
    added: np.ndarray,
    noise: float,
    settings: Settings,
    dtype: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients T (anchors, r), C (p, r) of features ``Z T + H C``, and sums of squares of these at the anchors.

    First the labels join. A labelled point that becomes a landmark is a noisy observation of the residual kernel: its
    column, one of the last of P, moves from R to P, and R^-1 grows by 1 / noise at the point. With ``W = eta L_w`` plus
    these, and E the labelled points, B grows by ``E W E^T``, a correction of their number.

    Parameters
    ----------
    Z_A, P_A, H_A : ndarrays with a row per anchor
        Rows of ``B^-1 E_A``, P and ``H = P - B^-1 eta M P`` at the anchors, labelled points first.
    MPH : ndarray of shape (p, p)
        ``eta P^T M H``.
    L_w : ndarray of shape (m, m)
        Same-class graph of the labelled points; 0 if it is part of M.
    added : ndarray of int
        Labelled points that become landmarks, in the order of the last columns of P.
    noise : float
        Of the landmarks.
    settings : Settings
    dtype : str
    """
    Z_A, P_A, H_A = (values.astype(np.float64) for values in (Z_A, P_A, H_A))
    m, b, noise = L_w.shape[0], added.size, max(noise, settings.nugget)
    L_w = settings.strength * L_w
    W = L_w.copy()
    W[added, added] += 1 / noise
    D = np.eye(P_A.shape[1])  # P D are landmark features
    residual = P_A[added, D.shape[0] - b :]
    S, U = symmetric_eigh((residual + residual.T) / 2 + noise * np.eye(b))
    D[D.shape[0] - b :, D.shape[0] - b :] = U / np.sqrt(np.maximum(S, noise))
    PD, solved, H_A = P_A @ D, (P_A - H_A)[:m] @ D, H_A @ D
    # Of the labelled points' columns, B^-1 loses Z (W^-1 + Z_ll)^-1 Z^T, and H loses Z N.
    Z_l = Z_A[:, :m]
    WZ = np.linalg.solve(np.eye(m) + W @ (Z_l[:m] + Z_l[:m].T) / 2, W)
    N = L_w @ PD[:m]
    N -= WZ @ (solved + Z_l[:m] @ N)
    H_A -= Z_l @ N
    # S = I + eta P^T M H: clip eigenvalues that rounding puts below 1.
    S = D.T @ MPH @ D - solved.T @ N + PD[:m].T @ (L_w @ H_A[:m])
    S, U = symmetric_eigh(np.eye(S.shape[0]) + (S + S.T) / 2)
    HS = (U / np.maximum(S, 1)) @ (U.T @ H_A.T)  # (p, anchors)
    WZ = WZ @ Z_A[:m]
    Kt_AA = Z_A - Z_l @ WZ + H_A @ HS
    if not np.all(np.isfinite(Kt_AA)):
        raise ValueError(
            f"strength = {settings.strength:.3g} with lam = {settings.lam:.3g} overflows for these data. "
            "Use smaller values."
        )
    S, U = symmetric_eigh((Kt_AA + Kt_AA.T) / 2)
    # The error of a quadratic form is the square of that of the solution.
    known = max(0.1 * settings.tol**2, 10 * float(np.finfo(dtype).eps)) * S[-1]
    rank = int(np.sum(known < S))
    if rank == 0:
        raise ValueError(f"No features are left: strength = {settings.strength:.3g} removes all of the kernel.")
    r = resolve_n_components(settings.n_components, rank)
    S, U = S[::-1][:r], fix_signs(U[:, ::-1][:, :r])
    T = U / np.sqrt(S)
    C = HS @ T
    T[:m] -= WZ @ (U / np.sqrt(S)) + N @ C
    return T, D @ C, S


def products(A: Any, B: Any, arrays: Arrays) -> np.ndarray:
    """``A^T B`` for A, B (n x p), summed over blocks in double precision."""
    parts = arrays.map(lambda block: arrays.put(A[block].T @ B[block], "float64"), gen_batches(A.shape[0], 2**14))
    return arrays.get(sum(parts[1:], parts[0]))


def _local_part(Z: Any, H: Any, P: Any, T: Any, C: Any) -> Any:
    return Z @ T + (H - P) @ C


def _graphs_of_rows(
    k: int, order: np.ndarray, neighbors: np.ndarray, weights: np.ndarray
) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """L (n, n) and the neighbors (n, l) of each row of X, from those of sorted samples."""
    restored = np.empty(neighbors.shape, dtype=order.dtype)
    restored[order] = order[neighbors]
    return assemble_cliques(weights, order[cliques(neighbors[:, : k - 1])]), restored


class SortedSamples(NamedTuple):
    """Samples in the units of the computation, sorted so that near ones are adjacent.

    `order` are the original rows of the samples, `place` is its inverse; `points` are the samples on the device, or
    sparse. Neighbors are those in the feature space of `kernel`.
    """

    frame: Frame
    search_index: NeighborIndex
    order: np.ndarray
    place: np.ndarray
    points: Any
    kernel: SampleKernel


class SplitKernel(NamedTuple):
    """What `Landmarks.split_kernel` returns, and what it was computed with."""

    P: Any
    groups: Any
    factor: tuple[Any, Any, Any]
    landmarks: Landmarks
    settings: Settings


class SparseStages(StageCache):
    """What the sparse solver asks of a `Problem`, for samples in this process.

    Values with a row per sample are arrays on the device here; on a cluster they are lists of futures, one per shard.
    """

    X: Any
    n: int
    n_drawn: int  # the first rows, of which landmarks are drawn
    arrays: Arrays
    stages: Stages
    reusable: bool

    def sort_samples(self, settings: Settings, dtype: str, kernel: Kernel) -> Any:
        """The samples in the units of the computation, sorted so that near ones are adjacent."""
        with self.stages("neighbors"):
            frame = Frame.of_kernel(self.X, kernel, dtype)
            in_memory = scipy.sparse.issparse(self.X) or self.arrays.xp is not np
            samples = frame(self.X, out=None if in_memory else self.arrays.stored(self.X.shape, dtype))
            on_device = kernel.name in EUCLIDEAN_KERNELS and not scipy.sparse.issparse(samples)
            index, order = neighbor_index(samples, self.arrays, settings.neighbor_search, on_device=on_device)
            del samples
            place = np.empty_like(order)
            place[order] = np.arange(self.n)
            return SortedSamples(frame, index, order, place, on(index.X, self.arrays), frame.kernel_of(kernel))

    def find_neighbors(self, samples: Any, k: int) -> Any:
        """The k nearest other samples of each."""
        with self.stages("neighbors"):
            return samples.search_index.query(None, k, samples.points, self.arrays, samples.kernel)

    def grams(self, samples: Any, neighbors: Any, clique_size: int, kernel: SampleKernel | None) -> Any:
        """Centered Gram matrices (n, k, k) of the cliques, in the input space or the feature space of a kernel."""
        arrays = self.arrays
        members = cliques(neighbors[:, : clique_size - 1], arrays)
        if kernel is None and not scipy.sparse.issparse(samples.points):
            return clique_grams(samples.points, members, arrays)
        kernel = kernel or SampleKernel("linear")
        grams = arrays.zeros((self.n, clique_size, clique_size), "float64")

        def fill(block: slice) -> None:
            rows = arrays.put(take_sets(samples.points, members[block], arrays), "float64")
            grams[block] = double_centered(kernel.within(rows, arrays.xp))

        for_each_set(fill, samples.points, members, 3 * 8 * clique_size, 8 * clique_size**2, arrays)
        return grams

    def locate(self, samples: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places of some rows of X among the sorted samples, and the samples there."""
        places = samples.place[rows]
        return places, samples.search_index.X[places]

    def _if_reusable(self, kind: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return ``make()``, kept for other fits if there will be any.

        Several results are kept, as the choice of strength may return to an earlier one.
        """
        if not self.reusable:
            return make()
        return self.once(kind, key, make, int(np.clip(KEPT_BYTES // (self.n * ROW_BYTES), 1, MAX_KEPT)))

    def joint_system(
        self,
        key: Hashable,
        samples: Any,
        neighbors: Any,
        weights: Any,
        landmarks: Landmarks,
        codes: np.ndarray,
        settings: Settings,
    ) -> tuple[Any, Any]:
        """The system B, and the landmark features P, here without those of labelled points."""
        arrays = self.arrays
        drawn = landmarks.without_labelled()

        def split() -> SplitKernel:
            parts = drawn.split_kernel(samples.points, samples.order, neighbors, settings, arrays)
            return SplitKernel(*parts, drawn, settings)

        P, groups, factor, _, _ = self._if_reusable("sparse_factor", key, split)
        key = (key, settings.strength, settings.lam, codes.tobytes())

        def build() -> JointSystem:
            members = cliques(neighbors[:, : settings.clique_size - 1], arrays)
            places = codes[samples.order]
            return JointSystem.build(factor, members, weights, groups, places, settings, arrays, samples.frame.dtype)

        return self._if_reusable("sparse_system", key, build), P

    def solve(
        self,
        key: Hashable,
        samples: Any,
        system: Any,
        P: Any,
        landmarks: Landmarks,
        anchors: np.ndarray,
        labelled: np.ndarray,
        settings: Settings,
    ) -> tuple[Any, Any, Any, Any, int, float]:
        """P with the residual kernel's columns at the places `labelled`, and what `JointSystem.solve` returns."""
        arrays, q = self.arrays, P.shape[1]

        def features(numbers: list[int]) -> Any:
            added = [number - q for number in numbers if number >= q]
            values = arrays.stored((P.shape[0], len(numbers)), arrays.dtype_of(P))
            first = len(numbers) - len(added)  # all of P, or none of it
            values[:, :first] = P[:, :first]
            fill_residual_columns(values[:, first:], samples.points, P, labelled[added], landmarks.kernel, arrays)
            return values

        if not self.reusable:
            P = features(list(range(q + labelled.size)))
            return P, *system.solve(anchors, P, settings)
        names = [*range(-q, 0), *labelled.tolist()]
        columns = self._if_reusable("solved_columns", key, SolvedColumns)
        return columns.solve(system, anchors, names, features, settings)

    def map(self, name: str, function: Callable[..., Any], values: tuple[Any, ...], *constants: Any) -> Any:
        """``function(*values, *constants)``, row by row of values with a row per sample; `name` is that of the task."""
        return self.arrays.rows(lambda *rows: function(*rows, *constants), values)

    def total(self, name: str, function: Callable[..., Any], values: tuple[Any, ...], *constants: Any) -> Any:
        """`map` of a function whose results are numbers or NumPy arrays to be summed."""
        return function(*values, *constants)

    def rows_at(self, samples: Any, places: np.ndarray, values: Any) -> np.ndarray:
        """Rows of values at some places."""
        return self.arrays.get(values[self.arrays.put(places)])

    def put(self, name: str, values: np.ndarray, dtype: str) -> Any:
        """A constant of `map`."""
        return self.arrays.put(values, dtype)

    def feature_map(
        self, samples: Any, landmarks: Landmarks, P: Any, C: np.ndarray, local: Any, settings: Settings
    ) -> Callable[[Any], np.ndarray]:
        """The features of new rows."""
        return LocalExpansion(
            origin=samples.frame.origin,
            unit=samples.frame.unit,
            points=samples.search_index.X,
            kernel_name=landmarks.kernel.name,
            gamma=landmarks.kernel.gamma,
            degree=landmarks.kernel.degree,
            coef0=landmarks.kernel.coef0,
            nugget=settings.nugget,
            index=samples.search_index,
            landmarks=landmarks.points,
            transform=landmarks.transform,
            P=self.arrays.rows(np.ascontiguousarray, (self.arrays.get(P[:, : landmarks.n_global]),)),
            global_coefficients=C,
            local=self.arrays.get(local),
            n_conditioning=settings.n_conditioning,
            device=settings.device,
        )

    def nearest_of_rows(self, samples: Any, neighbors: Any, settings: Settings) -> Callable[[], Any] | None:
        """A function for the samples near each row of X, the row itself first, that a search of X would find."""

        def nearest() -> Any:
            places = self.arrays.put(samples.place)
            near = neighbors[places, : settings.n_conditioning]
            return self.arrays.xp.concatenate([self.arrays.put(places[:, None], self.arrays.dtype_of(near)), near], 1)

        return nearest

    def _training_features(
        self,
        key: Hashable,
        samples: Any,
        feature_map: Any,
        nearest: Callable[[], Any],
        P: Any,
        C: np.ndarray,
        local: Any,
    ) -> np.ndarray:
        """Features of the rows of X, whose neighbors `nearest` gives; the weights of these do not depend on labels."""
        if not self.reusable:
            return np.asarray(feature_map(self.X, nearest(), self.arrays))
        arrays, dtype = self.arrays, self.X.dtype.name
        weights = self._if_reusable(
            "training_weights", (key, dtype), lambda: feature_map.neighbor_weights(self.X, nearest())
        )
        features = weights @ arrays.put(local, dtype)
        features += arrays.put(P @ arrays.put(C, samples.frame.dtype), dtype)[arrays.put(samples.place)]
        return arrays.get(features)

    def graphs(self, samples: Any, neighbors: Any, weights: Any) -> Callable[[], tuple[np.ndarray, ...]]:
        """A function for the rows, the neighbors and the cliques' Laplacians of the sorted samples."""
        return lambda: (samples.order, self.arrays.get(neighbors), self.arrays.get(weights))


def on(X: Any, arrays: Arrays) -> Any:
    """X on the device; a sparse X unchanged."""
    return X if scipy.sparse.issparse(X) else arrays.put(X)


def rows_of(X: Any, rows: np.ndarray, arrays: Arrays) -> Any:
    """Some rows of X, which is on the device or sparse."""
    return X[rows] if scipy.sparse.issparse(X) else X[arrays.put(rows)]


def for_each_set(
    function: Callable[[slice], None], X: Any, sets: Any, width_bytes: int, other_bytes: int, arrays: Arrays
) -> None:
    """`Arrays.each` over sets of rows of X (n x m), at so many bytes per column, and other bytes, per set."""
    if scipy.sparse.issparse(X):
        arrays.map(function, set_batches(X, arrays.get(sets), width_bytes, other_bytes, arrays.block_bytes))
    else:
        arrays.each(function, sets.shape[0], X.shape[1] * width_bytes + other_bytes)


@dataclass(frozen=True)
class Frame:
    """Conversion of input rows to samples: ``(X - origin) / unit`` in the working precision.

    For the kernel "cosine" X are the rows at unit norm, for "chi2" square roots. The kernel of samples is that of input
    rows divided by `scale`, its mean diagonal.
    """

    origin: np.ndarray | None
    unit: float
    dtype: str
    kernel: str = "rbf"
    scale: float = 1.0

    @classmethod
    def of(cls, X: Any, origin: np.ndarray | None, dtype: str, kernel: str = "rbf") -> Frame:
        """The unit is the root mean square of some rows relative to the origin; 1 if that is 0."""
        some = X[:: max(1, X.shape[0] // SPREAD_ROWS)].astype(np.float64)
        if kernel == "chi2":
            some = np.sqrt(some)
        squares = some.multiply(some).mean() if scipy.sparse.issparse(some) else np.mean(shifted(some, origin) ** 2)
        return cls(origin, float(np.sqrt(squares)) or 1.0, dtype, kernel)

    @classmethod
    def of_kernel(cls, X: Any, kernel: Kernel, dtype: str) -> Frame:
        """The frame for a kernel of the rows of X."""
        name: Any = kernel.name
        if name == "chi2":
            check_counts(X)
        frame = cls.of(X, column_means(X) if name in ("rbf", "laplacian") else None, dtype, name)
        if name not in PRODUCT_KERNELS:
            return frame
        squares = row_norms(X, squared=True).astype(np.float64)
        if name == "cosine":
            scale = float(np.mean(squares > 0)) or 1.0
        else:
            unscaled = SampleKernel(name, kernel.gamma or 1.0, kernel.degree, kernel.coef0)
            scale = float(unscaled.of_products(squares).mean()) or 1.0
        return replace(frame, unit=frame.unit if name == "poly" else scale**0.5, scale=scale)

    def kernel_of(self, kernel: Kernel) -> SampleKernel:
        """The kernel of samples whose input rows have this kernel."""
        name: Any = kernel.name
        gamma = min(float(kernel.gamma or 1.0) * self.unit ** (1 if name == "laplacian" else 2), LARGEST_GAMMA)
        if name in ("linear", "cosine"):
            return SampleKernel(name)
        root = self.scale ** (1 / kernel.degree)
        return SampleKernel(name, gamma / root, kernel.degree, float(kernel.coef0) / root)

    def gram_unit(self, in_kernel: bool) -> float:
        """Inner products of input rows, or with `in_kernel` in their kernel's feature space, in units of samples'."""
        return self.scale if in_kernel else self.unit**2

    def __call__(self, X: Any, dtype: str | None = None, out: np.ndarray | None = None) -> Any:
        """Samples (n x d) of input rows, dense or sparse, clipped to what single precision can square.

        Those of dense rows are in `out`, if given.
        """
        dtype = dtype or self.dtype
        if self.kernel == "chi2":
            check_counts(X)
        if scipy.sparse.issparse(X):
            X = without_duplicates(X)
            X = normalize(X) if self.kernel == "cosine" else X
            values = np.sqrt(X.data) if self.kernel == "chi2" else X.data
            with np.errstate(over="ignore"):
                values = np.clip(values / self.unit, -MAX_MAGNITUDE, MAX_MAGNITUDE).astype(dtype)
            return scipy.sparse.csr_array((values, X.indices, X.indptr), shape=X.shape)
        samples = np.empty(X.shape, dtype=dtype) if out is None else out

        def fill(block: slice) -> None:
            rows = X[block] - (0 if self.origin is None else self.origin)
            if self.kernel == "cosine":
                rows = normalize(rows, copy=False)
            elif self.kernel == "chi2":
                np.sqrt(rows, out=rows)
            with np.errstate(over="ignore"):  # overflow is clipped
                rows /= self.unit
            samples[block] = np.clip(rows, -MAX_MAGNITUDE, MAX_MAGNITUDE, out=rows)

        if X.size <= SMALL:
            fill(slice(None))
        else:
            CPU.each(fill, X.shape[0], 8 * X.shape[1])
        return samples

    def input_rows(self, samples: Any) -> Any:
        """Rows that these are the samples of, in double precision."""
        rows = samples.astype(np.float64) * self.unit
        if self.kernel == "chi2":
            rows = rows * rows
        return rows if self.origin is None else rows + self.origin.astype(np.float64)


def choose_landmarks(
    codes: np.ndarray, n_added: int, rng: np.random.Generator, n_drawn: int | None = None
) -> tuple[np.ndarray, int, np.ndarray]:
    """Rows of landmarks: m labelled points, at most 1,000, balanced over classes, and random others; m; a selection.

    Selected are the `n_added` rows (or 1, if 0) that are drawn whatever the labels, some of which may be labelled: of
    the first `n_drawn` rows, or of all.
    """
    drawn = sample_others(n_drawn or codes.size, np.arange(0), max(n_added, 1), rng)
    labelled = sample_labelled_balanced(codes, MAX_LABELLED, rng)
    chosen = np.concatenate([labelled, drawn[~np.isin(drawn, labelled)]])
    order = np.argsort(chosen)
    return chosen, labelled.size, order[np.searchsorted(chosen, drawn, sorter=order)]


def landmark_transform(Z: Any, kernel: SampleKernel, noise: float, arrays: Arrays) -> Any:
    """T (p x p) such that ``P = k(X, Z) T`` satisfies ``P P^T = k(X, Z) (k(Z, Z) + noise I)^-1 k(Z, X)``.

    The residual ``K - P P^T`` is positive semi-definite for any noise.
    """
    xp = arrays.xp
    Z = in_double(Z, arrays)
    S, U = xp.linalg.eigh(kernel.cross(Z, Z, arrays))
    floor = S.shape[0] * float(np.finfo(np.float64).eps) * float(S[-1])  # for duplicate landmarks without noise
    # The smallest normal number, if all landmarks are zero.
    return U / xp.sqrt(xp.clip(S, max(floor, float(np.finfo(np.float64).tiny)), None) + noise)


def in_double(X: Any, arrays: Arrays) -> Any:
    """X in double precision, on the device; a sparse X unchanged."""
    return X.astype(np.float64) if scipy.sparse.issparse(X) else arrays.put(X, "float64")


@dataclass(frozen=True)
class Landmarks(HoldsArrays):
    """Global part of the kernel: points (p x d), and the transform (p x q) from kernel values at them to features.

    The last `n_labelled` points are labelled, and as many features the columns of the residual kernel at them: they do
    not change the residual.
    """

    points: Any
    transform: np.ndarray
    kernel: SampleKernel
    n_labelled: int = 0

    @property
    def n_global(self) -> int:
        """Number of features that define the residual kernel, the first ones."""
        return self.transform.shape[1] - self.n_labelled

    def with_labelled(self, points: Any, arrays: Arrays) -> Landmarks:
        """The same with labelled points (b x d): the residual kernel ``R = k - p p^T`` at them."""
        b, (p, q) = points.shape[0], self.transform.shape
        transform = np.zeros((p + b, q + b))
        transform[:p, :q] = self.transform
        transform[:p, q:] = -self.transform @ arrays.get(self.features(in_double(points, arrays), arrays)[0]).T
        transform[p:, q:] = np.eye(b)
        return Landmarks(stacked(self.points, points), transform, self.kernel, b)

    def without_labelled(self) -> Landmarks:
        """Only the points that do not depend on labels."""
        p = self.points.shape[0] - self.n_labelled
        return Landmarks(self.points[:p], self.transform[:p, : self.n_global], self.kernel)

    def features(self, X: Any, arrays: Arrays) -> tuple[Any, Any]:
        """P (n x q), ``k(X, points) @ transform`` for the rows of X, in blocks, and the nearest landmark of each."""
        dtype = arrays.dtype_of(X)
        # Double precision: products lose digits of small distances between samples far from the origin.
        Z, transform = in_double(self.points, arrays), arrays.put(self.transform, "float64")
        # Half the squared distance in feature space is a constant of each row minus these kernel values.
        offsets = arrays.put(self.kernel.diagonal(self.points) / 2 if self.kernel.name in PRODUCT_KERNELS else 0.0)
        P = arrays.stored((X.shape[0], transform.shape[1]), dtype)
        nearest = arrays.zeros((X.shape[0],), arrays.dtype_of(arrays.integers(1)))

        def fill(block: slice) -> None:
            K = self.kernel.cross(in_double(X[block], arrays), Z, arrays)
            P[block] = arrays.put(K @ transform, dtype)
            nearest[block] = (K - offsets)[:, : Z.shape[0] - self.n_labelled].argmax(axis=1)

        arrays.each(fill, X.shape[0], 8 * (4 * Z.shape[0] + row_width(X)))
        return P, nearest

    def split_kernel(
        self, X: Any, rows: np.ndarray, neighbors: Any, settings: Settings, arrays: Arrays
    ) -> tuple[Any, Any, tuple[Any, Any, Any]]:
        """``K = P P^T + R``: landmark features and nearest landmarks of samples X, and the `residual_factor` of R.

        `rows` are the rows of the samples in the input, which give their random order. The neighbors (n x l) are those
        of the first n samples, and may be among the others.
        """
        P, groups = self.features(X, arrays)
        rank = arrays.put(random_ranks(rows, settings.random_state))
        sets = conditioning_sets(neighbors, rank, settings.n_conditioning, arrays)
        return P, groups, residual_factor(X, P[:, : self.n_global], sets, self.kernel, settings.nugget, arrays)

    def local_weights(self, new: Any, P_new: Any, near: Any, points: Any, P: Any, nugget: float, arrays: Arrays) -> Any:
        """Weights (b, k) of the training samples `near` (indices into points and P) in the features of new samples.

        P are the features that define the residual kernel, the first ones of P_new.
        """
        xp, dtype = arrays.xp, arrays.dtype_of(new)
        Y = take_sets(points, near, arrays, new)
        P_all = xp.concatenate([arrays.put(P[near], dtype), P_new[:, None, : P.shape[1]]], axis=1)
        return conditional(Y, P_all, near < 0, self.kernel, nugget, arrays)[0]


def fill_residual_columns(
    columns: Any, X: Any, P: Any, places: np.ndarray, kernel: SampleKernel, arrays: Arrays
) -> None:
    """Set columns (n, b) to those of the residual kernel ``R = k - P P^T`` of samples X (n x d) at some places."""
    if not places.size:
        return
    # Double precision, as in `Landmarks.features`.
    Z, P_Z = in_double(rows_of(X, places, arrays), arrays), arrays.put(P[arrays.put(places)], "float64")

    def fill(block: slice) -> None:
        K = kernel.cross(in_double(X[block], arrays), Z, arrays)
        columns[block] = arrays.put(K - arrays.put(P[block], "float64") @ P_Z.T, arrays.dtype_of(X))

    arrays.each(fill, X.shape[0], 8 * (4 * places.size + row_width(X) + P.shape[1]))


def random_ranks(rows: np.ndarray, seed: int) -> np.ndarray:
    """Random ranks (int64) of rows, each computed from the row index alone (splitmix64)."""
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(1)).astype(np.int64)


def conditioning_sets(neighbors: Any, rank: Any, size: int, arrays: Arrays) -> Any:
    """The nearest neighbors of each point that precede it in the order, shape (n, at most `size`).

    `neighbors` (n, l) are nearest first; ranks of the n points are followed by those of other points that occur as
    neighbors. Missing neighbors are filled with the point itself.
    """
    xp = arrays.xp
    n, listed = neighbors.shape
    sets = xp.empty_like(neighbors[:, : min(size, listed)])
    sets[:] = arrays.put(arrays.integers(n), arrays.dtype_of(sets))[:, None]

    def fill(block: slice) -> None:
        near = neighbors[block]
        before = rank[near] < rank[block, None]
        place = xp.cumsum(before, axis=1) - 1
        kept = before & (place < sets.shape[1])
        at = xp.where(kept)[0] + block.start
        sets[at, place[kept]] = near[kept]

    arrays.each(fill, n, 5 * 8 * listed)
    return sets


def residual_factor(
    X: Any, P: Any, sets: Any, kernel: SampleKernel, nugget: float, arrays: Arrays
) -> tuple[Any, Any, Any]:
    """G with ``R^-1 = G^T G`` approximately: row i is the point minus its conditional mean, over the deviation.

    The first n rows of X (n or more x d) and of its landmark features P are the points of the sets (n x s). G is
    returned as triplets by row, including the diagonal.
    """
    xp, dtype = arrays.xp, arrays.dtype_of(X)
    n, s = sets.shape
    points = arrays.put(arrays.integers(n), arrays.dtype_of(sets))
    columns = xp.concatenate([sets, points[:, None]], axis=1)
    values = arrays.zeros((n, s + 1), dtype)

    def fill(block: slice) -> None:
        members = columns[block]
        Y = take_sets(X, members, arrays)
        weights, variance = conditional(Y, P[members], sets[block] == points[block, None], kernel, nugget, arrays)
        deviation = xp.sqrt(variance)
        values[block, :s] = arrays.put(-weights / deviation[:, None], dtype)
        values[block, s] = arrays.put(1 / deviation, dtype)

    itemsize = np.dtype(dtype).itemsize
    other = (s + 1) * P.shape[1] * itemsize + 4 * 8 * (s + 1) ** 2
    for_each_set(fill, X, columns, (s + 1) * itemsize, other, arrays)
    kept = columns != points[:, None]
    kept[:, s] = True
    return (points[:, None] + 0 * columns)[kept], columns[kept], values[kept]


def conditional(Y: Any, P: Any, missing: Any, kernel: SampleKernel, nugget: float, arrays: Arrays) -> tuple[Any, Any]:
    """Weights and variance of a point given others under the residual kernel ``R = k - P P^T``.

    Parameters
    ----------
    Y : array of shape (b, s + 1, d)
        The others, then the point itself.
    P : array of shape (b, s + 1, p)
        Their landmark features.
    missing : bool array of shape (b, s)
        Mask of fill-in entries.

    Returns
    -------
    weights : array of shape (b, s)
        ``w = R_NN^-1 r_N``, zero for fill-in entries.
    variance : array of shape (b,)
        ``R_ii - w^T r_N``, at least the nugget.
    """
    xp = arrays.xp
    R = kernel.within(Y, xp) - P @ xp.swapaxes(P, 1, 2)
    R = arrays.put(R, "float64")
    s = R.shape[1] - 1
    present = arrays.put(~missing, "float64")
    R_NN = R[:, :s, :s] * present[:, :, None] * present[:, None, :]
    diagonal = xp.arange(s)
    R_NN[:, diagonal, diagonal] += 1 - present + max(nugget, MIN_NUGGET)
    r_N = R[:, :s, s] * present
    weights = xp.linalg.solve(R_NN, r_N[:, :, None])[:, :, 0]
    variance = xp.clip(R[:, s, s] - (weights * r_N).sum(axis=1), nugget, None)
    return weights, variance


@dataclass(frozen=True)
class LocalExpansion:
    """``features(x) = p(x)^T C + w(x)^T F_N``: landmarks plus a correction by the nearest training points N.

    ``w = R_NN^-1 r_N(x)`` are the weights of N under the residual kernel ``R = k - P P^T``.

    Attributes
    ----------
    origin : ndarray of shape (d,) or None
        Subtracted from samples.
    unit : float
        Scale of samples, after centering.
    points : ndarray or CSR array of shape (n, d)
        Training samples.
    gamma, nugget : float
        Bandwidth of the kernel of samples, and noise of its residual.
    index : NeighborIndex
        Index of `points`.
    landmarks : ndarray of shape (p, d)
    transform : ndarray of shape (p, q)
        ``p(x) = k(x, landmarks) @ transform``.
    P : ndarray of shape (n, at most q)
        Landmark features of the training samples: those that define R, the first ones.
    global_coefficients : ndarray of shape (q, r)
        C.
    local : ndarray of shape (n, r)
        F.
    n_conditioning : int
        Number of training samples in N, minus one.
    device : str
        Device of the computation.
    kernel_name, degree, coef0 : str, int, float
        The kernel of samples, see `SampleKernel`.
    """

    origin: np.ndarray | None
    unit: float
    points: Any
    gamma: float
    nugget: float
    index: NeighborIndex
    landmarks: Any
    transform: np.ndarray
    P: np.ndarray
    global_coefficients: np.ndarray
    local: np.ndarray
    n_conditioning: int
    device: str
    kernel_name: str = "rbf"
    degree: int = 3
    coef0: float = 1.0

    @property
    def sample_kernel(self) -> SampleKernel:
        """The kernel of samples."""
        return SampleKernel(self.kernel_name, self.gamma, self.degree, self.coef0)

    @property
    def frame(self) -> Frame:
        """Conversion of input rows to samples, in the precision of those of the fit."""
        return Frame(self.origin, self.unit, str(self.points.dtype), self.kernel_name)

    def __call__(self, X: Any, near: Any = None, arrays: Arrays | None = None) -> np.ndarray:
        """Features (len(X), r) of the rows of X, with the dtype of X, computed in blocks.

        `near` are the nearest training samples of each row (len(X), N), on the device; None to search for them.
        `arrays` stores the features, which by default are in memory.
        """
        in_memory = not isinstance(arrays, FileArrays)
        arrays = arrays_on(self.device)
        n, r = X.shape[0], self.local.shape[1]
        n_near = min(self.n_conditioning + 1, self.points.shape[0])  # one more than in training
        row_bytes = self._row_bytes(n_near, r)
        row_result = in_memory * r * X.dtype.itemsize
        if n * (row_bytes + row_result) > BLOCK_BYTES:  # asking for free memory takes longer than features of a row
            together = effective_n_jobs(arrays.n_jobs) * max(1, arrays.block_bytes // row_bytes)
            require_memory(
                min(n, together) * row_bytes + n * row_result,
                f"Computing features of {n:,} row(s) from {n_near:,} neighbors each",
                "Pass fewer rows at a time, or fit with a smaller n_conditioning.",
                arrays.free_memory(),
            )
        features = np.empty((n, r), dtype=X.dtype) if in_memory else file_array((n, r), X.dtype)
        computed = counter(n, "rows transformed")
        on_device = (on(self.points, arrays), arrays.put(self.P), arrays.put(self.local))
        with one_blas_thread():  # once: each part would limit and restore them
            for rows in row_blocks(n, min(BATCH, BATCH_BYTES // (8 * row_width(X)))):
                known = None if near is None else near[rows]
                some = self._like_points(X[rows])
                features[rows] = self._batch(some, known, n_near, row_bytes, *on_device, arrays=arrays)
                computed(some.shape[0])
        return features

    def neighbor_weights(self, X: Any, near: Any) -> Any:
        """Weights of the nearest training samples `near` (len(X), N) of each row: a sparse matrix (len(X), n)."""
        arrays = arrays_on(self.device)
        dtype = np.result_type(X.dtype, self.points.dtype).name
        points, P, landmarks = on(self.points, arrays), arrays.put(self.P), self._landmarks().without_labelled()
        weights = arrays.zeros(tuple(near.shape), dtype)

        def fill(block: slice) -> None:
            new = on(self.frame(self._like_points(X[block]), dtype), arrays)
            P_new = landmarks.features(new, arrays)[0]
            found = landmarks.local_weights(new, P_new, near[block], points, P, self.nugget, arrays)
            weights[block] = arrays.put(found, dtype)

        arrays.each(fill, X.shape[0], self._row_bytes(near.shape[1], 0))
        rows = arrays.integers(X.shape[0])[:, None] + 0 * near
        return arrays.sparse(rows.reshape(-1), near.reshape(-1), weights.reshape(-1), (X.shape[0], points.shape[0]))

    def _landmarks(self) -> Landmarks:
        n_labelled = self.transform.shape[1] - self.P.shape[1]
        return Landmarks(self.landmarks, self.transform, self.sample_kernel, n_labelled)

    def _like_points(self, X: Any) -> Any:
        """Rows as an array, or as a CSR matrix if the points are."""
        return scipy.sparse.csr_array(X) if scipy.sparse.issparse(self.points) else dense(X)

    def _row_bytes(self, n_near: int, r: int) -> int:
        """Bytes per row, mostly for the systems of `conditional`."""
        s = n_near + 1
        return 8 * (s * (row_width(self.points, s) + self.P.shape[1] + r) + 4 * s * s)

    def _batch(
        self, X: Any, near: Any, n_near: int, row_bytes: int, points: Any, P: Any, local: Any, *, arrays: Arrays
    ) -> np.ndarray:
        # Single precision suffices for training; here a row's features would depend on other rows of its batch.
        dtype = np.result_type(X.dtype, self.points.dtype).name
        samples = self.frame(X, dtype)
        new, C = on(samples, arrays), arrays.put(self.global_coefficients, dtype)
        landmarks = self._landmarks()
        P_new, _ = landmarks.features(new, arrays)
        if near is None:
            queries = samples.astype(self.points.dtype, copy=False)
            near = self.index.query(queries, n_near, points, arrays, self.sample_kernel)
        features = arrays.zeros((samples.shape[0], local.shape[1]), dtype)

        def fill(block: slice) -> None:
            at = near[block]
            weights = landmarks.local_weights(new[block], P_new[block], at, points, P, self.nugget, arrays)
            added = (arrays.put(weights, dtype)[:, None] @ arrays.put(local[at], dtype))[:, 0]
            features[block] = P_new[block] @ C + added

        arrays.each(fill, samples.shape[0], row_bytes)
        return arrays.get(features)
