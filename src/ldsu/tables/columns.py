"""Detect the kind of each column of a table: number, time, category, text, or ignored."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

import numpy as np

from ldsu._utils.stages import announce
from ldsu.tables.table import Table, TableError, count, listed

with suppress(ModuleNotFoundError):  # only tables with named columns need it, and `read_table` names the extra
    import pyarrow as pa
    import pyarrow.compute as pc

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
# Units of durations.
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
IDENTIFIER = re.compile(r"(^|[\W_])(id|ids|uuid|guid|key)([\W_]|$)|[a-z]I[Dd]$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Column:
    """A column and its detected kind."""

    name: str
    kind: Kind
    note: str = ""  # reason and details for the user; contains no value of the table except strays
    stray: tuple[str, ...] = ()  # values of a number or time column that are neither and are treated as missing
    levels: tuple[str, ...] = ()  # of a category
    rare: bool = False  # whether rare levels were grouped
    format: str = ""  # of a time: "ISO", "ISO with zone", or a `strptime` format


class Parsed(NamedTuple):
    """Values of k columns as numbers, or as days since 1970."""

    numbers: np.ndarray  # (n, k), NaN if missing or invalid
    bad: np.ndarray  # (n, k), whether a value is invalid
    note: str = ""  # ignored decorations of numbers, or the order of day, month and year
    format: str = ""  # of times, see `Column`
    plain: np.ndarray = np.empty(0)  # (k,), whether all values are missing, or numbers without decorations


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
    columns: list[Column] = []
    for block in column_blocks(table, [name for name in table.column_names if name != label]):
        simple = [name for name in block if name not in kinds and _may_be_plain(table, name)]
        parsed = _parse_numbers(table, simple)
        numbers = parsed.numbers
        plain = parsed.plain & (np.fmin.reduce(numbers, axis=0) < np.fmax.reduce(numbers, axis=0))
        found = {simple[place]: numbers[:, place] for place in np.flatnonzero(plain)}
        for name in block:
            if name in found:
                columns.append(_unless_identifier(Column(name, "number"), found[name]))
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
    names = table.column_names
    if name in names:
        return
    near = get_close_matches(name, names, n=1)
    hint = f"It has {listed(map(repr, names), 12) if names else 'no columns with names'}."
    raise TableError(f"{table.source.name} has no column {name!r}. {f'Did you mean {near[0]!r}?' if near else hint}")


def _detect(table: Table, name: str, kind: Kind | None) -> Column:
    if kind == "ignored":
        return Column(name, "ignored", "as requested")
    values = _values(table, name)
    n, filled = len(values), len(values) - values.null_count
    if filled == 0:
        return Column(name, "ignored", "empty")
    distinct = pc.count_distinct(values, mode="only_valid").as_py()
    is_text = _is_string(values.type)
    if kind in ("number", "time"):
        return _parsed_column(table, name, kind, required=True) or Column(name, "ignored", "empty")
    if kind is None:
        if distinct == 1 and filled == n:
            return Column(name, "ignored", "constant")
        if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
            return Column(name, "time", format=ISO)
        if pa.types.is_time(values.type):
            return Column(name, "ignored", "time of day, not supported")
        if not is_text and not pa.types.is_boolean(values.type):
            return _parsed_column(table, name, "number") or Column(name, "ignored", "empty")
        if is_text and (table.is_text or distinct > FEW_CODES) and _any(pc.match_substring_regex(values, r"\d")):
            found = _parsed_column(table, name, "number") or _parsed_column(table, name, "time")
            if found is not None:
                return found
    texts = _as_levels(values)
    if kind == "text" or (kind is None and is_text and _is_prose(texts, filled, distinct)):
        return Column(name, "text")
    if kind is None and filled >= DISTINCT_ROWS and distinct >= DISTINCT_SHARE * filled:
        return Column(name, "ignored", "nearly all values are distinct")
    return _category_column(table, name, texts)


def _may_be_plain(table: Table, name: str) -> bool:
    """Whether a column needs only a cast to numbers; in typed text, the number of distinct values decides."""
    kind = table.column(name).type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or (table.is_text and _is_string(kind)))


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _any(mask: pa.ChunkedArray) -> bool:
    return bool(pc.any(mask).as_py())


def _is_missing(texts: pa.ChunkedArray, markers: Collection[str]) -> pa.ChunkedArray:
    return pc.is_in(texts, pa.array(list(markers), texts.type))


def _values(table: Table, name: str, missing: Collection[str] = MISSING) -> pa.ChunkedArray:
    """A column with null for markers of missing values; texts are stripped."""
    values = table.column(name)
    if not _is_string(values.type):
        return values
    texts = pc.utf8_trim_whitespace(values)
    return pc.if_else(_is_missing(texts, missing), None, texts)


def _as_levels(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as texts: booleans are written as true and false, whatever the file format writes."""
    texts = values if _is_string(values.type) else pc.cast(values, pa.string())
    small = pc.utf8_lower(texts)
    return pc.if_else(_is_missing(small, ("true", "false")), small, texts)


def _is_prose(texts: pa.ChunkedArray, filled: int, distinct: int) -> bool:
    if distinct <= max(FEW_CODES, filled / 5) and distinct < filled / 2:
        return False
    words = pc.mean(pc.count_substring_regex(texts, r"\pL[\pL\pN]*")).as_py()
    long = words >= 1 and pc.mean(pc.utf8_length(texts)).as_py() >= TEXT_LENGTH
    return bool(words >= TEXT_WORDS or long)


def _category_column(table: Table, name: str, texts: pa.ChunkedArray) -> Column:
    counts = {row["values"]: row["counts"] for row in pc.value_counts(texts.drop_null()).to_pylist()}
    levels = sorted(counts, key=lambda level: (-counts[level], level))
    kept = levels if len(levels) <= FEW_CODES else [level for level in levels if counts[level] > 1][:MAX_LEVELS]
    if not kept:
        raise TableError(
            f"{table.source.name}: none of the {len(levels):,} levels of column {name!r} occurs in two rows. Drop it "
            f"with --ignore {name!r}."
        )
    n_rare = len(levels) - len(kept)
    note = count(len(kept), "level") + (f"; {n_rare} rare levels grouped" if n_rare else "")
    return Column(name, "category", note, levels=tuple(sorted(kept)), rare=n_rare > 0)


def _raise_invalid(table: Table, name: str, row: int, kind: str) -> NoReturn:
    value = table.column(name)[row].as_py()
    text = repr(value if isinstance(value, (str, int, float, bool)) else str(value))
    valid = "a date like 2026-01-31 or 2026-01-31 17:05:00" if kind == "time" else "a valid number"
    raise TableError(
        f"{table.place(row, name)}: {_short(text)} is not {valid}. Fix it, leave it blank, or fit a model "
        f"with --category {name!r} or --ignore {name!r}."
    )


def _short(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:27]}...{text[-1]}"


def _parsed_column(table: Table, name: str, kind: Literal["number", "time"], required: bool = False) -> Column | None:
    """The column as numbers or times, with a few strays treated as missing.

    None if it has no value. If it has too many strays, an error if `required`, else None.
    """
    parsed = _parse_times(table, name) if kind == "time" else _parse_numbers(table, [name])
    numbers, bad = parsed.numbers[:, 0], np.flatnonzero(parsed.bad)
    filled = int(np.isfinite(numbers).sum()) + bad.size
    strays = sorted({str(_value(table, name, int(row))) for row in bad[:1000]})
    is_infinite = bad.size > 0 and not _is_string(table.column(name).type)
    if is_infinite or bad.size > STRAY_SHARE * filled or len(strays) > STRAY_VALUES:
        if required or is_infinite:
            _raise_invalid(table, name, int(bad[0]), kind)
        return None
    if filled == 0:
        return None
    notes = [parsed.note] if parsed.note else []
    if strays:
        shown = ", ".join(_short(repr(stray)) for stray in strays)
        rows = "1 row" if bad.size == 1 else f"{bad.size} rows, the first"
        notes.append(f"{shown} treated as missing ({rows}: {table.place(int(bad[0]))})")
    column = Column(name, kind, "; ".join(notes), stray=tuple(strays), format=parsed.format)
    return column if required or kind == "time" else _unless_identifier(column, numbers)


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


def _parse_numbers(table: Table, names: Sequence[str]) -> Parsed:
    """Columns as numbers; those of one type are converted together, because calls of pyarrow are expensive."""
    shape = (len(names), table.n_rows)
    numbers, bad, plain, note = np.empty(shape), np.zeros(shape, dtype=bool), np.ones(len(names), dtype=bool), ""
    columns = [table.column(name) for name in names]
    for kind in {column.type for column in columns}:
        places = [place for place, column in enumerate(columns) if column.type == kind]
        chunks = [chunk for place in places for chunk in columns[place].chunks]
        try:
            values = pa.concat_arrays(chunks)
        except pa.ArrowInvalid:  # more text than one array can hold
            values = pa.chunked_array(chunks)
        if _is_string(kind):
            parsed, invalid, decorated, note = _parse_texts(values, table.decimal)
            plain[places] = ~decorated.reshape(len(places), -1).any(axis=1)
        else:
            unit = kind.unit if pa.types.is_duration(kind) else "s"
            integers = pc.cast(values, pa.int64()) if pa.types.is_duration(kind) else values
            parsed = _plain(_cast(table, names[places[0]], integers, pa.float64(), "number")) * SECONDS[unit]
            invalid = np.isinf(parsed)
        numbers[places], bad[places] = parsed.reshape(len(places), -1), invalid.reshape(len(places), -1)
    return Parsed(numbers.T, bad.T, note, plain=plain & ~bad.any(axis=1))


def _parse_texts(texts: pa.ChunkedArray, decimal: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Numbers (n,), NaN if missing or invalid; whether values are invalid, or more than a number; and a note."""
    texts = pc.utf8_trim_whitespace(texts)
    plain = pc.match_substring_regex(texts, PLAIN[decimal])
    numbers = _plain(pc.cast(pc.replace_substring(pc.if_else(plain, texts, None), decimal, "."), pa.float64()))
    decorated = _plain(pc.fill_null(pc.and_not(pc.invert(plain), _is_missing(texts, MISSING_NUMBERS)), False))
    bad, note = np.zeros(numbers.size, dtype=bool), ""
    if decorated.any():
        bare, note = _undecorated(texts.filter(pa.array(decorated)), decimal)
        good = pc.match_substring_regex(bare, NUMBER)
        numbers[decorated] = _plain(pc.cast(pc.if_else(good, bare, None), pa.float64()))
        bad[decorated] = ~_plain(good)
    bad |= np.isinf(numbers)  # 1e999
    numbers[bad] = np.nan
    return numbers, bad, decorated, note


def _undecorated(texts: pa.ChunkedArray, decimal: str) -> tuple[pa.ChunkedArray, str]:
    """Numbers without decorations and thousands separators, and a note on what was removed."""
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
    removed = []
    if _any(pc.match_substring_regex(texts, rf"{IN_BRACKETS}|{BEFORE}|{AFTER}")):
        removed.append("currency, percent or bracket signs")
    if _any(is_grouped):
        removed.append("thousands separators")
    return bare, f"{' and '.join(removed)} ignored" if removed else ""


def _cast(table: Table, name: str, values: pa.ChunkedArray, kind: pa.DataType, expected: str) -> pa.ChunkedArray:
    try:
        return pc.cast(values, kind, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"{table.source.name}: column {name!r} has type {values.type}, not a {expected}. Drop it with "
            f"--ignore {name!r}."
        ) from error


def _plain(values: pa.ChunkedArray) -> np.ndarray:
    """A copy as a NumPy array; NaN if missing."""
    return np.array(values.to_numpy(zero_copy_only=False))


def numbers_of(table: Table, columns: Sequence[Column]) -> np.ndarray:
    """Values of number and time columns as float64 (n, k), NaN if missing; times are days since 1970.

    Invalid values other than the strays of a column raise an error.
    """
    numbers = np.empty((table.n_rows, len(columns)))
    times = [[place] for place, column in enumerate(columns) if column.kind == "time"]
    for places in [[place for place, column in enumerate(columns) if column.kind != "time"], *times]:
        group = [columns[place] for place in places]
        if places in times:
            parsed = _parse_times(table, group[0].name, group[0].format)
        else:
            parsed = _parse_numbers(table, [column.name for column in group])
        for place, row in np.argwhere(parsed.bad.T).tolist():
            if _value(table, group[place].name, row) not in group[place].stray:
                _raise_invalid(table, group[place].name, row, group[place].kind)
        numbers[:, places] = parsed.numbers
    return numbers


def _value(table: Table, name: str, row: int) -> Any:
    """A value of a table; texts are stripped."""
    value = table.column(name)[row]
    return (pc.utf8_trim_whitespace(value) if _is_string(value.type) else value).as_py()


def _parse_times(table: Table, name: str, form: str = "") -> Parsed:
    """Times as days since 1970, in a format, or by default in the one that fits most values."""
    values = _values(table, name, MISSING_NUMBERS)
    # A file with time zones can follow one without, and the other way round.
    forms = {"": (ISO, ZONED, *TIME_FORMATS), ISO: (ISO, ZONED), ZONED: (ZONED, ISO)}.get(form, (form,))
    best = Parsed(np.empty(0), np.ones(table.n_rows + 1, dtype=bool))
    for tried in forms:
        if _is_string(values.type):
            moments = _read_times(values, tried)
        else:  # a timestamp is the same instant in every time zone
            kind = pa.timestamp("us", getattr(values.type, "tz", None))
            moments = _cast(table, name, values, kind, "date")
        bad = _plain(pc.and_(pc.is_valid(values), pc.is_null(moments)))
        if bad.sum() < best.bad.sum():
            # Not exact far from 1970: the microseconds of 9999-12-31 have more digits than a double.
            days = _plain(pc.cast(pc.cast(moments, pa.int64()), pa.float64(), safe=False)) / 86_400e6
            order = " ".join(SHOWN_FORMATS[part] for part in re.findall("%[dmY]", tried))
            best = Parsed(days[:, None], bad[:, None], order, tried)
        if not bad.any():
            break
    return best


def _read_times(texts: pa.ChunkedArray, form: str) -> pa.ChunkedArray:
    """Texts as timestamps; null if they do not fit the format."""
    if form not in (ISO, ZONED):
        return pc.strptime(texts, format=form, unit="us", error_is_null=True)
    zone = r"(Z|[+-]\d\d:?\d\d)" if form == ZONED else ""
    looks = pc.match_substring_regex(texts, rf"^\d{{4}}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{{1,9}})?)?{zone})?$")
    texts = pc.if_else(looks, texts, None)
    kind = pa.timestamp("us", "UTC" if form == ZONED else None)
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:  # some are invalid, such as 0000-00-00
        return pa.chunked_array([pa.array([_read_time(text, kind) for text in texts], kind)])


def _read_time(text: pa.Scalar, kind: pa.DataType) -> Any:
    with suppress(pa.ArrowInvalid):
        return pc.cast(text, kind).as_py()
    return None


def texts_of(table: Table, name: str) -> np.ndarray:
    """A column as strings, shape (n,), None if missing; booleans as true and false."""
    return np.array(_as_levels(_values(table, name)).to_pylist(), dtype=object)


def level_codes(table: Table, column: Column) -> np.ndarray:
    """Index of the level of each row in `column.levels`; -1 if missing or unknown."""
    texts = _as_levels(_values(table, column.name))
    return _plain(pc.fill_null(pc.index_in(texts, pa.array(column.levels, texts.type)), -1))


def missing_of(table: Table, name: str) -> int:
    """Number of missing values of a column."""
    return int(_values(table, name).null_count)


def labels_of(table: Table, name: str, unlabelled: Collection[str] | None = None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels of a table as strings (n,), None if unlabelled, and the values that were read as unlabelled.

    Integers are written without a decimal point. By default, markers of missing values are unlabelled; and so is -1, as
    in scikit-learn, in a column of integers with no empty cell, no other negative number and at least two other labels.
    An empty cell is always unlabelled.
    """
    require_column(table, name)
    values = _values(table, name, missing=("",))
    if pa.types.is_floating(values.type):
        texts = [None if v is None or v != v else repr(v) for v in values.to_pylist()]
    else:
        texts = _as_levels(values).to_pylist()
    labels = [None if text is None else re.sub(r"^([+-]?\d+)\.0*$", r"\1", text) for text in texts]
    seen = {label for label in labels if label is not None}
    if unlabelled is None:
        integers = all(re.fullmatch(r"-?\d+", label) for label in seen)
        negative = {label for label in seen if label.startswith("-")}
        marker = integers and negative == {"-1"} and len(seen) > 2 and None not in labels
        unlabelled = (*MISSING, "-1") if marker else MISSING
    found = tuple(label for label in unlabelled if label in seen)
    return np.array([None if label in found else label for label in labels], dtype=object), found
