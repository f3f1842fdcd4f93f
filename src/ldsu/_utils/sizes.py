"""What results take: the sizes that Dask uses to schedule tasks and to spill to disk, and what a pickle holds."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import scipy.sparse


class HoldsArrays:
    """A dataclass whose size, for `sys.getsizeof` and hence for Dask, includes its arrays."""

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + bytes_held(self)


class PicklesFields:
    """A dataclass whose pickle holds its fields, not what its properties have cached."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


def bytes_held(value: Any) -> int:
    """Bytes of the arrays in a value, including nested sequences and dataclasses."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if scipy.sparse.issparse(value):
        return sum(bytes_held(getattr(value, name, None)) for name in ("data", "indices", "indptr"))
    if isinstance(value, list | tuple):
        return sum(map(bytes_held, value))
    if is_dataclass(value):
        return sum(bytes_held(getattr(value, field.name)) for field in fields(value))
    return 0
