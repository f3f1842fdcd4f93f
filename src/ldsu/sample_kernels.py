"""Kernels for blocks and for many small sets of samples, dense or sparse, in memory that does not grow with n or d.

The sparse solver keeps samples as a `Frame` of it returns them: for "cosine" rows of one length and for "chi2" square
roots, so that their Euclidean distance is the kernel's own, or close to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.extmath import row_norms

from ldsu._utils.arrays import CPU, Arrays
from ldsu.kernels import chi2_distances, manhattan_distances

# Kernels of inner products; those of the others are functions of a distance, with k(x, x) = 1.
PRODUCT_KERNELS = ("linear", "cosine", "poly")
# Kernels in whose feature space neighbors are those by Euclidean distance of the samples.
EUCLIDEAN_KERNELS = ("rbf", "linear", "cosine")
# Kernels that can be evaluated for samples.
SAMPLE_KERNELS = ("rbf", "laplacian", "chi2", "linear", "cosine", "poly")


@dataclass(frozen=True)
class SampleKernel:
    """A kernel of samples, by its formula: inner product for "cosine", chi2 of squares for "chi2"."""

    name: str
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 1.0

    def cross(self, A: Any, B: Any, arrays: Arrays = CPU) -> Any:
        """Kernel values (a, b) of the rows of A and B, both dense or both sparse, on the device of `arrays`."""
        if scipy.sparse.issparse(A):
            return arrays.put(self._values(self._sparse_pairs(A, B), np))
        xp = arrays.xp
        if self.name in ("chi2", "laplacian"):
            A, B = self._terms_of(A), self._terms_of(B)
            pairs = xp.stack([self._sum_terms(A, row) for row in B]).T
        else:
            pairs = A @ B.T
            if self.name == "rbf":
                pairs = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1)[None, :] - 2 * pairs
        return self._values(pairs, xp)

    def within(self, sets: Any, xp: Any = np) -> Any:
        """Kernel values (b, m, m) within sets of samples (b, m, w)."""
        if self.name in ("chi2", "laplacian"):
            sets = self._terms_of(sets)
            pairs = sets[:, :, :1] + sets[:, None, :, 0]  # of the shape and dtype of the result
            for j in range(sets.shape[1]):
                pairs[:, j, : j + 1] = self._sum_terms(sets[:, : j + 1], sets[:, j : j + 1])
                pairs[:, : j + 1, j] = pairs[:, j, : j + 1]
            return self._values(pairs, xp)
        if self.name == "rbf":  # relative to the last, for accurate small distances
            sets = sets - sets[:, -1:]
        pairs = sets @ xp.swapaxes(sets, 1, 2)
        if self.name == "rbf":
            squares = (sets * sets).sum(axis=2)
            pairs = squares[:, :, None] + squares[:, None, :] - 2 * pairs
        return self._values(pairs, xp)

    def diagonal(self, X: Any) -> Any:
        """k(x, x) of the rows of X, on the CPU."""
        if self.name not in PRODUCT_KERNELS:
            return np.ones(X.shape[0])
        return self._values(row_norms(X, squared=True), np)

    def distances(self, A: Any, B: Any) -> np.ndarray:
        """What orders the rows of B by their distance in feature space from each row of A: shape (a, b), on the CPU."""
        if scipy.sparse.issparse(A):
            pairs = self._sparse_pairs(A, B)
        elif self.name == "chi2":
            pairs = chi2_distances(A * A, B * B)
        elif self.name == "laplacian":
            pairs = manhattan_distances(A, B)
        else:
            pairs = A @ B.T
            if self.name == "rbf":
                pairs = row_norms(A, squared=True)[:, None] + row_norms(B, squared=True) - 2 * pairs
        if self.name not in PRODUCT_KERNELS:
            return np.maximum(pairs, 0)
        return np.maximum(self.diagonal(A)[:, None] + self.diagonal(B) - 2 * self._values(pairs, np), 0)

    def distances_to(self, X: Any, near: np.ndarray, Q: Any) -> np.ndarray:
        """`distances` of each row of Q to some rows of X, `near` (m x l): shape (m, l)."""
        found = np.empty(near.shape)
        if scipy.sparse.issparse(X):
            for i in range(near.shape[0]):
                found[i] = self.distances(X[near[i]], Q[i : i + 1])[:, 0]
            return found
        step = max(1, 2**17 // (near.shape[1] * X.shape[1]))
        for start in range(0, near.shape[0], step):
            at = slice(start, start + step)
            rows, queries = X[near[at]], Q[at]
            if self.name in ("chi2", "laplacian"):
                found[at] = self._sum_terms(self._terms_of(rows), self._terms_of(queries)[:, None])
            elif self.name == "rbf":
                found[at] = ((rows - queries[:, None]) ** 2).sum(axis=2)
            else:
                products, squares = np.einsum("ijd,id->ij", rows, queries), np.einsum("ijd,ijd->ij", rows, rows)
                values, diagonal = self._values(products, np), self._values(squares, np)
                found[at] = np.maximum(self.diagonal(queries)[:, None] + diagonal - 2 * values, 0)
        return found

    def of_products(self, products: Any) -> Any:
        """Kernel values from inner products, for a kernel of these."""
        return self._values(products, np)

    def _values(self, pairs: Any, xp: Any) -> Any:
        """Kernel values from inner products or distances."""
        if self.name == "poly":
            return (self.gamma * pairs + self.coef0) ** self.degree
        return pairs if self.name in PRODUCT_KERNELS else xp.exp(-self.gamma * xp.clip(pairs, 0, None))

    def _terms_of(self, X: Any) -> Any:
        return X * X if self.name == "chi2" else X

    def _sum_terms(self, A: Any, B: Any) -> Any:
        """The distance as a sum over the last axis, by broadcasting."""
        differences = abs(A - B)
        if self.name == "chi2":
            totals = A + B
            differences = differences * differences / (totals + (totals == 0))
        return differences.sum(axis=-1)

    def _sparse_pairs(self, A: Any, B: Any) -> np.ndarray:
        A, B = A.astype(np.float64, copy=False), B.astype(np.float64, copy=False)
        if self.name == "chi2":
            return chi2_distances(A.multiply(A).tocsr(), B.multiply(B).tocsr())
        if self.name == "laplacian":
            return manhattan_distances(A, B)
        products: np.ndarray = (A @ B.T).toarray()
        if self.name == "rbf":
            return row_norms(A, squared=True)[:, None] + row_norms(B, squared=True) - 2 * products
        return products


def row_width(X: Any, rows: int = 1) -> int:
    """Columns that so many rows of X have entries in: all of a dense X, at most so many on average of a sparse one."""
    n, d = X.shape
    return min(d, rows * (X.nnz // max(n, 1) + 1)) if scipy.sparse.issparse(X) else int(d)


def set_batches(X: Any, sets: np.ndarray, width_bytes: int, other_bytes: int, limit: int) -> Iterator[slice]:
    """Slices of sets (n x m) whose rows fit in memory at so many bytes per column, and other bytes, per set."""
    n = sets.shape[0]
    widths = np.full(n, X.shape[1])
    if scipy.sparse.issparse(X):
        widths = np.minimum(np.diff(X.indptr)[sets].sum(axis=1), X.shape[1])
    start, largest = 0, 0
    for i, width in enumerate(widths.tolist()):
        largest = max(largest, width)
        if i > start and (i + 1 - start) * (largest * width_bytes + other_bytes) > limit:
            yield slice(start, i)
            start, largest = i, width
    if n:
        yield slice(start, n)


def take_sets(X: Any, members: Any, arrays: Arrays = CPU, last: Any = None) -> Any:
    """Rows of X in sets, members (b, m), with those of `last` (b x d), if given, appended: dense (b, m or m + 1, w).

    Of a sparse X, columns without entries in a set are left out, and w is the largest number of the others in a set.
    """
    if not scipy.sparse.issparse(X):
        rows = X[members]
        if last is not None:
            rows = arrays.xp.concatenate([arrays.put(rows, arrays.dtype_of(last)), last[:, None]], axis=1)
        return rows
    b, m = members.shape
    rows = X[arrays.get(members).reshape(-1)]
    if last is not None:
        order = np.concatenate([np.arange(b * m).reshape(b, m), b * m + np.arange(b)[:, None]], axis=1)
        rows, m = scipy.sparse.vstack([rows, last], format="csr")[order.reshape(-1)], m + 1
    row = np.repeat(np.arange(b * m), np.diff(rows.indptr))
    present = np.zeros(X.shape[1], dtype=bool)
    present[rows.indices] = True
    column = (np.cumsum(present) - 1)[rows.indices]
    table = np.zeros((b, max(1, int(present.sum()))), dtype=bool)
    table[row // m, column] = True
    place = np.cumsum(table, axis=1, dtype=np.int32)
    sets = np.zeros((b * m, max(1, int(place[:, -1].max(initial=0)))), dtype=rows.dtype)
    sets[row, place[row // m, column] - 1] = rows.data
    return arrays.put(sets.reshape(b, m, -1))


def on(X: Any, arrays: Arrays) -> Any:
    """X on the device; a sparse X unchanged."""
    return X if scipy.sparse.issparse(X) else arrays.put(X)


def rows_of(X: Any, rows: np.ndarray, arrays: Arrays) -> Any:
    """Some rows of X, which is on the device or sparse."""
    return X[rows] if scipy.sparse.issparse(X) else X[arrays.put(rows)]


def in_double(X: Any, arrays: Arrays) -> Any:
    """X in double precision, on the device; a sparse X unchanged."""
    return X.astype(np.float64) if scipy.sparse.issparse(X) else arrays.put(X, "float64")


def for_each_set(
    function: Callable[[slice], None], X: Any, sets: Any, width_bytes: int, other_bytes: int, arrays: Arrays
) -> None:
    """`Arrays.each` over sets of rows of X (n x m), at so many bytes per column, and other bytes, per set."""
    if scipy.sparse.issparse(X):
        arrays.map(function, set_batches(X, arrays.get(sets), width_bytes, other_bytes, arrays.block_bytes))
    else:
        arrays.each(function, sets.shape[0], X.shape[1] * width_bytes + other_bytes)
