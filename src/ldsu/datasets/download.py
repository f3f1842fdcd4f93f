"""Fetch a file over HTTP: checksum, resume, progress, and nothing half-written under the file's own name."""

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
from pathlib import Path
from typing import Any, BinaryIO

from ldsu.datasets.formats import DatasetError

TIMEOUT_SECONDS = 30.0
TRIES = 4
PAUSE_SECONDS = 0.5  # before the second try; doubled each time
LINE_SECONDS = 5.0
CHUNK_BYTES = 2**18
SPARE_BYTES = 2**24  # left free on the disk
MAX_BYTES = 2**31  # no file here comes near it: a server that never ends is stopped
MIB = 2**20
FULL = (errno.ENOSPC, errno.EDQUOT)
CONTENT_RANGE = re.compile(r"bytes\s+(?P<start>\d+)-\d+/(?P<total>\d+|\*)")


@dataclass(frozen=True)
class Remote:
    """A file, where it can be had, and how to know it.

    Attributes
    ----------
    name : str
        File name in the cache.
    urls : tuple of str
        Addresses, tried in this order. None for a file that is only found on disk.
    sha256 : str or None
        Of the file; None where the publisher's copy was never seen, and the arrays read from it are checked instead.
    aliases : tuple of str
        Other names under which the file is known; with a slash at the end, a folder.
    """

    name: str
    urls: tuple[str, ...] = ()
    sha256: str | None = None
    aliases: tuple[str, ...] = ()


class DownloadError(DatasetError):
    """No address gave what was wanted; `failures` says what was wrong with each."""

    failures: tuple[str, ...] = ()

    @classmethod
    def of(cls, what: str, failures: Sequence[str], files: str, folder: Path) -> DownloadError:
        """An error that says what failed, which files to get by hand and where to put them."""
        error = cls(
            f"{what} could not be downloaded: {'; '.join(failures)}. Get {files} by hand and put it into {folder}, or "
            f"point LDSU_DATA to its folder."
        )
        error.failures = tuple(failures)
        return error


class _FailedError(Exception):
    """One try at one address failed; `final`: another try is of no use, `misfit`: what is there already is wrong."""

    def __init__(self, reason: str, final: bool = False, misfit: bool = False) -> None:
        super().__init__(reason)
        self.final, self.misfit = final, misfit


def fetch(remote: Remote, folder: Path) -> tuple[Path, bool]:
    """Download a file into a folder, unless it is there.

    Bytes go to ``name.part``, which takes the file's name once it is complete and checked. A later call continues it if
    the file's checksum is known, and it is removed if not. Processes that want the same file wait for each other.

    Parameters
    ----------
    remote : Remote
        The file.
    folder : Path
        Where to put it; made if need be.

    Returns
    -------
    path : Path
        The complete file.
    is_new : bool
        Whether this call put it there.

    Raises
    ------
    DownloadError
        If no address gives the file: what failed at each, and where to put the file by hand.
    DatasetError
        If it cannot be written: the disk is full, or the folder is read-only.
    """
    target = folder / remote.name
    if target.exists():
        return target, False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f".{remote.name}.lock") as alone:
            if target.exists():  # another process was faster
                return target, False
            part = folder / (f"{remote.name}.part" if alone else f"{remote.name}.{uuid.uuid4().hex}.part")
            try:
                _fetch_from_any(remote, part)
                os.replace(part, target)
            except BaseException as error:
                full = isinstance(error, OSError) and error.errno in FULL
                if full or not alone or remote.sha256 is None:  # no later call would continue it
                    with suppress(OSError):
                        part.unlink()
                raise
    except DatasetError:
        raise
    except OSError as error:  # of the disk: those of the network have become other errors
        if error.errno in FULL:
            advice = "free some space, or set LDSU_CACHE to a folder on another disk"
        else:
            advice = "set LDSU_CACHE to a folder that can be written"
        raise DatasetError(
            f"{target} cannot be written ({error.strerror or error}): {advice}, or get the file from {remote.urls[0]} "
            f"and point LDSU_DATA to its folder."
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
    if sha256 is None:  # nothing would tell whether old bytes and new ones belong together
        part.unlink(missing_ok=True)
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
        resumed = part.exists() and part.stat().st_size > 0
        try:
            _receive(url, part, keep=sha256 is not None)
            return _check(part, sha256, final=not resumed)
        except _FailedError as failure:
            if failure.misfit:
                part.unlink(missing_ok=True)
            if failure.final or attempt == TRIES - 1:
                raise


def _check(part: Path, sha256: str | None, final: bool) -> None:
    """Compare the checksum; bytes that do not have it are thrown away, and asked for again if some were old."""
    if sha256 is None:
        return
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise _FailedError(f"sent a file with sha256 {found[:12]}... instead of {sha256[:12]}...", final, misfit=True)


def _receive(url: str, part: Path, keep: bool) -> None:
    """Append to `part` what is missing of it, or begin again if the server cannot continue."""
    start = part.stat().st_size if keep and part.exists() else 0
    headers = {"User-Agent": "ldsu"} | ({"Range": f"bytes={start}-"} if start else {})
    with _network_errors():
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    with response:
        whole = "*"
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            start = 0
        else:
            place = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
            if place is None or int(place["start"]) != start:
                raise _FailedError("continued at another place than asked", misfit=True)
            whole = place["total"]
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        if whole != "*":  # the answer may be a piece of what is missing: its length says nothing of the whole
            total = int(whole)
        _save(response, part, start, total)


@contextmanager
def _network_errors() -> Iterator[None]:
    """Say what went wrong between here and the server."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        passing = error.code in (408, 416, 429) or error.code >= 500
        # 416: what is there already is longer than the file, so not the beginning of it
        raise _FailedError(f"answered {error.code} ({error.reason})", not passing, misfit=error.code == 416) from error
    except (http.client.HTTPException, OSError) as error:  # urllib's URLError is an OSError
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise _FailedError(f"was silent for {TIMEOUT_SECONDS:g} seconds") from error
        raise _FailedError(f"could not be reached, or broke off ({str(reason).strip()})") from error


def _save(response: Any, part: Path, start: int, total: int | None) -> None:
    """Write the answer to `part` from position `start` on."""
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
        raise _FailedError(f"broke off after {size} of {total} bytes")


@contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Wait until this process alone holds the lock; False where the file system has no locks."""
    while True:
        with path.open("a+b") as file:
            alone = _lock_file(file)
            if alone and not _is_still(path, file):  # who had it before has removed it: others lock its successor
                continue
            try:
                yield alone
            finally:
                with suppress(OSError):  # closing the file frees the lock; Windows cannot remove it before
                    path.unlink()
            return


def _lock_file(file: BinaryIO) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            for _ in range(360):  # LK_LOCK gives up after ten seconds: an hour in all
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


def _is_still(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


@contextmanager
def _progress(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show how far a download is: a bar on a terminal that has rich, else a line on stderr every few seconds."""
    bar = _rich_bar() if sys.stderr.isatty() else None
    if bar is not None:
        with bar:
            task = bar.add_task(name, total=total)
            yield lambda size: bar.update(task, completed=size)
        return
    said = time.monotonic()

    def say(size: int) -> None:
        nonlocal said
        if time.monotonic() - said >= LINE_SECONDS:
            said = time.monotonic()
            of = f" of {total / MIB:.1f}" if total else ""
            print(f"{name}: {size / MIB:.1f}{of} MiB", file=sys.stderr, flush=True)

    yield say


def _rich_bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))
