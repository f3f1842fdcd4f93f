"""MATLAB .mat files, version 5 to 7 -> named arrays."""

from __future__ import annotations

import itertools
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ldsu.tables.formats.limits import DEFLATE_LIMIT, require
from ldsu.tables.formats.matrices import ArrayFile, Entry, entry_of


def open_mat(path: Path) -> ArrayFile:
    """The variables of a MATLAB file of version 5 to 7, which are read when they are asked for."""
    require(path, path.stat().st_size)
    file = _MatFile(path.read_bytes())
    return ArrayFile(path, {name: file.entry(name) for name in file.variables}, file.load)


class _MatFile:
    """Variables of a MATLAB file, version 5 to 7: nested elements of a tag (type, size) and content.

    SciPy's reader follows invalid lengths and indices of damaged files out of bounds, which crashes the process; this
    one reads numbers, text, sparse matrices, and cells of numbers or text, from slices only. "MAT-File Format",
    MathWorks.
    """

    NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}  # noqa: RUF012
    CLASSES = {  # noqa: RUF012
        6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"
    }  # fmt: skip
    TEXTS = {2: "utf-8", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}  # noqa: RUF012
    CELL, CHAR, SPARSE = 1, 4, 5
    MATRIX, COMPRESSED = 14, 15
    IS_LOGICAL, IS_COMPLEX = 0x200, 0x800
    # The flags, shape and name of a variable are within this many of its first bytes.
    HEAD = 2**12

    def __init__(self, data: bytes) -> None:
        orders = {b"IM": ("<", "le"), b"MI": (">", "be")}
        if len(data) < 128 or data[126:128] not in orders or 1 not in data[124:126]:
            raise ValueError("it does not have version 5 to 7")
        self.order, self.text_order = orders[data[126:128]]
        self.variables: dict[str, tuple[int, memoryview]] = {}
        for kind, content in self._elements(memoryview(data)[128:]):
            name = self._variable(self._unpacked(kind, content))[2]
            if not name.isprintable():
                raise ValueError(f"it has a variable of {len(name)} characters that are not a valid name")
            if name and not name.startswith("__"):
                self.variables[name] = (kind, content)

    def entry(self, name: str) -> Entry:
        """Description of a variable, from its header."""
        kind, content = self.variables[name]
        flags, shape, _, _ = self._variable(self._unpacked(kind, content))
        of, n_values = flags & 0xFF, math.prod(shape)
        if n_values > DEFLATE_LIMIT * len(content) and of != self.SPARSE:
            raise ValueError(f"its variable {name} claims {n_values:,} values")
        if of == self.CHAR:
            return Entry(shape, False, shape[0], 8 * n_values)
        if of == self.CELL:
            length = max(shape) if n_values == max(shape) else None
            return Entry(shape, False, length, 200 * n_values + 3 * self._size(kind, content))
        is_number = of in (self.SPARSE, *self.CLASSES) and not flags & self.IS_COMPLEX
        if of == self.SPARSE:
            return Entry(shape, is_number, None, 2 * self._size(kind, content))
        return entry_of(shape, np.dtype("f8")) if is_number else Entry(shape, False, None, 8 * n_values)

    def load(self, name: str) -> Any:
        """A variable: numbers or a sparse matrix in its shape, texts (n,), cells (n,) as texts or objects."""
        kind, content = self.variables[name]
        return self._value(self._unpacked(kind, content, self._size(kind, content)))

    def _elements(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Type and content of each element; elements of up to 4 bytes store their size in the type."""
        start = 0
        while start + 8 <= len(data):
            kind, size = struct.unpack_from(f"{self.order}II", data, start)
            if kind >> 16:
                begin, size, end = start + 4, kind >> 16, start + 8
            else:
                begin = start + 8
                end = begin + size + (0 if kind == self.COMPRESSED else -size % 8)
            if begin + size > min(len(data), end):
                raise ValueError("it ends within a variable")
            yield kind & 0xFFFF, data[begin : begin + size]
            start = end

    def _size(self, kind: int, content: memoryview) -> int:
        """Bytes of a variable, from the tag in its compressed content."""
        if kind != self.COMPRESSED:
            return len(content)
        size = int(struct.unpack_from(f"{self.order}I", zlib.decompressobj().decompress(content, 8), 4)[0])
        if size > DEFLATE_LIMIT * len(content):
            raise ValueError(f"a variable claims to unpack from {len(content):,} bytes into {size:,}")
        return size

    def _unpacked(self, kind: int, content: memoryview, size: int | None = None) -> memoryview:
        """A decompressed variable of `size` bytes; by default at least its header."""
        if kind == self.MATRIX:
            return content
        if kind != self.COMPRESSED:
            raise ValueError(f"it has an element of type {kind} instead of a variable")
        stream = zlib.decompressobj()
        data = stream.decompress(content, 8 + (self.HEAD if size is None else size))
        if size is not None:  # the checksum is at the end
            stream.decompress(stream.unconsumed_tail, 1)
            if not stream.eof:
                raise ValueError("a variable does not have its declared length")
        return memoryview(data)[8:]

    def _variable(self, content: memoryview) -> tuple[int, tuple[int, ...], str, Iterator[tuple[int, memoryview]]]:
        """Flags, shape and name of a variable, and the elements that follow."""
        elements = self._elements(content)
        flags, shape, name = (bytes(next(elements, (0, b""))[1]) for _ in range(3))
        sides = tuple(np.frombuffer(shape, f"{self.order}i4").tolist())
        if len(sides) < 2 or min(sides) < 0:
            raise ValueError(f"a variable has the invalid shape {sides}")
        return int(struct.unpack_from(f"{self.order}I", flags)[0]), sides, name.decode("latin-1"), elements

    def _value(self, content: memoryview) -> Any:
        flags, shape, _, elements = self._variable(content)
        of = flags & 0xFF
        if of == self.CELL:
            cells = [self._cell(cell) for _, cell in itertools.islice(elements, math.prod(shape))]
            if all(isinstance(cell, str) for cell in cells):
                return np.array(cells, dtype=str)
            return np.fromiter(cells, dtype=object, count=len(cells))
        if of == self.CHAR:
            return np.array(self._texts(shape, next(elements, (16, memoryview(b"")))))
        if of == self.SPARSE:
            rows, starts = (self._numbers(*next(elements)) for _ in range(2))
            kind, stored = next(elements)
            # MATLAB declares them as double, but stores logical values as bytes.
            values = self._numbers(2 if flags & self.IS_LOGICAL else kind, stored)
            n_values = int(starts[-1])
            parts = (values[:n_values].astype(np.float64), rows[:n_values].astype(np.int32), starts.astype(np.int32))
            matrix = scipy.sparse.csc_array(parts, shape=shape)
            matrix.check_format(full_check=True)  # detect indices that are out of bounds
            return matrix
        if of not in self.CLASSES or flags & self.IS_COMPLEX:
            raise ValueError("it has a variable of complex numbers, or neither of numbers nor of text")
        values = self._numbers(*next(elements)).reshape(shape, order="F")
        return values.astype(self.CLASSES[of])

    def _numbers(self, kind: int, content: memoryview) -> np.ndarray:
        return np.frombuffer(content, f"{self.order}{self.NUMBERS[kind]}")

    def _texts(self, shape: tuple[int, ...], element: tuple[int, memoryview]) -> list[str]:
        """Rows of a matrix of characters, which are stored column by column."""
        kind, content = element
        encoding = self.TEXTS[kind]
        characters = bytes(content).decode(encoding if encoding == "utf-8" else f"{encoding}-{self.text_order}")
        if len(characters) != math.prod(shape):
            raise ValueError(f"it has {len(characters)} characters where {math.prod(shape)} are expected")
        return [characters[row :: shape[0]] for row in range(shape[0])]

    def _cell(self, content: memoryview) -> Any:
        """The text or the numbers of a cell, "" if empty, None for anything else."""
        flags, shape, _, elements = self._variable(content) if content else (0, (0, 0), "", iter(()))
        of = flags & 0xFF
        if math.prod(shape) == 0:
            return ""
        if of == self.CHAR:
            return self._texts(shape, next(elements))[0] if shape[0] == 1 else None
        return self._value(content) if of in self.CLASSES and not flags & self.IS_COMPLEX else None
