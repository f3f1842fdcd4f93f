"""Clinical notes as documents, from a table like MIMIC's NOTEEVENTS: streamed, invalid rows counted and skipped."""

from __future__ import annotations

import re
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from ldsu.datasets._registry import Dataset
from ldsu.datasets.bags import text_array
from ldsu.datasets.formats import DatasetError
from ldsu.datasets.preprocessing import balanced_rows
from ldsu.tables.formats.decoding import open_unpacked

MAX_NOTE_BYTES = 2**20
FLUSH_ENTRIES = 2**22
EXAMPLES = 5
# A quoted field, with quotes doubled, or a plain one; then a comma or the end.
FIELD = re.compile(r'(?:"([^"]*+(?:""[^"]*+)*+)"|([^",]*+))(,|\Z)')
# MIMIC writes [**...**] in place of removed names and dates.
REMOVED = re.compile(r"\[\*\*.*?\*\*\]", re.DOTALL)
WORD = re.compile(r"\b[a-z]{2,30}\b")


@dataclass
class NotesReport:
    """Summary of the rows of a table of notes."""

    rows: int = 0  # without the header and blank lines
    used: int = 0  # rows whose words were counted
    lines_passed_over: int = 0  # between an invalid row and the next line that starts like a row
    problems: Counter[str] = field(default_factory=Counter)  # rows skipped, or read with a correction, by reason
    examples: dict[str, list[int]] = field(default_factory=dict)  # the first line numbers of each reason

    def add(self, problem: str, line: int) -> None:
        """Count a problem."""
        self.problems[problem] += 1
        lines = self.examples.setdefault(problem, [])
        if len(lines) < EXAMPLES:
            lines.append(line)

    def __str__(self) -> str:
        """Summary in one line."""
        parts = [f"{self.used:,} of {self.rows:,} rows used"]
        for problem, count in self.problems.most_common():
            lines = ", ".join(map(str, self.examples[problem]))
            parts.append(f"{problem}: {count:,} (line {lines}{', ...' if count > EXAMPLES else ''})")
        if self.lines_passed_over:
            parts.append(f"lines skipped after invalid rows: {self.lines_passed_over:,}")
        return "; ".join(parts)


@dataclass(frozen=True)
class Notes:
    """Word counts of documents, over all words."""

    table: scipy.sparse.csr_array  # (n, v): count of each word in each document
    words: tuple[str, ...]
    ids: tuple[str, ...]  # of the documents: admissions, or patients
    report: NotesReport

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: np.ndarray, /) -> Notes:
        """Some of the documents, in the order of `rows`."""
        rows = np.arange(len(self))[rows]
        return Notes(self.table[rows], self.words, tuple(self.ids[row] for row in rows), self.report)

    def arrays(self) -> list[np.ndarray]:
        """The counts and the words, for a checksum."""
        return [self.table.indptr, self.table.indices, self.table.data, text_array(self.words)]

    def counts(self, train_rows: np.ndarray) -> tuple[scipy.sparse.csr_array, Sequence[str]]:
        """Word counts (n, v) of all documents and the words, independent of `train_rows`."""
        return self.table, self.words


def load_notes(
    notes_csv: str | Path,
    outcomes_csv: str | Path,
    *,
    id_column: str = "HADM_ID",
    text_column: str = "TEXT",
    category_column: str = "CATEGORY",
    error_column: str = "ISERROR",
    outcome_id_column: str | None = None,
    outcome_column: str = "HOSPITAL_EXPIRE_FLAG",
    exclude_categories: Sequence[str] = ("Discharge summary",),
    balanced: int | None = None,
    max_note_bytes: int = MAX_NOTE_BYTES,
) -> Dataset:
    """Load documents from a table of clinical notes and labels from a table of outcomes.

    All notes of an admission (or another `id_column`) form one document. The table is read as a stream, so that memory
    is used for the distinct words of each document and not for the text. Words are sequences of 2 to 30 letters, in
    lower case, without English stop words and without text in ``[**...**]``. Invalid rows are skipped and counted in
    ``dataset.documents.report``.

    Parameters
    ----------
    notes_csv : path
        Notes, with columns as in MIMIC's NOTEEVENTS; plain or compressed. Case does not matter in column names.
    outcomes_csv : path
        Outcomes, with columns as in MIMIC's ADMISSIONS: 1 is a death. An id with several rows died if any of them is 1.
    id_column, text_column, category_column, error_column : str
        Columns of the notes. The last two may be absent. Rows whose error column is neither empty nor 0 are skipped.
    outcome_id_column, outcome_column : str
        Columns of the outcomes; the first defaults to `id_column`.
    exclude_categories : sequence of str, default=("Discharge summary",)
        Skipped categories. A discharge summary reveals the outcome.
    balanced : int or None, default=None
        Number of documents to sample, half of them per class; None keeps all.
    max_note_bytes : int, default=1 MiB
        Longer rows are treated as having an unclosed quote.

    Returns
    -------
    dataset : Dataset
        With `documents` for `bag_of_words`, labels 0 (survived) and 1 (died), and the report in `notes`.

    Raises
    ------
    DatasetError
        If a file is missing, damaged or without the columns, or if no note belongs to an outcome.
    """
    notes_csv, outcomes_csv = Path(notes_csv), Path(outcomes_csv)
    report = NotesReport()
    died = _read_outcomes(outcomes_csv, outcome_id_column or id_column, outcome_column, max_note_bytes, report)
    rows = {identity: row for row, identity in enumerate(died)}
    excluded = {category.strip().lower() for category in exclude_categories}
    table = _WordTable(len(rows))
    rows_read = _read_rows(notes_csv, (id_column, text_column), (category_column, error_column), max_note_bytes, report)
    for line, (identity, text, category, error) in rows_read:
        identity = _plain(identity)
        if not identity:
            report.add(f"no {id_column}", line)
        elif error.strip() not in ("", "0", "0.0"):
            report.add("marked as an error", line)
        elif category.strip().lower() in excluded:
            report.add("excluded category", line)
        elif identity not in rows:
            report.add("no outcome", line)
        else:
            report.used += 1
            table.add(rows[identity], text)
    return _dataset(table, died, report, balanced, notes_csv)


def _dataset(table: _WordTable, died: dict[str, int], report: NotesReport, n: int | None, path: Path) -> Dataset:
    counts, words = table.finish()
    kept = np.flatnonzero(np.diff(counts.indptr))
    ids = list(died)
    y = np.array(list(died.values()), dtype=np.int64)[kept]
    if kept.size == 0:
        raise DatasetError(f"{path} has no note with words for any of the {len(died)} outcomes: {report}.")
    documents = Notes(counts[kept], tuple(words), tuple(ids[row] for row in kept), report)
    if n is not None:
        if n < 2 or min(np.count_nonzero(y == label) for label in (0, 1)) < n // 2:
            raise ValueError(f"balanced={n}, but there are {np.sum(y == 0)} survivals and {np.sum(y == 1)} deaths.")
        rows = balanced_rows(counts[kept], y, n)
        documents, y = documents[rows], y[rows]
    return Dataset(
        name="notes",
        X=np.empty((len(documents), 0)),
        y=y,
        classes=("survived", "died"),
        description="Clinical notes, one document per admission, and whether the patient died in hospital.",
        source=path.name,
        documents=documents,
        notes=(str(report),),
    )


def _read_outcomes(path: Path, id_column: str, column: str, max_bytes: int, report: NotesReport) -> dict[str, int]:
    died: dict[str, int] = {}
    problems = NotesReport()
    for line, (identity, flag) in _read_rows(path, (id_column, column), (), max_bytes, problems):
        identity, flag = _plain(identity), _plain(flag)
        if not identity or flag not in ("0", "1"):
            problems.add(f"no {id_column}, or {column} is neither 0 nor 1", line)
        else:
            died[identity] = max(died.get(identity, 0), int(flag))
    for problem, count in problems.problems.items():
        report.problems[f"in {path.name}, {problem}"] = count
        report.examples[f"in {path.name}, {problem}"] = problems.examples[problem]
    if not died:
        raise DatasetError(f"{path} has no row with {id_column} and a {column} of 0 or 1.")
    return died


def _plain(number: str) -> str:
    """An id without whitespace and without the ".0" that data frames append to integers."""
    return number.strip().removesuffix(".0")


class _WordTable:
    """Word counts by document, merged periodically: memory grows with distinct words, not with text."""

    def __init__(self, n_documents: int) -> None:
        self.n_documents = n_documents
        self.words: dict[str, int] = {}
        self.total = scipy.sparse.csr_array((n_documents, 0), dtype=np.int32)
        self.entries = (array("i"), array("i"), array("i"))

    def add(self, row: int, text: str) -> None:
        rows, columns, counts = self.entries
        found = Counter(WORD.findall(REMOVED.sub(" ", text).lower()))
        for word, count in found.items():
            if word not in ENGLISH_STOP_WORDS:
                rows.append(row)
                columns.append(self.words.setdefault(word, len(self.words)))
                counts.append(count)
        if len(rows) > FLUSH_ENTRIES:
            self.merge()

    def merge(self) -> None:
        rows, columns, counts = (np.array(entries, dtype=np.int32) for entries in self.entries)
        shape = (self.n_documents, len(self.words))
        self.total.resize(shape)
        self.total = self.total + scipy.sparse.csr_array((counts, (rows, columns)), shape=shape)
        self.entries = (array("i"), array("i"), array("i"))

    def finish(self) -> tuple[scipy.sparse.csr_array, list[str]]:
        self.merge()
        return self.total, list(self.words)


def _read_rows(
    path: Path, needed: Sequence[str], optional: Sequence[str], max_bytes: int, report: NotesReport
) -> Iterator[tuple[int, list[str]]]:
    """Line and texts of some columns of each valid row of a CSV file; "" for missing optional columns."""
    names = (*needed, *optional)
    try:
        with open_unpacked(path) as file:
            lines = _numbered_lines(file, max_bytes)
            _, first = next(lines, (0, b""))
            header = [name.strip().upper() for name in _split(first.decode("utf-8-sig", "replace").strip("\r\n")) or []]
            missing = [name for name in needed if name.upper() not in header]
            if missing:
                found = ", ".join(header[:12])[:200] or "nothing"
                raise DatasetError(f"{path} has no column {missing[0]}: its first line has {found}.")
            position = {name: header.index(name.upper()) for name in names if name.upper() in header}
            record_start = re.compile(rb'(?:"?[\w.-]*"?,){%d}' % (position[needed[0]] + 1))
            for line, fields in _records(lines, record_start, max_bytes, report):
                if len(fields) == len(header):
                    yield line, [fields[position[name]] if name in position else "" for name in names]
                else:
                    report.add(f"{len(header)} fields expected", line)
    except DatasetError:
        raise
    except (EOFError, zlib.error, OSError) as error:
        raise DatasetError(f"{path} cannot be read to its end: {error}.") from error


def _numbered_lines(file: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Lines of a file and their numbers; a line longer than a record may be comes in pieces of the same number."""
    number, is_whole = 0, True
    while data := file.readline(max_bytes + 1):
        number += is_whole
        is_whole = data.endswith(b"\n")
        yield number, data


def _records(
    lines: Iterator[tuple[int, bytes]], record_start: re.Pattern[bytes], max_bytes: int, report: NotesReport
) -> Iterator[tuple[int, list[str]]]:
    """First line and fields of each record; invalid ones are reported.

    An unclosed quote would consume all following rows. A record that cannot be split, or is too long, is therefore
    dropped, and reading resumes at the next line inside it that starts like a record: with as many plain fields as
    there are up to the id. (Python's csv module cannot go back, and its field limit is global.)
    """
    ahead: deque[tuple[int, bytes]] = deque()
    is_lost = False
    while piece := ahead.popleft() if ahead else next(lines, None):
        line, data = piece
        if not data.strip() or (is_lost and not record_start.match(data)):
            report.lines_passed_over += is_lost
            continue
        pieces, size, quotes = [piece], len(data), data.count(b'"')
        while quotes % 2 and size <= max_bytes and (piece := ahead.popleft() if ahead else next(lines, None)):
            pieces.append(piece)
            size, quotes = size + len(piece[1]), quotes + piece[1].count(b'"')
        report.rows += 1
        fields = None
        if size <= max_bytes and quotes % 2 == 0:
            fields = _split(_decoded(b"".join(data for _, data in pieces), line, report))
        is_lost = fields is None
        if fields is None:
            report.add("unclosed or misplaced quote, or too long", line)
            ahead.extendleft(reversed(pieces[1:]))
        else:
            yield line, fields


def _decoded(data: bytes, line: int, report: NotesReport) -> str:
    if b"\0" in data:
        report.add("NUL bytes, read as blanks", line)
        data = data.replace(b"\0", b" ")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        report.add("bytes that are not UTF-8, read as blanks", line)
        text = data.decode(errors="replace").replace("\N{REPLACEMENT CHARACTER}", " ")
    return text.rstrip("\r\n")


def _split(record: str) -> list[str] | None:
    """Fields of a record, or None if quotes do not enclose whole fields.

    Examples
    --------
    >>> _split('1,"a ""b"", c",')
    ['1', 'a "b", c', '']
    """
    fields, position = [], 0
    while match := FIELD.match(record, position):
        quoted, plain, end = match.groups()
        fields.append(plain if quoted is None else quoted.replace('""', '"'))
        if not end:
            return fields
        position = match.end()
    return None
