"""The sparse solver on a cluster: the stages of `ldsu.solvers._sparse`, each a set of tasks over shards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse

from ldsu._utils.arrays import ONE
from ldsu._utils.stages import Stages
from ldsu.dask import partitioned, pieces
from ldsu.dask import shard_search as search
from ldsu.dask.blocks import Blocks, take
from ldsu.dask.cluster import Cluster
from ldsu.dask.shards import Frame, Shard, Shards, sort_into_shards
from ldsu.graphs import assemble_cliques
from ldsu.kernels import Kernel
from ldsu.labels import class_counts
from ldsu.neighbors import uses_cells
from ldsu.solvers import (
    Settings,
    anchored_features,
    choose_anchors_among,
    clique_scale,
    gamma_in_units,
    landmarks_of,
    products,
    resolve_n_directions,
    restore_order,
    rows_for_spread,
    spread,
    tolerance,
    warn_residual,
    working_precision,
)

# Maximum number of right-hand sides that are solved together.
COLUMNS = 40
# Maximum share of a worker's memory for the whole system; a larger system is partitioned.
WHOLE_SHARE = 0.35


@dataclass(frozen=True)
class SolvedShards:
    """A solved problem with its rows on the cluster.

    Attributes
    ----------
    shards : Shards
    frame : Frame
    landmarks : Landmarks
        On the client; `landmarks_future` is the same on the cluster.
    P, local : lists of Future
        Landmark features (m x q) of the samples of each shard, and the local part of their features (m x r).
    coefficients : ndarray of shape (q, r)
        Of the landmark features.
    anchors : ndarray of int
        Rows of X.
    exact : bool
        Whether the neighbor search is exact.
    neighborhoods, pieces : lists of Future
        Neighbors and parts of the system, if kept.
    replicated : bool
        Whether every worker held the whole system.
    """

    shards: Shards
    frame: Frame
    landmarks: pieces.Landmarks
    landmarks_future: Any
    P: list[Any]
    local: list[Any]
    coefficients: np.ndarray
    eigenvalues: np.ndarray
    anchors: np.ndarray
    theta: float
    iterations: int
    residual: float
    exact: bool
    neighborhoods: list[Any]
    pieces: list[Any]
    replicated: bool

    def graphs(self, cluster: Cluster) -> tuple[scipy.sparse.csr_array, np.ndarray]:
        """L (n, n) in the units that lam multiplies, and the neighbors (n, l) of each row of X, on the client."""
        order = np.concatenate(cluster.collect([cluster.submit("rows", _rows, shard) for shard in self.shards.futures]))
        firsts = self.shards.directory.first_places
        neighbors = cluster.collect(
            [
                cluster.submit("neighbors", _neighbor_places, around, int(first))
                for around, first in zip(self.neighborhoods, firsts, strict=False)
            ]
        )
        cliques = cluster.collect([cluster.submit("cliques", _cliques, piece) for piece in self.pieces])
        members, weights = (np.concatenate(arrays) for arrays in zip(*cliques, strict=True))
        return assemble_cliques(weights, order[members]), restore_order(np.concatenate(neighbors), order)


def solve_on_cluster(
    X: Blocks, codes: np.ndarray, kernel: Kernel, settings: Settings, stages: Stages, *, keep_graphs: bool = False
) -> SolvedShards:
    """`solve_sparse` for samples on a cluster, with filter "tikhonov"."""
    cluster, (n, d) = X.cluster, X.shape
    dtype = working_precision(codes, settings)
    settings = tolerance(codes, settings)
    labelled = np.flatnonzero(codes >= 0)
    labels = pieces.Labels(labelled, codes[labelled])
    chosen, m = landmarks_of(codes, settings)
    listed = min(max(2 * settings.n_conditioning, settings.clique_size - 1), n - 1)
    exact = not uses_cells(n, settings.neighbor_search)
    itemsize = np.dtype(dtype).itemsize
    q = n_directions(chosen.size, n)

    with _stage(cluster, stages, "shards"):
        unit = spread(X[rows_for_spread(n)], X.mean)
        frame = Frame(X.mean, unit, dtype)
        gamma = gamma_in_units(kernel, unit)
        first = cluster.submit("landmarks", pieces.make_landmarks, frame(X[chosen]), n, gamma, settings)
        row_bytes = 4 * itemsize * (d + q) + 3 * 12 * (2 * listed + 8)
        shards = sort_into_shards(X, frame, row_bytes)
        X.futures.clear()
        # Eigenvectors recomputed on another processor may have other signs: these are fixed from now on.
        landmarks = cluster.collect([first])[0]
        landmarks_future = cluster.put("landmarks", landmarks)
        del first
    directory, S = shards.directory, shards.directory.n_shards
    places = _places_of(chosen, shards, cluster)
    anchors = choose_anchors_among(places, m, settings)
    with _stage(cluster, stages, "neighbors"):
        around = neighborhoods(shards, listed, exact, cluster)
    with _stage(cluster, stages, "graphs"):
        grams = [
            cluster.submit("grams", pieces.grams_of, shard, neighborhood, settings.clique_size)
            for shard, neighborhood in zip(shards.futures, around, strict=True)
        ]
        k = settings.clique_size
        theta = settings.theta
        if settings.scaling == "relative":
            scatters = cluster.collect([cluster.submit("scatter", pieces.scatter, block) for block in grams])
            theta *= sum(scatters) / (n * k) or 1.0
        else:
            theta *= unit**-2
        weights = [cluster.submit("weights", pieces.weights_of, block, theta) for block in grams]
        diagonals = cluster.collect([cluster.submit("scatter", pieces.scatter, block) for block in weights])
        scale = clique_scale(sum(diagonals), n, unit, settings)
        del grams
    with _stage(cluster, stages, "factor"):
        parts = [
            cluster.submit(
                "piece",
                pieces.make_piece,
                shards.futures[s],
                around[s],
                int(directory.first_places[s]),
                n,
                weights[s],
                scale,
                landmarks_future,
                labels,
                settings,
            )
            for s in range(S)
        ]
        cluster.wait(parts)
        P = [cluster.submit("features-at-landmarks", _landmark_features, part) for part in parts]
        cluster.wait(P)
        replicated = whole_bytes(n, q, settings, itemsize) <= WHOLE_SHARE * cluster.memory()
    # Release everything that the solves do not need.
    kept = (around, list(parts)) if keep_graphs else ([], [])
    del around, weights
    with _stage(cluster, stages, "solve"):
        if replicated:
            solved = _solve_whole(parts, anchors, q, settings, dtype, shards, cluster)
        else:
            sizes = class_counts(codes)
            solved = partitioned.solve(parts, P, anchors, q, sizes, chosen.size, settings, dtype, shards, cluster)
        Z, MP, H, iterations, residual = solved
        warn_residual(residual, settings)
    with _stage(cluster, stages, "features"):
        MPH = sum(cluster.collect([cluster.submit("products", _products, a, b) for a, b in zip(MP, H, strict=True)]))
        Z_A, H_A = (_rows_at(anchors, blocks, shards, cluster) for blocks in (Z, H))
        T, C, eigenvalues = anchored_features(MPH, Z_A, H_A, settings, dtype)
        coefficients = cluster.put("coefficients", (T.astype(dtype), C.astype(dtype)))
        local = [cluster.submit("local", _local, *blocks, coefficients) for blocks in zip(Z, H, P, strict=True)]
        cluster.wait(local)
    return SolvedShards(
        shards=shards,
        frame=frame,
        landmarks=landmarks,
        landmarks_future=landmarks_future,
        P=P,
        local=local,
        coefficients=C,
        eigenvalues=eigenvalues,
        anchors=chosen[: anchors.size],
        theta=theta * unit**2,
        iterations=iterations,
        residual=residual,
        exact=exact,
        neighborhoods=kept[0],
        pieces=kept[1],
        replicated=replicated,
    )


def n_directions(n_landmarks: int, n: int) -> int:
    """Number of columns of the landmark features."""
    return min(n_landmarks, resolve_n_directions(n))


def whole_bytes(n: int, q: int, settings: Settings, itemsize: int) -> int:
    """Bytes of the whole system on one worker while it is joined and a block is solved."""
    entries = 2 * (settings.n_conditioning + 1) + settings.clique_size**2
    return n * (entries * (itemsize + 12) + 8 * settings.clique_size**2 + itemsize * (q + 8 * COLUMNS))


def neighborhoods(shards: Shards, k: int, exact: bool, cluster: Cluster) -> list[Any]:
    """The k nearest neighbors of every sample: a `Neighborhood` per shard."""
    directory, directory_future = shards.directory, shards.directory_future
    all_shards = range(directory.n_shards)
    queries = [
        cluster.submit("query", search.shard_query, shards.futures[s], s, directory_future, k, exact)
        for s in all_shards
    ]
    if exact:
        to_search = [np.array(all_shards)] * directory.n_shards
    else:
        to_search = cluster.collect(
            [cluster.submit("route", search.shards_to_search, query, directory_future) for query in queries]
        )
    found = []
    for s, query in enumerate(queries):
        m = int(directory.first_places[s + 1] - directory.first_places[s])
        first_place = int(directory.first_places[s])
        keep = search.n_candidates(k, exact, directory, own=True)
        candidates = [
            cluster.submit(
                "search", search.find, query, shards.futures[s], shards.futures[t], int(t), directory_future, k, exact
            )
            for t in to_search[s]
        ]
        places = cluster.submit("merge", search.merge, candidates, m, keep)
        remote = cluster.submit("remote", search.remote_places, places, first_place, m, directory_future)
        fetched = [
            cluster.submit("fetch", search.points_at, shards.futures[t], remote, int(t), directory_future)
            for t in to_search[s]
            if t != s
        ]
        found.append(
            cluster.submit("neighbors", search.rank_candidates, query, shards.futures[s], places, remote, fetched, k)
        )
    cluster.wait(found)
    return found


def _solve_whole(
    parts: list[Any],
    anchors: np.ndarray,
    q: int,
    settings: Settings,
    dtype: str,
    shards: Shards,
    cluster: Cluster,
) -> tuple[list[Any], list[Any], list[Any], int, float]:
    """Solve with the whole system on every worker, one task per block of right-hand sides."""
    firsts = shards.directory.first_places
    blocks = _column_blocks(anchors.size, q, cluster)
    workers = cluster.assign_workers(len(blocks))
    # Each worker joins it itself, rather than wait for another worker.
    systems = {
        worker: cluster.submit("system", pieces.join_pieces, parts, settings, dtype, worker=worker)
        for worker in set(workers)
    }
    solved = [
        cluster.submit(
            "solve", pieces.solve_block, systems[worker], anchors[first], second, settings, firsts, worker=worker
        )
        for (first, second), worker in zip(blocks, workers, strict=True)
    ]
    del systems  # each is released with the last block that needs it
    outcomes = cluster.collect([cluster.submit("outcome", pieces.outcome, block) for block in solved])
    all_shards = range(shards.directory.n_shards)
    Z, MP, H = ([_hstack_blocks(solved, cluster, s, number) for s in all_shards] for number in range(3))
    cluster.wait([*Z, *MP, *H])
    return Z, MP, H, max(i for i, _ in outcomes), max(r for _, r in outcomes)


def _column_blocks(anchors: int, q: int, cluster: Cluster) -> list[tuple[slice, slice]]:
    """Blocks of anchors and columns: equally many per thread, of both kinds, since anchors need more iterations."""
    threads = cluster.threads()
    rounds = -(-(anchors + q) // (COLUMNS * threads))
    blocks = min(anchors + q, rounds * threads)
    ends = [np.round(np.linspace(0, count, blocks + 1)).astype(int).tolist() for count in (anchors, q)]
    return [(slice(*first), slice(*second)) for first, second in zip(*map(pairwise, ends), strict=True)]


def _hstack_blocks(solved: list[Any], cluster: Cluster, *path: int) -> Any:
    """Columns of one shard from the solved blocks of right-hand sides."""
    return cluster.submit("columns", np.hstack, [cluster.submit("cut", _item_at, block, *path) for block in solved])


def _item_at(solved: tuple[Any, int, float], *path: int) -> Any:
    values = solved[0]
    for number in path:
        values = values[number]
    return values


def _rows(shard: Shard) -> np.ndarray:
    return shard.rows


def _neighbor_places(around: search.Neighborhood, first: int) -> np.ndarray:
    m = len(around.neighbors)
    return np.concatenate([np.arange(first, first + m), around.others])[around.neighbors]


def _cliques(piece: pieces.Piece) -> tuple[np.ndarray, np.ndarray]:
    return piece.members, piece.weights


def _landmark_features(piece: pieces.Piece) -> np.ndarray:
    return piece.P


def _products(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.asarray(products(A, B, ONE))


def _local(Z: np.ndarray, H: np.ndarray, P: np.ndarray, coefficients: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    T, C = coefficients
    return Z @ T + (H - P) @ C


def _places_of(rows: np.ndarray, shards: Shards, cluster: Cluster) -> np.ndarray:
    """Places of some rows of X."""
    found = cluster.collect([cluster.submit("places", _find_rows, shard, rows) for shard in shards.futures])
    places = np.empty(rows.size, dtype=np.int64)
    for (indices, at), first in zip(found, shards.directory.first_places, strict=False):
        places[indices] = first + at
    return places


def _find_rows(shard: Shard, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices into `rows` of the rows in a shard, and their positions in it."""
    order = np.argsort(rows)
    at = np.minimum(np.searchsorted(rows[order], shard.rows), rows.size - 1)
    matches = np.flatnonzero(rows[order[at]] == shard.rows)
    return order[at[matches]], matches


def _rows_at(places: np.ndarray, blocks: list[Any], shards: Shards, cluster: Cluster) -> np.ndarray:
    """Rows at some places of arrays on the cluster, split by shard."""
    owner = shards.directory.owners(places)
    requests = [(s, np.flatnonzero(owner == s)) for s in np.unique(owner)]
    taken = cluster.collect(
        [cluster.submit("take", take, blocks[s], places[at] - shards.directory.first_places[s]) for s, at in requests]
    )
    result = np.empty((places.size, taken[0].shape[1]), dtype=taken[0].dtype)
    for (_, at), values in zip(requests, taken, strict=True):
        result[at] = values
    return result


@contextmanager
def _stage(cluster: Cluster, stages: Stages, name: str) -> Iterator[None]:
    cluster.set_stage(name)
    with stages(name):
        yield
