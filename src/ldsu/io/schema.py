"""What a schema is: the fields of a class, and how each of them becomes plain data and arrays and comes back.

`SCHEMAS` is the table of all of them. This module knows no class and no kind of field; `ldsu.io.kinds` and
`ldsu.io.records` have the kinds, and `ldsu.io.classes` fills the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ldsu.io.container import Entry, Invalid, error_text, safe_repr

# Plain data, as JSON has it.
JSON = Any


class Writer:
    """Arrays collected while a model is serialized. An array shared by several attributes is stored once."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}

    def store(self, array: np.ndarray, place: str) -> JSON:
        """Store an array under its path; returns a reference to it with its memory order."""
        name = self._names.setdefault(id(array), place)
        self.arrays[name] = array
        # Products of matrices round differently in the other order.
        fortran = array.ndim == 2 and array.strides[0] < array.strides[1] and min(array.shape) > 1
        return {"array": name, "order": "F"} if fortran else {"array": name}


class Reader:
    """Arrays of a file, and the names of those used."""

    def __init__(self, arrays: Mapping[str, np.ndarray], device: str) -> None:
        self.device = device
        self.used: set[str] = set()
        self._arrays = dict(arrays)
        self._fortran: dict[str, np.ndarray] = {}

    def take(self, stored: JSON, place: str) -> np.ndarray:
        """The array that `Writer.store` stored."""
        name, fortran = reference(stored, place)
        if name not in self._arrays:
            raise Invalid(f"is not a valid model: {at(place)} is in array {safe_repr(name)}, which is missing.")
        self.used.add(name)
        if not fortran:
            return self._arrays[name]
        if name not in self._fortran:
            self._fortran[name] = np.asfortranarray(self._arrays[name])
        return self._fortran[name]


def reference(stored: JSON, place: str) -> tuple[str, bool]:
    """Name of a stored array, and whether it lies by columns in memory."""
    if not isinstance(stored, dict) or not {"array"} <= set(stored) <= {"array", "order"}:
        raise wrong_value(place, stored, "an array")
    name, order = stored["array"], stored.get("order", "C")
    if not isinstance(name, str) or order not in ("C", "F"):
        raise wrong_value(place, stored, "an array")
    return name, order == "F"


def wrong_value(place: str, stored: JSON, expected: str) -> Invalid:
    """Error for a value of the wrong type or range."""
    return Invalid(f"is not a valid model: {at(place)} is {safe_repr(stored)}, not {expected}.")


def at(place: str) -> str:
    """A path in messages: the end of it, if long."""
    return place if len(place) <= 60 else f"...{place[-57:]}"


@contextmanager
def reject_build_errors() -> Iterator[None]:
    """Turn errors while a model is built from a checked record into `Invalid`."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Invalid(f"is not a valid model ({type(error).__name__}: {error_text(error)}).") from error


class Kind(Protocol):
    """How one field is stored: as plain data, its arrays apart."""

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """Serialize a value; raises a ValueError if it is not of this kind."""

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> Any:
        """Validate and deserialize the result of `save`. `sizes` are the lengths found so far, by symbol."""

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """Description of the value, without arrays."""


@dataclass(frozen=True)
class Field:
    """An attribute and its kind. One that may be `missing` is saved where the object has it."""

    name: str
    kind: Kind
    missing: bool = False


@dataclass(frozen=True)
class Schema:
    """What an object of a class is made of.

    Attributes
    ----------
    load_class : callable
        Gives the class. It is imported when it is needed.
    fields : tuple of Field
    constructed : bool
        Built by calling the class with its fields, as data classes are. Otherwise an estimator: its attributes are set,
        its parameters too, and `__init__` is not called.
    stored_as_fields : tuple of str
        Parameters that are among the fields once the estimator is fitted.
    retired : tuple of str
        Parameters that some versions of scikit-learn have and others have not; ignored where they are unknown.
    only : mapping of str to value
        Parameters that must have this value.
    check : callable or None
        ``check(object, sizes)`` raises `Invalid` if parts that are sound alone do not fit together.
    probe : callable or None
        ``probe(object)`` gives rows (up to 3, d) to try the object with after loading, or None.
    answers : callable or None
        ``answers(object, rows)`` are arrays by name that must come out the same there; None: `transform` and
        `decision_function`.
    """

    load_class: Callable[[], type]
    fields: tuple[Field, ...]
    constructed: bool = False
    stored_as_fields: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    only: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[[Any, dict[str, int]], None] | None = None
    probe: Callable[[Any], Any] | None = None
    answers: Callable[[Any, Any], dict[str, Any]] | None = None


# The one place where a class is looked up, by the name a file gives or by an object's own. A class that is not here
# can be neither saved nor loaded.
SCHEMAS: dict[str, Schema] = {}


def schema_of(value: Any, place: str) -> tuple[str, Schema]:
    """Name and schema of an object's class, itself and no subclass of it."""
    name = type(value).__name__
    schema = SCHEMAS.get(name)
    if schema is None or schema.load_class() is not type(value):
        hint = " Save its best_estimator_." if hasattr(value, "best_estimator_") else ""
        can = ", ".join(name for name, schema in SCHEMAS.items() if not schema.constructed)
        raise ValueError(
            f"{place} is a {type(value).__module__}.{name}, which cannot be saved.{hint} Supported: {can}."
        )
    return name, schema
