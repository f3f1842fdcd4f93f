"""Progress of an experiment: cells are counted by key, since a store may hold cells of an earlier grid."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldsu.bench.store import Count, Store
from ldsu.bench.tasks import Task

if TYPE_CHECKING:
    from ldsu.bench.spec import Experiment

# The key of a cell within its task. Tuples compare several times faster than cells.
Key = tuple[int, str, str, float, int]
cell_key: attrgetter[Key] = attrgetter("labels", "method", "params", "C", "fold")


class CellGrid:
    """The cells of an experiment, to be compared with a store."""

    def __init__(self, experiment: Experiment, engine: Any) -> None:
        self.experiment, self.engine = experiment, engine
        self._last: tuple[str, set[Key]] = ("", set())

    def count(self, store: Store, task: Task) -> Count:
        """Number of required cells of a task in a store, and how many of them hold an error."""
        present, failed = set(store.keys(task)), set(store.keys(task, failed=True))
        if not present:
            return Count(0, 0)
        wanted = self.keys(task)
        return Count(len(wanted & present), len(wanted & failed))

    def keys(self, task: Task) -> set[Key]:
        """The keys of the required cells of a task, which are those of all splits of its data set."""
        # Only the last set is cached: it takes tens of megabytes, and tasks are grouped by data set.
        if self._last[0] != task.data:
            self._last = task.data, set(map(cell_key, self.engine.wanted_cells(self.experiment, task)))
        return self._last[1]


def survey(store: Store, grid: CellGrid) -> dict[Task, Count]:
    """Number of required cells of each task in a store, which records them as its plan, and how many others it has."""
    found = {task: grid.count(store, task) for task in grid.experiment.tasks}
    surplus = {task: Count(0, 0) for task in found}
    for task, stored in store.counts().items():
        if task in found:
            surplus[task] = Count(stored.done - found[task].done, stored.failed - found[task].failed)
    store.plan({task: len(grid.keys(task)) for task in found}, surplus)
    return found


def status_of_store(store: Store) -> list[dict[str, Any]]:
    """A row for each data set: data, done, total, failed (cells), running (tasks), last_written (time or None).

    Only the store is read; the required cells are those recorded by the last run or merge.
    """
    planned, counts, surplus, running = store.planned(), store.counts(), store.surplus(), store.live_claims()
    rows: dict[str, dict[str, Any]] = {}
    for task in planned or counts:
        empty = {"data": task.data, "done": 0, "total": 0, "failed": 0, "running": 0, "last_written": None}
        rows.setdefault(task.data, empty)["total"] += planned.get(task, 0)
    for task, count in counts.items():
        if task.data not in rows:
            continue
        row, other = rows[task.data], surplus.get(task, Count(0, 0))
        row["last_written"] = max(filter(None, (row["last_written"], count.last)), default=None)
        if task in planned:
            row["done"] += min(count.done - other.done, planned[task])
            row["failed"] += count.failed - other.failed
    for claim in running:
        if claim.task.data in rows:
            rows[claim.task.data]["running"] += 1
    return list(rows.values())


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
