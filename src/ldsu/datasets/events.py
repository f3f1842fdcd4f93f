"""Events of ICU stays as documents, and readers of the PhysioNet files."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse

from ldsu.datasets.bags import text_array
from ldsu.datasets.formats import Arrays, read_bytes
from ldsu.tables.formats.decoding import open_unpacked

BINS = 5
HOURS, WINDOW_HOURS = 48, 12
WINDOWS = [f", hours {hour}-{hour + WINDOW_HOURS}" for hour in range(0, HOURS, WINDOW_HOURS)]
# Values known on arrival have no time; each value of a code is a separate word.
STATIC = ("Age", "Gender", "Height", "ICUType")
CODES = ("Gender", "ICUType", "MechVent")
UNKNOWABLE = ("Height", "Weight")  # -1 where unknown
MAX_PARAMETERS = 256  # stored as uint8
BLOCK_BYTES = 2**23


@dataclass(frozen=True)
class Events:
    """Timed measurements of hospital stays; a stay without events is allowed."""

    stay: np.ndarray  # int32 (m,): row of the stay that each event belongs to, ascending
    minute: np.ndarray  # int32 (m,): minutes since admission
    parameter: np.ndarray  # uint8 (m,): position in `parameters`
    value: np.ndarray  # float64 (m,): as measured; -1 means "unknown" for values known on arrival
    parameters: tuple[str, ...]  # their names
    n_stays: int

    def __len__(self) -> int:
        return self.n_stays

    def arrays(self) -> list[np.ndarray]:
        """The event columns and the parameter names, for a checksum."""
        return [self.stay, self.minute, self.parameter, self.value, text_array(self.parameters)]

    def __getitem__(self, rows: np.ndarray, /) -> Events:
        """The stays of some rows, in their order."""
        rows = np.arange(self.n_stays)[rows]
        first, last = np.searchsorted(self.stay, rows), np.searchsorted(self.stay, rows, side="right")
        take = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)] or [np.empty(0, np.intp)])
        stay = np.repeat(np.arange(rows.size, dtype=np.int32), last - first)
        return replace(
            self, stay=stay, minute=self.minute[take], parameter=self.parameter[take], value=self.value[take],
            n_stays=rows.size,
        )  # fmt: skip

    def counts(self, train_rows: np.ndarray) -> tuple[scipy.sparse.csr_array, list[str]]:
        """Count words: a word is a parameter, the quantile bin of its value and a 12-hour window.

        Age, Gender, Height and ICUType have no window; Gender, ICUType and MechVent have one word per value instead of
        bins; an unknown height or weight is a separate word. Bins are quintiles of the events of the training stays.
        Returns the count of each word in each stay (n_stays, v), and the words, such as ``"HR from 74, hours 12-24"``.
        """
        in_training = np.zeros(self.n_stays, dtype=bool)
        in_training[train_rows] = True
        learn = in_training[self.stay]
        window = np.minimum(self.minute // (60 * WINDOW_HOURS), len(WINDOWS) - 1)
        word = np.empty(self.stay.size, dtype=np.int64)
        words: list[str] = []
        for code, name in enumerate(self.parameters):
            rows = np.flatnonzero(self.parameter == code)
            values = self.value[rows]
            edges, labels = _bins(name, values[learn[rows]])
            windows = [""] if name in STATIC else WINDOWS
            place = np.searchsorted(edges, values, side="right") * len(windows)
            word[rows] = len(words) + place + (0 if name in STATIC else window[rows])
            words += [f"{name} {label}{when}" for label in labels for when in windows]
        # Repeated entries are summed.
        counts = scipy.sparse.csr_array((np.ones(word.size), (self.stay, word)), shape=(self.n_stays, len(words)))
        return counts, words


def _bins(name: str, values: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Inner edges (b - 1,) and names of the b bins of a parameter, from training values."""
    if name in CODES:
        codes = np.unique(values)
        return codes[1:], [f"{value:g}" for value in codes] or ["any"]
    known = values[values >= 0] if name in UNKNOWABLE else values
    edges = np.unique(np.quantile(known, np.arange(1, BINS) / BINS)) if known.size else np.empty(0)
    names = [f"up to {edges[0]:g}", *(f"from {edge:g}" for edge in edges)] if edges.size else ["any"]
    if name in UNKNOWABLE:
        return np.concatenate([[0.0], edges]), ["unknown", *names]
    return edges, names


def read_icu(path: Path, outcomes: Path) -> Arrays:
    """Read the events of stays, and the table of outcomes.

    Events are one table, ``RecordID,Time,Parameter,Value``, or PhysioNet's set-a: one text file per stay, in a folder
    or an archive (not unpacked to disk).
    """
    is_table = path.is_file() and not (zipfile.is_zipfile(path) or tarfile.is_tarfile(path))
    blocks = _table_blocks(path) if is_table else _record_blocks(path)
    died = _read_outcomes(outcomes)
    rows = {record: row for row, record in enumerate(died)}
    names: dict[bytes, int] = {}
    columns = [_parse_events(block, rows, names) for block in blocks]
    if not columns:
        raise ValueError("it contains no events")
    stay, minute, parameter, value = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    if not np.isfinite(value).all() or minute.min() < 0:
        raise ValueError("it has a value that is not a finite number, or a time before admission")
    alphabetical = sorted(names)
    parameter = np.array([alphabetical.index(name) for name in names], dtype=np.uint8)[parameter]
    order = np.argsort(stay, kind="stable")
    parameters = tuple(name.decode() for name in alphabetical)
    events = Events(stay[order], minute[order], parameter[order], value[order], parameters, len(rows))
    return Arrays(np.empty((len(rows), 0)), np.array(list(died.values()), dtype=np.int64), documents=events)


def _read_outcomes(path: Path) -> dict[bytes, int]:
    """Whether the patient of each record died in hospital."""
    header, *lines = read_bytes(path).replace(b"\r", b"").strip().split(b"\n")
    columns = header.split(b",")
    record, death = columns.index(b"RecordID"), columns.index(b"In-hospital_death")
    cells = (line.split(b",") for line in lines)
    return {fields[record]: int(fields[death]) for fields in cells}


def _table_blocks(path: Path) -> Iterator[bytes]:
    """Whole lines of a table, some megabytes at a time."""
    with open_unpacked(path) as file:
        if not file.readline().startswith(b"RecordID,Time,Parameter,Value"):
            raise ValueError("its first line is not RecordID,Time,Parameter,Value")
        while block := file.read(BLOCK_BYTES):
            yield block + file.readline()


def _record_blocks(path: Path) -> Iterator[bytes]:
    """Record files as lines of a table, each prefixed by the record number."""
    for name, text in sorted(_record_files(path)):
        number = Path(name).stem.encode()
        lines = text.replace(b"\r", b"").strip().split(b"\n")
        kept = [line for line in lines if not line.startswith((b"Time,", b"00:00,RecordID,"))]
        if kept:
            yield b"".join(number + b"," + line + b"\n" for line in kept)


def _record_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the .txt files in a folder, tar or zip archive."""
    if path.is_dir():
        yield from ((file.name, file.read_bytes()) for file in path.glob("*.txt"))
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from ((name, archive.read(name)) for name in archive.namelist() if name.endswith(".txt"))
    else:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".txt") and (file := archive.extractfile(member)):
                    yield member.name, file.read()


def _parse_events(block: bytes, rows: dict[bytes, int], names: dict[bytes, int]) -> tuple[np.ndarray, ...]:
    """Parse lines ``record,hh:mm,parameter,value`` to stay, minute, parameter and value; new `names` are added."""
    fields = block.strip().replace(b"\r", b"").replace(b"\n", b",").split(b",")
    if len(fields) % 4:
        line = next(line for line in block.split(b"\n") if line.count(b",") != 3)
        raise ValueError(f"the line {line.decode(errors='replace')!r} does not have four fields")
    minutes = {time: 60 * int(time[:-3]) + int(time[-2:]) for time in set(fields[1::4])}
    parameters = [names.setdefault(name, len(names)) for name in fields[2::4]]
    if len(names) > MAX_PARAMETERS:
        raise ValueError(f"it has more than {MAX_PARAMETERS} parameters")
    return (
        np.array([rows[record] for record in fields[::4]], dtype=np.int32),
        np.array([minutes[time] for time in fields[1::4]], dtype=np.int32),
        np.array(parameters, dtype=np.uint8),
        np.array(fields[3::4], dtype=np.bytes_).astype(np.float64),
    )
