"""Helpers of several readers: memory check, compression limit, column names, and stripped values."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ldsu._utils.memory import available_memory, require_memory
from ldsu.tables.table import TableError, import_extra

# Copies of a table while it is read and encoded, and the share of the free memory that they may take.
MATRIX_COPIES, LARGE_SHARE = 7, 0.5
# Maximum compression ratio of deflate: an archive that claims more is invalid.
DEFLATE_LIMIT = 1032


def require(path: Path, needed: int) -> None:
    """Raise a `MemoryError` if reading a file needs more bytes than are available."""
    require_memory(needed, f"Reading {path.name}", "Use fewer rows, or a machine with more memory.")


def is_large(n_bytes: int) -> bool:
    """Whether a table of numbers of so many bytes is read in parts, since it would take much of the free memory."""
    return n_bytes * MATRIX_COPIES > LARGE_SHARE * available_memory()


def archive_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The members of an archive, if it can contain what they claim to unpack into."""
    members = archive.infolist()
    for member in members:
        if member.file_size > DEFLATE_LIMIT * (member.compress_size + 1):
            raise ValueError(
                f"{member.filename} claims to unpack from {member.compress_size:,} bytes into {member.file_size:,}"
            )
    return members


def named(path: Path, names: Sequence[str], notes: list[str]) -> list[str]:
    """Column names, with default names for unnamed columns; duplicate names are an error."""
    empty = [place for place, name in enumerate(names, 1) if not name]
    if empty:
        shown = ", ".join(f"'column {place}'" for place in empty[:3]) + (" ..." if len(empty) > 3 else "")
        notes.append(f"{len(empty)} unnamed columns are named {shown}.")
    filled = [name or f"column {place}" for place, name in enumerate(names, 1)]
    seen: dict[str, int] = {}
    for place, name in enumerate(filled, 1):
        if name in seen:
            raise TableError(
                f"{path.name} has two columns named {name!r}, the {_ordinal(seen[name])} and the {_ordinal(place)}. "
                "Rename one of them; if the first row is data, insert a row of names before it."
            )
        seen[name] = place
    return filled


def stripped(column: Any) -> Any:
    """An Arrow column of text without whitespace around its values; null where nothing is left."""
    pa, compute = import_extra("pyarrow"), import_extra("pyarrow.compute")
    values = compute.utf8_trim_whitespace(column)
    return compute.if_else(compute.equal(values, ""), pa.scalar(None, pa.string()), values)


def _ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th.

    Examples
    --------
    >>> [_ordinal(number) for number in (1, 2, 3, 4, 11, 112, 123)]
    ['1st', '2nd', '3rd', '4th', '11th', '112th', '123rd']
    """
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
