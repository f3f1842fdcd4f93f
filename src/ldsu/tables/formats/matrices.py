"""Named arrays of a file, described before they are read -> the matrix and the columns of a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from ldsu._utils.temporary import is_mapped
from ldsu.tables.formats.limits import require, stripped
from ldsu.tables.table import Table, TableError, import_extra

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLES_NAMES = ("x", "fea", "data")
LABEL_NAMES = ("y", "label", "labels", "gnd", "target", "targets", "class")
# The only array of a file that does not name it.
UNNAMED = "its array"
# Integers up to this are exact in float64.
MAX_EXACT_INTEGER = 2**53
MAX_SHOWN = 8


@dataclass(frozen=True)
class Entry:
    """Description of an array of a file before it is read.

    `length` is its number of entries if it can be a column of a table, `n_bytes` its size in memory.
    """

    shape: tuple[int, ...]
    is_number: bool
    length: int | None
    n_bytes: int


def entry_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Entry:
    """Description of a NumPy array: a column if it is one-dimensional, or two-dimensional with one row or column."""
    longest = max(shape, default=1)
    is_column = dtype.names is None and len(shape) in (1, 2) and math.prod(shape) == longest
    n_bytes = math.prod(shape) * max(dtype.itemsize, 8)
    return Entry(shape, dtype.kind in "biuf", longest if is_column else None, n_bytes)


@dataclass(frozen=True)
class ArrayFile:
    """Named arrays of a file: described by their headers, read one by one, or mapped into memory."""

    path: Path
    entries: dict[str, Entry]
    read: Callable[[str], Any]
    mapped: bool = False

    def load(self, name: str, copies: int = 2) -> Any:
        """An array, if so many copies of it fit into memory."""
        if not self.mapped:
            require(self.path, copies * self.entries[name].n_bytes)
        return self.read(name)


def from_arrays(file: ArrayFile) -> Table:
    """Make a table of the arrays of a file: one is the matrix, those with one entry per row are columns."""
    path, entries, load = file.path, file.entries, file.load
    if UNNAMED in entries:
        return _from_array(path, load(UNNAMED, copies=3))
    lengths = {name: entry.length for name, entry in entries.items() if entry.length is not None}
    if len(lengths) > 1 and all(len(entry.shape) < 2 for entry in entries.values()):
        if len(set(lengths.values())) > 1:
            raise TableError(
                f"{path.name} has no matrix, but columns of different lengths: "
                f"{_listed({name: entries[name].shape for name in lengths})}. Provide one entry per row."
            )
        return _from_columns(path, {name: load(name) for name in lengths}, entries)
    samples = _samples_name(path, entries)
    n_rows, n_columns = entries[samples].shape
    lengths.pop(samples, None)
    label = find_name(lengths, LABEL_NAMES)
    notes = []
    is_transposed = label is not None and n_rows != lengths[label] == n_columns
    if is_transposed:
        n_rows, n_columns = n_columns, n_rows
        notes.append(f"{samples} was transposed, because it has one column per label ({n_rows:,}).")
    if label is not None and lengths[label] != n_rows:
        raise TableError(
            f"{path.name}: {label} has {lengths[label]:,} entries, but {samples} has {n_rows:,} rows and {n_columns:,} "
            "columns. Provide one label per row."
        )
    X = load(samples, copies=3)
    if tuple(X.shape) != entries[samples].shape:
        raise ValueError(f"its matrix has shape {X.shape} instead of {entries[samples].shape}")
    matrix = _as_matrix(path, X.T if is_transposed else X)
    frame = as_columns({name: load(name) for name, length in lengths.items() if length == n_rows}, label)
    image_shape = None
    if "image_shape" in entries and entries["image_shape"].length in (2, 3):
        sides = tuple(int(side) for side in np.asarray(load("image_shape")).ravel())
        image_shape = sides if math.prod(sides) == n_columns else None
    used = {samples, *frame} | ({"image_shape"} if image_shape else set())
    return Table(
        path,
        frame=import_extra("pyarrow").table(frame) if frame else None,
        matrix=matrix,
        image_shape=image_shape,
        label_name=label if label in frame else None,
        notes=(*notes, *_dropped(entries, used)),
    )


def _from_array(path: Path, values: Any) -> Table:
    """Make a table of a matrix, or of a structured array."""
    if names := values.dtype.names:
        return _from_columns(path, {name: values[name] for name in names if values[name].ndim == values.ndim}, names)
    if values.ndim != 2:
        raise TableError(
            f"{path.name} has an array of shape {values.shape}. A table has two dimensions, one row per sample."
        )
    return Table(path, matrix=_as_matrix(path, values))


def _from_columns(path: Path, arrays: dict[str, np.ndarray], names: Iterable[str]) -> Table:
    """Make a table of columns only, with a note on dropped `names`; raise an error if nothing is left."""
    columns = as_columns(arrays, find_name(arrays, LABEL_NAMES))
    if not columns or len(next(iter(columns.values()))) == 0:
        found = f": {_listed({name: values.shape for name, values in arrays.items()})}" if arrays else ""
        raise TableError(f"{path.name} has no rows, or no column of numbers or text{found}. Use a file with both.")
    frame = import_extra("pyarrow").table(columns)
    return Table(path, frame=frame, label_name=find_name(columns, LABEL_NAMES), notes=_dropped(names, columns))


def _samples_name(path: Path, entries: dict[str, Entry]) -> str:
    """The array that is the matrix: one with a common name, or the only two-dimensional one."""
    matrices = [name for name, entry in entries.items() if entry.is_number and len(entry.shape) == 2]
    for common in SAMPLES_NAMES:
        for name in matrices:
            if name.lower() == common:
                return name
    wide = [name for name in matrices if entries[name].length is None]
    if len(wide) == 1:
        return wide[0]
    problem = "several matrices, " if wide else "no matrix of numbers, but "
    found = _listed({name: entries[name].shape for name in wide or entries}) or "nothing"
    raise TableError(f"{path.name} contains {problem}{found}. Name the one with one row per sample X.")


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Names and shapes of the first arrays, for a message.

    Examples
    --------
    >>> _listed({"X": (20, 4), "y": (20,)})
    "'X' (20 x 4), 'y' (20)"
    """
    first = itertools.islice(shapes.items(), MAX_SHOWN)
    return ", ".join(f"{name!r} ({' x '.join(map(str, shape))})" for name, shape in first)


def find_name(names: Iterable[str], common: Sequence[str]) -> str | None:
    """The name among `names` that comes first in `common`, ignoring case.

    Examples
    --------
    >>> find_name(["id", "Class", "label"], LABEL_NAMES), find_name(["id"], LABEL_NAMES)
    ('label', None)
    """
    lower = {name.lower(): name for name in names}
    return next((lower[name] for name in common if name in lower), None)


def _dropped(names: Iterable[str], used: Iterable[str]) -> tuple[str, ...]:
    """A note on unused arrays, if any."""
    dropped = [name for name in names if name not in set(used)]
    return (f"Dropped arrays that are not columns of the table: {', '.join(dropped)}.",) if dropped else ()


def _as_matrix(path: Path, X: Any) -> Any:
    """Samples as float64, float32 or uint8, dense or CSR; files mapped into memory unchanged."""
    if scipy.sparse.issparse(X):
        if hasattr(X, "check_format"):  # detect indices that are out of bounds
            X.check_format(full_check=True)
        X = scipy.sparse.csr_array(X)
    if X.dtype.kind not in "biuf":
        raise TableError(f"{path.name} has values of type {X.dtype}, but a matrix must have real numbers.")
    if min(X.shape) == 0:
        raise TableError(f"{path.name} has an empty matrix of shape {X.shape}.")
    if is_mapped(X):  # converted block by block
        return X
    if X.dtype.kind == "b":
        X = X.astype(np.uint8)
    elif X.dtype.kind == "f" and X.dtype.itemsize <= 4:
        X = X.astype(np.float32)
    elif X.dtype != np.uint8:
        X = X.astype(np.float64)
    return X if scipy.sparse.issparse(X) else np.ascontiguousarray(X)


def as_columns(arrays: dict[str, np.ndarray], label: str | None) -> dict[str, Any]:
    """Convert arrays with one entry per row to columns; drop other arrays."""
    columns: dict[str, Any] = {}
    for name, values in arrays.items():
        if (column := _column(values.ravel(), name == label)) is not None:
            column.validate(full=True)  # text may be invalid Unicode
            columns[name] = column
    return columns


def _column(values: np.ndarray, is_label: bool) -> pa.Array | None:
    """Values (n,) as a column, null if NaN or empty; integer-valued labels become integers.

    None if they are neither numbers, text nor times.
    """
    pa = import_extra("pyarrow")
    kind = values.dtype.kind
    if kind == "S":
        values = np.array([value.decode("utf-8", errors="replace") for value in values.tolist()])
    if kind in "SU":
        return stripped(pa.array(values.tolist(), pa.string()))
    if kind == "f":
        values = values.astype(np.float32 if values.dtype.itemsize <= 4 else np.float64)
        known = values[~np.isnan(values)]
        if is_label and np.all(np.abs(known) < MAX_EXACT_INTEGER) and np.all(known == np.trunc(known)):
            return pa.array(np.nan_to_num(values).astype(np.int64), mask=np.isnan(values))
    if kind not in "biufmM":
        return None
    return pa.array(values.astype(values.dtype.newbyteorder("=")), from_pandas=True)
