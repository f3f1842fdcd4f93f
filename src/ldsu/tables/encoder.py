"""From the columns of a table to the numbers a kernel reads, in a way that can be written down and done again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy.sparse

from ldsu._utils.memory import require_memory
from ldsu.tables.columns import (
    Column,
    Kind,
    column_blocks,
    detect_columns,
    lacking_columns,
    missing_of,
    numbers_together,
    texts_of,
)
from ldsu.tables.table import Table, TableError
from ldsu.tables.text_features import Words

Scaling = Literal["each", "common", "counts", "none"]
SCALINGS: tuple[Scaling, ...] = ("each", "common", "counts", "none")

# Columns have one unit if so many of them have a range within this factor of the median's; the larger ones have not.
ONE_UNIT_SHARE, ONE_UNIT_FACTOR = 0.75, 3.0
# So wide, so empty, and whole numbers: counts of words or of events.
COUNT_COLUMNS, COUNT_DENSITY = 200, 0.03
# Where a column misses more than this share, that it does may tell something: a second one says where.
FLAGGED_SHARE = 0.2
# Matrices as large as that of the numbers that are held at once while they are filled and scaled.
MATRICES = 5
# Sums of the squares of larger numbers overflow.
LARGEST = np.float64(1e150)


@dataclass(frozen=True, eq=False)
class Numbers:
    """Number columns: missing values filled, then ``(x - center) / scale``.

    Attributes
    ----------
    fill, center, scale : ndarrays of shape (p,)
    flagged : ndarray of int
        Columns that get a second one, 1 where the value was missing.
    """

    fill: np.ndarray
    center: np.ndarray
    scale: np.ndarray
    flagged: np.ndarray

    @classmethod
    def learn(cls, N: np.ndarray, scaling: Scaling, own_unit: np.ndarray, flag: bool) -> Numbers:
        """Learn from N (n, p) with NaN where a value is missing.

        Parameters
        ----------
        N : ndarray of shape (n, p)
        scaling : {"each", "common", "none"}
        own_unit : ndarray of bool, shape (p,)
            Columns that are scaled by themselves in any case: times.
        flag : bool
            Whether columns may be added that say where values were missing.
        """
        missing = np.isnan(N)
        shares = missing.mean(axis=0)
        some = np.flatnonzero(shares > 0)
        fill = np.zeros(N.shape[1])
        for j in some:  # the median is of the filled values; a column without any is 0
            there = N[~missing[:, j], j]
            fill[j] = np.median(there) if there.size else 0.0
        filled = _filled(N, fill)
        center = filled.mean(axis=0, dtype=np.float64)
        deviation = filled.std(axis=0, dtype=np.float64)
        one = np.sqrt(np.mean(deviation[~own_unit] ** 2)) if np.any(~own_unit) else 1.0
        scale = deviation if scaling == "each" else np.where(own_unit, deviation, one if scaling == "common" else 1.0)
        if scaling == "none":
            center = np.where(own_unit, center, 0.0)
        flagged = np.flatnonzero(shares > FLAGGED_SHARE) if flag else np.empty(0, dtype=np.int64)
        return cls(fill, center, np.where(scale > 0, scale, 1.0), flagged)

    def __call__(self, N: np.ndarray) -> np.ndarray:
        """Columns (n, p + flags) from N (n, p)."""
        columns = (_filled(N, self.fill) - self.center) / self.scale
        return np.hstack([columns, np.isnan(N[:, self.flagged])]) if self.flagged.size else columns


def _filled(N: np.ndarray, fill: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(N), fill, N)


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Rows of a table as points (n, d), by decisions made once and kept.

    Number columns come first, then categories (a column for each level), then texts (`Words`). Two rows that differ in
    a category are as far apart in it as two rows typically are in a number; a missing one is half-way to all levels.
    All texts together count as much as all other columns.

    Attributes
    ----------
    columns : tuple of Column
        The named columns, with those left out.
    scaling : {"each", "common", "counts", "none"}
        How numbers are scaled: each column by its own deviation, all by one, as counts of words, or not at all.
    matrix_columns : int
        Columns without names of their own, which stand before the others.
    image_shape : tuple of int or None
        Of images, whose pixels run from 0 to 255.
    first_index : int or None
        Index of the first column in LIBSVM text.
    kernel : {"rbf", "cosine", "linear"}
    numbers : Numbers or None
    counts : Words or None
        What the number columns become where they are counts.
    words : tuple of Words
        For each text column.
    notes : tuple of str
        What was decided about all columns together.
    """

    columns: tuple[Column, ...]
    scaling: Scaling
    matrix_columns: int
    image_shape: tuple[int, ...] | None
    kernel: str
    numbers: Numbers | None
    counts: Words | None
    words: tuple[Words, ...]
    notes: tuple[str, ...] = field(default=())
    first_index: int | None = None

    @classmethod
    def learn(
        cls,
        table: Table,
        *,
        label: str | None = None,
        given: Mapping[str, Kind] | None = None,
        scaling: Scaling | Literal["auto"] = "auto",
        kernel: str = "rbf",
    ) -> TableEncoder:
        """Decide what each column is and learn how to encode it, from labelled and unlabelled rows alike.

        Parameters
        ----------
        table : Table
        label : str, optional
            The column of labels, which is left out.
        given : dict, optional
            Kinds of columns that the user says.
        scaling : str
            "auto", or one of `SCALINGS`.
        kernel : str
            What the points are meant for. The rows of words have length 1, so that for the RBF kernel their distances
            are those of the cosine.
        """
        columns = tuple(detect_columns(table, label=label, given=given))
        used = [column for column in columns if column.kind != "ignored"]
        p = 0 if table.matrix is None else int(table.matrix.shape[1])
        if not used and not p:
            raise TableError(f"{table.source.name} has no column to learn from beside the labels.")
        numeric = [column for column in used if column.kind in ("number", "time")]
        own_unit = np.array([False] * p + [column.kind == "time" for column in numeric], dtype=bool)
        notes: list[str] = []
        numbers = counts = None
        N: Any = None
        if p or numeric:
            N = _number_matrix(table, numeric)
            names = [*(f"column {j + 1}" for j in range(p)), *(column.name for column in numeric)]
            scaling, own_unit = _resolve_scaling(N, scaling, own_unit, table.image_shape, names, notes)
            if scaling == "counts":
                _require_counts(N, table)
                counts = Words.learn_from_counts(_sparse(N))
            else:
                N = _dense(N, table)
                _note_missing(N, names, p == 0, notes)
                flag = table.image_shape is None and not p
                numbers = Numbers.learn(N, scaling, own_unit, flag)
        else:
            scaling = "each"
        texts = [column for column in used if column.kind == "text"]
        words = tuple(Words.learn(texts_of(table, column.name)) for column in texts)
        holes = {column.name: missing_of(table, column.name) for column in used if column.kind in ("category", "text")}
        if any(holes.values()):
            where = [name for name, count in holes.items() if count]
            notes.append(
                f"{_missing_in(sum(holes.values()), where)} stand half-way between all levels, or without words."
            )
        for column, learned in zip(texts, words, strict=True):
            if not learned.vocabulary:
                raise TableError(
                    f"{table.source.name}: column {column.name!r} was read as text, but no word stands in two of its "
                    f"rows. Leave it out with --ignore {column.name!r}, or say --category {column.name!r}."
                )
        return cls(
            columns=columns,
            scaling=scaling,
            matrix_columns=p,
            image_shape=table.image_shape,
            kernel=kernel,
            numbers=numbers,
            counts=counts,
            words=words,
            notes=tuple(notes),
            first_index=table.first_index,
        )

    def transform(self, table: Table) -> np.ndarray:
        """Points (n, d) of the rows of a table with the same columns; others are not looked at."""
        self.check(table)
        numeric = self.of_kind("number", "time")
        blocks = []
        if self.numbers is not None or self.counts is not None:
            N = _number_matrix(table, numeric)
            if self.counts is not None:
                _require_counts(N, table)
                blocks.append(self.counts.of_counts(_sparse(N)))
            elif self.numbers is not None:
                blocks.append(self.numbers(_dense(N, table)))
        for column in self.of_kind("category"):
            blocks.append(_one_hot(texts_of(table, column.name), column.levels))
        texts = self.of_kind("text")
        weight = np.sqrt(max(self._plain_columns, 1) / max(len(texts), 1))
        for column, words in zip(texts, self.words, strict=True):
            blocks.append(weight * words(texts_of(table, column.name)))
        return np.ascontiguousarray(np.hstack(blocks), dtype=np.float64)

    def of_kind(self, *kinds: Kind) -> list[Column]:
        """The columns that were read as one of these kinds."""
        return [column for column in self.columns if column.kind in kinds]

    @property
    def n_points_columns(self) -> int:
        """d, the columns of the points that `transform` gives."""
        numbers = 0 if self.numbers is None else self.numbers.fill.size + self.numbers.flagged.size
        words = [*self.words, *(() if self.counts is None else (self.counts,))]
        levels = sum(len(column.levels) for column in self.of_kind("category"))
        return int(numbers + levels + sum(one.directions.shape[1] for one in words))

    @property
    def _plain_columns(self) -> int:
        """What counts as one column each: numbers, their flags, categories, and all counts together."""
        numbers = 0 if self.numbers is None else self.numbers.fill.size + self.numbers.flagged.size
        return int(numbers + len(self.of_kind("category")) + (self.counts is not None))

    def unknown_levels(self, table: Table) -> dict[str, int]:
        """Rows of each category column whose level was never seen before; where rare ones were dropped, none count."""
        found = {}
        for column in self.columns:
            if column.kind == "category" and not column.rare:
                known = {*column.levels, None}
                count = sum(level not in known for level in texts_of(table, column.name))
                if count:
                    found[column.name] = count
        return found

    def missing_values(self, table: Table) -> int:
        """Number cells of a table that are missing, and are filled."""
        if self.numbers is None:
            return 0
        N = _number_matrix(table, self.of_kind("number", "time"))
        values = N.data if scipy.sparse.issparse(N) else N
        return int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0

    def decisions(self) -> list[tuple[str, str, str]]:
        """(column, what it is, what is done with it) for each column, those without names taken together."""
        columns = ((column.name, column.kind, column.note) for column in self.columns)
        return decisions(columns, self.scaling, self.matrix_columns, self.image_shape)

    def check(self, table: Table) -> None:
        """Refuse a table that lacks what the encoder learned from."""
        lacking = lacking_columns(table, [column.name for column in self.columns if column.kind != "ignored"])
        if lacking:
            more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
            raise TableError(
                f"{table.source.name} lacks {', '.join(map(repr, lacking[:5]))}{more}, which the model was fitted with."
            )
        p = 0 if table.matrix is None else int(table.matrix.shape[1])
        if self.image_shape is None and p != self.matrix_columns:
            raise TableError(
                f"{table.source.name} has {p:,} columns without names, but the model was fitted with "
                f"{self.matrix_columns:,}."
            )
        if table.image_shape != self.image_shape:
            needed, found = (
                "no images"
                if shape is None
                else f"{'coloured' if len(shape) == 3 else 'grey'} images of {shape[0]} x {shape[1]} pixels"
                for shape in (self.image_shape, table.image_shape)
            )
            raise TableError(f"{table.source.name} holds {found}, but the model was fitted to {needed}.")


def decisions(
    columns: Iterable[tuple[str, str, str]], scaling: str, matrix_columns: int, image_shape: Sequence[int] | None
) -> list[tuple[str, str, str]]:
    """`TableEncoder.decisions` from the attributes of an encoder, its columns as (name, kind, note)."""
    done = {
        "number": {"each": "scaled by its own deviation", "common": "one scale for all", "none": "as it is"}.get(
            scaling, "word counts: weighted by rarity, 100 directions"
        ),
        "time": "days, scaled by their deviation",
        "category": "a column for each level",
        "text": "words weighted by rarity, 100 directions",
        "ignored": "left out",
    }
    rows = []
    if matrix_columns and image_shape is not None:
        colour = "grey" if len(image_shape) == 2 else "coloured"
        rows.append((f"{image_shape[0]} x {image_shape[1]} pixels", f"{colour} images", done["number"]))
    elif matrix_columns:
        rows.append((f"{matrix_columns:,} columns", "number", done["number"]))
    rows += [(name, kind, f"{done[kind]}; {note}" if note else done[kind]) for name, kind, note in columns]
    return rows


def _number_matrix(table: Table, numeric: list[Column]) -> Any:
    """The matrix and the number columns side by side; sparse only where there is nothing but a sparse matrix."""
    named = _named_numbers(table, numeric)
    if table.matrix is None:
        return named
    matrix: Any = table.matrix
    if table.image_shape is not None:
        matrix = np.asarray(matrix, dtype=np.float64) / 255
    _require_usable(matrix, table)
    return np.hstack([_dense(matrix, table), named]) if numeric else matrix


def _named_numbers(table: Table, numeric: list[Column]) -> np.ndarray:
    n, p = table.n_rows, len(numeric)
    require_memory(
        8 * MATRICES * n * p,
        f"{table.source.name} with {n:,} rows and {p:,} columns of numbers",
        "Give a part of its rows or columns, or use a machine with more memory.",
    )
    N = np.empty((n, p))
    done = 0
    for block in column_blocks(table, numeric):
        N[:, done : done + len(block)] = numbers = numbers_together(table, block)
        _require_usable(numbers, table, [column.name for column in block])
        done += len(block)
    return N


def _require_usable(N: Any, table: Table, names: list[str] | None = None) -> None:
    """Refuse numbers that are infinite, or too large to compute with, in a matrix or in columns with names."""
    values = N.data if scipy.sparse.issparse(N) else N
    wrong = np.argwhere(np.abs(values) > LARGEST)
    if wrong.size == 0:
        return
    value = float(values[tuple(wrong[0])])
    if scipy.sparse.issparse(N):
        entries = N.tocoo()
        wrong = np.column_stack([entries.row, entries.col])[wrong[:, 0]]
    row, column = (int(i) for i in wrong[0])
    what = "is infinite" if np.isinf(value) else f"is {value:.3g}, which is too large to compute with"
    raise TableError(f"{table.place(row, names[column] if names else column)} {what}. Fix the value or leave it blank.")


def _dense(N: Any, table: Table) -> np.ndarray:
    if scipy.sparse.issparse(N):
        require_memory(
            8 * 3 * N.shape[0] * N.shape[1],
            f"{table.source.name} with all its zeros",
            "Say --scale counts if these are counts; they then stay sparse.",
        )
        N = N.toarray()
    return np.asarray(N, dtype=np.float64)


def _sparse(N: Any) -> Any:
    return scipy.sparse.csr_array(N)


def _require_counts(N: Any, table: Table) -> None:
    """Refuse what counts cannot be: negative, missing or not whole."""
    sparse = scipy.sparse.coo_array(N)
    wrong = np.flatnonzero(~((sparse.data >= 0) & (sparse.data == np.floor(sparse.data)) & np.isfinite(sparse.data)))
    if wrong.size:
        row, column = int(sparse.row[wrong[0]]), int(sparse.col[wrong[0]])
        raise TableError(
            f"{table.place(row, column)} is {sparse.data[wrong[0]]:g}: counts are whole numbers from 0 on. Fix it, "
            "or use --scale each or common."
        )


def _resolve_scaling(
    N: Any, scaling: str, own_unit: np.ndarray, image_shape: tuple[int, ...] | None, names: list[str], notes: list[str]
) -> tuple[Scaling, np.ndarray]:
    """How numbers are scaled, and which columns by themselves in any case."""
    if scaling in SCALINGS:
        return scaling, own_unit
    if image_shape is not None:
        return "common", own_unit
    if _look_like_counts(N):
        notes.append(
            f"{N.shape[1]:,} columns of whole numbers, nearly all 0, are taken for counts of words or events "
            "(otherwise say --scale each or common)."
        )
        return "counts", own_unit
    lowest, highest = _extremes(N)
    ranges = highest.astype(np.float64) - lowest
    varying = ~own_unit & (ranges > 0)
    if varying.sum() < 2:
        return "each", own_unit
    ratios = ranges / np.median(ranges[varying])
    alike = varying & (np.maximum(ratios, 1 / np.maximum(ratios, 1e-300)) <= ONE_UNIT_FACTOR)
    if alike.sum() < ONE_UNIT_SHARE * varying.sum():
        notes.append("Number columns have ranges unlike and are scaled each by its own (otherwise say --scale common).")
        return "each", own_unit
    apart = varying & (ratios > ONE_UNIT_FACTOR)
    notes.append("Number columns have ranges alike and share one scale (otherwise say --scale each).")
    if apart.any():
        said = [names[j] for j in np.flatnonzero(apart)]
        more = f" and {len(said) - 5} more" if len(said) > 5 else ""
        notes.append(f"{', '.join(said[:5])}{more}: larger ranges, scaled apart.")
    return "common", own_unit | apart


def _look_like_counts(N: Any) -> bool:
    n, p = N.shape
    if p < COUNT_COLUMNS:
        return False
    values = N.data if scipy.sparse.issparse(N) else np.asarray(N)
    nonzero = np.count_nonzero(values)
    return bool(
        0 < nonzero <= COUNT_DENSITY * n * p and values.min(initial=0) >= 0 and np.all(values == np.floor(values))
    )


def _extremes(N: Any) -> tuple[np.ndarray, np.ndarray]:
    if scipy.sparse.issparse(N):
        return N.min(axis=0).toarray().ravel(), N.max(axis=0).toarray().ravel()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
        lowest, highest = np.nanmin(N, axis=0), np.nanmax(N, axis=0)
    return np.nan_to_num(lowest), np.nan_to_num(highest)


def _note_missing(N: np.ndarray, names: list[str], flags: bool, notes: list[str]) -> None:
    missing = np.isnan(N).sum(axis=0)
    where = [names[j] for j in np.flatnonzero(missing)]
    said = ""
    if flags and np.any(missing > FLAGGED_SHARE * len(N)):
        said = f"; columns missing more than {FLAGGED_SHARE:.0%} get a second one that says where"
    if where:
        notes.append(f"{_missing_in(int(missing.sum()), where)} are filled with the column's median{said}.")


def _missing_in(count: int, where: list[str]) -> str:
    more = f" and {len(where) - 5} more columns" if len(where) > 5 else ""
    return f"{count:,} missing values in {', '.join(where[:5])}{more}"


def _one_hot(texts: np.ndarray, levels: tuple[str, ...]) -> np.ndarray:
    """A column for each level. A missing value and a level never seen are rows of zeros."""
    number = {level: j for j, level in enumerate(levels)}
    out = np.zeros((len(texts), len(levels)))
    columns = np.array([number.get(text, -1) for text in texts])
    known = np.flatnonzero(columns >= 0)
    out[known, columns[known]] = 1.0
    return out
