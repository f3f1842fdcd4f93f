"""Tasks of an experiment on a Dask cluster: a local process waits for each task and writes its rows as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from functools import cache
from importlib import import_module
from typing import Any

from ldsu.bench.spec import Experiment
from ldsu.bench.tasks import Cell, Task

# How long to wait for rows before checking the state of the task.
POLL_INTERVAL = "500ms"


@cache
def get_client(address: str) -> Any:
    """The client of a cluster, one per process."""
    from ldsu.dask.cluster import connect

    return connect(address)


def slots(address: str) -> int:
    """Number of tasks that a cluster can run at a time."""
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

    Dask restarts a task whose worker dies; duplicate rows are written once.
    """
    from distributed import Queue

    from ldsu.dask.cluster import Cluster

    client = get_client(address)
    cluster = Cluster(client)
    cluster.set_stage(f"{task.data}, split {task.split}")
    with cluster.translate_errors():
        rows = Queue(client=client)
        future = cluster.submit("cells", _run_task, engine, experiment, task, done, options, rows)
        progress(f"{task.data}, split {task.split} on the cluster")
        try:
            while not future.done() or rows.qsize():
                try:
                    yield rows.get(timeout=POLL_INTERVAL)
                except TimeoutError:
                    continue
            future.result()
        finally:
            rows.close()


def _run_task(
    engine: str, experiment: Experiment, task: Task, done: Set[Cell], options: dict[str, Any], rows: Any
) -> None:
    for batch in import_module(engine).run_task(experiment, task, done.__contains__, lambda text: None, **options):
        rows.put(batch)
