"""Download a file over HTTP, with checksum, resume, progress and atomic replacement."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from ldsu._utils.files import FULL
from ldsu.datasets.formats import DatasetError

TIMEOUT_SECONDS = 30.0
MAX_ATTEMPTS = 4
PAUSE_SECONDS = 0.5  # before the second attempt; doubled each time
LINE_SECONDS = 5.0
CHUNK_BYTES = 2**18
SPARE_BYTES = 2**24  # left free on the disk
MAX_BYTES = 2**31  # larger than any file here: stops endless responses
MIB = 2**20
CONTENT_RANGE = re.compile(r"bytes\s+(?P<start>\d+)-\d+/(?P<total>\d+|\*)")


@dataclass(frozen=True)
class Remote:
    """A file, its addresses, and its checksum."""

    name: str  # in the cache
    urls: tuple[str, ...] = ()  # tried in this order; empty for a file that is only read from disk
    sha256: str | None = None  # of the file; if None, the arrays read from it are checked instead
    aliases: tuple[str, ...] = ()  # other names of the file; a trailing slash means a folder


class DownloadError(DatasetError):
    """The download failed from every address; `failures` has the reason for each."""

    failures: tuple[str, ...] = ()

    @classmethod
    def of(cls, what: str, failures: Sequence[str], files: str, folder: Path) -> DownloadError:
        """An error with the failures, the files to download manually, and their folder."""
        error = cls(
            f"{what} could not be downloaded: {'; '.join(failures)}. Download {files} manually into {folder}, or "
            f"set LDSU_DATA to its folder."
        )
        error.failures = tuple(failures)
        return error


class _FailedError(Exception):
    """One attempt at one address failed; `final`: do not retry, `misfit`: the partial file is invalid."""

    def __init__(self, reason: str, final: bool = False, misfit: bool = False) -> None:
        super().__init__(reason)
        self.final, self.misfit = final, misfit


def fetch(remote: Remote, folder: Path) -> tuple[Path, bool]:
    """Download a file into a folder, unless it exists; return its path, and whether this call downloaded it.

    Bytes are written to ``name.part``, which is renamed once it is complete and checked. A later call resumes it if the
    checksum is known; otherwise it is removed. Concurrent downloads of the same file wait for each other.

    Raises
    ------
    DownloadError
        If the download fails from every address.
    DatasetError
        If it cannot be written: the disk is full, or the folder is read-only.
    """
    target = folder / remote.name
    if target.exists():
        return target, False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f".{remote.name}.lock") as locked:
            if target.exists():  # downloaded by another process
                return target, False
            part = folder / (f"{remote.name}.part" if locked else f"{remote.name}.{uuid.uuid4().hex}.part")
            try:
                _fetch_from_any(remote, part)
                os.replace(part, target)
            except BaseException as error:
                full = isinstance(error, OSError) and error.errno in FULL
                if full or not locked or remote.sha256 is None:  # no later call would resume it
                    with suppress(OSError):
                        part.unlink()
                raise
    except DatasetError:
        raise
    except OSError as error:  # of the disk: network errors are raised as other types
        space = "free some space, or set LDSU_CACHE to a folder on another disk"
        advice = space if error.errno in FULL else "set LDSU_CACHE to a folder that can be written"
        raise DatasetError(
            f"{target} cannot be written ({error.strerror or error}): {advice}, or get the file from {remote.urls[0]} "
            f"and set LDSU_DATA to its folder."
        ) from error
    return target, True


def _fetch_from_any(remote: Remote, part: Path) -> None:
    failures = []
    for url in remote.urls:
        try:
            return _fetch_from(url, part, remote.sha256)
        except _FailedError as failure:
            failures.append(f"{url} {failure}")
    raise DownloadError.of(remote.name, failures, remote.name, part.parent)


def _fetch_from(url: str, part: Path, sha256: str | None) -> None:
    if sha256 is None:  # without a checksum, a resumed file could not be verified
        part.unlink(missing_ok=True)
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
        resumed = part.exists() and part.stat().st_size > 0
        try:
            _receive(url, part, keep=sha256 is not None)
            if sha256 is not None:
                with part.open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
                if found != sha256:  # downloaded again if it was resumed
                    reason = f"sent a file with sha256 {found[:12]}... instead of {sha256[:12]}..."
                    raise _FailedError(reason, final=not resumed, misfit=True)
            return
        except _FailedError as failure:
            if failure.misfit:
                part.unlink(missing_ok=True)
            if failure.final or attempt == MAX_ATTEMPTS - 1:
                raise


def _receive(url: str, part: Path, keep: bool) -> None:
    """Append the missing bytes to `part`, or start again if the server cannot resume."""
    start = part.stat().st_size if keep and part.exists() else 0
    headers = {"User-Agent": "ldsu"} | ({"Range": f"bytes={start}-"} if start else {})
    with _network_errors():
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    with response:
        whole = "*"
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            start = 0
        else:
            content_range = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
            if content_range is None or int(content_range["start"]) != start:
                raise _FailedError("resumed at another position than requested", misfit=True)
            whole = content_range["total"]
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        if whole != "*":  # the response may be a part of the rest: its length does not determine the total
            total = int(whole)
        _save(response, part, start, total)


@contextmanager
def _network_errors() -> Iterator[None]:
    """Convert network errors to `_FailedError`."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        retry = error.code in (408, 416, 429) or error.code >= 500
        # 416: the partial file is longer than the file, so not its beginning
        raise _FailedError(f"answered {error.code} ({error.reason})", not retry, misfit=error.code == 416) from error
    except (http.client.HTTPException, OSError) as error:  # urllib's URLError is an OSError
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise _FailedError(f"timed out after {TIMEOUT_SECONDS:g} seconds") from error
        raise _FailedError(f"could not be reached, or the connection was lost ({str(reason).strip()})") from error


def _save(response: Any, part: Path, start: int, total: int | None) -> None:
    """Write the response to `part` from position `start`."""
    if shutil.disk_usage(part.parent).free < (total or 0) - start + SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    size = start
    with part.open("r+b" if start else "wb") as file, _progress(part.name.removesuffix(".part"), total) as advance:
        file.seek(start)
        while True:
            advance(size)
            with _network_errors():
                chunk = response.read(CHUNK_BYTES)
            if not chunk:
                break
            file.write(chunk)
            size += len(chunk)
            if size > MAX_BYTES:
                raise _FailedError(f"sent more than {MAX_BYTES / MIB:g} MiB", final=True, misfit=True)
        file.flush()
        os.fsync(file.fileno())
    if total is not None and size != total:
        raise _FailedError(f"stopped after {size} of {total} bytes")


@contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Wait for an exclusive lock; False if the file system does not support locks."""
    while True:
        with path.open("a+b") as file:
            locked, is_current = _lock_file(file), False
            with suppress(FileNotFoundError):
                is_current = os.path.samestat(path.stat(), os.fstat(file.fileno()))
            if locked and not is_current:  # removed by its previous owner: others lock the new file
                continue
            try:
                yield locked
            finally:
                with suppress(OSError):  # closing the file frees the lock; Windows cannot remove it before
                    path.unlink()
            return


def _lock_file(file: BinaryIO) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            for _ in range(360):  # LK_LOCK times out after ten seconds: an hour in total
                with suppress(OSError):
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    return True
            return False
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            return True
    except OSError:
        return False


@contextmanager
def _progress(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show download progress: a bar on a terminal with rich, else a line on stderr every few seconds."""
    if sys.stderr.isatty() and find_spec("rich"):
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(name, total=total)
            yield lambda size: bar.update(task, completed=size)
        return
    printed = time.monotonic()

    def print_size(size: int) -> None:
        nonlocal printed
        if time.monotonic() - printed >= LINE_SECONDS:
            printed = time.monotonic()
            of = f" of {total / MIB:.1f}" if total else ""
            print(f"{name}: {size / MIB:.1f}{of} MiB", file=sys.stderr, flush=True)

    yield print_size
