"""NumPy .npy and .npz, and sparse .npz of SciPy -> named arrays; pickles are never loaded."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse

from ldsu.tables.formats.limits import archive_members, is_large
from ldsu.tables.formats.matrices import UNNAMED, ArrayFile, Entry, entry_of
from ldsu.tables.table import TableError

MAX_NPY_HEADER = 2**14


def open_npy(path: Path) -> ArrayFile:
    """The array of an .npy file, which has no name; a large matrix is mapped into memory."""
    with path.open("rb") as file:
        entry = _checked_entry(file, path.stat().st_size)
    mapped = entry.is_number and len(entry.shape) == 2 and entry.length is None and is_large(entry.n_bytes)
    mode: Any = "r" if mapped else None
    return ArrayFile(path, {UNNAMED: entry}, lambda name: np.load(path, mmap_mode=mode, allow_pickle=False), mapped)


def open_npz(path: Path) -> ArrayFile:
    """The arrays of an archive, which are read when they are asked for; implausible sizes are refused."""
    entries = {}
    with zipfile.ZipFile(path) as archive:
        members = archive_members(archive)
        if any(member.filename in ("[Content_Types].xml", "mimetype") for member in members):  # of Microsoft, or .ods
            raise TableError(f"{path.name} is an office document. Save its sheet as CSV or .xlsx, and use that.")
        for member in members:
            if not member.filename.endswith(".npy"):
                raise TableError(f"{path.name} is a zip archive with other content, such as {member.filename!r}.")
            with archive.open(member) as file:
                entries[member.filename.removesuffix(".npy")] = _checked_entry(file, member.file_size)
    # SciPy stores the format as a scalar: arrays of this name are columns.
    if {"format", "shape", "data"} <= entries.keys() and entries["format"].shape == ():
        whole = Entry((), True, None, sum(entry.n_bytes for entry in entries.values()))
        return ArrayFile(path, {UNNAMED: whole}, lambda name: scipy.sparse.load_npz(path))
    return ArrayFile(path, entries, lambda name: _load_npz(path, name))


def _load_npz(path: Path, name: str) -> np.ndarray:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[name]


def _checked_entry(file: IO[bytes], size: int) -> Entry:
    """Description of an array, which must not exceed the available bytes."""
    head = io.BytesIO(file.read(MAX_NPY_HEADER))  # the header may claim to be larger than the memory
    version = np.lib.format.read_magic(head)
    # Version 3 differs from 2 only in the encoding of field names.
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(head)
    if min(shape, default=0) < 0:
        raise ValueError(f"it has the invalid shape {shape!r}")
    if dtype.hasobject:
        raise ValueError("it contains Python objects (a pickle), which could run code and are not read")
    claimed = head.tell() + math.prod(shape) * dtype.itemsize
    if claimed > size:
        raise ValueError(f"its header claims {claimed:,} bytes, but there are {size:,}")
    return entry_of(shape, dtype)
