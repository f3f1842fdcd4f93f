"""Labels, marks and classes of the rows, changed by entries that can be undone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ldsu.tables.table import count

Entry = Mapping[str, Any]
# What can be said of a row instead of a class. Skipped rows come back when there are no others.
MARKS = ("skip", "unsure", "none")
MAX_CLASSES, MAX_NAME = 1000, 100


class Change(NamedTuple):
    """What an entry changed, so that it can be undone."""

    what: str
    rows: np.ndarray
    codes: np.ndarray
    marks: np.ndarray
    n_classes: int
    conflicts: dict[int, dict[str, str]]


class Answers:
    """Labels of n rows.

    Attributes
    ----------
    classes : list of str
        In the order in which they were first used.
    codes : ndarray of int, shape (n,)
        Class of each row, -1 if unlabelled.
    marks : ndarray of uint8, shape (n,)
        1 + the position in `MARKS`, or 0.
    conflicts : dict
        By row, the labels that merged files give it, by the name of the file.
    history : list of Change
        Of the entries that were not undone.

    Examples
    --------
    >>> answers = Answers(4)
    >>> answers.apply({"do": "label", "rows": [0, 2], "class": "cat"})
    >>> answers.apply({"do": "label", "rows": [2], "class": "dog"})
    >>> answers.labels.tolist(), answers.history[-1].what
    (['cat', None, 'dog', None], '1 row: dog')
    >>> answers.apply({"do": "undo"})
    >>> answers.labels.tolist(), answers.classes
    (['cat', None, 'cat', None], ['cat'])
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.classes: list[str] = []
        self.codes = np.full(n, -1)
        self.marks = np.zeros(n, dtype=np.uint8)
        self.conflicts: dict[int, dict[str, str]] = {}
        self.history: list[Change] = []

    @property
    def labels(self) -> np.ndarray:
        """Labels (n,), None if unlabelled."""
        return np.array([*self.classes, None], dtype=object)[self.codes]

    def label(self, row: int) -> str | None:
        """The label of a row."""
        return self.classes[self.codes[row]] if self.codes[row] >= 0 else None

    def rows(self, rows: Any) -> np.ndarray:
        """Distinct row numbers, in their order, or a ValueError that names what is not one."""
        if not isinstance(rows, (list, tuple, np.ndarray, range)) or len(rows) == 0:
            raise ValueError("Rows must be a list of row numbers that is not empty.")
        for row in rows:
            if isinstance(row, bool) or not isinstance(row, (int, np.integer)) or not 0 <= row < self.n:
                raise ValueError(f"There is no row {row!r}: rows are 0 to {self.n - 1}.")
        return np.array(list(dict.fromkeys(map(int, rows))))

    def check(self, entry: Entry) -> None:
        """Raise a ValueError, KeyError or TypeError if an entry cannot be applied."""
        do = entry["do"]
        if do == "undo":
            if not self.history:
                raise ValueError("There is nothing to undo.")
            return
        parts = _parts(entry)
        for rows, _ in parts:
            self.rows(rows)
        for row, name in entry.get("conflicts", ()):
            self.rows([row]), class_name(name)
        new = {class_name(name) for name in (*(name for _, name in parts), entry.get("class")) if name is not None}
        if len(new | set(self.classes)) > MAX_CLASSES:
            raise ValueError(f"There are {len(self.classes):,} classes already. Use one of them.")

    def apply(self, entry: Entry) -> None:
        """Apply an entry that was checked."""
        if entry["do"] == "undo":
            change = self.history.pop()
            self.codes[change.rows], self.marks[change.rows] = change.codes, change.marks
            del self.classes[change.n_classes :]
            self.conflicts = change.conflicts
            return
        parts = [(self.rows(rows), name) for rows, name in _parts(entry)]
        rows = np.concatenate([np.empty(0, dtype=np.int64), *(some for some, _ in parts)])
        before = self.codes[rows], self.marks[rows], len(self.classes), self.conflicts
        self.history.append(Change(_what(entry), rows, *before))
        for some, name in parts:
            self.codes[some] = -1 if name is None else self.code(class_name(name))
            self.marks[some] = MARKS.index(entry["mark"]) + 1 if entry["do"] == "mark" else 0
        if entry["do"] == "class":
            self.code(class_name(entry["class"]))
        if entry["do"] == "merge":
            self.conflicts = dict(self.conflicts)
            for row, name in entry["conflicts"]:
                self.conflicts[row] = {**self.conflicts.get(row, {}), entry["from"]: name}
        elif self.conflicts:  # the person has decided
            decided = set(rows.tolist())
            self.conflicts = {row: others for row, others in self.conflicts.items() if row not in decided}

    def code(self, name: str) -> int:
        """The code of a class, which is added if it is new."""
        if name not in self.classes:
            self.classes.append(name)
        return self.classes.index(name)

    def known_code(self, name: str) -> int:
        """The code of a class, -1 if there is none of this name."""
        return self.classes.index(name) if name in self.classes else -1


def class_name(name: Any) -> str:
    """A name without blanks around it, or a ValueError.

    Examples
    --------
    >>> class_name(" cat ")
    'cat'
    """
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.strip().isprintable():
        raise ValueError(f"{name!r} is not a name for a class: use 1 to {MAX_NAME} printable characters.")
    return name.strip()


def _parts(entry: Entry) -> list[tuple[Any, str | None]]:
    """Rows and the label that they get."""
    do = entry["do"]
    if do == "label":
        return [(entry["rows"], class_name(entry["class"]))]
    if do == "mark":
        if entry["mark"] not in MARKS:
            raise ValueError(f"{entry['mark']!r} is not a mark: use one of {', '.join(MARKS)}.")
        return [(entry["rows"], None)]
    if do == "merge":
        return [(rows, class_name(name)) for name, rows in entry["labels"].items()]
    if do == "class":
        return []
    raise ValueError(f"{do!r} is not an answer.")


def _what(entry: Entry) -> str:
    """An entry in words."""
    if entry["do"] == "merge":
        return f"labels of {entry['from']}"
    if entry["do"] == "class":
        return f"class {entry['class']}"
    return f"{count(len(entry['rows']), 'row')}: {entry.get('class') or entry['mark']}"


def merged(here: Answers, names: np.ndarray, source: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The entry that adds labels `names` (n,) of a file, None if unlabelled, and counts of what it does.

    Labels that differ from those here are listed as conflicts.
    """
    labels = here.labels
    other, known = (np.array([name is not None for name in given], dtype=bool) for given in (names, labels))
    differs = other & known & (names != labels)
    new = {name: np.flatnonzero(other & ~known & (names == name)).tolist() for name in _distinct(names[other & ~known])}
    conflicts = [[int(row), names[row]] for row in np.flatnonzero(differs)]
    entry = {"do": "merge", "from": source, "labels": new, "conflicts": conflicts}
    counts = {"added": int((other & ~known).sum()), "agreeing": int((other & known & ~differs).sum())}
    return entry, {**counts, "conflicts": len(conflicts)}


def _distinct(names: Iterable[str]) -> list[str]:
    return sorted(set(names))
