"""The cluster as the solver sees it: named tasks, their results, and words for what can go wrong with workers."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ldsu._utils.memory import GIB
from ldsu.dask.allocation import keep_freed_memory_on, spill_for

# Share of a worker's memory that the data of one of its tasks may take: the rest is for what the task makes of them,
# for results that wait, and for Dask, which spills to disk from 0.6 on.
TASK_SHARE = 0.12
# Of a worker without a limit so much is taken for granted.
USUAL_MEMORY = 4 * GIB


SECONDS_TO_CONNECT = 10.0
# How often to see whether the scheduler is still there, and how long it may be away.
LOOK_SECONDS, GRACE_SECONDS, LOST_SECONDS = 2.0, 5.0, 0.1


class ClusterError(ConnectionError):
    """The cluster could not do its work: no scheduler, workers that die of a task, or lost data that have changed."""


def connect(address: str) -> Any:
    """The client of the scheduler at an address, as ``tcp://host:8786``.

    Raises
    ------
    ClusterError
        If there is none, or none answers in time.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError("Work on a cluster needs Dask. Install it: pip install 'ldsu[dask]'.") from error
    try:
        return Client(address, timeout=SECONDS_TO_CONNECT)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"No Dask scheduler answers at {address!r}. Start one with `dask scheduler`, and workers with `dask worker "
            "ADDRESS`; the address is written where the scheduler starts, as tcp://192.0.2.7:8786."
        ) from error


class Cluster:
    """A Dask client, with keys that tell the stage a task belongs to.

    Parameters
    ----------
    client : distributed.Client or None
        None is the client that is current.
    verbose : bool
        Count tasks on standard error while they are waited for.
    """

    def __init__(self, client: Any = None, *, verbose: bool = False) -> None:
        from distributed import get_client

        if client is None:
            try:
                client = get_client()
            except ValueError as error:
                raise ValueError(
                    "There is no Dask client. Make one first: from distributed import Client; Client(ADDRESS), or "
                    "Client() for the cores of this machine."
                ) from error
        keep_freed_memory_on(client)
        self.client = client
        self.verbose = verbose
        self.token = uuid.uuid4().hex[:8]
        self.stage = "ldsu"
        self._count = 0

    def key(self, name: str) -> str:
        """A key that no other task has."""
        self._count += 1
        return f"ldsu-{name}-{self.token}-{self._count}"

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any, place: str | None = None) -> Any:
        """A task by its name; futures among the arguments are its input. Best it is run on the worker named."""
        where = {} if place is None else {"workers": [place], "allow_other_workers": True}
        return self.client.submit(function, *arguments, key=self.key(name), pure=False, **where)

    def give(self, name: str, value: Any) -> Any:
        """A task that gives a value of the client's. It goes by the scheduler, which keeps it for workers that die."""
        return self.submit(name, given, value)

    def compute(self, name: str, function: Callable[[Any], Any], delayed_objects: Sequence[Any]) -> list[Any]:
        """Apply a function to each delayed object, on the cluster."""
        from dask import delayed

        apply = delayed(function, pure=False)
        return self.client.compute([apply(one, dask_key_name=self.key(name)) for one in delayed_objects])

    def collect(self, futures: Sequence[Any]) -> list[Any]:
        """Results of tasks, which are small, on the client."""
        self.wait(futures)
        with self.translated():
            return self.client.gather(list(futures))

    def wait(self, futures: Sequence[Any]) -> None:
        """Wait until all are done; the first that failed raises its error."""
        from distributed import wait

        pending, count = set(futures), len(set(futures))
        while pending:
            with self.translated():
                try:
                    finished = wait(pending, timeout=LOOK_SECONDS, return_when="FIRST_COMPLETED")
                except TimeoutError:
                    self._require_scheduler()
                    continue
                for future in finished.done:
                    if future.status == "error":
                        future.result()
                    if future.status == "cancelled":
                        raise ClusterError(self._gone())
            # What was done and lost with a worker is computed again.
            lost = {future for future in finished.done if future.status == "lost"}
            pending = finished.not_done | lost
            if lost:
                time.sleep(LOST_SECONDS)
            self.tell(f"{count - len(pending)} of {count} tasks" if pending else "")

    def tell(self, text: str) -> None:
        """Write how far it is, behind the stage's name and in place of what was written there before."""
        if self.verbose and sys.stderr.isatty():
            print(f"\0337  {text}\033[K\0338", end="", file=sys.stderr, flush=True)

    def _require_scheduler(self) -> None:
        """Give up on a scheduler that does not come back: Dask itself waits for a minute or more."""
        end = time.monotonic() + GRACE_SECONDS
        while self.client.status != "running":
            if time.monotonic() > end:
                raise ClusterError(self._gone())
            time.sleep(0.1)

    def during(self, stage: str) -> None:
        """Name the stage, for words of what goes wrong in it."""
        self.stage = stage

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Say in one sentence what happened to the cluster."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError

        try:
            yield
        except ClusterError:
            raise
        except KilledWorker as error:
            raise ClusterError(
                f"Workers died again and again of one task of '{self.stage}', most likely of too little memory: "
                f"{self.memory() / GIB:.1f} GiB each. Give them more memory or fewer threads."
            ) from error
        except (CancelledError, CommClosedError, OSError, TimeoutError) as error:
            # The client may think that all is well a moment longer. Other errors are those of files and their like.
            lost = isinstance(error, CommClosedError | ConnectionError)
            if isinstance(error, OSError) and not lost and self.client.status == "running":
                raise
            raise ClusterError(self._gone()) from error

    def _gone(self) -> str:
        return (
            f"The connection to the Dask scheduler was lost during '{self.stage}'. Nothing was saved. "
            "Start the cluster again, and fit again."
        )

    def workers(self) -> dict[str, dict[str, Any]]:
        """Workers there are, by address."""
        with self.translated():
            self._require_scheduler()
            try:
                info = self.client.scheduler_info(n_workers=-1)
            except TypeError:  # older releases always tell of all
                info = self.client.scheduler_info()
        workers: dict[str, dict[str, Any]] = info["workers"]
        return workers

    def threads(self) -> int:
        """Tasks that can run at a time; an adaptive cluster may have none yet."""
        return max(1, sum(worker["nthreads"] for worker in self.workers().values()))

    def places(self, count: int) -> list[str] | list[None]:
        """Addresses of workers for so many tasks."""
        with self.translated():
            return places(self.client, count)

    def memory(self) -> int:
        """Bytes that a task may count on: the least of the workers' limits, by their threads."""
        limits = [
            (worker["memory_limit"] or USUAL_MEMORY * worker["nthreads"]) // worker["nthreads"]
            for worker in self.workers().values()
        ]
        return int(min(limits, default=USUAL_MEMORY))

    def make_room(self, task_bytes: int) -> None:
        """Have results spilled to disk until each thread can take so many bytes more."""
        with self.translated():
            self.client.run(spill_for, task_bytes, on_error="ignore")

    def rows_of_a_part(self, row_bytes: int) -> int:
        """Rows that one task may hold, at so many bytes a row."""
        return max(1, int(TASK_SHARE * self.memory()) // row_bytes)


def places(client: Any, count: int) -> list[str] | list[None]:
    """Addresses of workers for so many tasks, side by side those that follow each other; None where there are none."""
    threads = [address for address, number in sorted(client.nthreads().items()) for _ in range(number)]
    return [threads[number * len(threads) // count] for number in range(count)] if threads else [None] * count


def given(value: Any) -> Any:
    """A value of the client's, as a task that workers take it from."""
    return value


def even_parts(n: int, most: int, least_parts: int) -> int:
    """How many parts n rows are cut into: at least so many, none larger than `most`, and none without a row."""
    return int(np.clip(-(-n // max(1, most)), min(least_parts, n), n))
