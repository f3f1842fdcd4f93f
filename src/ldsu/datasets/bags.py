"""Bags of words: ``documents -> words -> dictionary of the training rows -> counts``.

Everything that is learned (quantile bins, the dictionary) is learned from training rows only, so documents stay in
their raw form until a split is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import scipy.sparse

WORDS = 500


class Documents(Protocol):
    """Records that are converted to word counts once the training rows are known."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: np.ndarray, /) -> Documents: ...

    def arrays(self) -> list[np.ndarray]:
        """All data that `counts` uses, for a checksum."""
        ...

    def counts(self, train_rows: np.ndarray) -> tuple[scipy.sparse.csr_array, Sequence[str]]:
        """Word counts (n, v) of all records and the v words."""
        ...


def text_array(texts: Sequence[str]) -> np.ndarray:
    """Texts as an array of bytes, one line per text.

    Examples
    --------
    >>> text_array(["a", "b"])
    array([97, 10, 98], dtype=uint8)
    """
    return np.frombuffer("\n".join(texts).encode(), dtype=np.uint8)


def bag_of_words(
    documents: Documents | Sequence[Sequence[str]], train_rows: np.ndarray, size: int = WORDS
) -> np.ndarray:
    """Count the words of a dictionary that is learned from training rows: shape (n, size).

    Parameters
    ----------
    documents : Events, Notes or sequence of sequences of str
        One per row.
    train_rows : array-like of int
        Rows that bins and dictionary are learned from.
    size : int, default=500
        Number of words in the dictionary.

    Returns
    -------
    counts : ndarray of float64, shape (n, size)
        Columns in decreasing document frequency. If the training rows have fewer words, the last columns are 0.

    Examples
    --------
    >>> bag_of_words([["a", "b", "a"], ["b"], ["c", "b"]], train_rows=[0, 1], size=3)
    array([[1., 2., 0.],
           [1., 0., 0.],
           [1., 0., 0.]])
    """
    counts, _ = word_counts(documents, train_rows, size)
    return counts


def word_counts(
    documents: Documents | Sequence[Sequence[str]], train_rows: np.ndarray, size: int = WORDS
) -> tuple[np.ndarray, list[str]]:
    """`bag_of_words`, and the words of the columns."""
    if size < 1:
        raise ValueError(f"size={size}, but a dictionary needs at least one word.")
    if np.size(train_rows) == 0:
        raise ValueError("train_rows is empty. Learning a dictionary needs at least one row.")
    train_rows = np.arange(len(documents))[np.asarray(train_rows)]
    counts, words = documents.counts(train_rows) if hasattr(documents, "counts") else _count_lists(documents)
    # The words that occur in most training rows; ties are broken by total count, then by position.
    frequency, total = (counts[train_rows] > 0).sum(axis=0), counts[train_rows].sum(axis=0)
    chosen = np.lexsort((-total, -frequency))[: min(size, int(np.count_nonzero(frequency)))]
    bag = np.zeros((len(documents), size))
    bag[:, : chosen.size] = counts[:, chosen].toarray()
    return bag, [words[column] for column in chosen]


def _count_lists(lists: Sequence[Sequence[str]]) -> tuple[scipy.sparse.csr_array, list[str]]:
    """Word counts (n, v) of lists of words, and the v words in order of appearance."""
    words = {word: i for i, word in enumerate(dict.fromkeys(word for words in lists for word in words))}
    columns = np.fromiter((words[word] for document in lists for word in document), dtype=np.int64)
    rows = np.repeat(np.arange(len(lists)), [len(document) for document in lists])
    shape = (len(lists), len(words))
    return scipy.sparse.csr_array((np.ones(columns.size), (rows, columns)), shape=shape), list(words)
