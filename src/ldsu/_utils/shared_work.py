"""Work that several settings share: each piece made once, and kept while settings that need it follow."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Pieces:
    """Pieces of work by kind and key. Of each kind the last few used are kept, so settings should come `in_order`.

    Parameters
    ----------
    keep : int
        Pieces of each kind to keep. The oldest goes before a new one is made, so that with 1 no two are ever held.
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._kept: dict[str, OrderedDict[Hashable, tuple[Any, float]]] = {}
        self._used: dict[tuple[str, Hashable], float] = {}
        self._made = 0.0

    def once(self, kind: str, key: Hashable, make: Callable[[], T]) -> T:
        """``make()``, or what it gave before for the same key; its time is noted among what the caller relies on."""
        kept = self._kept.setdefault(kind, OrderedDict())
        if key not in kept:
            while len(kept) >= self.keep:
                kept.popitem(last=False)
            made_before, start = self._made, time.perf_counter()
            value = make()
            # Pieces that `make` made on the way have noted their own time.
            own = time.perf_counter() - start - (self._made - made_before)
            self._made += own
            kept[key] = (value, own)
        else:
            kept.move_to_end(key)
        value, seconds = kept[key]
        self._used[kind, key] = seconds
        return value

    def take_seconds(self) -> tuple[float, float]:
        """Since the last call: seconds of the pieces used, whenever they were made, and of those made just now."""
        answer = sum(self._used.values()), self._made
        self._used, self._made = {}, 0.0
        return answer


def in_order(keys: Sequence[tuple[Hashable, ...]]) -> list[int]:
    """Positions of the keys in an order that puts equal first parts together, then equal second parts, and so on.

    The parts need not be comparable with each other: they come in the order in which they were first seen.

    Examples
    --------
    >>> in_order([("median", 1), (0.5, 2), ("median", 2), (0.5, 1), ("median", 1)])
    [0, 4, 2, 3, 1]
    """
    ranks: list[dict[Hashable, int]] = [{} for _ in (keys[0] if keys else ())]
    ranked = [tuple(rank.setdefault(part, len(rank)) for rank, part in zip(ranks, key, strict=True)) for key in keys]
    return sorted(range(len(keys)), key=lambda i: ranked[i])
