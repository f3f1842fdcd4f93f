"""Arrays, whichever file they come from -> the matrix and the columns of a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from ldsu.tables.formats.limits import require
from ldsu.tables.table import Table, TableError, import_extra, readable

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLES_NAMES = ("x", "fea", "data")
LABEL_NAMES = ("y", "label", "labels", "gnd", "target", "targets", "class")
# Whole numbers up to here are exact in float64.
LARGEST_WHOLE = 2**53
MOST_SHOWN = 8


@dataclass(frozen=True)
class Entry:
    """What a file says of one of its arrays before it is read.

    `length` is the number of its entries where it can be a column of a table, `n_bytes` what it takes in memory.
    """

    shape: tuple[int, ...]
    is_number: bool
    length: int | None
    n_bytes: int


def entry_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Entry:
    """An array of NumPy's: a column where it has one dimension, or two and one of them is 1."""
    longest = max(shape, default=1)
    is_column = dtype.names is None and len(shape) in (1, 2) and math.prod(shape) == longest
    n_bytes = math.prod(shape) * max(dtype.itemsize, 8)
    return Entry(shape, dtype.kind in "biuf", longest if is_column else None, n_bytes)


def from_arrays(path: Path, entries: dict[str, Entry], load: Callable[[str], Any]) -> Table:
    """Make a table of the arrays of a file: one of them is the matrix, those with an entry for each row are columns."""
    pa = import_extra("pyarrow")
    samples = _samples_name(path, entries)
    n_rows, n_columns = entries[samples].shape
    others = {name: entry.length for name, entry in entries.items() if name != samples and entry.length is not None}
    label = usual_name(others, LABEL_NAMES)
    notes = []
    is_across = label is not None and n_rows != others[label] == n_columns
    if is_across:
        n_rows, n_columns = n_columns, n_rows
        notes.append(f"{samples} was transposed, as a column of it belongs to each of the {n_rows:,} labels.")
    if label is not None and others[label] != n_rows:
        raise TableError(
            f"{path.name}: {label} has {others[label]:,} entries, but {samples} has {n_rows:,} rows and {n_columns:,} "
            "columns. Give as many labels as rows."
        )
    columns = [name for name, length in others.items() if length == n_rows]
    require(path, 3 * entries[samples].n_bytes + 2 * sum(entries[name].n_bytes for name in columns))
    X = load(samples)
    matrix = as_matrix(path, entries[samples].shape, X, is_across)
    frame = as_columns(path, {name: load(name) for name in columns}, label)
    image_shape = None
    if "image_shape" in entries and entries["image_shape"].length in (2, 3):
        sides = tuple(int(side) for side in np.asarray(load("image_shape")).ravel())
        image_shape = sides if math.prod(sides) == n_columns else None
    used = {samples, *frame} | ({"image_shape"} if image_shape else set())
    left_out = [name for name in entries if name not in used]
    return Table(
        path,
        frame=pa.table(frame) if frame else None,
        matrix=matrix,
        image_shape=image_shape,
        label_name=label if label in frame else None,
        notes=(*notes, *left_out_note(left_out)),
    )


def _samples_name(path: Path, entries: dict[str, Entry]) -> str:
    """The array that is the matrix: one of a usual name, or the only one of two dimensions."""
    matrices = [name for name, entry in entries.items() if entry.is_number and len(entry.shape) == 2]
    for usual in SAMPLES_NAMES:
        for name in matrices:
            if name.lower() == usual:
                return name
    wide = [name for name in matrices if entries[name].length is None]
    if len(wide) == 1:
        return wide[0]
    what = "several matrices, " if wide else "no matrix of numbers, but "
    found = shown({name: entries[name] for name in wide or entries}) or "nothing"
    raise TableError(f"{path.name} holds {what}{found}. Name the one with a row for each sample X.")


def shown(entries: dict[str, Entry]) -> str:
    """Names and shapes of the first of these arrays, for a message.

    Examples
    --------
    >>> shown({"X": entry_of((20, 4), np.dtype("f8")), "y": entry_of((20,), np.dtype("i8"))})
    "'X' (20 x 4), 'y' (20)"
    """
    first = itertools.islice(entries.items(), MOST_SHOWN)
    return ", ".join(f"{name!r} ({' x '.join(map(str, entry.shape))})" for name, entry in first)


def usual_name(names: Iterable[str], usual: Sequence[str]) -> str | None:
    """The name among `names` that is the first of the `usual` ones, in capitals or not.

    Examples
    --------
    >>> usual_name(["id", "Class", "label"], LABEL_NAMES), usual_name(["id"], LABEL_NAMES)
    ('label', None)
    """
    lower = {name.lower(): name for name in names}
    return next((lower[name] for name in usual if name in lower), None)


def left_out_note(names: Sequence[str]) -> tuple[str, ...]:
    """A note on the arrays of these names, where there are any."""
    return (f"Left out, as they are no columns of the table: {', '.join(names)}.",) if names else ()


def as_matrix(path: Path, shape: tuple[int, ...], X: Any, is_across: bool = False) -> Any:
    """Samples as float64, float32 or uint8, dense or CSR."""
    with readable(path, "a table"):
        if tuple(X.shape) != tuple(shape):
            raise ValueError(f"its matrix has the shape {X.shape} and not {shape}")
        if scipy.sparse.issparse(X):
            if hasattr(X, "check_format"):  # indices outside of the matrix would be followed
                X.check_format(full_check=True)
            X = scipy.sparse.csr_array(X)
        if X.dtype.kind not in "biuf":
            raise TableError(f"{path.name} holds values of type {X.dtype}, and a matrix must hold real numbers.")
        if min(X.shape) == 0:
            raise TableError(f"{path.name} holds a matrix of shape {X.shape}, which is empty.")
        if X.dtype.kind == "b":
            X = X.astype(np.uint8)
        elif X.dtype.kind == "f" and X.dtype.itemsize <= 4:
            X = X.astype(np.float32)
        elif X.dtype != np.uint8:
            X = X.astype(np.float64)
        if is_across:
            X = X.T
        return scipy.sparse.csr_array(X) if scipy.sparse.issparse(X) else np.ascontiguousarray(X)


def as_columns(path: Path, arrays: dict[str, np.ndarray], label: str | None) -> dict[str, Any]:
    """Arrays with an entry for each row as columns; what cannot be one is left out."""
    columns = {}
    with readable(path, "a table"):
        for name, values in arrays.items():
            column = _column(values.ravel(), name == label)
            if column is not None:
                column.validate(full=True)  # text may be no Unicode
                columns[name] = column
    return columns


def _column(values: np.ndarray, is_label: bool) -> pa.Array | None:
    """Values (n,) as a column, null where they are NaN or empty; labels that are whole become integers.

    None for what is neither a number, a text nor a time.
    """
    pa, compute = import_extra("pyarrow"), import_extra("pyarrow.compute")
    kind = values.dtype.kind
    if kind == "S":
        values = np.array([value.decode("utf-8", errors="replace") for value in values.tolist()])
    if kind in "SU":
        texts = pa.array(np.char.strip(values).tolist(), pa.string())
        return compute.if_else(compute.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    if kind == "f":
        values = values.astype(np.float32 if values.dtype.itemsize <= 4 else np.float64)
        known = values[~np.isnan(values)]
        if is_label and np.all(np.abs(known) < LARGEST_WHOLE) and np.all(known == np.trunc(known)):
            return pa.array(np.nan_to_num(values).astype(np.int64), mask=np.isnan(values))
    if kind not in "biufmM":
        return None
    return pa.array(values.astype(values.dtype.newbyteorder("=")), from_pandas=True)
