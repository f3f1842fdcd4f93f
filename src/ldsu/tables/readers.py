"""Files -> `Table`: the format is detected from the content if possible, and from the name otherwise."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ldsu.tables.formats import READABLE
from ldsu.tables.formats.arrow import STREAM, read_arrow, read_parquet
from ldsu.tables.formats.decoding import COMPRESSED, read_text
from ldsu.tables.formats.excel import is_workbook, read_excel
from ldsu.tables.formats.libsvm import LIBSVM_HEAD, is_libsvm, read_libsvm
from ldsu.tables.formats.matlab import open_mat
from ldsu.tables.formats.matrices import ArrayFile, from_arrays
from ldsu.tables.formats.npy import open_npy, open_npz
from ldsu.tables.formats.separated import read_separated
from ldsu.tables.images import SUFFIXES as IMAGE_SUFFIXES
from ldsu.tables.images import Progress, read_images
from ldsu.tables.label_files import file_labels, labels_table, with_labels
from ldsu.tables.table import NEW_COPY, Table, TableError, import_extra, readable

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz")
TEXT_SUFFIXES = (".csv", ".tsv", ".tab", ".psv", ".txt", ".dat", ".data")
LIBSVM_SUFFIXES = (".libsvm", ".svmlight", ".svm")


class Format(NamedTuple):
    """A binary format: its name in messages, its first bytes, the suffixes that promise them, and its reader.

    `remedy` is what to do with a damaged file, or with any file of a format without a reader.
    """

    name: str
    magic: tuple[bytes, ...]
    suffixes: tuple[str, ...]
    read: Callable[[Path], Table | ArrayFile] | None
    remedy: str = NEW_COPY


NPZ = Format("an .npz file", (b"PK\x03\x04",), (".npz",), open_npz)
EXCEL = Format("an Excel file", (), (".xlsx", ".xlsm"), read_excel)  # starts like .npz
# Other programs than MATLAB may write another text at the start.
MAT = Format(
    "a MATLAB file", (b"MATLAB 5.0",), (), open_mat, "In MATLAB save it again with -v7, or write its table as CSV."
)
FORMATS = (
    Format("a Parquet file", (b"PAR1",), (".parquet", ".pq"), read_parquet),
    Format("an Arrow file", (b"ARROW1", STREAM), (".feather", ".arrow", ".ipc", ".arrows"), read_arrow),
    Format("an .npy file", (b"\x93NUMPY",), (".npy",), open_npy),
    NPZ,
    EXCEL,
    MAT,
    Format(
        "a MATLAB 7.3 or another HDF5 file, which is not supported",
        (b"MATLAB 7.3", b"\x89HDF\r\n\x1a\n"),
        (),
        None,
        MAT.remedy,
    ),
    Format(
        "in the old Office format (.xls) or protected by a password",
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",),
        (),
        None,
        "Save its sheet as .xlsx without a password, or as CSV.",
    ),
)
BINARY = tuple(magic for form in FORMATS for magic in form.magic)


def read_table(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    image_size: tuple[int, ...] | None = None,
    first_index: int | None = None,
    n_columns: int | None = None,
    progress: Progress | None = None,
    pixels: bool = True,
) -> Table:
    """Read a file of any supported format, or a folder of images.

    Parameters
    ----------
    path : path-like
        A file, or a folder of images with one sub-folder per class.
    labels : path-like, optional
        Separate label file: for images a CSV of files and labels, for tables a CSV, .npy, .npz or .mat with one label
        per row. They become the column "label".
    image_size : tuple of int, optional
        (height, width), (height, width, 1) or (height, width, 3) of the images, see `read_images`.
    first_index, n_columns : int, optional
        Of LIBSVM text, as in the fit of a model. Default: from the file.
    progress : callable, optional
        Called periodically with the number of images read and the total.
    pixels : bool, default=True
        Whether to read the pixels of images, which an encoder does not need.

    Returns
    -------
    table : Table

    Raises
    ------
    TableError
        If the content of the file is invalid.
    FileNotFoundError
        If the path does not exist.
    MemoryError
        If the content does not fit into memory.
    """
    import_extra("pyarrow")  # nearly every format needs it, if only for the labels: fail early
    path = _existing(path)
    labels = None if labels is None else _existing(labels)
    if path.is_dir():
        listed = None if labels is None else file_labels(_read_file(labels))
        return read_images(path, listed, image_size, progress, pixels)
    table = _read_file(path, first_index, n_columns)
    return table if labels is None else with_labels(table, _read_file(labels, convert=labels_table))


def _existing(path: str | Path) -> Path:
    path = Path(path)
    with readable(path, "a file", "Use another path."):
        if path.exists():
            return path
        siblings = path.parent.iterdir() if path.parent.is_dir() else ()
        matches = difflib.get_close_matches(path.name, [other.name for other in siblings], n=1)
    hint = f" Did you mean {path.with_name(matches[0])}?" if matches else " Correct the path."
    raise FileNotFoundError(f"There is no file or folder {path}.{hint}")


def _read_file(
    path: Path,
    first_index: int | None = None,
    n_columns: int | None = None,
    convert: Callable[[ArrayFile], Table] = from_arrays,
) -> Table:
    """Read a file with the reader of its format; named arrays are converted to a table."""
    form = _format(path)
    if form is not None:
        if form.read is None:
            raise TableError(f"{path.name} is {form.name}. {form.remedy}")
        with readable(path, form.name, form.remedy):
            content = form.read(path)
            return convert(content) if isinstance(content, ArrayFile) else content
    with readable(path, "a file"):
        data, notes = read_text(path, BINARY)
    if _suffix(path) in LIBSVM_SUFFIXES or is_libsvm(data):
        with readable(path, "LIBSVM text"):
            return read_libsvm(path, data, notes, first_index, n_columns)
    with readable(path, "separated text"):
        return read_separated(path, data, notes)


def _format(path: Path) -> Format | None:
    """The binary format of a file; None for text, whose format is detected after decoding."""
    if not path.is_file():
        raise TableError(f"{path.name} is not a regular file. Save its content as a file, and use that.")
    with readable(path, "a file"), path.open("rb") as file:
        head = file.read(LIBSVM_HEAD)
    if not head:
        raise TableError(f"{path.name} is empty. Use a file with one row per sample.")
    suffix = _suffix(path)
    for form in FORMATS:
        if head.startswith(form.magic):
            return EXCEL if form is NPZ and (suffix in EXCEL.suffixes or is_workbook(path)) else form
    if any(head.startswith(magic) for magic, _ in COMPRESSED):
        return None
    for form in FORMATS:
        if suffix in form.suffixes:
            raise TableError(
                f"{path.name} is named like {form.name}, but does not start like one: it is damaged, or its name is "
                "wrong. Use another copy."
            )
    if suffix in IMAGE_SUFFIXES:
        raise TableError(f"{path.name} is a single image. Use the folder of all images.")
    if suffix == ".mat":
        return MAT
    if suffix not in TEXT_SUFFIXES + LIBSVM_SUFFIXES and not is_libsvm(head):
        raise TableError(f"{path.name} has an unsupported format. Supported: {READABLE}.")
    return None


def _suffix(path: Path) -> str:
    """The lower-case suffix of the name, without that of a compression."""
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSED_SUFFIXES else path
    return inner.suffix.lower()
