"""Results that are computed again after a worker died, where others rely on what they were.

Dask computes again what a dead worker had. Sums may be rounded otherwise then, by another processor or where arrays
lie otherwise in memory. What is near stays near, but what is chosen by it may change: the cell of a sample between two,
one of two neighbours that are equally far. Results that fit only the same choice are compared with what they were.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np

from ldsu.dask.cluster import ClusterError


def fingerprint(arrays: Iterable[np.ndarray]) -> int:
    """A number that tells whether arrays have changed."""
    number = 0
    for array in arrays:
        number = zlib.crc32(np.ascontiguousarray(array).data, number)
    return number


def require_same(arrays: Iterable[np.ndarray], before: int) -> None:
    """See that arrays are those of which `before` is the fingerprint.

    Raises
    ------
    ClusterError
        If they are others.
    """
    if fingerprint(arrays) != before:
        raise changed()


def changed() -> ClusterError:
    """What is said where results do not come back as they were."""
    return ClusterError(
        "Samples that were lost with a worker are not the same, or not in the same order, now that they are read "
        "again. Either what X is read or computed from has changed, or workers have different processors. Fit "
        "again, on workers of one kind, from data that stay as they are."
    )
