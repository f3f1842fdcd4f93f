"""Parquet, Feather and Arrow, as a file or a stream -> typed columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldsu._utils.temporary import BLOCK_ROWS
from ldsu.tables.formats.limits import is_large, named, require
from ldsu.tables.table import Table, TableError, import_extra

if TYPE_CHECKING:
    import pyarrow as pa

# Peak memory per byte of file content (measured: benchmarks/readers.py).
ARROW_FACTOR = 5
# Maximum compression ratio: Parquet can exceed it, but no table of real values comes near it.
PARQUET_LIMIT = 2**16
STREAM = b"\xff\xff\xff\xff"


class ColumnFile:
    """Columns of a file that are read when they are asked for, with the attributes of a `pyarrow.Table` used here.

    Parameters
    ----------
    path : Path
    schema : pyarrow.Schema
    num_rows : int
    read : callable
        ``read(place)`` is a `pyarrow.Table` of the column at a place of the schema.
    batches : callable
        ``batches(places)`` iterates over record batches of columns at some places.
    """

    def __init__(
        self,
        path: Path,
        schema: Any,
        num_rows: int,
        read: Callable[[int], Any],
        batches: Callable[[list[int]], Iterator[Any]],
    ) -> None:
        notes: list[str] = []
        names = named(path, schema.names, notes)
        empty = schema.empty_table()
        kept, skipped = _plain_columns(dict(zip(names, empty.columns, strict=True)))
        self.notes = _notes(path, kept, skipped, num_rows, notes)
        self.num_rows, self._read, self._batches = num_rows, read, batches
        self._places = {name: place for place, name in enumerate(names) if name in kept}
        self._added: dict[str, Any] = {}
        self._last: tuple[str, Any] = ("", None)  # the same column is asked for several times in a row

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return [*self._places, *self._added]

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self.column_names)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.num_rows, self.num_columns

    def __getitem__(self, name: str) -> Any:
        """A column."""
        if name in self._added:
            return self._added[name]
        if self._last[0] != name:
            self._last = ("", None)  # not two at a time
            frame = self._read(self._places[name])
            frame.validate(full=True)
            self._last = name, _plain_columns({name: frame.column(0)})[0][name]
        return self._last[1]

    def drop_columns(self, name: str) -> ColumnFile:
        """Without a column."""
        return self._changed({other: place for other, place in self._places.items() if other != name}, self._added)

    def append_column(self, name: str, column: Any) -> ColumnFile:
        """With one more column, in memory."""
        return self._changed(self._places, {**self._added, name: column})

    def _changed(self, places: dict[str, int], added: dict[str, Any]) -> ColumnFile:
        other = copy(self)
        other._places, other._added, other._last = places, added, ("", None)
        return other

    def blocks(self) -> Iterator[Any]:
        """Consecutive rows, as a `pyarrow.Table` each."""
        pa = import_extra("pyarrow")
        start = 0
        for batch in self._batches(list(self._places.values())):
            batch.validate(full=True)
            for at in range(0, batch.num_rows, BLOCK_ROWS):
                part = pa.Table.from_batches([batch.slice(at, BLOCK_ROWS)])
                columns = _plain_columns(dict(zip(self._places, part.columns, strict=True)))[0]
                added = {name: column.slice(start, part.num_rows) for name, column in self._added.items()}
                start += part.num_rows
                yield pa.table({**columns, **added})


def read_parquet(path: Path) -> Table:
    """Read a Parquet file, or a large one when its columns are asked for; refuse implausible sizes."""
    parquet = import_extra("pyarrow.parquet")
    metadata = parquet.read_metadata(path)
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    claimed = max(sum(group.total_byte_size for group in groups), metadata.num_rows * metadata.num_columns * 8)
    if claimed > PARQUET_LIMIT * path.stat().st_size:
        raise ValueError(f"it claims to contain {claimed:,} bytes")
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        schema = file.schema_arrow
        if is_large(claimed) and _is_flat(schema):
            read, batches = partial(_parquet_column, path), partial(_parquet_batches, path)
            columns = ColumnFile(path, schema, metadata.num_rows, read, batches)
            return Table(path, frame=columns, notes=columns.notes)
        require(path, ARROW_FACTOR * claimed)
        frame = file.read()
    frame.validate(full=True)
    return _typed(path, frame)


def _is_flat(schema: Any) -> bool:
    """Whether each column of a Parquet file is one of the schema, not several nested ones."""
    return not any(import_extra("pyarrow.types").is_nested(field.type) for field in schema)


def _parquet_column(path: Path, place: int) -> Any:
    parquet = import_extra("pyarrow.parquet")
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read(columns=[file.schema_arrow.names[place]])


def _parquet_batches(path: Path, places: list[int]) -> Iterator[Any]:
    parquet = import_extra("pyarrow.parquet")
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        names = file.schema_arrow.names
        for batch in file.iter_batches(BLOCK_ROWS, columns=[names[place] for place in places]):
            yield batch.select([names[place] for place in places])


def read_arrow(path: Path) -> Table:
    """Read an Arrow file or stream batch by batch, since compressed ones do not store their uncompressed size.

    The columns of a large file are read when they are asked for.
    """
    pa, ipc = import_extra("pyarrow"), import_extra("pyarrow.ipc")
    n_bytes = path.stat().st_size
    with path.open("rb") as file:
        is_stream = file.read(len(STREAM)) == STREAM
    if is_large(n_bytes) and not is_stream:
        with _arrow_file(path) as reader:
            schema = reader.schema
        num_rows = sum(batch.num_rows for batch in _arrow_batches(path, [0]))
        columns = ColumnFile(path, schema, num_rows, partial(_arrow_column, path), partial(_arrow_batches, path))
        return Table(path, frame=columns, notes=columns.notes)
    require(path, ARROW_FACTOR * n_bytes)
    data = path.read_bytes()
    reader = ipc.open_stream(data) if is_stream else ipc.open_file(data)
    found: list[Any] = []
    for batch in reader if is_stream else map(reader.get_batch, range(reader.num_record_batches)):
        # Offsets outside of their buffers are not detected before they are used.
        batch.validate(full=True)
        found.append(batch)
        n_bytes += batch.get_total_buffer_size()
        require(path, ARROW_FACTOR * n_bytes)
    return _typed(path, pa.Table.from_batches(found, reader.schema))


@contextmanager
def _arrow_file(path: Path, places: list[int] | None = None) -> Iterator[Any]:
    """A reader of some columns of an Arrow file."""
    pa, ipc = import_extra("pyarrow"), import_extra("pyarrow.ipc")
    with pa.memory_map(str(path)) as mapped:
        yield ipc.open_file(mapped, options=ipc.IpcReadOptions(included_fields=sorted(places or [])))


def _arrow_batches(path: Path, places: list[int]) -> Iterator[Any]:
    with _arrow_file(path, places) as reader:
        order = [sorted(places).index(place) for place in places]
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number).select(order)


def _arrow_column(path: Path, place: int) -> Any:
    return import_extra("pyarrow").Table.from_batches(list(_arrow_batches(path, [place])))


def _typed(path: Path, frame: pa.Table) -> Table:
    """Keep columns of plain values: decode dictionaries, unify text types, and drop other columns with a note."""
    notes: list[str] = []
    names = named(path, frame.column_names, notes)
    columns, skipped = _plain_columns(dict(zip(names, frame.columns, strict=True)))
    notes_of_all = _notes(path, columns, skipped, frame.num_rows, notes)
    return Table(path, frame=import_extra("pyarrow").table(columns), notes=notes_of_all)


def _plain_columns(frame: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Columns of plain values, and descriptions of the others."""
    pa, compute, types = import_extra("pyarrow"), import_extra("pyarrow.compute"), import_extra("pyarrow.types")
    columns: dict[str, Any] = {}
    skipped = []
    for name, column in frame.items():
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        elif types.is_run_end_encoded(column.type):
            decoded = [compute.run_end_decode(chunk) for chunk in column.chunks]
            column = pa.chunked_array(decoded, column.type.value_type)
        kind = column.type
        if types.is_null(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            column = column.cast(pa.string())
        elif types.is_float16(kind):
            column = column.cast(pa.float32())
        if name.startswith("__index_level_"):  # row index of pandas
            skipped.append(f"{name!r} (the row index)")
        elif types.is_primitive(column.type) or types.is_string(column.type) or types.is_decimal(column.type):
            columns[name] = column
        else:
            skipped.append(f"{name!r} ({column.type})")
    return columns, skipped


def _notes(path: Path, columns: dict[str, Any], skipped: list[str], n_rows: int, notes: list[str]) -> tuple[str, ...]:
    """Notes with one on skipped columns; an error if nothing is left."""
    if not columns:
        raise TableError(f"{path.name} has no column of numbers or text. Use a file with one column per feature.")
    if n_rows == 0:
        raise TableError(f"{path.name} has columns, but no rows. Use a file with one row per sample.")
    more = [f"Dropped columns that are neither numbers nor text: {', '.join(skipped)}."] if skipped else []
    return (*notes, *more)
