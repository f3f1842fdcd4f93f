"""Equal samples: a label of one is a label of all."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse


def first_copies(X: Any) -> np.ndarray:
    """The first row (n,) of X (n, d) that equals each row.

    Examples
    --------
    >>> first_copies(np.array([[1.0], [2.0], [1.0]])).tolist()
    [0, 1, 0]
    """
    if scipy.sparse.issparse(X):
        X = scipy.sparse.csr_array(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        bounds = zip(X.indptr[:-1], X.indptr[1:], strict=True)
        rows = (X.indices[start:stop].tobytes() + X.data[start:stop].tobytes() for start, stop in bounds)
    else:
        rows = (row.tobytes() for row in X + 0.0)  # -0.0 becomes 0.0
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(blake2b(row, digest_size=16).digest(), i) for i, row in enumerate(rows)])


def suggestible(first: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Mask (n,) of one row of each kind without a taken copy; if there is none, of all rows that are not taken.

    Parameters
    ----------
    first : ndarray of int, shape (n,)
        As of `first_copies`.
    taken : ndarray of bool, shape (n,)
        Rows that are labelled or excluded.
    """
    kinds = np.zeros(first.size, dtype=bool)
    kinds[first[taken]] = True
    new = (first == np.arange(first.size)) & ~kinds
    return new if new.any() else ~taken
