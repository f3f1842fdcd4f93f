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
from ldsu.dask.pieces import Landmarks
from ldsu.dask.shards import Directory, Frame
from ldsu.dask.solver import SolvedShards
from ldsu.neighbors import CellIndex, NeighborIndex
from ldsu.solvers import LocalExpansion, neighbor_weights

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
    """New rows as samples."""
    return search.NewSamples(frame(part.rows))


def query_of(part: Slice, new: search.NewSamples, directory: Directory, k: int, exact: bool) -> search.Query:
    """Neighbor query of new samples."""
    return search.new_query(new, part.cells, directory, k, exact)


def merged(found: Sequence[search.Found], query: search.Query, k: int, exact: bool, directory: Directory) -> np.ndarray:
    """Places of the best candidates over all shards."""
    return search.merge(found, query.size, search.n_candidates(k, exact, directory, own=False))


def places_by_shard(places: np.ndarray, directory: Directory) -> list[np.ndarray]:
    """Places split by shard."""
    return search.remote_places(places, None, 0, directory)


def weigh(
    part: Slice,
    samples: search.NewSamples,
    query: search.Query,
    places: np.ndarray,
    remote: list[np.ndarray],
    fetched: Sequence[tuple[np.ndarray, np.ndarray]],
    landmarks: Landmarks,
    coefficients: np.ndarray,
    frame: Frame,
    k: int,
    nugget: float,
) -> Weights:
    """Weights of the nearest training samples, and features without them."""
    block = part.rows
    around = search.rank_candidates(query, samples, places, remote, fetched, k)
    dtype = np.result_type(block, around.points).name  # as in `LocalExpansion`
    new = frame(block, dtype)
    P_new, _ = landmarks.features(new)
    P = landmarks.features(around.points)[0]
    weights = np.empty((len(block), k), dtype=dtype)

    def fill(rows: slice) -> None:
        near = around.neighbors[rows]
        weights[rows] = neighbor_weights(
            near, new[rows], P_new[rows], around.points, P, landmarks.gamma, nugget, dtype, ONE
        )

    ONE.each(fill, len(block), (k + 1) * (block.shape[1] + P.shape[1]) * 8)
    return Weights(P_new @ coefficients.astype(dtype), around.others[around.neighbors], weights)


def contribution(weights: Weights, local: np.ndarray, t: int, directory: Directory) -> tuple[np.ndarray, np.ndarray]:
    """Rows with neighbors N in shard t, and ``w^T F_N`` over these: shapes (u,), (u, r)."""
    first, last = directory.first_places[t], directory.first_places[t + 1]
    in_shard = (weights.places >= first) & (weights.places < last)
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
    """Features of new rows from a model on a cluster.

    Attributes
    ----------
    solved : SolvedShards
    n_conditioning, nugget : int, float
        Of the local part.
    block_rows : int
        Assumed number of rows of blocks of unknown size.
    cluster : Cluster
    """

    solved: SolvedShards
    n_conditioning: int
    nugget: float
    block_rows: int
    cluster: Cluster

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.solved.coefficients.shape[1])

    def slices(self, lengths: Sequence[float]) -> list[int]:
        """Number of slices of each block, from their numbers of rows (NaN if unknown)."""
        rows = self.rows_at_a_time()
        return [max(1, int(-(-(self.block_rows if np.isnan(length) else length) // rows))) for length in lengths]

    def rows_at_a_time(self) -> int:
        """Number of new rows whose neighbors, if all different, fit into the memory of a worker."""
        directory = self.solved.shards.directory
        n_kept = search.n_candidates(self.n_conditioning + 1, self.solved.exact, directory, own=False)
        points = self.solved.landmarks.points
        # Received points, their concatenation, their features with temporary arrays, and their scores and places.
        width = 2 * (points.shape[1] + self.solved.coefficients.shape[0])
        row_bytes = n_kept * (width * points.itemsize + 8 * 12)
        return max(1, int(NEIGHBORS_SHARE * self.cluster.memory()) // row_bytes)

    def tasks(self, block: Any, task: Callable[..., Any], dtype: str, count: int) -> Any:
        """Tasks, by ``task(name, function, *arguments)``, for the features of a block of rows in `count` slices."""
        solved = self.solved
        order = task("order", sort_by_cell, block, solved.frame, solved.shards.directory_future, solved.exact)
        slices = [task("slice", slice_of, block, order, number, count) for number in range(count)]
        features = [self._slice_tasks(part, task, dtype) for part in slices]
        return task("features", restore_order, order, features)

    def _slice_tasks(self, part: Any, task: Callable[..., Any], dtype: str) -> Any:
        solved, shards = self.solved, self.solved.shards
        directory, frame, exact = shards.directory_future, solved.frame, solved.exact
        k = min(self.n_conditioning + 1, shards.directory.n)
        samples = task("samples", samples_of, part, frame)
        query = task("query", query_of, part, samples, directory, k, exact)
        found = [
            task("search", search.find, query, samples, shard, t, directory, k, exact)
            for t, shard in enumerate(shards.futures)
        ]
        places = task("merge", merged, found, query, k, exact, directory)
        remote = task("remote", places_by_shard, places, directory)
        fetched = [
            task("fetch", search.points_at, shard, remote, t, directory) for t, shard in enumerate(shards.futures)
        ]
        weights = task(
            "weigh",
            weigh,
            part,
            samples,
            query,
            places,
            remote,
            fetched,
            solved.landmarks_future,
            solved.coefficients,
            frame,
            k,
            self.nugget,
        )
        added = [
            task("contribution", contribution, weights, local, t, directory) for t, local in enumerate(solved.local)
        ]
        return task("sum", sum_contributions, weights, added, dtype)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Features of rows on the client."""
        blocks = [X[start : start + BATCH] for start in range(0, X.shape[0], BATCH)]
        submit, counts = self.cluster.submit, self.slices([len(block) for block in blocks])
        with self.cluster.translate_errors():
            sent = [self.cluster.put("rows", block) for block in blocks]  # sent once
            features = self.cluster.collect(
                [self.tasks(block, submit, X.dtype.name, count) for block, count in zip(sent, counts, strict=True)]
            )
        return np.concatenate([np.empty((0, self.n_features), dtype=X.dtype), *features])

    def local(self, device: str) -> LocalExpansion:
        """The local feature map, with all training samples on the client."""
        solved, gather = self.solved, self.cluster.collect
        directory = solved.shards.directory
        points = np.concatenate(
            gather([self.cluster.submit("points", attrgetter("points"), shard) for shard in solved.shards.futures])
        )
        cells = None
        if not solved.exact:
            cells = CellIndex(
                directory.cells.mean,
                directory.cells.axes,
                directory.cells.centers,
                np.cumsum([0, *directory.sizes]),
                np.arange(directory.n),
                directory.cells.components(points),
            )
        return LocalExpansion(
            origin=solved.frame.origin,
            unit=solved.frame.unit,
            points=points,
            gamma=solved.landmarks.gamma,
            nugget=self.nugget,
            index=NeighborIndex(points, cells),
            landmarks=solved.landmarks.points,
            transform=solved.landmarks.transform,
            P=np.concatenate(gather(solved.P)),
            global_coefficients=solved.coefficients,
            local=np.concatenate(gather(solved.local)),
            n_conditioning=self.n_conditioning,
            device=device,
        )
