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
from ldsu.neighbors import searches_cells
from ldsu.solvers import (
    Settings,
    anchored_features,
    anchors_among,
    clique_scale,
    gamma_in_units,
    in_given_order,
    landmarks_of,
    products,
    resolve_n_directions,
    rows_for_spread,
    spread,
    tolerance,
    warn_of_residual,
    working_precision,
)

# Right-hand sides that are solved together, at most.
COLUMNS = 40
# Share of a worker's memory that the whole system may take before it is left in parts.
WHOLE_SHARE = 0.35


@dataclass(frozen=True)
class SolvedShards:
    """A solved problem whose rows lie on the cluster.

    Attributes
    ----------
    shards : Shards
    frame : Frame
    landmarks : Landmarks
        On the client; `landmarks_future` is the same on the cluster.
    P, local : lists of Future
        Landmark features (m x q) of each shard's samples, and what their neighbourhoods add to features (m x r).
    coefficients : ndarray of shape (q, r)
        Of the landmark features.
    anchors : ndarray of int
        Rows of X.
    exact : bool
        Whether neighbours are those of all samples.
    neighborhoods, pieces : lists of Future
        Neighbours and parts of the system, for those who want to see them.
    replicated : bool
        Whether the system was on every worker whole.
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
        """L as lam multiplies it (n, n), and the neighbours (n, l) of each row of X, brought to the client."""
        order = np.concatenate(cluster.collect([cluster.submit("rows", _rows, one) for one in self.shards.futures]))
        firsts = self.shards.directory.first_places
        neighbors = cluster.collect(
            [
                cluster.submit("neighbours", _neighbor_places, one, int(first))
                for one, first in zip(self.neighborhoods, firsts, strict=False)
            ]
        )
        cliques = cluster.collect([cluster.submit("cliques", _cliques, one) for one in self.pieces])
        members, weights = (np.concatenate(some) for some in zip(*cliques, strict=True))
        return assemble_cliques(weights, order[members]), in_given_order(np.concatenate(neighbors), order)


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
    exact = not searches_cells(n, settings.neighbor_search)
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
        # Eigenvectors found again, on another processor, may have other signs: these are the ones from now on.
        landmarks = cluster.collect([first])[0]
        landmarks_future = cluster.give("landmarks", landmarks)
        del first
    directory, S = shards.directory, shards.directory.n_shards
    places = _places_of(chosen, shards, cluster)
    anchors = anchors_among(places, m, settings)
    with _stage(cluster, stages, "neighbours"):
        around = neighborhoods(shards, listed, exact, cluster)
    with _stage(cluster, stages, "graphs"):
        grams = [
            cluster.submit("grams", pieces.grams_of, shard, one, settings.clique_size)
            for shard, one in zip(shards.futures, around, strict=True)
        ]
        k = settings.clique_size
        theta = settings.theta
        if settings.relative:
            scatters = cluster.collect([cluster.submit("scatter", pieces.scatter, one) for one in grams])
            theta *= sum(scatters) / (n * k) or 1.0
        else:
            theta *= unit**-2
        weights = [cluster.submit("weights", pieces.weights_of, one, theta) for one in grams]
        diagonals = cluster.collect([cluster.submit("scatter", pieces.scatter, one) for one in weights])
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
        P = [cluster.submit("features-at-landmarks", _landmark_features, one) for one in parts]
        cluster.wait(P)
        replicated = whole_bytes(n, q, settings, itemsize) <= WHOLE_SHARE * cluster.memory()
    # Of what the solves do not need nothing is held on to: the workers may forget it.
    kept = (around, list(parts)) if keep_graphs else ([], [])
    del around, weights
    with _stage(cluster, stages, "solve"):
        if replicated:
            solved = _solve_whole(parts, anchors, q, settings, dtype, shards, cluster)
        else:
            sizes = class_counts(codes)
            solved = partitioned.solve(parts, P, anchors, q, sizes, chosen.size, settings, dtype, shards, cluster)
        Z, MP, H, iterations, residual = solved
        warn_of_residual(residual, settings)
    with _stage(cluster, stages, "features"):
        MPH = sum(cluster.collect([cluster.submit("products", _products, a, b) for a, b in zip(MP, H, strict=True)]))
        Z_A, H_A = (_rows_at(anchors, blocks, shards, cluster) for blocks in (Z, H))
        T, C, eigenvalues = anchored_features(MPH, Z_A, H_A, settings, dtype)
        spreading = cluster.give("coefficients", (T.astype(dtype), C.astype(dtype)))
        local = [cluster.submit("local", _local, *blocks, spreading) for blocks in zip(Z, H, P, strict=True)]
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
    """Columns of the landmark features."""
    return min(n_landmarks, resolve_n_directions(n))


def whole_bytes(n: int, q: int, settings: Settings, itemsize: int) -> int:
    """Bytes of the whole system on one worker while it is put together and a block is solved."""
    entries = 2 * (settings.n_conditioning + 1) + settings.clique_size**2
    return n * (entries * (itemsize + 12) + 8 * settings.clique_size**2 + itemsize * (q + 8 * COLUMNS))


def neighborhoods(shards: Shards, k: int, exact: bool, cluster: Cluster) -> list[Any]:
    """The k nearest others of every sample: a Neighborhood for each shard."""
    directory, of = shards.directory, shards.directory_future
    every = range(directory.n_shards)
    queries = [cluster.submit("query", search.own_query, shards.futures[s], s, of, k, exact) for s in every]
    if exact:
        asked = [np.array(every)] * directory.n_shards
    else:
        asked = cluster.collect([cluster.submit("ask", search.shards_to_ask, query, of) for query in queries])
    found = []
    for s, query in enumerate(queries):
        m = int(directory.first_places[s + 1] - directory.first_places[s])
        own = int(directory.first_places[s])
        keep = search.keep_of(k, exact, directory, own=True)
        candidates = [
            cluster.submit("search", search.find, query, shards.futures[s], shards.futures[t], int(t), of, k, exact)
            for t in asked[s]
        ]
        places = cluster.submit("merge", search.merge, candidates, m, keep)
        wanted = cluster.submit("wanted", search.wanted, places, own, m, of)
        brought = [
            cluster.submit("bring", search.points_at, shards.futures[t], wanted, int(t), of) for t in asked[s] if t != s
        ]
        found.append(cluster.submit("neighbours", search.settle, query, shards.futures[s], places, wanted, brought, k))
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
    """Solve with the whole system on every worker, each block of right-hand sides a task."""
    firsts = shards.directory.first_places
    blocks = _blocks_for_all(anchors.size, q, cluster)
    where = cluster.places(len(blocks))
    # Each worker puts it together itself, rather than to wait for the one that has done so.
    systems = {
        place: cluster.submit("system", pieces.join_pieces, parts, settings, dtype, place=place) for place in set(where)
    }
    solved = [
        cluster.submit(
            "solve", pieces.solve_block, systems[place], anchors[first], second, settings, firsts, place=place
        )
        for (first, second), place in zip(blocks, where, strict=True)
    ]
    del systems  # with the last block that needs it each may be forgotten
    outcomes = cluster.collect([cluster.submit("outcome", pieces.outcome, one) for one in solved])
    every = range(shards.directory.n_shards)
    Z, MP, H = ([_side_by_side(solved, cluster, s, number) for s in every] for number in range(3))
    cluster.wait([*Z, *MP, *H])
    return Z, MP, H, max(i for i, _ in outcomes), max(r for _, r in outcomes)


def _blocks_for_all(anchors: int, q: int, cluster: Cluster) -> list[tuple[slice, slice]]:
    """Anchors and columns cut into blocks: for each thread as many, and of both, since anchors take more iterations."""
    threads = cluster.threads()
    rounds = -(-(anchors + q) // (COLUMNS * threads))
    blocks = min(anchors + q, rounds * threads)
    ends = [np.round(np.linspace(0, count, blocks + 1)).astype(int).tolist() for count in (anchors, q)]
    return [(slice(*one), slice(*other)) for one, other in zip(*map(pairwise, ends), strict=True)]


def _side_by_side(solved: list[Any], cluster: Cluster, *path: int) -> Any:
    """Columns of one shard from the blocks of right-hand sides that were solved."""
    return cluster.submit("columns", np.hstack, [cluster.submit("cut", _at, one, *path) for one in solved])


def _at(solved: tuple[Any, int, float], *path: int) -> Any:
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
    found = cluster.collect([cluster.submit("places", _among, shard, rows) for shard in shards.futures])
    places = np.empty(rows.size, dtype=np.int64)
    for (which, at), first in zip(found, shards.directory.first_places, strict=False):
        places[which] = first + at
    return places


def _among(shard: Shard, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of some rows a shard has, and where in it they are."""
    order = np.argsort(rows)
    at = np.minimum(np.searchsorted(rows[order], shard.rows), rows.size - 1)
    here = np.flatnonzero(rows[order[at]] == shard.rows)
    return order[at[here]], here


def _rows_at(places: np.ndarray, blocks: list[Any], shards: Shards, cluster: Cluster) -> np.ndarray:
    """Rows at some places of arrays that lie on the cluster by shards."""
    owner = shards.directory.owners(places)
    asked = [(s, np.flatnonzero(owner == s)) for s in np.unique(owner)]
    taken = cluster.collect(
        [cluster.submit("take", take, blocks[s], places[at] - shards.directory.first_places[s]) for s, at in asked]
    )
    found = np.empty((places.size, taken[0].shape[1]), dtype=taken[0].dtype)
    for (_, at), values in zip(asked, taken, strict=True):
        found[at] = values
    return found


@contextmanager
def _stage(cluster: Cluster, stages: Stages, name: str) -> Iterator[None]:
    cluster.during(name)
    with stages(name):
        yield
