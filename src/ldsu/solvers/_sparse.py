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
import warnings
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches

from ldsu._utils.arrays import Arrays
from ldsu._utils.memory import require_memory
from ldsu._utils.stages import StageCache, Stages
from ldsu.graphs import assemble_cliques, class_graph_correction, clique_grams, clique_weights, double_centered
from ldsu.kernels import Kernel
from ldsu.labels import sample_labelled_balanced
from ldsu.neighbors import NeighborIndex, cliques, neighbor_index
from ldsu.sample_kernels import EUCLIDEAN_KERNELS, SampleKernel, for_each_set, on, rows_of, take_sets
from ldsu.solvers._frame import Frame
from ldsu.solvers._joint_system import JointSystem
from ldsu.solvers._landmarks import (
    Landmarks,
    choose_landmarks,
    fill_residual_columns,
    labels_in_system,
    landmark_transform,
    resolve_n_directions,
    resolve_n_landmarks,
)
from ldsu.solvers._local_expansion import LocalExpansion
from ldsu.solvers._solved_columns import SolvedColumns
from ldsu.solvers._sparse_plan import device_memory, unsupported_reason, working_precision
from ldsu.solvers._sparse_spectrum import shifted_strength, truncated_features
from ldsu.solvers._types import Settings, Solution
from ldsu.spectrum import fix_signs, resolve_n_components

# Noise of landmarks per sample, in units of k(x, x), so that part of their variance stays local. Without it labels
# propagate too little through the graph (USPS, MNIST), with much more too little beyond it (Yale B): docs/decisions.md.
NOISE = 2e-5
# Bytes up to which factors and solutions for other bandwidths and strengths are kept, at about this many per row.
KEPT_BYTES, ROW_BYTES, MAX_KEPT = 2**29, 4096, 4


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
    if arrays.xp is not np:
        require_memory(
            device_memory(problem.X, codes, settings, arrays),
            f"The sparse solver for {n:,} samples on device {settings.device!r}",
            "Use fewer samples, or device='cpu'.",
            arrays.free_memory(),
        )
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
        kernel_AA = None
        if truncate:
            root = frame.scale**0.5
            C, local, eigenvalues = root * W, root * (pairs.V - P @ W), frame.scale * pairs.mu
        else:
            MPH = problem.total("products", products, (MP, H), arrays)
            Z_A, P_A, H_A = (problem.rows_at(samples, anchors, block) for block in (Z, P, H))
            labels = np.full(anchors.size, -1) if system_codes is codes else codes[chosen[: anchors.size]]
            T, C, eigenvalues, kernel_AA = anchored_features(
                Z_A, P_A, H_A, MPH, labels, added, noise, settings, dtype, arrays
            )
            T, C, eigenvalues = frame.scale**0.5 * T, frame.scale**0.5 * C, frame.scale * eigenvalues
            coefficients = (problem.put("coefficients", values, dtype) for values in (T, C))
            local = problem.map("local", _local_part, (Z, H, P), *coefficients)
        feature_map = problem.feature_map(samples, landmarks, P, C, local, settings)
    return Solution(
        feature_map=feature_map,
        coefficients=None,
        eigenvalues=eigenvalues,
        anchors=None if truncate else chosen[: anchors.size],
        anchor_kernel=None if system_codes is codes else kernel_AA,
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
    Z_A: Any,
    P_A: Any,
    H_A: Any,
    MPH: Any,
    codes: np.ndarray,
    added: np.ndarray,
    noise: float,
    settings: Settings,
    dtype: str,
    arrays: Arrays,
) -> tuple[Any, Any, np.ndarray, Any]:
    """Coefficients T (anchors, r), C (p, r) of features ``Z T + H C``, and sums of squares of these at the anchors.

    First the labels join. A labelled point that becomes a landmark is a noisy observation of the residual kernel: its
    column, one of the last of P, moves from R to P, and R^-1 grows by 1 / noise at the point, so that B grows by a
    correction of their number. The same-class graph follows, as in the exact solver.

    Parameters
    ----------
    Z_A, P_A, H_A : arrays with a row per anchor
        Rows of ``B^-1 E_A``, P and ``H = P - B^-1 eta M P`` at the anchors.
    MPH : array of shape (p, p)
        ``eta P^T M H``.
    codes : ndarray of shape (anchors,)
        Class numbers of the anchors, -1 for landmarks; -1 for all if the same-class graph is part of M.
    added : ndarray of int
        Anchors that become landmarks, in the order of the last columns of P.
    noise : float
        Of the landmarks.
    settings : Settings
    dtype : str
    arrays : Arrays
        Where the computation is, in double precision.

    Returns
    -------
    T, C, eigenvalues
    Kt_AA : array of shape (anchors, anchors)
        The filtered kernel at the anchors without the same-class graph that `codes` describe.
    """
    xp, put = arrays.xp, arrays.put
    Z_A, P_A, H_A = (put(values, "float64") for values in (Z_A, P_A, H_A))
    b, noise, places = added.size, max(noise, settings.nugget), put(added)
    D = arrays.identity(P_A.shape[1])  # P D are landmark features
    residual = P_A[places, D.shape[0] - b :]
    S, U = arrays.eigh((residual + residual.T) / 2 + noise * arrays.identity(b))
    D[D.shape[0] - b :, D.shape[0] - b :] = U / put(np.sqrt(np.maximum(S, noise)))
    solved, H_A = (P_A - H_A)[places] @ D, H_A @ D
    # Of the added points' columns Z, B^-1 loses Z (noise I + Z_aa)^-1 Z^T, and H loses Z N.
    Z_a = Z_A[:, places]
    system = noise * arrays.identity(b) + (Z_a[places] + Z_a[places].T) / 2
    ZV, N = xp.linalg.solve(system, Z_A[places]), -xp.linalg.solve(system, solved)
    H_A -= Z_a @ N
    # S = I + eta P^T M H: clip eigenvalues that rounding puts below 1.
    S = D.T @ put(MPH) @ D - solved.T @ N
    S, U = arrays.eigh(arrays.identity(S.shape[0]) + (S + S.T) / 2)
    HS = (U / put(np.maximum(S, 1))) @ (U.T @ H_A.T)  # (p, anchors)
    Kt_AA = Z_A - Z_a @ ZV + H_A @ HS
    Kt_AA = labelled = (Kt_AA + Kt_AA.T) / 2
    if not bool(xp.isfinite(Kt_AA).all()):
        raise ValueError(
            f"strength = {settings.strength:.3g} with lam = {settings.lam:.3g} overflows for these data. "
            "Use smaller values."
        )
    correction = class_graph_correction(Kt_AA, codes, settings.strength, arrays)
    if correction is not None:
        Kt_AA = Kt_AA @ correction
    S, U = arrays.eigh((Kt_AA + Kt_AA.T) / 2)
    # The error of a quadratic form is the square of that of the solution.
    known = max(0.1 * settings.tol**2, 10 * float(np.finfo(dtype).eps)) * S[-1]
    rank = int(np.sum(known < S))
    if rank == 0:
        raise ValueError(f"No features are left: strength = {settings.strength:.3g} removes all of the kernel.")
    r = resolve_n_components(settings.n_components, rank)
    S, U = S[::-1][:r], fix_signs(xp.flip(U, (1,))[:, :r], arrays)
    T = U / put(np.sqrt(S))
    if correction is not None:
        T = correction @ T
    C = HS @ T
    T[places] -= ZV @ T + N @ C
    return T, D @ C, S, labelled


def products(A: Any, B: Any, arrays: Arrays) -> Any:
    """``A^T B`` for A, B (n x p), summed over blocks in double precision."""
    parts = arrays.map(lambda block: arrays.put(A[block].T @ B[block], "float64"), gen_batches(A.shape[0], 2**14))
    return sum(parts[1:], parts[0])


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
            P, _, factor = drawn.split_kernel(samples.points, samples.order, neighbors, settings, arrays)
            return SplitKernel(P, factor, drawn, settings)

        P, factor, _, _ = self._if_reusable("sparse_factor", key, split)
        key = (key, settings.strength, settings.lam, codes.tobytes())

        def build() -> JointSystem:
            members = cliques(neighbors[:, : settings.clique_size - 1], arrays)
            places = codes[samples.order]
            return JointSystem.build(factor, members, weights, places, settings, arrays, samples.frame.dtype)

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
        """`map` of a function whose results are numbers or arrays to be summed."""
        return function(*values, *constants)

    def rows_at(self, samples: Any, places: np.ndarray, values: Any) -> Any:
        """Rows of values at some places."""
        return values[self.arrays.put(places)]

    def put(self, name: str, values: Any, dtype: str) -> Any:
        """A constant of `map`."""
        return self.arrays.put(values, dtype)

    def feature_map(
        self, samples: Any, landmarks: Landmarks, P: Any, C: Any, local: Any, settings: Settings
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
            global_coefficients=self.arrays.get(C),
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
        C: Any,
        local: Any,
    ) -> Any:
        """Features of the rows of X, whose neighbors `nearest` gives; the weights of these do not depend on labels."""
        arrays, dtype = self.arrays, self.X.dtype.name
        if not self.reusable and arrays.xp is np:
            return feature_map(self.X, nearest(), arrays)
        working = np.result_type(dtype, samples.frame.dtype).name

        def rows(block: slice) -> Any:
            if working == samples.frame.dtype:  # the samples themselves
                return rows_of(samples.points, samples.place[block], arrays)
            return on(samples.frame(self.X[block], working), arrays)

        def weigh() -> Any:
            return feature_map.neighbor_weights(
                rows, nearest(), working, samples.points, P[:, : feature_map.P.shape[1]]
            )

        weights = self._if_reusable("training_weights", (key, dtype), weigh)
        features = weights @ arrays.put(local, working)
        features += arrays.put(P @ arrays.put(C, samples.frame.dtype), working)[arrays.put(samples.place)]
        return arrays.put(features, dtype)

    def graphs(self, samples: Any, neighbors: Any, weights: Any) -> Callable[[], tuple[np.ndarray, ...]]:
        """A function for the rows, the neighbors and the cliques' Laplacians of the sorted samples."""
        return lambda: (samples.order, self.arrays.get(neighbors), self.arrays.get(weights))
