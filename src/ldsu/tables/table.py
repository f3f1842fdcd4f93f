"""What every reader returns: rows of a user's file, with what is needed to speak of them in the file's own terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    import scipy.sparse

# A reason given by another library is quoted up to here.
LONGEST_REASON = 160
# Name of a package for pip, the extra that installs it, and what else the user can do.
EXTRAS = {
    "pyarrow": ("pyarrow", "cli", ""),
    "PIL": ("Pillow", "cli", ""),
    "openpyxl": ("openpyxl", "excel", ", or save the sheet as CSV"),
}


class TableError(ValueError):
    """Something in a user's file that only the user can mend; the message names the file, the place and the value."""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a user's file: named columns, a matrix of columns without names, or both.

    Parameters
    ----------
    source : Path
        The file or the folder it was read from.
    frame : pyarrow.Table, optional
        Named columns. Of CSV and TSV every column is string, and null where the file has nothing or a marker of a
        missing value.
    matrix : ndarray or csr_array of shape (n, p), optional
        Columns that have no names of their own, as float64, float32 or uint8.
    is_text : bool
        Whether the frame's values are the file's own text, still to be understood as numbers.
    decimal : {".", ","}
        What separates the fraction of a number in that text.
    lines : sequence of int, optional
        Line of each row as an editor numbers it; None where the file has no lines.
    row_names : tuple of str, optional
        Files of the images, relative to the folder.
    image_shape : tuple of int, optional
        (height, width) of grey images, (height, width, 3) of coloured ones.
    first_index : int, optional
        Of LIBSVM text: the index of its first column, 0 or 1.
    label_name : str, optional
        Column of the frame that the format itself says is the label.
    notes : tuple of str
        What the reader decided, a sentence each.

    Examples
    --------
    >>> table = Table(Path("folder/digits.npy"), matrix=np.zeros((5, 2)))
    >>> table.n_rows
    5
    >>> table.place(3, column=1)
    'digits.npy, row 4, column 2'
    """

    source: Path
    frame: pa.Table | None = None
    matrix: np.ndarray | scipy.sparse.csr_array | None = None
    is_text: bool = False
    decimal: str = "."
    lines: Sequence[int] | None = None
    row_names: tuple[str, ...] | None = None
    image_shape: tuple[int, ...] | None = None
    label_name: str | None = None
    notes: tuple[str, ...] = ()
    first_index: int | None = None

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
    def first_line(self) -> int:
        """Line of the first row; 1 where the file has no lines, as rows are counted from 1 there."""
        return self.lines[0] if self.lines else 1

    def place(self, row: int, column: str | int | None = None) -> str:
        """Where a value stands, for messages: ``"digits.csv, line 17, column 'age'"``.

        Parameters
        ----------
        row : int
            Counted from 0.
        column : str or int, optional
            A name of the frame, or a column of the matrix, counted from 0.
        """
        if self.row_names is not None:
            words = [f"{self.source.name}/{self.row_names[row]}"]
        elif self.lines is not None:
            words = [self.source.name, f"line {self.lines[row]}"]
        else:
            words = [self.source.name, f"row {row + 1}"]
        if column is not None:
            words.append(f"column {column + 1}" if isinstance(column, int) else f"column {column!r}")
        return ", ".join(words)


def import_extra(module: str) -> Any:
    """A module of an optional dependency, or an `ImportError` that says how to install it.

    Examples
    --------
    >>> import_extra("json").dumps([])
    '[]'
    """
    package = module.partition(".")[0]
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:  # something that it needs itself
            raise
        name, extra, instead = EXTRAS[package]
        sentence = f"Install {name}, which reads this file, with: pip install 'ldsu[{extra}]'{instead}"
        raise ModuleNotFoundError(sentence, name=package) from error
    return import_module(module)


@contextmanager
def readable(path: Path, kind: str, instead: str = "Write it again, or ask for another copy.") -> Iterator[None]:
    """Turn whatever a library raises on a damaged file into one sentence for the user.

    Parsers of binary formats raise nearly everything when bytes are wrong, from `zlib.error` to `IndexError`: none of
    it tells the user more than that the file is damaged. A length misread asks for memory there is not; what a sound
    file needs is checked before, outside.

    Parameters
    ----------
    path : Path
        The file.
    kind : str
        What it should be, with its article.
    instead : str
        What to do, as a sentence.
    """
    try:
        yield
    except (TableError, ImportError):
        raise
    except PermissionError as error:
        raise TableError(f"{path.name} may not be read: permission denied. Change its permissions.") from error
    except Exception as error:
        raise TableError(f"{path.name} cannot be read as {kind}: {reason(error)}. {instead}") from error


def count(n: int, noun: str) -> str:
    """A number of things, in words for a message.

    Examples
    --------
    >>> count(1, "value"), count(2000, "value")
    ('1 value', '2,000 values')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def reason(error: Exception) -> str:
    """What an error says, short enough to stand within a sentence.

    Examples
    --------
    >>> reason(KeyError("fea"))
    "KeyError 'fea'"
    >>> reason(ValueError("bad magic."))
    'bad magic'
    """
    if isinstance(error, MemoryError):
        return "it claims to hold more than fits into memory"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    first = text.strip().partition("\n")[0].rstrip(".:")[:LONGEST_REASON]
    if isinstance(error, (KeyError, IndexError, TypeError, AttributeError)) or not first:
        return f"{type(error).__name__} {first}".strip()
    return first
