"""What each column of a table is: a number, a time, a category, words, or nothing to learn from."""

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

# Columns are read together up to this many values: one call of pyarrow costs as much as some thousand of them.
BLOCK_VALUES = 2**19
# Of a column of numbers or times, so many values may be something else and are taken for missing.
STRAY_SHARE, STRAY_VALUES = 0.02, 5
# A text has at least so many words, or signs, on average; a category has fewer, and repeats itself.
TEXT_WORDS, TEXT_LENGTH = 3.0, 40.0
# A column of which nearly every row has its own value, and no words, names the rows.
OWN_VALUE_SHARE, OWN_VALUE_ROWS = 0.95, 20
# Levels of a category beyond these, the rarer ones, are taken together.
MOST_LEVELS = 50
# Typed columns of text with so few different values are categories even where the values are digits.
FEW_CODES = 20
# Texts that stand for a missing value: everywhere, and where numbers or times are meant.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "#N/A")
MISSING_NUMBERS = (*MISSING, "None", "-", "?")
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
# Numbers that need nothing but a cast, by their decimal sign.
PLAIN = {sign: rf"^-?(\d+[{sign}]?\d*|[{sign}]\d+)([eE][+-]?\d+)?$" for sign in ".,"}
# What people write around numbers, and thousands between which a sign stands.
BEFORE = r"^([+-]?)(?:€|\$|£|¥|EUR|USD|GBP|CHF)\s*"
AFTER = r"\s*(?:%|€|\$|£|¥|EUR|USD|GBP|CHF)$"
IN_BRACKETS = r"^\((.*)\)$"
GROUPED = {".": (r"^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$", ","), ",": (r"^[+-]?\d{1,3}(\.\d{3})+(,\d*)?$", ".")}
# Formats of dates and times beside 2026-01-31 17:05:00, which is tried first, with or without a zone behind it.
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
    """A column and what was made of it.

    Attributes
    ----------
    name : str
    kind : {"number", "time", "category", "text", "ignored"}
    note : str
        Why, and what is particular, for the user to read. It holds no value of the table but strays.
    stray : tuple of str
        Values of a number or time column that are neither and count as missing.
    levels : tuple of str
        Of a category.
    rare : bool
        Whether rarer levels were taken together.
    format : str
        Of a time: "ISO", "ISO with zone", or as `strptime` takes it.
    """

    name: str
    kind: Kind
    note: str = ""
    stray: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    rare: bool = False
    format: str = ""


class Parsed(NamedTuple):
    """Numbers (n,), NaN where there is none; rows whose value is no number; the values; what was read past."""

    numbers: np.ndarray
    bad: np.ndarray
    texts: Any
    note: str = ""


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
        if name == label:
            raise ValueError(f"Column {name!r} is the column of labels: it cannot be {given[name]} too.")
    names = [name for name in table.frame.column_names if name != label] if table.frame is not None else []
    columns: list[Column] = []
    for block in column_blocks(table, names):
        numbers, plain = _plain_numbers(table, block)
        varies = np.fmin.reduce(numbers, axis=0) < np.fmax.reduce(numbers, axis=0)
        for place, name in enumerate(block):
            if plain[place] and varies[place] and name not in given and _may_be_number(table, name):
                columns.append(_unless_identifier(Column(name, "number"), numbers[:, place]))
            else:
                columns.append(_detect(table, name, given.get(name)))
    return columns


def column_blocks(table: Table, columns: Sequence[T]) -> Iterator[Sequence[T]]:
    """Some of the columns at a time, as many as are read together; whoever watches sees how many are done."""
    size = max(1, BLOCK_VALUES // table.n_rows)
    for start in range(0, len(columns), size):
        if len(columns) > size:
            announce(f"{start:,} of {len(columns):,} columns")
        yield columns[start : start + size]


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

    if given == "ignored":
        return Column(name, "ignored", "as asked")
    values = _values(table, name)
    n, filled = len(values), len(values) - values.null_count
    if filled == 0:
        return Column(name, "ignored", "empty")
    distinct = pc.count_distinct(values, mode="only_valid").as_py()
    if distinct == 1 and filled == n and given is None:
        return Column(name, "ignored", "always the same")
    if given == "time" or (given is None and _is_time(values.type)):
        return _required(_time_column(table, name), table, name, "date")
    if given is None and pa.types.is_time(values.type):
        return Column(name, "ignored", "a time of day, which is not read")
    is_text = _is_string(values.type)
    if given == "number" or (given is None and not is_text and not pa.types.is_boolean(values.type)):
        column = _required(_number_column(table, name), table, name, "number")
        return column if given else _unless_identifier(column, numbers_of(table, column))
    if given is None and is_text and (table.is_text or distinct > FEW_CODES) and _has_digits(values):
        found = _number_column(table, name)
        if found is not None:
            return _unless_identifier(found, numbers_of(table, found))
        found = _time_column(table, name)
        if found is not None:
            return found
    texts = _as_text(values)
    if given == "text" or (given is None and is_text and _is_prose(texts, filled, distinct)):
        return Column(name, "text")
    if given is None and filled >= OWN_VALUE_ROWS and distinct >= OWN_VALUE_SHARE * filled:
        return Column(name, "ignored", "nearly every row has its own value")
    return _category_column(table, name, texts)


def _short(value: Any) -> str:
    text = repr(value if isinstance(value, (str, int, float, bool)) else str(value))
    return text if len(text) <= 30 else f"{text[:27]}...{text[-1]}"


def _is_string(kind: pyarrow.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _may_be_number(table: Table, name: str) -> bool:
    """Whether a column of plain numbers is one of numbers: of typed texts, it depends on how many there are."""
    assert table.frame is not None
    return table.is_text or not _is_string(table.frame[name].type)


def _has_digits(texts: pyarrow.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring_regex(texts, r"\d")).as_py())


def _is_time(kind: pyarrow.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _values(table: Table, name: str, missing: Collection[str] = MISSING) -> pyarrow.ChunkedArray:
    """A column with nulls where its text stands for a missing value; texts without blanks around them."""
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
        kept = [level for level in ordered if counts[level] > 1][:MOST_LEVELS]
    if not kept:
        raise TableError(
            f"{table.source.name}: of the {len(ordered):,} levels of column {name!r} none stands in two rows. Leave it "
            f"out with --ignore {name!r}."
        )
    note = "1 level" if len(kept) == 1 else f"{len(kept)} levels"
    if len(kept) < len(ordered):
        note += f"; {len(ordered) - len(kept)} rare ones taken together"
    return Column(name, "category", note, levels=tuple(sorted(kept)), rare=len(kept) < len(ordered))


def _levels(texts: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Texts as levels: truth values are written alike, whatever the file's format writes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    small = pc.utf8_lower(texts)
    return pc.if_else(pc.is_in(small, pa.array(["true", "false"], small.type)), small, texts)


def _required(column: Column | None, table: Table, name: str, wanted: str) -> Column:
    """The column, or an error that names the first value that is not as it should be."""
    if column is None:
        bad = _parse_numbers(table, name).bad if wanted == "number" else _best_times(table, name)[2]
        _refuse(table, name, int(bad[0]), wanted)
    assert column is not None
    return column


def _refuse(table: Table, name: str, row: int, wanted: str = "number") -> None:
    assert table.frame is not None
    value = table.frame[name][row].as_py()
    form = " like 2026-01-31 or 2026-01-31 17:05:00" if wanted == "date" else " that can be used"
    raise TableError(
        f"{table.place(row, name)}: {_short(value)} is no {wanted}{form}. Fix it, leave it blank, or fit a model "
        f"with --category {name!r} or --ignore {name!r}."
    )


def _strays(table: Table, name: str, bad: np.ndarray, filled: int, texts: Any) -> tuple[tuple[str, ...], str] | None:
    """The few values that are not as the others, and what is said of them; None if they are too many."""
    values = sorted({str(texts[int(row)].as_py()) for row in bad[:1000]})
    if bad.size > STRAY_SHARE * filled or len(values) > STRAY_VALUES:
        return None
    if not bad.size:
        return (), ""
    said = ", ".join(_short(value) for value in values)
    rows = "1 row" if bad.size == 1 else f"{bad.size} rows, the first"
    return tuple(values), f"{said} taken for missing ({rows}: {table.place(int(bad[0]))})"


def _number_column(table: Table, name: str) -> Column | None:
    """The column as one of numbers, with a few that are none taken for missing; None if too many are none."""
    parsed = _parse_numbers(table, name)
    filled = int(np.isfinite(parsed.numbers).sum()) + parsed.bad.size
    strays = _strays(table, name, parsed.bad, filled, parsed.texts)
    if strays is None or filled == 0:
        return None
    stray, note = strays
    return Column(name, "number", "; ".join(filter(None, (parsed.note, note))), stray=stray)


def _unless_identifier(column: Column, numbers: np.ndarray) -> Column:
    """Leave out whole numbers that count the rows, in whatever order, or that are all different and called an id."""
    n = numbers.size
    if n < OWN_VALUE_ROWS or not np.all(np.isfinite(numbers)) or np.any(numbers != np.floor(numbers)):
        return column
    if np.unique(numbers).size < n:
        return column
    if numbers.max() - numbers.min() == n - 1:
        return Column(column.name, "ignored", f"counts the rows, from {numbers.min():g} to {numbers.max():g}")
    if IDENTIFIER.search(column.name):
        return Column(column.name, "ignored", "every row has its own, and its name says that it is an identifier")
    return column


def _parse_numbers(table: Table, name: str) -> Parsed:
    import pyarrow as pa
    import pyarrow.compute as pc

    assert table.frame is not None
    nothing = np.empty(0, dtype=np.int64)
    if not _is_string(table.frame[name].type):
        return Parsed(_typed_numbers(table, name), nothing, table.frame[name])
    texts = _values(table, name, MISSING_NUMBERS)
    if table.decimal == ".":  # nearly always all are plain
        try:
            numbers = pc.cast(texts, pa.float64())
            if pc.all(pc.is_finite(numbers)).as_py() in (True, None):
                return Parsed(_plain(numbers), nothing, texts)
        except pa.ArrowInvalid:
            pass
    bare, note = _bare(texts, table.decimal)
    good = pc.match_substring_regex(bare, NUMBER)
    bad = np.flatnonzero(_plain(pc.fill_null(pc.invert(good), False)).astype(bool))
    numbers = _plain(pc.cast(pc.if_else(good, bare, None), pa.float64()))
    too_large = np.flatnonzero(np.isinf(numbers))  # 1e999
    numbers[too_large] = np.nan
    return Parsed(numbers, np.union1d(bad, too_large), texts, note)


def _bare(texts: pyarrow.ChunkedArray, decimal: str) -> tuple[pyarrow.ChunkedArray, str]:
    """Numbers as people write them, without what stands around them and between their thousands, and a note on that."""
    import pyarrow.compute as pc

    bare = pc.replace_substring_regex(texts, IN_BRACKETS, r"-\1")  # accountants' minus
    bare = pc.replace_substring_regex(pc.replace_substring_regex(bare, AFTER, ""), BEFORE, r"\1")
    grouped, sign = GROUPED[decimal]
    is_grouped = pc.match_substring_regex(bare, grouped)
    without = pc.replace_substring(bare, sign, "")
    if decimal == ",":
        # A point that does not part thousands means nothing here: what holds one is no number.
        plain = pc.if_else(pc.match_substring(bare, "."), "?", bare)
        bare = pc.replace_substring(pc.if_else(is_grouped, without, plain), ",", ".")
    else:
        bare = pc.if_else(is_grouped, without, bare)
    decorated = pc.any(pc.match_substring_regex(texts, rf"{IN_BRACKETS}|{BEFORE}|{AFTER}")).as_py()
    said = [
        words
        for words, so in (("currency, percent or brackets", decorated), ("thousands", pc.any(is_grouped).as_py()))
        if so
    ]
    return bare, f"signs of {' and '.join(said)} read past" if said else ""


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
        raise TableError(f"{table.source.name}: column {name!r} holds {values.type}, which is no number.") from error
    infinite = np.flatnonzero(np.isinf(numbers))
    if infinite.size:
        _refuse(table, name, int(infinite[0]))
    return numbers


def _plain(values: pyarrow.ChunkedArray) -> np.ndarray:
    """A NumPy array of one's own; NaN where a number is missing."""
    return np.array(values.to_numpy(zero_copy_only=False))


def numbers_of(table: Table, column: Column) -> np.ndarray:
    """The values of a number or time column as float64 (n,), NaN where missing; anything unexpected is an error."""
    if column.kind == "time":
        return times_of(table, column)
    numbers, bad, texts, _ = _parse_numbers(table, column.name)
    for row in bad.tolist():
        if texts[row].as_py() not in column.stray:
            _refuse(table, column.name, row)
    return numbers


def numbers_together(table: Table, columns: Sequence[Column]) -> np.ndarray:
    """`numbers_of` several columns (n, k)."""
    numbers, plain = _plain_numbers(table, [column.name for column in columns])
    for place, column in enumerate(columns):
        if column.kind == "time" or not plain[place]:
            numbers[:, place] = numbers_of(table, column)
    return numbers


def _plain_numbers(table: Table, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Several columns at once as float64 (n, k), NaN where missing, and which of them (k,) are plain numbers.

    Not plain, and to be read one by one, are times, infinities, numbers with signs around them, and whatever is none.
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
    """The values of columns one after the other as float64, and which of them are numbers or missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_typed = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if len(columns) == 1 or not (is_typed or _is_string(kind)):
        return None
    try:
        values = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    except pa.ArrowInvalid:  # more text than one array holds
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
    """The column as one of dates or times, in the first format that fits, with a few strays; None if none fits."""
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
    """The format in which most values are times, the days since 1970, and the rows that are none."""
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
    """Days since 1970 (n,), NaN where missing, and the rows that are no time in a format."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _is_string(values.type):  # a zone's moment is the same in every zone
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
    # Not exactly, far from 1970: the microseconds of 9999-12-31 have more digits than a double.
    return _plain(pc.cast(pc.cast(moments, pa.int64()), pa.float64(), safe=False)) / 86_400e6, bad


def _cast_times(texts: pyarrow.ChunkedArray, kind: pyarrow.DataType) -> pyarrow.ChunkedArray:
    """Texts that look like times as times; null where they are none, such as 0000-00-00."""
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
    """A column of dates or times as days since 1970, float64 (n,), NaN where missing."""
    values = _values(table, column.name, MISSING_NUMBERS)
    days, bad = _days(values, column.format)
    if bad.size and _is_string(values.type) and column.format in (ISO, ZONED):
        # The same moments as another format writes them: with a zone, or without.
        other, still = _days(values, ZONED if column.format == ISO else ISO)
        days, bad = (other, still) if still.size < bad.size else (days, bad)
    for row in bad.tolist():
        if values[row].as_py() not in column.stray:
            _refuse(table, column.name, row, "date")
    return days


def texts_of(table: Table, name: str) -> np.ndarray:
    """A column as strings, shape (n,), None where missing; truth values as true and false."""
    return np.array(_levels(_as_text(_values(table, name))).to_pylist(), dtype=object)


def missing_of(table: Table, name: str) -> int:
    """How many values of a column are missing."""
    return int(_values(table, name).null_count)


def labels_of(table: Table, name: str, unlabelled: Collection[str] | None = None) -> tuple[np.ndarray, tuple[str, ...]]:
    """The labels of a table, as strings (n,), None where there is none, and the values that were read as none.

    Whole numbers are written without a decimal point. Where `unlabelled` does not say otherwise, markers of missing
    values are no labels; and -1 is none, as in scikit-learn, in a column of whole numbers that has no empty cell, no
    other negative number and at least two other labels. An empty cell never is a label.
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
        marked = negative == {"-1"} and numbers == seen and len(seen) > 2 and not any(label is None for label in labels)
        unlabelled = (*(label for label in MISSING if label in seen), *(("-1",) if marked else ()))
    none = tuple(label for label in unlabelled if label in seen)
    labels[np.isin(labels.astype(str), none) & np.array([label is not None for label in labels])] = None
    return labels, none


def _whole(label: str) -> str:
    """A label that is a whole number, without a decimal point."""
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", label)


def lacking_columns(table: Table, names: Iterable[str]) -> list[str]:
    """Columns among `names` that a table has not."""
    there = set() if table.frame is None else set(table.frame.column_names)
    return [name for name in names if name not in there]
