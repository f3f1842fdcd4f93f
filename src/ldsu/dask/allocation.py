"""Memory of workers: freed memory is reused, and results are spilled before large tasks.

Dask starts workers with ``MALLOC_TRIM_THRESHOLD_`` set, so that freed memory is returned to the system at once. With
glibc this has a side effect: every array above 128 KiB is mapped anew, page by page, on each allocation. The neighbor
search and the factor, which allocate many arrays of a few megabytes, take twice as long that way. Workers therefore
keep a small part of the freed memory.

Dask spills results to disk when they fill most of a worker's memory. It is too slow for a task that allocates as much
within a second: the worker is killed. Results are therefore spilled before such a task starts.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import time
from contextlib import suppress
from typing import Any

# Arrays up to this size are allocated from freed memory, and this much of it is kept at the end of the heap.
REUSED_BYTES, KEPT_BYTES = 32 * 2**20, 128 * 2**20
# Minimum interval between returns of all freed memory.
TRIM_SECONDS = 3.0
# Share of a worker's memory for stored results and temporary arrays of tasks together: above it Dask spills, which
# frees none of the memory of a running task.
FILLED_SHARE = 0.7
# Constants of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def reuse_freed_memory() -> bool:
    """Set the allocator of this process to reuse freed memory; return False if it is not glibc's."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, REUSED_BYTES) and mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))


def trim_freed_memory() -> None:
    """Return all freed memory of this process to the system."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


async def spill_for(task_bytes: int, dask_worker: Any) -> None:
    """Spill the least recently used results until each thread of a worker can allocate `task_bytes`."""
    from distributed.spill import SpillBuffer

    limit, results = dask_worker.memory_manager.memory_limit, dask_worker.data
    if not isinstance(results, SpillBuffer):  # a worker without a memory limit, or configured not to spill
        return
    max_kept = max(0, FILLED_SHARE * limit - task_bytes * dask_worker.state.nthreads)
    while results.fast and results.fast.total_weight > max_kept and results.evict() != -1:
        await asyncio.sleep(0)  # let the event loop handle other requests
    trim_freed_memory()


def keep_freed_memory_on(client: Any) -> None:
    """Let current and future workers of a client reuse freed memory, and return it periodically."""
    from distributed.diagnostics.plugin import WorkerPlugin

    class ReusesFreedMemory(WorkerPlugin):
        """Dask identifies the plugin by its name and sets it up once per worker."""

        name = "ldsu-reuses-freed-memory"

        def setup(self, worker: Any) -> None:
            """Configure the allocator of the worker."""
            self.reuses, self.last_trim = reuse_freed_memory(), time.monotonic()

        def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
            """Return memory after a task: free memory between arrays in use is not returned automatically."""
            if self.reuses and finish == "memory" and time.monotonic() > self.last_trim + TRIM_SECONDS:
                trim_freed_memory()
                self.last_trim = time.monotonic()

    client.register_plugin(ReusesFreedMemory())
