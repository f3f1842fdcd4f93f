"""Cache of intermediate results that are shared by several settings."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Pieces:
    """LRU cache of intermediate results by kind and key. Process settings in the order of `in_order`.

    Parameters
    ----------
    keep : int
        Results of each kind to keep. The oldest is dropped before a new one is computed, so with 1 never two are held.
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._kept: dict[str, OrderedDict[Hashable, tuple[Any, float]]] = {}
        self._used: dict[tuple[str, Hashable], float] = {}
        self._made = 0.0

    def once(self, kind: str, key: Hashable, make: Callable[[], T]) -> T:
        """Return ``make()``, or its cached result for the same key, and record its time as used by the caller."""
        kept = self._kept.setdefault(kind, OrderedDict())
        if key not in kept:
            while len(kept) >= self.keep:
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

    def take_seconds(self) -> tuple[float, float]:
        """Seconds since the last call: of all results used, and of those computed since then."""
        seconds = sum(self._used.values()), self._made
        self._used, self._made = {}, 0.0
        return seconds


def in_order(keys: Sequence[tuple[Hashable, ...]]) -> list[int]:
    """Indices that group the keys by their first part, then by their second part, and so on.

    Parts need not be comparable: they are ordered by first occurrence.

    Examples
    --------
    >>> in_order([("median", 1), (0.5, 2), ("median", 2), (0.5, 1), ("median", 1)])
    [0, 4, 2, 3, 1]
    """
    ranks: list[dict[Hashable, int]] = [{} for _ in (keys[0] if keys else ())]
    ranked = [tuple(rank.setdefault(part, len(rank)) for rank, part in zip(ranks, key, strict=True)) for key in keys]
    return sorted(range(len(keys)), key=lambda i: ranked[i])
