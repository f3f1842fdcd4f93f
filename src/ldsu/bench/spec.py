"""Specification of an experiment: data, methods, grids and protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Settings = dict[str, Any]


@dataclass(frozen=True)
class DataSpec:
    """A data set of an experiment.

    Attributes
    ----------
    key : str
        Its name in the rows, unique in the experiment: the name of the data set and its preprocessing if set.
    name, preprocessing : str, str or None
        As in `ldsu.datasets.load`.
    title : str
        Its name in tables.
    kernel : str
        Kernel of every kernel method.
    labels : tuple of int
        Labels per class.
    paper : str or None
        Its name in the paper's table.
    stand_in : bool
        Whether it is a substitute for the paper's data: the paper's scores are shown, but not compared.
    rows : int or None
        Use a random subset of this many rows.
    file : Path or None
        Path of user data: see `ldsu.bench.sources`.
    """

    key: str
    name: str
    preprocessing: str | None
    title: str
    kernel: str
    labels: tuple[int, ...]
    paper: str | None
    rows: int | None
    stand_in: bool = False
    file: Path | None = None

    @property
    def middle_labels(self) -> int:
        """The number of labels to use if only one is shown."""
        return self.labels[(len(self.labels) - 1) // 2]


@dataclass(frozen=True)
class MethodSpec:
    """A method with the settings to try.

    Attributes
    ----------
    key : str
        Its name in the rows.
    family : str
        One of `ldsu.bench.families.FAMILIES`.
    grids : tuple of dict
        Values of each parameter; the settings are the union of the products of the grids. The keys "labels" and "data"
        restrict a grid to numbers of labels and data sets.
    honest : tuple of dict
        The grids for cross-validation on the labelled points.
    default : dict
        The default setting, including "C".
    one_label : tuple of str
        Parameters that are redundant with one label per class, where only their default is run.
    only : tuple of str
        Keys of the data sets it runs on; empty for all.
    """

    key: str
    family: str
    grids: tuple[Mapping[str, tuple[Any, ...]], ...]
    honest: tuple[Mapping[str, tuple[Any, ...]], ...]
    default: Settings = field(hash=False)
    one_label: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def settings(self, labels: int, data: str = "") -> list[Settings]:
        """All settings that are scored on the test half: the grids, the honest grids and the default."""
        return self._products([*self.grids, *self.honest, {}], labels, data)

    def honest_settings(self, labels: int, data: str = "") -> list[Settings]:
        """The settings for cross-validation, including the default."""
        return self._products([*self.honest, {}], labels, data) if self.honest else []

    def _products(self, grids: Iterable[Mapping[str, tuple[Any, ...]]], labels: int, data: str) -> list[Settings]:
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

    def data_spec(self, key: str) -> DataSpec:
        """The data set with a key."""
        for spec in self.data:
            if spec.key == key:
                return spec
        raise ValueError(f"{self.path}: unknown data set {key!r}; known are {', '.join(d.key for d in self.data)}.")

    def methods_for(self, key: str) -> list[MethodSpec]:
        """The methods that run on a data set."""
        return [method for method in self.methods if not method.only or key in method.only]
