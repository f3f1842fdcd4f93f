"""The content of a report, independent of the format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from ldsu.bench import engine
from ldsu.bench.paper import IMAGE_SETS, REPETITIONS, TOLERANCE, PaperScore, is_ldsu, is_papers_method, paper_score
from ldsu.bench.report.formatting import sentence_case, when
from ldsu.bench.selection import Choice, group_rows, holm, honest, oracle, paired_test, verdict, welch_test
from ldsu.bench.sources import load_data, size_of
from ldsu.bench.spec import DataSpec, Experiment, MethodSpec
from ldsu.bench.status import CellGrid, Key
from ldsu.bench.tasks import Task

if TYPE_CHECKING:
    from ldsu.bench.store import Store

SELECTIONS = {"oracle": oracle, "honest": honest}
METRICS = ("map", "accuracy")
METRIC_NAMES = {"map": "MAP", "accuracy": "Accuracy"}
SELECTION_TEXTS = {
    "oracle": "parameters with the best mean MAP on the test half: a ceiling, as such papers usually print",
    "honest": "parameters chosen without a test label: by cross-validation on the labelled points where there are "
    "three or more per class (of some classes, if labels come as the rows do) and the method has a grid for it, "
    "else the method's default",
}
DUELS = (
    "Test MAP of an LDSU method minus that of another, averaged over the rows of the results (one row per data set and "
    "number of labels), and the number of rows in which it is clearly ahead, not clearly different, and clearly behind."
)
FEW_REPETITIONS, FEW_ROWS = 3, 10  # with fewer, deviations mean little
MAX_FAILURES = 30  # maximum number listed
ANSWERS = ("ahead", "no clear difference", "behind")
SIGNS = {"ahead": "▲", "behind": "▼", "no clear difference": "≈", "": ""}

Table = list[list[str]]  # begins with its header, and is empty without rows


@dataclass(frozen=True)
class Entry:
    """One cell of the table."""

    choice: Choice
    mean: float  # of the metric over the splits
    std: float
    paper: PaperScore | None  # MAP only
    p_paper: float  # of Welch's test against the paper's score
    best: bool  # whether it has the highest mean of the row
    p_best: float  # of the paired test against the best, corrected for the number of methods; NaN for the best
    stand_in: bool = False  # whether the data are a substitute for the paper's

    @property
    def difference(self) -> float:
        """Our mean minus the paper's; NaN if it has none."""
        return self.mean - self.paper.mean if self.paper else math.nan

    @property
    def agrees(self) -> bool:
        """Whether our mean and the paper's differ by at most the tolerance."""
        # Differences of numbers with three digits: ignore rounding errors.
        return abs(self.difference) <= TOLERANCE + 1e-9

    @property
    def against_paper(self) -> str:
        """Verdict of the test against the paper's score; empty if it has none on the same data."""
        return verdict(self.difference, self.p_paper) if self.paper and not self.stand_in else ""

    @property
    def tied(self) -> bool:
        """Whether it is not clearly behind the best of its row."""
        return not self.best and not self.p_best < 0.05


@dataclass(frozen=True)
class Agreement:
    """Comparison of one method with the paper over the common cells."""

    method: MethodSpec
    same: bool  # the paper's algorithm, not a variant
    cells: list[tuple[DataSpec, int, Entry]]

    @property
    def within(self) -> int:
        """Cells where the means differ by at most the tolerance."""
        return sum(entry.agrees for _, _, entry in self.cells)

    @property
    def mean_difference(self) -> float:
        """Mean difference to the paper."""
        return sum(entry.difference for _, _, entry in self.cells) / len(self.cells)

    def count(self, answer: str) -> int:
        """Cells with this verdict."""
        return sum(entry.against_paper == answer for _, _, entry in self.cells)


class Summary:
    """The content of the report of an experiment, from the rows of its store."""

    def __init__(self, experiment: Experiment, store: Store) -> None:
        self.experiment = experiment
        self.data = {spec.key: spec for spec in experiment.data}
        self.methods = {method.key: method for method in experiment.methods}
        grid = CellGrid(experiment, engine)
        self.wanted = {key: grid.keys(Task(key, 0)) for key in self.data}
        self.planned = experiment.repetitions * sum(map(len, self.wanted.values()))
        self.done = 0
        self.failures: Counter[tuple[str, str, str]] = Counter()
        self.groups = group_rows(self._read(store))
        self.failed = self.failures.total()
        self.choices = {
            (name, key): choice
            for key, group in self.groups.items()
            for name, select in SELECTIONS.items()
            if (choice := select(group, self.methods[group.method].default)) is not None
        }
        self.runs = store.runs()
        self.costs = [cost for cost in store.costs() if cost["data"] in self.data and cost["method"] in self.methods]
        # Cached per instance, so that the cache is freed with the summary.
        self.table = cache(self._table)

    def _read(self, store: Store) -> Iterator[Mapping[str, Any]]:
        """Yield and count the rows that belong to the current experiment.

        A store may hold others: of an earlier grid, or merged from another store.
        """
        for row in store.rows():
            key: Key = row["labels"], row["method"], row["params"], row["C"], row["fold"]
            if key not in self.wanted.get(row["data"], ()) or row["split"] >= self.experiment.repetitions:
                continue
            self.done += 1
            if row["error"] is not None:
                self.failures[row["data"], row["method"], row["error"]] += 1
            yield row

    @property
    def has_paper(self) -> bool:
        """Whether any data set is one of the paper."""
        return any(spec.paper is not None for spec in self.experiment.data)

    @property
    def statistics(self) -> str:
        """How deviations and tests are computed, and what they do not show."""
        unknown, welch, number = (
            (
                " (the paper does not say which it uses)",
                "; with the paper, of which only mean and deviation of five repetitions are known, by Welch's t-test",
                ", nor for the number of comparisons with the paper",
            )
            if self.has_paper
            else ("", "", "")
        )
        return (
            f"Deviations are over repetitions, with n - 1 in the denominator{unknown}. Methods are compared with the "
            "best of their row by paired t-tests over the same splits, corrected for their number (Holm)"
            f"{welch}. Clear means p < 0.05. Three to five repetitions are few: a test over them finds large "
            "differences only, and \u201cno clear difference\u201d does not mean equal. Repetitions share samples, so "
            "p-values tend to be too small. Oracle figures are maxima over the settings tried, of which some methods "
            f"have many more than others; the tests do not correct for that{number}."
        )

    @cached_property
    def row_keys(self) -> list[tuple[DataSpec, int]]:
        """Rows of the table: data sets and numbers of labels that have a result, in the experiment's order."""
        found = {(key[0], key[1]) for _, key in self.choices}
        return [(spec, n) for spec in self.experiment.data for n in spec.labels if (spec.key, n) in found]

    @cached_property
    def column_keys(self) -> list[MethodSpec]:
        """Columns of the table: methods with a result, in the experiment's order."""
        found = {key[2] for _, key in self.choices}
        return [method for method in self.experiment.methods if method.key in found]

    def lines(self, metric: str, selection: str) -> Iterator[tuple[DataSpec, int, list[Entry | None]]]:
        """The rows of the table: data set, number of labels, and an entry for each column."""
        table = self.table(metric, selection)
        for spec, labels in self.row_keys:
            yield spec, labels, [table[spec.key, labels].get(method.key) for method in self.column_keys]

    def _table(self, metric: str, selection: str) -> dict[tuple[str, int], dict[str, Entry]]:
        """Entries by (data, labels), then method."""
        return {(spec.key, n): self._row(spec, n, metric, selection) for spec, n in self.row_keys}

    def _row(self, spec: DataSpec, labels: int, metric: str, selection: str) -> dict[str, Entry]:
        chosen = {
            method.key: choice
            for method in self.column_keys
            if (choice := self.choices.get((selection, (spec.key, labels, method.key))))
        }
        if not chosen:
            return {}
        # A method with fewer splits than others is not eligible: its mean is not comparable.
        most = max(len(choice.splits) for choice in chosen.values())
        best = max(
            (method for method, choice in chosen.items() if len(choice.splits) == most),
            key=lambda method: chosen[method].mean(metric),
        )
        others = [method for method in chosen if method != best]
        tested = holm([paired_test(chosen[best], chosen[method], metric) for method in others])
        p_best = dict(zip(others, tested, strict=True))
        row = {}
        for method, choice in chosen.items():
            mean, std = choice.mean(metric), choice.std(metric)
            paper = paper_score(spec.paper, labels, self.methods[method].family) if metric == "map" else None
            p_paper = math.nan
            if paper is not None and not spec.stand_in:
                p_paper = welch_test(mean, std, len(choice.splits), *paper, REPETITIONS)
            row[method] = Entry(
                choice, mean, std, paper, p_paper, method == best, p_best.get(method, math.nan), spec.stand_in
            )
        return row

    @cached_property
    def paper_data(self) -> list[DataSpec]:
        """The data set compared with each data set of the paper: the first in the experiment."""
        first: dict[str, DataSpec] = {}
        for spec in self.experiment.data:
            if spec.paper is not None and not spec.stand_in:
                first.setdefault(spec.paper, spec)
        return list(first.values())

    def agreement(self, selection: str) -> list[Agreement]:
        """Comparison with the paper for each method of the paper."""
        table, compared = self.table("map", selection), self.paper_data
        found = []
        for method in self.column_keys:
            cells = [
                (spec, n, entry)
                for spec, n in self.row_keys
                if spec in compared and (entry := table[spec.key, n].get(method.key)) and entry.paper
            ]
            found += [Agreement(method, is_papers_method(method.family), cells)] if cells else []
        return found

    def image_cells(self, selection: str) -> list[tuple[str, int, int]]:
        """For each LDSU method and the best of them: name, image cells at or above the paper's LDSU, image cells."""
        counts: list[tuple[str, int, int]] = []
        better: set[tuple[str, int]] = set()
        for agreement in self.agreement(selection):
            if is_ldsu(agreement.method.family):
                cells = [(spec, n, entry) for spec, n, entry in agreement.cells if spec.paper in IMAGE_SETS]
                reached = {(spec.key, n) for spec, n, entry in cells if entry.difference >= -1e-9}
                counts.append((agreement.method.key, len(reached), len(cells)))
                better |= reached
        # Selecting the better filter per cell uses test labels: only for the oracle.
        if len(counts) > 1 and selection == "oracle":
            counts.append(("the better of these", len(better), max(cells for _, _, cells in counts)))
        return counts

    def duel_tables(self, selection: str) -> dict[str, Table]:
        """For each LDSU method, its MAP against each other method.

        A table has the mean difference, and the number of rows of the results in which the method is clearly ahead,
        without clear difference, and clearly behind.
        """
        tables = {}
        for ours in (method for method in self.column_keys if is_ldsu(method.family)):
            others = [method.key for method in self.column_keys if method.key != ours.key]
            differences: dict[str, list[float]] = {other: [] for other in others}
            counts = {other: dict.fromkeys(ANSWERS, 0) for other in others}
            for row in self.table("map", selection).values():
                rivals = [other for other in others if other in row and ours.key in row]
                tested = holm([paired_test(row[ours.key].choice, row[other].choice) for other in rivals])
                for other, p in zip(rivals, tested, strict=True):
                    differences[other].append(row[ours.key].mean - row[other].mean)
                    counts[other][verdict(differences[other][-1], p)] += 1
            table = [["against", "mean difference", *ANSWERS]]
            for other, found in differences.items():
                if found:
                    mean = f"{sum(found) / len(found):+.3f}"
                    table.append([other, mean, *map(str, counts[other].values())])
            if len(table) > 1:
                tables[ours.key] = table
        return tables

    def warnings(self) -> list[str]:
        """Warnings about missing results, and about deviations that mean little."""
        sentences = []
        if self.planned and self.done < self.planned:
            sentences.append(
                f"The run is not finished: {self.done:,} of {self.planned:,} cells are there. "
                "Oracle means stand for the splits that have every setting so far."
            )
        if self.failed:
            sentences.append(f"{self.failed:,} of {self.done:,} cells failed; their settings are left out.")
        short = sorted(
            {
                f"{self.data[choice.data].title} {choice.labels} {choice.method}"
                for choice in self.choices.values()
                if len(choice.splits) < self.experiment.repetitions
            }
        )
        if short:
            shown = ", ".join(short[:6]) + (f" and {len(short) - 6} more" if len(short) > 6 else "")
            sentences.append(f"Fewer than {self.experiment.repetitions} repetitions have a score for: {shown}.")
        if not self.choices:
            return [*sentences, "There is no result yet: run the experiment first."]
        count = self.experiment.repetitions
        if count < FEW_REPETITIONS:
            deviations = "there is no deviation" if count == 1 else "the deviations and tests mean little"
            sentences.append(f"With {count} repetition{'s' if count > 1 else ''} {deviations}: use at least three.")
        few = {spec.title: rows for spec in self.experiment.data if (rows := self._test_rows(spec)) < FEW_ROWS}
        if few:
            shown = ", ".join(f"{title} ({rows:.0f})" for title, rows in few.items())
            sentences.append(
                f"Fewer than {FEW_ROWS} rows are held out in each repetition of {shown}: the scores are coarse, and "
                "their deviations mean little."
            )
        return sentences

    def _test_rows(self, spec: DataSpec) -> float:
        """Rows of the test half; infinite where the data cannot be read."""
        try:
            # Only labelled rows can be tested on, and a file may have others.
            rows = size_of(spec)[0] if spec.file is None else int((load_data(spec).y >= 0).sum())
        except (ImportError, OSError, ValueError):
            return math.inf
        return math.ceil(self.experiment.test_fraction * min(rows, spec.rows or rows))

    def facts(self) -> dict[str, str]:
        """Facts about the run by name."""
        experiment = self.experiment
        cells = f"{self.done:,} of {self.planned:,}" if self.planned else f"{self.done:,}"
        found = {
            "experiment": experiment.path.name,
            "cells": f"{cells}, {self.failed:,} failed",
            "protocol": f"{experiment.repetitions} repetitions, {experiment.test_fraction:.0%} of the samples unseen, "
            f"seed {experiment.seed}, up to {experiment.folds} folds of cross-validation",
            "data": ", ".join(spec.title for spec in experiment.data),
        }
        if self.runs:
            started, count = self.runs[0]["started_at"], len(self.runs)
            ended = max(run["finished_at"] or 0.0 for run in self.runs)
            ended = max(ended, started) if ended else ended  # the clock may have been adjusted
            found["run"] = f"{when(started)} to {when(ended)}, in {count} part{'s' if count > 1 else ''}"
            versions = self.runs[-1]["versions"]
            found["versions"] = ", ".join(f"{key} {value}" for key, value in versions.items() if key != "platform")
            machines = [run["versions"].get("platform", "unknown") for run in self.runs]
            found["machine"] = "; ".join(dict.fromkeys(machines))
        return found

    def failure_table(self) -> Table:
        """The most frequent failures."""
        rows = [[*failure, str(count)] for failure, count in self.failures.most_common(MAX_FAILURES)]
        return [["data", "method", "error", "cells"], *rows] if rows else []

    def agreement_table(self, selection: str) -> Table:
        """Method, cells within the tolerance, mean difference, and how many are clearly ahead or behind."""
        table = [["method", f"within {TOLERANCE}", "mean difference", *ANSWERS]]
        for agreement in self.agreement(selection):
            answers = [str(agreement.count(answer)) for answer in ANSWERS]
            within = f"{agreement.within} of {len(agreement.cells)}"
            table.append([agreement.method.key, within, f"{agreement.mean_difference:+.3f}", *answers])
        return table if len(table) > 1 else []

    def agreement_sentences(self, selection: str) -> list[str]:
        """Number of image cells that reach the paper's LDSU, and of cells of the paper's methods that agree."""
        sentences = []
        same = [agreement for agreement in self.agreement(selection) if agreement.same]
        if same:
            within, cells = sum(a.within for a in same), sum(len(a.cells) for a in same)
            sentences.append(f"Of {cells} cells that the paper has too, {within} are within {TOLERANCE} of its figure.")
        for name, reached, cells in self.image_cells(selection):
            sentences.append(
                f"{sentence_case(name)}: at or above the paper's LDSU in {reached} of {cells} image cells."
            )
        stand_ins = [spec.title for spec in self.experiment.data if spec.stand_in]
        compared = [spec.key for spec in self.paper_data]
        others = [d.title for d in self.experiment.data if d.paper and not d.stand_in and d.key not in compared]
        if stand_ins:
            sentences.append(f"{', '.join(stand_ins)} stands in for the paper's data, which are others: not compared.")
        if others:
            sentences.append(f"Counted once per data set of the paper; not counted: {', '.join(others)}.")
        return sentences

    def far_table(self, selection: str) -> Table:
        """Cells of the paper's methods beyond the tolerance, sorted by distance."""
        far = []
        for agreement in self.agreement(selection):
            for spec, labels, entry in agreement.cells if agreement.same else ():
                if entry.paper and not entry.agrees:
                    scores = f"{entry.mean:.3f}", f"{entry.paper.mean:.3f}", f"{entry.difference:+.3f}"
                    row = [spec.title, str(labels), agreement.method.key, *scores]
                    far.append((-abs(entry.difference), row))
        rows = [row for _, row in sorted(far, key=lambda line: line[0])]
        return [["data", "labels", "method", "ours", "paper", "difference"], *rows] if rows else []
