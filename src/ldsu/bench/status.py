"""Progress of an experiment: cells are counted by key, since a store may hold cells of an earlier grid."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Set
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldsu.bench.store import Count, Store
from ldsu.bench.tasks import Cell, Task

if TYPE_CHECKING:
    from ldsu.bench.spec import Experiment

# The key of a cell within its task. Tuples compare several times faster than cells.
Key = tuple[int, str, str, float, int]
cell_key: attrgetter[Key] = attrgetter("labels", "method", "params", "C", "fold")


def task_fingerprint(experiment: Experiment, task: Task) -> str:
    """A hash of everything that determines the cells of a task: a task finished under another hash is reopened.

    The splits of a data set have the same cells and the same hash.
    """
    spec = dataclasses.replace(experiment.data_spec(task.data), title="", paper=None)
    parts = (spec, experiment.methods, experiment.seed, experiment.test_fraction, experiment.C, experiment.folds)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Grid:
    """The cells of an experiment, to be compared with a store."""

    def __init__(self, experiment: Experiment, engine: Any) -> None:
        self.experiment, self.engine = experiment, engine
        self._last: tuple[str, set[Key]] = ("", set())

    def count_cells(self, store: Store, task: Task) -> tuple[Counter[str], Counter[str]]:
        """Number of required cells of a task in a store by method, and how many of them hold an error."""
        stored = store.count(task)
        wanted = self._keys(task) if stored.done else set()
        done = Counter(key[1] for key in wanted.intersection(store.keys(task)))
        failed = Counter(key[1] for key in wanted.intersection(store.keys(task, failed=True) if stored.failed else ()))
        return done, failed

    def count_present(self, task: Task, cells: Set[Cell]) -> int:
        """Number of required cells of a task among these."""
        return len(self._keys(task).intersection(map(cell_key, cells))) if cells else 0

    def _keys(self, task: Task) -> set[Key]:
        # Only the last set is cached: it takes tens of megabytes, and tasks are grouped by data set.
        fingerprint = task_fingerprint(self.experiment, task)
        if self._last[0] != fingerprint:
            self._last = fingerprint, set(map(cell_key, self.engine.wanted_cells(self.experiment, task)))
        return self._last[1]


def survey(store: Store, whole: Experiment, engine: Any, part: Experiment | None = None) -> dict[Task, Count]:
    """Number of computed cells of each task, for all methods of an experiment or those of a part.

    The cells that the whole experiment requires and its finished tasks are recorded in the store.
    """
    part = part or whole
    methods = [spec.key for spec in part.methods]
    grid, finished = Grid(whole, engine), store.finished()
    total = {task: int(engine.count_cells(whole, task)) for task in engine.split_tasks(whole)}
    surplus, found = {}, {}
    for task, cells in total.items():
        fingerprint, stored = task_fingerprint(whole, task), store.count(task)
        is_finished = fingerprint in finished.get(task, ())
        if is_finished and not stored.failed:
            # Its cells were counted when it was finished, and only cells with an error are ever deleted.
            count = Count(cells, 0)
            found[task] = count if part is whole else Count(int(engine.count_cells(part, task)), 0)
        else:
            done, failed = grid.count_cells(store, task)
            count = Count(done.total(), failed.total())
            found[task] = Count(sum(done[key] for key in methods), sum(failed[key] for key in methods))
            if count.done == cells and not is_finished:
                store.finish(task, fingerprint)
        surplus[task] = Count(stored.done - count.done, stored.failed - count.failed)
    store.plan(total, surplus)
    return found


def status_of_store(store: Store) -> list[dict[str, Any]]:
    """A row for each data set: data, done, total, failed (cells), running (tasks), last_written (time or None).

    Only the store is read; the required cells are those recorded by the last run or merge.
    """
    planned, counts, surplus, running = store.planned(), store.counts(), store.surplus(), store.live_claims()
    none = Count(0, 0)
    rows = []
    for key in dict.fromkeys(task.data for task in planned or counts):
        stored = [(task, count) for task, count in counts.items() if task.data == key]
        required = [
            (planned[task], count.done - surplus.get(task, none).done, count.failed - surplus.get(task, none).failed)
            for task, count in stored
            if task in planned
        ]
        rows.append(
            {
                "data": key,
                "done": sum(min(done, total) for total, done, _ in required),
                "total": sum(cells for task, cells in planned.items() if task.data == key),
                "failed": sum(failed for _, _, failed in required),
                "running": sum(claim.task.data == key for claim in running),
                "last_written": max((count.last for _, count in stored if count.last is not None), default=None),
            }
        )
    return rows


def status_of_stores(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """A row for each store: its name and the sums over `status_of_store`."""
    found = []
    for path in paths:
        with Store(path, read_only=True) as store:
            rows = status_of_store(store)
        sums = {name: sum(row[name] for row in rows) for name in ("done", "total", "failed", "running")}
        last = max((row["last_written"] for row in rows if row["last_written"] is not None), default=None)
        found.append({"store": path.stem, **sums, "last_written": last})
    return found
