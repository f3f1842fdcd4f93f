"""Interface of the solver to a Dask cluster: named tasks, their results, and error messages for failures of workers."""

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

# Share of a worker's memory for the input of one task: the rest is for temporary arrays, for stored results, and for
# Dask, which spills to disk from 0.6 on.
TASK_SHARE = 0.12
# Assumed memory of a worker without a limit.
DEFAULT_MEMORY = 4 * GIB


SECONDS_TO_CONNECT = 10.0
# Interval between checks of the scheduler, how long it may be unreachable, and the delay after a lost result.
POLL_SECONDS, GRACE_SECONDS, LOST_SECONDS = 2.0, 5.0, 0.1


class ClusterError(ConnectionError):
    """The cluster failed: no scheduler, workers that die repeatedly, or lost data that changed."""


def connect(address: str) -> Any:
    """Connect to the scheduler at an address such as ``tcp://host:8786``.

    Raises
    ------
    ClusterError
        If Dask is not installed, or no scheduler answers in time.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError("Running on a cluster requires Dask. Install it: pip install 'ldsu[dask]'.") from error
    try:
        return Client(address, timeout=SECONDS_TO_CONNECT)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"No Dask scheduler answers at {address!r}. Start one with `dask scheduler`, and workers with `dask worker "
            "ADDRESS`; the scheduler prints its address when it starts, such as tcp://192.0.2.7:8786."
        ) from error


class Cluster:
    """A Dask client with readable task keys.

    Parameters
    ----------
    client : distributed.Client or None
        None uses the current client.
    verbose : bool
        Print the number of finished tasks to standard error while waiting.
    """

    def __init__(self, client: Any = None, *, verbose: bool = False) -> None:
        from distributed import get_client

        if client is None:
            try:
                client = get_client()
            except ValueError as error:
                raise ValueError(
                    "There is no Dask client. Create one first: from distributed import Client; Client(ADDRESS), or "
                    "Client() for the cores of this machine."
                ) from error
        keep_freed_memory_on(client)
        self.client = client
        self.verbose = verbose
        self.token = uuid.uuid4().hex[:8]
        self.stage = "ldsu"
        self._count = 0

    def key(self, name: str) -> str:
        """A unique task key."""
        self._count += 1
        return f"ldsu-{name}-{self.token}-{self._count}"

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any, worker: str | None = None) -> Any:
        """Submit a named task; futures among the arguments are its input. `worker` is the preferred worker."""
        options = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        return self.client.submit(function, *arguments, key=self.key(name), pure=False, **options)

    def put(self, name: str, value: Any) -> Any:
        """Future of a value of the client. The scheduler keeps it, so it outlives workers."""
        return self.submit(name, identity, value)

    def compute(self, name: str, function: Callable[[Any], Any], delayed_objects: Sequence[Any]) -> list[Any]:
        """Apply a function to each delayed object, on the cluster."""
        from dask import delayed

        apply = delayed(function, pure=False)
        return self.client.compute([apply(item, dask_key_name=self.key(name)) for item in delayed_objects])

    def collect(self, futures: Sequence[Any]) -> list[Any]:
        """Bring the (small) results of tasks to the client."""
        self.wait(futures)
        with self.translate_errors():
            return self.client.gather(list(futures))

    def wait(self, futures: Sequence[Any]) -> None:
        """Wait until all futures are done; raise the error of the first that failed."""
        from distributed import wait

        pending, count = set(futures), len(set(futures))
        while pending:
            with self.translate_errors():
                try:
                    finished = wait(pending, timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
                except TimeoutError:
                    self._require_scheduler()
                    continue
                for future in finished.done:
                    if future.status == "error":
                        future.result()
                    if future.status == "cancelled":
                        raise ClusterError(self._connection_lost())
            # Results that were lost with a worker are recomputed.
            lost = {future for future in finished.done if future.status == "lost"}
            pending = finished.not_done | lost
            if lost:
                time.sleep(LOST_SECONDS)
            self.show_progress(f"{count - len(pending)} of {count} tasks" if pending else "")

    def show_progress(self, text: str) -> None:
        """Print progress after the stage's name, in place of the previous text."""
        if self.verbose and sys.stderr.isatty():
            print(f"\0337  {text}\033[K\0338", end="", file=sys.stderr, flush=True)

    def _require_scheduler(self) -> None:
        """Raise an error if the scheduler does not come back: Dask itself waits for a minute or more."""
        end = time.monotonic() + GRACE_SECONDS
        while self.client.status != "running":
            if time.monotonic() > end:
                raise ClusterError(self._connection_lost())
            time.sleep(0.1)

    def set_stage(self, stage: str) -> None:
        """Set the stage that error messages name."""
        self.stage = stage

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise failures of the cluster as `ClusterError` with a one-sentence message."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError

        try:
            yield
        except ClusterError:
            raise
        except KilledWorker as error:
            raise ClusterError(
                f"Workers died repeatedly in one task of '{self.stage}', most likely because they ran out of memory: "
                f"{self.memory() / GIB:.1f} GiB each. Give them more memory or fewer threads."
            ) from error
        except (CancelledError, CommClosedError, OSError, TimeoutError) as error:
            # The client may not have noticed the lost connection yet. Other OSErrors come from files and the like.
            lost = isinstance(error, CommClosedError | ConnectionError)
            if isinstance(error, OSError) and not lost and self.client.status == "running":
                raise
            raise ClusterError(self._connection_lost()) from error

    def _connection_lost(self) -> str:
        return (
            f"The connection to the Dask scheduler was lost during '{self.stage}'. Nothing was saved. "
            "Restart the cluster and fit again."
        )

    def workers(self) -> dict[str, dict[str, Any]]:
        """Information on the workers, by address."""
        with self.translate_errors():
            self._require_scheduler()
            try:
                info = self.client.scheduler_info(n_workers=-1)
            except TypeError:  # older releases always return all workers
                info = self.client.scheduler_info()
        workers: dict[str, dict[str, Any]] = info["workers"]
        return workers

    def threads(self) -> int:
        """Number of tasks that can run at a time; at least 1, since an adaptive cluster may have no workers yet."""
        return max(1, sum(worker["nthreads"] for worker in self.workers().values()))

    def assign_workers(self, count: int) -> list[str] | list[None]:
        """Worker addresses for `count` tasks."""
        with self.translate_errors():
            return assign_workers(self.client, count)

    def memory(self) -> int:
        """Bytes available to a task: the smallest memory limit per thread of all workers."""
        limits = [
            (worker["memory_limit"] or DEFAULT_MEMORY * worker["nthreads"]) // worker["nthreads"]
            for worker in self.workers().values()
        ]
        return int(min(limits, default=DEFAULT_MEMORY))

    def free_memory(self, task_bytes: int) -> None:
        """Spill results to disk until each thread can allocate `task_bytes`."""
        with self.translate_errors():
            self.client.run(spill_for, task_bytes, on_error="ignore")

    def rows_per_part(self, row_bytes: int) -> int:
        """Maximum number of rows of one task, at `row_bytes` per row."""
        return max(1, int(TASK_SHARE * self.memory()) // row_bytes)


def assign_workers(client: Any, count: int) -> list[str] | list[None]:
    """Worker addresses for `count` tasks, consecutive tasks on the same worker; None where there are no workers."""
    threads = [address for address, number in sorted(client.nthreads().items()) for _ in range(number)]
    return [threads[number * len(threads) // count] for number in range(count)] if threads else [None] * count


def identity(value: Any) -> Any:
    """Return the value: the task of `Cluster.put`."""
    return value


def even_parts(n: int, max_rows: int, min_parts: int) -> int:
    """Number of parts of n rows: at least `min_parts`, each of at most `max_rows` rows, and none empty."""
    return int(np.clip(-(-n // max(1, max_rows)), min(min_parts, n), n))
