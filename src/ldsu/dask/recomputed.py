"""Check of results that are recomputed after a worker died, where other results depend on them.

Dask recomputes the results of a dead worker. Rounding may then differ, on another processor or with another memory
layout. Values stay close, but discrete choices based on them may change: the cell of a sample between two cells, or one
of two equidistant neighbors. Results that are valid only for the same choice are compared with the previous ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np

from ldsu.dask.cluster import ClusterError


def fingerprint(arrays: Iterable[np.ndarray]) -> int:
    """Checksum of arrays."""
    number = 0
    for array in arrays:
        number = zlib.crc32(np.ascontiguousarray(array).data, number)
    return number


def require_same(arrays: Iterable[np.ndarray], before: int) -> None:
    """Check that arrays have the fingerprint `before`.

    Raises
    ------
    ClusterError
        If they differ.
    """
    if fingerprint(arrays) != before:
        raise changed_data_error()


def changed_data_error() -> ClusterError:
    """The error for results that are recomputed differently."""
    return ClusterError(
        "Samples that were lost with a worker are not the same, or not in the same order, after reading them again. "
        "Either the source of X has changed, or workers have different processors. Fit again on identical workers, "
        "from data that do not change."
    )
