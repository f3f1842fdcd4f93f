"""What each column of a table is: a number, a time, a category, words, or nothing to learn from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ldsu.tables.table import Table, TableError

if TYPE_CHECKING:
    import pyarrow

Kind = Literal["number", "time", "category", "text", "ignored"]

# Of a column of numbers, so many values may be something else and are taken for missing.
STRAY_SHARE, STRAY_VALUES = 0.02, 5
# A text has at least so many words, or signs, on average; a category has fewer, and repeats itself.
TEXT_WORDS, TEXT_LENGTH = 3.0, 40.0
# A column of which nearly every row has its own value, and no words, names the rows.
OWN_VALUE_SHARE, OWN_VALUE_ROWS = 0.95, 20
# Levels of a category beyond these, the rarer ones, are taken together.
MOST_LEVELS = 50
# Typed columns of text with so few different values are categories even where the values are digits.
FEW_CODES = 20
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


@dataclass(frozen=True)
class Column:
    """A column and what was made of it.

    Attributes
    ----------
    name : str
    kind : {"number", "time", "category", "text", "ignored"}
    note : str
        Why, and what is particular, for the user to read.
    stray : tuple of str
        Values of a number column that are no numbers and count as missing.
    levels : tuple of str
        Of a category.
    """

    name: str
    kind: Kind
    note: str = ""
    stray: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()


def detect_columns(table: Table, *, label: str | None, given: Mapping[str, Kind] | None = None) -> list[Column]:
    """Say what each named column of a table is, its label aside.

    Parameters
    ----------
    table : Table
    label : str or None
        The column of labels.
    given : dict, optional
        Kinds that the user knows better, by column.
    """
    given = given or {}
    for name in given:
        require_column(table, name)
    columns = []
    for name in table.frame.column_names if table.frame is not None else []:
        if name != label:
            columns.append(_detect(table, name, given.get(name)))
    return columns


def require_column(table: Table, name: str) -> None:
    """Refuse a name that is no column of the table, with the nearest one there is."""
    names = [] if table.frame is None else table.frame.column_names
    if name in names:
        return
    near = get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"It has {_listed(names)}."
    raise TableError(f"{table.source.name} has no column {name!r}. {hint}")


def _listed(names: list[str], most: int = 12) -> str:
    if not names:
        return "no columns with names"
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


def _detect(table: Table, name: str, given: Kind | None) -> Column:
    import pyarrow as pa
    import pyarrow.compute as pc

    assert table.frame is not None
    values = table.frame[name]
    n, filled = len(values), len(values) - values.null_count
    if given == "ignored":
        return Column(name, "ignored", "as asked")
    if filled == 0:
        return Column(name, "ignored", "empty")
    distinct = pc.count_distinct(values, mode="only_valid").as_py()
    if distinct == 1 and filled == n and given is None:
        return Column(name, "ignored", f"always {_short(values[0].as_py())}")
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if given == "time" or (given is None and _is_time(values.type)):
        times_of(table, name)
        return Column(name, "time")
    if given == "number" or (given is None and not is_text and not pa.types.is_boolean(values.type)):
        column = _number_column(table, name, strict=True)
        assert column is not None
        return column if given else _unless_row_number(column, table)
    if given is None and is_text and (table.is_text or distinct > FEW_CODES):
        found = _number_column(table, name, strict=False)
        if found is not None:
            return _unless_row_number(found, table)
        if _parses_as_time(values):
            return Column(name, "time")
    texts = _as_text(values)
    if given == "text" or (given is None and is_text and _is_prose(texts, filled, distinct)):
        return Column(name, "text")
    if given is None and filled >= OWN_VALUE_ROWS and distinct >= OWN_VALUE_SHARE * filled:
        return Column(name, "ignored", f"nearly every row has its own value, such as {_short(texts.drop_null()[0])}")
    return _category_column(name, texts)


def _short(value: Any) -> str:
    text = repr(value if isinstance(value, (str, int, float, bool)) else str(value))
    return text if len(text) <= 30 else f"{text[:27]}...{text[-1]}"


def _is_time(kind: pyarrow.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _parses_as_time(values: pyarrow.ChunkedArray) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.cast(values, pa.timestamp("us"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _as_text(values: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.utf8_trim_whitespace(pc.cast(values, pa.string()))


def _is_prose(texts: pyarrow.ChunkedArray, filled: int, distinct: int) -> bool:
    import pyarrow.compute as pc

    if distinct <= max(FEW_CODES, filled / 5) and distinct < filled / 2:
        return False
    words = pc.mean(pc.count_substring_regex(texts, r"\w+")).as_py()
    return bool(words >= TEXT_WORDS or pc.mean(pc.utf8_length(texts)).as_py() >= TEXT_LENGTH)


def _category_column(name: str, texts: pyarrow.ChunkedArray) -> Column:
    import pyarrow.compute as pc

    counts = {row["values"]: row["counts"] for row in pc.value_counts(texts.drop_null()).to_pylist()}
    ordered = sorted(counts, key=lambda level: (-counts[level], level))
    kept = ordered
    if len(ordered) > FEW_CODES:
        kept = [level for level in ordered if counts[level] > 1][:MOST_LEVELS]
    note = "1 level" if len(kept) == 1 else f"{len(kept)} levels"
    if len(kept) < len(ordered):
        note += f"; {len(ordered) - len(kept)} rare ones taken together"
    return Column(name, "category", note, levels=tuple(sorted(kept)))


def _number_column(table: Table, name: str, *, strict: bool) -> Column | None:
    """The column as one of numbers, with what is no number taken for missing; None (an error if strict) if too much."""
    numbers, bad, texts = _parse_numbers(table, name)
    if not bad.size:
        return Column(name, "number")
    filled = int(np.isfinite(numbers).sum()) + bad.size
    values = sorted({texts[int(row)].as_py() for row in bad[:1000]})
    if bad.size > STRAY_SHARE * filled or len(values) > STRAY_VALUES:
        if strict:
            _refuse(table, name, int(bad[0]), texts[int(bad[0])].as_py())
        return None
    said = ", ".join(_short(value) for value in values)
    rows = "1 row" if bad.size == 1 else f"{bad.size} rows, the first"
    note = f"{said} taken for missing ({rows}: {table.place(int(bad[0]))})"
    return Column(name, "number", note, stray=tuple(values))


def _unless_row_number(column: Column, table: Table) -> Column:
    numbers = numbers_of(table, column)
    if numbers.size >= OWN_VALUE_ROWS and np.all(np.isfinite(numbers)) and np.all(np.diff(numbers) == 1):
        return Column(column.name, "ignored", f"counts the rows, from {numbers[0]:g} to {numbers[-1]:g}")
    return column


def _parse_numbers(table: Table, name: str) -> tuple[np.ndarray, np.ndarray, Any]:
    """Numbers (n,), NaN where there is none; the rows whose value is no number; the values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assert table.frame is not None
    values = table.frame[name]
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return _typed_numbers(table, name), np.empty(0, dtype=np.int64), values
    texts = pc.utf8_trim_whitespace(values)
    plain = pc.replace_substring(texts, ",", ".") if table.decimal == "," else texts
    try:
        numbers = pc.cast(plain, pa.float64())
        finite = pc.all(pc.is_finite(numbers)).as_py() in (True, None)
    except pa.ArrowInvalid:
        finite = False
    if finite:
        return _plain(numbers), np.empty(0, dtype=np.int64), texts
    good = pc.match_substring_regex(plain, NUMBER)
    bad = np.flatnonzero(_plain(pc.fill_null(pc.invert(good), False)).astype(bool))
    numbers = _plain(pc.cast(pc.if_else(good, plain, None), pa.float64()))
    too_large = np.flatnonzero(np.isinf(numbers))  # 1e999
    numbers[too_large] = np.nan
    return numbers, np.union1d(bad, too_large), texts


def _typed_numbers(table: Table, name: str) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    assert table.frame is not None
    values = table.frame[name]
    if pa.types.is_duration(values.type):
        values = pc.cast(values, pa.int64())
    try:
        numbers = _plain(pc.cast(values, pa.float64(), safe=False))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(f"{table.source.name}: column {name!r} holds {values.type}, which is no number.") from error
    infinite = np.flatnonzero(np.isinf(numbers))
    if infinite.size:
        _refuse(table, name, int(infinite[0]), float(numbers[infinite[0]]))
    return numbers


def _plain(values: pyarrow.ChunkedArray) -> np.ndarray:
    """A NumPy array of one's own; NaN where a number is missing."""
    return np.array(values.to_numpy())


def _refuse(table: Table, name: str, row: int, value: Any) -> None:
    raise TableError(
        f"{table.place(row, name)}: {_short(value)} is no number that can be used. Mend it, or leave it empty, or fit "
        f"a model with --category {name!r} or --ignore {name!r}."
    )


def numbers_of(table: Table, column: Column) -> np.ndarray:
    """The values of a number or time column as float64 (n,), NaN where missing; anything unexpected is an error."""
    if column.kind == "time":
        return times_of(table, column.name)
    numbers, bad, texts = _parse_numbers(table, column.name)
    for row in bad.tolist():
        value = texts[row].as_py()
        if value not in column.stray:
            _refuse(table, column.name, row, value)
    return numbers


def times_of(table: Table, name: str) -> np.ndarray:
    """A column of dates or times as days since 1970, float64 (n,), NaN where missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assert table.frame is not None
    values = table.frame[name]
    try:
        moments = pc.cast(pc.cast(values, pa.timestamp("us")), pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row = next((row for row in range(len(values)) if not _parses_as_time(values.slice(row, 1))), 0)
        raise TableError(
            f"{table.place(row, name)}: {_short(values[row].as_py())} is no date like 2026-01-31 or "
            "2026-01-31 17:05:00."
        ) from error
    return _plain(pc.cast(moments, pa.float64())) / 86_400e6


def texts_of(table: Table, name: str) -> np.ndarray:
    """A column as strings, shape (n,), None where missing."""
    assert table.frame is not None
    return np.array(_as_text(table.frame[name]).to_pylist(), dtype=object)


def labels_of(table: Table, name: str, unlabelled: Collection[str] = ()) -> tuple[np.ndarray, str]:
    """The labels of a table, as strings (n,), None where there is none, and what was decided about them.

    Whole numbers are written without a decimal point. In a column of whole numbers, -1 means that there is no label,
    as in scikit-learn, if there are other negative or more than one other labels: -1 and 1 alone are two classes.
    """
    import pyarrow as pa

    require_column(table, name)
    assert table.frame is not None
    values = table.frame[name]
    if pa.types.is_floating(values.type):
        labels = np.array([_label_of_number(v) for v in values.to_pylist()], dtype=object)
    else:
        labels = texts_of(table, name)
    note = ""
    named = set(unlabelled)
    seen = {label for label in labels if label is not None}
    if (
        not named
        and pa.types.is_integer(values.type) | pa.types.is_floating(values.type)
        and "-1" in seen
        and len(seen) > 2
    ):
        named, note = {"-1"}, "-1 is read as no label"
    missing = [label in named or label == "" for label in labels]
    labels[np.array(missing, dtype=bool)] = None
    return labels, note


def _label_of_number(value: float | None) -> str | None:
    if value is None or value != value:
        return None
    return str(int(value)) if float(value).is_integer() else repr(value)


def without_labels(table: Table, names: Iterable[str]) -> list[str]:
    """Columns among `names` that a table lacks."""
    there = set() if table.frame is None else set(table.frame.column_names)
    return [name for name in names if name not in there]
