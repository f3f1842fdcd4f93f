"""Samples sorted into shards: each shard is a range of neighboring cells, and no cell is split.

The cells are those of `ldsu.neighbors`, with the same centers for any number of blocks or shards, so that a
cluster finds the same neighbors as one machine. The place of a sample is its index in the order of the cells.

Dask recomputes the results of a dead worker. Rounding may then differ, on another processor or with another memory
layout. Values stay close, but discrete choices based on them may change: the cell of a sample between two cells, or one
of two equidistant neighbors. Results that are valid only for the same choice are compared with the previous ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ldsu._utils.sizes import HoldsArrays
from ldsu.dask.blocks import Blocks, rows_by_block, take
from ldsu.dask.cluster import ClusterError, even_parts
from ldsu.neighbors import (
    cell_centers,
    cell_means,
    cell_size,
    nearest_center,
    principal_axes,
    project,
    rows_for_axes,
    rows_for_centers,
    sort_into_cells,
)
from ldsu.solvers import Frame


@dataclass(frozen=True)
class Cells(HoldsArrays):
    """Definition of the cells: mean (d,) and axes (d, r) of the components, and centers (C, r)."""

    mean: np.ndarray
    axes: np.ndarray
    centers: np.ndarray

    def components(self, samples: np.ndarray) -> np.ndarray:
        """Components (n x r) of samples."""
        return project(samples, self.mean, self.axes, 1)

    def of(self, samples: np.ndarray) -> np.ndarray:
        """Cell of each sample."""
        return nearest_center(self.components(samples), self.centers, 1) if len(samples) else np.empty(0, np.int64)


@dataclass(frozen=True)
class Shard(HoldsArrays):
    """Samples of neighboring cells, with the number of the first cell and the place of the first sample."""

    points: np.ndarray  # (m, d)
    rows: np.ndarray  # (m,): their rows in X
    starts: np.ndarray  # (cells + 1,): start of each cell among them
    first_cell: int = 0
    first_place: int = 0

    @property
    def cells(self) -> np.ndarray:
        """Numbers of its cells."""
        return self.first_cell + np.arange(self.starts.size - 1)

    @property
    def places(self) -> np.ndarray:
        """Places of its samples."""
        return self.first_place + np.arange(len(self.points))


@dataclass(frozen=True)
class Directory(HoldsArrays):
    """Cells and places of each shard: S shards, C cells, n places."""

    cells: Cells  # with the cell means as centers
    sizes: np.ndarray  # (C,): number of samples per cell
    first_cells: np.ndarray  # (S + 1,)
    first_places: np.ndarray  # (S + 1,)

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(self.first_places[-1])

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return self.first_cells.size - 1


@dataclass(frozen=True)
class Shards:
    """Shards on the cluster, the frame of their samples, and their directory, on the client and on the cluster."""

    futures: list[Any]
    frame: Frame
    directory: Directory
    directory_future: Any


def sort_into_shards(X: Blocks, frame: Frame, row_bytes: int) -> Shards:
    """Assign samples to cells, and gather the samples of each range of cells into a shard.

    `row_bytes` is the memory of tasks per row of a shard.
    """
    cluster, n = X.cluster, X.shape[0]
    rng = np.random.default_rng(0)  # as in `cell_index`
    mean, axes = principal_axes(frame(X[rows_for_axes(n, rng)]))
    axes_only = cluster.put("axes", Cells(mean, axes, np.empty((0, axes.shape[1]), dtype=np.float32)))
    some = [
        cluster.submit("sample", _sample, X.futures[number], rows, frame, axes_only)
        for number, _, rows in rows_by_block(rows_for_centers(n, rng), X.starts)
    ]
    centers = cluster.collect([cluster.submit("centers", _centers, some, n, rng)])[0]
    cells = cluster.put("cells", Cells(mean, axes, centers))
    numbers = [cluster.submit("assign", _assign, block, frame, cells) for block in X.futures]
    counts = np.sum(cluster.collect([cluster.submit("count", _count, block, cells) for block in numbers]), axis=0)
    n_shards = even_parts(n, cluster.rows_per_part(row_bytes), 2 * cluster.threads())
    first_cells = _cut(counts, n_shards)
    split = [
        cluster.submit("split", _split, block, frame, number, int(start), first_cells)
        for block, number, start in zip(X.futures, numbers, X.starts, strict=False)
    ]
    joined = []
    for s in range(first_cells.size - 1):
        parts = [cluster.submit("part", itemgetter(s), pieces) for pieces in split]
        joined.append(cluster.submit("join", _join, parts, cells, int(first_cells[s]), cell_size(n)))
    cluster.wait(joined)
    del split, numbers, parts  # workers may release them
    summaries = cluster.collect([cluster.submit("summary", summarize, shard, cells) for shard in joined])
    if sum_up(summaries) != every_row_once(n):
        raise changed_data_error()
    directory = _directory(summaries, mean, axes)
    shards = [
        cluster.submit("shard", same_shard, shard, summary.fingerprint, int(first_cell), int(first_place))
        for shard, summary, first_cell, first_place in zip(
            joined, summaries, directory.first_cells, directory.first_places, strict=False
        )
    ]
    cluster.wait(shards)
    return Shards(shards, frame, directory, cluster.put("directory", directory))


def _sample(block: np.ndarray, rows: np.ndarray, frame: Frame, cells: Cells) -> np.ndarray:
    return cells.components(frame(take(block, rows)))


def _centers(some: Sequence[np.ndarray], n: int, rng: np.random.Generator) -> np.ndarray:
    return cell_centers(np.concatenate(some), n, rng, 1)


def _assign(block: np.ndarray, frame: Frame, cells: Cells) -> np.ndarray:
    return cells.of(frame(block)).astype(np.int32)


def _count(numbers: np.ndarray, cells: Cells) -> np.ndarray:
    return np.bincount(numbers, minlength=cells.centers.shape[0])


def _cut(counts: np.ndarray, parts: int) -> np.ndarray:
    """First cell of each part, and the end, for parts with about equal numbers of samples.

    No part is empty, even if the last cells are.
    """
    before = np.cumsum(counts) - counts
    total = int(counts.sum())
    cuts = np.searchsorted(before, np.arange(1, parts) * total / parts)
    cuts = cuts[cuts < np.searchsorted(before, total)]
    return np.unique(np.concatenate([[0], cuts, [counts.size]]))


def _split(
    block: np.ndarray, frame: Frame, numbers: np.ndarray, start: int, first_cells: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    samples, shard = frame(block), np.searchsorted(first_cells, numbers, side="right") - 1
    chosen = (np.flatnonzero(shard == s) for s in range(first_cells.size - 1))
    return [(samples[rows], rows + start, numbers[rows]) for rows in chosen]


def _join(parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], cells: Cells, first: int, size: int) -> Shard:
    points, rows, numbers = (np.concatenate(some) for some in zip(*parts, strict=True))
    order, starts = sort_into_cells(cells.components(points), numbers - first, size)
    return Shard(points[order], rows[order], starts)


class Summary(NamedTuple):
    """Summary of a shard, for the directory and to detect changes."""

    sizes: np.ndarray  # (cells,): number of samples of each of its cells
    means: np.ndarray  # (cells, r)
    rows: tuple[int, int, int]  # count, sum and sum of squares of its rows
    fingerprint: int


# Sums of rows are computed modulo this.
MODULUS = 2**64


def summarize(shard: Shard, cells: Cells) -> Summary:
    """Summary of a shard."""
    means = cell_means(cells.components(shard.points), shard.starts)
    rows = shard.rows.astype(np.uint64)
    sums = rows.size, int(rows.sum()), int((rows * rows).sum())
    return Summary(np.diff(shard.starts), means, sums, fingerprint(arrays_of(shard)))


def fingerprint(arrays: Iterable[np.ndarray]) -> int:
    """Checksum of arrays."""
    number = 0
    for array in arrays:
        number = zlib.crc32(np.ascontiguousarray(array).data, number)
    return number


def require_same(arrays: Iterable[np.ndarray], before: int) -> None:
    """Raise a `ClusterError` unless arrays have the fingerprint `before`."""
    if fingerprint(arrays) != before:
        raise changed_data_error()


def changed_data_error() -> ClusterError:
    """The error for results that are recomputed differently."""
    return ClusterError(
        "Samples that were lost with a worker are not the same, or not in the same order, after reading them again. "
        "Either the source of X has changed, or workers have different processors. Fit again on identical workers, "
        "from data that do not change."
    )


def arrays_of(shard: Shard) -> tuple[np.ndarray, ...]:
    """All arrays of a shard."""
    return shard.points, shard.rows, shard.starts


def sum_up(summaries: Sequence[Summary]) -> tuple[int, ...]:
    """Count, sum and sum of squares of the rows of all shards."""
    return tuple(sum(values) % MODULUS for values in zip(*(summary.rows for summary in summaries), strict=True))


def every_row_once(n: int) -> tuple[int, ...]:
    """`sum_up` of the rows from 0 to n - 1.

    If a block is read again while it is sorted into shards, a row that changes its shard is in two shards or in none.
    """
    return n, n * (n - 1) // 2 % MODULUS, n * (n - 1) * (2 * n - 1) // 6 % MODULUS


def same_shard(shard: Shard, before: int, first_cell: int = 0, first_place: int = 0) -> Shard:
    """A shard with its place, checked not to have changed: results that depend on it are valid for no other."""
    require_same(arrays_of(shard), before)
    return replace(shard, first_cell=first_cell, first_place=first_place)


def _directory(summaries: Sequence[Summary], mean: np.ndarray, axes: np.ndarray) -> Directory:
    sizes, means, *_ = zip(*summaries, strict=True)
    first_cells = np.cumsum([0, *(one.size for one in sizes)])
    first_places = np.cumsum([0, *(int(one.sum()) for one in sizes)])
    return Directory(Cells(mean, axes, np.concatenate(means)), np.concatenate(sizes), first_cells, first_places)
