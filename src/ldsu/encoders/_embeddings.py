"""Vectors of texts and images, computed in batches and kept on disk."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ldsu._utils.files import cache_folder
from ldsu._utils.memory import require_memory
from ldsu._utils.stages import announce, format_duration
from ldsu.encoders._interface import Encoder, EncoderError, sha256_of

# Part of each key: another way to prepare images or to store vectors needs another number.
FORM = 1
# Seconds to wait for another process that writes, and keys per query (SQLite's limit is 999).
WAIT, KEYS = 60, 900
# Batches are written together after this many seconds: a killed process loses no more.
WRITE_SECONDS = 5.0
# What could not be written, for the rest of the process.
_unwritten: dict[Path, dict[bytes, np.ndarray]] = {}


class EmbeddingCache:
    """Vectors of one encoder in an SQLite file, readable only by its owner; any number of processes may share it.

    A vector is found by the SHA-256 of the item, and has a checksum: what is damaged is not found, and computed again.
    Without a writable folder vectors are kept in memory.

    Parameters
    ----------
    encoder : Encoder
    folder : Path, optional
        Default: ``embeddings`` in the cache folder (``LDSU_CACHE``).
    """

    def __init__(self, encoder: Encoder, folder: Path | None = None) -> None:
        identity = repr((FORM, encoder.name, encoder.fingerprint)).encode()
        folder = cache_folder() / "embeddings" if folder is None else folder
        self.path = folder / f"{hashlib.sha256(identity).hexdigest()[:32]}.sqlite"

    def find(self, keys: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """The vectors that are there, by key."""
        wanted = list(dict.fromkeys(keys))
        kept = _unwritten.get(self.path, {})
        found = {key: kept[key] for key in wanted if key in kept}
        if not self.path.is_file():
            return found
        try:
            with closing(self._connect()) as connection:
                for start in range(0, len(wanted), KEYS):
                    some = wanted[start : start + KEYS]
                    query = f"SELECT key, checksum, vector FROM vectors WHERE key IN ({','.join('?' * len(some))})"
                    for key, checksum, vector in connection.execute(query, some):
                        if isinstance(vector, bytes) and len(vector) % 4 == 0 and zlib.crc32(vector, 1) == checksum:
                            found[key] = np.frombuffer(vector, dtype="<f4")
        except sqlite3.OperationalError:  # busy or unreadable
            return found
        except sqlite3.DatabaseError:  # not a database
            self._remove()
        return found

    def store(self, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        """Store vectors (n, d), all or none of them; in memory if the file cannot be written."""
        rows = [(key, zlib.crc32(data, 1), data) for key, data in zip(keys, map(_bytes, vectors), strict=True)]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            self._insert(rows)
        except (OSError, sqlite3.DatabaseError):
            _unwritten.setdefault(self.path, {}).update(zip(keys, vectors, strict=True))

    def _insert(self, rows: list[tuple[bytes, int, bytes]]) -> None:
        with closing(self._connect()) as connection, connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, checksum INT, vector BLOB) WITHOUT ROWID"
            )
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=WAIT)

    def _remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()


def _bytes(vector: np.ndarray) -> bytes:
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def key_of(content: bytes | Path) -> bytes:
    """Key of a text as bytes, or of a file."""
    if isinstance(content, Path):
        return bytes.fromhex(sha256_of(content))
    return hashlib.sha256(content).digest()


def embed(
    encoder: Encoder,
    keys: Sequence[bytes],
    items: Callable[[int], Any],
    what: str = "",
    cache: EmbeddingCache | None = None,
) -> np.ndarray:
    """Vectors (n, d) of items, from the cache where it has them; announces progress and the time left.

    Parameters
    ----------
    encoder : Encoder
    keys : sequence of bytes
        SHA-256 of what each item is read from (`key_of`): equal items are encoded once.
    items : callable
        Returns the item at a position, and is called only for what is not in the cache.
    what : str
        Name of the items in messages.
    cache : EmbeddingCache, optional
        Default: the cache of the encoder in the cache folder.

    Returns
    -------
    vectors : ndarray of float32, shape (n, d)
    """
    cache = EmbeddingCache(encoder) if cache is None else cache
    known = cache.find(keys)
    missing = list({key: row for row, key in enumerate(keys) if key not in known}.values())
    if encoder.kind == "text":
        # Texts of similar length go together, because short ones are padded; the longest first, so that the time left
        # is not underestimated.
        missing.sort(key=lambda row: -len(items(row)))
    start = written = time.perf_counter()
    waiting: list[tuple[list[bytes], np.ndarray]] = []
    try:
        for done in range(0, len(missing), encoder.batch_size):
            rows = missing[done : done + encoder.batch_size]
            left = ""
            if done:
                seconds = (time.perf_counter() - start) / done * (len(missing) - done)
                left = f", about {format_duration(seconds)} left"
            announce(f"{what or encoder.kind} by {encoder.name}: {done:,} of {len(missing):,}{left}")
            vectors = encoder.encode([items(row) for row in rows])
            batch = [keys[row] for row in rows]
            waiting.append((batch, vectors))
            known.update(zip(batch, vectors, strict=True))
            if time.perf_counter() - written > WRITE_SECONDS:
                _write(cache, waiting)
                written = time.perf_counter()
    finally:  # an interrupted run keeps what it has
        _write(cache, waiting)
    sizes = {vector.size for vector in known.values()}
    if len(sizes) > 1:
        raise EncoderError(
            f"The encoder {encoder.name!r} gives vectors of different lengths with one fingerprint: "
            f"{', '.join(map(str, sorted(sizes)))}. Change its fingerprint whenever its vectors change."
        )
    d = max(sizes, default=0)
    require_memory(
        12 * len(keys) * d, f"{len(keys):,} vectors of {d} numbers", "Use fewer rows, or a machine with more memory."
    )
    return np.array([known[key] for key in keys], dtype=np.float32).reshape(len(keys), d)


def _write(cache: EmbeddingCache, waiting: list[tuple[list[bytes], np.ndarray]]) -> None:
    if waiting:
        cache.store([key for batch, _ in waiting for key in batch], np.concatenate([vectors for _, vectors in waiting]))
        waiting.clear()
