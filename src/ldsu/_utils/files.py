"""Files written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class WriteError(OSError):
    """A file could not be written; the message names it and says what to do."""


@contextmanager
def replacing(
    path: str | os.PathLike[str], mode: str = "wb", *, private: bool = False, **options: Any
) -> Iterator[IO[Any]]:
    """Open a file under another name and rename it at the end: a reader sees the old file or the new one, no half.

    That holds however the writer ends. Killed, it leaves a file ``name.part...`` behind, which nobody reads.

    Parameters
    ----------
    path : path-like
        Its folder is made if it is not there. A device or a pipe is written as it is.
    mode : {"wb", "w"}, default="wb"
    private : bool, default=False
        Whether a new file is readable by its owner alone. A file that is replaced keeps its permissions.
    **options
        As `open` takes them.

    Raises
    ------
    WriteError
        If the disk is full, or the folder cannot be written.
    """
    path = Path(path)
    with _in_words(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():  # a file in its place would put an end to /dev/null
            with open(path, mode, **options) as file:
                yield file
            return
        # Of a long name the beginning: with more behind it, it would be longer than a name may be.
        name = path.with_name(f"{path.name[:50]}.part{secrets.token_hex(4)}")
        try:
            with open(name, mode.replace("w", "x"), opener=_private if private else None, **options) as file:
                yield file
                # Else a power cut may leave the new name on contents that never reached the disk.
                file.flush()
                os.fsync(file.fileno())
            with suppress(OSError):  # who could read the old file can read the new one, and nobody else
                shutil.copymode(path, name)
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):  # after an interrupt it may have its final name already
                name.unlink()
            raise


def _private(path: str, flags: int) -> int:
    """Open a file that nobody but its owner may read from its first byte on."""
    return os.open(path, flags, 0o600)


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise a `WriteError` if a file cannot be written where it is wanted: better before hours of work than after."""
    path = Path(path)
    with _in_words(path):
        folder = path.absolute().parent
        if not folder.exists():
            raise FileNotFoundError(errno.ENOENT, f"the folder {folder} does not exist")
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is no folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"the folder {folder} is read-only")
        with suppress(FileNotFoundError):
            path.lstat()  # refuses a name too long


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Say in a sentence why the system did not write a file. What already is a sentence stays."""
    try:
        yield
    except OSError as error:
        if error.errno is None or isinstance(error, WriteError):
            raise
        if error.errno in FULL:
            advice = "Free some space, or choose a folder on another disk"
        elif error.errno == errno.ENOENT:
            advice = "Create the folder first, or choose another"
        elif error.errno == errno.ENAMETOOLONG:
            advice = "Choose a shorter name"
        else:
            advice = "Choose a folder that can be written"
        failure = WriteError(f"{path} cannot be written ({error.strerror or error}). {advice}.")
        failure.errno = error.errno
        raise failure from error
