"""Decompress text files and convert their encoding to UTF-8."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from ldsu.tables.formats import READABLE
from ldsu.tables.formats.limits import require
from ldsu.tables.table import TableError, readable

COMPRESSED: tuple[tuple[bytes, Callable[[Path], Any]], ...] = (
    (b"\x1f\x8b\x08", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\x00", lzma.open),
)
# Peak memory per byte of file content (measured: benchmarks/readers.py).
TEXT_FACTOR = 8
CHUNK = 2**24
# Length of the beginning of a file from which its format is detected.
SAMPLE_CHARACTERS = 2**18
UTF16_MARKS, UTF8_MARK = (b"\xff\xfe", b"\xfe\xff"), b"\xef\xbb\xbf"
CONTROL = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")


def read_text(path: Path, binary: tuple[bytes, ...] = ()) -> tuple[bytes, list[str]]:
    """The content of a text file as UTF-8 without a byte order mark, and notes on how it was decoded.

    `binary` are the first bytes of formats that are refused within a compressed file.
    """
    data = _unpacked(path, binary)
    if data.startswith(UTF16_MARKS):
        with readable(path, "UTF-16 text", "Save it as UTF-8."):
            data = data.decode("utf-16").encode()
        return _without_nul(path, data), ["Read as UTF-16, according to its byte order mark."]
    data = _without_nul(path, data.removeprefix(UTF8_MARK))
    if data.isascii() or _is_utf8(data):
        return data, []
    if CONTROL.search(data, 0, SAMPLE_CHARACTERS):
        raise TableError(f"{path.name} is binary, not text. Supported: {READABLE}.")
    try:
        return data.decode("cp1252").encode(), ["Read as Windows-1252, because it is not UTF-8."]
    except UnicodeDecodeError:  # five bytes are undefined in Windows-1252
        return data.decode("latin-1").encode(), ["Read as latin-1, because it is not UTF-8."]


def open_unpacked(path: Path) -> BinaryIO:
    """Open a file to read bytes, decompressed if its content is that of gzip, bzip2 or xz."""
    with path.open("rb") as file:
        head = file.read(8)
    opener = next((opener for magic, opener in COMPRESSED if head.startswith(magic)), None)
    return path.open("rb") if opener is None else cast(BinaryIO, opener(path))


def _unpacked(path: Path, binary: tuple[bytes, ...]) -> bytes:
    """The decompressed bytes of a file; raises an error before they exceed the memory."""
    require(path, TEXT_FACTOR * path.stat().st_size)
    with open_unpacked(path) as file:
        if isinstance(file, io.BufferedReader):
            return file.read()
        chunks: list[bytes] = []
        with readable(path, "a compressed file"):
            while chunk := file.read(CHUNK):
                chunks.append(chunk)
                require(path, TEXT_FACTOR * CHUNK + (TEXT_FACTOR - 1) * sum(map(len, chunks)))
    data = b"".join(chunks)
    if not data:
        raise TableError(f"{path.name} is empty. Use a file with one row per sample.")
    if data.startswith((*binary, *(magic for magic, _ in COMPRESSED))):
        raise TableError(f"{path.name} contains a compressed binary file. Unpack it, and use its content.")
    return data


def _without_nul(path: Path, data: bytes) -> bytes:
    place = data.find(b"\0")
    if place >= 0:
        line = data.count(b"\n", 0, place) + 1
        raise TableError(
            f"{path.name}, line {line} contains a NUL byte: the file is binary, damaged, or UTF-16 without a BOM. "
            "Save it as UTF-8."
        )
    return data


def _is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8, without decoding all of them at once."""
    try:
        for _ in io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="\n"):
            pass
    except UnicodeDecodeError:
        return False
    return True
