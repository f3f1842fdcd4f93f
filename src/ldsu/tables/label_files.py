"""Labels in a separate file: one per row of a table, or one per image of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ldsu.tables.formats.matrices import LABEL_NAMES, ArrayFile, as_columns, find_name
from ldsu.tables.images import FileLabel
from ldsu.tables.table import Table, TableError, count, import_extra

FILE_NAMES, IMAGE_LABEL_NAMES = ("file", "filename", "path", "image"), ("label", "class")


def with_labels(table: Table, labels: Table) -> Table:
    """The table with a column "label": the only column of the table of labels, or the one with a common label name."""
    pa = import_extra("pyarrow")
    path = labels.source
    if labels.frame is None:
        raise TableError(f"{path.name} has no label column. Use a CSV, .npy, .npz or .mat file with one.")
    column = labels.frame.column(_only_label(path, labels.column_names))
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


def labels_table(file: ArrayFile) -> Table:
    """A table of one column, the labels: the only array of a file, or the column with a common label name."""
    path, entries = file.path, file.entries
    columns = [name for name, entry in entries.items() if entry.length is not None]
    name = _only_label(path, list(entries) if len(entries) == 1 else columns)
    values = file.load(name)
    is_column = isinstance(values, np.ndarray) and max(values.shape, default=0) == values.size
    found = as_columns({name: values}, name) if is_column else {}
    if not found:
        raise TableError(
            f"{path.name}: {name} has shape {values.shape} and dtype {values.dtype}. "
            "Labels must be a one-dimensional array of numbers or text."
        )
    return Table(path, frame=import_extra("pyarrow").table(found))


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
