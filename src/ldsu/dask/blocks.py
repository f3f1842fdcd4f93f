"""Blocks of samples on a cluster: reading and checking them, and bringing a few rows to the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ldsu.dask.cluster import Cluster


@dataclass(frozen=True)
class Description:
    """Summary of a block: shape, dtype, column sums, largest absolute value, and whether all values are finite."""

    shape: tuple[int, int]
    dtype: str
    sums: np.ndarray
    largest: float
    finite: bool


def as_floats(block: Any) -> np.ndarray:
    """Convert a block of a collection (array, sparse array or pandas frame) to a dense float32 or float64 array."""
    if scipy.sparse.issparse(block):
        block = block.toarray()
    block = np.asarray(block)
    if block.dtype not in (np.float32, np.float64):
        try:
            block = block.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"X contains {block.dtype} values that are not numbers ({error}). Encode them first."
            ) from error
    return block


def describe(block: np.ndarray) -> Description:
    """Describe a block."""
    finite = bool(np.isfinite(block).all())
    largest = float(np.abs(block).max(initial=0)) if finite else 0.0
    return Description(block.shape, block.dtype.name, block.sum(axis=0, dtype=np.float64), largest, finite)


def take(block: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows of a block."""
    return block[rows]


def rows_by_block(rows: np.ndarray, starts: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Blocks with some of the rows: number of the block, positions in `rows`, and rows counted from its start."""
    owner = np.searchsorted(starts, rows, side="right") - 1
    positions = [(int(number), np.flatnonzero(owner == number)) for number in np.unique(owner)]
    return [(number, at, rows[at] - starts[number]) for number, at in positions]


def take_rows(blocks: list[Any], starts: np.ndarray, rows: np.ndarray, cluster: Cluster) -> np.ndarray:
    """Some rows of blocks on the cluster, in the given order, on the client."""
    requests = rows_by_block(rows, starts) or [(0, rows, rows)]  # no rows, of the right width
    taken = cluster.collect([cluster.submit("take", take, blocks[number], local) for number, _, local in requests])
    order = np.argsort(np.concatenate([positions for _, positions, _ in requests]))
    return np.concatenate(taken)[order]


def is_collection(X: Any) -> bool:
    """Whether X is a Dask array, frame or series."""
    return hasattr(X, "__dask_graph__")


def column_names(X: Any) -> list[str] | None:
    """Column names of a Dask frame, or None unless all are strings."""
    names = list(getattr(X, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None


def delayed_blocks(X: Any) -> list[Any]:
    """Blocks of a Dask array or frame (n x d), in order, as delayed objects that hold all columns."""
    if hasattr(X, "rechunk"):
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, but it has {X.ndim}. Reshape it: one row per sample.")
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
    return list(np.ravel(X.to_delayed()))


def rows_of_blocks(X: Any) -> tuple[float, ...]:
    """Number of rows of each block of a Dask array or frame, NaN where unknown."""
    return tuple(X.chunks[0]) if hasattr(X, "chunks") else (np.nan,) * X.npartitions


@dataclass(frozen=True)
class Blocks:
    """Samples on the cluster, with array-like access to a few rows."""

    cluster: Cluster
    futures: list[Any]  # arrays (rows, d)
    starts: np.ndarray  # (blocks + 1,): first row of each
    shape: tuple[int, int]  # of all samples
    dtype: np.dtype[Any]
    mean: np.ndarray  # (d,): column means

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Rows by index array or slice, in the given order."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(self.shape[0]))
        return take_rows(self.futures, self.starts, rows, self.cluster).astype(self.dtype, copy=False)


def read_blocks(X: Any, cluster: Cluster) -> Blocks:
    """Read a Dask array or frame (n x d) into the memory of the cluster, and validate it."""
    futures = cluster.compute("read", as_floats, delayed_blocks(X))
    summaries: Sequence[Description] = cluster.collect(
        [cluster.submit("describe", describe, block) for block in futures]
    )
    widths = {summary.shape[1] for summary in summaries}
    if len(widths) != 1:
        raise ValueError(f"The blocks of X have {sorted(widths)} columns, but must all have the same number.")
    if not all(summary.finite for summary in summaries):
        raise ValueError("Input X contains NaN or infinity. Fill or drop such rows first.")
    starts = np.cumsum([0, *(summary.shape[0] for summary in summaries)])
    n, d = int(starts[-1]), widths.pop()
    if n < 2 or d < 1:
        raise ValueError(f"Found array with {n} sample(s) and {d} feature(s) while a minimum of 2 and 1 is required.")
    dtype = np.result_type(*(np.dtype(summary.dtype) for summary in summaries))
    limits, largest = np.finfo(dtype), max(summary.largest for summary in summaries)
    if 0 < largest < np.sqrt(float(limits.tiny)) or largest > np.sqrt(float(limits.max)) / max(n, d):
        raise ValueError(f"The largest absolute value in X is {largest:.3g}, and its square does not fit {dtype}.")
    mean = (np.sum([summary.sums for summary in summaries], axis=0) / n).astype(dtype)
    return Blocks(cluster, futures, starts, (n, d), dtype, mean)
