"""LIBSVM (svmlight) text, lines of a label and index:value pairs -> a sparse matrix and its labels."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse

from ldsu.tables.formats.limits import require
from ldsu.tables.formats.matrices import as_columns
from ldsu.tables.table import Table, TableError, import_extra

# Peak memory per byte of file content (measured: benchmarks/readers.py).
LIBSVM_FACTOR = 8
MAX_INDEX = 2**31 - 2
LIBSVM_NUMBER = r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?"
LIBSVM_LINE = re.compile(
    rf"\s*{LIBSVM_NUMBER}(\s+qid:\d+)?(\s+\d{{1,18}}:({LIBSVM_NUMBER}|nan|inf))*\s*", re.IGNORECASE
)
LIBSVM_LINES, LIBSVM_HEAD = 5, 2**12


def is_libsvm(data: bytes) -> bool:
    """Whether the first lines are a label and index:value pairs.

    Examples
    --------
    >>> is_libsvm(b"+1 3:0.5 7:1"), is_libsvm(b"1, 12:30"), is_libsvm(b"1 2 3")
    (True, False, False)
    """
    head = data[:LIBSVM_HEAD]
    if len(head) == LIBSVM_HEAD:  # truncated within a line, and perhaps within a pair
        head = head[: max(head.rfind(b"\n"), head.rfind(b" "), 0)]
    lines = [line for line in _libsvm_lines(head) if line.strip()][:LIBSVM_LINES]
    return any(":" in line for line in lines) and all(LIBSVM_LINE.fullmatch(line) for line in lines)


def _libsvm_lines(data: bytes) -> Iterator[str]:
    """Lines without their comments."""
    return (line.partition("#")[0] for line in io.TextIOWrapper(io.BytesIO(data), "utf-8", errors="replace"))


def read_libsvm(
    path: Path, data: bytes, notes: list[str], first_index: int | None = None, n_columns: int | None = None
) -> Table:
    """Read lines of a label and index:value pairs as a sparse matrix and the column "label", see `parse_libsvm`."""
    pa = import_extra("pyarrow")
    matrix, y, start = parse_libsvm(path, data, first_index, n_columns)
    if first_index is None:
        notes.append(f"Column indices start at {start}.")
    n = matrix.shape[0]
    lines: Sequence[int] = range(1, n + 1)
    if data.count(b"\n") + (not data.endswith(b"\n")) != n:
        lines = [line for line, text in enumerate(_libsvm_lines(data), 1) if text.strip()]
    return Table(
        path,
        frame=pa.table(as_columns({"label": y}, "label")),
        matrix=matrix,
        lines=lines if len(lines) == n else None,
        label_name="label",
        notes=tuple(notes),
        first_index=start,
    )


def parse_libsvm(
    path: Path, data: bytes, first_index: int | None = None, n_columns: int | None = None
) -> tuple[scipy.sparse.csr_array, np.ndarray, int]:
    """Values (n, p), labels (n,) and the index of the first column; an error names the invalid line.

    `first_index` and `n_columns` are those of the file that a model was fitted to. By default, the first index is 0 if
    an index 0 occurs, else 1, and the largest index defines the number of columns.
    """
    from sklearn.datasets import load_svmlight_file

    require(path, LIBSVM_FACTOR * len(data))
    try:
        matrix, y = load_svmlight_file(io.BytesIO(data), zero_based=True)
    except Exception:
        _raise_invalid_pair(path, data)
        raise
    if matrix.shape[0] == 0:
        raise TableError(f"{path.name} has no rows. Use a file with one line per sample.")
    if matrix.nnz == 0:
        raise TableError(f"{path.name} has labels, but no index:value pair in any line.")
    lowest = int(matrix.indices.min())
    first_index = min(lowest, 1) if first_index is None else first_index
    if lowest < first_index:
        raise TableError(
            f"{path.name} has an index {lowest}, but the model was fitted to indices starting at {first_index}."
        )
    matrix = scipy.sparse.csr_array(matrix[:, first_index:])
    matrix.resize(matrix.shape[0], max(matrix.shape[1], n_columns or 0))
    return matrix, y, first_index


def _raise_invalid_pair(path: Path, data: bytes) -> None:
    """Raise an error that names the first line that is not a label and pairs sorted by index."""
    for number, line in enumerate(_libsvm_lines(data), 1):
        label, *pairs = line.split() or ["0"]
        place = f"{path.name}, line {number}"
        if LIBSVM_LINE.fullmatch(label) is None:
            raise TableError(f"{place}: {label[:40]!r} is not a number. Start each line with a number as its label.")
        for pair in pairs:
            if LIBSVM_LINE.fullmatch(f"0 {pair}") is None:
                raise TableError(f"{place}: {pair[:40]!r} is not an index:value pair. Write pairs such as 3:0.5.")
        indices = [int(pair.partition(":")[0]) for pair in pairs if not pair.startswith("qid:")]
        for before, after in itertools.pairwise(indices):
            if after <= before:
                raise TableError(f"{place}: index {after} follows {before}. Sort the pairs of a line by index.")
        if max(indices, default=0) > MAX_INDEX:
            raise TableError(f"{place}: index {max(indices)} is too large. Number the columns from 1.")
