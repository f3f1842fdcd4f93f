"""Check memory requirements before allocation."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

GIB = 2**30
# Approximate memory of a block of rows in blockwise computations.
BLOCK_BYTES = 2**26
CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes of free memory, subject to the limits of the container (cgroup v2) and of this process (`ulimit -v`)."""
    limits = [psutil.virtual_memory().available]
    with suppress(OSError, ValueError):  # no container, or its limit is "max"
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
        statistics = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        limits.append(limit - used + int(statistics.get("inactive_file", 0)))  # file pages can be reclaimed
    with suppress(ImportError):  # not on Windows
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft - psutil.Process().memory_info().vms)
    return max(0, min(limits))


def require_memory(needed: int, what: str, instead: str, available: int | None = None) -> None:
    """Raise a `MemoryError` if `needed` bytes are not available: `what` needs them, do this `instead` (a sentence)."""
    available = available_memory() if available is None else available
    if needed > available:
        raise MemoryError(
            f"{what} needs about {needed / GIB:.1f} GiB, but {available / GIB:.1f} GiB is available. {instead}"
        )
