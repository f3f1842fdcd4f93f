"""Arrays in temporary files, for more samples than fit into memory.

A file has no name once it is open: its space is free again when the array is no longer used, or the process ends in any
way. The system keeps the pages that are in use in memory, and writes the others to the disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from sklearn.utils import gen_batches

from ldsu._utils.arrays import Arrays
from ldsu._utils.memory import GIB

# Smaller arrays are kept in memory.
MIN_FILE_BYTES = 2**20
# Rows of a block when a function is applied to arrays in files.
BLOCK_ROWS = 2**16
# File systems whose files are in memory, and the folder that is used instead.
IN_MEMORY, ON_DISK = ("tmpfs", "ramfs"), "/var/tmp"
REMEDY = "Free disk space, or set TMPDIR to a folder on a larger disk."


class DiskError(OSError):
    """There is not enough free disk space; the message names a remedy."""


def temporary_folder() -> str:
    """The folder of temporary files, `tempfile.gettempdir`; another if that is in memory and not set by TMPDIR."""
    folder = tempfile.gettempdir()
    if os.environ.get("TMPDIR") or not os.path.isdir(ON_DISK) or not os.access(ON_DISK, os.W_OK):
        return folder
    path = Path(folder).resolve()
    parts = [part for part in psutil.disk_partitions(all=True) if path.is_relative_to(part.mountpoint)]
    mounted = max(parts, key=lambda part: len(part.mountpoint), default=None)
    return ON_DISK if mounted is not None and mounted.fstype in IN_MEMORY else folder


def require_disk(needed: int, what: str, folder: str | None = None, remedy: str = REMEDY) -> None:
    """Raise a `DiskError` if `needed` bytes are not free in a folder, by default that of temporary files.

    `what` needs them; do this as a `remedy` (a sentence).
    """
    kind = "" if folder else " of temporary files"
    folder = folder or temporary_folder()
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DiskError(
            f"{what} needs about {needed / GIB:.1f} GiB{kind}, but {free / GIB:.1f} GiB is free in {folder}. {remedy}"
        )


def file_array(shape: tuple[int, ...], dtype: Any, order: str = "C") -> np.ndarray:
    """Array of zeros in a temporary file, whose disk space is reserved; small ones are in memory."""
    dtype = np.dtype(dtype)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if n_bytes < MIN_FILE_BYTES:
        return np.zeros(shape, dtype, order)  # type: ignore[call-overload]
    with tempfile.TemporaryFile(dir=temporary_folder(), prefix="ldsu-") as file:
        if hasattr(os, "posix_fallocate"):  # otherwise a full disk would end the process when a page is written
            try:
                os.posix_fallocate(file.fileno(), 0, n_bytes)
            except OSError as error:
                raise DiskError(
                    f"A temporary file of {n_bytes / GIB:.1f} GiB in {temporary_folder()} cannot be written "
                    f"({error.strerror}). {REMEDY}"
                ) from error
        mapped = np.memmap(file, dtype, "w+", shape=shape, order=order)  # type: ignore[call-overload]
    return np.asarray(mapped)


def is_mapped(X: Any) -> bool:
    """Whether an array, or the one it is a view of, is a file mapped into memory."""
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap):
            return True
        X = X.base
    return False


class FileArrays(Arrays):
    """NumPy with arrays of a row per sample in temporary files, and `columns` right-hand sides solved together."""

    def __init__(self, columns: int) -> None:
        self.columns = columns

    def stored(self, shape: tuple[int, ...], dtype: str, order: str = "C") -> Any:
        """Array of zeros in a temporary file."""
        return file_array(shape, dtype, order)

    def rows(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """``function(*values)``, which treats each row by itself, in blocks of rows."""
        result: Any = None
        for block in gen_batches(values[0].shape[0], BLOCK_ROWS):
            part = function(*(value[block] for value in values))
            if result is None:
                result = file_array((values[0].shape[0], *part.shape[1:]), part.dtype)
            result[block] = part
        return result
