"""What readers of several formats share: a check of the memory, a limit of packing, and names for columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ldsu._utils.memory import require_memory
from ldsu.tables.table import TableError

# Deflate never packs more than so many bytes into one: an archive that claims more is not what it says.
DEFLATE_LIMIT = 1032


def require(path: Path, needed: int) -> None:
    """Raise a `MemoryError` before a file is read that needs more bytes than there are."""
    require_memory(needed, f"Reading {path.name}", "Give a part of its rows, or use a machine with more memory.")


def named(path: Path, names: Sequence[str], notes: list[str]) -> list[str]:
    """Names of columns, one for each that has none; two columns of one name are an error."""
    empty = [place for place, name in enumerate(names, 1) if not name]
    if empty:
        shown = ", ".join(f"'column {place}'" for place in empty[:3]) + (" ..." if len(empty) > 3 else "")
        notes.append(f"{len(empty)} of the columns had no name and got one: {shown}.")
    filled = [name or f"column {place}" for place, name in enumerate(names, 1)]
    seen: dict[str, int] = {}
    for place, name in enumerate(filled, 1):
        if name in seen:
            raise TableError(
                f"{path.name} has two columns named {name!r}, the {_ordinal(seen[name])} and the {_ordinal(place)}. "
                "Rename one of them; if the first row is data, put a row of names before it."
            )
        seen[name] = place
    return filled


def _ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th.

    Examples
    --------
    >>> [_ordinal(number) for number in (1, 2, 3, 4, 11, 112, 123)]
    ['1st', '2nd', '3rd', '4th', '11th', '112th', '123rd']
    """
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
