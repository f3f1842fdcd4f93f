"""Nearest neighbours among shards: each names its candidates, the best of all are kept, and compared in all columns.

A search has four steps, for samples of a shard or new ones alike. `find` names the candidates of one shard, `merge`
keeps the best of all shards, `wanted` and `points_at` bring the rows of other shards that are among them, and `settle`
orders them by their distance in all columns.
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
    groups_of_rows,
    nearest_centre,
    nearest_of,
    scores_of,
    smallest,
)


class Group(NamedTuple):
    """Samples of one cell that search together: from where to where in the order, their cell, and cells to search."""

    start: int
    stop: int
    cell: int
    near: np.ndarray


@dataclass(frozen=True)
class NewSamples(HoldsArrays):
    """Samples (m x d) that are in no shard."""

    points: np.ndarray


@dataclass(frozen=True)
class Query(HoldsArrays):
    """What samples seek, cell by cell; who they are, a shard or new samples, goes beside it and is not sent twice.

    Attributes
    ----------
    order : ndarray of shape (m,)
        In which the samples of a cell follow each other.
    groups : tuple of Group
        Samples that search together.
    own : int or None
        Place of the first sample, where they are samples of a shard: none is a neighbour of itself.
    """

    order: np.ndarray
    groups: tuple[Group, ...]
    own: int | None

    @property
    def size(self) -> int:
        """Samples that seek."""
        return self.order.size


@dataclass(frozen=True)
class Found(HoldsArrays):
    """Candidates of some samples: scores and places (rows x at most keep), place -1 where there are fewer."""

    rows: np.ndarray
    scores: np.ndarray
    places: np.ndarray


@dataclass(frozen=True)
class Neighborhood(HoldsArrays):
    """Samples of a shard with their neighbours: own samples come first, those of other shards after them.

    Attributes
    ----------
    neighbors : int32 array of shape (m, k)
        Nearest first, as numbers among own and others.
    others : ndarray of shape (h,)
        Places of the samples of other shards.
    points, rows : ndarrays of shape (h, d), (h,)
        Of these.
    """

    neighbors: np.ndarray
    others: np.ndarray
    points: np.ndarray
    rows: np.ndarray


def own_query(shard: Shard, s: int, directory: Directory, k: int, exact: bool) -> Query:
    """The samples of shard number s, who seek k neighbours among all."""
    first, order = int(directory.first_cells[s]), np.arange(len(shard.points))
    numbers = np.arange(first, first + shard.starts.size - 1)
    keep = keep_of(k, exact, directory, own=True)
    groups = () if exact else _groups(shard.points, order, shard.starts, numbers, directory, keep)
    return Query(order, groups, int(directory.first_places[s]))


def cells_of(samples: np.ndarray, directory: Directory) -> np.ndarray:
    """Numbers of the cells that samples fall into."""
    if not len(samples):
        return np.empty(0, dtype=np.int64)
    return nearest_centre(directory.cells.components(samples), directory.cells.centres, 1)


def new_query(new: NewSamples, cells: np.ndarray, directory: Directory, k: int, exact: bool) -> Query:
    """New samples, who seek k neighbours, from the cells they fall into, which ascend."""
    order = np.arange(len(new.points))
    if exact:
        return Query(order, (), None)
    numbers, firsts = np.unique(cells, return_index=True)
    keep = keep_of(k, exact, directory, own=False)
    groups = _groups(new.points, order, np.append(firsts, cells.size), numbers, directory, keep)
    return Query(order, groups, None)


def keep_of(k: int, exact: bool, directory: Directory, *, own: bool) -> int:
    """How many candidates are kept for k neighbours, of samples of a shard (own) or of new ones."""
    kept = k if exact else candidates_kept(k, directory.cells.axes)
    return min(kept, directory.n - own)


def _groups(
    samples: np.ndarray, order: np.ndarray, starts: np.ndarray, numbers: np.ndarray, directory: Directory, keep: int
) -> tuple[Group, ...]:
    """Groups of samples, from where each cell starts in their order and its number, with the cells they search."""
    cells, found = directory.cells, []
    with one_blas_thread():
        for position, start, stop in groups_of_rows(starts):
            cell = int(numbers[position])
            Z = cells.components(samples[order[start:stop]]) - cells.centres[cell]
            near = cells_to_search(cells.centres, directory.sizes, cell, Z, keep)
            found.append(Group(int(start), int(stop), cell, near.astype(np.int32)))
    return tuple(found)


def shards_to_ask(query: Query, directory: Directory) -> np.ndarray:
    """Numbers of the shards that have cells to search."""
    near = [np.unique(np.searchsorted(directory.first_cells, group.near, side="right") - 1) for group in query.groups]
    return np.unique(np.concatenate(near))


def find(
    query: Query, seeking: Shard | NewSamples, shard: Shard, t: int, directory: Directory, k: int, exact: bool
) -> Found:
    """Candidates in shard number t, by components of the cells to search, or among all its samples (exact)."""
    with one_blas_thread():
        return (_find_exact if exact else _find_in_cells)(query, seeking.points, shard, t, directory, k)


def _find_in_cells(query: Query, samples: np.ndarray, shard: Shard, t: int, directory: Directory, k: int) -> Found:
    keep = keep_of(k, False, directory, own=query.own is not None)
    first, last = directory.first_cells[t], directory.first_cells[t + 1]
    place = int(directory.first_places[t])
    asking = [(group, group.near[(group.near >= first) & (group.near < last)] - first) for group in query.groups]
    asking = [(group, mine) for group, mine in asking if mine.size]
    m, w = sum(group.stop - group.start for group, _ in asking), min(keep, len(shard.points))
    rows = np.empty(m, dtype=np.int64)
    scores, places = np.full((m, w), np.inf, dtype=np.float32), np.full((m, w), -1)
    cells, components, filled = directory.cells, None, 0
    for (start, stop, cell, _), mine in asking:
        if components is None:
            components = cells.components(shard.points)
        here, own = slice(filled, filled + stop - start), query.order[start:stop]
        rows[here], filled = own, here.stop
        Z = cells.components(samples[own]) - cells.centres[cell]
        columns = np.concatenate([np.arange(shard.starts[j], shard.starts[j + 1]) for j in mine])
        found = scores_of(Z, components[columns] - cells.centres[cell])
        if query.own == place:
            found[np.arange(own.size), np.searchsorted(columns, own)] = np.inf
        best = smallest(found, min(keep, columns.size))
        scores[here, : best.shape[1]] = np.take_along_axis(found, best, axis=1)
        places[here, : best.shape[1]] = place + columns[best]
    places[~np.isfinite(scores)] = -1
    return Found(rows, scores, places)


def _find_exact(query: Query, samples: np.ndarray, shard: Shard, t: int, directory: Directory, k: int) -> Found:
    m, place = query.size, int(directory.first_places[t])
    myself = query.own == place
    w = min(k, len(shard.points) - myself)
    if w == 0 or m == 0:
        return Found(np.empty(0, dtype=np.int64), np.empty((0, 0)), np.empty((0, 0), dtype=np.int64))
    search = NearestNeighbors(n_neighbors=w, algorithm="brute", n_jobs=1).fit(shard.points)
    distances, found = search.kneighbors(None if myself else samples)
    return Found(np.arange(m), np.asarray(distances), place + found.astype(np.int64))


def merge(found: Sequence[Found], m: int, keep: int) -> np.ndarray:
    """Places of the `keep` best candidates of each of m samples, ascending, shape (m, keep)."""
    scores = np.full((m, keep), np.inf, dtype=np.result_type(np.float32, *(one.scores for one in found)))
    places = np.full((m, keep), -1)
    for one in found:
        both = np.hstack([scores[one.rows], one.scores])
        best = np.argpartition(both, keep - 1, axis=1)[:, :keep]
        scores[one.rows] = np.take_along_axis(both, best, axis=1)
        places[one.rows] = np.take_along_axis(np.hstack([places[one.rows], one.places]), best, axis=1)
    return np.sort(places, axis=1)


def wanted(places: np.ndarray, own: int | None, m: int, directory: Directory) -> list[np.ndarray]:
    """Places among these that other shards have: of each shard those within it, ascending."""
    asked = np.unique(places)
    if own is not None:
        asked = asked[(asked < own) | (asked >= own + m)]
    return np.split(asked, np.searchsorted(asked, directory.first_places[1:-1]))


def points_at(shard: Shard, asked: list[np.ndarray], t: int, directory: Directory) -> tuple[np.ndarray, np.ndarray]:
    """Points (h x d) and rows (h,) of the places that are asked of shard number t."""
    at = asked[t] - directory.first_places[t]
    return shard.points[at], shard.rows[at]


def settle(
    query: Query,
    seeking: Shard | NewSamples,
    places: np.ndarray,
    asked: list[np.ndarray],
    brought: Sequence[tuple[np.ndarray, np.ndarray]],
    k: int,
) -> Neighborhood:
    """The k nearest of the candidates (m x keep), by all columns.

    Parameters
    ----------
    query, seeking : Query, Shard or NewSamples
    places : ndarray of shape (m, keep)
        As `merge` gives them.
    asked, brought : lists
        What was asked of the shards, and points and rows of those where that was something.
    k : int
    """
    m, samples = query.size, seeking.points
    others = np.concatenate(asked)
    points = np.concatenate([samples[:0], *(one for one, _ in brought)])
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(one for _, one in brought)])
    first = 0 if query.own is None else m  # new samples are no candidates
    near = first + np.searchsorted(others, places)
    if query.own is not None:
        mine = (places >= query.own) & (places < query.own + m)
        near[mine] = places[mine] - query.own
        points_all = np.concatenate([samples, points])
    else:
        points_all = points
    # Ties go by place, as on one machine: `near` is in the order of places.
    neighbors = nearest_of(points_all, samples, near, k)[1]
    return Neighborhood(neighbors.astype(np.int32), others, points, rows)
