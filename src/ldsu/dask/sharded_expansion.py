"""The feature map of training samples on a cluster: new rows are sent, the model stays in place.

``features(x) = p(x)^T C + w(x)^T F_N`` as in `LocalExpansion`. For a block of new rows each shard returns its
candidates, the nearest training samples N are sent to the worker of the block, which computes the weights w, and each
shard sums the contributions of its samples: only sums of F are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ldsu._utils.arrays import ONE
from ldsu.dask import shard_search as search
from ldsu.dask.cluster import Cluster
from ldsu.dask.shards import Directory, Shards
from ldsu.neighbors import CellIndex, NeighborIndex
from ldsu.solvers import Frame, Landmarks, LocalExpansion

# New rows of the client per batch.
BATCH = 2**14
# Share of a worker's memory for the neighbors of new rows, including temporary arrays.
NEIGHBORS_SHARE = 0.25


class Weights(NamedTuple):
    """Features from the landmarks (q x r), and places and weights (q x k) of the training samples that contribute."""

    features: np.ndarray
    places: np.ndarray
    weights: np.ndarray


class Slice(NamedTuple):
    """Some rows of a block, and their cells (ascending)."""

    rows: np.ndarray
    cells: np.ndarray


def sort_by_cell(block: np.ndarray, frame: Frame, directory: Directory, exact: bool) -> tuple[np.ndarray, np.ndarray]:
    """Order of the rows of a block by cell, and the sorted cells."""
    if exact:
        return np.arange(len(block)), np.zeros(len(block), dtype=np.int64)
    cells = directory.cells.of(frame(block))
    order = np.argsort(cells, kind="stable")
    return order, cells[order]


def slice_of(block: np.ndarray, sorted_rows: tuple[np.ndarray, np.ndarray], number: int, count: int) -> Slice:
    """Slice `number` of `count` slices of a block, of rows that share neighbors."""
    order, cells = (np.array_split(values, count)[number] for values in sorted_rows)
    return Slice(block[order], cells)


def samples_of(part: Slice, frame: Frame) -> search.NewSamples:
    """New rows as samples, with their cells."""
    cells, firsts = np.unique(part.cells, return_index=True)
    return search.NewSamples(frame(part.rows), np.append(firsts, part.cells.size), cells)


def weigh(
    part: Slice,
    around: search.Neighborhood,
    landmarks: Landmarks,
    coefficients: np.ndarray,
    frame: Frame,
    nugget: float,
) -> Weights:
    """Weights of the nearest training samples, and features without them."""
    block, k = part.rows, around.neighbors.shape[1]
    dtype = np.result_type(block, around.points).name  # as in `LocalExpansion`
    new = frame(block, dtype)
    P_new, P = (landmarks.features(samples, ONE)[0] for samples in (new, around.points))
    P = P[:, : landmarks.n_global]
    weights = np.empty((len(block), k), dtype=dtype)

    def fill(rows: slice) -> None:
        near = around.neighbors[rows]
        weights[rows] = landmarks.local_weights(new[rows], P_new[rows], near, around.points, P, nugget, ONE)

    ONE.each(fill, len(block), (k + 1) * (block.shape[1] + P.shape[1]) * 8)
    return Weights(P_new @ coefficients.astype(dtype), around.others[around.neighbors], weights)


def contribution(weights: Weights, local: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with neighbors N in a shard from the place `first` on, and ``w^T F_N`` over these: shapes (u,), (u, r)."""
    in_shard = (weights.places >= first) & (weights.places < first + len(local))
    rows = np.flatnonzero(in_shard.any(axis=1))
    added = np.empty((rows.size, local.shape[1]), dtype=weights.features.dtype)

    def fill(part: slice) -> None:
        at = rows[part]
        selected = np.where(in_shard[at], weights.weights[at], 0)
        numbers = np.where(in_shard[at], weights.places[at] - first, 0)
        added[part] = (selected[:, None] @ local[numbers].astype(added.dtype))[:, 0]

    ONE.each(fill, rows.size, 2 * weights.places.shape[1] * local.shape[1] * 8)
    return rows, added


def sum_contributions(weights: Weights, added: Sequence[tuple[np.ndarray, np.ndarray]], dtype: str) -> np.ndarray:
    """Features of a slice: the sum of all contributions."""
    features = weights.features.copy()
    for rows, values in added:
        features[rows] += values
    return features.astype(dtype, copy=False)


def restore_order(sorted_rows: tuple[np.ndarray, np.ndarray], slices: Sequence[np.ndarray]) -> np.ndarray:
    """Features of a block from those of its slices."""
    in_cell_order = np.concatenate(slices)
    features = np.empty_like(in_cell_order)
    features[sorted_rows[0]] = in_cell_order
    return features


@dataclass(frozen=True)
class ShardedExpansion:
    """Features of new rows from a model on a cluster."""

    shards: Shards
    landmarks: Landmarks
    landmarks_future: Any  # the same on the cluster
    P: list[Any]  # futures (m, q): landmark features of the samples of each shard
    local: list[Any]  # futures (m, r): local part of their features
    coefficients: np.ndarray  # (q, r): of the landmark features
    n_conditioning: int
    nugget: float
    exact: bool  # whether the neighbor search is
    block_rows: int  # assumed number of rows of blocks of unknown size
    cluster: Cluster

    def slices(self, lengths: Sequence[float]) -> list[int]:
        """Number of slices of each block, from their numbers of rows (NaN if unknown)."""
        rows = self.rows_at_a_time()
        return [max(1, int(-(-(self.block_rows if np.isnan(length) else length) // rows))) for length in lengths]

    def rows_at_a_time(self) -> int:
        """Number of new rows whose neighbors, if all different, fit into the memory of a worker."""
        n_kept = search.n_candidates(self.n_conditioning + 1, self.exact, self.shards.directory, own=False)
        points = self.landmarks.points
        # Received points, their concatenation, their features with temporary arrays, and their scores and places.
        width = 2 * (points.shape[1] + self.coefficients.shape[0])
        row_bytes = n_kept * (width * points.itemsize + 8 * 12)
        return max(1, int(NEIGHBORS_SHARE * self.cluster.memory()) // row_bytes)

    def tasks(self, block: Any, task: Callable[..., Any], dtype: str, count: int) -> Any:
        """Tasks, by ``task(name, function, *arguments)``, for the features of a block of rows in `count` slices."""
        shards, frame = self.shards, self.shards.frame
        directory, n_shards = shards.directory_future, shards.directory.n_shards
        k = min(self.n_conditioning + 1, shards.directory.n)
        order = task("order", sort_by_cell, block, frame, directory, self.exact)
        features = []
        for number in range(count):
            part = task("slice", slice_of, block, order, number, count)
            samples = task("samples", samples_of, part, frame)
            query = task("query", search.make_query, samples, directory, k, self.exact)
            around = search.neighbor_tasks(task, query, samples, shards, range(n_shards))
            weights = task("weigh", weigh, part, around, self.landmarks_future, self.coefficients, frame, self.nugget)
            added = [
                task("contribution", contribution, weights, local, int(first))
                for local, first in zip(self.local, shards.directory.first_places, strict=False)
            ]
            features.append(task("sum", sum_contributions, weights, added, dtype))
        return task("features", restore_order, order, features)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Features of rows on the client."""
        blocks = [X[start : start + BATCH] for start in range(0, X.shape[0], BATCH)]
        submit, counts = self.cluster.submit, self.slices([len(block) for block in blocks])
        with self.cluster.translate_errors():
            sent = [self.cluster.put("rows", block) for block in blocks]  # sent once
            features = self.cluster.collect(
                [self.tasks(block, submit, X.dtype.name, count) for block, count in zip(sent, counts, strict=True)]
            )
        return np.concatenate([np.empty((0, self.coefficients.shape[1]), dtype=X.dtype), *features])

    def to_local(self) -> LocalExpansion:
        """The feature map of one machine, with all training samples on the client."""
        collect, frame, directory = self.cluster.collect, self.shards.frame, self.shards.directory
        submitted = [self.cluster.submit("points", attrgetter("points"), shard) for shard in self.shards.futures]
        points = np.concatenate(collect(submitted))
        cells = None
        if not self.exact:
            mean, axes, centers = directory.cells.mean, directory.cells.axes, directory.cells.centers
            starts = np.cumsum([0, *directory.sizes])
            cells = CellIndex(mean, axes, centers, starts, np.arange(directory.n), directory.cells.components(points))
        return LocalExpansion(
            origin=frame.origin,
            unit=frame.unit,
            points=points,
            gamma=self.landmarks.kernel.gamma,
            nugget=self.nugget,
            index=NeighborIndex(points, cells),
            landmarks=self.landmarks.points,
            transform=self.landmarks.transform,
            P=np.concatenate(collect(self.P))[:, : self.landmarks.n_global],
            global_coefficients=self.coefficients,
            local=np.concatenate(collect(self.local)),
            n_conditioning=self.n_conditioning,
            device="cpu",
        )
