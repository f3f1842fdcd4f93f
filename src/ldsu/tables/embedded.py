"""Text columns and image files as points: vectors of a pretrained encoder, scaled as one block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from sklearn.preprocessing import normalize

from ldsu.encoders import Encoder, EncoderError, embed, find_encoder, installed_encoder, key_of
from ldsu.tables.images import read_photo
from ldsu.tables.table import Table, TableError

# Texts or image files, None if missing.
Items: TypeAlias = Sequence[str | Path | None] | np.ndarray


@dataclass(frozen=True, eq=False)
class Embedding:
    """Vectors of length 1, relative to their mean, in units of their deviation.

    Length 1, since what is near under an embedding is measured by the cosine: the RBF kernel then sees its distances.
    The deviation makes the mean squared distance of two rows that of two rows in a standardized number column.

    Attributes
    ----------
    encoder, version, fingerprint : str
        Of the encoder, whose weights are not stored.
    center : ndarray of shape (r,)
        Mean of the training rows.
    scale : float
        Root mean squared distance of the training rows from it.
    """

    encoder: str
    version: str
    fingerprint: str
    center: np.ndarray
    scale: float

    @classmethod
    def learn(cls, encoder: Encoder, items: Items, what: str) -> Embedding:
        """Learn mean and deviation from items (n,), None if missing."""
        present = [item for item in items if item]
        if not present:
            raise TableError(f"{what} has no text that could be encoded. Drop it with --ignore, or use --encoder none.")
        units = normalize(_vectors(encoder, present, what).astype(np.float64))
        center = units.mean(axis=0)
        scale = float(np.sqrt(np.mean(((units - center) ** 2).sum(axis=1))))
        return cls(encoder.name, encoder.version, encoder.fingerprint, center, scale if scale > 1e-9 else 1.0)

    def __call__(self, items: Items) -> np.ndarray:
        """Points (n, r) of items (n,); a missing one is a row of zeros, in the middle of the others."""
        points = np.zeros((len(items), self.n_columns))
        rows = [row for row, item in enumerate(items) if item]
        if rows:
            vectors = _vectors(self._find(), [items[row] for row in rows], self.encoder)
            if vectors.shape[1] != self.n_columns:
                raise EncoderError(
                    f"The encoder {self.encoder!r} gives {vectors.shape[1]} columns, but the model was fitted to "
                    f"{self.n_columns}. Fit the model again."
                )
            points[rows] = (normalize(vectors.astype(np.float64)) - self.center) / self.scale
        return points

    @property
    def n_columns(self) -> int:
        """Length of a vector."""
        return int(self.center.size)

    def _find(self) -> Encoder:
        """The encoder of the fit; raises an `EncoderError` for another one of that name."""
        encoder = find_encoder(self.encoder)
        if encoder.fingerprint != self.fingerprint:
            raise EncoderError(
                f"The model was fitted with the encoder {self.encoder!r}, version {self.version} (fingerprint "
                f"{self.fingerprint[:12]}), but here it is version {encoder.version} (fingerprint "
                f"{encoder.fingerprint[:12]}), whose vectors mean something else. Install that version, or fit the "
                "model again."
            )
        return encoder

    def __str__(self) -> str:
        return describe_embedding(self.encoder, self.version)


def describe_embedding(encoder: str, version: str) -> str:
    """How a text column or images are encoded, for people."""
    return f"embedding by {encoder}" + ("" if encoder.endswith(version) else f" {version}")


def resolve_encoders(names: str | Sequence[str]) -> dict[str, Encoder]:
    """Encoders by kind from "auto", "none", or names of at most one for texts and one for images."""
    names = [names] if isinstance(names, str) else list(names)
    if "auto" in names or not names:
        if set(names) - {"auto"}:
            raise ValueError("The encoder auto cannot be combined with others. Name all of them, or none.")
        found = [installed_encoder("text"), installed_encoder("image")]
    else:
        found = [find_encoder(name) for name in names if name != "none"]
    encoders: dict[str, Encoder] = {}
    for encoder in found:
        if encoder is not None and encoders.setdefault(encoder.kind, encoder) is not encoder:
            raise ValueError(
                f"{encoders[encoder.kind].name!r} and {encoder.name!r} are both encoders of {encoder.kind}s. Keep one "
                "of them."
            )
    return encoders


def image_paths(table: Table) -> list[Path]:
    """Image files of the rows of a table that was read from a folder."""
    if table.row_names is None:
        raise TableError(f"{table.source.name} has no image files, but the model was fitted to a folder of images.")
    return [table.source / name for name in table.row_names]


def _vectors(encoder: Encoder, items: Items, what: str) -> np.ndarray:
    """Vectors (n, r) of texts, or of image files."""
    keys = [key_of(item if isinstance(item, Path) else str(item).encode()) for item in items]

    def item_at(row: int) -> object:
        item = items[row]
        return read_photo(item) if isinstance(item, Path) else item

    return embed(encoder, keys, item_at, what)
