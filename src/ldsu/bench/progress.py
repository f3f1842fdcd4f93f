"""Progress and outcome of a run, and the estimate of the time left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ldsu._utils.stages import format_duration
from ldsu.bench.tasks import Task

# Minimum elapsed time and completed share of the work for an estimate of the time left.
MIN_ELAPSED_SECONDS = 15.0
MIN_WORK_FRACTION = 0.02


@dataclass
class TaskProgress:
    """A task of this run."""

    total: int  # cells of the finished task
    weight: float  # estimated cost of all cells
    present: int = 0  # cells in the store, computed by any run
    computed: int = 0  # cells computed by this run
    finished: bool = False  # whether all cells are computed
    surplus: int = 0  # rows in the store that are not required, as of an earlier grid

    @property
    def done(self) -> int:
        """Cells in the store, at most `total`."""
        return self.total if self.finished else min(self.present, self.total)

    @property
    def remaining_work(self) -> float:
        """Estimated cost of the remaining cells."""
        return 0.0 if self.finished else self.weight * (1 - self.done / max(self.total, 1))

    @property
    def completed_work(self) -> float:
        """Estimated cost of the cells computed by this run; cells of earlier runs say nothing about the speed."""
        return self.weight * self.computed / max(self.total, 1)


@dataclass
class Progress:
    """Progress of the tasks of a run while it lasts, and its outcome at the end."""

    tasks: dict[Task, TaskProgress]
    jobs: int
    started: float = field(default_factory=time.monotonic)
    doing: dict[int, str] = field(default_factory=dict)  # current step of each worker
    other_tasks: int = 0  # that other runs are computing
    failed: int = 0  # cells that hold an error instead of a score
    errors: list[str] = field(default_factory=list)  # abandoned tasks and other errors
    interrupted: bool = False  # by Ctrl-C or SIGTERM
    lost: bool = False  # the store was deleted or replaced during the run

    @property
    def total(self) -> int:
        """Total number of cells."""
        return sum(task.total for task in self.tasks.values())

    @property
    def done(self) -> int:
        """Cells in the store."""
        return 0 if self.lost else sum(task.done for task in self.tasks.values())

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
        """Estimated seconds left, or None while there is too little data."""
        return time_left(self.tasks, self.jobs, self.elapsed)

    @property
    def exit_code(self) -> int:
        """0 if all cells are computed, 1 if some failed, 130 if interrupted."""
        return 130 if self.interrupted else int(self.done < self.total or self.failed > 0 or bool(self.errors))


def time_left(tasks: Mapping[Task, TaskProgress], jobs: int, elapsed: float) -> float | None:
    """Remaining work divided by the speed so far; at least the time of the longest task on one worker.

    >>> tasks = {Task("a", 0): TaskProgress(total=10, weight=2.0, present=10, computed=10, finished=True),
    ...          Task("a", 1): TaskProgress(total=10, weight=2.0, present=5, computed=5)}
    >>> time_left(tasks, jobs=1, elapsed=60)
    20.0
    """
    done = sum(task.completed_work for task in tasks.values())
    left = [task.remaining_work for task in tasks.values()]
    if elapsed < MIN_ELAPSED_SECONDS or done < MIN_WORK_FRACTION * (done + sum(left)) or not done:
        return None
    speed = done / elapsed
    return max(sum(left) / speed, max(left, default=0.0) / (speed / jobs))


def format_time_left(seconds: float | None) -> str:
    """Format an estimated time left, rounded up.

    >>> [format_time_left(s) for s in (None, 30, 100, 750, 9000)]
    ['', 'less than a minute left', 'about 2 min left', 'about 13 min left', 'about 2 h 30 min left']
    """
    if seconds is None:
        return ""
    if seconds < 60:
        return "less than a minute left"
    rounded = 60 * -(-seconds // 60) if seconds < 7200 else 600 * -(-seconds // 600)
    return f"about {format_duration(rounded)} left"
