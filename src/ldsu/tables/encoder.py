"""Encode the columns of a table as numeric points, with a learned encoding that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse

from ldsu._utils.memory import available_memory, require_memory
from ldsu._utils.stages import announce, counter
from ldsu._utils.temporary import file_array, require_disk
from ldsu.encoders import Encoder
from ldsu.tables.columns import (
    Column,
    Kind,
    column_blocks,
    detect_columns,
    level_codes,
    missing_of,
    numbers_of,
    texts_of,
)
from ldsu.tables.embedded import Embedding, image_paths
from ldsu.tables.table import Table, TableError, listed
from ldsu.tables.text_features import Words

Scaling = Literal["each", "common", "counts", "none"]
SCALINGS: tuple[Scaling, ...] = ("each", "common", "counts", "none")

# Columns share a scale if at least this share of them has a range within this factor of the median range.
ONE_UNIT_SHARE, ONE_UNIT_FACTOR = 0.75, 3.0
# Minimum number of columns and maximum density of integers that are treated as counts of words or events.
COUNT_COLUMNS, COUNT_DENSITY = 200, 0.03
# Columns with a larger share of missing values get an indicator column, since missingness may be informative.
FLAGGED_SHARE = 0.2
# Number of matrices of the size of the numbers that are held at once while they are filled and scaled.
MATRICES = 5
# Share of the free memory for those of a block of columns of a large table.
BLOCK_SHARE = 0.25
# Sums of the squares of larger numbers overflow.
LARGEST = np.float64(1e150)


@dataclass(frozen=True, eq=False)
class Numbers:
    """Number columns: missing values filled, then ``(x - center) / scale``."""

    fill: np.ndarray  # (p,)
    center: np.ndarray  # (p,)
    scale: np.ndarray  # (p,)
    flagged: np.ndarray  # columns that get an indicator column, 1 where the value was missing

    @classmethod
    def learn(cls, blocks: Iterable[np.ndarray], scaling: Scaling, separate: np.ndarray, flag: bool) -> Numbers:
        """Learn from N (n, p) with NaN for missing values, in blocks of columns.

        `separate` (p,) are columns that are always standardized separately, such as times; `flag` allows indicator
        columns of missing values.
        """
        found = [_fill_center_scale(N) for N in blocks]
        shares, fill, center, scale = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if scaling == "common" and not separate.all():
            scale = np.where(separate, scale, np.sqrt(np.mean(scale[~separate] ** 2)))
        elif scaling == "none":
            center, scale = np.where(separate, center, 0.0), np.where(separate, scale, 1.0)
        flagged = np.flatnonzero(shares > FLAGGED_SHARE) if flag else np.empty(0, dtype=np.int64)
        return cls(fill, center, np.where(scale > 0, scale, 1.0), flagged)

    def __call__(self, N: np.ndarray) -> np.ndarray:
        """Columns (n, p + flags) from N (n, p)."""
        missing = np.isnan(N)
        columns = (np.where(missing, self.fill, N) - self.center) / self.scale
        return np.hstack([columns, missing[:, self.flagged]]) if self.flagged.size else columns

    @property
    def n_columns(self) -> int:
        """Number of encoded columns."""
        return int(self.fill.size + self.flagged.size)


def _fill_center_scale(N: np.ndarray) -> tuple[np.ndarray, ...]:
    """Shares of missing values of the columns N (n, p), what fills them, and mean and deviation of the filled."""
    missing = np.isnan(N)
    shares = missing.mean(axis=0)
    fill = np.zeros(N.shape[1])
    some = (shares > 0) & (shares < 1)
    fill[some] = np.nanmedian(N[:, some], axis=0)
    filled = np.where(missing, fill, N)
    return shares, fill, filled.mean(axis=0), filled.std(axis=0)


@dataclass(frozen=True)
class ColumnBlocks:
    """Columns of a large table as numbers, read in blocks whenever they are iterated over."""

    table: Table
    numeric: list[Column]

    def __iter__(self) -> Iterator[np.ndarray]:
        """Blocks (n, b), float64."""
        n, p = self.table.n_rows, self.table.n_matrix_columns
        step = max(1, int(BLOCK_SHARE * available_memory()) // (8 * MATRICES * n))
        for start in range(0, p, step):
            announce(f"{start:,} of {p:,} columns")
            assert self.table.matrix is not None
            N = np.asarray(self.table.matrix[:, start : start + step], dtype=np.float64)
            _require_usable(N, self.table)
            yield N
        for start in range(0, len(self.numeric), step):
            block = self.numeric[start : start + step]
            announce(f"{start:,} of {len(self.numeric):,} columns")
            N = np.empty((n, len(block)))
            for place, column in enumerate(block):
                N[:, place] = numbers_of(self.table, [column])[:, 0]
            _require_usable(N, self.table, [column.name for column in block])
            yield N


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Learned encoding of the rows of a table as points (n, d).

    Number columns come first, then categories (one-hot), then texts (`Words`, or an `Embedding`) and images (an
    `Embedding`). Two different levels of a category have the typical distance of two rows in a number column; a missing
    level is equally far from all levels. All texts and images together have the same weight as all other columns.
    """

    columns: tuple[Column, ...]  # the named columns, including ignored ones
    scaling: Scaling  # of numbers: by the deviation of each column, by a common one, as word counts, or not at all
    matrix_columns: int  # number of unnamed columns, which precede the others
    image_shape: tuple[int, ...] | None  # of images with pixels from 0 to 255
    kernel: str
    numbers: Numbers | None
    counts: Words | None  # encoding of number columns that are counts
    words: tuple[Words | Embedding, ...]  # encoding of each text column
    notes: tuple[str, ...] = ()  # on all columns together
    first_index: int | None = None  # of the first column in LIBSVM text
    photos: Embedding | None = None  # encoding of image files, in place of their pixels

    @classmethod
    def learn(
        cls,
        table: Table,
        *,
        label: str | None = None,
        kinds: Mapping[str, Kind] | None = None,
        scaling: Scaling | Literal["auto"] = "auto",
        kernel: str = "rbf",
        encoders: Mapping[str, Encoder] | None = None,
    ) -> TableEncoder:
        """Detect the kind of each column and learn its encoding, from labelled and unlabelled rows.

        The parameters are those of `ldsu.tables.prepare`, with encoders by the kind of what they encode. The label
        column is not encoded.
        """
        encoders = encoders or {}
        photos = None
        if "image" in encoders and table.row_names is not None:
            photos = Embedding.learn(encoders["image"], image_paths(table), "images")
            table = _without_pixels(table)
        columns = tuple(detect_columns(table, label=label, kinds=kinds))
        used = [column for column in columns if column.kind != "ignored"]
        p = table.n_matrix_columns
        if not used and not p and photos is None:
            raise TableError(f"{table.source.name} has no usable column besides the labels.")
        numeric = [column for column in used if column.kind in ("number", "time")]
        notes: list[str] = []
        numbers = counts = None
        if p or numeric:
            blocks: Iterable[Any] = ColumnBlocks(table, numeric) if table.is_large else [_number_matrix(table, numeric)]
            names = [*(f"column {j + 1}" for j in range(p)), *(column.name for column in numeric)]
            separate = np.array([False] * p + [column.kind == "time" for column in numeric], dtype=bool)
            scaling, separate = _resolve_scaling(blocks, scaling, separate, table, names, notes)
            if scaling == "counts":
                N = _number_matrix(table, numeric) if table.is_large else next(iter(blocks))
                counts = Words.learn_from_counts(_counts(N, table))
            else:
                blocks = blocks if table.is_large else [_dense(next(iter(blocks)), table)]
                numbers = Numbers.learn(blocks, scaling, separate, flag=p == 0)
                more = f"; columns with more than {FLAGGED_SHARE:.0%} missing get an indicator column"
                n_missing = np.concatenate([np.isnan(N).sum(axis=0) for N in blocks])
                missing = dict(zip(names, n_missing.tolist(), strict=True))
                _note_missing(missing, f"filled with the column median{more if numbers.flagged.size else ''}", notes)
        else:
            scaling = "each"
        texts = [column.name for column in used if column.kind == "text"]
        words = tuple(
            Embedding.learn(encoders["text"], texts_of(table, name), f"column {name!r}")
            if "text" in encoders
            else _learn_words(table, name)
            for name in texts
        )
        missing = {
            column.name: missing_of(table, column.name) for column in used if column.kind in ("category", "text")
        }
        _note_missing(missing, "encoded as zeros, equally far from all levels", notes)
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
            photos=photos,
        )

    def transform(self, table: Table) -> np.ndarray:
        """Points (n, d) of the rows of a table with the same columns; other columns are ignored.

        Those of a large table are in single precision, in a temporary file.
        """
        if self.photos is not None:
            table = _without_pixels(table)
        self.check(table)
        if not table.is_large:
            return self._points(table)
        n, d = table.n_rows, self.n_points_columns
        require_disk(4 * n * d, f"{table.source.name} with {n:,} rows and {d:,} encoded columns")
        X = file_array((n, d), np.float32)
        encoded = counter(n, "rows encoded")
        for part in table.row_blocks():
            X[part.first_row : part.first_row + part.n_rows] = self._points(part)
            encoded(part.n_rows)
        return X

    def _points(self, table: Table) -> np.ndarray:
        """`transform` of a table in memory, float64."""
        blocks = []
        if self.numbers is not None or self.counts is not None:
            N = _number_matrix(table, self.of_kind("number", "time"))
            if self.counts is not None:
                blocks.append(self.counts.of_counts(_counts(N, table)))
            elif self.numbers is not None:
                blocks.append(self.numbers(_dense(N, table)))
        for column in self.of_kind("category"):
            blocks.append(level_codes(table, column)[:, None] == np.arange(len(column.levels)))
        texts = self.of_kind("text")
        # Numbers, their indicators, categories, and all counts together have unit weight each.
        n_others = self._n_numbers + len(self.of_kind("category")) + (self.counts is not None)
        weight = np.sqrt(max(n_others, 1) / max(len(texts) + (self.photos is not None), 1))
        for column, words in zip(texts, self.words, strict=True):
            blocks.append(weight * words(texts_of(table, column.name)))
        if self.photos is not None:
            blocks.append(weight * self.photos(image_paths(table)))
        return np.ascontiguousarray(np.hstack(blocks), dtype=np.float64)

    def of_kind(self, *kinds: Kind) -> list[Column]:
        """The columns of these kinds."""
        return [column for column in self.columns if column.kind in kinds]

    @property
    def n_points_columns(self) -> int:
        """d, the number of columns of encoded points."""
        blocks = [item for item in (*self.words, self.counts, self.photos) if item is not None]
        levels = sum(len(column.levels) for column in self.of_kind("category"))
        return int(self._n_numbers + levels + sum(item.n_columns for item in blocks))

    @property
    def _n_numbers(self) -> int:
        return 0 if self.numbers is None else self.numbers.n_columns

    def unknown_levels(self, table: Table) -> dict[str, int]:
        """Number of rows with an unknown level, by category column; columns with grouped rare levels are skipped."""
        found = {
            column.name: int((level_codes(table, column) < 0).sum()) - missing_of(table, column.name)
            for column in self.of_kind("category")
            if not column.rare
        }
        return {name: count for name, count in found.items() if count}

    def missing_values(self, table: Table) -> int:
        """Number of missing values of a table that are filled."""
        if self.numbers is None:
            return 0
        numbers = (_number_matrix(part, self.of_kind("number", "time")) for part in table.row_blocks())
        return sum(int(np.isnan(N.data if scipy.sparse.issparse(N) else N).sum()) for N in numbers)

    def decisions(self) -> list[tuple[str, str, str]]:
        """(column, kind, encoding) of each column; unnamed columns are grouped."""
        columns = ((column.name, column.kind, column.note) for column in self.columns)
        embedded = [str(words) if isinstance(words, Embedding) else "" for words in self.words]
        photos = "" if self.photos is None else str(self.photos)
        return decisions(columns, self.scaling, self.matrix_columns, self.image_shape, embedded, photos)

    def check(self, table: Table) -> None:
        """Raise an error if a table lacks columns that the encoder needs."""
        existing = set(table.column_names)
        used = (column.name for column in self.columns if column.kind != "ignored")
        lacking = [repr(name) for name in used if name not in existing]
        if lacking:
            raise TableError(f"{table.source.name} lacks {listed(lacking)}, which the model needs.")
        if self.image_shape is None and table.n_matrix_columns != self.matrix_columns:
            raise TableError(
                f"{table.source.name} has {table.n_matrix_columns:,} unnamed columns, but the model was fitted with "
                f"{self.matrix_columns:,}."
            )
        if table.image_shape != self.image_shape:
            needed, found = (
                "no images"
                if shape is None
                else f"{'color' if len(shape) == 3 else 'gray'} images of {shape[0]} x {shape[1]} pixels"
                for shape in (self.image_shape, table.image_shape)
            )
            raise TableError(f"{table.source.name} has {found}, but the model was fitted to {needed}.")


def decisions(
    columns: Iterable[tuple[str, str, str]],
    scaling: str,
    matrix_columns: int,
    image_shape: Sequence[int] | None,
    embedded: Sequence[str] = (),
    photos: str = "",
) -> list[tuple[str, str, str]]:
    """`TableEncoder.decisions` from the attributes of an encoder, its columns as (name, kind, note).

    `embedded` describes the encoder of each text column, and `photos` that of image files; both empty without one.
    """
    encodings = {
        "number": {"each": "standardized", "common": "common scale", "none": "not scaled"}.get(
            scaling, "word counts: TF-IDF, 100 components"
        ),
        "time": "days, standardized",
        "category": "one-hot encoded",
        "text": "TF-IDF of words, 100 components",
        "ignored": "dropped",
    }
    rows = [("images", "files", photos)] if photos else []
    if matrix_columns and image_shape is not None:
        color = "gray" if len(image_shape) == 2 else "color"
        rows.append((f"{image_shape[0]} x {image_shape[1]} pixels", f"{color} images", encodings["number"]))
    elif matrix_columns:
        rows.append((f"{matrix_columns:,} columns", "number", encodings["number"]))
    by_text = iter(embedded)
    for name, kind, note in columns:
        encoding = (next(by_text, "") if kind == "text" else "") or encodings[kind]
        rows.append((name, kind, f"{encoding}; {note}" if note else encoding))
    return rows


def _without_pixels(table: Table) -> Table:
    """A folder of images of which only the files matter."""
    return replace(table, matrix=np.empty((table.n_rows, 0)), image_shape=None)


def _number_matrix(table: Table, numeric: list[Column]) -> Any:
    """The matrix and the number columns; sparse only if there is nothing but a sparse matrix."""
    n, p = table.n_rows, len(numeric)
    require_memory(
        8 * MATRICES * n * p,
        f"{table.source.name} with {n:,} rows and {p:,} number columns",
        "Use fewer rows or columns, or a machine with more memory.",
    )
    N = np.empty((n, p))
    done = 0
    for block in column_blocks(table, numeric):
        N[:, done : done + len(block)] = numbers = numbers_of(table, block)
        _require_usable(numbers, table, [column.name for column in block])
        done += len(block)
    if table.matrix is None:
        return N
    matrix: Any = table.matrix
    if table.image_shape is not None:
        matrix = np.asarray(matrix, dtype=np.float64) / 255
    _require_usable(matrix, table)
    return np.hstack([_dense(matrix, table), N]) if numeric else matrix


def _first_invalid(N: Any, is_invalid: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int, float] | None:
    """Row, column and value of the first invalid entry of a dense or sparse matrix."""
    values = N.data if scipy.sparse.issparse(N) else N
    invalid = np.argwhere(is_invalid(values))
    if not invalid.size:
        return None
    value = float(values[tuple(invalid[0])])
    if not scipy.sparse.issparse(N):
        return int(invalid[0, 0]), int(invalid[0, 1]), value
    entries = N.tocoo()
    return int(entries.row[invalid[0, 0]]), int(entries.col[invalid[0, 0]]), value


def _require_usable(N: Any, table: Table, names: list[str] | None = None) -> None:
    """Raise an error for infinite or too large numbers, in a matrix or in named columns."""
    if found := _first_invalid(N, lambda values: np.abs(values) > LARGEST):
        row, column, value = found
        fault = "is infinite" if np.isinf(value) else f"is {value:.3g}, which is too large to compute with"
        raise TableError(
            f"{table.place(row, names[column] if names else column)} {fault}. Fix the value or leave it blank."
        )


def _dense(N: Any, table: Table) -> np.ndarray:
    if scipy.sparse.issparse(N):
        require_memory(
            8 * 3 * N.shape[0] * N.shape[1],
            f"{table.source.name} as a dense matrix",
            "Use --scale counts if these are counts, which stay sparse.",
        )
        N = N.toarray()
    return np.asarray(N, dtype=np.float64)


def _counts(N: Any, table: Table) -> scipy.sparse.csr_array:
    """A sparse copy of counts; raises an error for negative, missing or non-integer ones."""
    if found := _first_invalid(N, lambda values: ~((values >= 0) & (values == np.floor(values)) & np.isfinite(values))):
        row, column, value = found
        raise TableError(
            f"{table.place(row, column)} is {value:g}. Counts must be non-negative integers. Fix it, or use --scale "
            "each or common."
        )
    counts = scipy.sparse.csr_array(N, dtype=np.float64, copy=True)
    counts.eliminate_zeros()
    return counts


def _learn_words(table: Table, name: str) -> Words:
    words = Words.learn(texts_of(table, name))
    if not words.vocabulary:
        raise TableError(
            f"{table.source.name}: column {name!r} was read as text, but no word occurs in two of its rows. Drop it "
            f"with --ignore {name!r}, or use --category {name!r}."
        )
    return words


def _resolve_scaling(
    blocks: Iterable[Any], scaling: str, separate: np.ndarray, table: Table, names: list[str], notes: list[str]
) -> tuple[Scaling, np.ndarray]:
    """How numbers, in blocks of columns, are scaled, and which columns are always scaled separately."""
    if scaling in SCALINGS:
        return scaling, separate
    if table.image_shape is not None:
        return "common", separate
    if len(names) >= COUNT_COLUMNS and _look_like_counts(blocks, table.n_rows * len(names)):
        notes.append(
            f"{len(names):,} columns of integers, nearly all 0, are treated as counts of words or events "
            "(to change this, use --scale each or common)."
        )
        return "counts", separate
    lowest, highest = (np.concatenate(parts) for parts in zip(*map(_extremes, blocks), strict=True))
    ranges = highest.astype(np.float64) - lowest
    varying = ~separate & (ranges > 0)
    if varying.sum() < 2:
        return "each", separate
    ratios = ranges / np.median(ranges[varying])
    similar = varying & (np.maximum(ratios, 1 / np.maximum(ratios, 1e-300)) <= ONE_UNIT_FACTOR)
    if similar.sum() < ONE_UNIT_SHARE * varying.sum():
        notes.append("Number columns have different ranges and are standardized (to change this, use --scale common).")
        return "each", separate
    apart = varying & (ratios > ONE_UNIT_FACTOR)
    notes.append("Number columns have similar ranges and share a common scale (to change this, use --scale each).")
    if apart.any():
        notes.append(f"{listed(names[j] for j in np.flatnonzero(apart))}: larger ranges, scaled separately.")
    return "common", separate | apart


def _look_like_counts(blocks: Iterable[Any], size: int) -> bool:
    nonzero = 0
    for N in blocks:
        values = N.data if scipy.sparse.issparse(N) else np.asarray(N)
        nonzero += int(np.count_nonzero(values))
        if nonzero > COUNT_DENSITY * size or values.min(initial=0) < 0 or np.any(values != np.floor(values)):
            return False
    return nonzero > 0


def _extremes(N: Any) -> tuple[np.ndarray, np.ndarray]:
    if scipy.sparse.issparse(N):
        return N.min(axis=0).toarray().ravel(), N.max(axis=0).toarray().ravel()
    return np.nan_to_num(np.fmin.reduce(N, axis=0)), np.nan_to_num(np.fmax.reduce(N, axis=0))


def _note_missing(missing: dict[str, int], treatment: str, notes: list[str]) -> None:
    incomplete = [name for name, count in missing.items() if count]
    if incomplete:
        columns = listed(incomplete, noun="columns")
        notes.append(f"{sum(missing.values()):,} missing values in {columns} are {treatment}.")
