"""Answers, and a model that follows them: what the page does and shows, as a plain object without a server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

# Two threads begin with a session. What both import when they first need it is imported before: imports of two threads
# that wait for each other fail.
import sklearn.ensemble
import sklearn.linear_model
import sklearn.neighbors  # noqa: F401

from ldsu._utils.arrays import one_blas_thread
from ldsu.active import ActiveLearner
from ldsu.classifier import LDSUClassifier
from ldsu.io import save_model
from ldsu.methods import LDSU
from ldsu.studio import layout
from ldsu.studio.answers import MARKS, Answers, Entry, class_name, merged
from ldsu.studio.journal import Journal, JournalError, read_journal, require_same_data
from ldsu.studio.samples import Samples
from ldsu.tables import TableModel, read_table
from ldsu.tables.columns import labels_of
from ldsu.tables.writers import write_rows

# Rows that are suggested, those of them on the map, labels to look ahead, and rows that a search finds.
QUEUE, SHOWN, NEXT_LABELS, MAX_FOUND = 60, 12, 10, 100_000
# Of a point without a class, and what else is said of one.
NO_CLASS = 65535
GIVEN, SUGGESTED, MARKED, DOUBTFUL = 1, 2, 4, 8
# A new map is sent if a row moves more than this part of its width.
LEAST_MOVE = 0.005
EXPORTS = {"labels": ".labels.csv", "model": ".labels.ldsu", "predictions": ".labels-predicted.csv"}
# Columns of a labelled table that hold labels: of an export, or the usual names.
LABEL_COLUMNS = ("given", "label", "class")


@dataclass(frozen=True)
class Fitted:
    """What a fit found, replaced as a whole.

    Attributes
    ----------
    codes, probability : ndarrays of shape (n,)
        Predicted class, -1 without a model, and its probability.
    model : LDSUClassifier or None
    labels : ndarray of object, shape (n,) or (0,)
        Labels of the fit.
    queue : tuple of int
        Rows to label next, best first.
    doubtful : tuple of dict
        Labels that the others contradict: "row", "given", "suggested", "probability".
    curve : tuple of (int, float, float, float)
        Number of labels, expected accuracy, and its interval, of the fits so far.
    gain : tuple of float or None
        What the next labels are expected to add to the accuracy, with an interval.
    seconds : float
        Duration of the fit.
    error : str
        Why the last fit failed; the other attributes are of the fit before.
    """

    codes: np.ndarray
    probability: np.ndarray
    model: LDSUClassifier | None = None
    labels: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=object))
    queue: tuple[int, ...] = ()
    doubtful: tuple[dict[str, Any], ...] = ()
    curve: tuple[tuple[int, float, float, float], ...] = ()
    gain: tuple[float, ...] | None = None
    seconds: float = 0.0
    error: str = ""


class Session:
    """Label samples while a model is fitted in the background after each answer.

    Answers are written to the journal, applied and acknowledged at once. Methods may be called from any thread.

    Parameters
    ----------
    samples : Samples
    journal : path-like, optional
        File of the answers; those it has are applied first. Default: answers are in memory only.
    strategy : str, default="auto"
        How rows are suggested, of `ldsu.active.STRATEGIES`.

    Attributes
    ----------
    answers : Answers
    fitted : Fitted
    positions : ndarray of float32, shape (n, 2)
        The map, from -1 to 1.
    revision, map_revision : int
        They grow with every change of anything that is shown, and of the map.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from ldsu.studio import Samples
    >>> with Session(Samples.of_points(load_iris().data)) as session:
    ...     session.label([0, 1], "setosa")
    ...     session.label([50, 51, 100], "another")
    ...     done = session.wait()
    ...     before = session.preview([2, 3, 60], "setosa")
    >>> before["rows"], before["disagree"], before["agreeing"]
    (3, 1, [2, 3])
    """

    def __init__(
        self, samples: Samples, journal: str | os.PathLike[str] | None = None, *, strategy: str = "auto"
    ) -> None:
        self.samples = samples
        n = self.n = samples.table.n_rows
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self.answers = Answers(n)
        for name in sorted({value for value in samples.labels if value is not None}):
            self.answers.codes[samples.labels == name] = self.answers.code(name)
        self.fitted = Fitted(np.full(n, -1), np.zeros(n))
        self.revision = self.map_revision = 1
        self._n_answers, self._n_learned = 1, 0
        self._header = {"checksum": samples.checksum, "rows": n, "source": samples.table.source.name}
        # As `ActiveLearner()`: numbers of labels that were asked for say nothing of class sizes.
        classifier = LDSUClassifier(LDSU(kernel=samples.encoder.kernel), standardize_scores=True)
        self._learner = ActiveLearner(classifier, strategy=strategy)
        components = layout.principal_components(samples.X)
        self._base = self.positions = layout.unit(components[:, :2])
        self.journal = None if journal is None else Journal(journal, self._header)
        if self.journal is not None:
            try:
                curve = _replay(self.answers, self.journal.entries, self.journal.path)
            except BaseException:
                self.journal.close()
                raise
            self.fitted = replace(self.fitted, curve=curve)
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()
        threading.Thread(target=self._draw, args=(components,), daemon=True).start()

    def __repr__(self) -> str:
        given = int((self.answers.codes >= 0).sum())
        return f"<Session: {self.n:,} rows of {self.samples.table.source.name}, {given:,} labelled>"

    # What a person does

    def label(self, rows: Sequence[int], name: str) -> None:
        """Label rows with a class, which is new if its name is."""
        self._act({"do": "label", "rows": self.answers.rows(rows).tolist(), "class": class_name(name)})

    def mark(self, rows: Sequence[int], mark: str) -> None:
        """Say "skip", "unsure" or "none" (of these classes) of rows, which then have no label."""
        self._act({"do": "mark", "rows": self.answers.rows(rows).tolist(), "mark": mark})

    def add_class(self, name: str) -> None:
        """Add a class that no row has yet."""
        with self._changed:
            if class_name(name) not in self.answers.classes:
                self._act({"do": "class", "class": class_name(name)})

    def undo(self) -> str:
        """Undo the last answer that was not undone, and return it in words."""
        with self._changed:
            what = self.answers.history[-1].what if self.answers.history else ""
            self._act({"do": "undo"})
            return what

    def merge(self, path: str | os.PathLike[str]) -> dict[str, int]:
        """Add the labels of another journal of these data, or of a labelled table with as many rows.

        Labels that differ from those here are not taken, but are conflicts until a person labels or marks the row.

        Returns
        -------
        counts : dict of int
            Labels "added" and "agreeing", and "conflicts".
        """
        names = self._labels_of_file(Path(path))
        with self._changed:
            entry, counts = merged(self.answers, names, Path(path).name)
            known = self.answers.conflicts
            new = any(known.get(row, {}).get(entry["from"]) != name for row, name in entry["conflicts"])
            if entry["labels"] or new:
                self._act(entry)
            return counts

    def preview(self, rows: Sequence[int], name: str | None = None) -> dict[str, Any]:
        """What the model says of rows before they get a label.

        Returns
        -------
        counts : dict
            "rows"; "predicted": pairs of class and number of rows, most frequent first. With a name also "disagree":
            the number of rows of which the model predicts another class; "relabelled": of those with another label;
            "agreeing": the rows that are neither.
        """
        chosen = self.answers.rows(rows)
        with self._changed:
            predicted, given, classes = self.fitted.codes[chosen], self.answers.codes[chosen], [*self.answers.classes]
        found, counts = np.unique(predicted[predicted >= 0], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        result: dict[str, Any] = {
            "rows": chosen.size,
            "predicted": [(classes[found[i]], int(counts[i])) for i in order],
        }
        if name is not None:
            code = classes.index(name) if name in classes else -2
            disagrees, relabelled = ((codes >= 0) & (codes != code) for codes in (predicted, given))
            result |= {"disagree": int(disagrees.sum()), "relabelled": int(relabelled.sum())}
            result["agreeing"] = chosen[~(disagrees | relabelled)].tolist()
        return result

    def find(self, text: str) -> list[int]:
        """Rows with a text in their name or columns, unlabelled rows first."""
        rows = self.samples.find(text) if text else np.empty(0, dtype=np.int64)
        with self._changed:
            return rows[np.argsort(self.answers.codes[rows] >= 0, kind="stable")][:MAX_FOUND].tolist()

    def export(self, what: str, path: str | os.PathLike[str]) -> Path:
        """Write a file, after the fit of all answers so far.

        Parameters
        ----------
        what : {"labels", "model", "predictions"}
            "labels": each row with its given label, its mark, the predicted label and probability, and the columns of
            the table. "model": a model file. "predictions": what `ldsu predict` writes with this model.
        path : path-like
            Not that of the data.
        """
        path = Path(path)
        if what not in EXPORTS:
            raise ValueError(f"{what!r} cannot be exported: use one of {', '.join(EXPORTS)}.")
        if path.resolve() in (self.samples.table.source.resolve(), self.samples.shown.source.resolve()):
            raise ValueError(f"{path} is what is being labelled. Choose another name for the output.")
        self.wait()
        with self._changed:
            fitted, model, given = self.fitted, self.model_, self.labels_
            marks, classes = self.answers.marks.copy(), np.array([*self.answers.classes, None], dtype=object)
        if what == "labels":
            computed: dict[str, Any] = {"given": given, "predicted": classes[fitted.codes]}
            computed["probability"] = [None if model is None else p for p in fitted.probability.round(6).tolist()]
            if marks.any():
                computed["mark"] = np.array([None, *MARKS], dtype=object)[marks]
            write_rows(self.samples.shown, computed, self.samples.shown.column_names, path)
        elif model is None:
            raise ValueError(fitted.error or "There is no model yet: label rows of at least two classes.")
        elif what == "model":
            save_model(model, path, about=model.about)
        else:
            write_rows(self.samples.table, model.predict_points(self.samples.X).columns(), (), path)
        return path

    def close(self) -> None:
        """Stop fitting, and close the journal."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._follower.join()
        if self.journal is not None:
            self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # What it shows

    @property
    def labels_(self) -> np.ndarray:
        """Given labels (n,), None if unlabelled."""
        with self._changed:
            return self.answers.labels

    @property
    def model_(self) -> TableModel | None:
        """The model of the last fit; None with labels of fewer than two classes."""
        fitted, samples = self.fitted, self.samples
        if fitted.model is None:
            return None
        names, counts = np.unique([name for name in fitted.labels if name is not None], return_counts=True)
        about = {
            "source": samples.table.source.name,
            "rows": self.n,
            "encoded_columns": int(samples.X.shape[1]),
            "labelled": dict(zip(names.tolist(), counts.tolist(), strict=True)),
            "kernel": samples.encoder.kernel,
            "expected_accuracy": fitted.model.expected_accuracy_,
            "leave_one_out_accuracy": fitted.model.leave_one_out_accuracy_,
        }
        return TableModel(samples.encoder, fitted.model, samples.label, about, samples.unlabelled)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the model knows all answers; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed or self._n_learned == self._n_answers, timeout)

    def wait_for_news(self, revision: int, timeout: float) -> int | None:
        """The revision, as soon as it is not the given one, or after `timeout` seconds; None when the session ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self.revision != revision, timeout)
            return None if self._closed else self.revision

    def row(self, row: int) -> dict[str, Any]:
        """A row as it is shown."""
        (row,) = self.answers.rows([row]).tolist()
        with self._changed:
            predicted, mark = int(self.fitted.codes[row]), int(self.answers.marks[row])
            return {
                "row": row,
                "name": self.samples.name(row),
                "columns": self.samples.columns(row),
                "given": self.answers.label(row),
                "mark": MARKS[mark - 1] if mark else None,
                "predicted": self.answers.classes[predicted] if predicted >= 0 else None,
                "probability": float(self.fitted.probability[row]),
                "conflicts": sorted(self.answers.conflicts.get(row, {}).items()),
            }

    def state(self) -> dict[str, Any]:
        """All that is shown beside the map and single rows."""
        with self._changed:
            fitted, answers, n_classes = self.fitted, self.answers, len(self.answers.classes)
            assigned = self._assigned()
            counts = np.bincount(answers.codes[answers.codes >= 0], minlength=n_classes)
            shares = np.bincount(assigned[assigned >= 0], minlength=n_classes) / self.n
            return {
                "revision": self.revision,
                "map": self.map_revision,
                "source": self.samples.table.source.name,
                "rows": self.n,
                "images": self.samples.has_images,
                "classes": [
                    {"name": name, "labels": int(labels), "share": float(share)}
                    for name, labels, share in zip(answers.classes, counts, shares, strict=True)
                ],
                "labelled": int(counts.sum()),
                "marked": int((answers.marks > 0).sum()),
                "queue": self._queue(),
                "undo": answers.history[-1].what if answers.history else None,
                "fitting": self._n_learned != self._n_answers,
                "seconds": fitted.seconds,
                "model": fitted.model is not None,
                "curve": fitted.curve,
                "gain": fitted.gain,
                "next_labels": NEXT_LABELS,
                "doubtful": self._doubtful(),
                "conflicts": [
                    {"row": row, "given": answers.label(row), "others": sorted(others.items())}
                    for row, others in sorted(answers.conflicts.items())
                ],
                "error": fitted.error,
            }

    def points(self) -> bytes:
        """Class codes (uint16), opacities and flags (uint8) of all points, one array after the other."""
        with self._changed:
            codes, fitted, marks = self._assigned(), self.fitted, self.answers.marks
            given = self.answers.codes >= 0
            flags = GIVEN * given + MARKED * (marks > 0)
            flags[self._queue()[:SHOWN]] |= SUGGESTED
            flags[[item["row"] for item in self._doubtful()]] |= DOUBTFUL
        chance = 0.0 if fitted.model is None else 1 / len(fitted.model.classes_)
        opacity = np.where(given, 1, np.clip((fitted.probability - chance) / (1 - chance), 0, 1))
        colors = np.where(codes < 0, NO_CLASS, codes).astype("<u2")
        return colors.tobytes() + (255 * opacity).astype(np.uint8).tobytes() + flags.astype(np.uint8).tobytes()

    # Behind it

    def _act(self, entry: Entry) -> None:
        """Check an entry, write it to the disk, and apply it."""
        with self._changed:
            if self._closed:
                raise ValueError("The session has ended. Start it again.")
            self.answers.check(entry)
            if self.journal is not None:
                self.journal.append({**entry, "time": round(time.time(), 3)})
            self.answers.apply(entry)
            # Until the next fit, predictions of a class that was undone are none.
            lost = self.fitted.codes >= len(self.answers.classes)
            if lost.any():
                self.fitted = replace(self.fitted, codes=np.where(lost, -1, self.fitted.codes))
            self.revision += 1
            self._n_answers += 1
            self._changed.notify_all()

    def _assigned(self) -> np.ndarray:
        """Codes (n,) of given labels, and of predicted ones elsewhere; -1 where a person says "none of these"."""
        codes = np.where(self.answers.codes >= 0, self.answers.codes, self.fitted.codes)
        codes[self.answers.marks == MARKS.index("none") + 1] = -1
        return codes

    def _queue(self) -> list[int]:
        skip = MARKS.index("skip") + 1
        free = [row for row in self.fitted.queue if self.answers.codes[row] < 0]
        return [row for row in free if not self.answers.marks[row]] or [
            row for row in free if self.answers.marks[row] == skip
        ]

    def _doubtful(self) -> list[dict[str, Any]]:
        """Doubtful labels that were not changed since."""
        return [item for item in self.fitted.doubtful if self.answers.label(item["row"]) == item["given"]]

    def _labels_of_file(self, path: Path) -> np.ndarray:
        """Labels (n,) of another journal or of a table, None if unlabelled."""
        with path.open("rb") as file:
            is_journal = file.read(1) == b"{"
        if is_journal:
            header, entries = read_journal(path)
            require_same_data(header, self._header, path)
            others = Answers(self.n)
            _replay(others, entries, path)
            return others.labels
        table = read_table(path)
        columns = [name for name in LABEL_COLUMNS if name in table.column_names]
        if table.n_rows != self.n or not columns:
            raise ValueError(
                f"{path.name} has {table.n_rows:,} rows, and {'a' if columns else 'no'} column of labels. Merge "
                f"a journal of these data, or a table with {self.n:,} rows and a column {' or '.join(LABEL_COLUMNS)}."
            )
        return labels_of(table, columns[0])[0]

    def _follow(self) -> None:
        """Fit after each answer, or after several that come faster. A fit that fails is tried once more."""
        tried = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._n_learned != self._n_answers)
                if self._closed:
                    return
                n_answers, labels, marks, before = self._n_answers, self.labels_, self.answers.marks.copy(), self.fitted
            failure = ""
            try:
                # The products of a fit that reuses another are small: threads of BLAS would wait for each other, and
                # take the processor from the page (`benchmarks/studio.py`).
                with one_blas_thread() if before.labels.size else nullcontext():
                    self._publish(self._fit(labels, before), before)
                    with self._changed:  # if there are enough suggestions, newer answers are fitted first
                        enough = self._n_answers != n_answers and len(self._queue()) >= SHOWN
                    if not enough:
                        queue = self._suggest(marks)
                        with self._changed:
                            self.fitted = replace(self.fitted, queue=queue)
            except Exception as error:  # it is shown, and the next answer is tried again
                if tried < n_answers:
                    tried = n_answers
                    continue
                failure = str(error) or type(error).__name__
            with self._changed:
                self.fitted = replace(self.fitted, error=failure)
                self._n_learned = n_answers
                self.revision += 1
                self._changed.notify_all()

    def _publish(self, fitted: Fitted, before: Fitted) -> None:
        """Show what a fit found."""
        with self._changed:
            if fitted.curve != before.curve and self.journal is not None and not self._closed:
                with suppress(OSError):  # a full disk: answers say so
                    self.journal.append({"do": "fit", "accuracy": fitted.curve[-1]})
            if fitted.model is not None:  # classes may have been added or undone since
                codes = [self.answers.known_code(str(name)) for name in fitted.model.classes_]
                fitted = replace(fitted, codes=np.array(codes)[fitted.codes])
            self.fitted = fitted
            self._place()
            self.revision += 1
            self._changed.notify_all()

    def _suggest(self, marks: np.ndarray) -> tuple[int, ...]:
        """Rows to label next: skipped ones if there are no others."""
        queue = self._learner.suggest(QUEUE, exclude=np.flatnonzero(marks))
        if len(queue) == 0:
            queue = self._learner.suggest(QUEUE, exclude=np.flatnonzero(marks > MARKS.index("skip") + 1))
        return tuple(int(row) for row in queue)

    def _fit(self, labels: np.ndarray, before: Fitted) -> Fitted:
        """Fit the model to labels (n,), and ask it all that is shown but suggestions.

        `codes` are the places in its `classes_`.
        """
        start = time.perf_counter()
        learner = self._learner
        if not np.array_equal(labels, before.labels):
            learner.fit(self.samples.X, labels)
        fitted = Fitted(np.full(self.n, -1), np.zeros(self.n), queue=before.queue, curve=before.curve)
        model, probabilities = learner.model_, learner.probabilities()
        if model is not None and probabilities is not None:
            best = probabilities.argmax(axis=1)
            n_labels = sum(label is not None for label in labels)
            accuracy = float(model.expected_accuracy_)
            point = (n_labels, *(round(value, 4) for value in (accuracy, *accuracy_interval(accuracy, n_labels))))
            forecast = learner.forecast(NEXT_LABELS)
            fitted = replace(
                fitted,
                codes=best,
                probability=probabilities[np.arange(self.n), best],
                model=model,
                doubtful=tuple(
                    {"row": int(row), "given": str(given), "suggested": str(suggested), "probability": float(p)}
                    for row, given, suggested, p in learner.doubtful_labels()
                ),
                curve=_extended(before.curve, point),
                gain=forecast and tuple(float(value - forecast.accuracy) for value in forecast[1:]),
            )
        seconds = round(time.perf_counter() - start, 3)
        return replace(fitted, labels=labels, seconds=seconds)

    def _draw(self, components: np.ndarray) -> None:
        """Compute the map from neighbors, which takes a while with many rows."""
        base = layout.unit(layout.neighbor_layout(components))
        with self._changed:
            self._base = layout.unit(layout.aligned(base, to=self._base))
            self._place()
            self.revision += 1
            self._changed.notify_all()

    def _place(self) -> None:
        """Draw rows to their class, as close to the last map as it can be turned."""
        drawn = layout.drawn_to_classes(self._base, self._assigned(), len(self.answers.classes))
        drawn = layout.aligned(drawn, to=self.positions)
        if np.abs(drawn - self.positions).max() > 2 * LEAST_MOVE:
            self.positions = drawn
            self.map_revision += 1


def accuracy_interval(accuracy: float, n_labels: int) -> tuple[float, float]:
    """Interval of 95 % for an accuracy that was estimated from so many labels (Wilson's).

    Examples
    --------
    >>> [round(bound, 2) for bound in accuracy_interval(0.9, 20)]
    [0.7, 0.97]
    """
    z2 = 1.96**2 / n_labels
    middle = (accuracy + z2 / 2) / (1 + z2)
    half = (z2 * (accuracy * (1 - accuracy) + z2 / 4)) ** 0.5 / (1 + z2)
    return middle - half, middle + half


def _extended(curve: tuple[Any, ...], point: tuple[Any, ...]) -> tuple[Any, ...]:
    """A curve with one more point; an earlier one with as many labels is replaced, and those with more are dropped."""
    return (*(earlier for earlier in curve if earlier[0] < point[0]), point)


def _replay(answers: Answers, entries: Sequence[Entry], path: Path) -> tuple[Any, ...]:
    """Apply the entries of a journal; returns its curve."""
    curve: tuple[Any, ...] = ()
    for number, entry in enumerate(entries, 2):
        try:
            if entry["do"] == "fit":
                labels, *values = entry["accuracy"]
                curve = _extended(curve, (int(labels), *map(float, values)))
            else:
                answers.check(entry)
                answers.apply(entry)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise JournalError(
                f"{path}, line {number} does not fit these data ({reason}). Restore the file."
            ) from error
    return curve
