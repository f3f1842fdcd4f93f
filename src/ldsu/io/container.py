"""A model file: named arrays and a record of plain data, read without running anything that the file says.

The layout is that of safetensors: the length of a header (8 bytes, little-endian), the header (JSON), the arrays' bytes
one after the other. Nothing is compressed, nothing is a path, and every size is checked against that of the file before
memory is taken for it. The record is a JSON text among the header's metadata, beside a checksum of everything.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import numpy as np

import ldsu
from ldsu._utils.files import replacing
from ldsu._utils.memory import require_memory

# Format 1 stored each column of a table by itself; everything else is the same.
FORMAT, READABLE = 2, ("1", "2")
CODES: dict[np.dtype[Any], str] = {
    np.dtype(name): code
    for code, name in {"F64": "<f8", "I64": "<i8", "F32": "<f4", "I32": "<i4", "U8": "u1", "BOOL": "?"}.items()
}
DTYPES = {code: dtype for dtype, code in CODES.items()}
HEADER_BYTES = 2**26
# Brackets, commas and colons of a header: each value parsed takes one, and up to 100 bytes of memory.
HEADER_ITEMS = 10**6
MAX_DIMENSIONS = 8
# A dimension of an array without elements, in a file of fewer bytes.
MAX_EMPTY_LENGTH = 2**16
MAX_BYTES = 2**60
NAME = re.compile(r"\w{1,80}(\.\w{1,80}){0,40}", re.ASCII)
VERSION = re.compile(r"[\w.+-]{1,30}", re.ASCII)
MORE_MEMORY = "Close other programs, or use a larger machine."
# How files begin that are taken for models by mistake.
MAGIC_NUMBERS = {
    **dict.fromkeys((b"\x80\x02", b"\x80\x03"), "a pickle, which can run any program"),
    **dict.fromkeys((b"\x80\x04", b"\x80\x05"), "a pickle or joblib file, which can run any program"),
    b"PK": "a zip or npz archive",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    **dict.fromkeys((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x78\x01", b"\x78\x9c", b"\x78\xda"), "a compressed file"),
}


class ModelError(OSError):
    """A model could not be read; the message contains the file name and a remedy."""


class Invalid(Exception):
    """Why a file is invalid, as the rest of a sentence that begins with its name."""


class Entry(NamedTuple):
    """Where an array lies: type, shape, and its bytes among those after the header."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    stop: int


class Header(NamedTuple):
    """What a file says before its arrays; `text` is the record as it is written, `size` the bytes of the file."""

    record: dict[str, Any]
    text: str
    checksum: str
    entries: dict[str, Entry]
    array_bytes: int
    size: int


def write_container(path: str | os.PathLike[str], record: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a record of plain data and named arrays: the whole file, or nothing.

    Parameters
    ----------
    path : path-like
    record : dict
        Of what JSON knows, without NaN or infinity.
    arrays : mapping of str to ndarray
        Of the types in `DTYPES`; names are words joined by dots.
    """
    text = json.dumps(record, allow_nan=False, separators=(",", ":"))
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    metadata = {"format": str(FORMAT), "ldsu": text, "sha256": _checksum(text, plain)}
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    # Wide types first: every array begins at a multiple of its item size.
    for name, array in sorted(plain.items(), key=lambda item: (-item[1].itemsize, item[0])):
        offsets = [at, at + array.nbytes]
        header[name] = {"dtype": CODES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        at += array.nbytes
    encoded = json.dumps(header, separators=(",", ":")).encode("ascii")
    encoded += b" " * (-len(encoded) % 8)
    require_header(encoded)
    with replacing(path, private=True) as file:
        file.write(len(encoded).to_bytes(8, "little"))
        file.write(encoded)
        for name in list(header)[1:]:
            file.write(_bytes(plain[name]))


def require_header(encoded: bytes) -> None:
    """Raise a ValueError if a header is larger than a model file holds."""
    items = _items(encoded)
    if len(encoded) > HEADER_BYTES or items > HEADER_ITEMS:
        raise ValueError(
            f"The model's names, labels and other texts take {len(encoded) / 2**20:.0f} MiB in {items:,} "
            f"pieces, and a model file holds {HEADER_BYTES >> 20} MiB in {HEADER_ITEMS:,}. Give columns and classes "
            "fewer or shorter names."
        )


def read_container(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what `write_container` wrote.

    Returns
    -------
    record : dict
    arrays : dict of str to ndarray
        The caller's own: writeable, in C order.

    Raises
    ------
    ModelError
        If the file is no model, or damaged, or of a newer format.
    MemoryError
        If the arrays do not fit into memory.
    """
    with _opened(path) as (file, header):
        require_memory(header.array_bytes, f"Reading {os.fspath(path)}", MORE_MEMORY)
        arrays = {name: _read_array(file, name, entry) for name, entry in header.entries.items()}
        if _checksum(header.text, arrays) != header.checksum:
            raise _damaged("its checksum does not match its contents")
        return header.record, arrays


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read the record, and what the arrays are, without the arrays themselves."""
    with _opened(path) as (_, header):
        return header


def read_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the record alone. Without the arrays its checksum cannot be verified."""
    return read_header(path).record


def is_model(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins with the record of a model."""
    try:
        read_header(path)
    except ModelError:
        return False
    return True


@contextmanager
def reading_model(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors that come of the contents of a file into a `ModelError` that names it."""
    try:
        yield
    except Invalid as error:
        raise ModelError(f"{os.fspath(path)} {error}") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error_text(error)}"
        raise ModelError(f"{os.fspath(path)} is not a valid model ({problem}).") from error


def safe_repr(value: object) -> str:
    """A value of a file or a user as part of a message: ASCII, on one line, and short."""
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'table'} of {len(value)}"
    if isinstance(value, int) and abs(value) > 10**30:
        return "a number with very many digits"
    text = ascii(value[:60]) if isinstance(value, str) else " ".join(ascii(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def error_text(error: Exception) -> str:
    """What an exception says, as part of a message: ASCII, on one line, and short."""
    text = " ".join(str(error).split()).encode("ascii", "backslashreplace").decode("ascii")
    return text if len(text) <= 100 else text[:97] + "..."


def _damaged(text: str) -> Invalid:
    return Invalid(f"is damaged: {text}. Copy or download it again.")


def _foreign(text: str) -> Invalid:
    return Invalid(f"is not an ldsu model: {text}.")


def _parse_json(text: str | bytes, what: str) -> Any:
    """Plain data from JSON without names given twice, NaN or infinity."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a name occurs twice")
        return table

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise ValueError(f"{digits} is not a finite number")
        return number

    try:
        text = text if isinstance(text, str) else text.decode("ascii")
        return json.loads(text, object_pairs_hook=unique, parse_constant=finite, parse_float=finite)
    except RecursionError:
        raise _damaged(f"its {what} cannot be read (it is nested too deeply)") from None
    except ValueError as error:
        raise _damaged(f"its {what} cannot be read ({error_text(error)})") from None


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, Header]]:
    """Open a plain file, and read its header."""
    with reading_model(path):
        try:
            mode = os.stat(path).st_mode
            if not stat.S_ISREG(mode):  # a pipe would wait for ever
                raise _foreign(f"it is {'a folder' if stat.S_ISDIR(mode) else 'not a plain file'}")
            with open(path, "rb") as file:
                yield file, _read_header(file)
        except FileNotFoundError:
            raise Invalid("does not exist. Check its name and folder.") from None
        except OSError as error:
            raise Invalid(f"cannot be read: {error.strerror or 'the system refuses'}.") from None


def _read_header(file: BinaryIO) -> Header:
    size = os.fstat(file.fileno()).st_size
    beginning = file.read(64)
    other = _other_format(beginning)
    if other:
        raise _foreign(f"it is {other}. Models are written by ldsu.save_model")
    length = int.from_bytes(beginning[:8], "little")
    if length > HEADER_BYTES:
        raise _foreign(f"its header would be {length:,} bytes long")
    if 8 + length > size:
        raise _damaged(f"it ends after {size:,} bytes, within its header of {length:,}")
    file.seek(8)
    encoded = file.read(length)
    if _items(encoded) > HEADER_ITEMS:
        raise _foreign(f"its header has more than {HEADER_ITEMS:,} items")
    header = _parse_json(encoded, "header")
    del encoded
    metadata: Any = header.pop("__metadata__", None) if isinstance(header, dict) else None
    written, text, checksum = map((metadata if isinstance(metadata, dict) else {}).get, ("format", "ldsu", "sha256"))
    if not isinstance(text, str):
        raise _foreign("its header is another program's. Models are written by ldsu.save_model")
    record = _parse_json(text, "record")
    _check_format(written, record)
    if not isinstance(record, dict) or not isinstance(checksum, str) or len(metadata) != 3:
        raise _damaged("its record or its checksum is missing")
    available = size - 8 - length
    return Header(record, text, checksum, _entries(header, available), available, size)


def _other_format(beginning: bytes) -> str | None:
    """What a file is that does not begin as a model does: the length of a header, and a bracket."""
    if not beginning:
        return "empty"
    for magic, what in MAGIC_NUMBERS.items():
        # A header's length may begin with any two bytes, but ends in zeros.
        if beginning.startswith(magic) and beginning[4:9] != b"\0\0\0\0{":
            return what
    if beginning[8:9] == b"{":
        return None
    printable = re.sub(r"[\n\r\t]", " ", beginning[:60].decode("utf-8", "surrogateescape"))
    return "a text file" if printable.isprintable() else "a file of another kind, or only the beginning of one"


def _check_format(written: Any, record: Any) -> None:
    if written in READABLE:
        return
    if not isinstance(written, str) or not re.fullmatch(r"[1-9][0-9]{0,5}", written):
        raise _damaged(f"its format {safe_repr(written)} is invalid")
    versions = record.get("versions") if isinstance(record, dict) else None
    version = versions.get("ldsu") if isinstance(versions, dict) else None
    known = isinstance(version, str) and VERSION.fullmatch(version)
    raise Invalid(
        f"was written by {f'ldsu {version}' if known else 'another ldsu'} (model format {written}); this is ldsu "
        f"{ldsu.__version__}, which reads formats {' and '.join(READABLE)}. Update with: pip install -U ldsu"
    )


def _entries(header: dict[str, Any], available: int) -> dict[str, Entry]:
    """The arrays of a header, in the order of their bytes, which fill what there is without gap or overlap."""
    found = {name: _entry(name, description) for name, description in header.items()}
    entries = dict(sorted(found.items(), key=lambda item: item[1][2:]))
    at = 0
    for name, entry in entries.items():
        if entry.start != at:
            raise _damaged(f"array {name} begins at byte {safe_repr(entry.start)}, not at {at:,}")
        # Its length would be believed, and other arrays made as long.
        if not math.prod(entry.shape) and max(entry.shape) > max(available, MAX_EMPTY_LENGTH):
            raise _damaged(f"array {name} has no elements in shape {safe_repr(str(entry.shape))}")
        at = entry.stop
    if at != available:
        raise _damaged(f"its arrays take {safe_repr(at)} bytes, but it has {available:,} for them")
    return entries


def _entry(name: str, description: Any) -> Entry:
    if not NAME.fullmatch(name):
        raise _foreign(f"{safe_repr(name)} is not a valid array name")
    if not isinstance(description, dict) or set(description) != {"dtype", "shape", "data_offsets"}:
        raise _damaged(f"array {name} is not described by dtype, shape and data_offsets")
    code, shape, offsets = description["dtype"], description["shape"], description["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise _foreign(f"array {name} is of type {safe_repr(code)}, not of {', '.join(DTYPES)}")
    dtype = DTYPES[code]
    lists = isinstance(shape, list) and isinstance(offsets, list) and len(shape) <= MAX_DIMENSIONS and len(offsets) == 2
    if not lists or not all(type(value) is int and 0 <= value <= MAX_BYTES for value in shape + offsets):
        raise _damaged(f"array {name} has a shape or a place that is not whole numbers from 0")
    # The product of what is not 0: NumPy refuses (0, 2**62) too.
    if math.prod(length or 1 for length in shape) * dtype.itemsize > MAX_BYTES:
        raise _damaged(f"array {name} would take more bytes than any file has")
    needed = math.prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != needed:
        raise _damaged(f"array {name} of shape {safe_repr(str(tuple(shape)))} takes {needed:,} bytes")
    return Entry(dtype, tuple(shape), *offsets)


def _read_array(file: BinaryIO, name: str, entry: Entry) -> np.ndarray:
    array = np.empty(entry.shape, dtype=entry.dtype)
    # Truth values are read as bytes: NumPy takes any byte for one, and only 0 and 1 for a sound one.
    target = array.view(np.uint8) if entry.dtype == bool else array
    if file.readinto(_bytes(target)) != array.nbytes:  # type: ignore[attr-defined]
        raise _damaged(f"it ends within array {name}")
    if entry.dtype == bool and target.max(initial=0) > 1:
        raise _damaged(f"array {name} holds truth values that are neither 0 nor 1")
    return array


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """An array as it is written: little-endian, in C order."""
    if not NAME.fullmatch(name):
        raise ValueError(f"An array is named by words joined by dots, not {name!r}.")
    dtype = array.dtype.newbyteorder("<")
    if dtype not in CODES:
        raise ValueError(f"Array {name} is of type {array.dtype}; a model file holds {', '.join(map(str, CODES))}.")
    return np.asarray(array, dtype=dtype, order="C")


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _checksum(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the record and, by name, of every array's name, type, shape and bytes."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, CODES[array.dtype], array.shape]).encode("ascii"))
        digest.update(_bytes(array))
    return digest.hexdigest()


def _items(encoded: bytes) -> int:
    return sum(encoded.count(sign) for sign in (b"[", b"{", b",", b":"))
