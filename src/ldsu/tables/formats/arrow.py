"""Parquet, Feather and Arrow, as a file or a stream -> typed columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldsu.tables.formats.limits import named, require
from ldsu.tables.table import Table, TableError, import_extra

if TYPE_CHECKING:
    import pyarrow as pa

# Peak memory per byte of file content (measured: benchmarks/readers.py).
ARROW_FACTOR = 5
# Maximum compression ratio: Parquet can exceed it, but no table of real values comes near it.
PARQUET_LIMIT = 2**16
STREAM = b"\xff\xff\xff\xff"


def read_parquet(path: Path) -> Table:
    """Read a Parquet file; refuse implausible sizes."""
    parquet = import_extra("pyarrow.parquet")
    metadata = parquet.read_metadata(path)
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    claimed = max(sum(group.total_byte_size for group in groups), metadata.num_rows * metadata.num_columns * 8)
    if claimed > PARQUET_LIMIT * path.stat().st_size:
        raise ValueError(f"it claims to contain {claimed:,} bytes")
    require(path, ARROW_FACTOR * claimed)
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        frame = file.read()
    frame.validate(full=True)
    return _typed(path, frame)


def read_arrow(path: Path) -> Table:
    """Read an Arrow file or stream batch by batch, since compressed ones do not store their uncompressed size."""
    pa, ipc = import_extra("pyarrow"), import_extra("pyarrow.ipc")
    n_bytes = path.stat().st_size
    require(path, ARROW_FACTOR * n_bytes)
    data = path.read_bytes()
    is_stream = data.startswith(STREAM)
    reader = ipc.open_stream(data) if is_stream else ipc.open_file(data)
    found: list[Any] = []
    for batch in reader if is_stream else map(reader.get_batch, range(reader.num_record_batches)):
        # Offsets outside of their buffers are not detected before they are used.
        batch.validate(full=True)
        found.append(batch)
        n_bytes += batch.get_total_buffer_size()
        require(path, ARROW_FACTOR * n_bytes)
    return _typed(path, pa.Table.from_batches(found, reader.schema))


def _typed(path: Path, frame: pa.Table) -> Table:
    """Keep columns of plain values: decode dictionaries, unify text types, and drop other columns with a note."""
    pa, compute, types = import_extra("pyarrow"), import_extra("pyarrow.compute"), import_extra("pyarrow.types")
    notes: list[str] = []
    columns: dict[str, Any] = {}
    skipped = []
    for name, column in zip(named(path, frame.column_names, notes), frame.columns, strict=True):
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        elif types.is_run_end_encoded(column.type):
            column = pa.chunked_array([compute.run_end_decode(chunk) for chunk in column.chunks])
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
    if skipped:
        notes.append(f"Dropped columns that are neither numbers nor text: {', '.join(skipped)}.")
    if not columns:
        raise TableError(f"{path.name} has no column of numbers or text. Use a file with one column per feature.")
    if frame.num_rows == 0:
        raise TableError(f"{path.name} has columns, but no rows. Use a file with one row per sample.")
    return Table(path, frame=pa.table(columns), notes=tuple(notes))
