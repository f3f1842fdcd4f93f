"""Labels in a file of their own: one for each row of a table, or one for each image of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ldsu.tables.formats.limits import require
from ldsu.tables.formats.matrices import LABEL_NAMES, as_columns, usual_name
from ldsu.tables.formats.npy import load_npy, load_npz, npz_entries
from ldsu.tables.images import FileLabel
from ldsu.tables.table import Table, TableError, count, import_extra

FILE_NAMES, IMAGE_LABEL_NAMES = ("file", "filename", "path", "image"), ("label", "class")


def with_labels(table: Table, path: Path, column: Any) -> Table:
    """The table with the column "label" from another file, `path`, a label a row."""
    pa = import_extra("pyarrow")
    if len(column) != table.n_rows:
        raise TableError(
            f"{path.name} has {len(column):,} labels, but {table.source.name} has {table.n_rows:,} rows. Give one for "
            "each row (a first line is taken as a header, unless it is a number)."
        )
    frame = table.frame if table.frame is not None else pa.table({})
    notes = list(table.notes)
    if "label" in frame.column_names:
        if table.label_name != "label":
            raise TableError(
                f"{table.source.name} has a column 'label' of its own. Rename it, or do without {path.name}."
            )
        frame = frame.drop_columns("label")
        notes.append(f"The labels are those of {path.name}, and not the file's own.")
    if table.is_text:
        column = column.cast(pa.string())
    frame = frame.append_column("label", column) if frame.num_columns else pa.table({"label": column})
    return replace(table, frame=frame, label_name="label", notes=tuple(notes))


def table_labels(table: Table) -> Any:
    """The column of labels of a table: the only one, or the one of a usual name."""
    path, frame = table.source, table.frame
    if frame is None:
        raise TableError(f"{path.name} has no column of labels. Give a CSV, .npy or .npz file with one.")
    return frame.column(_only_label(path, frame.column_names))


def npy_labels(path: Path) -> Any:
    """The array of an .npy file as a column of labels."""
    return _label_array(path, "its array", load_npy(path))


def npz_labels(path: Path) -> Any:
    """An array of an .npz file as a column of labels: the only one of one dimension, or the one of a usual name."""
    entries = {name: entry for name, entry in npz_entries(path).items() if entry.length is not None}
    name = _only_label(path, list(entries))
    require(path, 2 * entries[name].n_bytes)
    return _label_array(path, name, load_npz(path, name))


def _only_label(path: Path, names: Sequence[str]) -> str:
    name = names[0] if len(names) == 1 else usual_name(names, LABEL_NAMES)
    if name is None:
        raise TableError(
            f"{path.name} has {count(len(names), 'column')}, and none is named label. Give a file with one column."
        )
    return name


def _label_array(path: Path, name: str, values: np.ndarray) -> Any:
    columns = as_columns(path, {name: values}, name) if max(values.shape, default=0) == values.size else {}
    if not columns:
        raise TableError(
            f"{path.name}: {name} has the shape {values.shape} and the type {values.dtype}. "
            "Labels are one row of numbers or text."
        )
    return columns[name]


def file_labels(table: Table) -> list[FileLabel]:
    """Labels of images, from a table with a column of files and one of labels."""
    frame = table.frame
    names = [] if frame is None else frame.column_names
    if frame is None or len(names) < 2:
        raise TableError(
            f"{table.source.name} has {count(len(names), 'column')}. Labels of images need two: file and label."
        )
    file, label = usual_name(names, FILE_NAMES), usual_name(names, IMAGE_LABEL_NAMES)
    if file is None or label is None:
        file, label = names[:2]
    files, labels = (frame.column(name).cast("string").to_pylist() for name in (file, label))
    for row, name in enumerate(files):
        if name is None:
            raise TableError(f"{table.place(row, file)}: a file's name is missing. Fill it in, or delete the line.")
    return [FileLabel(table.place(row), name, labels[row]) for row, name in enumerate(files)]
