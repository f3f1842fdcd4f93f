"""The feature map whose training samples lie on a cluster: new rows travel, the model stays.

``features(x) = p(x)^T C + w(x)^T F_N`` as `LocalExpansion` has it. For a block of new rows each shard names its
candidates, the nearest training samples N come to where the block is, the weights w are found there, and each shard
adds up what its own samples contribute: of F nothing moves but sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ldsu._utils.arrays import ONE
from ldsu.dask import shard_search as search
from ldsu.dask.cluster import Cluster
from ldsu.dask.pieces import Landmarks
from ldsu.dask.shards import Directory, Frame, Shard
from ldsu.dask.solver import SolvedShards
from ldsu.neighbors import CellIndex, NeighborIndex
from ldsu.solvers import LocalExpansion, conditional

# New rows of the client that are sent together.
BATCH = 2**14
# Share of a worker's memory that the neighbours of new rows may take, with all that is made of them.
NEIGHBOURS_SHARE = 0.25


class Weights(NamedTuple):
    """Features that the landmarks give (q x r), and the training samples (q x k) that add to them with weights."""

    features: np.ndarray
    places: np.ndarray
    weights: np.ndarray


class Slice(NamedTuple):
    """Some rows of a block, and the cells they fall into, which ascend."""

    rows: np.ndarray
    cells: np.ndarray


def near_together(block: np.ndarray, frame: Frame, directory: Directory, exact: bool) -> tuple[np.ndarray, np.ndarray]:
    """Order of a block's rows in which near ones are near each other, and the cells they fall into, in this order."""
    if exact:
        return np.arange(len(block)), np.zeros(len(block), dtype=np.int64)
    cells = search.cells_of(frame(block), directory)
    order = np.argsort(cells, kind="stable")
    return order, cells[order]


def slice_of(block: np.ndarray, sorted_rows: tuple[np.ndarray, np.ndarray], number: int, count: int) -> Slice:
    """One of so many slices of a block, of rows that share neighbours."""
    order, cells = (np.array_split(some, count)[number] for some in sorted_rows)
    return Slice(block[order], cells)


def samples_of(some: Slice, frame: Frame) -> search.NewSamples:
    """New rows as samples."""
    return search.NewSamples(frame(some.rows))


def query_of(some: Slice, new: search.NewSamples, directory: Directory, k: int, exact: bool) -> search.Query:
    """New samples that seek neighbours."""
    return search.new_query(new, some.cells, directory, k, exact)


def merged(found: Sequence[search.Found], query: search.Query, k: int, exact: bool, directory: Directory) -> np.ndarray:
    """Places of the best candidates of all shards."""
    return search.merge(found, query.size, search.keep_of(k, exact, directory, own=False))


def asked_of(places: np.ndarray, directory: Directory) -> list[np.ndarray]:
    """Places that are wanted of each shard."""
    return search.wanted(places, None, 0, directory)


def weigh(
    some: Slice,
    samples: search.NewSamples,
    query: search.Query,
    places: np.ndarray,
    asked: list[np.ndarray],
    brought: Sequence[tuple[np.ndarray, np.ndarray]],
    landmarks: Landmarks,
    coefficients: np.ndarray,
    frame: Frame,
    k: int,
    nugget: float,
) -> Weights:
    """Weights of the nearest training samples, and features without them."""
    block = some.rows
    around = search.settle(query, samples, places, asked, brought, k)
    dtype = np.result_type(block, around.points).name  # as `LocalExpansion` does
    new = frame(block, dtype)
    P_new, _ = landmarks.features(new)
    P = landmarks.features(around.points)[0]
    weights = np.empty((len(block), k), dtype=dtype)

    def fill(rows: slice) -> None:
        at = around.neighbors[rows]
        Y = around.points[at].astype(dtype) - new[rows][:, None]
        Y = np.concatenate([Y, np.zeros_like(Y[:, :1])], axis=1)
        P_all = np.concatenate([P[at].astype(dtype), P_new[rows][:, None]], axis=1)
        weights[rows] = conditional(Y, P_all, at < 0, landmarks.gamma, nugget, ONE)[0]

    ONE.each(fill, len(block), (k + 1) * (block.shape[1] + P.shape[1]) * 8)
    return Weights(P_new @ coefficients.astype(dtype), around.others[around.neighbors], weights)


def contribution(weights: Weights, local: np.ndarray, t: int, directory: Directory) -> tuple[np.ndarray, np.ndarray]:
    """Rows that have some of N in shard number t, and ``w^T F_N`` over these: shapes (u,), (u, r)."""
    first, last = directory.first_places[t], directory.first_places[t + 1]
    mine = (weights.places >= first) & (weights.places < last)
    rows = np.flatnonzero(mine.any(axis=1))
    added = np.empty((rows.size, local.shape[1]), dtype=weights.features.dtype)

    def fill(part: slice) -> None:
        at = rows[part]
        some = np.where(mine[at], weights.weights[at], 0)
        numbers = np.where(mine[at], weights.places[at] - first, 0)
        added[part] = (some[:, None] @ local[numbers].astype(added.dtype))[:, 0]

    ONE.each(fill, rows.size, 2 * weights.places.shape[1] * local.shape[1] * 8)
    return rows, added


def finished(weights: Weights, added: Sequence[tuple[np.ndarray, np.ndarray]], dtype: str) -> np.ndarray:
    """Features of a slice."""
    features = weights.features.copy()
    for rows, values in added:
        features[rows] += values
    return features.astype(dtype, copy=False)


def in_given_order(sorted_rows: tuple[np.ndarray, np.ndarray], slices: Sequence[np.ndarray]) -> np.ndarray:
    """Features of a block from those of its slices."""
    together = np.concatenate(slices)
    features = np.empty_like(together)
    features[sorted_rows[0]] = together
    return features


@dataclass(frozen=True)
class ShardedExpansion:
    """Features of new rows from a model that lies on a cluster.

    Attributes
    ----------
    solved : SolvedShards
    n_conditioning, nugget : int, float
        Of the local part.
    block_rows : int
        Rows that a block is taken to have where nobody knows.
    cluster : Cluster
    """

    solved: SolvedShards
    n_conditioning: int
    nugget: float
    block_rows: int
    cluster: Cluster

    @property
    def n_features(self) -> int:
        """Columns of the features."""
        return int(self.solved.coefficients.shape[1])

    def slices(self, lengths: Sequence[float]) -> list[int]:
        """How many slices blocks of so many rows (NaN if unknown) are cut into."""
        rows = self.rows_at_a_time()
        return [max(1, int(-(-(self.block_rows if np.isnan(length) else length) // rows))) for length in lengths]

    def rows_at_a_time(self) -> int:
        """New rows whose neighbours, all different, a worker has room for."""
        directory = self.solved.shards.directory
        kept = search.keep_of(self.n_conditioning + 1, self.solved.exact, directory, own=False)
        points = self.solved.landmarks.points
        # Points that come, points in one array, their features and what these are made of, and their scores and places.
        width = 2 * (points.shape[1] + self.solved.coefficients.shape[0])
        each = kept * (width * points.itemsize + 8 * 12)
        return max(1, int(NEIGHBOURS_SHARE * self.cluster.memory()) // each)

    def tasks(self, block: Any, task: Callable[..., Any], dtype: str, count: int) -> Any:
        """Features of a block of rows in so many slices, as tasks: ``task(name, function, *arguments)``."""
        solved = self.solved
        order = task("order", near_together, block, solved.frame, solved.shards.directory_future, solved.exact)
        slices = [task("slice", slice_of, block, order, number, count) for number in range(count)]
        features = [self._tasks_of_a_slice(one, task, dtype) for one in slices]
        return task("features", in_given_order, order, features)

    def _tasks_of_a_slice(self, some: Any, task: Callable[..., Any], dtype: str) -> Any:
        solved, shards = self.solved, self.solved.shards
        of, frame, exact = shards.directory_future, solved.frame, solved.exact
        k = min(self.n_conditioning + 1, shards.directory.n)
        samples = task("samples", samples_of, some, frame)
        query = task("query", query_of, some, samples, of, k, exact)
        found = [
            task("search", search.find, query, samples, shard, t, of, k, exact)
            for t, shard in enumerate(shards.futures)
        ]
        places = task("merge", merged, found, query, k, exact, of)
        asked = task("wanted", asked_of, places, of)
        brought = [task("bring", search.points_at, shard, asked, t, of) for t, shard in enumerate(shards.futures)]
        weights = task(
            "weigh",
            weigh,
            some,
            samples,
            query,
            places,
            asked,
            brought,
            solved.landmarks_future,
            solved.coefficients,
            frame,
            k,
            self.nugget,
        )
        added = [task("contribution", contribution, weights, local, t, of) for t, local in enumerate(solved.local)]
        return task("finished", finished, weights, added, dtype)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Features of rows that the client has."""
        blocks = [X[start : start + BATCH] for start in range(0, X.shape[0], BATCH)]
        submit, counts = self.cluster.submit, self.slices([len(block) for block in blocks])
        with self.cluster.translated():
            there = [self.cluster.give("rows", block) for block in blocks]  # sent once
            features = self.cluster.collect(
                [self.tasks(block, submit, X.dtype.name, count) for block, count in zip(there, counts, strict=True)]
            )
        return np.concatenate([np.empty((0, self.n_features), dtype=X.dtype), *features])

    def local(self, device: str) -> LocalExpansion:
        """The same as one machine has it, all training samples on the client."""
        solved, gather = self.solved, self.cluster.collect
        directory = solved.shards.directory
        points = np.concatenate(gather([self.cluster.submit("points", _points, one) for one in solved.shards.futures]))
        cells = None
        if not solved.exact:
            cells = CellIndex(
                directory.cells.mean,
                directory.cells.axes,
                directory.cells.centres,
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


def _points(shard: Shard) -> np.ndarray:
    return shard.points
