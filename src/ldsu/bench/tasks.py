"""The units of an experiment: a task is claimed as a whole, a cell is one row of the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# What the time of a row is divided into.
STAGES = ("shared", "features", "classifier", "score")


@dataclass(frozen=True, slots=True)
class Task:
    """One split of one data set: what a worker claims, since its cells share kernel, decomposition and neighbours."""

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
    """A cell with what was measured.

    Parameters
    ----------
    cell : Cell
        Its key.
    map, accuracy : float or None
        Scores; None if there is an `error`.
    n_features : int
        Features the classifier saw.
    seconds : dict
        Time of the stages ``shared`` (kernel, decomposition, neighbours), ``features``, ``classifier``, ``score``.
    peak_mib : float
        Peak memory of the process so far.
    seed : int
        Seed of the split.
    error : str or None
        Why there is no score.
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
    """Parameters as text that is equal when they are equal: JSON with sorted keys and no spaces.

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
    """How a run ended.

    Parameters
    ----------
    done, total : int
        Cells there now, and cells asked for.
    computed : int
        Cells this run added.
    failed : int
        Cells that hold an error in place of a score.
    errors : tuple of str
        Tasks given up and other trouble, a sentence each.
    seconds : float
        How long it took.
    interrupted : bool
        Whether it was stopped by Ctrl-C or SIGTERM.
    lost : bool
        Whether the store was deleted or replaced meanwhile. `done` is 0 then.
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
        """0 if all cells are there, 1 if some failed, 130 if interrupted."""
        if self.interrupted:
            return 130
        return int(self.done < self.total or self.failed > 0 or bool(self.errors))
