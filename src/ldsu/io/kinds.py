"""Kinds of fields that are made of plain data and arrays: numbers, texts, arrays, sparse matrices, labels.

Each saves a value, and loads it only if it is what it should be. Kinds for objects are in `ldsu.io.records`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ldsu._utils.memory import require_memory
from ldsu.io.container import Entry, Invalid, safe_repr
from ldsu.io.schema import JSON, Kind, Reader, Writer, at, reference, wrong_value

# Memory of an array of strings, in which each takes as much as the longest.
TEXT_BYTES = 2**27
# Letters that the type of labels keeps where none of them is so long: each prediction takes memory for all of them.
SPARE_LETTERS = 256
LABEL_DTYPES = (
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "float64",
    "float32",
    "float16",
)
_LONG_NAMES = {"F64": "float64", "F32": "float32", "I64": "int64", "I32": "int32", "U8": "uint8", "BOOL": "bool"}


def to_json(value: JSON, place: str) -> JSON:
    """Plain data with NumPy's numbers made Python's; anything else is a ValueError."""
    if value is None or isinstance(value, (bool, str)):
        return value if value is None or isinstance(value, bool) else str(value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)) and np.isfinite(value):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [to_json(part, f"{place}[{i}]") for i, part in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {str(name): to_json(part, f"{place}.{name}") for name, part in value.items()}
    raise ValueError(
        f"{place} is {short_repr(value)}, which a model file cannot store: use numbers, strings, lists and dicts."
    )


def short_repr(value: Any) -> str:
    """A user's value as part of a message: on one line, and short."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_lengths(sizes: dict[str, int], lengths: Mapping[str, int], place: str) -> None:
    """Record lengths by symbol, and reject one that differs from a previous length."""
    for symbol, length in lengths.items():
        if sizes.setdefault(symbol, length) != length:
            raise Invalid(
                f"is not a valid model: {at(place)} has a length of {length} where {sizes[symbol]} is needed."
            )


class Plain:
    """A kind that is plain data, and looks like it."""

    expected = "plain data"

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """Take a value apart."""
        stored = to_json(value, place)
        if not self.is_valid(stored):
            raise ValueError(f"{place} is {short_repr(value)}, not {self.expected}: this model cannot be saved.")
        return stored

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> Any:
        """Check what `save` gave."""
        if not self.is_valid(stored):
            raise wrong_value(place, stored, self.expected)
        return stored

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """As it is."""
        return stored

    def is_valid(self, stored: JSON) -> bool:
        """Whether this is what it should be."""
        return True


class Json(Plain):
    """Any plain data: numbers, texts, lists and tables of them."""


class OutputConfig(Plain):
    """What `set_output` set: the container that `transform` gives."""

    expected = "a container for features"

    def is_valid(self, stored: JSON) -> bool:
        """Whether it is a container that scikit-learn has."""
        containers = ("default", "pandas", "polars", None)
        return (
            isinstance(stored, dict)
            and set(stored) <= {"transform"}
            and all(of in containers for of in stored.values())
        )


@dataclass(frozen=True)
class Number(Plain):
    """A number, at least `low` (or above it)."""

    low: float = -np.inf
    above: bool = False
    expected = "a number in its range"

    def is_valid(self, stored: JSON) -> bool:
        """Whether it is a number in its range."""
        if type(stored) not in (int, float) or abs(stored) > 1e300:
            return False
        return bool(stored > self.low if self.above else stored >= self.low)

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> float:
        """A float."""
        return float(super().load(stored, place, reader, sizes))


@dataclass(frozen=True)
class Integer(Plain):
    """A whole number from `low` to `high`; with a symbol, the length that it stands for."""

    symbol: str = ""
    low: int = 0
    high: int = 2**53 - 1
    expected = "a whole number in its range"

    def is_valid(self, stored: JSON) -> bool:
        """Whether it is a whole number in its range."""
        return type(stored) is int and self.low <= stored <= self.high

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> int:
        """The number, which agrees with other lengths of its symbol."""
        number = int(super().load(stored, place, reader, sizes))
        if self.symbol:
            check_lengths(sizes, {self.symbol: number}, place)
        return number


@dataclass(frozen=True)
class Text(Plain):
    """A text, one of `choices` where they are given."""

    choices: tuple[str, ...] = ()

    @property
    def expected(self) -> str:  # type: ignore[override]
        """What it should be."""
        return f"one of {', '.join(self.choices)}" if self.choices else "a text"

    def is_valid(self, stored: JSON) -> bool:
        """Whether it is one of the texts."""
        return isinstance(stored, str) and (not self.choices or stored in self.choices)


class Boolean(Plain):
    """True or False."""

    expected = "true or false"

    def is_valid(self, stored: JSON) -> bool:
        """Whether it is one of the two."""
        return isinstance(stored, bool)


class Device(Text):
    """Where features are computed: saved as it was, loaded as `load_model` was asked."""

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> str:
        """The device of the reader."""
        super().load(stored, place, reader, sizes)
        return reader.device


@dataclass(frozen=True)
class Array:
    """An array: the kinds of numbers it may hold ("f", "i", "b"), and a symbol for each of its dimensions.

    ``("n+1",)`` is one longer than n. Equal symbols within a record are equal lengths. All numbers are finite, and
    whole ones at least `low`.
    """

    kinds: str
    shape: tuple[str, ...]
    low: int | None = None

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """Store the array."""
        if not isinstance(value, np.ndarray) or value.dtype.kind not in self.kinds or value.ndim != len(self.shape):
            raise ValueError(f"{place} is {short_repr(value)}, not {self._expected}: this model cannot be saved.")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ValueError(
                f"{place} holds NaN or infinity: this model cannot be saved. Rescale the data and fit again."
            )
        if value.dtype.kind == "i" and value.dtype.itemsize < 4:
            value = value.astype(np.int32)
        return writer.store(value, place)

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> np.ndarray:
        """The array, if it is what it should be."""
        array = reader.take(stored, place)
        if array.dtype.kind not in self.kinds or array.ndim != len(self.shape):
            raise wrong_value(place, f"{array.dtype} {array.shape}", self._expected)
        lengths = {}
        for symbol, length in zip(self.shape, array.shape, strict=True):
            lengths[symbol.removesuffix("+1")] = length - symbol.endswith("+1")
        check_lengths(sizes, lengths, place)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Invalid(f"is not a valid model: {at(place)} holds NaN or infinity.")
        if self.low is not None and array.min(initial=self.low) < self.low:
            raise Invalid(f"is not a valid model: {at(place)} goes down to {array.min()}, below {self.low}.")
        return array

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> str:
        """Type and shape."""
        entry = entries.get(reference(stored, place)[0])
        return "missing" if entry is None else f"{_LONG_NAMES[entry.code]} {entry.shape}"

    @property
    def _expected(self) -> str:
        names = " or ".join({"f": "numbers", "i": "whole numbers", "b": "truth values"}[kind] for kind in self.kinds)
        return f"an array of {names} with {len(self.shape)} dimension(s)"


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix by rows, with a symbol for each of its dimensions."""

    shape: tuple[str, str]

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """Store its three arrays."""
        if not scipy.sparse.issparse(value) or value.format != "csr" or value.data.dtype.kind != "f":
            raise ValueError(
                f"{place} is {short_repr(value)}, not a sparse matrix by rows: this model cannot be saved."
            )
        if not np.isfinite(value.data).all():
            raise ValueError(f"{place} holds NaN or infinity: this model cannot be saved.")
        return {
            "sparse": "array" if isinstance(value, scipy.sparse.sparray) else "matrix",
            "columns": int(value.shape[1]),
            **{name: writer.store(part, f"{place}.{name}") for name, part in _parts(value).items()},
        }

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> Any:
        """The matrix, if its indices are sound."""
        names = {"sparse", "columns", "data", "indices", "indptr"}
        if not isinstance(stored, dict) or set(stored) != names or stored["sparse"] not in ("array", "matrix"):
            raise wrong_value(place, stored, "a sparse matrix")
        columns = Integer(self.shape[1]).load(stored["columns"], f"{place}.columns", reader, sizes)
        lengths: dict[str, int] = {}
        data = Array("f", ("entries",)).load(stored["data"], f"{place}.data", reader, lengths)
        indices = Array("i", ("entries",), low=0).load(stored["indices"], f"{place}.indices", reader, lengths)
        indptr = Array("i", ("rows+1",), low=0).load(stored["indptr"], f"{place}.indptr", reader, lengths)
        rows = lengths["rows"]
        if rows < 0 or not is_nondecreasing(indptr, data.size) or indices.max(initial=-1) >= columns:
            raise Invalid(f"is not a valid model: the indices of {at(place)} are out of range.")
        check_lengths(sizes, {self.shape[0]: rows}, place)
        make = scipy.sparse.csr_array if stored["sparse"] == "array" else scipy.sparse.csr_matrix
        return make((data, indices, indptr), shape=(rows, columns))

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> str:
        """That it is sparse, and how large."""
        entry = entries.get(reference(stored["indptr"], place)[0])
        rows = "?" if entry is None or not entry.shape else entry.shape[0] - 1
        return f"sparse ({rows}, {safe_repr(stored['columns'])})"


def _parts(matrix: Any) -> dict[str, np.ndarray]:
    return {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}


def is_nondecreasing(starts: np.ndarray, end: int) -> bool:
    """Whether these places go from 0 to `end` without a step back."""
    return bool(starts.size and starts[0] == 0 and starts[-1] == end and (np.diff(starts) >= 0).all())


@dataclass(frozen=True)
class Strings:
    """An array of texts, as scikit-learn keeps the names of columns: of type object."""

    symbol: str

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """A list."""
        names = np.asarray(value, dtype=object).tolist()
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"{place} is {short_repr(value)}, not a list of texts: this model cannot be saved.")
        return [str(name) for name in names]

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> np.ndarray:
        """An array."""
        if not isinstance(stored, list) or not all(isinstance(name, str) for name in stored):
            raise wrong_value(place, stored, "a list of texts")
        check_lengths(sizes, {self.symbol: len(stored)}, place)
        return np.array(stored, dtype=object)

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """The list."""
        return stored


class Texts(Plain):
    """A tuple of texts."""

    expected = "a list of texts"

    def is_valid(self, stored: JSON) -> bool:
        """Whether it is one."""
        return isinstance(stored, list) and all(isinstance(text, str) for text in stored)

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> tuple[str, ...]:
        """A tuple."""
        return tuple(super().load(stored, place, reader, sizes))


class Shape(Plain):
    """The shape of an image: height and width, and 3 where it is colored."""

    expected = "the shape of an image"

    def is_valid(self, stored: JSON) -> bool:
        """Whether it is one."""
        sides = isinstance(stored, list) and all(type(side) is int and 0 < side < 2**16 for side in stored)
        return sides and (len(stored) == 2 or (len(stored) == 3 and stored[2] == 3))

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> tuple[int, ...]:
        """A tuple."""
        return tuple(super().load(stored, place, reader, sizes))


@dataclass(frozen=True)
class Labels:
    """Classes: whole numbers, floats, truth values or texts, each once, ascending, with their type kept."""

    symbol: str = "c"

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """A list and the name of a type."""
        labels = np.asarray(value)
        values = [part.item() if isinstance(part, np.generic) else part for part in labels.ravel().tolist()]
        dtype = "str" if labels.dtype.kind == "U" else labels.dtype.name
        of_texts = dtype in ("str", "object") and all(isinstance(part, str) for part in values)
        if labels.ndim != 1 or not (of_texts or dtype == "bool" or dtype in LABEL_DTYPES):
            raise ValueError(f"{place} is {short_repr(value)}: a model with labels of this type cannot be saved.")
        width = labels.dtype.itemsize // 4 if dtype == "str" else 0
        if width * 4 * len(values) > TEXT_BYTES:
            raise ValueError(f"{place} holds {len(values)} labels of up to {width} characters: use shorter labels.")
        return {"dtype": dtype, "width": width, "values": values}

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> np.ndarray:
        """An array of that type."""
        if not isinstance(stored, dict) or set(stored) != {"dtype", "width", "values"}:
            raise wrong_value(place, stored, "a list of labels")
        dtype, width, values = stored["dtype"], stored["width"], stored["values"]
        if not isinstance(values, list) or not Integer().is_valid(width):
            raise wrong_value(place, stored, "a list of labels")
        expected: dict[str, type] = {"str": str, "object": str, "bool": bool}
        if not isinstance(dtype, str) or not (dtype in expected or dtype in LABEL_DTYPES):
            raise wrong_value(f"{place}'s type", dtype, "one of labels")
        needed = expected.get(dtype, float if dtype.startswith("float") else int)
        if not all(type(part) is needed for part in values):
            raise Invalid(f"is not a valid model: {at(place)} holds labels that are not of type {dtype}.")
        if dtype == "str":
            longest = max(map(len, values), default=0)
            if width * 4 * len(values) > TEXT_BYTES or width < longest:
                raise Invalid(f"is not a valid model: {at(place)} contains labels longer than its width.")
            labels = np.array(values, dtype=f"<U{max(1, min(width, max(longest, SPARE_LETTERS)))}")
        else:
            labels = np.array(values, dtype=np.dtype(dtype))
        if np.unique(labels).size != labels.size:
            raise Invalid(f"is not a valid model: {at(place)} contains a label twice.")
        check_lengths(sizes, {self.symbol: labels.size}, place)
        return labels

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """The list."""
        if not isinstance(stored, dict) or not isinstance(stored.get("values"), list):
            raise wrong_value(place, stored, "a list of labels")
        return stored["values"]


@dataclass(frozen=True)
class Labelling:
    """A label for each of many rows: the labels once, and the place of each row's among them."""

    symbol: str

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """Labels and places."""
        labels, places = np.unique(np.asarray(value), return_inverse=True)
        stored = writer.store(places.astype(np.int32), place)
        return {"labels": Labels().save(labels, place, writer), "places": stored}

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> np.ndarray:
        """An array of labels."""
        if not isinstance(stored, dict) or set(stored) != {"labels", "places"}:
            raise wrong_value(place, stored, "labels of rows")
        labels = Labels().load(stored["labels"], place, reader, {})
        places = Array("i", (self.symbol,), low=0).load(stored["places"], place, reader, sizes)
        if places.max(initial=-1) >= labels.size:
            raise Invalid(f"is not a valid model: {at(place)} refers to labels that are missing.")
        needed = labels.dtype.itemsize * places.size
        if needed > 8 * TEXT_BYTES:
            raise Invalid(f"is not a valid model: {at(place)} would take {needed:,} bytes.")
        require_memory(needed, f"{at(place)} of a model", "Close other programs, or use a larger machine.")
        of_rows: np.ndarray = labels[places]
        return of_rows

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """How many rows."""
        if not isinstance(stored, dict) or set(stored) != {"labels", "places"}:
            raise wrong_value(place, stored, "labels of rows")
        return Array("i", (self.symbol,)).describe(stored["places"], place, entries)


@dataclass(frozen=True)
class Optional:
    """None, or of another kind."""

    kind: Kind

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """None as it is."""
        return None if value is None else self.kind.save(value, place, writer)

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> Any:
        """None as it is."""
        return None if stored is None else self.kind.load(stored, place, reader, sizes)

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """None as it is."""
        return None if stored is None else self.kind.describe(stored, place, entries)


class Either:
    """Of the first of several kinds that will have it."""

    def __init__(self, *kinds: Kind) -> None:
        self.kinds = kinds

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """Which of the kinds, and what it makes of it."""
        for number, kind in enumerate(self.kinds):
            try:
                return {"either": number, "value": kind.save(value, place, writer)}
            except ValueError as error:
                refusal = error
        raise refusal

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> Any:
        """By the kind that stored it."""
        kind, value = self._chosen(stored, place)
        return kind.load(value, place, reader, sizes)

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """By the kind that stored it."""
        kind, value = self._chosen(stored, place)
        return kind.describe(value, place, entries)

    def _chosen(self, stored: JSON, place: str) -> tuple[Kind, JSON]:
        if not isinstance(stored, dict) or set(stored) != {"either", "value"}:
            raise wrong_value(place, stored, "a choice of kinds")
        number = stored["either"]
        if type(number) is not int or not 0 <= number < len(self.kinds):
            raise wrong_value(place, number, "one of its kinds")
        return self.kinds[number], stored["value"]
