"""Time and optionally report the stages of a long computation."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Watcher = Callable[[str, "float | None"], None]
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` with (name, None) when a stage starts and (name, seconds) when it ends in the `with` body.

    Examples
    --------
    >>> with watching(lambda name, seconds: print(name, "ended" if seconds else "starts")):
    ...     with Stages("LDSU")("kernel"):
    ...         pass
    kernel starts
    kernel ended
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def announce(what: str) -> None:
    """Report an activity to the watcher, without timing it."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(what, None)


def format_duration(seconds: float) -> str:
    """Format a duration.

    >>> [format_duration(s) for s in (0.4, 42, 750, 9000, 200000)]
    ['less than a second', '42 s', '12 min', '2 h 30 min', '2 d 7 h']
    """
    if seconds < 1:
        return "less than a second"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


class Stages:
    """Time named stages: ``with stages("kernel"): ...`` adds to ``stages.seconds["kernel"]``.

    Parameters
    ----------
    owner : str
        Name printed before each stage.
    verbose : bool
        Whether to print to standard error when a stage starts and ends.
    """

    def __init__(self, owner: str, verbose: bool = False) -> None:
        self.owner = owner
        self.verbose = verbose
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time the body of a `with` statement under `name`."""
        start = time.perf_counter()
        watcher = _watcher.get()
        if watcher is not None:
            watcher(name, None)
        if self.verbose:
            print(f"[{self.owner}] {name} ...", end="", file=sys.stderr, flush=True)
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed
            if watcher is not None:
                watcher(name, elapsed)
            if self.verbose:
                print(f" {elapsed:.2f} s", file=sys.stderr, flush=True)
