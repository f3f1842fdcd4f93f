"""Find, read, check and preprocess a data set."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ldsu.datasets._catalogue import DATASETS, DatasetInfo, Form
from ldsu.datasets.download import DownloadError, fetch
from ldsu.datasets.formats import DAMAGE, Arrays, DatasetError, DatasetWarning
from ldsu.datasets.preprocessing import PREPROCESSINGS, resize
from ldsu.datasets.words import Documents


@dataclass(frozen=True)
class Dataset:
    """A data set, ready for use.

    Attributes
    ----------
    name : str
        Its name in `DATASETS`.
    X : ndarray of float64, shape (n, d)
        Samples, preprocessed; of shape (n, 0) where there are documents instead.
    y : ndarray of int64, shape (n,)
        Labels 0 .. c-1.
    classes : tuple of str
        Names of the classes.
    image_shape : tuple of int or None
        ``X[i].reshape(image_shape)`` is an upright image.
    preprocessing : str
        The step that was applied.
    description, source : str
        What it is, and where it comes from.
    documents : Events, Notes or None
        For `bag_of_words`, which makes X for one split.
    is_test : ndarray of bool, shape (n,), or None
        The publisher's own test rows, where there are some.
    notes : tuple of str
        What the reader had to say: values unlike the usual source's, bad rows.
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


def load(
    name: str, *, preprocessing: str | None = None, data_dir: str | Path | None = None, download: bool = True
) -> Dataset:
    """Load a data set: from `data_dir`, from the folder in ``LDSU_DATA``, from the cache, or from its public address.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    preprocessing : str or None, default=None
        One of ``DATASETS[name].preprocessings``; None takes the first.
    data_dir : path or None, default=None
        Folder to look in first, for any of the files that the data set is published in.
    download : bool, default=True
        Whether to download what is found nowhere. It goes to the cache, `cache_folder`.

    Returns
    -------
    dataset : Dataset
        Samples (or documents), labels and where they come from.

    Raises
    ------
    DatasetError
        If the files are found nowhere, damaged, or another data set's.

    Warns
    -----
    DatasetWarning
        If the labels are as published but the values are not those of the usual source.

    Examples
    --------
    >>> digits = load("digits")
    >>> digits.X.shape, digits.image_shape, digits.classes[:3]
    ((1797, 64), (8, 8), ('0', '1', '2'))
    """
    if name not in DATASETS:
        raise ValueError(f"There is no data set {name!r}. There are {', '.join(DATASETS)}.")
    info = DATASETS[name]
    preprocessing = preprocessing or info.preprocessings[0]
    if preprocessing not in info.preprocessings:
        raise ValueError(f"{name} has no preprocessing {preprocessing!r}. It has {', '.join(info.preprocessings)}.")
    arrays, notes = _read(info, data_dir, download)
    for note in notes:
        warnings.warn(note, DatasetWarning, stacklevel=2)
    step = PREPROCESSINGS[preprocessing]
    rows = slice(None) if step.keep is None else step.keep(arrays.X, arrays.y)
    X, image_shape = arrays.X[rows], arrays.image_shape
    if info.resize_to and image_shape and preprocessing != "none":
        X, image_shape = resize(X, image_shape, info.resize_to), info.resize_to
    X, image_shape = step(X, image_shape)
    return Dataset(
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


def cache_folder() -> Path:
    """Where downloads are kept: ``LDSU_CACHE``, or ``ldsu`` in the user's cache folder of this platform."""
    if chosen := os.environ.get("LDSU_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ldsu"


def datasets() -> list[DatasetInfo]:
    """All data sets, with what is known of each."""
    return list(DATASETS.values())


def _read(info: DatasetInfo, data_dir: str | Path | None, download: bool) -> tuple[Arrays, tuple[str, ...]]:
    if data_dir is not None and not Path(data_dir).is_dir():
        raise DatasetError(f"data_dir is {str(data_dir)!r}, which is not a folder.")
    folders = [Path(folder) for folder in (data_dir, os.environ.get("LDSU_DATA"), cache_folder()) if folder]
    for folder in folders:
        for form in info.forms:
            paths = form.find(folder)
            if paths is not None:
                return _read_form(info, form, paths)
    if not download:
        looked = ", ".join(map(str, folders))
        raise DatasetError(f"{info.title} was not found in {looked}. Put {_wanted(info)} there, or allow the download.")
    return _download(info, cache_folder())


def _wanted(info: DatasetInfo) -> str:
    return " or ".join(" and ".join(file.name for file in form.files) for form in info.forms)


def _download(info: DatasetInfo, folder: Path) -> tuple[Arrays, tuple[str, ...]]:
    """Try the forms that have an address, until one can be fetched and read."""
    failures: list[str] = []
    for form in info.forms:
        if not all(file.urls for file in form.files):
            continue
        try:
            paths = [fetch(file, folder) for file in form.files]
        except DownloadError as error:
            failures += error.failures
            continue
        try:
            return _read_form(info, form, paths)
        except DatasetError as error:
            failures.append(f"{form.files[0].urls[0]} gave what is of no use ({error})")
            for path, file in zip(paths, form.files, strict=True):
                if file.sha256 is None:  # complete, but not what it should be
                    path.unlink(missing_ok=True)
    raise DownloadError.of(info.title, failures, _wanted(info), folder)


def _read_form(info: DatasetInfo, form: Form, paths: list[Path]) -> tuple[Arrays, tuple[str, ...]]:
    where = " and ".join(map(str, paths))
    try:
        arrays: Arrays = form.read(*paths)
    except DAMAGE as error:
        reason = f"the entry {error} is missing or unknown" if isinstance(error, KeyError) else error
        raise DatasetError(f"{where} cannot be read as {info.title}: {reason}. Replace or remove the file.") from error
    arrays = replace(arrays, X=_as_published(arrays.X, info), y=np.asarray(arrays.y, dtype=np.int64))
    sizes = np.bincount(arrays.y) if arrays.y.size and arrays.y.min() >= 0 else np.empty(0)
    if len(arrays.X) != len(arrays.y) or sorted(sizes) != sorted(info.class_sizes):
        raise DatasetError(
            f"{where} is not {info.title}: it has {len(arrays.X)} samples and {len(arrays.y)} labels of {sizes.size} "
            f"classes, not {info.n_samples} of {len(info.class_sizes)} as published. Replace or remove the file."
        )
    if all(info.sha256) and content_sha256(arrays) != info.sha256:
        has = f"{where} has the class sizes of {info.title}, but other values or another order"
        return arrays, (f"{has} than the copy that the documented figures rest on.",)
    return arrays, ()


def content_sha256(arrays: Arrays) -> tuple[str, str]:
    """Checksums of samples (or documents) and labels as bytes in row order, little endian."""
    samples = [arrays.X] if arrays.documents is None else arrays.documents.arrays()
    digests = []
    for parts in (samples, [arrays.y]):
        digest = hashlib.sha256()
        for part in parts:
            digest.update(np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<")).data)
        digests.append(digest.hexdigest())
    return digests[0], digests[1]


def _as_published(X: np.ndarray, info: DatasetInfo) -> np.ndarray:
    """Bring values to the usual scale and type, where that loses nothing but the digits beyond single precision."""
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
    return np.ascontiguousarray(X, dtype=dtype)
