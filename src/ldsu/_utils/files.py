"""Atomic file writes, and the cache folder."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ADVICE = dict.fromkeys(FULL, "Free disk space, or choose a folder on another disk") | {
    errno.ENOENT: "Create the folder first, or choose another",
    errno.ENAMETOOLONG: "Choose a shorter name",
}


class WriteError(OSError):
    """A file could not be written; the message contains its name and a remedy."""


@contextmanager
def replacing(
    path: str | os.PathLike[str], mode: str = "wb", *, private: bool = False, **options: Any
) -> Iterator[IO[Any]]:
    """Open a temporary file and rename it to `path` on success: readers see the old file or the new one.

    If the process is killed, a file ``name.part...`` is left behind.

    Parameters
    ----------
    path : path-like
        Its folder is created if needed. A device or a pipe is written directly.
    mode : {"wb", "w"}, default="wb"
    private : bool, default=False
        Whether a new file is readable only by its owner. A replaced file keeps its permissions.
    **options
        Passed to `open`.

    Raises
    ------
    WriteError
        If the disk is full, or the folder cannot be written.
    """
    path = Path(path)
    with _write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():  # renaming a file over /dev/null would replace it
            with open(path, mode, **options) as file:
                yield file
            return
        # Truncated, so that the suffix does not make a long name exceed the maximum length.
        name = path.with_name(f"{path.name[:50]}.part{secrets.token_hex(4)}")
        permissions = 0o600 if private else 0o666

        def opener(file: str, flags: int) -> int:
            return os.open(file, flags, permissions)

        try:
            with open(name, mode.replace("w", "x"), opener=opener, **options) as file:
                yield file
                # Otherwise a power failure may leave the new name without the new contents.
                file.flush()
                os.fsync(file.fileno())
            with suppress(OSError):  # keep the permissions of a replaced file
                shutil.copymode(path, name)
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):  # after an interrupt it may already be renamed
                name.unlink()
            raise


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise a `WriteError` if a file cannot be written at `path`, before a long computation."""
    path = Path(path)
    with _write_errors(path):
        folder = path.absolute().parent
        if not folder.exists():
            raise FileNotFoundError(errno.ENOENT, f"the folder {folder} does not exist")
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"the folder {folder} is read-only")
        with suppress(FileNotFoundError):
            path.lstat()  # fails for a name that is too long


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Turn an operating system error into a `WriteError` with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno is None or isinstance(error, WriteError):
            raise
        advice = ADVICE.get(error.errno, "Choose a writable folder")
        failure = WriteError(f"{path} cannot be written ({error.strerror or error}). {advice}.")
        failure.errno = error.errno
        raise failure from error


def cache_folder() -> Path:
    """Folder of downloads and embeddings: ``LDSU_CACHE``, or ``ldsu`` in the user cache folder of the platform."""
    if chosen := os.environ.get("LDSU_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ldsu"
