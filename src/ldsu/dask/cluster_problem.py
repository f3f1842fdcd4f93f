"""The problem of samples on a cluster: each stage of the sparse solver is a set of tasks over shards."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy as np

from ldsu._utils.arrays import ONE
from ldsu._utils.stages import Stages
from ldsu.dask.blocks import Blocks, take_rows
from ldsu.dask.cluster import Cluster
from ldsu.dask.partitioned import PartitionedSystem
from ldsu.dask.pieces import Labels, ReplicatedSystem, grams_of, make_piece, whole_bytes
from ldsu.dask.shard_search import Neighborhood, make_query, neighbor_tasks, shards_to_search
from ldsu.dask.sharded_expansion import ShardedExpansion
from ldsu.dask.shards import Shard, Shards, sort_into_shards
from ldsu.kernels import Kernel
from ldsu.labels import class_counts
from ldsu.neighbors import uses_cells
from ldsu.solvers import Frame, Landmarks, Problem, Settings, resolve_n_directions

# Maximum share of a worker's memory for the whole system; a larger system is partitioned.
WHOLE_SHARE = 0.35


class ClusterStages(Stages):
    """Timed stages that error messages of the cluster name."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__("LDSU on Dask", cluster.verbose)
        self.cluster = cluster

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time the body of a `with` statement under `name`."""
        self.cluster.set_stage(name)
        with super().__call__(name):
            yield


class ClusterProblem(Problem):
    """`Problem` of samples on a cluster, for the sparse solver: values with a row per sample are futures per shard.

    `X` are the blocks of samples, or the samples on the client if they are few. The blocks are released when they are
    sorted into shards, and neighbors and cliques before the solve, unless `keep_graphs`.
    """

    replicated: bool  # whether every worker held the whole system

    def __init__(self, blocks: Blocks, X: Any, stages: Stages, *, keep_graphs: bool) -> None:
        self._start(X, arrays=ONE, stages=stages)
        self.blocks, self.cluster, self.keep_graphs = blocks, blocks.cluster, keep_graphs

    def once(self, kind: str, key: Hashable, make: Callable[[], Any], keep: int | None = None) -> Any:
        """Return ``make()``: on the cluster nothing is kept."""
        return make()

    def sort_samples(self, settings: Settings, dtype: str, kernel: Kernel) -> Shards:
        """Shards of near samples."""
        with self.stages("shards"):
            (n, d), itemsize = self.blocks.shape, np.dtype(dtype).itemsize
            self.exact = not uses_cells(n, settings.neighbor_search)
            frame = Frame.of(self.blocks, self.blocks.mean, dtype)
            listed = max(2 * settings.n_conditioning, settings.clique_size - 1)
            row_bytes = 4 * itemsize * (d + resolve_n_directions(n)) + 3 * 12 * (2 * listed + 8)
            shards = sort_into_shards(self.blocks, frame, row_bytes)
            self.blocks.futures.clear()
            return shards

    def find_neighbors(self, samples: Shards, k: int) -> list[Any]:
        """A `Neighborhood` per shard."""
        with self.stages("neighbors"):
            directory = samples.directory_future
            queries = self.map("query", make_query, (samples.futures,), directory, k, self.exact)
            to_search = self.cluster.collect(self.map("route", shards_to_search, (queries,), directory))
            found = [
                neighbor_tasks(self.cluster.submit, query, shard, samples, some)
                for query, shard, some in zip(queries, samples.futures, to_search, strict=True)
            ]
            self.cluster.wait(found)
            return found

    def grams(self, samples: Shards, neighbors: list[Any], clique_size: int, kernel: Any) -> list[Any]:
        """Gram matrices of the cliques in the input space, per shard."""
        return self.map("grams", grams_of, (samples.futures, neighbors), clique_size)

    def locate(self, samples: Shards, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places of some rows of X, and the samples there."""
        found = self.cluster.collect(self.map("places", _find_rows, (samples.futures,), rows))
        numbers, places, points = (np.concatenate(some) for some in zip(*found, strict=True))
        order = np.argsort(numbers)
        return places[order], points[order]

    def joint_system(
        self,
        key: Hashable,
        samples: Shards,
        neighbors: list[Any],
        weights: list[Any],
        landmarks: Landmarks,
        codes: np.ndarray,
        settings: Settings,
    ) -> tuple[ReplicatedSystem | PartitionedSystem, list[Any]]:
        """The system on every worker, or in parts, and the landmark features per shard."""
        cluster, q, dtype = self.cluster, landmarks.transform.shape[1], samples.frame.dtype
        labelled = np.flatnonzero(codes >= 0)
        # Eigenvectors recomputed on another processor may have other signs: these are fixed from now on.
        self.landmarks_future = cluster.put("landmarks", landmarks)
        labels = cluster.put("labels", Labels(labelled, codes[labelled]))
        values = (samples.futures, neighbors, weights)
        pieces = self.map("piece", make_piece, values, self.landmarks_future, labels, self.n, settings)
        cluster.wait(pieces)
        P = self.map("features-at-landmarks", attrgetter("P"), (pieces,))
        cluster.wait(P)
        self.replicated = whole_bytes(self.n, q, settings, dtype) <= WHOLE_SHARE * cluster.memory()
        n_groups = len(landmarks.points) - landmarks.n_labelled
        if self.replicated:
            return ReplicatedSystem(pieces, q, samples, cluster), P
        return PartitionedSystem(pieces, q, samples, cluster, class_counts(codes), n_groups), P

    def solve(
        self,
        key: Hashable,
        samples: Shards,
        system: ReplicatedSystem | PartitionedSystem,
        P: list[Any],
        landmarks: Landmarks,
        anchors: np.ndarray,
        labelled: np.ndarray,
        settings: Settings,
    ) -> tuple[list[Any], list[Any], list[Any], list[Any], int, float]:
        """Columns of the system, of which nothing is kept."""
        return P, *system.solve(anchors, P, settings)

    def map(self, name: str, function: Callable[..., Any], values: tuple[list[Any], ...], *constants: Any) -> list[Any]:
        """A task per shard; `values` are lists with a future, or a constant, per shard."""
        return [self.cluster.submit(name, function, *some, *constants) for some in zip(*values, strict=True)]

    def total(self, name: str, function: Callable[..., Any], values: tuple[list[Any], ...], *constants: Any) -> Any:
        """The sum of a task per shard."""
        return sum(self.cluster.collect(self.map(name, function, values, *constants)))

    def rows_at(self, samples: Shards, places: np.ndarray, values: list[Any]) -> np.ndarray:
        """Rows at some places, on the client."""
        return take_rows(values, samples.directory.first_places, places, self.cluster)

    def put(self, name: str, values: np.ndarray, dtype: str) -> Any:
        """A value of the client, on the cluster."""
        return self.cluster.put(name, values.astype(dtype))

    def feature_map(
        self,
        samples: Shards,
        landmarks: Landmarks,
        P: list[Any],
        C: np.ndarray,
        local: list[Any],
        settings: Settings,
    ) -> ShardedExpansion:
        """The features of new rows, computed where the samples are."""
        self.cluster.wait(local)
        return ShardedExpansion(
            shards=samples,
            landmarks=landmarks,
            landmarks_future=self.landmarks_future,
            P=P,
            local=local,
            coefficients=C,
            n_conditioning=settings.n_conditioning,
            nugget=settings.nugget,
            exact=self.exact,
            block_rows=int(np.diff(self.blocks.starts).max()),
            cluster=self.cluster,
        )

    def nearest_of_rows(self, samples: Shards, neighbors: list[Any], settings: Settings) -> None:
        """Nothing: features of training rows are computed in the blocks of X, as those of new rows."""

    def graphs(self, samples: Shards, neighbors: list[Any], weights: list[Any]) -> Callable[[], tuple[np.ndarray, ...]]:
        """A function that brings rows, neighbors and cliques to the client, if they are kept."""
        if not self.keep_graphs:
            return tuple
        rows = self.map("rows", attrgetter("rows"), (samples.futures,))
        places = self.map("neighbors", _neighbor_places, (samples.futures, neighbors))
        return lambda: tuple(np.concatenate(self.cluster.collect(some)) for some in (rows, places, weights))


def _find_rows(shard: Shard, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices into `rows` of the rows in a shard, their places, and their samples."""
    order = np.argsort(rows)
    at = np.minimum(np.searchsorted(rows[order], shard.rows), rows.size - 1)
    matches = np.flatnonzero(rows[order[at]] == shard.rows)
    return order[at[matches]], shard.places[matches], shard.points[matches]


def _neighbor_places(shard: Shard, around: Neighborhood) -> np.ndarray:
    return np.concatenate([shard.places, around.others])[around.neighbors]
