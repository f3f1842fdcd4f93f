"""An append-only file of answers: each is on the disk before it is acknowledged."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

FORMAT = "ldsu journal 1"
SUFFIX = ".labels.jsonl"
COMPRESSED = (".gz", ".bz2", ".xz")
Entry = dict[str, Any]


class JournalError(ValueError):
    """A journal that cannot be used: of other data, open elsewhere, or damaged."""


class Journal:
    """A file with a header and one JSON object per line, locked while it is open.

    A process that is killed while it writes leaves a part of a line, which was never acknowledged: it is cut off when
    the file is opened again.

    Parameters
    ----------
    path : path-like
        Created if it does not exist, readable only by its owner.
    header : mapping
        What the entries belong to. An existing journal must have the same "checksum" and "rows".

    Attributes
    ----------
    entries : list of dict
        The entries that the file had when it was opened.

    Raises
    ------
    JournalError
        If another process has opened it, it belongs to other data, or a line is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        self.path = Path(path)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file = os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0)
        try:
            if not _lock(self._file):
                raise JournalError(
                    f"{self.path} is open in another `ldsu label`. Use that one, or close it first, or name another "
                    "journal with --journal."
                )
            found, self.entries, self._end = _parse(self._file.read(), self.path)
            self._file.truncate(self._end)
            if found is None:
                self.append({"format": FORMAT, **header})
                _sync_folder(self.path.parent)
            else:
                require_same_data(found, header, self.path)
        except BaseException:
            self._file.close()
            raise

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write an entry to the disk, or raise an OSError and leave the file unchanged."""
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        try:
            self._file.seek(self._end)
            written = 0
            while written < len(line):
                written += self._file.write(line[written:]) or 0
            os.fsync(self._file.fileno())
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._end)
            raise
        self._end += len(line)

    def close(self) -> None:
        """Close the file, which others can then open."""
        self._file.close()


def journal_path(data: Path) -> Path:
    """The default journal of a table or a folder, in the current folder.

    Examples
    --------
    >>> str(journal_path(Path("data/tickets.csv.gz")))
    'tickets.labels.jsonl'
    """
    data = data.resolve()
    inner = data.with_suffix("") if data.suffix.lower() in COMPRESSED else data
    return Path(f"{inner.name if data.is_dir() else inner.stem}{SUFFIX}")


def exports_path(journal: Path) -> Path:
    """The path of the files that are exported, without their suffixes."""
    return journal.with_name(journal.name.removesuffix(".jsonl").removesuffix(".labels"))


def read_journal(path: str | os.PathLike[str]) -> tuple[Entry, list[Entry]]:
    """Header and entries of a journal that may be open elsewhere."""
    header, entries, _ = _parse(Path(path).read_bytes(), Path(path))
    if header is None:
        raise JournalError(f"{path} is empty. Use a journal with entries.")
    return header, entries


def require_same_data(found: Mapping[str, Any], header: Mapping[str, Any], path: Path) -> None:
    """Raise an error if a journal belongs to other data than a header describes."""
    if any(found.get(name) != header[name] for name in ("checksum", "rows")):
        raise JournalError(
            f"{path} belongs to other data: to {found.get('source')} with {found.get('rows')} rows, not to "
            f"{header['source']} with {header['rows']} rows as it is now. Restore the data, or name another journal."
        )


def _parse(content: bytes, path: Path) -> tuple[Entry | None, list[Entry], int]:
    """Header (None in an empty file), entries, and the length of the complete lines."""
    lines = content.split(b"\n")[:-1]
    parsed: list[Entry] = []
    end = 0
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise ValueError("not an object")
        except ValueError as error:
            if number == len(lines) and number > 1:  # after a power failure the last line may have its length only
                break
            raise JournalError(
                f"{path}, line {number} is damaged. Restore the file, or delete this line and those after it."
            ) from error
        if number == 1 and entry.get("format") != FORMAT:
            raise JournalError(f"{path} is not a journal of this version of ldsu. Name another file.")
        parsed.append(entry)
        end += len(line) + 1
    return (parsed[0] if parsed else None), parsed[1:], end


def _lock(file: BinaryIO) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(2**40)  # far behind the content, which others may read
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(0)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


def _sync_folder(folder: Path) -> None:
    """Write the name of a new file to the disk, where folders can be synced."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
