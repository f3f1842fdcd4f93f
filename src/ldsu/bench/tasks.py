"""The units of an experiment: a task is claimed by a worker, a cell is one row of the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Stages of the computation time of a row.
STAGES = ("shared", "features", "classifier", "score")


@dataclass(frozen=True, slots=True)
class Task:
    """One split of one data set: the unit of work, since its cells share kernel, decomposition and neighbors."""

    data: str
    split: int


@dataclass(frozen=True, slots=True)
class Cell:
    """The key of a row.

    Parameters
    ----------
    data, split : str, int
        The task it belongs to.
    labels : int
        Labelled points per class.
    method : str
        Key of the method in the experiment.
    params : str
        Its parameters as `canonical` writes them.
    C : float
        Penalty of the classifier; 0.0 for methods without one.
    fold : int
        -1 is the test half; 0, 1, ... a fold of cross-validation on the labelled points.
    """

    data: str
    split: int
    labels: int
    method: str
    params: str
    C: float
    fold: int


@dataclass(frozen=True, slots=True)
class Row:
    """A cell with its measured values.

    Parameters
    ----------
    cell : Cell
        Its key.
    map, accuracy : float or None
        Scores; None if there is an `error`.
    n_features : int
        Features the classifier saw.
    seconds : dict
        Time of the stages ``shared`` (kernel, decomposition, neighbors), ``features``, ``classifier``, ``score``.
    peak_mib : float
        Peak memory of the process so far.
    seed : int
        Seed of the split.
    error : str or None
        Error message if there is no score.
    """

    cell: Cell
    map: float | None
    accuracy: float | None
    n_features: int
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_mib: float = 0.0
    seed: int = 0
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


@dataclass(frozen=True)
class Summary:
    """Outcome of a run.

    Parameters
    ----------
    done, total : int
        Cells in the store, and cells of the experiment.
    computed : int
        Cells added by this run.
    failed : int
        Cells that hold an error instead of a score.
    errors : tuple of str
        Abandoned tasks and other errors.
    seconds : float
        Duration of the run.
    interrupted : bool
        Whether it was stopped by Ctrl-C or SIGTERM.
    lost : bool
        Whether the store was deleted or replaced during the run. `done` is 0 then.
    """

    done: int
    total: int
    computed: int
    failed: int
    errors: tuple[str, ...]
    seconds: float
    interrupted: bool = False
    lost: bool = False

    @property
    def exit_code(self) -> int:
        """0 if all cells are computed, 1 if some failed, 130 if interrupted."""
        if self.interrupted:
            return 130
        return int(self.done < self.total or self.failed > 0 or bool(self.errors))
