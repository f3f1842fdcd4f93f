"""Kinds of fields: how a value becomes plain data and arrays, and what it must be to come back.

A kind encodes a value, and loads what it encoded only if it is what it should be. The same checks serve saving, which
loads what it encoded, and describing, which has the header's entries in place of arrays and builds nothing. Kinds of
fields that hold objects are in `ldsu.io._objects`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse

from ldsu._utils.memory import require_memory
from ldsu.io.container import MORE_MEMORY, Entry, Invalid, safe_repr

# Plain data, as JSON has it.
JSON: TypeAlias = Any
# Memory of an array of strings, in which each takes as much as the longest.
TEXT_BYTES = 2**27
# Letters that the type of labels keeps where none of them is so long: each prediction takes memory for all of them.
SPARE_LETTERS = 256
LABEL_TYPES: dict[str, type] = {
    **{"str": str, "object": str, "bool": bool},
    **dict.fromkeys(("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"), int),
    **dict.fromkeys(("float64", "float32", "float16"), float),
}


@dataclass(frozen=True)
class Place:
    """Where a value stands in a model that is saved, loaded or described, and the arrays of the file."""

    # Names of the fields down to the value.
    path: str
    # Arrays of the file, or their entries in its header to describe it.
    arrays: dict[str, Any] = field(default_factory=dict)
    # Where features will be computed; None to save or describe.
    device: str | None = None
    saving: bool = False
    # Names of the arrays that were taken.
    used: set[str] = field(default_factory=set)
    # Lengths found so far in the object around the value, by symbol.
    sizes: dict[str, int] = field(default_factory=dict)
    # Names of the arrays that were stored, by id; arrays in Fortran order, by name.
    _stored: dict[int, str] = field(default_factory=dict)
    _fortran: dict[str, np.ndarray] = field(default_factory=dict)

    def store(self, array: np.ndarray) -> JSON:
        """Store an array, once if several attributes share it; returns a reference to it with its memory order."""
        name = self._stored.setdefault(id(array), self.path)
        self.arrays[name] = array
        # Products of matrices round differently in the other order.
        fortran = array.ndim == 2 and array.strides[0] < array.strides[1] and min(array.shape) > 1
        return {"array": name, "order": "F"} if fortran else {"array": name}

    def take(self, stored: JSON) -> np.ndarray | Entry:
        """The array that `store` stored."""
        name, order = (stored.get("array"), stored.get("order", "C")) if isinstance(stored, dict) else (None, None)
        if not isinstance(name, str) or order not in ("C", "F") or not set(stored) <= {"array", "order"}:
            raise self.wrong(stored, "an array")
        if name not in self.arrays:
            raise self.invalid(f"is in array {safe_repr(name)}, which is missing")
        self.used.add(name)
        array: np.ndarray | Entry = self.arrays[name]
        if order == "C" or not self.device:
            return array
        if name not in self._fortran:
            self._fortran[name] = np.asfortranarray(array)
        return self._fortran[name]

    def inside(self, name: object) -> Place:
        """The place of a part of the value."""
        return replace(self, path=f"{self.path}.{name}")

    def item(self, key: object = "") -> Place:
        """The place of an item of the value."""
        return replace(self, path=f"{self.path}[{key}]")

    def parts(self, stored: JSON, expected: str, *names: str) -> list[JSON]:
        """The values of a table with exactly these names."""
        if not isinstance(stored, dict) or set(stored) != set(names):
            raise self.wrong(stored, expected)
        return [stored[name] for name in names]

    def list(self, stored: JSON) -> list[JSON]:
        """A list, as stored."""
        if not isinstance(stored, list):
            raise self.wrong(stored, "a list")
        return stored

    def invalid(self, problem: str) -> Exception:
        """An error about the value; of a long path the message has the end."""
        if self.saving:
            return ValueError(f"{self.path} {problem}: this model cannot be saved.")
        at = self.path if len(self.path) <= 60 else f"...{self.path[-57:]}"
        return Invalid(f"is not a valid model: {at} {problem}.")

    def wrong(self, value: object, expected: str) -> Exception:
        """An error about a value of the wrong type or range."""
        return self.invalid(f"is {safe_repr(value)}, not {expected}")

    def check_lengths(self, lengths: dict[str, int]) -> None:
        """Record lengths by symbol, and reject one that differs from a previous length."""
        for symbol, length in lengths.items():
            if self.sizes.setdefault(symbol, length) != length:
                raise self.invalid(f"has a length of {length} where {self.sizes[symbol]} is needed")


class Kind:
    """How one field is stored: as plain data, its arrays apart."""

    # Whether an object must have the field.
    required = True

    def encode(self, value: Any, place: Place) -> JSON:
        """Serialize a value, which need not be of this kind."""
        return to_json(value, place.path)

    def save(self, value: Any, place: Place) -> JSON:
        """Serialize a value; raises a ValueError if it could not be loaded."""
        stored = self.encode(value, place)
        self.load(stored, place)
        return stored

    def load(self, stored: JSON, place: Place) -> Any:
        """Validate what was stored, and deserialize it, or describe it if `place.device` is None."""
        raise NotImplementedError


def if_set(kind: Kind) -> Kind:
    """The kind of a field that not every object has."""
    kind = copy(kind)
    kind.required = False
    return kind


def to_scalar(value: object) -> object:
    """NumPy's numbers, truth values and texts made Python's; anything else unchanged."""
    if isinstance(value, np.floating):
        return float(value)  # of a long double, `item` is another one
    return value.item() if isinstance(value, (np.number, np.bool_, np.str_)) else value


def to_json(value: object, path: str) -> JSON:
    """Plain data with NumPy's numbers and arrays of objects made Python's; anything else is a ValueError."""
    value = value.tolist() if isinstance(value, np.ndarray) and value.dtype == object else to_scalar(value)
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and np.isfinite(value)):
        return value
    if isinstance(value, (list, tuple)):
        return [to_json(part, f"{path}[{i}]") for i, part in enumerate(value)]
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise ValueError(f"{path} has the key {safe_repr(name)}, but keys in a model file are strings.")
        return {str(name): to_json(part, f"{path}.{name}") for name, part in value.items()}
    raise ValueError(
        f"{path} is {safe_repr(value)}, which a model file cannot store: use numbers, strings, lists and dicts."
    )


@dataclass
class Plain(Kind):
    """Plain data that `accepts` accepts, `convert` makes the attribute of, and a symbol for its length or value."""

    expected: str = "plain data"
    accepts: Callable[[JSON], bool] = lambda stored: True
    convert: Callable[[JSON], Any] = lambda stored: stored
    symbol: str = ""

    def load(self, stored: JSON, place: Place) -> Any:
        if not self.accepts(stored):
            raise place.wrong(stored, self.expected)
        if self.symbol:
            place.check_lengths({self.symbol: stored if isinstance(stored, int) else len(stored)})
        return self.convert(stored) if place.device else stored


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


def strings(symbol: str) -> Plain:
    """An array of texts, as scikit-learn keeps the names of columns: of type object."""
    return Plain("a list of texts", _is_texts, lambda stored: np.array(stored, dtype=object), symbol)


def _is_image_shape(stored: JSON) -> bool:
    sides = isinstance(stored, list) and all(type(side) is int and 0 < side < 2**16 for side in stored)
    return sides and (len(stored) == 2 or (len(stored) == 3 and stored[2] == 3))


def _is_output_config(stored: JSON) -> bool:
    containers = ("default", "pandas", "polars", None)
    return isinstance(stored, dict) and set(stored) <= {"transform"} and all(of in containers for of in stored.values())


ANYTHING = Plain()
BOOLEAN = Plain("true or false", lambda stored: isinstance(stored, bool))
TEXTS = Plain("a list of texts", _is_texts, tuple)
# Height and width, and 3 where the image is colored.
IMAGE_SHAPE = Plain("the shape of an image", _is_image_shape, tuple)
# What `set_output` set.
OUTPUT_CONFIG = Plain("a container for features", _is_output_config)


class Array(Kind):
    """An array: the kinds of numbers it may hold ("f", "i"), and a symbol for each of its dimensions, as in "n d".

    ``"n+1"`` is one longer than n. Equal symbols within a record are equal lengths. All numbers are finite, and
    whole ones at least `low`.
    """

    def __init__(self, kinds: str, shape: str, low: int | None = None) -> None:
        self.kinds, self.shape, self.low = kinds, shape.split(), low
        names = " or ".join({"f": "numbers", "i": "whole numbers"}[kind] for kind in kinds)
        self.expected = f"an array of {names} with {len(self.shape)} dimension(s)"

    def encode(self, value: Any, place: Place) -> JSON:
        if not isinstance(value, np.ndarray):
            raise place.wrong(value, self.expected)
        small = value.dtype.kind == "i" and value.dtype.itemsize < 4
        return place.store(value.astype(np.int32) if small else value)

    def load(self, stored: JSON, place: Place) -> Any:
        array = place.take(stored)
        if array.dtype.kind not in self.kinds or len(array.shape) != len(self.shape):
            raise place.wrong(f"{array.dtype} {array.shape}", self.expected)
        lengths = zip(self.shape, array.shape, strict=True)
        place.check_lengths({symbol.removesuffix("+1"): length - symbol.endswith("+1") for symbol, length in lengths})
        if isinstance(array, np.ndarray):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise place.invalid(f"holds NaN or infinity{'; rescale the data and fit again' * place.saving}")
            if self.low is not None and array.min(initial=self.low) < self.low:
                raise place.invalid(f"goes down to {array.min()}, below {self.low}")
        return array if place.device else f"{array.dtype} {array.shape}"


def arrays(kinds: str, low: int | None = None, **shapes: str) -> dict[str, Kind]:
    """Fields that are arrays of the same kinds of numbers, with their shapes."""
    return {name: Array(kinds, shape, low) for name, shape in shapes.items()}


@dataclass
class Sparse(Kind):
    """A sparse matrix by rows, with a symbol for each of its dimensions."""

    rows: str
    columns: str

    def encode(self, value: Any, place: Place) -> JSON:
        if not scipy.sparse.issparse(value) or value.format != "csr":
            raise place.wrong(value, "a sparse matrix by rows")
        return {
            "sparse": "array" if isinstance(value, scipy.sparse.sparray) else "matrix",
            "columns": int(value.shape[1]),
            **{name: place.inside(name).store(getattr(value, name)) for name in ("data", "indices", "indptr")},
        }

    def load(self, stored: JSON, place: Place) -> Any:
        kind, columns, *arrays = place.parts(
            stored, "a sparse matrix", "sparse", "columns", "data", "indices", "indptr"
        )
        if kind not in ("array", "matrix"):
            raise place.wrong(stored, "a sparse matrix")
        integer(self.columns).load(columns, place.inside("columns"))
        own = replace(place, sizes={})
        data = Array("f", "entries").load(arrays[0], own.inside("data"))
        indices = Array("i", "entries", low=0).load(arrays[1], own.inside("indices"))
        indptr = Array("i", "rows+1", low=0).load(arrays[2], own.inside("indptr"))
        rows = own.sizes["rows"]
        place.check_lengths({self.rows: rows})
        if not place.device:
            return f"sparse ({rows}, {columns})"
        if rows < 0 or not is_nondecreasing(indptr, data.size) or indices.max(initial=-1) >= columns:
            raise place.invalid("has indices that are out of range")
        make = scipy.sparse.csr_array if kind == "array" else scipy.sparse.csr_matrix
        return make((data, indices, indptr), shape=(rows, columns))


class Samples(Kind):
    """Samples by rows, as an array or as a sparse matrix, with a symbol for each of the dimensions."""

    def __init__(self, rows: str, columns: str) -> None:
        self.array, self.sparse = Array("f", f"{rows} {columns}"), Sparse(rows, columns)

    def encode(self, value: Any, place: Place) -> JSON:
        return (self.sparse if scipy.sparse.issparse(value) else self.array).encode(value, place)

    def load(self, stored: JSON, place: Place) -> Any:
        is_sparse = isinstance(stored, dict) and "sparse" in stored
        return (self.sparse if is_sparse else self.array).load(stored, place)


def is_nondecreasing(starts: np.ndarray, end: int) -> bool:
    """Whether these places go from 0 to `end` without a step back."""
    return bool(starts.size and starts[0] == 0 and starts[-1] == end and (np.diff(starts) >= 0).all())


class Labels(Kind):
    """Classes: whole numbers, floats, truth values or texts, each once, ascending, with their type kept."""

    def encode(self, value: Any, place: Place) -> JSON:
        labels = np.asarray(value)
        if labels.ndim != 1:
            raise place.wrong(value, "a list of labels")
        dtype = "str" if labels.dtype.kind == "U" else labels.dtype.name
        width = labels.dtype.itemsize // 4 if dtype == "str" else 0
        return {"dtype": dtype, "width": width, "values": [to_scalar(part) for part in labels.tolist()]}

    def load(self, stored: JSON, place: Place) -> Any:
        dtype, width, values = place.parts(stored, "a list of labels", "dtype", "width", "values")
        if not isinstance(values, list) or not integer().accepts(width):
            raise place.wrong(stored, "a list of labels")
        if not isinstance(dtype, str) or dtype not in LABEL_TYPES:
            raise place.invalid(f"has type {safe_repr(dtype)}, not one of labels")
        if not all(type(part) is LABEL_TYPES[dtype] for part in values):
            raise place.invalid(f"holds labels that are not of type {dtype}")
        if dtype == "str":
            longest = max(map(len, values), default=0)
            if width * 4 * len(values) > TEXT_BYTES or width < longest:
                raise place.invalid(f"has {len(values)} labels of up to {longest} characters in a type of {width}")
            dtype = f"<U{max(1, min(width, max(longest, SPARE_LETTERS)))}"
        labels = np.array(values, dtype=dtype)
        if np.unique(labels).size != labels.size:
            raise place.invalid("contains a label twice")
        place.check_lengths({"c": labels.size})
        return labels if place.device else values


@dataclass
class RowLabels(Kind):
    """A label for each of many rows: the labels once, and the place of each row's among them."""

    symbol: str

    def encode(self, value: Any, place: Place) -> JSON:
        labels, places = np.unique(np.asarray(value), return_inverse=True)
        return {"labels": Labels().encode(labels, place), "places": place.store(places.astype(np.int32))}

    def load(self, stored: JSON, place: Place) -> Any:
        stored_labels, stored_places = place.parts(stored, "labels of rows", "labels", "places")
        labels = Labels().load(stored_labels, replace(place, sizes={}))
        places = Array("i", self.symbol, low=0).load(stored_places, place)
        if not place.device:
            return places
        if places.max(initial=-1) >= labels.size:
            raise place.invalid("refers to labels that are missing")
        needed = labels.dtype.itemsize * places.size
        if needed > 8 * TEXT_BYTES:
            raise place.invalid(f"would take {needed:,} bytes")
        require_memory(needed, f"{place.path} of a model", MORE_MEMORY)
        return labels[places]


@dataclass
class Optional(Kind):
    """None, or of another kind."""

    kind: Kind

    def save(self, value: Any, place: Place) -> JSON:
        return None if value is None else self.kind.save(value, place)

    def load(self, stored: JSON, place: Place) -> Any:
        return None if stored is None else self.kind.load(stored, place)


class Either(Kind):
    """Of the first of several kinds that accepts it; if none does, the error is that of the first."""

    def __init__(self, *kinds: Kind) -> None:
        self.kinds = kinds

    def save(self, value: Any, place: Place) -> JSON:
        refusals = []
        for chosen, kind in enumerate(self.kinds):
            try:
                return {"either": chosen, "value": kind.save(value, place)}
            except ValueError as error:
                refusals.append(error)
        raise refusals[0]

    def load(self, stored: JSON, place: Place) -> Any:
        chosen, value = place.parts(stored, "a choice of types", "either", "value")
        if type(chosen) is not int or not 0 <= chosen < len(self.kinds):
            raise place.wrong(chosen, "one of its types")
        return self.kinds[chosen].load(value, place)
