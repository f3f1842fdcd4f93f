"""What is labelled: points for the model, and what a person sees of each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ldsu.encoders import Encoder
from ldsu.tables import Table, TableError, read_table
from ldsu.tables.columns import Kind, labels_of, require_column
from ldsu.tables.embedded import resolve_encoders
from ldsu.tables.encoder import Scaling, TableEncoder
from ldsu.tables.images import thumbnail

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
        X = np.ascontiguousarray(X, dtype=np.float64)
        table = Table(Path("points"), matrix=X)
        return cls.of_tables(table, table, checksum=hashlib.sha256(X.data).hexdigest())

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
    path: str | Path,
    *,
    show: str | Path | None = None,
    labels: str | Path | None = None,
    encoder: str | Sequence[str] = "auto",
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Samples:
    """Read a table, a folder of images, or embeddings as `ldsu fit` does, with few labels or none.

    Parameters
    ----------
    path : path-like
    show : path-like, optional
        A table or a folder of images to see instead, with one row per row of `path`, such as the texts of embeddings.
    labels : path-like, optional
        Labels in a separate file, as in `read_table`.
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
    pixels = not (Path(path).is_dir() and "image" in encoders)
    table = read_table(path, labels=labels, progress=progress, pixels=pixels)
    shown = table if show is None else read_table(show, progress=progress)
    files = [table] if show is None else [table, shown]
    return Samples.of_tables(table, shown, checksum=_checksum(files), encoders=encoders, **options)


def _checksum(tables: Sequence[Table]) -> str:
    """SHA-256 of the names and contents of the files of tables."""
    digest = hashlib.sha256()
    for table in tables:
        for name in table.row_names or ("",):
            with (table.source / name).open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
