"""Add rows to what the sparse solver has computed: neighbors, and rows of the factor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from ldsu._utils.arrays import Arrays
from ldsu._utils.memory import BLOCK_BYTES
from ldsu.sample_kernels import EUCLIDEAN_KERNELS, SampleKernel, on, row_width, rows_of
from ldsu.solvers._residual_factor import conditioning_sets, random_ranks, residual_factor
from ldsu.solvers._sparse import SortedSamples, SplitKernel

# Results of a stage by key, with the seconds that they took.
Results = Mapping[Any, tuple[Any, float]]
# Stages that do not change with further rows: bandwidths, and the rows that strength and bandwidth are chosen on.
UNCHANGED = ("kernel", "rows_to_choose")
# Lengths of the keys of samples and of neighbors, with which those of later stages begin. `n_conditioning` is between.
SAMPLES_KEY, NEIGHBORS_KEY = 3, 5


def more_stages(kept: Mapping[str, Results], X: Any, arrays: Arrays) -> dict[str, dict[Any, Any]]:
    """Results of stages for further rows X (t x d), from those that are kept; the others are computed when needed."""
    samples = {key: (more_samples(old, X, arrays), s) for key, (old, s) in kept.get("sorted_samples", {}).items()}
    neighbors: dict[Any, tuple[Any, float]] = {}
    factors, columns = {}, {}
    for key, (old, seconds) in kept.get("listed_neighbors", {}).items():
        now = samples.get(key[:SAMPLES_KEY])
        if now is not None and old.shape[1] == min(2 * key[SAMPLES_KEY], now[0].order.size - 1):
            found = more_neighbors(now[0], arrays.get(old), arrays)
            neighbors[key] = arrays.put(found), seconds
    for key, (split, seconds) in kept.get("sparse_factor", {}).items():
        if key[:NEIGHBORS_KEY] in neighbors:
            found = arrays.get(neighbors[key[:NEIGHBORS_KEY]][0])
            factors[key] = more_factor(samples[key[:SAMPLES_KEY]][0], found, split, arrays), seconds
    for key, (solved, seconds) in kept.get("solved_columns", {}).items():
        if key[: len(next(iter(factors), ()))] in factors and solved.Z is not None:
            n = solved.Z.shape[1]
            nearest = arrays.get(neighbors[key[:NEIGHBORS_KEY]][0])[n:]
            similar = np.take_along_axis(nearest, (nearest < n).argmax(axis=1)[:, None], axis=1)[:, 0]
            columns[key] = solved.with_rows(np.where(similar < n, similar, 0), arrays), seconds
    extended = {"sorted_samples": samples, "listed_neighbors": neighbors, "sparse_factor": factors}
    unchanged = {kind: dict(kept[kind]) for kind in UNCHANGED if kind in kept}
    return {**unchanged, **extended, "solved_columns": columns}


def more_samples(samples: SortedSamples, X: Any, arrays: Arrays) -> SortedSamples:
    """The sorted samples, and rows X (t x d) in their units after them."""
    index = samples.search_index.with_rows(samples.frame(X))
    places = samples.order.size + np.arange(X.shape[0])
    order, place = (np.concatenate([old, places]) for old in (samples.order, samples.place))
    return SortedSamples(samples.frame, index, order, place, on(index.X, arrays), samples.kernel)


def more_neighbors(samples: SortedSamples, neighbors: np.ndarray, arrays: Arrays) -> np.ndarray:
    """Neighbors (n + t, width) of all samples from those of the first n: searched for the others.

    One of these joins the list of one of the first where it lists that one itself.
    """
    n, width = neighbors.shape
    points = samples.search_index.X
    kernel = SampleKernel("rbf") if samples.kernel.name in EUCLIDEAN_KERNELS else samples.kernel
    new = np.arange(n, points.shape[0])
    found = arrays.get(samples.search_index.query(points[n:], width + 1, samples.points, arrays, samples.kernel))
    # Drop the sample itself, or the last where duplicates are nearer.
    itself = found == new[:, None]
    itself[~itself.any(axis=1), -1] = True
    found = found[~itself].reshape(-1, width)
    listed, j = found.ravel(), np.repeat(new, width)
    order = np.argsort(listed[listed < n], kind="stable")
    listed, j = listed[listed < n][order], j[listed < n][order]
    rows, first, counts = np.unique(listed, return_index=True, return_counts=True)
    result = np.concatenate([neighbors, found])
    most = int(counts.max(initial=0))
    for block in gen_batches(rows.size, max(1, BLOCK_BYTES // (8 * (width + most) * row_width(points)))):
        at, of = rows[block], np.arange(most)
        pairs = np.minimum(first[block, None] + of, max(j.size - 1, 0))
        candidates = np.concatenate([neighbors[at], j[pairs]], axis=1)
        distances = kernel.distances_to(points, candidates, points[at])
        distances[:, width:][of >= counts[block, None]] = np.inf
        result[at] = np.take_along_axis(candidates, np.argsort(distances, axis=1, kind="stable")[:, :width], axis=1)
    return result


def more_factor(samples: SortedSamples, neighbors: np.ndarray, split: SplitKernel, arrays: Arrays) -> SplitKernel:
    """The split kernel of more samples, which come last in the order: the factor gets rows, and no other changes."""
    P, (rows, columns, values), landmarks, settings = split
    n, total = P.shape[0], samples.order.size
    xp = arrays.xp
    P_new, _ = landmarks.features(samples.points[n:], arrays)
    P = xp.concatenate([P, P_new])
    # The new samples first, then those that they may be conditioned on.
    first = np.concatenate([np.arange(n, total), np.arange(n)])
    number = np.empty(total, dtype=np.int64)
    number[first] = np.arange(total)
    rank = np.concatenate([random_ranks(samples.order[n:], settings.random_state), np.full(n, -1)])
    sets = conditioning_sets(arrays.put(number[neighbors[n:]]), arrays.put(rank), settings.n_conditioning, arrays)
    at = arrays.put(first)
    points = rows_of(samples.points, first, arrays)
    added = residual_factor(points, P[at], sets, landmarks.kernel, settings.nugget, arrays)
    triplets = (rows, at[added[0]]), (columns, at[added[1]]), (values, added[2])
    i, j, v = (xp.concatenate(pair) for pair in triplets)
    return SplitKernel(P, (i, j, v), landmarks, settings)
