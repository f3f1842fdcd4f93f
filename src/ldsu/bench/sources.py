"""Data of an experiment: from the catalogue, a user file or a table."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from ldsu._utils.files import replacing
from ldsu.bench.spec import DataSpec
from ldsu.datasets import DATASETS, Dataset, load
from ldsu.labels import class_counts, encode_labels

LABEL = "class"  # column of a table
MIN_ROWS = 8  # of a class of a table; rows of smaller ones are dropped


@lru_cache(maxsize=4)
def load_data(spec: DataSpec) -> Dataset:
    """The data set of a spec; in a user file, -1 in y marks unlabelled rows."""
    if spec.file is None:
        return load(spec.name, preprocessing=spec.preprocessing)
    return (_read_table if spec.file.suffix == ".csv" else read_data)(spec.file, spec.name)


def size_of(spec: DataSpec) -> tuple[int, int]:
    """Number of rows and classes, from the catalogue if possible."""
    if spec.file is not None:
        dataset = load_data(spec)
        return min(len(dataset.y), spec.rows or len(dataset.y)), len(dataset.classes)
    info = DATASETS[spec.name]
    return spec.rows or info.n_samples, len(info.class_sizes)


def write_data(path: Path, X: np.ndarray, y: np.ndarray, classes: list[str], image_shape: tuple[int, ...]) -> None:
    """Write a file that `load_data` reads; `image_shape` is that of greyscale images, empty for other data."""
    with replacing(path, private=True) as file:
        np.savez_compressed(file, X=X, y=y, classes=np.array(classes, dtype=np.str_), image_shape=np.array(image_shape))


def read_data(path: Path, name: str) -> Dataset:
    """Read a file written by `write_data`; raises a ValueError if it is not valid."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            X, y, classes = (arrays[part] for part in ("X", "y", "classes"))
            shape = tuple(int(side) for side in arrays["image_shape"])
    except FileNotFoundError as error:
        raise ValueError(f"File {path} of data {name!r} not found.") from error
    except Exception as error:  # a damaged archive raises many types
        raise ValueError(f"{path.name} cannot be read as data {name!r}: {error}.") from error
    if X.ndim != 2 or y.shape != X.shape[:1] or y.dtype.kind != "i" or not np.all((y >= -1) & (y < len(classes))):
        raise ValueError(f"{path.name} must hold X (n, d) and y (n,), class numbers below {len(classes)} or -1.")
    return Dataset(
        name=name,
        X=X,
        y=y,
        classes=tuple(str(label) for label in classes),
        image_shape=(shape[0], shape[1]) if len(shape) == 2 else None,
    )


def _read_table(path: Path, name: str) -> Dataset:
    """Read a table as `ldsu fit` does, all of it labelled; rows of rare classes are dropped."""
    from ldsu.tables import prepare, read_table

    if not path.is_file():
        raise ValueError(
            f"Table {name!r} not found: tables/{path.name} is neither in LDSU_DATA nor in ../shared/data. "
            "Set LDSU_DATA to the folder that has it."
        )
    task = prepare(read_table(path), LABEL, encoder="none")
    codes, _ = encode_labels(task.labels, len(task.labels))
    kept = np.flatnonzero((codes >= 0) & (class_counts(codes)[codes] >= MIN_ROWS))
    y, classes = encode_labels(task.labels[kept], kept.size)
    return Dataset(name=name, X=task.X[kept], y=y, classes=tuple(map(str, classes)))
