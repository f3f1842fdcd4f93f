"""Labels in a separate file: one per row of a table, or one per image of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ldsu.tables.formats.matrices import LABEL_NAMES, ArrayFile, as_columns, find_name
from ldsu.tables.images import FileLabel
from ldsu.tables.table import Table, TableError, count, import_extra

FILE_NAMES, IMAGE_LABEL_NAMES = ("file", "filename", "path", "image"), ("label", "class")


def with_labels(table: Table, path: Path, column: Any) -> Table:
    """The table with the column "label" from another file, `path`, with one label per row."""
    pa = import_extra("pyarrow")
    if len(column) != table.n_rows:
        raise TableError(
            f"{path.name} has {len(column):,} labels, but {table.source.name} has {table.n_rows:,} rows. Provide "
            "one per row (the first line is read as a header, unless it is a number)."
        )
    frame = table.frame if table.frame is not None else pa.table({})
    notes = list(table.notes)
    if "label" in frame.column_names:
        if table.label_name != "label":
            raise TableError(f"{table.source.name} already has a column 'label'. Rename it, or omit {path.name}.")
        frame = frame.drop_columns("label")
        notes.append(f"The labels of {path.name} replace those of {table.source.name}.")
    if table.is_text:
        column = column.cast(pa.string())
    frame = frame.append_column("label", column) if frame.num_columns else pa.table({"label": column})
    return replace(table, frame=frame, label_name="label", notes=tuple(notes))


def table_labels(table: Table) -> Any:
    """The label column of a table: the only column, or the one with a common label name."""
    path, frame = table.source, table.frame
    if frame is None:
        raise TableError(f"{path.name} has no label column. Use a CSV, .npy or .npz file with one.")
    return frame.column(_only_label(path, frame.column_names))


def array_labels(file: ArrayFile) -> Any:
    """An array of a file as a label column: the only one-dimensional one, or the one with a common label name."""
    path, entries = file.path, file.entries
    columns = [name for name, entry in entries.items() if entry.length is not None]
    name = _only_label(path, list(entries) if len(entries) == 1 else columns)
    values = file.load(name)
    found = as_columns(path, {name: values}, name) if max(values.shape, default=0) == values.size else {}
    if not found:
        raise TableError(
            f"{path.name}: {name} has shape {values.shape} and dtype {values.dtype}. "
            "Labels must be a one-dimensional array of numbers or text."
        )
    return found[name]


def _only_label(path: Path, names: Sequence[str]) -> str:
    name = names[0] if len(names) == 1 else find_name(names, LABEL_NAMES)
    if name is None:
        raise TableError(
            f"{path.name} has {count(len(names), 'column')}, and none is named label. Use a file with one column."
        )
    return name


def file_labels(table: Table) -> list[FileLabel]:
    """Labels of images, from a table with a file column and a label column."""
    frame = table.frame
    names = [] if frame is None else frame.column_names
    if frame is None or len(names) < 2:
        raise TableError(
            f"{table.source.name} has {count(len(names), 'column')}. Labels of images need two: file and label."
        )
    file, label = find_name(names, FILE_NAMES), find_name(names, IMAGE_LABEL_NAMES)
    if file is None or label is None:
        file, label = names[:2]
    files, labels = (frame.column(name).cast("string").to_pylist() for name in (file, label))
    for row, name in enumerate(files):
        if name is None:
            raise TableError(f"{table.place(row, file)}: the file name is missing. Fill it in, or delete the line.")
    return [FileLabel(table.place(row), name, labels[row]) for row, name in enumerate(files)]
