"""The units of an experiment: a task is claimed by a worker, a cell is one row of the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Stages of the computation time of a row: shared are kernel, decomposition and neighbors.
STAGES = ("shared", "features", "classifier", "score")


@dataclass(frozen=True, slots=True)
class Task:
    """One split of one data set: the unit of work, since its cells share kernel, decomposition and neighbors."""

    data: str
    split: int

    def __str__(self) -> str:
        return f"{self.data}, split {self.split}"


@dataclass(frozen=True, slots=True)
class Cell:
    """The key of a row."""

    data: str
    split: int
    labels: int  # labelled points per class, or in all
    method: str  # its key in the experiment
    params: str  # as `canonical` writes them
    C: float  # penalty of the classifier; 0.0 for methods without one
    fold: int  # -1 for the test half; 0, 1, ... for a fold of cross-validation on the labelled points


@dataclass(frozen=True, slots=True)
class Row:
    """A cell with its measured values."""

    cell: Cell
    map: float | None  # None if there is an error, or no label that can be held out
    accuracy: float | None
    n_features: int  # that the classifier saw
    seconds: Mapping[str, float] = field(default_factory=dict)  # by stage
    peak_mib: float = 0.0  # peak memory of the process so far
    seed: int = 0  # of the split
    error: str | None = None


def canonical(params: Mapping[str, Any]) -> str:
    """Canonical text of parameters: JSON with sorted keys and no spaces.

    >>> canonical({"theta": 0.1, "k": 5})
    '{"k":5,"theta":0.1}'
    """
    return json.dumps(dict(params), sort_keys=True, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """A NumPy scalar as the Python number it holds."""
    try:
        return value.item()
    except AttributeError:
        raise TypeError(f"A parameter must be a number, a string, a list or None, but {value!r} is not.") from None
