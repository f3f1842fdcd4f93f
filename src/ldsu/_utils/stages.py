"""Stages of a long computation: time them, report them, and keep their results for other settings."""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

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


def counter(total: int, noun: str) -> Callable[[int], None]:
    """A function that threads call with a number of finished items, to report how many of `total` are finished."""
    watcher, lock, done = _watcher.get(), threading.Lock(), 0

    def add(finished: int) -> None:
        nonlocal done
        if watcher is not None:
            with lock:
                done += finished
                watcher(f"{done:,} of {total:,} {noun}", None)

    return add


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

    If `verbose`, print to standard error when a stage of `owner` starts and ends.
    """

    def __init__(self, owner: str, verbose: bool = False) -> None:
        self.owner = owner
        self.verbose = verbose
        self.seconds: dict[str, float] = {}

    def say(self, what: str) -> None:
        """Print a line, if `verbose`."""
        if self.verbose:
            print(f"[{self.owner}] {what}", file=sys.stderr, flush=True)

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


class StageCache:
    """LRU cache of intermediate results by kind and key. Process settings in the order of `sharing_order`.

    Of each kind `keep` results are kept. The oldest is dropped before a new one is computed: with 1 never two are held.
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._kept: dict[str, OrderedDict[Hashable, tuple[Any, float]]] = {}
        self._used: dict[tuple[str, Hashable], float] = {}
        self._made = 0.0

    def once(self, kind: str, key: Hashable, make: Callable[[], T], keep: int | None = None) -> T:
        """Return ``make()``, or its cached result for the same key, and record its time as used by the caller.

        `keep` is the number of results of this kind that are kept, if it differs from that of others.
        """
        kept = self._kept.setdefault(kind, OrderedDict())
        if key not in kept:
            while len(kept) >= (keep or self.keep):
                kept.popitem(last=False)
            made_before, start = self._made, time.perf_counter()
            value = make()
            # Exclude results computed within `make`, which have recorded their time.
            elapsed = time.perf_counter() - start - (self._made - made_before)
            self._made += elapsed
            kept[key] = (value, elapsed)
        else:
            kept.move_to_end(key)
        value, seconds = kept[key]
        self._used[kind, key] = seconds
        return value

    def replace(self, extend: Callable[[Mapping[str, Any]], Mapping[str, Mapping[Hashable, Any]]]) -> None:
        """Replace all results by ``extend(results)``, by kind and key and with the seconds that they took."""
        kept = {kind: OrderedDict(results) for kind, results in extend(self._kept).items()}
        self._kept, self._used = kept, {}

    def drop(self, kind: str) -> None:
        """Forget all results of a kind."""
        self._kept.pop(kind, None)

    def take_seconds(self) -> tuple[float, float]:
        """Seconds since the last call: of all results used, and of those computed since then."""
        seconds = sum(self._used.values()), self._made
        self._used, self._made = {}, 0.0
        return seconds


def sharing_order(keys: Sequence[tuple[Hashable, ...]]) -> list[int]:
    """Indices that group the keys by their first part, then by their second part, and so on.

    Parts need not be comparable: they are ordered by first occurrence.

    Examples
    --------
    >>> sharing_order([("median", 1), (0.5, 2), ("median", 2), (0.5, 1), ("median", 1)])
    [0, 4, 2, 3, 1]
    """
    ranks: list[dict[Hashable, int]] = [{} for _ in (keys[0] if keys else ())]
    ranked = [tuple(rank.setdefault(part, len(rank)) for rank, part in zip(ranks, key, strict=True)) for key in keys]
    return sorted(range(len(keys)), key=lambda i: ranked[i])
