"""How far a run is, and how long it will still take."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ldsu.bench.tasks import Task

# A time left is only believable after a while and a part of the work.
ENOUGH_SECONDS = 15.0
ENOUGH_WORK = 0.02


@dataclass
class TaskProgress:
    """A task of this run.

    Parameters
    ----------
    total : int
        Cells it has in the end.
    weight : float
        Guess of the cost of all of them.
    present : int
        Cells there now, whoever computed them.
    computed : int
        Cells computed by this run.
    finished : bool
        Whether nothing is left to do.
    """

    total: int
    weight: float
    present: int = 0
    computed: int = 0
    finished: bool = False

    @property
    def done(self) -> int:
        """Cells there now; not more than it has (a smaller grid than before leaves some over)."""
        return self.total if self.finished else min(self.present, self.total)

    @property
    def work_left(self) -> float:
        """Cost of what is left."""
        return 0.0 if self.finished else self.weight * (1 - self.done / max(self.total, 1))

    @property
    def work_done(self) -> float:
        """Cost of what this run computed: cells found in the store say nothing about the speed."""
        return self.weight * self.computed / max(self.total, 1)


@dataclass
class Progress:
    """All tasks of a run, what each worker does, and what went wrong."""

    tasks: dict[Task, TaskProgress]
    jobs: int
    started: float = field(default_factory=time.monotonic)
    doing: dict[int, str] = field(default_factory=dict)
    elsewhere: int = 0
    failed_cells: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Cells in all."""
        return sum(task.total for task in self.tasks.values())

    @property
    def done(self) -> int:
        """Cells there now."""
        return sum(task.done for task in self.tasks.values())

    @property
    def computed(self) -> int:
        """Cells computed by this run."""
        return sum(task.computed for task in self.tasks.values())

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def left(self) -> float | None:
        """Seconds left, or None while there is too little to tell from."""
        return time_left(self.tasks, self.jobs, self.elapsed)


def time_left(tasks: Mapping[Task, TaskProgress], jobs: int, elapsed: float) -> float | None:
    """Work left over the speed so far, but no less than the longest task needs, which only one worker can do.

    >>> tasks = {Task("a", 0): TaskProgress(total=10, weight=2.0, present=10, computed=10, finished=True),
    ...          Task("a", 1): TaskProgress(total=10, weight=2.0, present=5, computed=5)}
    >>> time_left(tasks, jobs=1, elapsed=60)
    20.0
    """
    done = sum(task.work_done for task in tasks.values())
    left = [task.work_left for task in tasks.values()]
    if elapsed < ENOUGH_SECONDS or done < ENOUGH_WORK * (done + sum(left)) or not done:
        return None
    speed = done / elapsed
    return max(sum(left) / speed, max(left, default=0.0) / (speed / jobs))


def in_words(seconds: float) -> str:
    """A duration as one says it.

    >>> [in_words(s) for s in (0.4, 42, 750, 9000, 200000)]
    ['less than a second', '42 s', '12 min', '2 h 30 min', '2 d 7 h']
    """
    if seconds < 1:
        return "less than a second"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def left_in_words(seconds: float | None) -> str:
    """The time left, no finer than it is known.

    >>> [left_in_words(s) for s in (None, 30, 100, 750, 9000)]
    ['', 'less than a minute left', 'about 2 min left', 'about 13 min left', 'about 2 h 30 min left']
    """
    if seconds is None:
        return ""
    if seconds < 60:
        return "less than a minute left"
    rounded = 60 * -(-seconds // 60) if seconds < 7200 else 600 * -(-seconds // 600)
    return f"about {in_words(rounded)} left"
