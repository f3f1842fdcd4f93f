"""Readers of the formats of the published data sets. They load no pickles and unpack nothing to disk."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import scipy.sparse
from sklearn.datasets import load_digits

from ldsu.tables.formats.decoding import open_unpacked
from ldsu.tables.formats.libsvm import parse_libsvm
from ldsu.tables.formats.limits import require
from ldsu.tables.formats.matlab import open_mat
from ldsu.tables.formats.npy import open_npz

MAX_LABEL = 2**31


class DatasetError(OSError):
    """A data set could not be found, downloaded or read; the message has a remedy."""


class DatasetWarning(UserWarning):
    """A data set was read, but its values differ from those of the published results."""


@dataclass(frozen=True)
class Arrays:
    """Content of files: samples X (n, d) or documents, labels y (n,), image shape, and published test rows."""

    X: np.ndarray
    y: np.ndarray
    image_shape: tuple[int, int] | None = None
    is_test: np.ndarray | None = None
    documents: Any = None


def integer_labels(y: np.ndarray) -> np.ndarray:
    """Labels as int64 (n,), from a row or a column of integers; raises a ValueError otherwise.

    Examples
    --------
    >>> integer_labels(np.array([[0.0], [2.0]]))
    array([0, 2])
    """
    y = np.asarray(y)
    if y.ndim == 2 and 1 in y.shape:
        y = y.ravel()
    if y.ndim != 1 or y.dtype.kind not in "biuf":
        raise ValueError(f"its labels are an array of shape {y.shape} and type {y.dtype}, not a column of numbers")
    invalid = ~(np.abs(y.astype(np.float64)) < MAX_LABEL) | (y != np.trunc(y))
    if invalid.any():
        raise ValueError(f"its labels are not integers, such as {y[invalid][0]!s}")
    return y.astype(np.int64)


def read_bytes(path: Path) -> bytes:
    """The content of a file, decompressed."""
    with open_unpacked(path) as file:
        return file.read()


def read_digits() -> Arrays:
    """The digits of scikit-learn."""
    X, y = load_digits(return_X_y=True)
    return Arrays(X, y, (8, 8))


def read_npz(path: Path) -> Arrays:
    """Read arrays X, y and, if present, image_shape and is_test."""
    file = open_npz(path)
    more = {name: file.load(name) for name in ("image_shape", "is_test") if name in file.entries}
    if "image_shape" in more:
        more["image_shape"] = tuple(int(side) for side in more["image_shape"])
    return Arrays(file.load("X", copies=3), file.load("y"), **more)


def read_mat(path: Path, image_shape: tuple[int, int] | None = None) -> Arrays:
    """Read a MATLAB file of samples and labels: fea and gnd, or X and Y; images are column-major there."""
    file = open_mat(path)
    if "facedat" in file.entries:
        return _face_cells(file.load("facedat"))
    names = {name.lower(): name for name in file.entries}
    for samples, labels in (("fea", "gnd"), ("x", "y"), ("data", "label")):
        if samples in names and labels in names:
            break
    else:
        raise ValueError(f"it has neither fea and gnd nor X and Y, but {', '.join(file.entries)}")
    X, y = file.load(names[samples], copies=3), integer_labels(file.load(names[labels]))
    if scipy.sparse.issparse(X):
        require(path, 24 * math.prod(X.shape))
        X = X.toarray()
    if X.shape[0] != y.size and X.shape[1] == y.size:
        X = X.T
    if image_shape is not None:
        height, width = image_shape = _image_shape(X.shape[1], image_shape)
        X = X.reshape(-1, width, height).transpose(0, 2, 1).reshape(-1, width * height)
    return Arrays(X, y - y.min(), image_shape)


def _image_shape(n_pixels: int, default: tuple[int, int]) -> tuple[int, int]:
    """The default shape or, if the images were resized, the one that fits: the original UMIST shape, else a square."""
    side = math.isqrt(n_pixels)
    for shape in (default, (112, 92), (side, side)):
        if math.prod(shape) == n_pixels:
            return shape
    raise ValueError(f"its images have {n_pixels} pixels instead of {default[0]} x {default[1]}")


def _face_cells(cells: np.ndarray) -> Arrays:
    """UMIST as a cell of 112 x 92 x views arrays, one per person: reduced to 28 x 23 by the means of 4 x 4 blocks."""
    people = [np.moveaxis(np.asarray(cell, dtype=np.float64), 2, 0) for cell in cells]
    images = np.concatenate(people)
    n, height, width = images.shape
    blocks = images.reshape(n, height // 4, 4, width // 4, 4).mean(axis=(2, 4))
    y = np.repeat(np.arange(len(people)), [len(views) for views in people])
    return Arrays(np.rint(blocks).reshape(n, -1), y, (height // 4, width // 4))


def read_idx(path: Path) -> np.ndarray:
    """Read the idx format of MNIST: zero, zero, type (8: unsigned byte), dimensions, sizes, then the bytes."""
    data = read_bytes(path)
    zero, kind, dimensions = struct.unpack_from(">HBB", data)
    if zero or kind != 8:
        raise ValueError("it is not an idx file of unsigned bytes")
    sizes = struct.unpack_from(f">{dimensions}I", data, 4)
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(sizes)


def read_idx_pairs(*paths: Path) -> Arrays:
    """Read MNIST: training images and labels, test images and labels."""
    train, train_labels, test, test_labels = (read_idx(path) for path in paths)
    parts = [(images.reshape(len(images), -1), y) for images, y in ((train, train_labels), (test, test_labels))]
    return _joined(parts, (train.shape[1], train.shape[2]))


def read_digit_tables(*paths: Path) -> Arrays:
    """Read the USPS digits as rows of digit and 256 pixels: text, or a matrix in R's format."""
    return _joined([(table[:, 1:], table[:, 0]) for table in map(_digit_table, paths)], (16, 16))


def read_libsvm_pairs(*paths: Path) -> Arrays:
    """Read the USPS digits in LIBSVM format, where digit 0 has label 1."""
    parts = (parse_libsvm(path, read_bytes(path), n_columns=256) for path in paths)
    return _joined([(X.toarray(), y - 1) for X, y, _ in parts], (16, 16))


def _joined(parts: Sequence[tuple[np.ndarray, np.ndarray]], image_shape: tuple[int, int]) -> Arrays:
    """Training samples and labels, then those of the test."""
    X, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Arrays(X, integer_labels(y), image_shape, np.arange(len(y)) >= len(parts[0][1]))


def _digit_table(path: Path) -> np.ndarray:
    data = read_bytes(path)
    if data.startswith(b"RDX"):
        matrices = [value for value in read_rdata(data).values() if value.ndim == 2]
        if not matrices:
            raise ValueError(f"{path.name} has no numeric matrix")
        return matrices[0]
    return np.array(data.split(), dtype=np.float64).reshape(-1, 257)


def read_covtype(path: Path) -> Arrays:
    """Read Covertype: lines of 54 integers and the cover type 1 to 7, with or without a header."""
    data = read_bytes(path)
    if not data[:1].isdigit():
        data = data[data.index(b"\n") + 1 :]
    table = np.fromstring(data.decode("ascii").replace("\n", ","), dtype=np.int64, sep=",").reshape(-1, 55)
    return Arrays(table[:, :54], table[:, 54] - 1)


def read_rdata(data: bytes) -> dict[str, np.ndarray]:
    """Numeric vectors and matrices, by name, of a decompressed R workspace (save(), XDR serialization 2 or 3)."""
    if data[:7] not in (b"RDX2\nX\n", b"RDX3\nX\n"):
        raise ValueError("it is not a binary R workspace")
    stream = _RStream(io.BytesIO(data[7:]))
    version, _, _ = (stream.integer() for _ in range(3))
    if version == 3:
        stream.take(stream.integer())  # native encoding
    variables = stream.item()
    if not isinstance(variables, dict):
        raise ValueError("it is an unnamed R object, not a workspace of variables")
    return {name: value for name, value in variables.items() if isinstance(value, np.ndarray)}


class _RStream:
    """R serialization, item by item: "R Internals", section 1.8."""

    NUMBERS: ClassVar = {10: ">i4", 13: ">i4", 14: ">f8"}

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.symbols: list[str] = []

    def take(self, size: int) -> bytes:
        data = self.file.read(size)
        if len(data) != size or size < 0:
            raise EOFError("it ends too early")
        return data

    def integer(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def item(self) -> Any:
        flags = self.integer()
        kind, has_attributes, has_tag = flags & 0xFF, flags & 0x200, flags & 0x400
        if kind == 254:  # NULL, which also ends a list
            return {}
        if kind == 255:  # a symbol seen before
            return self.symbols[(flags >> 8 or self.integer()) - 1]
        if kind == 1:
            self.symbols.append(self.item())
            return self.symbols[-1]
        if kind == 9:
            length = self.integer()
            return self.take(length).decode("latin-1") if length >= 0 else ""
        if kind == 2:
            return self.pairs(has_attributes, has_tag)
        if kind in self.NUMBERS:
            form = np.dtype(self.NUMBERS[kind])
            value: Any = np.frombuffer(self.take(self.integer() * form.itemsize), dtype=form)
        elif kind in (16, 19):  # strings, list
            value = [self.item() for _ in range(self.integer())]
        else:
            raise ValueError(f"it has an R object of type {kind}, but only numeric vectors and matrices are supported")
        attributes = self.item() if has_attributes else {}
        if isinstance(value, np.ndarray) and "dim" in attributes:
            value = value.reshape(attributes["dim"], order="F")
        return value

    def pairs(self, has_attributes: int, has_tag: int) -> dict[str, Any]:
        """A linked list of names and values, without recursion over its length."""
        found: dict[str, Any] = {}
        while True:
            if has_attributes:
                self.item()
            tag = self.item() if has_tag else str(len(found))
            found[tag] = self.item()
            flags = self.integer()
            if flags & 0xFF != 2:
                return found
            has_attributes, has_tag = flags & 0x200, flags & 0x400
