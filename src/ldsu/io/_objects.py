"""Objects in a file: taken apart and put together by the schemas of their classes.

A stored object names a class, and gives the parameters of an estimator and the fields that its schema lists. Loading
takes nothing else from it, calls no `__init__` but that of data classes, and looks the class up in `SCHEMAS` alone,
which `ldsu.io._schemas` fills.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import signature
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils._param_validation import validate_parameter_constraints

from ldsu._utils.memory import require_memory
from ldsu.io._fields import JSON, Either, Kind, Optional, Place, text, to_scalar
from ldsu.io.container import MORE_MEMORY, Invalid, safe_repr
from ldsu.kernels import KERNELS

MAX_DEPTH = 20
# Memory of an object of `NamedObjects` and of its name; described, it takes more than loaded.
NAMED_BYTES = 800
# Conditions, and what is wrong where one does not hold.
Checks: TypeAlias = Iterable[tuple[Any, str]]


@dataclass(frozen=True)
class Schema:
    """What an object of a class is made of."""

    # Where the class is defined. It is imported when an object is saved, loaded or described.
    module: str
    # The attributes of a fitted estimator, or the arguments of a data class. A parameter of an estimator that is among
    # them (the steps of a pipeline) is stored as a field once the estimator is fitted.
    fields: Mapping[str, Kind]
    # Built by calling the class with its fields, as data classes are. Otherwise an estimator: its attributes are set,
    # its parameters too, and `__init__` is not called.
    constructed: bool = False
    # Parameters that some versions of scikit-learn have and others have not; ignored where they are unknown.
    retired: tuple[str, ...] = ()
    # Parameters that must have this value.
    fixed: Mapping[str, Any] = field(default_factory=dict)
    # What must hold between parts of an object that are sound alone.
    check: Callable[[Any], Checks] = lambda built: ()
    # Gives rows (up to 3, d) to try an object with after loading, or None.
    rows: Callable[[Any], Any] = lambda model: None
    # The estimator that is tried with them.
    tried: Callable[[Any], Any] = lambda model: model


# The one place where a class is looked up, by the name a file gives or by an object's own. A class that is not here
# can be neither saved nor loaded.
SCHEMAS: dict[str, Schema] = {}


def load_class(name: str) -> Any:
    """The class of a schema."""
    return getattr(import_module(SCHEMAS[name].module), name)


def schema_of(value: object, path: str = "The model") -> tuple[str, Schema]:
    """Name and schema of an object's class, itself and no subclass of it."""
    name = type(value).__name__
    if name not in SCHEMAS or load_class(name) is not type(value):
        hint = " Save its best_estimator_." if hasattr(value, "best_estimator_") else ""
        supported = ", ".join(name for name, schema in SCHEMAS.items() if not schema.constructed)
        raise ValueError(
            f"{path} is a {type(value).__module__}.{name}, which cannot be saved.{hint} Supported: {supported}."
        )
    return name, SCHEMAS[name]


def save_object(value: Any, place: Place, *, fitted: bool = True) -> JSON:
    """An object as plain data: class, parameters, and fields (None where it is not fitted)."""
    name, schema = schema_of(value, place.path)
    place = replace(place, sizes={})
    fields = schema.fields if fitted else {}
    parameters = {} if schema.constructed else value.get_params(deep=False)
    for key, fixed in schema.fixed.items():
        if parameters[key] != fixed:
            raise ValueError(
                f"{place.path}.{key} is {safe_repr(parameters[key])}: a {name} can be saved with {key}={fixed} alone."
            )
    stored = {key: Parameter().save(of, place.inside(key)) for key, of in parameters.items() if key not in fields}
    attributes = {
        key: kind.save(getattr(value, key), place.inside(key))
        for key, kind in fields.items()
        if kind.required or hasattr(value, key)
    }
    return {"class": name, "parameters": stored, "fields": attributes if fitted else None}


def load_object(
    stored: JSON, place: Place, among: tuple[str, ...] | None = None, *, fitted: bool = True
) -> tuple[Any, dict[str, int]]:
    """Check what `save_object` gave, and build or describe the object; also gives the lengths found, by symbol."""
    place = replace(place, sizes={})
    name, parameters, fields = _check_names(stored, place, among, fitted=fitted)
    schema, cls = SCHEMAS[name], load_class(name)
    loaded = {key: kind.load(fields[key], place.inside(key)) for key, kind in schema.fields.items() if key in fields}
    defaults = {} if schema.constructed else _defaults(cls)
    parameters = _load_parameters(parameters, place, schema, defaults, fitted=fitted)
    if not place.device:
        changed = {key: of for key, of in parameters.items() if key not in defaults or of != defaults[key]}
        return {"class": name, "parameters": parameters, "changed": changed, "fields": loaded}, place.sizes
    values = defaults | parameters | loaded
    if "device" in values:
        values["device"] = place.device
    if schema.constructed:
        built = cls(**values)
    else:
        if schema.module.startswith("ldsu."):  # constraints of scikit-learn's own classes change with its versions
            parameters = {key: values[key] for key in defaults}
            validate_parameter_constraints(getattr(cls, "_parameter_constraints", {}), parameters, name)
        built = cls.__new__(cls)
        for key, of in values.items():
            # What one version of scikit-learn keeps, another derives.
            if not isinstance(getattr(cls, key, None), property):
                setattr(built, key, of)
    for holds, otherwise in schema.check(built) if fitted else ():
        if not holds:
            raise Invalid(f"is not a valid model: {otherwise}.")
    return built, place.sizes


def _check_names(
    stored: JSON, place: Place, among: tuple[str, ...] | None, *, fitted: bool
) -> tuple[str, dict[str, JSON], dict[str, JSON]]:
    """Class, parameters and fields of a stored object, if its schema has all their names."""
    name, parameters, fields = place.parts(stored, "an object", "class", "parameters", "fields")
    if place.path.count(".") + place.path.count("[") > MAX_DEPTH:
        raise place.invalid("is nested too deeply")
    if not isinstance(name, str) or name not in SCHEMAS or (among is not None and name not in among):
        raise place.invalid(f"is of class {safe_repr(name)}, which ldsu does not load there")
    schema = SCHEMAS[name]
    if not isinstance(parameters, dict) or (schema.constructed and parameters):
        raise place.invalid(f"has the parameters {safe_repr(parameters)}, not those of an estimator")
    if not fitted:
        if fields is not None or schema.constructed:
            raise place.invalid("is fitted where it should not be")
        return name, parameters, {}
    if not isinstance(fields, dict):
        raise place.wrong(fields, f"a fitted {name}")
    for key, kind in schema.fields.items():
        if key not in fields and kind.required:
            raise place.invalid(f"lacks {key}")
    for key in sorted(set(fields) - set(schema.fields)):
        raise place.invalid(f"has {safe_repr(key)}, which a {name} does not have")
    return name, parameters, fields


def _load_parameters(
    stored: dict[str, JSON], place: Place, schema: Schema, defaults: dict[str, Any], *, fitted: bool
) -> dict[str, Any]:
    """The stored parameters of an estimator, less those that this version does not know and need not."""
    parameters = {}
    for name, value in stored.items():
        at = place.inside(name)
        if name not in defaults and name not in schema.retired:
            raise place.invalid(
                f"has a parameter {safe_repr(name)}, which is unknown in this version. "
                "If a newer version saved it, update (pip install -U ldsu scikit-learn)"
            )
        if fitted and name in schema.fields:
            raise at.invalid("is stored twice")
        # "deprecated" stands for the default of the version that says so.
        outdated = name in schema.retired and (name not in defaults or value == "deprecated")
        if not place.device or not outdated:
            parameters[name] = Parameter().load(value, at)
    for name, fixed in schema.fixed.items():
        if parameters.get(name, defaults[name]) != fixed:
            raise place.inside(name).wrong(stored[name], str(fixed))
    return parameters


def _defaults(cls: Any) -> dict[str, Any]:
    """Parameters of an estimator's class; None for those without a default."""
    arguments = signature(cls.__init__).parameters
    defaults = {name: arguments[name].default for name in cls._get_param_names()}
    return {name: None if default is arguments[name].empty else default for name, default in defaults.items()}


class Object(Kind):
    """An object of one of some classes; `same` are symbols of its lengths, and those they have in the object around."""

    def __init__(self, *names: str, **same: str) -> None:
        self.names = names
        self.same = same

    def save(self, value: Any, place: Place) -> JSON:
        if schema_of(value, place.path)[0] not in self.names:
            raise ValueError(
                f"{place.path} is a {type(value).__name__}, which cannot be saved in this model: "
                f"supported are {', '.join(self.names)}."
            )
        return save_object(value, place)

    def load(self, stored: JSON, place: Place) -> Any:
        loaded, inner = load_object(stored, place, self.names)
        place.check_lengths({outer: inner[symbol] for symbol, outer in self.same.items() if symbol in inner})
        return loaded


class Objects(Kind):
    """A tuple of objects of some classes of `SCHEMAS`."""

    def __init__(self, *names: str) -> None:
        self.kind = Object(*names)

    def save(self, value: Any, place: Place) -> JSON:
        return [self.kind.save(part, place.inside(i)) for i, part in enumerate(value)]

    def load(self, stored: JSON, place: Place) -> tuple[Any, ...]:
        return tuple(self.kind.load(part, place.inside(i)) for i, part in enumerate(place.list(stored)))


class NamedObjects(Objects):
    """A tuple of data objects of which very many differ in their `name` alone: those are stored once.

    The names are one text, a line each, and so are the objects' places among the different ones: 2,000,000 columns are
    three values of a header. Format 1 stored a list of objects.
    """

    def save(self, value: Any, place: Place) -> JSON:
        but_name = attrgetter(*(key for key in SCHEMAS[self.kind.names[0]].fields if key != "name"))
        first: dict[Any, Any] = {}
        for part in value:
            first.setdefault(but_name(part), part)
        position = {key: of for of, key in enumerate(first)}
        return {
            "different": super().save([replace(part, name="") for part in first.values()], place),
            "names": "\n".join(part.name.replace("\\", "\\\\").replace("\n", "\\n") for part in value),
            "places": " ".join(str(position[but_name(part)]) for part in value),
        }

    def load(self, stored: JSON, place: Place) -> tuple[Any, ...]:
        if isinstance(stored, list):
            return super().load(stored, place)
        stored_different, names, places = place.parts(stored, "a list of names", "different", "names", "places")
        n_different = len(place.list(stored_different))
        if not isinstance(names, str) or not isinstance(places, str) or not re.fullmatch(r"[0-9 ]*", places):
            raise place.wrong(stored, "a list of names")
        n = places.count(" ") + 1 if places else 0
        if names.count("\n") + 1 != max(n, 1) or (names and not n):
            raise place.invalid(f"has {names.count(chr(10)) + 1} names for {n} columns")
        require_memory(n * NAMED_BYTES, f"A model of {n:,} columns", MORE_MEMORY)
        found = [int(index) if 0 < len(index) < 10 else n_different for index in places.split(" ")] if n else []
        if max(found, default=-1) >= n_different:
            raise place.invalid("refers to columns that are missing")
        different: Any = super().load(stored_different, place)
        parts = zip((_unescaped(name) for name in names.split("\n")), (different[of] for of in found), strict=False)
        if place.device:
            return tuple(replace(part, name=name) for name, part in parts)
        return tuple({**part, "fields": {**part["fields"], "name": name}} for name, part in parts)


def _unescaped(name: str) -> str:
    return re.sub(r"\\([\\n])", lambda found: "\n" if found[1] == "n" else "\\", name) if "\\" in name else name


class Steps(Kind):
    """The steps of a pipeline: names, and estimators or "passthrough"."""

    def __init__(self, *names: str) -> None:
        self.kind = Either(Object(*names), Optional(text("passthrough")))

    def save(self, value: Any, place: Place) -> JSON:
        return [[str(name), self.kind.save(step, place.inside(i))] for i, (name, step) in enumerate(value)]

    def load(self, stored: JSON, place: Place) -> Any:
        pairs = place.list(stored)
        named = all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs)
        if not pairs or not named:
            raise place.wrong(stored, "a list of named steps")
        if len({name for name, _ in pairs}) < len(pairs):
            raise place.invalid("has two steps with the same name")
        steps = [(name, self.kind.load(step, place.inside(i))) for i, (name, step) in enumerate(pairs)]
        return steps if place.device else dict(steps)


class Parameter(Kind):
    """A parameter of an estimator: a number, a text, None, lists and tables of these, or an estimator, not fitted.

    What JSON has not is a table with one entry that says what it is.
    """

    def save(self, value: Any, place: Place) -> JSON:
        value = to_scalar(value)
        if value is None or isinstance(value, (int, str)):
            return value
        if isinstance(value, float):
            return value if np.isfinite(value) else {"float": str(value)}
        if isinstance(value, (list, tuple)):
            parts = [self.save(part, place.item(i)) for i, part in enumerate(value)]
            return {"tuple" if type(value) is tuple else "list": parts}
        if isinstance(value, dict):
            items = ((place.item(repr(name)), name, of) for name, of in value.items())
            return {"dict": [[self.save(name, at), self.save(of, at)] for at, name, of in items]}
        if hasattr(value, "get_params") and not isinstance(value, type):
            return {"estimator": save_object(value, place, fitted=False)}
        if callable(value):
            raise ValueError(
                f"{place.path} is the function {getattr(value, '__name__', value)}, and a model file cannot store "
                f"code. Supported kernels: {', '.join(KERNELS)}."
            )
        raise ValueError(
            f"{place.path} is {safe_repr(value)}, which a model file cannot store: supported parameters are numbers, "
            "strings, and lists and dicts of these."
        )

    def load(self, stored: JSON, place: Place) -> Any:
        if not isinstance(stored, (dict, list)):
            return stored
        if place.path.count("[") > MAX_DEPTH:
            raise place.invalid("is nested too deeply")
        ((what, value),) = stored.items() if isinstance(stored, dict) and len(stored) == 1 else (("", None),)
        if what == "estimator":
            estimator, _ = load_object(value, place, fitted=False)
            return estimator if place.device else {key: estimator[key] for key in ("class", "parameters")}
        if what == "float" and value in ("inf", "-inf", "nan"):
            return float(value)
        if what in ("list", "tuple"):
            parts = (self.load(part, place.item()) for part in place.list(value))
            return tuple(parts) if what == "tuple" else list(parts)
        if what != "dict":
            raise place.wrong(stored, "a parameter")
        pairs = [place.list(pair) for pair in place.list(value)]
        if any(len(pair) != 2 or isinstance(pair[0], (dict, list)) for pair in pairs):
            raise place.wrong(stored, "a table")
        return {name: self.load(of, place.item()) for name, of in pairs}
