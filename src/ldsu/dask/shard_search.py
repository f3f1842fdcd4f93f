"""Nearest neighbors over shards: each shard returns candidates, and the best of all are compared in all columns.

A search has four steps, both for samples of a shard and for new samples. `find` returns the candidates of one shard,
`merge` keeps the best of all shards, `remote_places` and `points_at` fetch candidates from other shards, and
`rank_candidates` sorts them by their distance in all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors

from ldsu._utils.arrays import one_blas_thread
from ldsu.dask.shards import Directory, Shard
from ldsu.dask.sizes import HoldsArrays
from ldsu.neighbors import (
    candidates_kept,
    cells_to_search,
    nearest_candidates,
    partial_distances,
    row_groups,
    smallest,
)


class Group(NamedTuple):
    """Samples of one cell that are searched together: first sample and end, their cell, and cells to search."""

    start: int
    stop: int
    cell: int
    near: np.ndarray


@dataclass(frozen=True)
class NewSamples(HoldsArrays):
    """Samples (m x d) that belong to no shard."""

    points: np.ndarray


@dataclass(frozen=True)
class Query(HoldsArrays):
    """A neighbor search, cell by cell; the query samples are passed separately, so that they are not sent twice.

    Attributes
    ----------
    size : int
        Number of query samples, which are sorted by cell.
    groups : tuple of Group
        Samples that are searched together.
    first_place : int or None
        Place of the first sample of a shard, None for new samples: no sample is a neighbor of itself.
    """

    size: int
    groups: tuple[Group, ...]
    first_place: int | None


@dataclass(frozen=True)
class Found(HoldsArrays):
    """Candidates of some samples: scores and places (rows x at most keep), padded with place -1."""

    rows: np.ndarray
    scores: np.ndarray
    places: np.ndarray


@dataclass(frozen=True)
class Neighborhood(HoldsArrays):
    """Neighbors of the samples of a shard, numbered with local samples first, then those of other shards.

    Attributes
    ----------
    neighbors : int32 array of shape (m, k)
        Nearest first, as indices into local and other samples.
    others : ndarray of shape (h,)
        Places of the samples of other shards.
    points, rows : ndarrays of shape (h, d), (h,)
        Of the other samples.
    """

    neighbors: np.ndarray
    others: np.ndarray
    points: np.ndarray
    rows: np.ndarray


def shard_query(shard: Shard, s: int, directory: Directory, k: int, exact: bool) -> Query:
    """Query for the k neighbors of the samples of shard s among all samples."""
    cells = np.arange(directory.first_cells[s], directory.first_cells[s + 1])
    groups = () if exact else _groups(shard.points, shard.starts, cells, directory, k, own=True)
    return Query(len(shard.points), groups, int(directory.first_places[s]))


def new_query(new: NewSamples, cells: np.ndarray, directory: Directory, k: int, exact: bool) -> Query:
    """Query for the k neighbors of new samples, from their cells (ascending)."""
    numbers, firsts = np.unique(cells, return_index=True)
    starts = np.append(firsts, cells.size)
    groups = () if exact else _groups(new.points, starts, numbers, directory, k, own=False)
    return Query(len(new.points), groups, None)


def n_candidates(k: int, exact: bool, directory: Directory, *, own: bool) -> int:
    """Number of candidates kept for k neighbors, of samples of a shard (own) or of new samples."""
    n_kept = k if exact else candidates_kept(k, directory.cells.axes)
    return min(n_kept, directory.n - own)


def _groups(
    samples: np.ndarray, starts: np.ndarray, numbers: np.ndarray, directory: Directory, k: int, *, own: bool
) -> tuple[Group, ...]:
    """Groups of samples and the cells to search, from the first sample of each cell and its number."""
    cells, found, keep = directory.cells, [], n_candidates(k, False, directory, own=own)
    with one_blas_thread():
        for position, start, stop in row_groups(starts):
            cell = int(numbers[position])
            Z = cells.components(samples[start:stop]) - cells.centers[cell]
            near = cells_to_search(cells.centers, directory.sizes, cell, Z, keep)
            found.append(Group(int(start), int(stop), cell, near.astype(np.int32)))
    return tuple(found)


def shards_to_search(query: Query, directory: Directory) -> np.ndarray:
    """Shards with cells to search."""
    near = [np.unique(np.searchsorted(directory.first_cells, group.near, side="right") - 1) for group in query.groups]
    return np.unique(np.concatenate(near))


def find(
    query: Query, queried: Shard | NewSamples, shard: Shard, t: int, directory: Directory, k: int, exact: bool
) -> Found:
    """Candidates in shard t, by components in the cells to search, or among all its samples (exact)."""
    with one_blas_thread():
        return (_find_exact if exact else _find_in_cells)(query, queried.points, shard, t, directory, k)


def _find_in_cells(query: Query, samples: np.ndarray, shard: Shard, t: int, directory: Directory, k: int) -> Found:
    keep = n_candidates(k, False, directory, own=query.first_place is not None)
    first, last = directory.first_cells[t], directory.first_cells[t + 1]
    place = int(directory.first_places[t])
    matches = [(group, group.near[(group.near >= first) & (group.near < last)] - first) for group in query.groups]
    matches = [(group, near) for group, near in matches if near.size]
    m, w = sum(group.stop - group.start for group, _ in matches), min(keep, len(shard.points))
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
        if query.first_place == place:
            found[np.arange(members.size), np.searchsorted(columns, members)] = np.inf
        best = smallest(found, min(keep, columns.size))
        scores[block, : best.shape[1]] = np.take_along_axis(found, best, axis=1)
        places[block, : best.shape[1]] = place + columns[best]
    places[~np.isfinite(scores)] = -1
    return Found(rows, scores, places)


def _find_exact(query: Query, samples: np.ndarray, shard: Shard, t: int, directory: Directory, k: int) -> Found:
    m, place = query.size, int(directory.first_places[t])
    is_same = query.first_place == place
    w = min(k, len(shard.points) - is_same)
    if w == 0 or m == 0:
        return Found(np.empty(0, dtype=np.int64), np.empty((0, 0)), np.empty((0, 0), dtype=np.int64))
    search = NearestNeighbors(n_neighbors=w, algorithm="brute", n_jobs=1).fit(shard.points)
    distances, found = search.kneighbors(None if is_same else samples)
    return Found(np.arange(m), np.asarray(distances), place + found.astype(np.int64))


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


def remote_places(places: np.ndarray, first_place: int | None, m: int, directory: Directory) -> list[np.ndarray]:
    """Places of other shards among these, ascending, split by shard."""
    remote = np.unique(places)
    if first_place is not None:
        remote = remote[(remote < first_place) | (remote >= first_place + m)]
    return np.split(remote, np.searchsorted(remote, directory.first_places[1:-1]))


def points_at(shard: Shard, remote: list[np.ndarray], t: int, directory: Directory) -> tuple[np.ndarray, np.ndarray]:
    """Points (h x d) and rows (h,) of the remote places in shard t."""
    at = remote[t] - directory.first_places[t]
    return shard.points[at], shard.rows[at]


def rank_candidates(
    query: Query,
    queried: Shard | NewSamples,
    places: np.ndarray,
    remote: list[np.ndarray],
    fetched: Sequence[tuple[np.ndarray, np.ndarray]],
    k: int,
) -> Neighborhood:
    """The k nearest of the candidates (m x keep), by distance in all columns.

    Parameters
    ----------
    query, queried : Query, Shard or NewSamples
    places : ndarray of shape (m, keep)
        Result of `merge`.
    remote, fetched : lists
        Remote places by shard, and the points and rows of the shards that have any.
    k : int
    """
    samples, others = queried.points, np.concatenate(remote)
    points = np.concatenate([samples[:0], *(points for points, _ in fetched)])
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(rows for _, rows in fetched)])
    near, candidates = np.searchsorted(others, places), points
    if query.first_place is not None:  # samples of a shard are candidates themselves
        at = places - query.first_place
        near = np.where((at >= 0) & (at < query.size), at, query.size + near)
        candidates = np.concatenate([samples, points])
    # Ties are broken by place, as on one machine: `near` is in the order of places.
    neighbors = nearest_candidates(candidates, samples, near, k)[1]
    return Neighborhood(neighbors.astype(np.int32), others, points, rows)
