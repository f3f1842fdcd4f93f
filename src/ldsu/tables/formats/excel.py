"""Excel workbooks (.xlsx) -> the first sheet as text columns, like a CSV file."""

from __future__ import annotations

import csv
import io
import itertools
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

from ldsu._utils.arrays import ignoring_warnings
from ldsu.tables.formats.decoding import TEXT_FACTOR
from ldsu.tables.formats.limits import archive_members, require
from ldsu.tables.formats.separated import read_separated
from ldsu.tables.table import Table, TableError, import_extra

WORKBOOK = "xl/workbook.xml"
# Maximum number of rows of a sheet; larger row numbers in a file would be padded with empty rows endlessly.
MAX_ROWS = 2**20
# Peak memory per byte of XML (measured): of sheets and texts, which openpyxl streams, and of styles and other parts,
# which become objects. Some parts are not read.
STREAMED, STREAMED_FACTOR, WHOLE_FACTOR = ("xl/worksheets/", "xl/sharedStrings"), 12, 150
UNREAD = ("xl/media/", "xl/drawings/", "xl/charts/", "xl/pivotCache/")
# Bytes of a cell and its text.
CELL_BYTES = 128
CHUNK = 2**26
ERRORS = ("#N/A", "#VALUE!", "#DIV/0!", "#REF!", "#NAME?", "#NUM!", "#NULL!")


def is_workbook(path: Path) -> bool:
    """Whether a file is a zip archive with a workbook."""
    try:
        with zipfile.ZipFile(path) as archive:
            return WORKBOOK in archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def read_excel(path: Path) -> Table:
    """Read the first sheet of a workbook: cached values of formulas, dates as dates, errors as missing."""
    openpyxl = import_extra("openpyxl")
    _require_parts(path)
    notes = []
    with path.open("rb") as file, ignoring_warnings():
        workbook = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        if not workbook.worksheets:
            raise TableError(f"{path.name} has no sheet with cells. Use a file with one row per sample.")
        sheet = workbook.worksheets[0]
        sheet.reset_dimensions()  # the dimensions in the file may be wrong
        if len(workbook.sheetnames) > 1:
            notes.append(f"Read the first of {len(workbook.sheetnames)} sheets, {sheet.title!r}.")
        numbers, rows = _rows(path, sheet.iter_rows(max_row=MAX_ROWS, values_only=True))
    if not rows:
        raise TableError(f"{path.name} has an empty first sheet. Use a file with one row per sample.")
    width = max(map(len, rows))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([*row, *[""] * (width - len(row))] for row in rows)
    del rows
    data = text.getvalue().encode("utf-8", "replace")
    require(path, TEXT_FACTOR * len(data))
    table = read_separated(path, data, notes, separator=",")
    return replace(table, lines=numbers[-table.n_rows :])


def _require_parts(path: Path) -> None:
    """Raise an error for parts of implausible size, and check the memory to parse them."""
    with zipfile.ZipFile(path) as archive:
        sizes = {member.filename: member.file_size for member in archive_members(archive)}
    if WORKBOOK not in sizes:
        raise TableError(f"{path.name} contains no Excel workbook of this format. Save its sheet as CSV or .xlsx.")
    require(path, sum(_factor(name) * size for name, size in sizes.items()))


def _factor(name: str) -> int:
    if name.startswith(UNREAD):
        return 0
    return STREAMED_FACTOR if name.startswith(STREAMED) and not name.endswith(".rels") else WHOLE_FACTOR


def _rows(path: Path, cells: Iterable[Sequence[Any]]) -> tuple[list[int], list[list[str]]]:
    """Numbers and texts of the non-empty rows, without trailing empty cells."""
    numbers: list[int] = []
    rows: list[list[str]] = []
    held, checked = 0, 0
    for number, row in enumerate(itertools.islice(cells, MAX_ROWS), 1):
        held += CELL_BYTES * len(row)
        if held > checked:
            require(path, held + CHUNK)
            checked = held + CHUNK
        texts = [_text(value) for value in row]
        while texts and not texts[-1]:
            texts.pop()
        if texts:
            numbers.append(number)
            rows.append(texts)
    return numbers, rows


def _text(value: Any) -> str:
    """A cell as text of a CSV file.

    Examples
    --------
    >>> [_text(value) for value in (None, 5, 0.1, True, datetime(2026, 1, 31), datetime(2026, 1, 31, 17, 5), "#N/A")]
    ['', '5', '0.1', 'true', '2026-01-31', '2026-01-31 17:05:00', '']
    """
    if value is None or value in ERRORS:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return str(value.date() if value.time() == time.min else value)
    if isinstance(value, timedelta):
        return repr(value.total_seconds())
    return str(value).replace("\r\n", "\n").replace("\r", "\n")
