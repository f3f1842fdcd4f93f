"""The sparse solver: time and memory linear in n, for the RBF kernel.

The kernel is written ``K = P P^T + R``. P (n x p) are the features of p landmarks, the labelled points among them: the
global part. The inverse of the residual R, the local part, is approximated by a sparse factor, ``R^-1 = G^T G``: the
points are put in a random order, and each is conditioned on those of its nearest neighbors that come before it. With
``B = G^T G + eta M`` and ``H = P - B^-1 eta M P`` the filtered kernel ``(K^-1 + eta M)^-1`` is then ``B^-1 + H S^-1
H^T``, ``S = I + eta P^T M H``: a sparse positive definite system with a right-hand side for each anchor and landmark,
and a small dense one. Nothing else is approximated: when every point is conditioned on all that come before it, the
result is that of the exact solver, whatever the landmarks.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.utils import gen_batches

from ldsu._utils.arrays import CPU, Arrays
from ldsu.graphs import assemble_cliques, clique_grams, clique_weights, mean_clique_scatter
from ldsu.kernels import Kernel, column_means, dense, shifted
from ldsu.labels import class_counts
from ldsu.neighbors import NeighborIndex, cliques, neighbor_index
from ldsu.solvers._joint_system import JointSystem
from ldsu.solvers._landmarks import (
    MAX_LABELLED,
    NOISE,
    choose_landmarks,
    landmark_features,
    landmark_transform,
    resolve_n_directions,
    resolve_n_landmarks,
)
from ldsu.solvers._local_expansion import MAX_CONDITIONING, LocalExpansion, in_units
from ldsu.solvers._precision import conditioning_sets, random_ranks, residual_factor
from ldsu.solvers._problem import Problem, stage
from ldsu.solvers._sparse_spectrum import pairs_memory, shifted_strength, truncated_features, unsupported_pairs_reason
from ldsu.solvers._types import Settings, Solution
from ldsu.spectrum import fix_signs, resolve_n_components, symmetric_eigh

# A smaller tolerance, or a larger weight of the graphs relative to the kernel, requires double precision.
SINGLE_TOLERANCE, SINGLE_STRENGTH = 1e-5, 1e4
# A smaller nugget does, too: the factor contains the inverse of its square root.
SINGLE_NUGGET = 1e-12
# For a larger weight of the graphs relative to the kernel, the tolerance is reduced in proportion.
USUAL_STRENGTH, MIN_TOLERANCE = 1e3, 1e-8
# Upper limit of gamma, in units of the samples' spread; the kernel is zero between samples anyway.
LARGEST_GAMMA = 1e30
# Number of rows from which the spread of the samples, the unit of the computation, is estimated.
SPREAD_ROWS = 1000


def graph_weight(codes: np.ndarray, settings: Settings) -> float:
    """Weight of the graphs relative to the kernel, which has diagonal 1."""
    return settings.strength * max(settings.lam, float(class_counts(codes).max(initial=0)))


def working_precision(codes: np.ndarray, settings: Settings) -> str:
    """Single precision, unless tolerance, strength, nugget or eigenvectors require double precision."""
    light = graph_weight(codes, settings) <= SINGLE_STRENGTH and settings.nugget >= SINGLE_NUGGET
    return "float32" if light and settings.tol >= SINGLE_TOLERANCE and settings.filter != "truncate" else "float64"


def unsupported_reason(X: Any, kernel_name: Any, settings: Settings) -> str | None:
    """Why the sparse solver does not support a problem, as the end of a sentence; None if it does."""
    if kernel_name != "rbf":
        return f"it supports kernel='rbf', not {kernel_name!r}"
    if settings.cliques == "kernel":
        return "it only supports cliques in the input space"
    if settings.filter == "heat":
        return "it supports filter='tikhonov' and 'truncate', not 'heat'"
    if settings.n_conditioning > MAX_CONDITIONING:
        return f"n_conditioning must be at most {MAX_CONDITIONING:,}, not {settings.n_conditioning:,}"
    return unsupported_pairs_reason(X.shape[0], settings) if settings.filter == "truncate" else None


def sparse_memory(X: Any, codes: np.ndarray, settings: Settings) -> int:
    """Peak memory of the sparse solver in bytes, without X and its copy."""
    n, d = X.shape
    m = min(int(np.sum(codes >= 0)), MAX_LABELLED)
    itemsize = 4 if working_precision(codes, settings) == "float32" else 8
    landmarks = min(resolve_n_landmarks(settings.n_landmarks, n) + m, resolve_n_directions(n))
    anchors = max(m, settings.min_anchors)
    copies = 2 * X.dtype.itemsize if scipy.sparse.issparse(X) else 0
    solving = 8 * CPU.columns * (os.cpu_count() or 1)
    listed = max(2 * settings.n_conditioning, settings.clique_size - 1)
    graph = 2 * 16 * listed + 4 * 24 * (settings.n_conditioning + 1) + 3 * 24 * settings.clique_size**2
    pairs = pairs_memory(n, landmarks, settings) if settings.filter == "truncate" else 0
    return n * (copies * d + itemsize * (d + solving + 3 * landmarks + 3 * anchors) + graph) + pairs + 2**29


class SortedSamples(NamedTuple):
    """Samples in the units of the computation, sorted so that near ones are adjacent.

    `order` are the original rows of the samples, `place` is its inverse; `points` are the samples on the device.
    """

    origin: np.ndarray | None
    unit: float
    search_index: NeighborIndex
    order: np.ndarray
    place: np.ndarray
    points: Any


@stage(lambda settings, dtype: (dtype, settings.neighbor_search))
def sorted_samples(problem: Problem, settings: Settings, dtype: str) -> SortedSamples:
    """The samples of a problem, sorted and indexed."""
    with problem.stages("neighbors"):
        X = dense(problem.X)
        origin = column_means(X)
        unit = spread(X[rows_for_spread(problem.n)], origin)
        samples = in_units(X, origin, unit, dtype)
        index, order = neighbor_index(samples, problem.arrays, settings.neighbor_search)
        place = np.empty_like(order)
        place[order] = np.arange(problem.n)
        return SortedSamples(origin, unit, index, order, place, problem.arrays.put(index.X))


@stage(lambda settings, dtype: (dtype, settings.neighbor_search, settings.n_conditioning, settings.clique_size))
def listed_neighbors(problem: Problem, settings: Settings, dtype: str) -> Any:
    """Nearest other samples of each, as many as cliques and conditioning sets need."""
    samples = sorted_samples(problem, settings, dtype)
    listed = min(max(2 * settings.n_conditioning, settings.clique_size - 1), problem.n - 1)
    with problem.stages("neighbors"):
        return samples.search_index.query(None, listed, samples.points, problem.arrays)


@stage(
    lambda settings, dtype: (
        *(dtype, settings.neighbor_search, settings.n_conditioning),
        *(settings.clique_size, settings.theta, settings.scaling),
    )
)
def sparse_cliques(problem: Problem, settings: Settings, dtype: str) -> tuple[Any, Any, float]:
    """Members (n, k) and scaled Laplacians (n, k, k) of the cliques, and the ridge."""
    samples, arrays = sorted_samples(problem, settings, dtype), problem.arrays
    neighbors = listed_neighbors(problem, settings, dtype)
    relative = settings.scaling == "relative"
    with problem.stages("graphs"):
        members = cliques(neighbors[:, : settings.clique_size - 1], arrays)
        grams = clique_grams(samples.points, members, arrays)
        theta = settings.theta * ((mean_clique_scatter(grams) or 1.0) if relative else samples.unit**-2)
        weights = clique_weights(grams, theta, arrays.xp)
        weights *= clique_scale(sum_of_diagonals(weights), problem.n, samples.unit, settings)
        return members, weights, theta


def solve_sparse(problem: Problem, codes: np.ndarray, kernel: Kernel, settings: Settings) -> Solution:
    """Filter the kernel, ``(K^-1 + strength M)^-1`` with ``M = L_w + lam L``, at linear cost.

    With "truncate" the features are the smallest pairs of ``M v = mu K^-1 v``: see `_sparse_spectrum`.

    Parameters
    ----------
    problem : Problem
        The samples, and the stages computed from them: neighbors and cliques, which do not depend on labels, are kept.
    codes : ndarray of shape (n,)
        Class numbers, -1 where unlabelled.
    kernel : Kernel
        An RBF kernel.
    settings : Settings
    """
    reason = unsupported_reason(problem.X, kernel.name, settings)
    if reason:
        raise ValueError(f"solver='sparse' does not support this: {reason}. Use solver='exact'.")
    n, arrays, stages = problem.n, problem.arrays, problem.stages
    dtype = working_precision(codes, settings)
    settings = tolerance(codes, settings)
    origin, unit, index, order, place, points = sorted_samples(problem, settings, dtype)
    neighbors = listed_neighbors(problem, settings, dtype)
    members, weights, theta = sparse_cliques(problem, settings, dtype)
    gamma = gamma_in_units(kernel, unit)
    landmarks, m = landmarks_of(codes, settings)
    samples, codes, landmarks = index.X, codes[order], place[landmarks]
    with stages("landmarks"):
        anchors = choose_anchors_among(landmarks, m, settings)
        transform = landmark_directions(points[landmarks], n, gamma, settings, arrays)
        P, nearest = landmark_features(points, points[landmarks], transform, gamma, arrays)
    with stages("factor"):
        rank = arrays.put(random_ranks(order, settings.random_state))
        sets = conditioning_sets(neighbors, rank, settings.n_conditioning, arrays)
        factor = residual_factor(points, P, sets, gamma, settings.nugget, arrays)
        joint = settings
        if settings.filter == "truncate":
            joint = replace(settings, strength=shifted_strength(weights, codes, settings.lam))
        system = JointSystem.build(factor, members, weights, nearest, codes, joint, arrays, dtype)
    with stages("solve"):
        if settings.filter == "truncate":
            pairs, W = truncated_features(system, P, members, codes, settings)
            iterations, residual = pairs.iterations, pairs.residual
        else:
            Z, MP, H, iterations, residual = system.solve(anchors, P, settings)
    with stages("features"):
        if settings.filter == "truncate":
            C, local, eigenvalues = arrays.get(W), pairs.V - P @ W, pairs.mu
        else:
            T, C, eigenvalues = anchored_features(
                arrays.get(products(MP, H, arrays)), arrays.get(Z[anchors]), arrays.get(H[anchors]), settings, dtype
            )
            local = Z @ arrays.put(T, dtype) + (H - P) @ arrays.put(C, dtype)
        feature_map = LocalExpansion(
            origin=origin,
            unit=unit,
            points=samples,
            gamma=gamma,
            index=index,
            landmarks=samples[landmarks],
            transform=arrays.get(transform),
            P=arrays.get(P),
            global_coefficients=C,
            local=arrays.get(local),
            n_conditioning=settings.n_conditioning,
            nugget=settings.nugget,
            device=settings.device,
        )
    return Solution(
        feature_map=feature_map,
        coefficients=None,
        eigenvalues=eigenvalues,
        anchors=None if settings.filter == "truncate" else order[anchors],
        clique_laplacian=lambda: assemble_cliques(arrays.get(weights), order[arrays.get(members)]),
        theta=theta * unit**2,
        iterations=iterations,
        residual=residual,
        neighbors=restore_order(arrays.get(neighbors), order),
    )


def restore_order(neighbors: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Lists of neighbors (n x l) of sorted samples, in the original order of the samples."""
    restored = np.empty_like(neighbors)
    restored[order] = order[neighbors]
    return restored


def rows_for_spread(n: int) -> slice:
    """Rows out of n from which the spread is estimated."""
    return slice(None, None, max(1, n // SPREAD_ROWS))


def spread(some: np.ndarray, origin: np.ndarray | None) -> float:
    """Root mean square of a subset of samples (s x d) relative to the origin; 1 if that is 0."""
    return float(np.sqrt(np.mean(shifted(some.astype(np.float64), origin) ** 2))) or 1.0


def gamma_in_units(kernel: Kernel, unit: float) -> float:
    """Bandwidth for samples divided by `unit`."""
    return min(float(kernel.gamma or 0.0) * unit**2, LARGEST_GAMMA)


def tolerance(codes: np.ndarray, settings: Settings) -> Settings:
    """Settings with `tol` reduced for strong graphs."""
    if settings.filter != "tikhonov":
        return settings
    usual = settings.tol / max(1.0, graph_weight(codes, settings) / USUAL_STRENGTH)
    return replace(settings, tol=max(usual, min(settings.tol, MIN_TOLERANCE)))


def landmarks_of(codes: np.ndarray, settings: Settings) -> tuple[np.ndarray, int]:
    """Landmark rows from the class codes (n,), and the number of labelled landmarks."""
    n_added = resolve_n_landmarks(settings.n_landmarks, codes.size)
    return choose_landmarks(codes, n_added, np.random.default_rng(settings.random_state))


def choose_anchors_among(landmarks: np.ndarray, m: int, settings: Settings) -> np.ndarray:
    """Anchors: the m labelled landmarks, and others up to `min_anchors`."""
    return landmarks[: max(m, min(settings.min_anchors, landmarks.size))]


def landmark_directions(landmarks: Any, n: int, gamma: float, settings: Settings, arrays: Arrays) -> Any:
    """Transform (p, q) from kernel values at the landmarks (p x d) of n samples to landmark features."""
    noise = NOISE * n if settings.landmark_noise is None else settings.landmark_noise
    return landmark_transform(landmarks, gamma, noise, arrays)[:, -resolve_n_directions(n) :]


def sum_of_diagonals(weights: Any) -> float:
    """Sum of the diagonals of the cliques' Laplacians (n, k, k)."""
    n, k = weights.shape[:2]
    return float(weights.reshape(n, -1)[:, :: k + 1].sum())


def clique_scale(sum_of_diagonals: float, n: int, unit: float, settings: Settings) -> float:
    """Factor of the cliques' Laplacians: to a mean diagonal of 1 if relative, else to the units of the data."""
    return 1 / (sum_of_diagonals / n or 1.0) if settings.scaling == "relative" else unit**-2


def anchored_features(
    MPH: np.ndarray, Z_A: np.ndarray, H_A: np.ndarray, settings: Settings, dtype: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients of the features from the solutions at the anchors.

    Parameters
    ----------
    MPH : ndarray of shape (p, p)
        ``eta P^T M H``.
    Z_A, H_A : ndarrays of shape (anchors, anchors), (anchors, p)
        Rows of ``B^-1 E_A`` and of H.

    Returns
    -------
    T, C : ndarrays of shape (anchors, r), (p, r)
        Features of the samples are ``Z T + H C``.
    eigenvalues : ndarray of shape (r,)
        Sums of squares of the features over the anchors.
    """
    # S = I + eta P^T M H: clip eigenvalues that rounding puts below 1.
    S, U = symmetric_eigh(np.eye(MPH.shape[0]) + MPH)
    S = np.maximum(S, 1)
    W = (U / S) @ (U.T @ H_A.astype(np.float64).T)  # (p, anchors)
    T, eigenvalues = _anchored_directions(Z_A.astype(np.float64) + H_A @ W, settings, dtype)
    return T, W @ T, eigenvalues


def products(A: Any, B: Any, arrays: Arrays) -> Any:
    """``A^T B`` for A, B (n x p), summed over blocks in double precision."""
    parts = arrays.map(lambda block: arrays.put(A[block].T @ B[block], "float64"), gen_batches(A.shape[0], 2**14))
    return sum(parts[1:], parts[0])


def _anchored_directions(Kt_AA: np.ndarray, settings: Settings, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """T (anchors x r) such that ``Kt(., A) T`` are features, and their sums of squares over the anchors."""
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
    return U / np.sqrt(S), S
