"""The sparse solver: time and memory linear in n, for the RBF kernel.

The kernel is written ``K = P P^T + R``. P (n x p) are the features of p landmarks, the labelled points among them: the
global part. The inverse of the residual R, the local part, is approximated by a sparse factor, ``R^-1 = G^T G``
(Vecchia): the points are put in a random order, and each is conditioned on those of its nearest neighbors that come
before it. With ``B = G^T G + eta M`` and ``H = P - B^-1 eta M P`` the filtered kernel ``(K^-1 + eta M)^-1`` is then
``B^-1 + H S^-1 H^T``, ``S = I + eta P^T M H``: a sparse positive definite system with a right-hand side for each anchor
and landmark, and a small dense one. Nothing else is approximated: when every point is conditioned on all that come
before it, the result is that of the exact solver, whatever the landmarks.

`solve_sparse` is the order of the work, wherever the arrays live. `SparseStages` does it in this process, and
`ldsu.dask` on a cluster.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches

from ldsu._utils.arrays import CPU, Arrays, arrays_on
from ldsu._utils.memory import require_memory
from ldsu._utils.sizes import HoldsArrays
from ldsu._utils.stages import StageCache, Stages, counter
from ldsu._utils.temporary import FileArrays, file_array
from ldsu.graphs import assemble_cliques, clique_grams, clique_weights
from ldsu.kernels import Kernel, column_means, dense, shifted
from ldsu.labels import class_counts, sample_labelled_balanced, sample_others
from ldsu.neighbors import DIMENSIONS, NeighborIndex, cliques, neighbor_index
from ldsu.solvers._joint_system import JointSystem
from ldsu.solvers._sparse_spectrum import MAX_PAIRS, pairs_memory, shifted_strength, truncated_features
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
# Samples are clipped to this range, in units of their spread.
MAX_MAGNITUDE = 1e15
# Maximum number of labelled points used as landmarks, balanced over classes.
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
# Numbers up to which starting threads takes longer than the work.
SMALL = 2**16
# Numbers of right-hand sides that are solved together if arrays are in files, and the share of the free memory.
FILE_COLUMNS, FILES_SHARE = (32, 28, 24, 20, 16, 12, 8, 4), 0.75
# Batch size of new samples.
BATCH, BATCH_BYTES = 2**15, 2**29


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
    n = X.shape[0]
    if settings.filter == "truncate" and (r := resolve_n_components(settings.n_components, n)) > MAX_PAIRS:
        return (
            f"with filter='truncate' n_components={settings.n_components} is {r} features of {n} samples, "
            f"but at most {MAX_PAIRS} are supported"
        )
    return None


def working_precision(codes: np.ndarray, settings: Settings) -> tuple[str, float]:
    """Single precision, unless tolerance, strength, nugget or eigenvectors require double; and the tolerance.

    That is reduced for strong graphs.
    """
    # Weight of the graphs relative to the kernel, which has diagonal 1.
    weight = settings.strength * max(settings.lam, float(class_counts(codes).max(initial=0)))
    if settings.filter == "truncate":
        return "float64", settings.tol
    single = weight <= SINGLE_STRENGTH and settings.nugget >= SINGLE_NUGGET and settings.tol >= SINGLE_TOLERANCE
    tol = max(settings.tol / max(1.0, weight / USUAL_STRENGTH), min(settings.tol, MIN_TOLERANCE))
    return "float32" if single else "float64", tol


def sparse_memory(X: Any, codes: np.ndarray, settings: Settings) -> int:
    """Peak memory of the sparse solver in bytes, without X and its copy."""
    n, d = X.shape
    itemsize, landmarks, anchors = _widths(n, codes, settings)
    copies = 2 * X.dtype.itemsize if scipy.sparse.issparse(X) else 0
    solving = 8 * CPU.columns * (os.cpu_count() or 1)
    listed = max(2 * settings.n_conditioning, settings.clique_size - 1)
    graph = 2 * 16 * listed + 4 * 24 * (settings.n_conditioning + 1) + 3 * 24 * settings.clique_size**2
    pairs = pairs_memory(n, landmarks, settings) if settings.filter == "truncate" else 0
    return n * (copies * d + itemsize * (d + solving + 3 * landmarks + 3 * anchors) + graph) + pairs + 2**29


def memory_with_files(X: Any, codes: np.ndarray, settings: Settings, columns: int) -> int:
    """Peak memory of the sparse solver with `FileArrays` of so many columns, in bytes, without files and X."""
    n, s, k = X.shape[0], settings.n_conditioning + 1, settings.clique_size
    itemsize = np.dtype(working_precision(codes, settings)[0]).itemsize
    # The triplets of the factor while the system is built; then the system, and six arrays of each right-hand side.
    build = (36 + 2 * itemsize) * s + 28 * k**2
    solve = (4 + itemsize) * (2 * s + k**2) + 6 * itemsize * columns * effective_n_jobs(CPU.n_jobs)
    return n * (100 + max(build, solve)) + 2**29


def disk_with_files(X: Any, codes: np.ndarray, settings: Settings) -> int:
    """Temporary files of the sparse solver with `FileArrays`, and of the features of training samples, in bytes."""
    n, d = X.shape
    itemsize, landmarks, anchors = _widths(n, codes, settings)
    listed = max(2 * settings.n_conditioning, settings.clique_size - 1)
    row = itemsize * (d + 2 * landmarks) + 4 * listed + 8 * settings.clique_size**2 + X.dtype.itemsize * anchors
    return n * row + model_memory(X, codes, settings)


def model_memory(X: Any, codes: np.ndarray, settings: Settings) -> int:
    """Bytes of the samples, their landmark features and the local part, which the features of new rows are made of."""
    n, d = X.shape
    itemsize, landmarks, anchors = _widths(n, codes, settings)
    return n * (itemsize * (d + landmarks + anchors) + 4 * max(d, DIMENSIONS))


def _widths(n: int, codes: np.ndarray, settings: Settings) -> tuple[int, int, int]:
    """Bytes of a number, and numbers of landmark features and anchors."""
    m = min(int(np.sum(codes >= 0)), MAX_LABELLED)
    landmarks = min(resolve_n_landmarks(settings.n_landmarks, n) + m, resolve_n_directions(n))
    return np.dtype(working_precision(codes, settings)[0]).itemsize, landmarks, max(m, settings.min_anchors)


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
    """Number of directions of the landmark features to keep: all for a few thousand samples, 50 for many."""
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
        An RBF kernel.
    settings : Settings
    """
    reason = unsupported_reason(problem.X, kernel.name, settings)
    if reason:
        raise ValueError(f"solver='sparse' does not support this: {reason}. Use solver='exact'.")
    n, arrays, stages, k = problem.n, problem.arrays, problem.stages, settings.clique_size
    truncate = settings.filter == "truncate"
    dtype, tol = working_precision(codes, settings)
    settings = replace(settings, tol=tol)
    listed = min(max(2 * settings.n_conditioning, k - 1), n - 1)
    key: tuple[Any, ...] = (dtype, settings.neighbor_search)
    samples = problem.once("sorted_samples", key, lambda: problem.sort_samples(settings, dtype))
    key = (*key, settings.n_conditioning, k)
    neighbors = problem.once("listed_neighbors", key, lambda: problem.find_neighbors(samples, listed))
    key = (*key, settings.theta, settings.scaling)
    make_cliques = partial(sparse_cliques, problem, samples, neighbors, settings)
    weights, theta = problem.once("sparse_cliques", key, make_cliques)
    unit = samples.frame.unit
    with stages("landmarks"):
        n_added = resolve_n_landmarks(settings.n_landmarks, n)
        chosen, m = choose_landmarks(codes, n_added, np.random.default_rng(settings.random_state))
        places, points = problem.locate(samples, chosen)
        anchors = places[: max(m, min(settings.min_anchors, chosen.size))]
        gamma = min(float(kernel.gamma or 0.0) * unit**2, LARGEST_GAMMA)
        noise = NOISE * n if settings.landmark_noise is None else settings.landmark_noise
        transform = landmark_transform(points, gamma, noise, arrays)[:, -resolve_n_directions(n) :]
        landmarks = Landmarks(points, arrays.get(transform), gamma)
    with stages("factor"):
        joint = settings
        if truncate:
            joint = replace(settings, strength=shifted_strength(weights, codes, settings.lam))
        system, P = problem.joint_system(samples, neighbors, weights, landmarks, codes, joint)
    collect = problem.graphs(samples, neighbors, weights)
    members = cliques(neighbors[:, : k - 1], arrays) if truncate else None
    nearest = problem.nearest_of_rows(samples, neighbors, settings)
    del neighbors, weights, make_cliques  # memory for the solve
    with stages("solve"):
        if truncate:
            pairs, W = truncated_features(system, P, members, codes[samples.order], settings)
            iterations, residual = pairs.iterations, pairs.residual
        else:
            Z, MP, H, iterations, residual = system.solve(anchors, P, settings)
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
            C, local, eigenvalues = arrays.get(W), pairs.V - P @ W, pairs.mu
        else:
            MPH = problem.total("products", products, (MP, H), arrays)
            Z_A, H_A = (problem.rows_at(samples, anchors, block) for block in (Z, H))
            T, C, eigenvalues = anchored_features(MPH, Z_A, H_A, settings, dtype)
            coefficients = (problem.put("coefficients", values, dtype) for values in (T, C))
            local = problem.map("local", _local_part, (Z, H, P), *coefficients)
        feature_map = problem.feature_map(samples, landmarks, P, C, local, settings)
    return Solution(
        feature_map=feature_map,
        coefficients=None,
        eigenvalues=eigenvalues,
        anchors=None if truncate else chosen[: anchors.size],
        graphs=cache(lambda: _graphs_of_rows(k, *collect())),
        theta=theta * unit**2,
        iterations=iterations,
        residual=residual,
        training=nearest and (lambda: np.asarray(feature_map(problem.X, nearest(), arrays))),  # type: ignore[call-arg]
    )


def sparse_cliques(problem: SparseStages, samples: Any, neighbors: Any, settings: Settings) -> tuple[Any, float]:
    """Laplacians (n, k, k) of the cliques, in the units that lam multiplies, and the ridge."""
    n, k, relative, unit = problem.n, settings.clique_size, settings.scaling == "relative", samples.frame.unit
    with problem.stages("graphs"):
        grams = problem.grams(samples, neighbors, k)
        scatter = problem.total("scatter", _sum_of_diagonals, (grams,)) / (n * k)
        theta = settings.theta * ((scatter or 1.0) if relative else unit**-2)
        weights = problem.map("weights", clique_weights, (grams,), theta, problem.arrays.xp)
        diagonal = problem.total("scatter", _sum_of_diagonals, (weights,)) / n
        scale = 1 / (diagonal or 1.0) if relative else unit**-2
        return problem.map("weights", operator.mul, (weights,), scale), theta


def _sum_of_diagonals(matrices: Any) -> float:
    n, k = matrices.shape[:2]
    return float(matrices.reshape(n, -1)[:, :: k + 1].sum())


def anchored_features(
    MPH: np.ndarray, Z_A: np.ndarray, H_A: np.ndarray, settings: Settings, dtype: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients T (anchors, r), C (p, r) of features ``Z T + H C``, and sums of squares of these at the anchors.

    From ``eta P^T M H`` (p, p) and the anchors' rows of ``B^-1 E_A`` and H.
    """
    # S = I + eta P^T M H: clip eigenvalues that rounding puts below 1.
    S, U = symmetric_eigh(np.eye(MPH.shape[0]) + MPH)
    W = (U / np.maximum(S, 1)) @ (U.T @ H_A.astype(np.float64).T)  # (p, anchors)
    Kt_AA = Z_A.astype(np.float64) + H_A @ W
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
    return T, W @ T, S


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

    `order` are the original rows of the samples, `place` is its inverse; `points` are the samples on the device.
    """

    frame: Frame
    search_index: NeighborIndex
    order: np.ndarray
    place: np.ndarray
    points: Any


class SparseStages(StageCache):
    """What the sparse solver asks of a `Problem`, for samples in this process.

    Values with a row per sample are arrays on the device here; on a cluster they are lists of futures, one per shard.
    """

    X: Any
    n: int
    arrays: Arrays
    stages: Stages

    def sort_samples(self, settings: Settings, dtype: str) -> Any:
        """The samples in the units of the computation, sorted so that near ones are adjacent."""
        with self.stages("neighbors"):
            X = dense(self.X)
            frame = Frame.of(X, column_means(X), dtype)
            samples = None if self.arrays.xp is not np else self.arrays.stored(X.shape, dtype)
            index, order = neighbor_index(frame(X, out=samples), self.arrays, settings.neighbor_search)
            del samples
            place = np.empty_like(order)
            place[order] = np.arange(self.n)
            return SortedSamples(frame, index, order, place, self.arrays.put(index.X))

    def find_neighbors(self, samples: Any, k: int) -> Any:
        """The k nearest other samples of each."""
        with self.stages("neighbors"):
            return samples.search_index.query(None, k, samples.points, self.arrays)

    def grams(self, samples: Any, neighbors: Any, clique_size: int) -> Any:
        """Centered Gram matrices (n, k, k) of the cliques."""
        return clique_grams(samples.points, cliques(neighbors[:, : clique_size - 1], self.arrays), self.arrays)

    def locate(self, samples: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places of some rows of X among the sorted samples, and the samples there."""
        places = samples.place[rows]
        return places, samples.search_index.X[places]

    def joint_system(
        self, samples: Any, neighbors: Any, weights: Any, landmarks: Landmarks, codes: np.ndarray, settings: Settings
    ) -> tuple[Any, Any]:
        """The system B, and the landmark features P."""
        P, groups, factor = landmarks.split_kernel(samples.points, samples.order, neighbors, settings, self.arrays)
        members = cliques(neighbors[:, : settings.clique_size - 1], self.arrays)
        codes, dtype = codes[samples.order], samples.frame.dtype
        return JointSystem.build(factor, members, weights, groups, codes, settings, self.arrays, dtype), P

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
            gamma=landmarks.gamma,
            nugget=settings.nugget,
            index=samples.search_index,
            landmarks=landmarks.points,
            transform=landmarks.transform,
            P=self.arrays.get(P),
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

    def graphs(self, samples: Any, neighbors: Any, weights: Any) -> Callable[[], tuple[np.ndarray, ...]]:
        """A function for the rows, the neighbors and the cliques' Laplacians of the sorted samples."""
        return lambda: (samples.order, self.arrays.get(neighbors), self.arrays.get(weights))


@dataclass(frozen=True)
class Frame:
    """Conversion of input rows to samples: ``(X - origin) / unit`` in the working precision."""

    origin: np.ndarray | None
    unit: float
    dtype: str

    @classmethod
    def of(cls, X: Any, origin: np.ndarray | None, dtype: str) -> Frame:
        """The unit is the root mean square of some rows relative to the origin; 1 if that is 0."""
        some = X[:: max(1, X.shape[0] // SPREAD_ROWS)].astype(np.float64)
        return cls(origin, float(np.sqrt(np.mean(shifted(some, origin) ** 2))) or 1.0, dtype)

    def __call__(self, X: np.ndarray, dtype: str | None = None, out: np.ndarray | None = None) -> np.ndarray:
        """Samples (n x d) of input rows, in `out` if given, clipped to what single precision can square."""
        samples = np.empty(X.shape, dtype=dtype or self.dtype) if out is None else out

        def fill(block: slice) -> None:
            rows = X[block] - (0 if self.origin is None else self.origin)
            with np.errstate(over="ignore"):  # overflow is clipped
                rows /= self.unit
            samples[block] = np.clip(rows, -MAX_MAGNITUDE, MAX_MAGNITUDE, out=rows)

        if X.size <= SMALL:
            fill(slice(None))
        else:
            CPU.each(fill, X.shape[0], 8 * X.shape[1])
        return samples


def choose_landmarks(codes: np.ndarray, n_added: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Rows of landmarks, the labelled points first, at most 1,000, balanced over classes; and the number of these.

    Random other points are added: `n_added`, and at least one landmark in any case.
    """
    labelled = sample_labelled_balanced(codes, MAX_LABELLED, rng)
    added = sample_others(codes.size, labelled, max(n_added, 0 if labelled.size else 1), rng)
    return np.concatenate([labelled, added]), labelled.size


def landmark_transform(Z: Any, gamma: float, noise: float, arrays: Arrays) -> Any:
    """T (p x p) such that ``P = k(X, Z) T`` satisfies ``P P^T = k(X, Z) (k(Z, Z) + noise I)^-1 k(Z, X)``.

    The residual ``K - P P^T`` is positive semi-definite for any noise.
    """
    xp = arrays.xp
    Z = arrays.put(Z, "float64")
    S, U = xp.linalg.eigh(_rbf(Z, Z, gamma, xp))
    floor = S.shape[0] * float(np.finfo(np.float64).eps) * float(S[-1])  # for duplicate landmarks without noise
    return U / xp.sqrt(xp.clip(S, floor, None) + noise)


def _rbf(A: Any, B: Any, gamma: float, xp: Any) -> Any:
    D2 = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1)[None, :] - 2 * (A @ B.T)
    return xp.exp(-gamma * xp.clip(D2, 0, None))


@dataclass(frozen=True)
class Landmarks(HoldsArrays):
    """Global part of the kernel: points (p x d), and the transform (p x q) from kernel values at them to features."""

    points: np.ndarray
    transform: np.ndarray
    gamma: float

    def features(self, X: Any, arrays: Arrays) -> tuple[Any, Any]:
        """P (n x q), ``k(X, points) @ transform`` for the rows of X, in blocks, and the nearest landmark of each."""
        dtype = arrays.dtype_of(X)
        # Double precision: products lose digits of small distances between samples far from the origin.
        Z, transform = arrays.put(self.points, "float64"), arrays.put(self.transform, "float64")
        P = arrays.stored((X.shape[0], transform.shape[1]), dtype)
        nearest = arrays.zeros((X.shape[0],), arrays.dtype_of(arrays.integers(1)))

        def fill(block: slice) -> None:
            K = _rbf(arrays.put(X[block], "float64"), Z, self.gamma, arrays.xp)
            P[block] = arrays.put(K @ transform, dtype)
            nearest[block] = K.argmax(axis=1)

        arrays.each(fill, X.shape[0], 8 * (4 * Z.shape[0] + X.shape[1]))
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
        return P, groups, residual_factor(X, P, sets, self.gamma, settings.nugget, arrays)

    def local_weights(self, new: Any, P_new: Any, near: Any, points: Any, P: Any, nugget: float, arrays: Arrays) -> Any:
        """Weights (b, k) of the training samples `near` (indices into points and P) in the features of new samples."""
        xp, dtype = arrays.xp, arrays.dtype_of(new)
        Y = arrays.put(points[near], dtype) - new[:, None]
        Y = xp.concatenate([Y, xp.zeros_like(Y[:, :1])], axis=1)
        P_all = xp.concatenate([arrays.put(P[near], dtype), P_new[:, None]], axis=1)
        return conditional(Y, P_all, near < 0, self.gamma, nugget, arrays)[0]


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


def residual_factor(X: Any, P: Any, sets: Any, gamma: float, nugget: float, arrays: Arrays) -> tuple[Any, Any, Any]:
    """G with ``R^-1 = G^T G`` approximately: row i is the point minus its conditional mean, over the deviation.

    The first n rows of X (n or more x d) and of its landmark features P are the points of the sets (n x s). G is
    returned as triplets by row, including the diagonal.
    """
    xp, dtype = arrays.xp, arrays.dtype_of(X)
    n, s = sets.shape
    points = arrays.put(arrays.integers(n), arrays.dtype_of(sets))
    values = arrays.zeros((n, s + 1), dtype)

    def fill(block: slice) -> None:
        members = xp.concatenate([sets[block], points[block, None]], axis=1)
        Y = X[members] - X[block][:, None]
        weights, variance = conditional(Y, P[members], sets[block] == points[block, None], gamma, nugget, arrays)
        deviation = xp.sqrt(variance)
        values[block, :s] = arrays.put(-weights / deviation[:, None], dtype)
        values[block, s] = arrays.put(1 / deviation, dtype)

    arrays.each(fill, n, (s + 1) * (X.shape[1] + P.shape[1]) * X.itemsize + 4 * 8 * (s + 1) ** 2)
    columns = xp.concatenate([sets, points[:, None]], axis=1)
    kept = columns != points[:, None]
    kept[:, s] = True
    return (points[:, None] + 0 * columns)[kept], columns[kept], values[kept]


def conditional(Y: Any, P: Any, missing: Any, gamma: float, nugget: float, arrays: Arrays) -> tuple[Any, Any]:
    """Weights and variance of a point given others under the residual kernel ``R = k - P P^T``.

    Parameters
    ----------
    Y : array of shape (b, s + 1, d)
        The others, then the point itself; relative to the point, for accurate small distances.
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
    squares = (Y * Y).sum(axis=2)
    D2 = squares[:, :, None] + squares[:, None, :] - 2 * (Y @ xp.swapaxes(Y, 1, 2))
    R = xp.exp(-gamma * xp.clip(D2, 0, None)) - P @ xp.swapaxes(P, 1, 2)
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
    points : ndarray of shape (n, d)
        Training samples.
    gamma, nugget : float
        Bandwidth of the kernel, and noise of its residual.
    index : NeighborIndex
        Index of `points`.
    landmarks : ndarray of shape (p, d)
    transform : ndarray of shape (p, q)
        ``p(x) = k(x, landmarks) @ transform``.
    P : ndarray of shape (n, q)
        Landmark features of the training samples.
    global_coefficients : ndarray of shape (q, r)
        C.
    local : ndarray of shape (n, r)
        F.
    n_conditioning : int
        Number of training samples in N, minus one.
    device : str
        Device of the computation.
    """

    origin: np.ndarray | None
    unit: float
    points: np.ndarray
    gamma: float
    nugget: float
    index: NeighborIndex
    landmarks: np.ndarray
    transform: np.ndarray
    P: np.ndarray
    global_coefficients: np.ndarray
    local: np.ndarray
    n_conditioning: int
    device: str

    def __call__(self, X: Any, near: Any = None, arrays: Arrays | None = None) -> np.ndarray:
        """Features (len(X), r) of the rows of X, with the dtype of X, computed in blocks.

        `near` are the nearest training samples of each row (len(X), N), on the device; None to search for them.
        `arrays` stores the features, which by default are in memory.
        """
        in_memory = not isinstance(arrays, FileArrays)
        arrays = arrays_on(self.device)
        n, r = X.shape[0], self.local.shape[1]
        n_near = min(self.n_conditioning + 1, self.points.shape[0])  # one more than in training
        s = n_near + 1
        # Mostly for the systems of `conditional`.
        row_bytes = 8 * (s * (self.points.shape[1] + self.P.shape[1] + r) + 4 * s * s)
        together = effective_n_jobs(arrays.n_jobs) * max(1, arrays.block_bytes // row_bytes)
        require_memory(
            min(n, together) * row_bytes + in_memory * n * r * X.dtype.itemsize,
            f"Computing features of {n:,} row(s) from {n_near:,} neighbors each",
            "Pass fewer rows at a time, or fit with a smaller n_conditioning.",
            arrays.free_memory(),
        )
        features = np.empty((n, r), dtype=X.dtype) if in_memory else file_array((n, r), X.dtype)
        computed = counter(n, "rows transformed")
        on_device = (arrays.put(self.points), arrays.put(self.P), arrays.put(self.local))
        for rows in gen_batches(n, max(1, min(BATCH, BATCH_BYTES // (8 * X.shape[1])))):
            known = None if near is None else near[rows]
            features[rows] = self._batch(dense(X[rows]), known, n_near, row_bytes, *on_device, arrays=arrays)
            computed(len(features[rows]))
        return features

    def _batch(
        self, X: np.ndarray, near: Any, n_near: int, row_bytes: int, points: Any, P: Any, local: Any, *, arrays: Arrays
    ) -> np.ndarray:
        # Single precision suffices for training; here a row's features would depend on other rows of its batch.
        dtype = np.result_type(X, self.points).name
        samples = Frame(self.origin, self.unit, dtype)(X)
        new, C = arrays.put(samples), arrays.put(self.global_coefficients, dtype)
        landmarks = Landmarks(self.landmarks, self.transform, self.gamma)
        P_new, _ = landmarks.features(new, arrays)
        if near is None:
            near = self.index.query(samples.astype(self.points.dtype, copy=False), n_near, points, arrays)
        features = arrays.zeros((samples.shape[0], local.shape[1]), dtype)

        def fill(block: slice) -> None:
            at = near[block]
            weights = landmarks.local_weights(new[block], P_new[block], at, points, P, self.nugget, arrays)
            added = (arrays.put(weights, dtype)[:, None] @ arrays.put(local[at], dtype))[:, 0]
            features[block] = P_new[block] @ C + added

        arrays.each(fill, samples.shape[0], row_bytes)
        return arrays.get(features)
