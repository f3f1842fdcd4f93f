"""Tasks of an experiment on a Dask cluster: a process here waits for each, and writes its rows as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from functools import cache
from importlib import import_module
from typing import Any

from ldsu.bench.spec import Experiment
from ldsu.bench.tasks import Cell, Task

# How long to wait for rows before looking whether the task is still there.
PATIENCE = "500ms"


@cache
def client_of(address: str) -> Any:
    """The client of a cluster, one for this process."""
    from ldsu.dask.cluster import connect

    return connect(address)


def slots(address: str) -> int:
    """Tasks that a cluster can run at a time."""
    from ldsu.dask.cluster import Cluster, connect

    with connect(address) as client:
        return Cluster(client).threads()


def run_on_cluster(
    address: str,
    engine: str,
    experiment: Experiment,
    task: Task,
    done: Set[Cell],
    progress: Callable[[str], None],
    options: dict[str, Any],
) -> Iterator[list[Any]]:
    """Batches of rows, as ``engine.run_task`` yields them, from a worker of the cluster.

    A task whose worker dies is begun again by Dask; rows that came twice are written once.
    """
    from distributed import Queue

    from ldsu.dask.cluster import Cluster

    client = client_of(address)
    cluster = Cluster(client)
    cluster.during(f"{task.data}, split {task.split}")
    with cluster.translated():
        rows = Queue(client=client)
        future = cluster.submit("cells", _run_there, engine, experiment, task, done, options, rows)
        progress(f"{task.data}, split {task.split} on the cluster")
        try:
            while not future.done() or rows.qsize():
                try:
                    yield rows.get(timeout=PATIENCE)
                except TimeoutError:
                    continue
            future.result()
        finally:
            rows.close()


def _run_there(
    engine: str, experiment: Experiment, task: Task, done: Set[Cell], options: dict[str, Any], rows: Any
) -> None:
    for batch in import_module(engine).run_task(experiment, task, done.__contains__, lambda text: None, **options):
        rows.put(batch)
