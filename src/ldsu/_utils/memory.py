"""Check memory requirements before allocation."""

from __future__ import annotations

from pathlib import Path

import psutil

GIB = 2**30
# Approximate memory of a block of rows in blockwise computations.
BLOCK_BYTES = 2**26
CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes of free memory, subject to the limits of the container and of this process."""
    limits = [psutil.virtual_memory().available, *_container_headroom(), *_process_headroom()]
    return max(0, min(limits))


def require_memory(needed: int, what: str, instead: str, available: int | None = None) -> None:
    """Raise a `MemoryError` with a remedy if `needed` bytes are not available.

    Parameters
    ----------
    needed : int
        Peak memory of the step, in bytes.
    what : str
        What needs the memory, as the start of a sentence.
    instead : str
        Remedy, as a sentence.
    available : int, optional
        Bytes available. Default: `available_memory()`.
    """
    available = available_memory() if available is None else available
    if needed > available:
        raise MemoryError(
            f"{what} needs about {needed / GIB:.1f} GiB, but {available / GIB:.1f} GiB is available. {instead}"
        )


def _container_headroom() -> list[int]:
    """Bytes left under a cgroup v2 memory limit, if any. Reclaimable file pages count as free."""
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        if limit == "max":
            return []
        used = int((CGROUP / "memory.current").read_text())
        statistics = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return [int(limit) - used + int(statistics.get("inactive_file", 0))]
    except (OSError, ValueError):
        return []


def _process_headroom() -> list[int]:
    """Bytes left under `ulimit -v`, if set (not on Windows)."""
    try:
        import resource
    except ImportError:
        return []
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return [] if soft == resource.RLIM_INFINITY else [soft - psutil.Process().memory_info().vms]
