"""Read and validate experiments in TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ldsu.bench.families import FAMILIES
from ldsu.bench.spec import DataSpec, Experiment, MethodSpec, Settings
from ldsu.datasets import DATASETS


def load_experiment(path: str | Path) -> Experiment:
    """Read and check an experiment file.

    Raises
    ------
    ValueError
        With the file, key and value at fault.
    """
    path = Path(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"Experiment file {path} not found.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    reader = _Reader(path)
    reader.check_keys(tables, "the file", {"title", "description", "protocol", "data", "method", "figures"})
    protocol = tables.get("protocol", {})
    reader.check_keys(protocol, "[protocol]", {"repetitions", "seed", "test_fraction", "C", "folds", "labels"})
    labels = reader.numbers(protocol, "labels", [1, 3, 5, 10], "[protocol]", int)
    data = tuple(_read_data(reader, entry, labels, DATASETS) for entry in reader.entries(tables, "data"))
    reader.unique([spec.key for spec in data], "[[data]]")
    methods = tuple(
        _read_method(reader, entry, FAMILIES, [d.key for d in data]) for entry in reader.entries(tables, "method")
    )
    reader.unique([method.key for method in methods], "[[method]]")
    return Experiment(
        name=path.stem,
        title=str(tables.get("title", path.stem)),
        description=str(tables.get("description", "")).strip(),
        path=path,
        data=data,
        methods=methods,
        repetitions=reader.number(protocol, "repetitions", 5, "[protocol]", int, minimum=1),
        seed=reader.number(protocol, "seed", 0, "[protocol]", int, minimum=0),
        test_fraction=reader.number(protocol, "test_fraction", 0.5, "[protocol]", float, minimum=0.01, maximum=0.99),
        C=reader.numbers(protocol, "C", [1e-4, 1e-3, 1e-2, 1.0, 1e2, 1e3, 1e4], "[protocol]", float),
        folds=reader.number(protocol, "folds", 3, "[protocol]", int, minimum=2),
        figures=tables.get("figures", {}),
    )


def _read_data(
    reader: _Reader, entry: dict[str, Any], labels: tuple[int, ...], datasets: Mapping[str, Any]
) -> DataSpec:
    where = f"[[data]] {entry.get('name', '')}".strip()
    reader.check_keys(
        entry, where, {"name", "preprocessing", "title", "kernel", "labels", "paper", "rows", "stand_in", "file"}
    )
    file = reader.path.parent / str(entry["file"]) if "file" in entry else None
    name = reader.choice(entry, "name", datasets, where) if file is None else str(entry.get("name", file.stem))
    preprocessing = entry.get("preprocessing")
    if preprocessing is not None and file is not None:
        reader.fail(f"{where} has a preprocessing, but files are not preprocessed")
    if preprocessing is not None:
        reader.choice(entry, "preprocessing", datasets[name].preprocessings, where)
    key = name if preprocessing is None else f"{name}/{preprocessing}"
    return DataSpec(
        key=key,
        name=name,
        preprocessing=preprocessing,
        title=str(entry.get("title", key)),
        kernel=reader.choice(
            {"kernel": entry.get("kernel", "rbf")}, "kernel", ("rbf", "chi2", "linear", "cosine"), where
        ),
        labels=reader.numbers(entry, "labels", labels, where, int),
        paper=entry.get("paper"),
        rows=reader.number(entry, "rows", 10, where, int, minimum=10) if "rows" in entry else None,
        stand_in=bool(entry.get("stand_in", False)),
        file=file,
    )


def _read_method(reader: _Reader, entry: dict[str, Any], families: Mapping[str, Any], keys: list[str]) -> MethodSpec:
    where = f"[[method]] {entry.get('name', '')}".strip()
    reader.check_keys(entry, where, {"name", "family", "grid", "honest", "default", "only"})
    name = str(entry.get("name", entry.get("family", "")))
    family = families[reader.choice({"family": entry.get("family", name)}, "family", families, where)]
    default = {**family.defaults, **entry.get("default", {})}
    for parameter, value in default.items():
        if parameter in family.defaults:
            default[parameter] = _value(reader, value, parameter, family.defaults, f"{where}, default")
    grids = {}
    for part in ("grid", "honest"):
        tables = entry.get(part, [])
        grids[part] = tuple(
            _read_grid(reader, grid, f"{where}, {part}", family.defaults, keys) for grid in _as_list(tables)
        )
    for data in entry.get("only", []):
        reader.choice({"only": data}, "only", keys, where)
    unknown = sorted(set(default) - set(family.defaults))
    if unknown:
        reader.fail(f"{where} has an unknown default {unknown[0]!r}; known parameters are {', '.join(family.defaults)}")
    return MethodSpec(
        key=name,
        family=family.name,
        grids=grids["grid"],
        honest=grids["honest"],
        default=default,
        one_label=family.one_label,
        only=tuple(entry.get("only", [])),
    )


def _read_grid(
    reader: _Reader, grid: Any, where: str, default: Settings, keys: list[str]
) -> Mapping[str, tuple[Any, ...]]:
    if not isinstance(grid, dict):
        reader.fail(f"{where} must be a table of lists, not {grid!r}")
    values: dict[str, tuple[Any, ...]] = {}
    for name, choices in grid.items():
        if name == "labels":
            values[name] = reader.numbers(grid, name, [], where, int)
            continue
        if name == "data":
            values[name] = tuple(reader.choice({name: key}, name, keys, where) for key in _as_list(choices))
            continue
        if name not in default or name == "C":
            known = ", ".join(k for k in default if k != "C")
            reader.fail(f"{where} has an unknown parameter {name!r}; known parameters are {known}")
        choices = _as_list(choices)
        if not choices:
            reader.fail(f"{where} has no value for {name!r}")
        values[name] = tuple(_value(reader, choice, name, default, where) for choice in choices)
    return values


def _value(reader: _Reader, value: Any, name: str, defaults: Settings, where: str) -> Any:
    """A parameter value in the type of its default; n_components may be a fraction or a count."""
    if isinstance(defaults[name], str):
        return (
            value if isinstance(value, str) else reader.fail(f"{where} has {name} = {value!r}, but it must be a string")
        )
    kind = int if isinstance(defaults[name], int) or (name == "n_components" and isinstance(value, int)) else float
    minimum = 1 if kind is int else 0
    maximum = 1.0 if name == "n_components" and kind is float else 1e12
    return reader.number({name: value}, name, value, where, kind, minimum, maximum)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class _Reader:
    """Reads values from TOML tables; errors name the file, the table and the value."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, message: str) -> Any:
        raise ValueError(f"{self.path}: {message}.")

    def check_keys(self, table: Any, where: str, names: set[str]) -> None:
        if not isinstance(table, dict):
            self.fail(f"{where} must be a table, not {table!r}")
        for name in table:
            if name not in names:
                self.fail(f"{where} has an unknown key {name!r}; known keys are {', '.join(sorted(names))}")

    def entries(self, tables: dict[str, Any], name: str) -> list[dict[str, Any]]:
        entries = tables.get(name)
        if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
            self.fail(f"at least one [[{name}]] table is required")
        return list(entries or [])

    def unique(self, keys: list[str], where: str) -> None:
        for key in keys:
            if keys.count(key) > 1:
                self.fail(f"{where} has {key!r} twice")

    def choice(self, table: dict[str, Any], name: str, allowed: Iterable[str], where: str) -> str:
        value = table.get(name)
        if value not in list(allowed):
            self.fail(f"{where} has {name} = {value!r}, but it must be one of {', '.join(sorted(allowed))}")
        return str(value)

    def number(
        self,
        table: dict[str, Any],
        name: str,
        default: Any,
        where: str,
        kind: type,
        minimum: float,
        maximum: float = 1e12,
    ) -> Any:
        value = table.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
            self.fail(f"{where} has {name} = {value!r}, but it must be {'an integer' if kind is int else 'a number'}")
        if not minimum <= value <= maximum:
            self.fail(f"{where} has {name} = {value!r}, but it must be between {minimum:g} and {maximum:g}")
        return kind(value)

    def numbers(
        self, table: dict[str, Any], name: str, default: Iterable[Any], where: str, kind: type
    ) -> tuple[Any, ...]:
        values = table.get(name, list(default))
        if not isinstance(values, list) or not values:
            self.fail(f"{where} has {name} = {values!r}, but it must be a list of numbers")
        minimum = 1 if kind is int else 1e-300
        numbers = [self.number({name: value}, name, value, where, kind, minimum) for value in values]
        return tuple(sorted(set(numbers)))
