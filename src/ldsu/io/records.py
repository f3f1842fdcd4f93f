"""Objects as records: taken apart and put together by their schemas, and the kinds of fields that hold objects.

A record names a class, and gives the parameters of an estimator and the fields that its schema lists. Loading takes
nothing else from it, calls no `__init__` but that of data classes, and looks the class up in `SCHEMAS` alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from ldsu._utils.memory import require_memory
from ldsu.io.container import Entry, Invalid, safe_repr
from ldsu.io.kinds import Either, Optional, Text, check_lengths, short_repr, to_json
from ldsu.io.schema import JSON, SCHEMAS, Reader, Schema, Writer, at, schema_of, wrong_value
from ldsu.kernels import KERNELS

MAX_DEPTH = 20
# Memory of an object of `Named` and of its name; described, it takes more than loaded.
NAMED_BYTES = 800


def serialize(value: Any, place: str, writer: Writer, *, fitted: bool = True) -> JSON:
    """An object as plain data, its arrays in `writer`: class, parameters, and fields (None where it is not fitted)."""
    name, schema = schema_of(value, place)
    parameters = {}
    if not schema.constructed:
        values = {
            key: of
            for key, of in value.get_params(deep=False).items()
            if not (fitted and key in schema.stored_as_fields)
        }
        for key, only in schema.only.items():
            if values[key] != only:
                raise ValueError(
                    f"{place}.{key} is {short_repr(values[key])}: a {name} can be saved with {key}={only} alone."
                )
        parameters = {key: Parameter().save(of, f"{place}.{key}", writer) for key, of in values.items()}
    fields = {}
    for field in schema.fields if fitted else ():
        if field.missing and not hasattr(value, field.name):
            continue
        fields[field.name] = field.kind.save(getattr(value, field.name), f"{place}.{field.name}", writer)
    return {"class": name, "parameters": parameters, "fields": fields if fitted else None}


def deserialize(
    stored: JSON, place: str, reader: Reader, among: tuple[str, ...] | None = None, *, fitted: bool = True
) -> tuple[Any, dict[str, int]]:
    """Check what `serialize` gave and build the object; also gives the lengths found, by symbol."""
    schema = _check_schema(stored, place, among, fitted=fitted)
    cls: Any = schema.load_class()
    sizes: dict[str, int] = {}
    values = {}
    for field in schema.fields if fitted else ():
        if field.name in stored["fields"]:
            values[field.name] = field.kind.load(stored["fields"][field.name], f"{place}.{field.name}", reader, sizes)
    if schema.constructed:
        built = cls(**values)
    else:
        parameters = _parameters(stored["parameters"], place, schema, cls, reader, fitted=fitted)
        built = cls.__new__(cls)
        for name, value in {**parameters, **values}.items():
            # What one version of scikit-learn keeps, another derives.
            if not isinstance(getattr(cls, name, None), property):
                setattr(built, name, value)
    if fitted and schema.check:
        schema.check(built, sizes)
    return built, sizes


def _check_schema(stored: JSON, place: str, among: tuple[str, ...] | None, *, fitted: bool) -> Schema:
    """The schema of a record, whose names are all in it."""
    if not isinstance(stored, dict) or set(stored) != {"class", "parameters", "fields"}:
        raise wrong_value(place, stored, "an object")
    if place.count(".") + place.count("[") > MAX_DEPTH:
        raise Invalid(f"is not a valid model: {at(place)} is nested too deeply.")
    name, fields = stored["class"], stored["fields"]
    if not isinstance(name, str) or name not in SCHEMAS or (among is not None and name not in among):
        raise Invalid(
            f"is not a valid model: {at(place)} is of class {safe_repr(name)}, which ldsu does not load there."
        )
    schema = SCHEMAS[name]
    if not isinstance(stored["parameters"], dict) or (schema.constructed and stored["parameters"]):
        raise wrong_value(f"{place}'s parameters", stored["parameters"], "the parameters of an estimator")
    if not fitted:
        if fields is not None or schema.constructed:
            raise Invalid(f"is not a valid model: {at(place)} is fitted where it should not be.")
        return schema
    if not isinstance(fields, dict):
        raise wrong_value(place, fields, f"a fitted {name}")
    missing = [field.name for field in schema.fields if not field.missing and field.name not in fields]
    unknown = sorted(set(fields) - {field.name for field in schema.fields})
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has {safe_repr(unknown[0])}, which a {name} does not have"
        raise Invalid(f"is not a valid model: {at(place)} {what}.")
    return schema


def _parameters(
    stored: dict[str, JSON], place: str, schema: Schema, cls: Any, reader: Reader, *, fitted: bool
) -> dict[str, Any]:
    """The parameters of an estimator: those stored, and defaults for what a newer version has beside them."""
    defaults = _defaults(cls)
    parameters = dict(defaults)
    for name, value in stored.items():
        _check_parameter(name, place, schema, defaults)
        # "deprecated" stands for the default of the version that says so.
        if name in schema.retired and (name not in defaults or value == "deprecated"):
            continue
        if fitted and name in schema.stored_as_fields:
            raise Invalid(f"is not a valid model: {at(place)}.{name} is stored twice.")
        parameters[name] = Parameter().load(value, f"{place}.{name}", reader, {})
    for name, only in schema.only.items():
        if parameters[name] != only:
            raise wrong_value(f"{place}.{name}", stored[name], str(only))
    if "device" in parameters:
        parameters["device"] = reader.device
    if cls.__module__.startswith("ldsu."):
        # Constraints of scikit-learn's values classes change with its versions.
        from sklearn.utils._param_validation import validate_parameter_constraints

        validate_parameter_constraints(getattr(cls, "_parameter_constraints", {}), parameters, cls.__name__)
    return parameters


def _check_parameter(name: str, place: str, schema: Schema, defaults: Mapping[str, Any]) -> None:
    if name not in defaults and name not in schema.retired:
        raise Invalid(
            f"is not a valid model: {at(place)} has a parameter {safe_repr(name)}, which is unknown in this version. "
            "If a newer version saved it, update with: pip install -U ldsu scikit-learn"
        )


def _defaults(cls: Any) -> dict[str, Any]:
    """Parameters of an estimator's class; None for those without a default."""
    from inspect import Parameter as Argument
    from inspect import signature

    arguments = signature(cls.__init__).parameters
    names = cls._get_param_names()
    return {name: None if arguments[name].default is Argument.empty else arguments[name].default for name in names}


def describe_record(
    stored: JSON,
    place: str,
    entries: Mapping[str, Entry],
    among: tuple[str, ...] | None = None,
    *,
    fitted: bool = True,
) -> dict[str, Any]:
    """Class, parameters, those that are not the default, and fields of what `serialize` gave."""
    schema = _check_schema(stored, place, among, fitted=fitted)
    kept = stored["parameters"]
    defaults = {} if schema.constructed else _defaults(schema.load_class())
    for name in kept:
        _check_parameter(name, place, schema, defaults)
    parameters = {name: Parameter().describe(value, f"{place}.{name}", entries) for name, value in kept.items()}
    fields = {
        field.name: field.kind.describe(stored["fields"][field.name], f"{place}.{field.name}", entries)
        for field in (schema.fields if fitted else ())
        if field.name in stored["fields"]
    }
    changed = {name: value for name, value in parameters.items() if name not in defaults or value != defaults[name]}
    return {"class": stored["class"], "parameters": parameters, "changed": changed, "fields": fields}


class Record:
    """An object of one of some classes of `SCHEMAS`.

    Parameters
    ----------
    *names : str
        The classes.
    **same : str
        Symbols of its lengths that are lengths of the record around it, and the symbols they have there.
    """

    def __init__(self, *names: str, **same: str) -> None:
        self.names = names
        self.same = same

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """Take it apart."""
        if schema_of(value, place)[0] not in self.names:
            raise ValueError(
                f"{place} is a {type(value).__name__}, which cannot be saved in this model: "
                f"supported are {', '.join(self.names)}."
            )
        return serialize(value, place, writer)

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> Any:
        """Put it together."""
        built, inner = deserialize(stored, place, reader, self.names)
        lengths = {outer: inner[symbol] for symbol, outer in self.same.items() if symbol in inner}
        check_lengths(sizes, lengths, place)
        return built

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """Its values description."""
        return describe_record(stored, place, entries, self.names)


class Records:
    """A tuple of objects of some classes of `SCHEMAS`."""

    def __init__(self, *names: str) -> None:
        self.kind = Record(*names)

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """Take each apart."""
        return [self.kind.save(part, f"{place}.{i}", writer) for i, part in enumerate(value)]

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> tuple[Any, ...]:
        """Put each together."""
        parts = enumerate(_list(stored, place))
        return tuple(self.kind.load(part, f"{place}.{i}", reader, sizes) for i, part in parts)

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """Describe each."""
        return [self.kind.describe(part, f"{place}.{i}", entries) for i, part in enumerate(_list(stored, place))]


class Named(Records):
    """A tuple of data objects of which very many differ in their `name` alone: those are stored once.

    The names are one text, a line each, and so are the objects' places among the different ones: 2,000,000 columns are
    three values of a header. Format 1 stored a list of records.
    """

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """The different objects without a name, and for each object its name and its place among these."""
        but_name = attrgetter(*(field.name for field in SCHEMAS[self.kind.names[0]].fields if field.name != "name"))
        first: dict[Any, Any] = {}
        for part in value:
            first.setdefault(but_name(part), part)
        number = {key: of for of, key in enumerate(first)}
        names = (part.name.replace("\\", "\\\\").replace("\n", "\\n") for part in value)
        return {
            "different": super().save([replace(part, name="") for part in first.values()], place, writer),
            "names": "\n".join(names),
            "places": " ".join(str(number[but_name(part)]) for part in value),
        }

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> tuple[Any, ...]:
        """Put each together."""
        if isinstance(stored, list):
            return super().load(stored, place, reader, sizes)
        names, places = self._parts(stored, place)
        different = super().load(stored["different"], place, reader, sizes)
        return tuple(replace(different[of], name=name) for name, of in zip(names, places, strict=True))

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """Describe each."""
        if isinstance(stored, list):
            return super().describe(stored, place, entries)
        names, places = self._parts(stored, place)
        different = super().describe(stored["different"], place, entries)
        return [
            {**different[of], "fields": {**different[of]["fields"], "name": name}}
            for name, of in zip(names, places, strict=True)
        ]

    def _parts(self, stored: JSON, place: str) -> tuple[list[str], list[int]]:
        """The names, and the place of each object among the different ones."""
        if not isinstance(stored, dict) or set(stored) != {"different", "names", "places"}:
            raise wrong_value(place, stored, "a list of names")
        names, places, n_different = stored["names"], stored["places"], len(_list(stored["different"], place))
        if not isinstance(names, str) or not isinstance(places, str) or not re.fullmatch(r"[0-9 ]*", places):
            raise wrong_value(place, stored, "a list of names")
        n = places.count(" ") + 1 if places else 0
        if names.count("\n") + 1 != max(n, 1) or (names and not n):
            raise Invalid(f"is not a valid model: {at(place)} has {names.count(chr(10)) + 1} names for {n} columns.")
        require_memory(n * NAMED_BYTES, f"A model of {n:,} columns", "Close other programs, or use a larger machine.")
        found = [int(index) if 0 < len(index) < 10 else n_different for index in places.split(" ")] if n else []
        if max(found, default=-1) >= n_different:
            raise Invalid(f"is not a valid model: {at(place)} refers to columns that are missing.")
        return [_unescaped(name) for name in names.split("\n")][:n], found


def _unescaped(name: str) -> str:
    return re.sub(r"\\([\\n])", lambda found: "\n" if found[1] == "n" else "\\", name) if "\\" in name else name


class Steps:
    """The steps of a pipeline: names, and estimators or "passthrough"."""

    def __init__(self, *names: str) -> None:
        self.kind = Either(Record(*names), Optional(Text(("passthrough",))))

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """A list of names and estimators."""
        stored = []
        for i, (name, step) in enumerate(value):
            kind = self.kind.kinds[step is None or isinstance(step, str)]  # its refusal is the one to show
            choice = {"either": self.kind.kinds.index(kind), "value": kind.save(step, f"{place}.{i}", writer)}
            stored.append([str(name), choice])
        return stored

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> Any:
        """A list of tuples."""
        return [
            (name, self.kind.load(step, f"{place}.{i}", reader, sizes))
            for i, (name, step) in enumerate(self._pairs(stored, place))
        ]

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """By name."""
        pairs = self._pairs(stored, place)
        return {name: self.kind.describe(step, f"{place}.{i}", entries) for i, (name, step) in enumerate(pairs)}

    def _pairs(self, stored: JSON, place: str) -> list[tuple[str, JSON]]:
        pairs = _list(stored, place)
        if not pairs or not all(
            isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
        ):
            raise wrong_value(place, stored, "a list of named steps")
        names = [pair[0] for pair in pairs]
        if len(set(names)) < len(names):
            raise Invalid(f"is not a valid model: two of {at(place)} have the same name.")
        return [(name, step) for name, step in pairs]


def _list(stored: JSON, place: str) -> list[JSON]:
    if not isinstance(stored, list):
        raise wrong_value(place, stored, "a list")
    return stored


@dataclass(frozen=True)
class Parameter:
    """A parameter of an estimator: a number, a text, None, lists and tables of these, or an estimator, not fitted."""

    def save(self, value: Any, place: str, writer: Writer) -> JSON:
        """Plain data; what JSON has not is a table with one entry that says what it is."""
        if value is None or isinstance(value, (bool, np.bool_, int, np.integer, str)):
            return to_json(value, place)
        if isinstance(value, (float, np.floating)):
            return float(value) if np.isfinite(value) else {"float": str(float(value))}
        if isinstance(value, (list, tuple)):
            parts = [self.save(part, f"{place}[{i}]", writer) for i, part in enumerate(value)]
            return {type(value).__name__ if type(value) in (list, tuple) else "list": parts}
        if isinstance(value, dict):
            pairs = value.items()
            return {
                "dict": [[self.save(part, f"{place}[{name!r}]", writer) for part in (name, of)] for name, of in pairs]
            }
        if hasattr(value, "get_params") and not isinstance(value, type):
            return {"estimator": serialize(value, place, writer, fitted=False)}
        if callable(value):
            raise ValueError(
                f"{place} is the function {getattr(value, '__name__', value)}, and a model file cannot store code. "
                f"Supported kernels: {', '.join(KERNELS)}."
            )
        raise ValueError(
            f"{place} is {short_repr(value)}, which a model file cannot store: supported parameters are numbers, "
            "strings, and lists and dicts of these."
        )

    def load(self, stored: JSON, place: str, reader: Reader, sizes: dict[str, int]) -> Any:
        """The value."""
        if not isinstance(stored, dict):
            if isinstance(stored, list):
                raise wrong_value(place, stored, "a parameter")
            return stored
        if place.count("[") > MAX_DEPTH:
            raise Invalid(f"is not a valid model: {at(place)} is nested too deeply.")
        (what, value), *more = stored.items() if stored else [("", None)]
        if more or what not in ("float", "list", "tuple", "dict", "estimator"):
            raise wrong_value(place, stored, "a parameter")
        if what == "estimator":
            return deserialize(value, place, reader, fitted=False)[0]
        if what == "float":
            if value not in ("inf", "-inf", "nan"):
                raise wrong_value(place, value, "a number")
            return float(value)
        parts = _list(value, place)
        if what == "dict":
            pairs = [_list(pair, place) for pair in parts]
            if any(len(pair) != 2 or isinstance(pair[0], (dict, list)) for pair in pairs):
                raise wrong_value(place, stored, "a table")
            return {name: self.load(of, f"{place}[]", reader, sizes) for name, of in pairs}
        values = [self.load(part, f"{place}[]", reader, sizes) for part in parts]
        return values if what == "list" else tuple(values)

    def describe(self, stored: JSON, place: str, entries: Mapping[str, Entry]) -> Any:
        """The value; an estimator as its class and parameters."""
        if isinstance(stored, dict) and set(stored) == {"estimator"}:
            tree = describe_record(stored["estimator"], place, entries, fitted=False)
            return {"class": tree["class"], "parameters": tree["parameters"]}
        if isinstance(stored, dict) and len(stored) == 1 and set(stored) <= {"list", "tuple"}:
            (parts,) = stored.values()
            return [self.describe(part, f"{place}[]", entries) for part in _list(parts, place)]
        return self.load(stored, place, Reader({}, "cpu"), {})
