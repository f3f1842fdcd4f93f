"""Samples that lie on a cluster, block by block: what is read of them, and how a few rows come to the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ldsu.dask.cluster import Cluster


@dataclass(frozen=True)
class Description:
    """What is to be known of a block: shape, type, sums of columns, largest absolute value, whether all is finite."""

    shape: tuple[int, int]
    dtype: str
    sums: np.ndarray
    largest: float
    finite: bool


def as_floats(block: Any) -> np.ndarray:
    """A block of a collection, a pandas frame included, as a dense array (n x d) of float32 or float64."""
    if scipy.sparse.issparse(block):
        block = block.toarray()
    block = np.asarray(block)
    if block.dtype not in (np.float32, np.float64):
        try:
            block = block.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"X holds {block.dtype} values that are no numbers ({error}). Encode them first."
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


def is_collection(X: Any) -> bool:
    """Whether X is a Dask array, frame or series."""
    return hasattr(X, "__dask_graph__")


def column_names(X: Any) -> list[str] | None:
    """Names of the columns of a Dask frame, where all are strings."""
    names = list(getattr(X, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None


def delayed_blocks(X: Any) -> list[Any]:
    """The blocks of a Dask array or frame (n x d), in order, as delayed objects; columns are brought together."""
    if hasattr(X, "rechunk"):
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, but it has {X.ndim}. Reshape it: one row for each sample.")
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
    return list(np.ravel(X.to_delayed()))


def rows_of_blocks(X: Any) -> tuple[float, ...]:
    """Rows of each block of a Dask array or frame, NaN where only reading it would tell."""
    return tuple(X.chunks[0]) if hasattr(X, "chunks") else (np.nan,) * X.npartitions


@dataclass(frozen=True)
class Blocks:
    """Samples on the cluster: enough of an array for what needs a few rows of them.

    Attributes
    ----------
    cluster : Cluster
    futures : list of Future
        Arrays of shape (rows, d).
    starts : ndarray of shape (blocks + 1,)
        Row at which each of them starts.
    shape, dtype : tuple, dtype
        Of all of them.
    mean : ndarray of shape (d,)
        Of the columns.
    """

    cluster: Cluster
    futures: list[Any]
    starts: np.ndarray
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    mean: np.ndarray

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Rows, by numbers or a slice, in the order asked for."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(self.shape[0]))
        found = np.empty((rows.size, self.shape[1]), dtype=self.dtype)
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        asked = [(number, np.flatnonzero(owner == number)) for number in np.unique(owner)]
        taken = self.cluster.collect(
            [
                self.cluster.submit("take", take, self.futures[number], rows[at] - self.starts[number])
                for number, at in asked
            ]
        )
        for (_, at), values in zip(asked, taken, strict=True):
            found[at] = values
        return found


def read_blocks(X: Any, cluster: Cluster) -> Blocks:
    """Read a Dask array or frame (n x d) into the memory of the cluster, and see that it can be learned from."""
    futures = cluster.compute("read", as_floats, delayed_blocks(X))
    found: Sequence[Description] = cluster.collect([cluster.submit("describe", describe, block) for block in futures])
    widths = {one.shape[1] for one in found}
    if len(widths) != 1:
        raise ValueError(f"The blocks of X have {sorted(widths)} columns. All must have the same.")
    if not all(one.finite for one in found):
        raise ValueError("Input X contains NaN or infinity. Fill or drop such rows first.")
    starts = np.cumsum([0, *(one.shape[0] for one in found)])
    n, d = int(starts[-1]), widths.pop()
    if n < 2 or d < 1:
        raise ValueError(f"Found array with {n} sample(s) and {d} feature(s) while a minimum of 2 and 1 is required.")
    dtype = np.result_type(*(np.dtype(one.dtype) for one in found))
    limits, largest = np.finfo(dtype), max(one.largest for one in found)
    if 0 < largest < np.sqrt(float(limits.tiny)) or largest > np.sqrt(float(limits.max)) / max(n, d):
        raise ValueError(f"The largest absolute value in X is {largest:.3g}, and its square does not fit {dtype}.")
    mean = (np.sum([one.sums for one in found], axis=0) / n).astype(dtype)
    return Blocks(cluster, futures, starts, (n, d), dtype, mean)
