"""How far an experiment is: cells are counted by their keys, since a grid that was changed leaves others behind."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldsu.bench.store import Count, Store
from ldsu.bench.tasks import Task

if TYPE_CHECKING:
    from ldsu.bench.spec import Experiment

# What tells the cells of one task apart. As tuples they are compared several times faster than as cells.
Key = tuple[int, str, str, float, int]
key_of: attrgetter[Key] = attrgetter("labels", "method", "params", "C", "fold")


def asked(experiment: Experiment, task: Task) -> str:
    """A sign of all that decides which cells a task has: a task finished under another is opened again.

    The splits of a data set have the same cells and the same sign.
    """
    spec = dataclasses.replace(experiment.data_spec(task.data), title="", paper=None)
    parts = (spec, experiment.methods, experiment.seed, experiment.test_fraction, experiment.C, experiment.folds)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Grid:
    """What an experiment asks for, to be held against a store."""

    def __init__(self, experiment: Experiment, engine: Any) -> None:
        self.experiment, self.engine = experiment, engine
        self._last: tuple[str, set[Key]] = ("", set())

    def tally(self, store: Store, task: Task) -> tuple[Counter[str], Counter[str]]:
        """How many cells of each method that a task asks for are in a store, and how many of those hold an error."""
        there = store.count(task)
        wanted = self._keys(task) if there.done else set()
        done = Counter(key[1] for key in wanted.intersection(store.keys(task)))
        failed = Counter(key[1] for key in wanted.intersection(store.keys(task, failed=True) if there.failed else ()))
        return done, failed

    def _keys(self, task: Task) -> set[Key]:
        # Only the last is kept: they take tens of megabytes, and tasks come data set by data set.
        sign = asked(self.experiment, task)
        if self._last[0] != sign:
            self._last = sign, set(map(key_of, self.engine.wanted_cells(self.experiment, task)))
        return self._last[1]


def survey(store: Store, whole: Experiment, engine: Any, part: Experiment | None = None) -> dict[Task, Count]:
    """How many cells of each task are there, of all methods of an experiment or of those of a part.

    What the whole asks for is noted in the store, and so is which of its tasks are finished.
    """
    part = part or whole
    methods = [spec.key for spec in part.methods]
    grid, finished = Grid(whole, engine), store.finished()
    total = {task: int(engine.count_cells(whole, task)) for task in engine.split_tasks(whole)}
    unasked, found = {}, {}
    for task, cells in total.items():
        sign, there = asked(whole, task), store.count(task)
        is_finished = sign in finished.get(task, ())
        if is_finished and not there.failed:
            # Its cells were looked for when it was finished, and none is ever taken away but for its error.
            count = Count(cells, 0)
            found[task] = count if part is whole else Count(int(engine.count_cells(part, task)), 0)
        else:
            done, failed = grid.tally(store, task)
            count = Count(done.total(), failed.total())
            found[task] = Count(sum(done[key] for key in methods), sum(failed[key] for key in methods))
            if count.done == cells and not is_finished:
                store.finish(task, sign)
        unasked[task] = Count(there.done - count.done, there.failed - count.failed)
    store.plan(total, unasked)
    return found


def status_of_store(store: Store) -> list[dict[str, Any]]:
    """A row for each data set: data, done, total, failed (cells), running (tasks), last_written (time or None).

    The store alone is read; what the experiment asks for is what its last run or merge noted.
    """
    planned, counts, unasked, running = store.planned(), store.counts(), store.unasked(), store.live_claims()
    none = Count(0, 0)
    rows = []
    for key in dict.fromkeys(task.data for task in planned or counts):
        there = [(task, count) for task, count in counts.items() if task.data == key]
        asked_for = [
            (planned[task], count.done - unasked.get(task, none).done, count.failed - unasked.get(task, none).failed)
            for task, count in there
            if task in planned
        ]
        rows.append(
            {
                "data": key,
                "done": sum(min(done, total) for total, done, _ in asked_for),
                "total": sum(cells for task, cells in planned.items() if task.data == key),
                "failed": sum(failed for _, _, failed in asked_for),
                "running": sum(claim.task.data == key for claim in running),
                "last_written": max((count.last for _, count in there if count.last is not None), default=None),
            }
        )
    return rows


def status_of_stores(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """A row for each store: store, then the sums of what `status_of_store` gives."""
    found = []
    for path in paths:
        with Store(path, read_only=True) as store:
            rows = status_of_store(store)
        sums = {name: sum(row[name] for row in rows) for name in ("done", "total", "failed", "running")}
        last = max((row["last_written"] for row in rows if row["last_written"] is not None), default=None)
        found.append({"store": path.stem, **sums, "last_written": last})
    return found
