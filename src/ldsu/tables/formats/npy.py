"""NumPy .npy and .npz, and sparse .npz of SciPy -> a matrix, columns or both; pickles are never loaded."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import scipy.sparse

from ldsu.tables.formats.limits import archive_members, require
from ldsu.tables.formats.matrices import (
    LABEL_NAMES,
    ArrayFile,
    Entry,
    as_columns,
    as_matrix,
    dropped_note,
    entry_of,
    find_name,
    format_entries,
    from_arrays,
)
from ldsu.tables.table import Table, TableError, import_extra, readable

MAX_NPY_HEADER = 2**14
NPY_NAME = "its array"
# Codes of `numpy.dtype.kind`.
NUMBERS_AND_TEXT = "biufSU"


def read_npy(path: Path) -> Table:
    """Read one array: a matrix, or a structured array as named columns."""
    values = open_npy(path).load(NPY_NAME)
    if values.dtype.names is None:
        if values.ndim != 2:
            raise TableError(
                f"{path.name} has an array of shape {values.shape}. A table has two dimensions, one row per sample."
            )
        return Table(path, matrix=as_matrix(path, values.shape, values))
    fields = {name: values[name] for name in values.dtype.names if values[name].ndim == values.ndim}
    problem = "no rows, or no field of numbers or text. Use an array with both."
    return _from_columns(path, fields, values.dtype.names, problem)


def _from_columns(path: Path, arrays: dict[str, np.ndarray], names: Iterable[str], problem: str) -> Table:
    """Make a table of columns only, with a note on dropped `names`; raise an error if nothing is left."""
    kept = as_columns(path, arrays, find_name(arrays, LABEL_NAMES))
    if not kept or len(next(iter(kept.values()))) == 0:
        raise TableError(f"{path.name} has {problem}")
    dropped = [name for name in names if name not in kept]
    frame = import_extra("pyarrow").table(kept)
    return Table(path, frame=frame, label_name=find_name(kept, LABEL_NAMES), notes=dropped_note(dropped))


def open_npy(path: Path) -> ArrayFile:
    """The array of an .npy file, which has no name."""
    with readable(path, "an .npy file"), path.open("rb") as file:
        entry = _checked_entry(file, path.stat().st_size)
    return ArrayFile(path, "an .npy file", {NPY_NAME: entry}, lambda name: np.load(path, allow_pickle=False))


def read_npz(path: Path) -> Table:
    """Read an archive of a matrix and columns, of columns only, or of a SciPy sparse matrix."""
    file = open_npz(path)
    entries = file.entries
    # SciPy stores the format as a scalar: arrays of this name are columns.
    if {"format", "shape", "data"} <= entries.keys() and entries["format"].shape == ():
        require(path, 3 * sum(entry.n_bytes for entry in entries.values()))
        with readable(path, "a sparse .npz file"):
            matrix = scipy.sparse.load_npz(path)
        return Table(path, matrix=as_matrix(path, matrix.shape, matrix))
    columns = {name: entry for name, entry in entries.items() if entry.length is not None}
    if len(columns) > 1 and all(len(entry.shape) < 2 for entry in entries.values()):
        return _read_columns(file, list(columns))
    return from_arrays(file)


def _read_columns(file: ArrayFile, names: list[str]) -> Table:
    """Read the one-dimensional arrays of an archive without a matrix."""
    columns = {name: file.entries[name] for name in names}
    if len({entry.length for entry in columns.values()}) > 1:
        raise TableError(
            f"{file.path.name} has no matrix, but columns of different lengths: {format_entries(columns)}. Provide one "
            "entry per row."
        )
    arrays = {name: file.load(name) for name in names}
    if all(values.dtype.kind not in NUMBERS_AND_TEXT for values in arrays.values()):
        arrays = {}
    problem = f"{format_entries(columns)}: no rows, or no column of numbers or text. Use one with both."
    return _from_columns(file.path, arrays, file.entries, problem)


def open_npz(path: Path) -> ArrayFile:
    """The arrays of an archive, which are read when they are asked for; implausible sizes are refused."""
    entries = {}
    with readable(path, "an .npz file"), zipfile.ZipFile(path) as archive:
        members = archive_members(archive)
        if any(member.filename in ("[Content_Types].xml", "mimetype") for member in members):  # of Microsoft, or .ods
            raise TableError(f"{path.name} is an office document. Save its sheet as CSV or .xlsx, and use that.")
        for member in members:
            if not member.filename.endswith(".npy"):
                raise TableError(f"{path.name} is a zip archive with other content, such as {member.filename!r}.")
            with archive.open(member) as file:
                entry = _checked_entry(file, member.file_size)  # type: ignore[arg-type]
            entries[member.filename.removesuffix(".npy")] = entry
    return ArrayFile(path, "an .npz file", entries, lambda name: _load_npz(path, name))


def _load_npz(path: Path, name: str) -> np.ndarray:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[name]


def _checked_entry(file: BinaryIO, size: int) -> Entry:
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
