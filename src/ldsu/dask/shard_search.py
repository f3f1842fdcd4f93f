"""Nearest neighbors over shards: each shard returns candidates, and the best of all are compared in all columns.

A search has four steps, both for samples of a shard and for new samples. `find` returns the candidates of one shard,
`merge` keeps the best of all shards, `other_places` and `points_at` fetch candidates from other shards, and
`rank_candidates` sorts them by their distance in all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors

from ldsu._utils.arrays import one_blas_thread
from ldsu._utils.sizes import HoldsArrays
from ldsu.dask.shards import Directory, Shard, Shards
from ldsu.neighbors import (
    candidates_kept,
    cells_to_search,
    nearest_candidates,
    partial_distances,
    row_groups,
    smallest,
)


@dataclass(frozen=True)
class NewSamples(HoldsArrays):
    """Samples (m x d) that belong to no shard, sorted by cell: start of each cell (and the end), and its number."""

    points: np.ndarray
    starts: np.ndarray
    cells: np.ndarray
    first_place: None = None


class Group(NamedTuple):
    """Samples of one cell that are searched together: first sample and end, their cell, and cells to search."""

    start: int
    stop: int
    cell: int
    near: np.ndarray


@dataclass(frozen=True)
class Query(HoldsArrays):
    """A neighbor search, cell by cell; the query samples are passed separately, so that they are not sent twice."""

    size: int  # number of query samples, which are sorted by cell
    groups: tuple[Group, ...]  # none if all pairs are compared (exact)
    first_place: int | None  # of the samples of a shard, none of which is a neighbor of itself; None for new samples
    k: int
    keep: int  # number of candidates for k neighbors
    exact: bool


@dataclass(frozen=True)
class Found(HoldsArrays):
    """Candidates of some samples: scores and places (rows x at most keep), padded with place -1."""

    rows: np.ndarray
    scores: np.ndarray
    places: np.ndarray


@dataclass(frozen=True)
class Neighborhood(HoldsArrays):
    """Neighbors of the samples of a shard, numbered with local samples first, then those of other shards."""

    neighbors: np.ndarray  # int32 (m, k): nearest first, as indices into local and other samples
    others: np.ndarray  # (h,): places of the samples of other shards
    points: np.ndarray  # (h, d): the other samples
    rows: np.ndarray  # (h,)


def n_candidates(k: int, exact: bool, directory: Directory, *, own: bool) -> int:
    """Number of candidates kept for k neighbors, of samples of a shard (own) or of new samples."""
    n_kept = k if exact else candidates_kept(k, directory.cells.axes)
    return min(n_kept, directory.n - own)


def make_query(samples: Shard | NewSamples, directory: Directory, k: int, exact: bool) -> Query:
    """Query for the k neighbors of samples among those of all shards."""
    keep, cells, groups = n_candidates(k, exact, directory, own=samples.first_place is not None), directory.cells, []
    with one_blas_thread():
        for position, start, stop in () if exact else row_groups(samples.starts):
            cell = int(samples.cells[position])
            Z = cells.components(samples.points[start:stop]) - cells.centers[cell]
            near = cells_to_search(cells.centers, directory.sizes, cell, Z, keep)
            groups.append(Group(int(start), int(stop), cell, near.astype(np.int32)))
    return Query(len(samples.points), tuple(groups), samples.first_place, k, keep, exact)


def shards_to_search(query: Query, directory: Directory) -> np.ndarray:
    """Shards with cells to search."""
    if query.exact:
        return np.arange(directory.n_shards)
    near = [np.unique(np.searchsorted(directory.first_cells, group.near, side="right") - 1) for group in query.groups]
    return np.unique(np.concatenate(near))


def neighbor_tasks(task: Callable[..., Any], query: Any, samples: Any, shards: Shards, to_search: Iterable[int]) -> Any:
    """Tasks, by ``task(name, function, *arguments)``, for the `Neighborhood` of the samples of a query."""
    searched = [shards.futures[t] for t in to_search]
    found = [task("search", find, query, samples, shard, shards.directory_future) for shard in searched]
    places = task("merge", _merge_for, query, found)
    others = task("others", other_places, query, places)
    fetched = [task("fetch", points_at, shard, others) for shard in searched]
    return task("neighbors", rank_candidates, query, samples, places, others, fetched)


def find(query: Query, samples: Shard | NewSamples, shard: Shard, directory: Directory) -> Found:
    """Candidates in a shard, by components in the cells to search, or among all its samples (exact)."""
    with one_blas_thread():
        return (_find_exact if query.exact else _find_in_cells)(query, samples.points, shard, directory)


def _find_in_cells(query: Query, samples: np.ndarray, shard: Shard, directory: Directory) -> Found:
    first, last = shard.first_cell, shard.first_cell + shard.starts.size - 1
    matches = [(group, group.near[(group.near >= first) & (group.near < last)] - first) for group in query.groups]
    matches = [(group, near) for group, near in matches if near.size]
    m, w = sum(group.stop - group.start for group, _ in matches), min(query.keep, len(shard.points))
    rows = np.empty(m, dtype=np.int64)
    scores, places = np.full((m, w), np.inf, dtype=np.float32), np.full((m, w), -1)
    cells, components, filled = directory.cells, None, 0
    for (start, stop, cell, _), near in matches:
        if components is None:
            components = cells.components(shard.points)
        block, members = slice(filled, filled + stop - start), np.arange(start, stop)
        rows[block], filled = members, block.stop
        Z = cells.components(samples[start:stop]) - cells.centers[cell]
        columns = np.concatenate([np.arange(shard.starts[j], shard.starts[j + 1]) for j in near])
        found = partial_distances(Z, components[columns] - cells.centers[cell])
        if query.first_place == shard.first_place:
            found[np.arange(members.size), np.searchsorted(columns, members)] = np.inf
        best = smallest(found, min(query.keep, columns.size))
        scores[block, : best.shape[1]] = np.take_along_axis(found, best, axis=1)
        places[block, : best.shape[1]] = shard.first_place + columns[best]
    places[~np.isfinite(scores)] = -1
    return Found(rows, scores, places)


def _find_exact(query: Query, samples: np.ndarray, shard: Shard, _: Directory) -> Found:
    is_same = query.first_place == shard.first_place
    w = min(query.k, len(shard.points) - is_same)
    if w == 0 or query.size == 0:
        return Found(np.empty(0, dtype=np.int64), np.empty((0, 0)), np.empty((0, 0), dtype=np.int64))
    search = NearestNeighbors(n_neighbors=w, algorithm="brute", n_jobs=1).fit(shard.points)
    distances, found = search.kneighbors(None if is_same else samples)
    return Found(np.arange(query.size), np.asarray(distances), shard.first_place + found.astype(np.int64))


def _merge_for(query: Query, found: Sequence[Found]) -> np.ndarray:
    return merge(found, query.size, query.keep)


def merge(found: Sequence[Found], m: int, keep: int) -> np.ndarray:
    """Places of the `keep` best candidates of each of m samples, ascending, shape (m, keep)."""
    scores = np.full((m, keep), np.inf, dtype=np.result_type(np.float32, *(candidates.scores for candidates in found)))
    places = np.full((m, keep), -1)
    for rows, new_scores, new_places in ((c.rows, c.scores, c.places) for c in found):
        both = np.hstack([scores[rows], new_scores])
        best = np.argpartition(both, keep - 1, axis=1)[:, :keep]
        scores[rows] = np.take_along_axis(both, best, axis=1)
        places[rows] = np.take_along_axis(np.hstack([places[rows], new_places]), best, axis=1)
    return np.sort(places, axis=1)


def other_places(query: Query, places: np.ndarray) -> np.ndarray:
    """Places of other shards among these, ascending."""
    others = np.unique(places)
    if query.first_place is None:
        return others
    return others[(others < query.first_place) | (others >= query.first_place + query.size)]


def points_at(shard: Shard, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (h x d) and rows (h,) of the places, ascending, that are in a shard."""
    at = places - shard.first_place
    at = at[(at >= 0) & (at < len(shard.points))]
    return shard.points[at], shard.rows[at]


def rank_candidates(
    query: Query,
    samples: Shard | NewSamples,
    places: np.ndarray,
    others: np.ndarray,
    fetched: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Neighborhood:
    """The k nearest of the candidates at `places` (m x keep), by distance in all columns.

    `fetched` are the points and rows of `others`, from the shards that have them.
    """
    points = np.concatenate([samples.points[:0], *(points for points, _ in fetched)])
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(rows for _, rows in fetched)])
    near, candidates = np.searchsorted(others, places), points
    if query.first_place is not None:  # samples of a shard are candidates themselves
        at = places - query.first_place
        near = np.where((at >= 0) & (at < query.size), at, query.size + near)
        candidates = np.concatenate([samples.points, points])
    # Ties are broken by place, as on one machine: `near` is in the order of places.
    neighbors = nearest_candidates(candidates, samples.points, near, query.k)[1]
    return Neighborhood(neighbors.astype(np.int32), others, points, rows)
