"""Specification of an experiment: data, methods, grids and protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ldsu.bench.tasks import Task

Settings = dict[str, Any]
ParamGrid = Mapping[str, tuple[Any, ...]]  # values of each parameter


@dataclass(frozen=True)
class DataSpec:
    """A data set of an experiment."""

    key: str  # its name in the rows, unique in the experiment: name, preprocessing and way of drawing labels
    name: str  # name and preprocessing are those of `ldsu.datasets.load`
    preprocessing: str | None
    title: str  # its name in tables
    kernel: str  # of every kernel method
    labels: tuple[int, ...]  # numbers of labels, see `draw`
    paper: str | None  # its name in the paper's table
    rows: int | None  # size of a random subset
    stand_in: bool = False  # a substitute for the paper's data: the paper's scores are shown, but not compared
    file: Path | None = None  # user data or a table: see `ldsu.bench.sources`
    draw: str = "class"  # labels per class, or "rows": in all, as the rows come, and at least one per class

    @property
    def drawn(self) -> str:
        """What a number of labels is meant for."""
        return "per class" if self.draw == "class" else "in all"

    @property
    def middle_labels(self) -> int:
        """The number of labels to use if only one is shown."""
        return self.labels[(len(self.labels) - 1) // 2]


@dataclass(frozen=True)
class MethodSpec:
    """A method with the settings to try: the union of the products of its grids.

    The keys "labels" and "data" restrict a grid to numbers of labels and data sets.
    """

    key: str  # its name in the rows
    family: str  # one of `ldsu.bench.families.FAMILIES`
    grids: tuple[ParamGrid, ...]
    honest: tuple[ParamGrid, ...]  # for cross-validation on the labelled points
    default: Settings = field(hash=False)  # including "C"
    one_label: tuple[str, ...] = ()  # parameters that are redundant with one label per class: only their default is run
    only: tuple[str, ...] = ()  # keys of the data sets it runs on; empty for all

    def settings(self, labels: int, data: str = "") -> list[Settings]:
        """All settings that are scored on the test half: the grids, the honest grids and the default."""
        return self._products([*self.grids, *self.honest, {}], labels, data)

    def honest_settings(self, labels: int, data: str = "") -> list[Settings]:
        """The settings for cross-validation, including the default."""
        return self._products([*self.honest, {}], labels, data) if self.honest else []

    def _products(self, grids: Iterable[ParamGrid], labels: int, data: str) -> list[Settings]:
        default = {name: value for name, value in self.default.items() if name != "C"}
        found: dict[tuple[Any, ...], Settings] = {}
        for grid in grids:
            if labels not in grid.get("labels", (labels,)) or data not in grid.get("data", (data,)):
                continue
            names = [name for name in grid if name in default and not (labels == 1 and name in self.one_label)]
            for values in itertools.product(*(grid[name] for name in names)):
                setting = {**default, **dict(zip(names, values, strict=True))}
                found[tuple(sorted(setting.items()))] = setting
        return list(found.values())


@dataclass(frozen=True)
class Experiment:
    """Data sets, methods and protocol of an experiment."""

    name: str
    title: str
    description: str
    path: Path
    data: tuple[DataSpec, ...]
    methods: tuple[MethodSpec, ...]
    repetitions: int
    seed: int
    test_fraction: float
    C: tuple[float, ...]
    folds: int
    figures: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def tasks(self) -> list[Task]:
        """Every split of every data set."""
        return [Task(spec.key, split) for spec in self.data for split in range(self.repetitions)]

    def data_spec(self, key: str) -> DataSpec:
        """The data set with a key."""
        for spec in self.data:
            if spec.key == key:
                return spec
        raise ValueError(f"{self.path}: unknown data set {key!r}; known are {', '.join(d.key for d in self.data)}.")

    def methods_for(self, key: str) -> list[MethodSpec]:
        """The methods that run on a data set."""
        return [method for method in self.methods if not method.only or key in method.only]
