"""Catalogue of the data sets: published files and metadata, from catalogue.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ldsu.datasets import events, formats
from ldsu.datasets.download import Remote
from ldsu.datasets.formats import Arrays


@dataclass(frozen=True)
class Form:
    """One of the forms a data set is published in.

    Attributes
    ----------
    files : tuple of Remote
        All files of the data set.
    read : callable
        Reads the files from their paths.
    variant : str
        Why its samples may differ from the reference copy; empty if a download must match it.
    """

    files: tuple[Remote, ...]
    read: Callable[..., Arrays]
    variant: str = ""

    def find(self, folder: Path) -> list[Path] | None:
        """Paths of the files in a folder, or None if one is missing; ignores case and compression."""
        if not folder.is_dir():
            return None if self.files else []
        present = {path.name.lower() + "/" * path.is_dir(): path for path in folder.iterdir()}
        found = [next((present[name] for name in _names(file) if name in present), None) for file in self.files]
        return None if None in found else [path for path in found if path is not None]


def _names(file: Remote) -> Iterator[str]:
    for name in (file.name.lower(), *map(str.lower, file.aliases)):
        yield name
        whole = name.removesuffix(".gz").removesuffix(".bz2")
        for stem in (whole, whole.replace("-idx", ".idx")):  # MNIST, as some tools unpack it
            yield from (stem, f"{stem}.gz", f"{stem}.bz2")


@dataclass(frozen=True)
class DatasetInfo:
    """Metadata of a data set; ``catalogue.toml`` explains the fields.

    Attributes
    ----------
    name, title, description : str
        For display.
    citation, licence, source : str
        Citation, known licence, and page of the publisher.
    class_sizes : tuple of int
        Number of samples per class, as published.
    preprocessings : tuple of str
        Suitable names in `PREPROCESSINGS`; the first is the default.
    forms : tuple of Form
        Forms it can be read from, in order of preference.
    sha256, dtype, classes, scale, resize_to
        What the content is checked against and converted to.
    """

    name: str
    title: str
    description: str
    citation: str
    licence: str
    source: str
    class_sizes: tuple[int, ...]
    preprocessings: tuple[str, ...]
    forms: tuple[Form, ...]
    sha256: tuple[str, str] = ("", "")
    dtype: str = "float64"
    classes: tuple[str, ...] = ()
    scale: tuple[float, float] | None = None
    resize_to: tuple[int, int] | None = None

    @property
    def n_samples(self) -> int:
        """Number of samples, as published."""
        return sum(self.class_sizes)


def _form(
    read: str, files: Sequence[dict[str, Any]], folders: Sequence[str] = (), variant: str = "", **options: Any
) -> Form:
    remotes = (Remote(**{"urls": tuple(f"{folder}/{file['name']}" for folder in folders), **file}) for file in files)
    reader = getattr(events if read == "icu" else formats, f"read_{read}")
    return Form(tuple(remotes), partial(reader, **options) if options else reader, variant)


def _tuples(value: Any) -> Any:
    """Arrays of TOML as tuples, at any depth."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


DATASETS: dict[str, DatasetInfo] = {
    name: DatasetInfo(name=name, **row | {"forms": tuple(_form(**form) for form in row["forms"])})
    for name, row in _tuples(tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text("utf-8"))).items()
}
