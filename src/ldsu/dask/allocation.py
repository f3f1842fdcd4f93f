"""Memory of workers: freed memory that is used again, and room that is made before large tasks.

Dask starts workers with ``MALLOC_TRIM_THRESHOLD_`` set, so that what they free goes back to the system at once. With
glibc that has a second effect: every array above 128 KiB is mapped anew, page by page, each time it is made. The search
for neighbours and the factor, which make many arrays of a few megabytes, take twice as long that way. So workers keep
a little of the memory they freed.

Dask spills results to disk when they take most of a worker's memory. A task that takes as much within a second is not
waited for: the worker is killed. So room is made before it begins.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import time
from contextlib import suppress
from typing import Any

# Arrays up to this size are taken from memory that was freed, and so much of that is kept at the end of the heap.
REUSED_BYTES, KEPT_BYTES = 32 * 2**20, 128 * 2**20
# How often all of it is given back, at most.
SECONDS_BETWEEN = 3.0
# Of a worker's memory, the share for results that stay in it and what tasks make, together: from there on Dask spills,
# which frees nothing of what a task works on.
FILLED_SHARE = 0.7
# As glibc's malloc.h has them.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def reuse_freed_memory() -> bool:
    """Tell this process's allocator so; False where it is not glibc's."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, REUSED_BYTES) and mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))


def give_back_freed_memory() -> None:
    """All that this process's allocator holds and nobody uses goes back to the system."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


async def spill_for(task_bytes: int, dask_worker: Any) -> None:
    """Spill the results that were used least lately, until each of a worker's threads can take so many bytes."""
    from distributed.spill import SpillBuffer

    limit, results = dask_worker.memory_manager.memory_limit, dask_worker.data
    if not isinstance(results, SpillBuffer):  # a worker without a limit, or one that was told not to spill
        return
    kept = max(0, FILLED_SHARE * limit - task_bytes * dask_worker.state.nthreads)
    while results.fast and results.fast.total_weight > kept and results.evict() != -1:
        await asyncio.sleep(0)  # the worker has others to answer
    give_back_freed_memory()


def keep_freed_memory_on(client: Any) -> None:
    """Workers of a client that are there, and those that come, reuse freed memory, and give it back now and then."""
    from distributed.diagnostics.plugin import WorkerPlugin

    class ReusesFreedMemory(WorkerPlugin):
        """Dask knows it by its name, and sets it up once on each worker."""

        name = "ldsu-reuses-freed-memory"

        def setup(self, worker: Any) -> None:
            """On the worker."""
            self.reuses, self.given_back = reuse_freed_memory(), time.monotonic()

        def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
            """After a task: what lies between arrays that are in use is not given back by itself."""
            if self.reuses and finish == "memory" and time.monotonic() > self.given_back + SECONDS_BETWEEN:
                give_back_freed_memory()
                self.given_back = time.monotonic()

    client.register_plugin(ReusesFreedMemory())
