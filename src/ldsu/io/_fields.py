"""Types of fields: how a value becomes plain data and arrays, and what it must be to come back.

Each saves a value, and loads it only if it is what it should be. Loading serves descriptions as well: it
then has the header's entries in place of arrays, and arrays and objects are described instead of built. Types of fields
that hold objects are in `ldsu.io._objects`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse

from ldsu._utils.memory import require_memory
from ldsu.io.container import Entry, Invalid, safe_repr

# Plain data, as JSON has it.
JSON: TypeAlias = Any
# Memory of an array of strings, in which each takes as much as the longest.
TEXT_BYTES = 2**27
# Letters that the type of labels keeps where none of them is so long: each prediction takes memory for all of them.
SPARE_LETTERS = 256
LABEL_DTYPES = (
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
    *("float64", "float32", "float16"),
)
MORE_MEMORY = "Close other programs, or use a larger machine."


class Writer:
    """Arrays collected while a model is saved. An array shared by several attributes is stored once."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}

    def store(self, array: np.ndarray, path: str) -> JSON:
        """Store an array under its path; returns a reference to it with its memory order."""
        name = self._names.setdefault(id(array), path)
        self.arrays[name] = array
        # Products of matrices round differently in the other order.
        fortran = array.ndim == 2 and array.strides[0] < array.strides[1] and min(array.shape) > 1
        return {"array": name, "order": "F"} if fortran else {"array": name}


@dataclass(frozen=True)
class Place:
    """Where a stored value stands, and what is known of the file there."""

    # Names of the fields down to the value.
    path: str
    # Arrays of the file, or their entries in its header to describe it.
    arrays: Mapping[str, np.ndarray | Entry]
    # Where features will be computed; None to describe the file.
    device: str | None = None
    # Names of the arrays that were taken.
    used: set[str] = field(default_factory=set)
    # Lengths found so far in the object around the value, by symbol.
    sizes: dict[str, int] = field(default_factory=dict)
    _fortran: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def describing(self) -> bool:
        """Whether values are described, not built."""
        return self.device is None

    def take(self, stored: JSON) -> np.ndarray | Entry:
        """The array that `Writer.store` stored."""
        if not isinstance(stored, dict) or not {"array"} <= set(stored) <= {"array", "order"}:
            raise self.wrong(stored, "an array")
        name, order = stored["array"], stored.get("order", "C")
        if not isinstance(name, str) or order not in ("C", "F"):
            raise self.wrong(stored, "an array")
        if name not in self.arrays:
            raise self.invalid(f"is in array {safe_repr(name)}, which is missing")
        self.used.add(name)
        array = self.arrays[name]
        if order == "C" or isinstance(array, Entry):
            return array
        if name not in self._fortran:
            self._fortran[name] = np.asfortranarray(array)
        return self._fortran[name]

    def inside(self, name: object) -> Place:
        """The place of a part of the value."""
        return replace(self, path=f"{self.path}.{name}")

    def invalid(self, problem: str) -> Invalid:
        """An error about the value; of a long path the message has the end."""
        at = self.path if len(self.path) <= 60 else f"...{self.path[-57:]}"
        return Invalid(f"is not a valid model: {at} {problem}.")

    def wrong(self, stored: JSON, expected: str) -> Invalid:
        """An error about a value of the wrong type or range."""
        return self.invalid(f"is {safe_repr(stored)}, not {expected}")

    def check_lengths(self, lengths: Mapping[str, int]) -> None:
        """Record lengths by symbol, and reject one that differs from a previous length."""
        for symbol, length in lengths.items():
            if self.sizes.setdefault(symbol, length) != length:
                raise self.invalid(f"has a length of {length} where {self.sizes[symbol]} is needed")


class FieldType(Protocol):
    """How one field is stored: as plain data, its arrays apart."""

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        """Serialize a value; raises a ValueError if it is not of this type."""

    def load(self, stored: JSON, place: Place) -> Any:
        """Validate the result of `save`, and deserialize or describe it."""


def to_json(value: object, path: str) -> JSON:
    """Plain data with NumPy's numbers made Python's; anything else is a ValueError."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)) and np.isfinite(value):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [to_json(part, f"{path}[{i}]") for i, part in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {str(name): to_json(part, f"{path}.{name}") for name, part in value.items()}
    raise ValueError(
        f"{path} is {short_repr(value)}, which a model file cannot store: use numbers, strings, lists and dicts."
    )


def short_repr(value: object) -> str:
    """A user's value as part of a message: on one line, and short."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _unsuitable(path: str, value: object, expected: str) -> ValueError:
    return ValueError(f"{path} is {short_repr(value)}, not {expected}: this model cannot be saved.")


@dataclass(frozen=True)
class Plain:
    """Plain data that `accepts` accepts, `convert` makes the attribute of, and a symbol for its length or value."""

    expected: str = "plain data"
    accepts: Callable[[JSON], bool] = lambda stored: True
    convert: Callable[[JSON], Any] = lambda stored: stored
    symbol: str = ""

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        stored = to_json(value, path)
        if not self.accepts(stored):
            raise _unsuitable(path, value, self.expected)
        return stored

    def load(self, stored: JSON, place: Place) -> Any:
        if not self.accepts(stored):
            raise place.wrong(stored, self.expected)
        if self.symbol:
            place.check_lengths({self.symbol: stored if isinstance(stored, int) else len(stored)})
        return stored if place.describing else self.convert(stored)


def number(low: float = -np.inf, *, above: bool = False) -> Plain:
    """A number, at least `low` (or above it)."""

    def in_range(stored: JSON) -> bool:
        return type(stored) in (int, float) and abs(stored) <= 1e300 and (stored > low or (stored == low and not above))

    return Plain("a number in its range", in_range, float)


def integer(symbol: str = "", *, low: int = 0, high: int = 2**53 - 1) -> Plain:
    """A whole number from `low` to `high`; with a symbol, the length that it stands for."""
    return Plain(
        "a whole number in its range", lambda stored: type(stored) is int and low <= stored <= high, int, symbol
    )


def text(*choices: str) -> Plain:
    """A text, one of `choices` where they are given."""
    expected = f"one of {', '.join(choices)}" if choices else "a text"
    return Plain(expected, lambda stored: isinstance(stored, str) and (not choices or stored in choices))


def _is_texts(stored: JSON) -> bool:
    return isinstance(stored, list) and all(isinstance(part, str) for part in stored)


def _is_image_shape(stored: JSON) -> bool:
    sides = isinstance(stored, list) and all(type(side) is int and 0 < side < 2**16 for side in stored)
    return sides and (len(stored) == 2 or (len(stored) == 3 and stored[2] == 3))


def _is_output_config(stored: JSON) -> bool:
    containers = ("default", "pandas", "polars", None)
    return isinstance(stored, dict) and set(stored) <= {"transform"} and all(of in containers for of in stored.values())


BOOLEAN = Plain("true or false", lambda stored: isinstance(stored, bool))
TEXTS = Plain("a list of texts", _is_texts, tuple)
# Height and width, and 3 where the image is colored.
IMAGE_SHAPE = Plain("the shape of an image", _is_image_shape, tuple)
# What `set_output` set.
OUTPUT_CONFIG = Plain("a container for features", _is_output_config)


class Device(Plain):
    """Where features are computed: saved as it was, loaded as `load_model` was asked."""

    def load(self, stored: JSON, place: Place) -> str:
        device: str = text().load(stored, place)
        return place.device or device


class Strings(Plain):
    """An array of texts, as scikit-learn keeps the names of columns: of type object."""

    def __init__(self, symbol: str) -> None:
        super().__init__("a list of texts", _is_texts, lambda stored: np.array(stored, dtype=object), symbol)

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        return super().save(np.asarray(value, dtype=object).tolist(), path, writer)


class Array:
    """An array: the kinds of numbers it may hold ("f", "i", "b"), and a symbol for each of its dimensions.

    ``"n+1"`` is one longer than n. Equal symbols within a record are equal lengths. All numbers are finite, and
    whole ones at least `low`.
    """

    def __init__(self, kinds: str, *shape: str, low: int | None = None) -> None:
        self.kinds, self.shape, self.low = kinds, shape, low
        names = " or ".join({"f": "numbers", "i": "whole numbers", "b": "truth values"}[kind] for kind in kinds)
        self.expected = f"an array of {names} with {len(shape)} dimension(s)"

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in self.kinds or value.ndim != len(self.shape):
            raise _unsuitable(path, value, self.expected)
        _require_finite(value, path)
        if value.dtype.kind == "i" and value.dtype.itemsize < 4:
            value = value.astype(np.int32)
        return writer.store(value, path)

    def load(self, stored: JSON, place: Place) -> Any:
        array = self.read(stored, place)
        return f"{array.dtype} {array.shape}" if place.describing else array

    def read(self, stored: JSON, place: Place) -> Any:
        """The array, if it is what it should be; its entry when describing."""
        array = place.take(stored)
        if array.dtype.kind not in self.kinds or len(array.shape) != len(self.shape):
            raise place.wrong(f"{array.dtype} {array.shape}", self.expected)
        lengths = zip(self.shape, array.shape, strict=True)
        place.check_lengths({symbol.removesuffix("+1"): length - symbol.endswith("+1") for symbol, length in lengths})
        if isinstance(array, np.ndarray):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise place.invalid("holds NaN or infinity")
            if self.low is not None and array.min(initial=self.low) < self.low:
                raise place.invalid(f"goes down to {array.min()}, below {self.low}")
        return array


def _require_finite(array: np.ndarray, path: str) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{path} holds NaN or infinity: this model cannot be saved. Rescale the data and fit again.")


class Sparse:
    """A sparse matrix by rows, with a symbol for each of its dimensions."""

    def __init__(self, rows: str, columns: str) -> None:
        self.rows, self.columns = rows, columns

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        if not scipy.sparse.issparse(value) or value.format != "csr" or value.data.dtype.kind != "f":
            raise _unsuitable(path, value, "a sparse matrix by rows")
        _require_finite(value.data, path)
        return {
            "sparse": "array" if isinstance(value, scipy.sparse.sparray) else "matrix",
            "columns": int(value.shape[1]),
            **{name: writer.store(getattr(value, name), f"{path}.{name}") for name in ("data", "indices", "indptr")},
        }

    def load(self, stored: JSON, place: Place) -> Any:
        names = {"sparse", "columns", "data", "indices", "indptr"}
        if not isinstance(stored, dict) or set(stored) != names or stored["sparse"] not in ("array", "matrix"):
            raise place.wrong(stored, "a sparse matrix")
        columns = integer(self.columns).load(stored["columns"], place.inside("columns"))
        own = replace(place, sizes={})
        data = Array("f", "entries").read(stored["data"], own.inside("data"))
        indices = Array("i", "entries", low=0).read(stored["indices"], own.inside("indices"))
        indptr = Array("i", "rows+1", low=0).read(stored["indptr"], own.inside("indptr"))
        rows = own.sizes["rows"]
        place.check_lengths({self.rows: rows})
        if place.describing:
            return f"sparse ({rows}, {columns})"
        if rows < 0 or not is_nondecreasing(indptr, data.size) or indices.max(initial=-1) >= columns:
            raise place.invalid("has indices that are out of range")
        make = scipy.sparse.csr_array if stored["sparse"] == "array" else scipy.sparse.csr_matrix
        return make((data, indices, indptr), shape=(rows, columns))


def is_nondecreasing(starts: np.ndarray, end: int) -> bool:
    """Whether these places go from 0 to `end` without a step back."""
    return bool(starts.size and starts[0] == 0 and starts[-1] == end and (np.diff(starts) >= 0).all())


class Labels:
    """Classes: whole numbers, floats, truth values or texts, each once, ascending, with their type kept."""

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        labels = np.asarray(value)
        values = [part.item() if isinstance(part, np.generic) else part for part in labels.ravel().tolist()]
        dtype = "str" if labels.dtype.kind == "U" else labels.dtype.name
        of_texts = dtype in ("str", "object") and all(isinstance(part, str) for part in values)
        if labels.ndim != 1 or not (of_texts or dtype == "bool" or dtype in LABEL_DTYPES):
            raise ValueError(f"{path} is {short_repr(value)}: a model with labels of this type cannot be saved.")
        width = labels.dtype.itemsize // 4 if dtype == "str" else 0
        if width * 4 * len(values) > TEXT_BYTES:
            raise ValueError(f"{path} holds {len(values)} labels of up to {width} characters: use shorter labels.")
        return {"dtype": dtype, "width": width, "values": values}

    def load(self, stored: JSON, place: Place) -> Any:
        labels = self.read(stored, place)
        place.check_lengths({"c": labels.size})
        return stored["values"] if place.describing else labels

    def read(self, stored: JSON, place: Place) -> np.ndarray:
        """An array of the stored type."""
        if not isinstance(stored, dict) or set(stored) != {"dtype", "width", "values"}:
            raise place.wrong(stored, "a list of labels")
        dtype, width, values = stored["dtype"], stored["width"], stored["values"]
        if not isinstance(values, list) or not integer().accepts(width):
            raise place.wrong(stored, "a list of labels")
        types: dict[str, type] = {"str": str, "object": str, "bool": bool}
        if not isinstance(dtype, str) or not (dtype in types or dtype in LABEL_DTYPES):
            raise place.invalid(f"has type {safe_repr(dtype)}, not one of labels")
        needed = types.get(dtype, float if dtype.startswith("float") else int)
        if not all(type(part) is needed for part in values):
            raise place.invalid(f"holds labels that are not of type {dtype}")
        if dtype == "str":
            longest = max(map(len, values), default=0)
            if width * 4 * len(values) > TEXT_BYTES or width < longest:
                raise place.invalid("contains labels longer than its width")
            dtype = f"<U{max(1, min(width, max(longest, SPARE_LETTERS)))}"
        labels = np.array(values, dtype=dtype)
        if np.unique(labels).size != labels.size:
            raise place.invalid("contains a label twice")
        return labels


class RowLabels:
    """A label for each of many rows: the labels once, and the place of each row's among them."""

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        labels, places = np.unique(np.asarray(value), return_inverse=True)
        stored = writer.store(places.astype(np.int32), path)
        return {"labels": Labels().save(labels, path, writer), "places": stored}

    def load(self, stored: JSON, place: Place) -> Any:
        if not isinstance(stored, dict) or set(stored) != {"labels", "places"}:
            raise place.wrong(stored, "labels of rows")
        labels = Labels().read(stored["labels"], place)
        places = Array("i", self.symbol, low=0).load(stored["places"], place)
        if place.describing:
            return places
        if places.max(initial=-1) >= labels.size:
            raise place.invalid("refers to labels that are missing")
        needed = labels.dtype.itemsize * places.size
        if needed > 8 * TEXT_BYTES:
            raise place.invalid(f"would take {needed:,} bytes")
        require_memory(needed, f"{place.path} of a model", MORE_MEMORY)
        return labels[places]


@dataclass(frozen=True)
class Optional:
    """None, or of another type."""

    type: FieldType

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        return None if value is None else self.type.save(value, path, writer)

    def load(self, stored: JSON, place: Place) -> Any:
        return None if stored is None else self.type.load(stored, place)


@dataclass(frozen=True)
class IfSet:
    """Of another type, where the object has the attribute."""

    type: FieldType

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        return self.type.save(value, path, writer)

    def load(self, stored: JSON, place: Place) -> Any:
        return self.type.load(stored, place)


class Either:
    """Of the first of several types that accepts it."""

    def __init__(self, *types: FieldType) -> None:
        self.types = types

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        for chosen, option in enumerate(self.types):
            try:
                return {"either": chosen, "value": option.save(value, path, writer)}
            except ValueError as error:
                refusal = error
        raise refusal

    def load(self, stored: JSON, place: Place) -> Any:
        if not isinstance(stored, dict) or set(stored) != {"either", "value"}:
            raise place.wrong(stored, "a choice of types")
        chosen = stored["either"]
        if type(chosen) is not int or not 0 <= chosen < len(self.types):
            raise place.wrong(chosen, "one of its types")
        return self.types[chosen].load(stored["value"], place)
