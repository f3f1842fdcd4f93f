"""How far an experiment is, from its store alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ldsu.bench.store import Store


def status_of_store(store: Store) -> list[dict[str, Any]]:
    """A row for each data set: data, done, total, failed (cells), running (tasks), last_written (time or None)."""
    planned, counts, running = store.planned(), store.counts(), store.live_claims()
    rows = []
    for key in dict.fromkeys(task.data for task in [*planned, *counts]):
        there = [count for task, count in counts.items() if task.data == key]
        rows.append(
            {
                "data": key,
                "done": sum(
                    min(counts[task].done, cells)
                    for task, cells in planned.items()
                    if task.data == key and task in counts
                ),
                "total": sum(cells for task, cells in planned.items() if task.data == key),
                "failed": sum(count.failed for count in there),
                "running": sum(claim.task.data == key for claim in running),
                "last_written": max((count.last for count in there if count.last is not None), default=None),
            }
        )
    return rows


def status_of_stores(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """A row for each store: store, then the sums of what `status_of_store` gives."""
    found = []
    for path in paths:
        with Store(path, create=False) as store:
            rows = status_of_store(store)
        sums = {name: sum(row[name] for row in rows) for name in ("done", "total", "failed", "running")}
        last = max((row["last_written"] for row in rows if row["last_written"] is not None), default=None)
        found.append({"store": path.stem, **sums, "last_written": last})
    return found
