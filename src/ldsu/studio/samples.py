"""What is labelled: points for the model, and what a person sees of each."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ldsu.encoders import Encoder
from ldsu.tables import Table, TableError, read_table
from ldsu.tables.columns import Kind, labels_of, require_column
from ldsu.tables.embedded import resolve_encoders
from ldsu.tables.encoder import Scaling, TableEncoder
from ldsu.tables.images import thumbnail
from ldsu.tables.table import import_extra, readable

# Columns of a row that are shown, and characters of a value.
MAX_COLUMNS, MAX_TEXT = 60, 5000
MIN_ROWS = 4


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples to label.

    Attributes
    ----------
    table : Table
        The rows as a model reads them.
    shown : Table
        The rows as a person sees them: `table`, or another one with as many rows.
    encoder : TableEncoder
    X : ndarray of shape (n, d)
        The encoded rows.
    label : str
        Name of the label.
    labels : ndarray of object, shape (n,)
        Labels that the file has: strings, None if unlabelled.
    unlabelled : tuple of str
        Values of the label column that mean unlabelled.
    checksum : str
        Of the content of the files.
    """

    table: Table
    shown: Table
    encoder: TableEncoder
    X: np.ndarray
    label: str
    labels: np.ndarray
    unlabelled: tuple[str, ...]
    checksum: str

    @classmethod
    def of_tables(
        cls,
        table: Table,
        shown: Table,
        *,
        checksum: str,
        label: str | None = None,
        unlabelled: Collection[str] | None = None,
        kinds: Mapping[str, Kind] | None = None,
        scaling: Scaling | Literal["auto"] = "auto",
        kernel: str = "rbf",
        encoders: Mapping[str, Encoder] | None = None,
    ) -> Samples:
        """Encode the rows of a table as `prepare` does, but with labels of no or one class, too.

        `label` is a column of either table; by default the one that the file format names, if any. `encoders` are
        those of texts and images, by kind.
        """
        if shown.n_rows != table.n_rows:
            raise TableError(
                f"{shown.source.name} has {shown.n_rows:,} rows, but {table.source.name} has {table.n_rows:,}. Show "
                "the same rows in the same order."
            )
        if table.n_rows < MIN_ROWS:
            raise TableError(f"{table.source.name} has {table.n_rows} rows. Use a table with {MIN_ROWS} or more.")
        label = label or table.label_name
        given, found = np.full(table.n_rows, None, dtype=object), tuple[str, ...]()
        if label is not None:
            source = shown if label in shown.column_names and label not in table.column_names else table
            require_column(source, label)
            given, found = labels_of(source, label, unlabelled)
        of_table = label if label in table.column_names else None
        encoder = TableEncoder.learn(
            table, label=of_table, kinds=kinds, scaling=scaling, kernel=kernel, encoders=encoders
        )
        return cls(table, shown, encoder, encoder.transform(table), label or "label", given, found, checksum)

    @classmethod
    def of_points(cls, X: np.ndarray) -> Samples:
        """Points (n, d) without labels, such as embeddings."""
        return read_samples(X, encoder="none")

    @property
    def has_images(self) -> bool:
        """Whether rows are shown as images."""
        return self.shown.row_names is not None

    def name(self, row: int) -> str:
        """The file of an image, or the number of a row from 1."""
        return self.shown.row_names[row] if self.shown.row_names is not None else f"row {row + 1}"

    def columns(self, row: int) -> list[tuple[str, str]]:
        """Names and values of the columns of a row, as text."""
        frame, matrix = self.shown.frame, self.shown.matrix
        names = [name for name in self.shown.column_names if name != self.label][:MAX_COLUMNS]
        values = [(name, frame[name][row].as_py()) for name in names] if frame is not None else []
        if matrix is not None and not self.has_images:
            numbers = matrix[[row], : MAX_COLUMNS - len(values)]
            dense = numbers.toarray() if hasattr(numbers, "toarray") else numbers
            values += [(f"column {j + 1}", f"{value:.6g}") for j, value in enumerate(dense[0].tolist())]
        return [(name, "" if value is None else str(value)[:MAX_TEXT]) for name, value in values]

    def image(self, row: int) -> bytes:
        """A row as a PNG image."""
        if self.shown.row_names is None:
            raise TableError(f"{self.shown.source.name} has no images.")
        return thumbnail(self.shown.source / self.shown.row_names[row])

    def find(self, text: str) -> np.ndarray:
        """Rows with a text in their name or in a column, in either case."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = [] if self.shown.row_names is None else [pa.array(self.shown.row_names)]
        for name in self.shown.column_names:
            values = self.shown.column(name)
            if pa.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
                columns.append(values)
        found = np.zeros(self.shown.n_rows, dtype=bool)
        for values in columns:
            matches = pc.match_substring(values, text, ignore_case=True)
            found |= matches.fill_null(False).to_numpy(zero_copy_only=False)
        return np.flatnonzero(found)


def read_samples(
    data: Any,
    *,
    show: Any = None,
    labels: str | Path | None = None,
    encoder: str | Sequence[str] = "auto",
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Samples:
    """Read a table, a folder of images, or embeddings as `ldsu fit` does, with few labels or none.

    Parameters
    ----------
    data : path-like, frame, or array-like of shape (n, d)
        A file or a folder; a pandas, polars or pyarrow table, whose row index is not a column; or points, such as
        embeddings.
    show : path-like, frame or array-like, optional
        What to see instead, with one row per row of `data`, such as the texts of embeddings.
    labels : path-like, optional
        Labels in a separate file, as in `read_table`, if `data` is a file or a folder.
    encoder : str or sequence of str, default="auto"
        Pretrained encoders of texts and images, as in `ldsu.tables.prepare`.
    progress : callable, optional
        Called with the number of images read and the total.
    **options
        Of `Samples.of_tables`.

    Returns
    -------
    samples : Samples
    """
    encoders = resolve_encoders(encoder)
    if is_path(data):
        pixels = not (Path(data).is_dir() and "image" in encoders)
        table = read_table(data, labels=labels, progress=progress, pixels=pixels)
    else:
        table = _table_of(data)
    shown = table
    if show is not None:
        shown = read_table(show, progress=progress) if is_path(show) else _table_of(show)
    digest = hashlib.sha256()
    for source, read in [(data, table)] if show is None else [(data, table), (show, shown)]:
        for part in (_files if is_path(source) else _values)(read):
            digest.update(part)
    return Samples.of_tables(table, shown, checksum=digest.hexdigest(), encoders=encoders, **options)


def is_path(data: Any) -> bool:
    """Whether data are a file or a folder, and not in memory."""
    return isinstance(data, (str, Path))


def _table_of(data: Any) -> Table:
    """A frame, as if it was read from an Arrow file, or points (n, d)."""
    if not hasattr(data, "__arrow_c_stream__"):
        X = np.asarray(data)
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise TableError(
                f"Points must be an array of numbers of shape (n, d), not of {X.dtype} and shape {X.shape}. Pass such "
                "an array, a pandas, polars or pyarrow table, or the path of a file."
            )
        return Table(Path("points"), matrix=np.ascontiguousarray(X, dtype=np.float64))
    pa, ipc = import_extra("pyarrow"), import_extra("pyarrow.ipc")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.arrows"
        with readable(Path("The frame"), "a table", "Give each column values of one type."):
            frame = pa.table(data.reset_index(drop=True) if hasattr(data, "reset_index") else data)
            with ipc.new_stream(path, frame.schema) as stream:
                stream.write_table(frame)
        return replace(read_table(path), source=Path("table"))


def _files(table: Table) -> Iterator[bytes]:
    """Names and contents of the files of a table, for a checksum."""
    for name in table.row_names or ("",):
        with (table.source / name).open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        yield f"{name}\0{content}\n".encode(errors="surrogateescape")


def _values(table: Table) -> Iterator[bytes]:
    """Values of a table in memory, for a checksum that does not depend on how they are stored."""
    if table.matrix is not None:
        yield np.asarray(table.matrix).tobytes()
    for name in table.column_names:
        column = table.column(name)
        yield f"{name}\0{column.type}\0".encode()
        yield column.is_valid().to_numpy().tobytes()
        if column.type in ("double", "float", "int64"):
            yield column.fill_null(0).to_numpy().tobytes()
        else:
            yield json.dumps(column.cast("string").to_pylist()).encode()
