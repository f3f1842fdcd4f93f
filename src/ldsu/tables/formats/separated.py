"""CSV, TSV and other separated text -> text columns, with the line number of each row."""

from __future__ import annotations

import csv
import io
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ldsu._utils.memory import require_memory
from ldsu._utils.stages import announce
from ldsu.tables.formats.decoding import SAMPLE_CHARACTERS, TEXT_FACTOR
from ldsu.tables.formats.limits import named, stripped
from ldsu.tables.table import Table, TableError, count, import_extra

if TYPE_CHECKING:
    import pyarrow as pa

# Separated text is read in blocks, and a line must fit into a block.
BLOCK, MAX_LINE = 2**22, 2**26
# pyarrow needs 5 kB per column: a table with more columns than this, and than rows, is read by rows, with at least this
# many rows, or this many values, per array.
WIDE, WIDE_ROWS, WIDE_VALUES = 2**12, 16, 2**22
# Peak memory per column besides that per byte of text (measured with 2,000,000 columns).
COLUMN_BYTES = 1500
SAMPLE_LINES = 200
SEPARATORS = (",", ";", "\t", "|")
SEPARATOR_NAMES = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
# Separators with which a comma can be the decimal separator.
DECIMAL_COMMA = (";", "\t")
NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")
FRACTIONS = {
    ".": r"^[+-]?(\d*|\d{1,3}(,\d{3})+)\.\d+([eE][+-]?\d+)?$",
    ",": r"^[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?$",
}
# Separator line of Excel at the start of a CSV file.
SEPARATOR_LINE = re.compile(rb'"?sep=([,;|\t])"?\r?(?:\n|$)', re.IGNORECASE)
SOMETHING = re.compile(rb"\S")
# Whitespace around values, and quotes around empty values.
BLANKS = re.compile(rb'[ "\t\v\f]')
# Fewer consecutive numbers than this (0, 1) may be a data row; more are default column names of a program.
MIN_NUMBERED = 3
# Sentinel after the last line for `csv`: if a quote is not closed, it becomes part of a value.
END = "\x1e the end \x1e"

Record = tuple[int, list[str]]
Records = Callable[[], Iterator[Record]]


def read_separated(path: Path, data: bytes, notes: list[str], separator: str | None = None) -> Table:
    """Read separated text: all columns as text, null if empty."""
    limit = csv.field_size_limit(sys.maxsize)  # it is global, so it is restored
    try:
        return _read_separated(path, data, notes, separator)
    finally:
        csv.field_size_limit(limit)


def _read_separated(path: Path, data: bytes, notes: list[str], separator: str | None) -> Table:
    declared = SEPARATOR_LINE.match(data)
    if declared and separator is None:
        separator = declared[1].decode()
        data = b"\n" + data[declared.end() :]  # an empty line in its place keeps the line numbers
    n_skipped = 1 if declared else 0
    sample = _sample(path, data)
    n_columns = 1 + max(line.count(sign) for line in sample[:2] for sign in SEPARATORS)
    if n_columns > WIDE:
        require_memory(
            TEXT_FACTOR * len(data) + COLUMN_BYTES * n_columns,
            f"Reading {path.name} with its {n_columns:,} columns",
            "Use fewer columns, or a machine with more memory; if the columns are samples, transpose the table.",
        )
    separator = separator or _separator(path, sample)
    names, n_header_lines, n_header_bytes = _header(path, data, separator, notes, n_skipped)
    if not SOMETHING.search(data, n_header_bytes):
        raise TableError(f"{path.name} has a header, but no rows. Use a file with one row per sample.")
    records = partial(_records, path, data, separator, len(names), n_header_lines)
    lines: Sequence[int] | None
    if len(names) > max(WIDE, data.count(b"\n")):
        frame, lines, values = _parse_wide(records(), names)
    else:
        frame = _parse(data, n_header_bytes, separator, names, records)
        lines = _lines(data, n_header_lines, frame.num_rows, records)
        frame = _cleaned(frame, data)
        values = frame.columns
    decimal = _decimal(values, data) if separator in DECIMAL_COMMA else "."
    if separator != ",":
        notes.append(f"The separator is {SEPARATOR_NAMES[separator]} and the decimal separator '{decimal}'.")
    return Table(path, frame=frame, is_text=True, decimal=decimal, lines=lines, notes=tuple(notes))


def _sample(path: Path, data: bytes) -> list[str]:
    """The first lines of a file: at least two, and more if they are short."""
    lines: list[str] = []
    size = 0
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="")
    while len(lines) < 2 or (len(lines) < SAMPLE_LINES and size < SAMPLE_CHARACTERS):
        line = text.readline(MAX_LINE + 1)
        if len(line) > MAX_LINE:
            raise TableError(_too_long(path, len(lines) + 1))
        if not line:
            break
        lines.append(line)
        size += len(line)
    return lines


def _too_long(path: Path, line: int) -> str:
    return f"{path.name}, line {line} is longer than {MAX_LINE >> 20} MiB. Use a file with one line per sample."


def _separator(path: Path, sample: Sequence[str]) -> str:
    """The separator with which the first lines have as many values as the header, and most values are numbers."""
    best, best_score = None, (0.0, 0.0, 0)
    for separator in SEPARATORS:
        records = [record for record in csv.reader(sample, delimiter=separator) if record]
        # The last record may be truncated within quotes.
        header, *body = records[:-1] if len(records) > 2 else records or [[]]
        if len(header) < 2:
            continue
        agreeing = [record for record in body if len(record) == len(header)]
        values = [value for record in agreeing for value in record]
        numbers = sum(NUMBER.fullmatch(value) is not None for value in values)
        score = (len(agreeing) / len(body) if body else 1.0, numbers / max(1, len(values)), len(header))
        if score > best_score:
            best, best_score = separator, score
    if best is not None:
        return best
    words = [line.split() for line in sample if line.strip()]
    if words and len(words[0]) > 1 and all(NUMBER.fullmatch(word) for line in words for word in line):
        raise TableError(
            f"{path.name} has only blanks between its numbers ({' '.join(words[0][:3])} ...). Separate "
            "them by commas, semicolons, tabs or '|'."
        )
    return ","


def _header(path: Path, data: bytes, separator: str, notes: list[str], n_skipped: int) -> tuple[list[str], int, int]:
    """Column names, and the number of header lines and bytes; if the first line is data, only skipped lines count."""
    n_bytes = 0

    def counted() -> Iterator[str]:
        nonlocal n_bytes
        for line in io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""):
            n_bytes += len(line.encode())
            yield line

    reader = csv.reader(counted(), delimiter=separator)
    cells = next((record for record in reader if record), [])
    names = [cell.strip() for cell in cells]
    if not any(names):
        raise TableError(f"{path.name} has no header. Use a file whose first line names the columns.")
    if _is_data(names):
        notes.append(
            f"The first line is data, since all its values are numbers: the columns are named 0 to {len(names) - 1}."
        )
        return [str(place) for place in range(len(names))], n_skipped, n_skipped
    if any("." in name and NUMBER.fullmatch(name) for name in names):
        notes.append("The first line was read as column names, although it contains numbers.")
    return named(path, names, notes), reader.line_num, n_bytes


def _is_data(names: Sequence[str]) -> bool:
    """Whether a first line has only numbers, other than default column names of a program.

    Examples
    --------
    >>> _is_data(["5.1", "3.5"]), _is_data(["0", "1", "2"]), _is_data(["", "0", "1", "2"]), _is_data(["a", "1"])
    (True, False, False, False)
    """
    if not all(NUMBER.fullmatch(name) for name in names):
        return False
    counts = [[str(place) for place in range(start, start + len(names))] for start in (0, 1)]
    return len(names) < MIN_NUMBERED or list(names) not in counts


def _parse(data: bytes, start: int, separator: str, names: Sequence[str], records: Records) -> pa.Table:
    """All columns as strings, from byte `start`; an error names the invalid line."""
    try:
        return _parse_blocks(data, start, separator, names, BLOCK)
    except import_extra("pyarrow").ArrowInvalid:
        for _ in records():  # raises an error at an invalid record
            pass
    # All records are valid: one is longer than a block.
    return _parse_blocks(data, start, separator, names, MAX_LINE)


def _parse_blocks(data: bytes, start: int, separator: str, names: Sequence[str], block: int) -> pa.Table:
    pa, arrow_csv = import_extra("pyarrow"), import_extra("pyarrow.csv")
    return arrow_csv.read_csv(
        pa.py_buffer(data).slice(start),
        read_options=arrow_csv.ReadOptions(
            column_names=list(names),
            block_size=block,
            # Before pyarrow 23, a thread may deadlock after an invalid line, and block later reads.
            use_threads=int(pa.__version__.partition(".")[0]) >= 23,
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=separator,
            newlines_in_values=b'"' in data,
            # In a file with one column an empty line is a missing value.
            ignore_empty_lines=len(names) > 1,
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _records(path: Path, data: bytes, separator: str, n_columns: int, n_header_lines: int) -> Iterator[Record]:
    """First line and values of each record after the header (slow); an invalid record raises an error."""
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="")
    reader = csv.reader(itertools.chain(text, [END]), delimiter=separator)
    line = 1
    for values in reader:
        if values == [END]:
            return
        if values and values[-1].endswith(END):
            raise TableError(f"{path.name}, line {line}: a quotation mark is not closed. Close it, or delete it.")
        if values and len(values) != n_columns:
            raise TableError(
                f"{path.name}, line {line} has {count(len(values), 'value')}, but the first line has {n_columns:,} "
                f"(the separator is {SEPARATOR_NAMES[separator]}). Fix it, or quote values that contain a separator."
            )
        if sum(map(len, values)) > MAX_LINE:
            raise TableError(_too_long(path, line))
        # In a file with one column an empty line is a missing value.
        if line > n_header_lines and (values or n_columns == 1):
            yield line, values
        line = reader.line_num + 1


def _parse_wide(records: Iterator[Record], names: Sequence[str]) -> tuple[pa.Table, list[int], list[pa.Array]]:
    """Very many columns, as slices of shared arrays; the line of each row; and these arrays."""
    pa = import_extra("pyarrow")
    lines: list[int] = []
    parts = []
    while block := list(itertools.islice(records, max(WIDE_ROWS, WIDE_VALUES // len(names)))):
        lines += [line for line, _ in block]
        announce(f"{len(lines):,} rows of {len(names):,} columns")
        by_column = itertools.chain.from_iterable(zip(*(values for _, values in block), strict=True))
        parts.append((stripped(pa.array(list(by_column), pa.string())), len(block)))
    columns = [
        pa.chunked_array([array.slice(place * height, height) for array, height in parts])
        for place in range(len(names))
    ]
    return pa.Table.from_arrays(columns, names=names), lines, [array for array, _ in parts]


def _lines(data: bytes, n_header_lines: int, n_rows: int, records: Records) -> Sequence[int] | None:
    """Line of each row; counted one by one only if there are empty lines or line ends within quotes."""
    n_lines = data.count(b"\n") + (not data.endswith(b"\n"))
    if n_lines == n_header_lines + n_rows and data.count(b'"') % 2 == 0:
        return range(n_header_lines + 1, n_lines + 1)
    starts = [line for line, _ in records()]
    return starts if len(starts) == n_rows else None


def _cleaned(frame: pa.Table, data: bytes) -> pa.Table:
    """Strip values, and replace empty ones by null."""
    if not data.isascii() or BLANKS.search(data):
        columns = [stripped(column) if _is_padded(column) else column for column in frame.columns]
        frame = import_extra("pyarrow").Table.from_arrays(columns, names=frame.column_names)
    return frame


def _is_padded(column: pa.ChunkedArray) -> bool:
    """Whether a value starts or ends with whitespace, or is empty."""
    compute = import_extra("pyarrow.compute")
    signs = (compute.equal(column, ""), compute.not_equal(compute.utf8_trim_whitespace(column), column))
    return any(compute.any(sign).as_py() for sign in signs)


def _decimal(values: Sequence[pa.Array | pa.ChunkedArray], data: bytes) -> str:
    """The decimal separator with which more values are numbers."""
    if b"," not in data:
        return "."
    compute = import_extra("pyarrow.compute")
    counts = {
        sign: sum(compute.sum(compute.match_substring_regex(column, form)).as_py() or 0 for column in values)
        for sign, form in FRACTIONS.items()
    }
    return "," if counts[","] > counts["."] else "."
