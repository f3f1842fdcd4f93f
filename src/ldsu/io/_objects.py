"""Objects in a file: taken apart and put together by the schemas of their classes.

A stored object names a class, and gives the parameters of an estimator and the fields that its schema lists. Loading
takes nothing else from it, calls no `__init__` but that of data classes, and looks the class up in `SCHEMAS` alone,
which `ldsu.io._schemas` fills.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import signature
from operator import attrgetter
from typing import Any

import numpy as np
from sklearn.utils._param_validation import validate_parameter_constraints

from ldsu._utils.memory import require_memory
from ldsu.io._fields import (
    JSON,
    MORE_MEMORY,
    Either,
    FieldType,
    IfSet,
    Optional,
    Place,
    Writer,
    short_repr,
    text,
    to_json,
)
from ldsu.io.container import Invalid, error_text, safe_repr
from ldsu.kernels import KERNELS

MAX_DEPTH = 20
# Memory of an object of `NamedObjects` and of its name; described, it takes more than loaded.
NAMED_BYTES = 800


@dataclass(frozen=True)
class Schema:
    """What an object of a class is made of."""

    # Where the class is defined. It is imported when an object is saved, loaded or described.
    module: str
    # The attributes of a fitted estimator, or the arguments of a data class. A parameter of an estimator that is among
    # them (the steps of a pipeline) is stored as a field once the estimator is fitted.
    fields: Mapping[str, FieldType]
    # Built by calling the class with its fields, as data classes are. Otherwise an estimator: its attributes are set,
    # its parameters too, and `__init__` is not called.
    constructed: bool = False
    # Parameters that some versions of scikit-learn have and others have not; ignored where they are unknown.
    retired: tuple[str, ...] = ()
    # Parameters that must have this value.
    fixed: Mapping[str, Any] = field(default_factory=dict)
    # What must hold between parts of an object that are sound alone: conditions, and what is wrong otherwise.
    check: Callable[[Any], Iterable[tuple[Any, str]]] | None = None
    # Gives rows (up to 3, d) to try an object with after loading, or None.
    rows: Callable[[Any], Any] | None = None
    # Arrays by name that must come out the same for these rows; None: `transform` and `decision_function`.
    outputs: Callable[[Any, Any], dict[str, Any]] | None = None


# The one place where a class is looked up, by the name a file gives or by an object's own. A class that is not here
# can be neither saved nor loaded.
SCHEMAS: dict[str, Schema] = {}


def load_class(name: str) -> Any:
    """The class of a schema."""
    return getattr(import_module(SCHEMAS[name].module), name)


def schema_of(value: object, path: str) -> tuple[str, Schema]:
    """Name and schema of an object's class, itself and no subclass of it."""
    name = type(value).__name__
    if name not in SCHEMAS or load_class(name) is not type(value):
        hint = " Save its best_estimator_." if hasattr(value, "best_estimator_") else ""
        supported = ", ".join(name for name, schema in SCHEMAS.items() if not schema.constructed)
        raise ValueError(
            f"{path} is a {type(value).__module__}.{name}, which cannot be saved.{hint} Supported: {supported}."
        )
    return name, SCHEMAS[name]


@contextmanager
def reject_build_errors() -> Iterator[None]:
    """Turn errors while a model is built from a checked record into `Invalid`."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Invalid(f"is not a valid model ({type(error).__name__}: {error_text(error)}).") from error


def save_object(value: Any, path: str, writer: Writer, *, fitted: bool = True) -> JSON:
    """An object as plain data, its arrays in `writer`: class, parameters, and fields (None where it is not fitted)."""
    name, schema = schema_of(value, path)
    fields = schema.fields if fitted else {}
    parameters = {} if schema.constructed else value.get_params(deep=False)
    for key, fixed in schema.fixed.items():
        if parameters[key] != fixed:
            raise ValueError(
                f"{path}.{key} is {short_repr(parameters[key])}: a {name} can be saved with {key}={fixed} alone."
            )
    stored = {key: Parameter().save(of, f"{path}.{key}", writer) for key, of in parameters.items() if key not in fields}
    attributes = {
        key: of.save(getattr(value, key), f"{path}.{key}", writer)
        for key, of in fields.items()
        if not isinstance(of, IfSet) or hasattr(value, key)
    }
    return {"class": name, "parameters": stored, "fields": attributes if fitted else None}


def load_object(
    stored: JSON, place: Place, among: tuple[str, ...] | None = None, *, fitted: bool = True
) -> tuple[Any, dict[str, int]]:
    """Check what `save_object` gave, and build or describe the object; also gives the lengths found, by symbol."""
    place = replace(place, sizes={})
    schema = _check_names(stored, place, among, fitted=fitted)
    fields = {
        key: of.load(stored["fields"][key], place.inside(key))
        for key, of in (schema.fields.items() if fitted else ())
        if key in stored["fields"]
    }
    defaults = {} if schema.constructed else _defaults(load_class(stored["class"]))
    parameters = _load_parameters(stored["parameters"], place, schema, defaults, fitted=fitted)
    if place.describing:
        changed = {key: of for key, of in parameters.items() if key not in defaults or of != defaults[key]}
        description = {"class": stored["class"], "parameters": parameters, "changed": changed, "fields": fields}
        return description, place.sizes
    cls = load_class(stored["class"])
    if schema.constructed:
        built = cls(**fields)
    else:
        parameters = defaults | parameters
        if "device" in parameters:
            parameters["device"] = place.device
        if schema.module.startswith("ldsu."):  # constraints of scikit-learn's own classes change with its versions
            validate_parameter_constraints(getattr(cls, "_parameter_constraints", {}), parameters, cls.__name__)
        built = cls.__new__(cls)
        for key, of in (parameters | fields).items():
            # What one version of scikit-learn keeps, another derives.
            if not isinstance(getattr(cls, key, None), property):
                setattr(built, key, of)
    for holds, otherwise in schema.check(built) if fitted and schema.check else ():
        if not holds:
            raise Invalid(f"is not a valid model: {otherwise}.")
    return built, place.sizes


def _check_names(stored: JSON, place: Place, among: tuple[str, ...] | None, *, fitted: bool) -> Schema:
    """The schema of a stored object, whose names are all in it."""
    if not isinstance(stored, dict) or set(stored) != {"class", "parameters", "fields"}:
        raise place.wrong(stored, "an object")
    if place.path.count(".") + place.path.count("[") > MAX_DEPTH:
        raise place.invalid("is nested too deeply")
    name, fields = stored["class"], stored["fields"]
    if not isinstance(name, str) or name not in SCHEMAS or (among is not None and name not in among):
        raise place.invalid(f"is of class {safe_repr(name)}, which ldsu does not load there")
    schema = SCHEMAS[name]
    if not isinstance(stored["parameters"], dict) or (schema.constructed and stored["parameters"]):
        raise place.invalid(f"has the parameters {safe_repr(stored['parameters'])}, not those of an estimator")
    if not fitted:
        if fields is not None or schema.constructed:
            raise place.invalid("is fitted where it should not be")
        return schema
    if not isinstance(fields, dict):
        raise place.wrong(fields, f"a fitted {name}")
    for key, of in schema.fields.items():
        if key not in fields and not isinstance(of, IfSet):
            raise place.invalid(f"lacks {key}")
    for key in sorted(set(fields) - set(schema.fields)):
        raise place.invalid(f"has {safe_repr(key)}, which a {name} does not have")
    return schema


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
        if place.describing or not outdated:
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


class Object:
    """An object of one of some classes; `same` are symbols of its lengths, and those they have in the object around."""

    def __init__(self, *names: str, **same: str) -> None:
        self.names = names
        self.same = same

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        if schema_of(value, path)[0] not in self.names:
            raise ValueError(
                f"{path} is a {type(value).__name__}, which cannot be saved in this model: "
                f"supported are {', '.join(self.names)}."
            )
        return save_object(value, path, writer)

    def load(self, stored: JSON, place: Place) -> Any:
        loaded, inner = load_object(stored, place, self.names)
        place.check_lengths({outer: inner[symbol] for symbol, outer in self.same.items() if symbol in inner})
        return loaded


class Objects:
    """A tuple of objects of some classes of `SCHEMAS`."""

    def __init__(self, *names: str) -> None:
        self.type = Object(*names)

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        return [self.type.save(part, f"{path}.{i}", writer) for i, part in enumerate(value)]

    def load(self, stored: JSON, place: Place) -> tuple[Any, ...]:
        return tuple(self.type.load(part, place.inside(i)) for i, part in enumerate(_list(stored, place)))


class NamedObjects(Objects):
    """A tuple of data objects of which very many differ in their `name` alone: those are stored once.

    The names are one text, a line each, and so are the objects' places among the different ones: 2,000,000 columns are
    three values of a header. Format 1 stored a list of objects.
    """

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        but_name = attrgetter(*(key for key in SCHEMAS[self.type.names[0]].fields if key != "name"))
        first: dict[Any, Any] = {}
        for part in value:
            first.setdefault(but_name(part), part)
        position = {key: of for of, key in enumerate(first)}
        return {
            "different": super().save([replace(part, name="") for part in first.values()], path, writer),
            "names": "\n".join(part.name.replace("\\", "\\\\").replace("\n", "\\n") for part in value),
            "places": " ".join(str(position[but_name(part)]) for part in value),
        }

    def load(self, stored: JSON, place: Place) -> tuple[Any, ...]:
        if isinstance(stored, list):
            return super().load(stored, place)
        names, places = self._parts(stored, place)
        different: Any = super().load(stored["different"], place)
        if place.describing:
            parts = zip(names, (different[of] for of in places), strict=True)
            return tuple({**part, "fields": {**part["fields"], "name": name}} for name, part in parts)
        return tuple(replace(different[of], name=name) for name, of in zip(names, places, strict=True))

    def _parts(self, stored: JSON, place: Place) -> tuple[list[str], list[int]]:
        """The names, and the place of each object among the different ones."""
        if not isinstance(stored, dict) or set(stored) != {"different", "names", "places"}:
            raise place.wrong(stored, "a list of names")
        names, places, n_different = stored["names"], stored["places"], len(_list(stored["different"], place))
        if not isinstance(names, str) or not isinstance(places, str) or not re.fullmatch(r"[0-9 ]*", places):
            raise place.wrong(stored, "a list of names")
        n = places.count(" ") + 1 if places else 0
        if names.count("\n") + 1 != max(n, 1) or (names and not n):
            raise place.invalid(f"has {names.count(chr(10)) + 1} names for {n} columns")
        require_memory(n * NAMED_BYTES, f"A model of {n:,} columns", MORE_MEMORY)
        found = [int(index) if 0 < len(index) < 10 else n_different for index in places.split(" ")] if n else []
        if max(found, default=-1) >= n_different:
            raise place.invalid("refers to columns that are missing")
        return [_unescaped(name) for name in names.split("\n")][:n], found


def _unescaped(name: str) -> str:
    return re.sub(r"\\([\\n])", lambda found: "\n" if found[1] == "n" else "\\", name) if "\\" in name else name


class Steps:
    """The steps of a pipeline: names, and estimators or "passthrough"."""

    def __init__(self, *names: str) -> None:
        self.type = Either(Object(*names), Optional(text("passthrough")))

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        stored = []
        for i, (name, step) in enumerate(value):
            chosen = int(step is None or isinstance(step, str))  # its refusal is the one to show
            saved = self.type.types[chosen].save(step, f"{path}.{i}", writer)
            stored.append([str(name), {"either": chosen, "value": saved}])
        return stored

    def load(self, stored: JSON, place: Place) -> Any:
        pairs = _list(stored, place)
        if not pairs or not all(
            isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
        ):
            raise place.wrong(stored, "a list of named steps")
        if len({name for name, _ in pairs}) < len(pairs):
            raise place.invalid("has two steps with the same name")
        steps = [(name, self.type.load(step, place.inside(i))) for i, (name, step) in enumerate(pairs)]
        return dict(steps) if place.describing else steps


def _list(stored: JSON, place: Place) -> list[JSON]:
    if not isinstance(stored, list):
        raise place.wrong(stored, "a list")
    return stored


class Parameter:
    """A parameter of an estimator: a number, a text, None, lists and tables of these, or an estimator, not fitted.

    What JSON has not is a table with one entry that says what it is.
    """

    def save(self, value: Any, path: str, writer: Writer) -> JSON:
        if value is None or isinstance(value, (bool, np.bool_, int, np.integer, str)):
            return to_json(value, path)
        if isinstance(value, (float, np.floating)):
            return float(value) if np.isfinite(value) else {"float": str(float(value))}
        if isinstance(value, (list, tuple)):
            parts = [self.save(part, f"{path}[{i}]", writer) for i, part in enumerate(value)]
            return {"tuple" if type(value) is tuple else "list": parts}
        if isinstance(value, dict):
            pairs = value.items()
            return {
                "dict": [[self.save(part, f"{path}[{name!r}]", writer) for part in (name, of)] for name, of in pairs]
            }
        if hasattr(value, "get_params") and not isinstance(value, type):
            return {"estimator": save_object(value, path, writer, fitted=False)}
        if callable(value):
            raise ValueError(
                f"{path} is the function {getattr(value, '__name__', value)}, and a model file cannot store code. "
                f"Supported kernels: {', '.join(KERNELS)}."
            )
        raise ValueError(
            f"{path} is {short_repr(value)}, which a model file cannot store: supported parameters are numbers, "
            "strings, and lists and dicts of these."
        )

    def load(self, stored: JSON, place: Place) -> Any:
        if not isinstance(stored, dict):
            if isinstance(stored, list):
                raise place.wrong(stored, "a parameter")
            return stored
        if place.path.count("[") > MAX_DEPTH:
            raise place.invalid("is nested too deeply")
        what, value = next(iter(stored.items())) if len(stored) == 1 else ("", None)
        if what == "estimator":
            estimator, _ = load_object(value, place, fitted=False)
            if place.describing:
                return {key: estimator[key] for key in ("class", "parameters")}
            return estimator
        if what == "float":
            if value not in ("inf", "-inf", "nan"):
                raise place.wrong(value, "a number")
            return float(value)
        if what not in ("list", "tuple", "dict"):
            raise place.wrong(stored, "a parameter")
        parts, inner = _list(value, place), replace(place, path=f"{place.path}[]")
        if what == "dict":
            pairs = [_list(pair, place) for pair in parts]
            if any(len(pair) != 2 or isinstance(pair[0], (dict, list)) for pair in pairs):
                raise place.wrong(stored, "a table")
            return {name: self.load(of, inner) for name, of in pairs}
        return (tuple if what == "tuple" else list)(self.load(part, inner) for part in parts)
