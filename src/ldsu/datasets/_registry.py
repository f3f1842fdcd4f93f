"""Find, read, check and preprocess a data set."""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ldsu._utils.files import cache_folder
from ldsu.datasets._catalogue import DATASETS, DatasetInfo, Form
from ldsu.datasets.bags import Documents
from ldsu.datasets.download import DownloadError, fetch
from ldsu.datasets.formats import Arrays, DatasetError, DatasetWarning, integer_labels
from ldsu.datasets.preprocessing import PREPROCESSINGS, resize
from ldsu.tables.table import is_checked_memory

REASON_LENGTH = 300  # an error may quote a whole file


@dataclass(frozen=True)
class Dataset:
    """A data set, ready for use.

    Attributes
    ----------
    name : str
        Its name in `DATASETS`.
    X : ndarray of float64, shape (n, d)
        Preprocessed samples; of shape (n, 0) if there are documents instead.
    y : ndarray of int64, shape (n,)
        Labels 0 .. c-1.
    classes : tuple of str
        Names of the classes.
    image_shape : tuple of int or None
        ``X[i].reshape(image_shape)`` is an upright image.
    preprocessing : str
        The applied preprocessing.
    description, source : str
        Description and source.
    documents : Events, Notes or None
        For `bag_of_words`, which makes X for one split.
    is_test : ndarray of bool, shape (n,), or None
        The published test rows, if any.
    notes : tuple of str
        Notes of the reader: values that differ from the reference copy, invalid rows.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...]
    image_shape: tuple[int, int] | None = None
    preprocessing: str = "none"
    description: str = ""
    source: str = ""
    documents: Documents | None = None
    is_test: np.ndarray | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content: equal if two results use the same data.

        `load` computes it from the values as first read and the name of the preprocessing, because the results of a
        step may differ in the last bit between machines. For other data sets it is computed from X, y and documents.
        """
        return _fingerprint(content_sha256(self.X, self.y, self.documents), self.X.shape)


def load(
    name: str, *, preprocessing: str | None = None, data_dir: str | Path | None = None, download: bool = True
) -> Dataset:
    """Load a data set: from `data_dir`, from the folder in ``LDSU_DATA``, from the cache, or from its public address.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    preprocessing : str or None, default=None
        One of ``DATASETS[name].preprocessings``; None uses the first.
    data_dir : path or None, default=None
        Folder that is searched first for any of the published files.
    download : bool, default=True
        Whether to download missing files to `cache_folder`.

    Returns
    -------
    dataset : Dataset
        Samples (or documents), labels and their source.

    Raises
    ------
    DatasetError
        If the files are not found, are damaged, belong to another data set, or a download has unexpected content.

    Warns
    -----
    DatasetWarning
        If the labels are as published but the values differ from the reference copy.

    Examples
    --------
    >>> digits = load("digits")
    >>> digits.X.shape, digits.image_shape, digits.classes[:3]
    ((1797, 64), (8, 8), ('0', '1', '2'))
    """
    if name not in DATASETS:
        raise ValueError(f"There is no data set {name!r}. Available: {', '.join(DATASETS)}.")
    info = DATASETS[name]
    preprocessing = preprocessing or info.preprocessings[0]
    if preprocessing not in info.preprocessings:
        raise ValueError(f"{name} has no preprocessing {preprocessing!r}. Available: {', '.join(info.preprocessings)}.")
    arrays, content, notes = _read(info, data_dir, download)
    for note in notes:
        warnings.warn(note, DatasetWarning, stacklevel=2)
    step = PREPROCESSINGS[preprocessing]
    rows = slice(None) if step.keep is None else step.keep(arrays.X, arrays.y)
    X, image_shape = arrays.X[rows], arrays.image_shape
    if info.resize_to and image_shape and preprocessing != "none":
        X, image_shape = resize(X, image_shape, info.resize_to), info.resize_to
    X, image_shape = step(X, image_shape)
    dataset = Dataset(
        name=name,
        X=X,
        y=arrays.y[rows],
        classes=info.classes or tuple(str(label) for label in range(len(info.class_sizes))),
        image_shape=image_shape,
        preprocessing=preprocessing,
        description=info.description,
        source=info.source,
        documents=None if arrays.documents is None else arrays.documents[rows],
        is_test=None if arrays.is_test is None else arrays.is_test[rows],
        notes=notes,
    )
    vars(dataset)["fingerprint"] = _fingerprint(content, arrays.X.shape, arrays.image_shape, preprocessing)
    return dataset


Content = tuple[str, str]
Found = tuple[Arrays, Content, tuple[str, ...]]


def _read(info: DatasetInfo, data_dir: str | Path | None, download: bool) -> Found:
    """Arrays, their checksums, and notes on them."""
    if data_dir is not None and not Path(data_dir).is_dir():
        raise DatasetError(f"data_dir={str(data_dir)!r} is not a folder.")
    folders = [Path(folder) for folder in (data_dir, os.environ.get("LDSU_DATA"), cache_folder()) if folder]
    for folder in folders:
        for form in info.forms:
            paths = form.find(folder)
            if paths is not None:
                return _read_form(info, form, paths)
    files = " or ".join(" and ".join(file.name for file in form.files) for form in info.forms)
    if not download:
        searched = ", ".join(map(str, folders))
        raise DatasetError(f"{info.title} was not found in {searched}. Put {files} there, or allow the download.")
    failures: list[str] = []
    for form in info.forms:
        if all(file.urls for file in form.files):
            try:
                return _download(info, form, cache_folder())
            except DownloadError as error:
                failures += error.failures
    raise DownloadError.of(info.title, failures, files, cache_folder())


def _download(info: DatasetInfo, form: Form, folder: Path) -> Found:
    """Download, read and check files. Files without a checksum are kept only if their content is valid."""
    fetched: list[tuple[Path, bool]] = []
    try:
        for file in form.files:
            fetched.append(fetch(file, folder))
        try:
            arrays, content, notes = _read_form(info, form, [path for path, _ in fetched])
            # A known variant has the labels of the reference copy; files with checksums may differ from it.
            expected = info.sha256[1:] if form.variant else info.sha256
            has_checksums = all(file.sha256 for file in form.files)
            if all(info.sha256) and content[-len(expected) :] != expected and not has_checksums:
                raise DatasetError(notes[0])
        except DatasetError as error:
            failure = f"{form.files[0].urls[0]} returned invalid content ({error})"
            raise DownloadError.of(info.title, [failure], form.files[0].name, folder) from error
        return arrays, content, notes
    except BaseException:
        for (path, is_new), file in zip(fetched, form.files, strict=False):
            if is_new and file.sha256 is None:  # keep files that existed before
                path.unlink(missing_ok=True)
        raise


def _read_form(info: DatasetInfo, form: Form, paths: list[Path]) -> Found:
    names = " and ".join(map(str, paths))
    try:
        arrays = _checked(form.read(*paths), info)
    except Exception as error:  # damaged files raise various errors in numpy, scipy and the standard library
        if is_checked_memory(error):
            raise
        reason = _reason(error)
        raise DatasetError(f"{names} cannot be read as {info.title}: {reason}. Replace or remove the file.") from error
    if difference := _class_difference(arrays, info):
        raise DatasetError(f"{names} is not {info.title}: {difference}. Replace or remove the file.")
    content = content_sha256(arrays.X, arrays.y, arrays.documents)
    if not all(info.sha256) or content == info.sha256:
        return arrays, content, ()
    note = f"{names} has the class sizes of {info.title}, but other values or another order than the reference copy"
    variant = f" ({form.variant})" if form.variant else ""
    return arrays, content, (f"{note}{variant}.",)


def _reason(error: BaseException) -> str:
    """The message of an error in one line of limited length."""
    text = f"the entry {error} is missing or unknown" if isinstance(error, KeyError) else str(error)
    text = " ".join(text.split()).rstrip(".") or type(error).__name__
    return text if len(text) <= REASON_LENGTH else f"{text[:REASON_LENGTH]}..."


def _checked(arrays: Arrays, info: DatasetInfo) -> Arrays:
    """Arrays in canonical form; raises a ValueError if they are invalid."""
    X, shape = arrays.X, arrays.image_shape
    if arrays.documents is None:
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] == 0 or X.dtype.kind not in "biuf":
            raise ValueError(f"its samples are an array of shape {X.shape} and type {X.dtype}, not a matrix of numbers")
        X = _as_published(X, info)
        if not np.isfinite(X).all():
            raise ValueError("its samples are not all finite numbers")
    if shape is not None and (len(shape) != 2 or min(shape) < 1 or math.prod(shape) != X.shape[1]):
        raise ValueError(f"its images have shape {shape}, but its samples have {X.shape[1]} values")
    if shape is None and info.resize_to:
        raise ValueError("the shape of its images is missing")
    is_test = None if arrays.is_test is None else np.asarray(arrays.is_test, dtype=bool)
    if is_test is not None and is_test.shape != (len(X),):
        raise ValueError(f"is_test has shape {is_test.shape}, but there are {len(X)} samples")
    return replace(arrays, X=X, y=integer_labels(arrays.y), is_test=is_test)


def _class_difference(arrays: Arrays, info: DatasetInfo) -> str:
    """How the classes differ from the published ones; their order matters if they have names."""
    n, n_classes = info.n_samples, len(info.class_sizes)
    labels, sizes = np.unique(arrays.y, return_counts=True)
    if not len(arrays.X) == len(arrays.y) == n or labels.size != n_classes:
        found = f"{len(arrays.X)} samples and {len(arrays.y)} labels of {labels.size} classes"
        return f"it has {found}, not {n} of {n_classes} as published"
    if labels[0] != 0 or labels[-1] != n_classes - 1:
        return f"its labels range from {labels[0]} to {labels[-1]}, not from 0 to {n_classes - 1}"
    if not info.classes:
        same = sorted(sizes) == sorted(info.class_sizes)
        return "" if same else "its classes have other sizes than published"
    for name, size, published in zip(info.classes, sizes, info.class_sizes, strict=False):
        if size != published:
            return f"its class {name!r} has {size} samples, not {published} as published"
    return ""


def content_sha256(X: np.ndarray, y: np.ndarray, documents: Documents | None = None) -> Content:
    """Checksums of samples (or documents) and labels as bytes in row order, little endian."""
    digests = []
    for parts in ([X] if documents is None else documents.arrays(), [y]):
        digest = hashlib.sha256()
        for part in parts:
            digest.update(np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<")).data)
        digests.append(digest.hexdigest())
    return digests[0], digests[1]


def _fingerprint(content: Content, *more: Any) -> str:
    return hashlib.sha256(repr((content, *more)).encode()).hexdigest()


def _as_published(X: np.ndarray, info: DatasetInfo) -> np.ndarray:
    """Convert values to the reference scale and dtype, if this loses at most digits beyond single precision."""
    if X.size == 0:
        return X
    if info.scale:
        low, high = (0.0, 255.0) if X.max() > 1 else (-1.0, 1.0) if X.min() < 0 else (0.0, 1.0)
        if (low, high) != info.scale:
            X = info.scale[0] + (X - low) * ((info.scale[1] - info.scale[0]) / (high - low))
    dtype = np.dtype(info.dtype)
    if dtype.kind in "iu" and X.dtype != dtype:
        limits = np.iinfo(dtype)
        if X.min() < limits.min or X.max() > limits.max or np.any(np.rint(X) != X):
            dtype = np.dtype("float32")
    with np.errstate(over="ignore"):  # overflow becomes infinity, which the caller checks
        return np.ascontiguousarray(X, dtype=dtype)
