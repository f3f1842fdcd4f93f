"""Detect the kind of each column of a table: number, time, category, text, or ignored."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from ldsu._utils.stages import announce
from ldsu.tables.table import Table, TableError

if TYPE_CHECKING:
    import pyarrow

Kind = Literal["number", "time", "category", "text", "ignored"]
T = TypeVar("T")

# Columns are converted in blocks of up to this many values: a call of pyarrow costs as much as some thousand values.
BLOCK_VALUES = 2**19
# Maximum share and number of values of a number or time column that are neither, and are treated as missing.
STRAY_SHARE, STRAY_VALUES = 0.02, 5
# Minimum mean number of words, or of characters, of a text column; categories have fewer, and repeat.
TEXT_WORDS, TEXT_LENGTH = 3.0, 40.0
# A column with at least this share of distinct values, in at least this many rows, and no text, names the rows.
DISTINCT_SHARE, DISTINCT_ROWS = 0.95, 20
# Maximum number of levels of a category; rarer levels are grouped.
MAX_LEVELS = 50
# Typed text columns with at most this many distinct values are categories even if the values are digits.
FEW_CODES = 20
# Markers of missing values: in all columns, and in number or time columns.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "#N/A")
MISSING_NUMBERS = (*MISSING, "None", "-", "?")
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
# Numbers that only need a cast, by decimal separator.
PLAIN = {sign: rf"^-?(\d+[{sign}]?\d*|[{sign}]\d+)([eE][+-]?\d+)?$" for sign in ".,"}
# Decorations around numbers, and numbers with thousands separators.
BEFORE = r"^([+-]?)(?:€|\$|£|¥|EUR|USD|GBP|CHF)\s*"
AFTER = r"\s*(?:%|€|\$|£|¥|EUR|USD|GBP|CHF)$"
IN_BRACKETS = r"^\((.*)\)$"
GROUPED = {".": (r"^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$", ","), ",": (r"^[+-]?\d{1,3}(\.\d{3})+(,\d*)?$", ".")}
# Date and time formats besides 2026-01-31 17:05:00, which is tried first, with or without a time zone.
ISO, ZONED = "ISO", "ISO with zone"
TIME_FORMATS = tuple(
    f"{date}{clock}"
    for date in ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d")
    for clock in ("", " %H:%M", " %H:%M:%S")
)
SHOWN_FORMATS = {"%d": "day", "%m": "month", "%Y": "year"}
IDENTIFIER = re.compile(r"(^|[\W_])(id|ids|uuid|guid|key)([\W_]|$)|[a-z]I[Dd]$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Column:
    """A column and its detected kind.

    Attributes
    ----------
    name : str
    kind : {"number", "time", "category", "text", "ignored"}
    note : str
        Reason and details for the user. It contains no value of the table except strays.
    stray : tuple of str
        Values of a number or time column that are neither and are treated as missing.
    levels : tuple of str
        Of a category.
    rare : bool
        Whether rare levels were grouped.
    format : str
        Of a time: "ISO", "ISO with zone", or a `strptime` format.
    """

    name: str
    kind: Kind
    note: str = ""
    stray: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    rare: bool = False
    format: str = ""


class Parsed(NamedTuple):
    """Numbers (n,), NaN if missing; rows whose value is not a number; the values; a note on ignored decorations."""

    numbers: np.ndarray
    bad: np.ndarray
    texts: Any
    note: str = ""


def detect_columns(table: Table, *, label: str | None, kinds: Mapping[str, Kind] | None = None) -> list[Column]:
    """Detect the kind of each named column of a table, except the label column.

    Parameters
    ----------
    table : Table
    label : str or None
        The label column.
    kinds : dict, optional
        Kinds that override the detection, by column.
    """
    kinds = kinds or {}
    for name in kinds:
        require_column(table, name)
        if name == label:
            raise ValueError(f"Column {name!r} is the label column: it cannot be {kinds[name]} too.")
    names = [name for name in table.frame.column_names if name != label] if table.frame is not None else []
    columns: list[Column] = []
    for block in column_blocks(table, names):
        numbers, plain = _plain_numbers(table, block)
        varies = np.fmin.reduce(numbers, axis=0) < np.fmax.reduce(numbers, axis=0)
        for place, name in enumerate(block):
            if plain[place] and varies[place] and name not in kinds and _may_be_number(table, name):
                columns.append(_unless_identifier(Column(name, "number"), numbers[:, place]))
            else:
                columns.append(_detect(table, name, kinds.get(name)))
    return columns


def column_blocks(table: Table, columns: Sequence[T]) -> Iterator[Sequence[T]]:
    """Blocks of columns that are converted together; announces progress."""
    size = max(1, BLOCK_VALUES // table.n_rows)
    for start in range(0, len(columns), size):
        if len(columns) > size:
            announce(f"{start:,} of {len(columns):,} columns")
        yield columns[start : start + size]


def require_column(table: Table, name: str) -> None:
    """Raise an error if the table has no such column, with the closest name as a hint."""
    names = [] if table.frame is None else table.frame.column_names
    if name in names:
        return
    near = get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"It has {_format_names(names)}."
    raise TableError(f"{table.source.name} has no column {name!r}. {hint}")


def _format_names(names: list[str], max_shown: int = 12) -> str:
    if not names:
        return "no columns with names"
    more = f" and {len(names) - max_shown:,} more" if len(names) > max_shown else ""
    return ", ".join(repr(name) for name in names[:max_shown]) + more


def _detect(table: Table, name: str, kind: Kind | None) -> Column:
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "ignored":
        return Column(name, "ignored", "as requested")
    values = _values(table, name)
    n, filled = len(values), len(values) - values.null_count
    if filled == 0:
        return Column(name, "ignored", "empty")
    distinct = pc.count_distinct(values, mode="only_valid").as_py()
    if distinct == 1 and filled == n and kind is None:
        return Column(name, "ignored", "constant")
    if kind == "time" or (kind is None and _is_time(values.type)):
        return _required(_time_column(table, name), table, name, "date")
    if kind is None and pa.types.is_time(values.type):
        return Column(name, "ignored", "time of day, not supported")
    is_text = _is_string(values.type)
    if kind == "number" or (kind is None and not is_text and not pa.types.is_boolean(values.type)):
        column = _required(_number_column(table, name), table, name, "number")
        return column if kind else _unless_identifier(column, numbers_of(table, column))
    if kind is None and is_text and (table.is_text or distinct > FEW_CODES) and _has_digits(values):
        found = _number_column(table, name)
        if found is not None:
            return _unless_identifier(found, numbers_of(table, found))
        found = _time_column(table, name)
        if found is not None:
            return found
    texts = _as_text(values)
    if kind == "text" or (kind is None and is_text and _is_prose(texts, filled, distinct)):
        return Column(name, "text")
    if kind is None and filled >= DISTINCT_ROWS and distinct >= DISTINCT_SHARE * filled:
        return Column(name, "ignored", "nearly all values are distinct")
    return _category_column(table, name, texts)


def _short(value: Any) -> str:
    text = repr(value if isinstance(value, (str, int, float, bool)) else str(value))
    return text if len(text) <= 30 else f"{text[:27]}...{text[-1]}"


def _is_string(kind: pyarrow.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _may_be_number(table: Table, name: str) -> bool:
    """Whether a column of plain numbers is a number column: for typed text it depends on the number of values."""
    assert table.frame is not None
    return table.is_text or not _is_string(table.frame[name].type)


def _has_digits(texts: pyarrow.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring_regex(texts, r"\d")).as_py())


def _is_time(kind: pyarrow.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _values(table: Table, name: str, missing: Collection[str] = MISSING) -> pyarrow.ChunkedArray:
    """A column with null for markers of missing values; texts are stripped."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assert table.frame is not None
    values = table.frame[name]
    if not _is_string(values.type):
        return values
    texts = pc.utf8_trim_whitespace(values)
    return pc.if_else(pc.is_in(texts, pa.array(list(missing), texts.type)), None, texts)


def _as_text(values: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return values if _is_string(values.type) else pc.cast(values, pa.string())


def _is_prose(texts: pyarrow.ChunkedArray, filled: int, distinct: int) -> bool:
    import pyarrow.compute as pc

    if distinct <= max(FEW_CODES, filled / 5) and distinct < filled / 2:
        return False
    words = pc.mean(pc.count_substring_regex(texts, r"\pL[\pL\pN]*")).as_py()
    long = words >= 1 and pc.mean(pc.utf8_length(texts)).as_py() >= TEXT_LENGTH
    return bool(words >= TEXT_WORDS or long)


def _category_column(table: Table, name: str, texts: pyarrow.ChunkedArray) -> Column:
    import pyarrow.compute as pc

    found = pc.value_counts(_levels(texts).drop_null()).to_pylist()
    counts = {row["values"]: row["counts"] for row in found}
    ordered = sorted(counts, key=lambda level: (-counts[level], level))
    kept = ordered
    if len(ordered) > FEW_CODES:
        kept = [level for level in ordered if counts[level] > 1][:MAX_LEVELS]
    if not kept:
        raise TableError(
            f"{table.source.name}: none of the {len(ordered):,} levels of column {name!r} occurs in two rows. Drop it "
            f"with --ignore {name!r}."
        )
    note = "1 level" if len(kept) == 1 else f"{len(kept)} levels"
    if len(kept) < len(ordered):
        note += f"; {len(ordered) - len(kept)} rare levels grouped"
    return Column(name, "category", note, levels=tuple(sorted(kept)), rare=len(kept) < len(ordered))


def _levels(texts: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Texts as levels: booleans are written as true and false, whatever the file format writes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    small = pc.utf8_lower(texts)
    return pc.if_else(pc.is_in(small, pa.array(["true", "false"], small.type)), small, texts)


def _required(column: Column | None, table: Table, name: str, expected: str) -> Column:
    """The column, or an error that names the first invalid value."""
    if column is None:
        bad = _parse_numbers(table, name).bad if expected == "number" else _best_times(table, name)[2]
        _raise_invalid(table, name, int(bad[0]), expected)
    assert column is not None
    return column


def _raise_invalid(table: Table, name: str, row: int, expected: str = "number") -> None:
    assert table.frame is not None
    value = table.frame[name][row].as_py()
    valid = "a date like 2026-01-31 or 2026-01-31 17:05:00" if expected == "date" else "a valid number"
    raise TableError(
        f"{table.place(row, name)}: {_short(value)} is not {valid}. Fix it, leave it blank, or fit a model "
        f"with --category {name!r} or --ignore {name!r}."
    )


def _strays(table: Table, name: str, bad: np.ndarray, filled: int, texts: Any) -> tuple[tuple[str, ...], str] | None:
    """The few values of another kind, and a note on them; None if they are too many."""
    values = sorted({str(texts[int(row)].as_py()) for row in bad[:1000]})
    if bad.size > STRAY_SHARE * filled or len(values) > STRAY_VALUES:
        return None
    if not bad.size:
        return (), ""
    shown = ", ".join(_short(value) for value in values)
    rows = "1 row" if bad.size == 1 else f"{bad.size} rows, the first"
    return tuple(values), f"{shown} treated as missing ({rows}: {table.place(int(bad[0]))})"


def _number_column(table: Table, name: str) -> Column | None:
    """The column as a number column, with a few strays treated as missing; None if there are too many."""
    parsed = _parse_numbers(table, name)
    filled = int(np.isfinite(parsed.numbers).sum()) + parsed.bad.size
    strays = _strays(table, name, parsed.bad, filled, parsed.texts)
    if strays is None or filled == 0:
        return None
    stray, note = strays
    return Column(name, "number", "; ".join(filter(None, (parsed.note, note))), stray=stray)


def _unless_identifier(column: Column, numbers: np.ndarray) -> Column:
    """Ignore integers that number the rows, in any order, or that are all distinct and named like an identifier."""
    n = numbers.size
    if n < DISTINCT_ROWS or not np.all(np.isfinite(numbers)) or np.any(numbers != np.floor(numbers)):
        return column
    if np.unique(numbers).size < n:
        return column
    if numbers.max() - numbers.min() == n - 1:
        return Column(column.name, "ignored", f"row numbers from {numbers.min():g} to {numbers.max():g}")
    if IDENTIFIER.search(column.name):
        return Column(column.name, "ignored", "all values are distinct, and the name is that of an identifier")
    return column


def _parse_numbers(table: Table, name: str) -> Parsed:
    import pyarrow as pa
    import pyarrow.compute as pc

    assert table.frame is not None
    no_rows = np.empty(0, dtype=np.int64)
    if not _is_string(table.frame[name].type):
        return Parsed(_typed_numbers(table, name), no_rows, table.frame[name])
    texts = _values(table, name, MISSING_NUMBERS)
    if table.decimal == ".":  # the common case: all numbers are plain
        try:
            numbers = pc.cast(texts, pa.float64())
            if pc.all(pc.is_finite(numbers)).as_py() in (True, None):
                return Parsed(_plain(numbers), no_rows, texts)
        except pa.ArrowInvalid:
            pass
    bare, note = _undecorated(texts, table.decimal)
    good = pc.match_substring_regex(bare, NUMBER)
    bad = np.flatnonzero(_plain(pc.fill_null(pc.invert(good), False)).astype(bool))
    numbers = _plain(pc.cast(pc.if_else(good, bare, None), pa.float64()))
    too_large = np.flatnonzero(np.isinf(numbers))  # 1e999
    numbers[too_large] = np.nan
    return Parsed(numbers, np.union1d(bad, too_large), texts, note)


def _undecorated(texts: pyarrow.ChunkedArray, decimal: str) -> tuple[pyarrow.ChunkedArray, str]:
    """Numbers without decorations and thousands separators, and a note on what was removed."""
    import pyarrow.compute as pc

    bare = pc.replace_substring_regex(texts, IN_BRACKETS, r"-\1")  # negative numbers in accounting
    bare = pc.replace_substring_regex(pc.replace_substring_regex(bare, AFTER, ""), BEFORE, r"\1")
    grouped, sign = GROUPED[decimal]
    is_grouped = pc.match_substring_regex(bare, grouped)
    without = pc.replace_substring(bare, sign, "")
    if decimal == ",":
        # A point that does not separate thousands is invalid here.
        plain = pc.if_else(pc.match_substring(bare, "."), "?", bare)
        bare = pc.replace_substring(pc.if_else(is_grouped, without, plain), ",", ".")
    else:
        bare = pc.if_else(is_grouped, without, bare)
    decorated = pc.any(pc.match_substring_regex(texts, rf"{IN_BRACKETS}|{BEFORE}|{AFTER}")).as_py()
    removed = [
        sign
        for sign, occurs in (
            ("currency, percent or bracket signs", decorated),
            ("thousands separators", pc.any(is_grouped).as_py()),
        )
        if occurs
    ]
    return bare, f"{' and '.join(removed)} ignored" if removed else ""


def _typed_numbers(table: Table, name: str) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    assert table.frame is not None
    values = table.frame[name]
    seconds = 1.0
    if pa.types.is_duration(values.type):
        seconds = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[values.type.unit]
        values = pc.cast(values, pa.int64())
    try:
        numbers = _plain(pc.cast(values, pa.float64(), safe=False)) * seconds
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(f"{table.source.name}: column {name!r} has type {values.type}, not a number.") from error
    infinite = np.flatnonzero(np.isinf(numbers))
    if infinite.size:
        _raise_invalid(table, name, int(infinite[0]))
    return numbers


def _plain(values: pyarrow.ChunkedArray) -> np.ndarray:
    """A copy as a NumPy array; NaN if missing."""
    return np.array(values.to_numpy(zero_copy_only=False))


def numbers_of(table: Table, column: Column) -> np.ndarray:
    """Values of a number or time column as float64 (n,), NaN if missing; unexpected values raise an error."""
    if column.kind == "time":
        return times_of(table, column)
    numbers, bad, texts, _ = _parse_numbers(table, column.name)
    for row in bad.tolist():
        if texts[row].as_py() not in column.stray:
            _raise_invalid(table, column.name, row)
    return numbers


def numbers_together(table: Table, columns: Sequence[Column]) -> np.ndarray:
    """`numbers_of` several columns (n, k)."""
    numbers, plain = _plain_numbers(table, [column.name for column in columns])
    for place, column in enumerate(columns):
        if column.kind == "time" or not plain[place]:
            numbers[:, place] = numbers_of(table, column)
    return numbers


def _plain_numbers(table: Table, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Several columns as float64 (n, k), NaN if missing, and a mask (k,) of those that are plain numbers.

    Times, infinities, decorated numbers and other values are not plain, and are converted column by column.
    """
    assert table.frame is not None
    numbers = np.full((len(names), table.n_rows), np.nan)
    plain = np.zeros(len(names), dtype=bool)
    places: dict[pyarrow.DataType, list[int]] = {}
    columns = [table.frame[name] for name in names]
    for place, column in enumerate(columns):
        places.setdefault(column.type, []).append(place)
    for kind, of_kind in places.items():
        found = _cast_together([columns[place] for place in of_kind], kind, table.decimal)
        if found is not None:
            numbers[of_kind] = found[0].reshape(len(of_kind), -1)
            plain[of_kind] = found[1].reshape(len(of_kind), -1).all(axis=1)
    return numbers.T, plain & ~np.isinf(numbers).any(axis=1)


def _cast_together(
    columns: Sequence[pyarrow.ChunkedArray], kind: pyarrow.DataType, decimal: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Concatenated values of columns as float64, and a mask of those that are numbers or missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_typed = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if len(columns) == 1 or not (is_typed or _is_string(kind)):
        return None
    try:
        values = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    except pa.ArrowInvalid:  # more text than one array can hold
        return None
    if is_typed:
        numbers = _plain(pc.cast(values, pa.float64(), safe=False))
        return numbers, np.ones(numbers.size, dtype=bool)
    texts = pc.utf8_trim_whitespace(values)
    good = pc.match_substring_regex(texts, PLAIN[decimal])
    usable = pc.fill_null(pc.or_(good, pc.is_in(texts, pa.array(MISSING_NUMBERS, texts.type))), True)
    digits = pc.replace_substring(pc.if_else(good, texts, None), decimal, ".")
    return _plain(pc.cast(digits, pa.float64())), usable.to_numpy(zero_copy_only=False)


def _time_column(table: Table, name: str) -> Column | None:
    """The column as a time column, in the first format that fits, with a few strays; None if none fits."""
    values = _values(table, name, MISSING_NUMBERS)
    if _is_time(values.type):
        return Column(name, "time", format=ISO)
    form, days, bad = _best_times(table, name)
    filled = int(np.isfinite(days).sum()) + bad.size
    strays = _strays(table, name, bad, filled, values)
    if strays is None or filled == 0:
        return None
    stray, note = strays
    order = " ".join(SHOWN_FORMATS.get(part, "") for part in re.findall("%[dmY]", form))
    return Column(name, "time", "; ".join(filter(None, (order, note))), stray=stray, format=form)


def _best_times(table: Table, name: str) -> tuple[str, np.ndarray, np.ndarray]:
    """The format that fits most values, the days since 1970, and the rows that do not fit."""
    values = _values(table, name, MISSING_NUMBERS)
    best: tuple[str, np.ndarray, np.ndarray] | None = None
    for form in (ISO, ZONED, *TIME_FORMATS):
        days, bad = _days(values, form)
        if best is None or bad.size < best[2].size:
            best = (form, days, bad)
        if not bad.size:
            break
    assert best is not None
    return best


def _days(values: pyarrow.ChunkedArray, form: str) -> tuple[np.ndarray, np.ndarray]:
    """Days since 1970 (n,), NaN if missing, and the rows that do not fit a format."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _is_string(values.type):  # a timestamp is the same instant in every time zone
        moments = pc.cast(values, pa.timestamp("us", getattr(values.type, "tz", None)), safe=False)
    elif form in (ISO, ZONED):
        pattern = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?" + (
            r"(Z|[+-]\d\d:?\d\d))?$" if form == ZONED else r")?$"
        )
        looks = pc.match_substring_regex(values, pattern)
        kind = pa.timestamp("us", "UTC" if form == ZONED else None)
        moments = _cast_times(pc.if_else(looks, values, None), kind)
    else:
        moments = pc.strptime(values, format=form, unit="us", error_is_null=True)
    bad = np.flatnonzero(_plain(pc.and_(pc.is_valid(values), pc.is_null(moments))).astype(bool))
    # Not exact far from 1970: the microseconds of 9999-12-31 have more digits than a double.
    return _plain(pc.cast(pc.cast(moments, pa.int64()), pa.float64(), safe=False)) / 86_400e6, bad


def _cast_times(texts: pyarrow.ChunkedArray, kind: pyarrow.DataType) -> pyarrow.ChunkedArray:
    """Convert texts that look like times; null if invalid, such as 0000-00-00."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        found = []
        for text in texts.to_pylist():
            try:
                found.append(pc.cast(pa.scalar(text, pa.string()), kind).as_py())
            except pa.ArrowInvalid:
                found.append(None)
        return pa.chunked_array([pa.array(found, kind)])


def times_of(table: Table, column: Column) -> np.ndarray:
    """A time column as days since 1970, float64 (n,), NaN if missing."""
    values = _values(table, column.name, MISSING_NUMBERS)
    days, bad = _days(values, column.format)
    if bad.size and _is_string(values.type) and column.format in (ISO, ZONED):
        # The same format with or without a time zone.
        other, still = _days(values, ZONED if column.format == ISO else ISO)
        days, bad = (other, still) if still.size < bad.size else (days, bad)
    for row in bad.tolist():
        if values[row].as_py() not in column.stray:
            _raise_invalid(table, column.name, row, "date")
    return days


def texts_of(table: Table, name: str) -> np.ndarray:
    """A column as strings, shape (n,), None if missing; booleans as true and false."""
    return np.array(_levels(_as_text(_values(table, name))).to_pylist(), dtype=object)


def missing_of(table: Table, name: str) -> int:
    """Number of missing values of a column."""
    return int(_values(table, name).null_count)


def labels_of(table: Table, name: str, unlabelled: Collection[str] | None = None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels of a table as strings (n,), None if unlabelled, and the values that were read as unlabelled.

    Integers are written without a decimal point. By default, markers of missing values are unlabelled; and so is -1, as
    in scikit-learn, in a column of integers with no empty cell, no other negative number and at least two other labels.
    An empty cell is always unlabelled.
    """
    import pyarrow as pa

    require_column(table, name)
    assert table.frame is not None
    values = _values(table, name, missing=("",))
    if pa.types.is_floating(values.type):
        texts = [None if v is None or v != v else repr(v) for v in values.to_pylist()]
    else:
        texts = _levels(_as_text(values)).to_pylist()
    labels = np.array([text if text is None else _whole(text) for text in texts], dtype=object)
    seen = {label for label in labels if label is not None}
    if unlabelled is None:
        numbers = {label for label in seen if re.fullmatch(r"-?\d+", label)}
        negative = {label for label in numbers if label.startswith("-")}
        marker = negative == {"-1"} and numbers == seen and len(seen) > 2 and not any(label is None for label in labels)
        unlabelled = (*(label for label in MISSING if label in seen), *(("-1",) if marker else ()))
    found = tuple(label for label in unlabelled if label in seen)
    labels[np.isin(labels.astype(str), found) & np.array([label is not None for label in labels])] = None
    return labels, found


def _whole(label: str) -> str:
    """Remove the decimal point of an integer label."""
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", label)


def lacking_columns(table: Table, names: Iterable[str]) -> list[str]:
    """Columns among `names` that a table lacks."""
    existing = set() if table.frame is None else set(table.frame.column_names)
    return [name for name in names if name not in existing]
