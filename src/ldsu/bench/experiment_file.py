"""Read and validate experiments in TOML files."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ldsu.bench.families import FAMILIES
from ldsu.bench.spec import DataSpec, Experiment, MethodSpec, ParamGrid
from ldsu.datasets import DATASETS

KERNELS = ("rbf", "chi2", "linear", "cosine")
DRAWS = ("class", "rows")
DATA_KEYS = ("draw", "file", "kernel", "labels", "name", "paper", "preprocessing", "rows", "stand_in", "title")
TABLE_KEYS = ("draw", "kernel", "labels", "rows", "table")


def load_experiment(path: str | Path) -> Experiment:
    """Read and check an experiment file; a ValueError names the file, the key and the value at fault."""
    path = Path(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"Experiment file {path} not found.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    _Table(path, "the file", tables).check_names(("data", "description", "figures", "method", "protocol", "title"))
    protocol = _Table(path, "[protocol]", tables.get("protocol", {}))
    protocol.check_names(("C", "folds", "labels", "repetitions", "seed", "test_fraction"))
    labels = protocol.numbers("labels", [1, 3, 5, 10], int)
    data = tuple(spec for table in _entries(path, tables, "data") for spec in _read_data(table, labels))
    keys = _unique(path, "data", [spec.key for spec in data])
    methods = tuple(_read_method(table, keys) for table in _entries(path, tables, "method"))
    _unique(path, "method", [method.key for method in methods])
    return Experiment(
        name=path.stem,
        title=str(tables.get("title", path.stem)),
        description=str(tables.get("description", "")).strip(),
        path=path,
        data=data,
        methods=methods,
        repetitions=protocol.number("repetitions", 5, int, 1),
        seed=protocol.number("seed", 0, int, 0),
        test_fraction=protocol.number("test_fraction", 0.5, float, 0.01, 0.99),
        C=protocol.numbers("C", [1e-4, 1e-3, 1e-2, 1.0, 1e2, 1e3, 1e4], float),
        folds=protocol.number("folds", 3, int, 2),
        figures=tables.get("figures", {}),
    )


def _read_data(table: _Table, labels: Sequence[int]) -> Iterator[DataSpec]:
    """The data set of an entry, or its tables."""
    entry = table.values
    if "table" in entry:
        table.check_names(TABLE_KEYS)
        names = _as_list(entry["table"])
        if not names or not all(isinstance(name, str) for name in names):
            table.fail(f"has table = {names!r}, but it must be a name or a list of names")
        found: list[tuple[str, Path | None]] = [(name, _table_file(table.path, name)) for name in names]
    else:
        table.check_names((*DATA_KEYS, "table"))
        file = table.path.parent / str(entry["file"]) if "file" in entry else None
        name = table.choice("name", entry.get("name"), DATASETS) if file is None else str(entry.get("name", file.stem))
        found = [(name, file)]
    preprocessing = entry.get("preprocessing")
    draw = table.choice("draw", entry.get("draw", "class"), DRAWS)
    for name, file in found:
        if preprocessing is not None and file is not None:
            table.fail("has a preprocessing, but files are not preprocessed")
        if preprocessing is not None:
            table.choice("preprocessing", preprocessing, DATASETS[name].preprocessings)
        plain = name if preprocessing is None else f"{name}/{preprocessing}"
        yield DataSpec(
            key=plain if draw == "class" else f"{plain}/{draw}",
            name=name,
            preprocessing=preprocessing,
            title=str(entry.get("title", plain if draw == "class" else f"{plain} as the rows come")),
            kernel=table.choice("kernel", entry.get("kernel", "rbf"), KERNELS),
            labels=table.numbers("labels", labels, int),
            paper=entry.get("paper"),
            rows=table.number("rows", None, int, 10) if "rows" in entry else None,
            stand_in=bool(entry.get("stand_in", False)),
            file=file,
            draw=draw,
        )


def _table_file(experiment: Path, name: str) -> Path:
    """tables/NAME.csv in LDSU_DATA, or in shared/data beside the folder of the project."""
    folders = [os.environ.get("LDSU_DATA"), experiment.resolve().parent / "../../shared/data"]
    paths = [Path(folder) / "tables" / f"{name}.csv" for folder in folders if folder]
    return next((path for path in paths if path.is_file()), paths[0])


def _read_method(table: _Table, keys: Collection[str]) -> MethodSpec:
    table.check_names(("default", "family", "grid", "honest", "name", "only"))
    entry = table.values
    name = str(entry.get("name", entry.get("family", "")))
    family = FAMILIES[table.choice("family", entry.get("family", name), FAMILIES)]
    given = table.part("default", entry.get("default", {}), "table")
    given.check_names(family.defaults, "parameter")
    default = {key: given.parameter(key, value, family.defaults) for key, value in given.values.items()}
    grids = {
        part: tuple(_read_grid(table.part(part, grid), family.defaults, keys) for grid in _as_list(entry.get(part, [])))
        for part in ("grid", "honest")
    }
    return MethodSpec(
        key=name,
        family=family.name,
        grids=grids["grid"],
        honest=grids["honest"],
        default={**family.defaults, **default},
        one_label=family.one_label,
        only=tuple(table.choice("only", data, keys) for data in _as_list(entry.get("only", []))),
    )


def _read_grid(table: _Table, defaults: Mapping[str, Any], keys: Collection[str]) -> ParamGrid:
    parameters = [name for name in defaults if name != "C"]
    values: dict[str, tuple[Any, ...]] = {}
    for name, choices in table.values.items():
        if name == "labels":
            values[name] = table.numbers(name, [], int)
        elif name == "data":
            values[name] = tuple(table.choice(name, key, keys) for key in _as_list(choices))
        elif name not in parameters:
            table.fail(f"has an unknown parameter {name!r}; known parameters are {', '.join(parameters)}")
        elif choices == []:
            table.fail(f"has no value for {name!r}")
        else:
            values[name] = tuple(table.parameter(name, choice, defaults) for choice in _as_list(choices))
    return values


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _entries(path: Path, tables: Mapping[str, Any], name: str) -> list[_Table]:
    entries = tables.get(name)
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path}: at least one [[{name}]] table is required.")
    return [_Table(path, f"[[{name}]] {entry.get('name', '')}".strip(), entry) for entry in entries]


def _unique(path: Path, name: str, keys: list[str]) -> list[str]:
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"{path}: [[{name}]] has {key!r} twice.")
    return keys


class _Table:
    """A TOML table; errors name the file, the table and the value."""

    def __init__(self, path: Path, where: str, values: Any, kind: str = "table") -> None:
        self.path, self.where, self.values = path, where, values
        if not isinstance(values, dict):
            self.fail(f"must be a {kind}, not {values!r}")

    def fail(self, message: str) -> NoReturn:
        raise ValueError(f"{self.path}: {self.where} {message}.")

    def part(self, name: str, values: Any, kind: str = "table of lists") -> _Table:
        return _Table(self.path, f"{self.where}, {name}", values, kind)

    def check_names(self, allowed: Collection[str], what: str = "key") -> None:
        for name in self.values:
            if name not in allowed:
                self.fail(f"has an unknown {what} {name!r}; known {what}s are {', '.join(allowed)}")

    def choice(self, name: str, value: Any, allowed: Collection[str]) -> str:
        if value not in list(allowed):
            self.fail(f"has {name} = {value!r}, but it must be one of {', '.join(sorted(allowed))}")
        return str(value)

    def number(self, name: str, default: Any, kind: type, minimum: float, maximum: float = 1e12) -> Any:
        return self._number(name, self.values.get(name, default), kind, minimum, maximum)

    def numbers(self, name: str, default: Sequence[float], kind: type) -> tuple[Any, ...]:
        values = self.values.get(name, list(default))
        if not isinstance(values, list) or not values:
            self.fail(f"has {name} = {values!r}, but it must be a list of numbers")
        return tuple(sorted({self._number(name, value, kind, 1 if kind is int else 1e-300) for value in values}))

    def parameter(self, name: str, value: Any, defaults: Mapping[str, Any]) -> Any:
        """A parameter value in the type of its default; n_components may be a fraction or a count."""
        if isinstance(defaults[name], str):
            return value if isinstance(value, str) else self.fail(f"has {name} = {value!r}, but it must be a string")
        if isinstance(defaults[name], int) or (name == "n_components" and isinstance(value, int)):
            return self._number(name, value, int, 1)
        return self._number(name, value, float, 0, 1.0 if name == "n_components" else 1e12)

    def _number(self, name: str, value: Any, kind: type, minimum: float, maximum: float = 1e12) -> Any:
        if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
            self.fail(f"has {name} = {value!r}, but it must be {'an integer' if kind is int else 'a number'}")
        if not minimum <= value <= maximum:
            self.fail(f"has {name} = {value!r}, but it must be between {minimum:g} and {maximum:g}")
        return kind(value)
