"""The result of every reader: rows of a file, with their positions in it for messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import gen_batches

from ldsu._utils.temporary import BLOCK_ROWS, is_mapped

if TYPE_CHECKING:
    import pyarrow as pa
    import scipy.sparse

# Maximum length of a quoted error message of another library.
MAX_REASON = 160
NEW_COPY = "Write it again, or get another copy."
# Package name for pip, the extra that installs it, and an alternative.
EXTRAS = {
    "pyarrow": ("pyarrow", "cli", ""),
    "PIL": ("Pillow", "cli", ""),
    "openpyxl": ("openpyxl", "excel", ", or save the sheet as CSV"),
}


class TableError(ValueError):
    """Invalid content of a file that the user must fix; the message names the file, the position and the value."""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a file: named columns, a matrix of unnamed columns, or both.

    Parameters
    ----------
    source : Path
        The file or the folder it was read from.
    frame : pyarrow.Table or ColumnFile, optional
        Named columns, read when they are asked for if the file is large. In CSV and TSV files all columns are strings,
        and null if empty or a marker of a missing value.
    matrix : ndarray or csr_array of shape (n, p), optional
        Unnamed columns, as float64, float32 or uint8, or a large file mapped into memory.
    is_text : bool
        Whether the values of the frame are unparsed text.
    decimal : {".", ","}
        Decimal separator of this text.
    lines : sequence of int, optional
        Line number of each row; None if the file has no lines.
    row_names : tuple of str, optional
        Image files, relative to the folder.
    image_shape : tuple of int, optional
        (height, width) of gray images, (height, width, 3) of color images.
    first_index : int, optional
        Of LIBSVM text: the index of its first column, 0 or 1.
    label_name : str, optional
        Column of the frame that the file format defines as the label.
    notes : tuple of str
        Decisions of the reader, one sentence each.
    first_row : int
        Number of the first row in the file, from 0.

    Examples
    --------
    >>> table = Table(Path("folder/digits.npy"), matrix=np.zeros((5, 2)))
    >>> table.n_rows
    5
    >>> table.place(3, column=1)
    'digits.npy, row 4, column 2'
    """

    source: Path
    frame: Any = None
    matrix: np.ndarray | scipy.sparse.csr_array | None = None
    is_text: bool = False
    decimal: str = "."
    lines: Sequence[int] | None = None
    row_names: tuple[str, ...] | None = None
    image_shape: tuple[int, ...] | None = None
    label_name: str | None = None
    notes: tuple[str, ...] = ()
    first_index: int | None = None
    first_row: int = 0

    def __post_init__(self) -> None:
        if self.frame is None and self.matrix is None:
            raise TypeError("A table needs a frame or a matrix.")
        if self.frame is not None and self.matrix is not None and self.frame.num_rows != self.matrix.shape[0]:
            raise TypeError(f"The frame has {self.frame.num_rows} rows, the matrix {self.matrix.shape[0]}.")

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        rows: Any = self.matrix if self.frame is None else self.frame
        return int(rows.shape[0])

    @property
    def n_matrix_columns(self) -> int:
        """Number of unnamed columns."""
        return 0 if self.matrix is None else int(self.matrix.shape[1])

    @property
    def column_names(self) -> list[str]:
        """Names of the columns of the frame."""
        return [] if self.frame is None else list(self.frame.column_names)

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the frame."""
        assert self.frame is not None
        return self.frame[name]

    @property
    def is_large(self) -> bool:
        """Whether it is read from its file in parts, by columns or blocks of rows."""
        return is_mapped(self.matrix) or hasattr(self.frame, "blocks")

    def row_blocks(self) -> Iterator[Table]:
        """The table in parts of consecutive rows, if it is large; otherwise as a whole."""
        if not self.is_large:
            yield self
        elif hasattr(self.frame, "blocks"):
            start = 0
            for frame in self.frame.blocks():
                yield replace(self, frame=frame, first_row=start)
                start += frame.num_rows
        else:
            assert self.matrix is not None
            for rows in gen_batches(self.n_rows, BLOCK_ROWS):
                frame = None if self.frame is None else self.frame.slice(rows.start, rows.stop - rows.start)
                yield replace(self, matrix=np.array(self.matrix[rows]), frame=frame, first_row=rows.start)

    def place(self, row: int, column: str | int | None = None) -> str:
        """Position of a value, counted from 0, for messages: ``"digits.csv, line 17, column 'age'"``."""
        if self.row_names is not None:
            place = f"{self.source.name}/{self.row_names[row]}"
        else:
            number = f"row {self.first_row + row + 1}" if self.lines is None else f"line {self.lines[row]}"
            place = f"{self.source.name}, {number}"
        if column is None:
            return place
        return f"{place}, column {column + 1 if isinstance(column, int) else repr(column)}"


def import_extra(module: str) -> Any:
    """Import a module of an optional dependency; the `ImportError` tells how to install it.

    Examples
    --------
    >>> import_extra("json").dumps([])
    '[]'
    """
    package = module.partition(".")[0]
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:  # a missing dependency of the package
            raise
        name, extra, alternative = EXTRAS[package]
        sentence = f"Install {name}, which reads this file, with: pip install 'ldsu[{extra}]'{alternative}"
        raise ModuleNotFoundError(sentence, name=package) from error
    return import_module(module)


@contextmanager
def readable(path: Path, kind: str, remedy: str = NEW_COPY) -> Iterator[None]:
    """Convert any error of a library on a damaged file to a one-sentence `TableError` that ends with a remedy.

    Parsers of binary formats raise nearly any exception on invalid bytes, from `zlib.error` to `IndexError`: they only
    mean that the file is damaged. So does a `MemoryError`, from an invalid length, unless `require_memory` raised it.
    """
    try:
        yield
    except (TableError, ImportError):
        raise
    except PermissionError as error:
        raise TableError(f"{path.name} cannot be read: permission denied. Change its permissions.") from error
    except Exception as error:
        if is_checked_memory(error):
            raise
        raise TableError(f"{path.name} cannot be read as {kind}: {reason(error)}. {remedy}") from error


def is_checked_memory(error: Exception) -> bool:
    """Whether an error is of `require_memory`, for a valid file, and not of a library that followed invalid bytes."""
    return type(error) is MemoryError and bool(error.args)


def count(n: int, noun: str) -> str:
    """Format a number with a noun for a message.

    Examples
    --------
    >>> count(1, "value"), count(2000, "value")
    ('1 value', '2,000 values')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def listed(names: Iterable[str], max_shown: int = 5, noun: str = "") -> str:
    """Join names for a message, the first of them if there are many.

    Examples
    --------
    >>> listed(["a", "b", "c", "d"], 2, "columns")
    'a, b and 2 more columns'
    """
    names = list(names)
    more = f" and {len(names) - max_shown:,} more {noun}".rstrip() if len(names) > max_shown else ""
    return ", ".join(names[:max_shown]) + more


def reason(error: Exception) -> str:
    """The message of an error, shortened for use in a sentence.

    Examples
    --------
    >>> reason(KeyError("fea"))
    "KeyError 'fea'"
    >>> reason(ValueError("bad magic."))
    'bad magic'
    """
    if isinstance(error, MemoryError):
        return "it claims to contain more than fits into memory"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    first = text.strip().partition("\n")[0].rstrip(".:")[:MAX_REASON]
    if isinstance(error, (KeyError, IndexError, TypeError, AttributeError)) or not first:
        return f"{type(error).__name__} {first}".strip()
    return first
