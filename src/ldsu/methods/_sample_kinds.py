"""What samples look like without labels: images, embeddings or tables. Defaults depend on it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.special import expit

# Samples have local structure if nearest neighbors are this much nearer than with independent columns, and if less than
# half of the columns are discrete; both change over a range of this width.
STRUCTURE, STRUCTURE_WIDTH = 0.55, 0.02
DISCRETE, DISCRETE_WIDTH, DISCRETE_VALUES = 0.5, 0.03, 10
# Number of continuous columns from which samples look like embeddings, and the width of the change in its logarithm.
EMBEDDING_COLUMNS, EMBEDDING_WIDTH = 200, 0.15
# Images have more columns than this, and the width of the change in its logarithm.
IMAGE_COLUMNS, IMAGE_WIDTH = 40, 0.15
SAMPLE_ROWS = 1000


class SampleKinds(NamedTuple):
    """How much samples look like images, clusters and embeddings; the rest to 1 is a table.

    Attributes
    ----------
    image : float
        Many continuous columns, and near neighbors.
    clustered : float
        Few continuous columns, and near neighbors.
    embedding : float
        Hundreds of continuous columns, without near neighbors.
    """

    image: float = 0.0
    clustered: float = 0.0
    embedding: float = 0.0


def sample_kinds(X: Any) -> SampleKinds:
    """What samples X (n, d) look like."""
    structure = local_structure(X)
    many = float(expit(np.log(X.shape[1] / IMAGE_COLUMNS) / IMAGE_WIDTH))
    return SampleKinds(structure * many, structure * (1 - many), embedding_likeness(X, structure))


def sample_rows(X: Any) -> Any:
    """At most `SAMPLE_ROWS` random rows of X (n, d), to learn what needs no label."""
    rows = np.random.default_rng(0).permutation(X.shape[0])[:SAMPLE_ROWS]
    return X[rows]


def local_structure(X: Any) -> float:
    """How near neighbors are, from 0 to 1, among samples with continuous columns.

    The mean squared distance to the nearest row is compared with that after each column was permuted, which leaves the
    columns as they are and removes what they have in common. Sparse samples (words) count as 0.
    """
    if scipy.sparse.issparse(X):
        return 0.0
    X = X - X.mean(axis=0, dtype=np.float64)
    X = X / (np.sqrt(X.var(axis=0).max(initial=0.0)) or 1.0)
    apart = _nearest_distances(np.random.default_rng(0).permuted(X, axis=0))
    if not apart > 0:
        return 0.0
    nearer = 1 - _nearest_distances(X) / apart
    discrete = 1 - _n_continuous(X) / X.shape[1]
    return float(expit((nearer - STRUCTURE) / STRUCTURE_WIDTH) * expit((DISCRETE - discrete) / DISCRETE_WIDTH))


def embedding_likeness(X: Any, structure: float | None = None) -> float:
    """How much the samples look like embeddings of texts or photographs, from 0 to 1.

    They have hundreds of continuous columns, none of which means anything alone, and less local structure than images.
    Sparse samples count as 0. `structure` is their `local_structure`, if known.
    """
    if scipy.sparse.issparse(X) or X.shape[1] < EMBEDDING_COLUMNS / 2:
        return 0.0
    many = expit(np.log(max(_n_continuous(X), 1) / EMBEDDING_COLUMNS) / EMBEDDING_WIDTH)
    return float(many * (1 - (local_structure(X) if structure is None else structure)))


def _n_continuous(X: np.ndarray) -> int:
    """Number of columns with more than `DISCRETE_VALUES` values."""
    return int(np.count_nonzero((np.diff(np.sort(X, axis=0), axis=0) > 0).sum(axis=0) >= DISCRETE_VALUES))


def _nearest_distances(X: np.ndarray) -> float:
    """Mean squared distance of the rows to the nearest other row."""
    squares = np.einsum("ij,ij->i", X, X)
    D2 = squares[:, None] + squares - 2 * (X @ X.T)
    np.fill_diagonal(D2, np.inf)
    nearest = np.maximum(D2.min(axis=1), 0)
    return float(nearest[np.isfinite(nearest)].sum()) / X.shape[0]
