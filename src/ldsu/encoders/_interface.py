"""What every encoder is: a name, a version, a fingerprint, and a function from items to vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

EncoderKind = Literal["text", "image"]
Encode = Callable[[Sequence[Any]], ArrayLike]


class EncoderError(ValueError):
    """An encoder is unknown, is not the expected one, or returned no vectors; the message says what to do."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """Turn texts or images into vectors.

    Parameters
    ----------
    name : str
        What `find_encoder` finds it by.
    kind : {"text", "image"}
        Items are strings, or RGB images of Pillow of any size.
    version : str
        For people; another version with the same fingerprint gives the same vectors.
    fingerprint : str
        Of the weights and what surrounds them: encoders with equal fingerprints give equal vectors. Models store it,
        and refuse an encoder with another one; the cache uses it as a key.
    load : callable
        Called without arguments before the first use; returns the function from a list of items to vectors (n, d).
    batch_size : int, default=32
        Number of items the function is called with.

    Examples
    --------
    >>> lengths = Encoder("lengths", "text", "1", "1", lambda: lambda texts: [[len(text)] for text in texts])
    >>> lengths.encode(["a", "long"])
    array([[1.],
           [4.]], dtype=float32)
    """

    name: str
    kind: EncoderKind
    version: str
    fingerprint: str
    load: Callable[[], Encode]
    batch_size: int = 32

    @cached_property
    def _function(self) -> Encode:
        return self.load()

    def encode(self, items: Sequence[Any]) -> np.ndarray:
        """Vectors of float32, shape (n, d), of a list of texts or images; raises an `EncoderError` for any other."""
        starts = range(0, len(items), self.batch_size)
        parts = [self._checked(list(items[start : start + self.batch_size])) for start in starts]
        return np.concatenate(parts) if parts else np.empty((0, 0), dtype=np.float32)

    def _checked(self, batch: list[Any]) -> np.ndarray:
        vectors = np.asarray(self._function(batch), dtype=np.float32)
        if vectors.ndim != 2 or vectors.shape[0] != len(batch) or not vectors.shape[1]:
            raise EncoderError(
                f"The encoder {self.name!r} returned an array of shape {vectors.shape} for {len(batch)} {self.kind}s. "
                f"It must return one vector for each: ({len(batch)}, d)."
            )
        if not np.isfinite(vectors).all():
            raise EncoderError(f"The encoder {self.name!r} returned NaN or infinity. Use another encoder.")
        return vectors


def sha256_of(*paths: Path) -> str:
    """SHA-256 of the contents of files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()
