"""Write columns to a file atomically, or to standard output as CSV."""

from __future__ import annotations

import csv
import io
import re
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ldsu._utils.files import replacing
from ldsu.tables.table import Table, import_extra

SUFFIXES = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".npz")


def write_columns(columns: Mapping[str, Any], path: Path | None) -> None:
    r"""Write arrays, lists or pyarrow columns of equal length in the format of the file suffix.

    Without a path, CSV is written to standard output. In .npz files ``/``, ``\\``, ``:`` in names become ``_``.
    """
    suffix = ".csv" if path is None else path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path} has an unknown suffix: use one of {', '.join(SUFFIXES)}.")
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
            # UTF-8 as in files, whatever the locale, to lose no value. File names may contain invalid bytes.
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
        _write_separated(columns, sys.stdout, ",")
        return
    if suffix in (".csv", ".tsv"):
        with replacing(path, "w", encoding="utf-8", newline="") as file:
            _write_separated(columns, file, "," if suffix == ".csv" else "\t")
    elif suffix == ".npz":
        with replacing(path) as file:
            _write_npz(columns, file)
    else:
        _write_arrow(columns, path, suffix)


def write_rows(table: Table, computed: Mapping[str, Any], keep: Sequence[str], path: Path | None) -> None:
    """Write names of rows, computed columns, and kept columns of the table, renamed if their name is taken."""
    names = {"row": range(1, table.n_rows + 1)} if table.row_names is None else {"file": list(table.row_names)}
    columns: dict[str, Any] = {**names, **computed}
    for name in keep:
        new = name
        while new in columns or new in ("row", "file"):
            new = f"table.{new}"
        columns[new] = table.column(name)
    write_columns(columns, path)


def write_array(array: np.ndarray, path: Path) -> None:
    """Write an array as an .npy file."""
    array = np.ascontiguousarray(array)
    with replacing(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)  # np.save does not report a full disk


class _LineFeeds:
    """A file that converts line ends to a line feed."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, line: str) -> None:
        """Write a line that ends in a carriage return and a line feed."""
        self.file.write(line.removesuffix("\r\n") + "\n")


def _write_separated(columns: Mapping[str, Any], file: Any, separator: str) -> None:
    # Before Python 3.13 `csv` quotes a carriage return only if its line terminator has one.
    writer = csv.writer(_LineFeeds(file), delimiter=separator, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows(zip(*(_listed(values) for values in columns.values()), strict=True))


def _write_npz(columns: Mapping[str, Any], file: IO[bytes]) -> None:
    # Not np.savez, which interprets columns named "file" or "allow_pickle" as arguments.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, values in zip(_member_names(columns), columns.values(), strict=True):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _plain(values), allow_pickle=False)


def _member_names(columns: Iterable[str]) -> list[str]:
    """Unique member names without path separators, so that unpacking cannot leave the folder."""
    names: dict[str, None] = {}
    for column in columns:
        name = re.sub(r"[/\\:\0]", "_", column)
        while name in names:
            name += "_"
        names[name] = None
    return list(names)


def _listed(values: Any) -> Any:
    if hasattr(values, "to_pylist"):
        return values.to_pylist()
    return values.tolist() if isinstance(values, np.ndarray) else values


def _plain(values: Any) -> np.ndarray:
    """An array without objects: strings, empty if missing."""
    array = np.asarray(_listed(values))
    return array if array.dtype != object else np.array(["" if v is None else str(v) for v in array], dtype=np.str_)


def _write_arrow(columns: Mapping[str, Any], path: Path, suffix: str) -> None:
    pa = import_extra("pyarrow")
    table = pa.table({n: v if hasattr(v, "to_pylist") else pa.array(_listed(v)) for n, v in columns.items()})
    whole = io.BytesIO()
    if suffix == ".parquet":
        import_extra("pyarrow.parquet").write_table(table, whole)
    else:
        import_extra("pyarrow.feather").write_feather(table, whole)
    with replacing(path) as file:
        file.write(whole.getvalue())
