"""Say how much memory a step needs before it is taken."""

from __future__ import annotations

from pathlib import Path

import psutil

GIB = 2**30
# Work that goes over rows takes them in blocks of about this size.
BLOCK_BYTES = 2**26
CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes that can still be taken: free memory of the machine, of its container, and of this process's limit."""
    limits = [psutil.virtual_memory().available, *_container_headroom(), *_process_headroom()]
    return max(0, min(limits))


def require_memory(needed: int, what: str, instead: str, available: int | None = None) -> None:
    """Raise a `MemoryError` that names the need and a way out, if `needed` bytes are not there.

    Parameters
    ----------
    needed : int
        Bytes the step will hold at its peak.
    what : str
        Who needs it and for what, as the start of a sentence.
    instead : str
        What the user can do, as a sentence.
    available : int, optional
        Bytes there are. Default: of this machine's memory.
    """
    available = available_memory() if available is None else available
    if needed > available:
        raise MemoryError(
            f"{what} needs about {needed / GIB:.1f} GiB, but {available / GIB:.1f} GiB is available. {instead}"
        )


def _container_headroom() -> list[int]:
    """Room left under a cgroup (version 2) memory limit, where there is one. File pages it can drop count as room."""
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
    """Room left under `ulimit -v`, where there is one (not on Windows)."""
    try:
        import resource
    except ImportError:
        return []
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return [] if soft == resource.RLIM_INFINITY else [soft - psutil.Process().memory_info().vms]
