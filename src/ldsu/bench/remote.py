"""Tasks of an experiment on a Dask cluster, whose rows come back as they are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ldsu.bench.spec import Experiment
from ldsu.bench.tasks import Task

# How long to wait for a message before checking the state of the task.
POLL_INTERVAL = "500ms"


def connect_to(address: str | None) -> AbstractContextManager[Any]:
    """The client of the cluster at an address, to be closed; of None without an address."""
    if address is None:
        return nullcontext()
    from ldsu.dask.cluster import connect

    client: AbstractContextManager[Any] = connect(address)
    return client


def count_slots(client: Any) -> int:
    """Number of tasks that a cluster can run at a time."""
    from ldsu.dask.cluster import Cluster

    return Cluster(client).threads()


class ClusterWorker:
    """One task at a time on a Dask cluster. Dask restarts a task whose worker dies; duplicate rows are written once.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Any) -> None:
        from ldsu.dask.cluster import Cluster

        self.cluster = Cluster(client)

    def compute(
        self, function: Callable[..., None], engine: str, experiment: Experiment, task: Task, *arguments: Any
    ) -> Iterator[Any]:
        """Call `ldsu.bench.worker.run_task` on the cluster; yields what it sends."""
        from distributed import Queue

        self.cluster.set_stage(f"{task.data}, split {task.split}")
        with self.cluster.translate_errors():
            messages = Queue(client=self.cluster.client)
            future = self.cluster.submit("cells", _call, function, messages.name, engine, experiment, task, *arguments)
            yield f"{task.data}, split {task.split} on the cluster"
            try:
                while not future.done() or messages.qsize():
                    try:
                        yield messages.get(timeout=POLL_INTERVAL)
                    except TimeoutError:
                        continue
                future.result()
            finally:
                messages.close()

    def stop(self) -> None:
        """Nothing to do: tasks end with the client."""


def _call(function: Callable[..., None], queue: str, *arguments: Any) -> None:
    # By name: a scheduler in the client's process would deadlock when it unpickles a queue.
    from distributed import Queue

    function(Queue(queue).put, *arguments)
