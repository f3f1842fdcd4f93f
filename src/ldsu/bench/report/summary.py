"""The content of a report, independent of the format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from ldsu.bench.engine import count_cells, split_tasks
from ldsu.bench.paper import IMAGE_SETS, REPETITIONS, TOLERANCE, PaperScore, is_ldsu, is_papers_method, paper_score
from ldsu.bench.selection import (
    Choice,
    group_rows,
    holm,
    honest,
    oracle,
    paired_test,
    verdict,
    welch_test,
)
from ldsu.bench.spec import DataSpec, Experiment, MethodSpec
from ldsu.bench.tasks import canonical

if TYPE_CHECKING:
    from ldsu.bench.store import Store

SELECTIONS = {"oracle": oracle, "honest": honest}
METRICS = ("map", "accuracy")
METRIC_NAMES = {"map": "MAP", "accuracy": "Accuracy"}
MAX_FAILURES = 30  # maximum number listed


def label_count(labels: int) -> str:
    """A number of labels as text."""
    return f"{labels} label{'s' if labels > 1 else ''}"


def score_text(mean: float, std: float) -> str:
    """A mean with its deviation, if it has one."""
    if not math.isfinite(mean):
        return "\u2013"
    return f"{mean:.3f} ± {std:.3f}" if math.isfinite(std) else f"{mean:.3f}"


@dataclass(frozen=True)
class Entry:
    """One cell of the table.

    Attributes
    ----------
    choice : Choice
    mean, std : float
        Of the metric over the splits.
    paper : PaperScore or None
        The paper's score; MAP only.
    p_paper : float
        p-value of Welch's test against it.
    best : bool
        Whether it has the highest mean of the row.
    p_best : float
        p-value of the paired test against the best of the row, corrected for the number of methods; NaN for the best.
    stand_in : bool
        Whether the data are a substitute for the paper's.
    """

    choice: Choice
    mean: float
    std: float
    paper: PaperScore | None
    p_paper: float
    best: bool
    p_best: float
    stand_in: bool = False

    @property
    def difference(self) -> float:
        """Our mean minus the paper's; NaN if it has none."""
        return self.mean - self.paper.mean if self.paper else math.nan

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
        # Differences of numbers with three digits: ignore rounding errors.
        return sum(abs(entry.difference) <= TOLERANCE + 1e-9 for _, _, entry in self.cells)

    @property
    def mean_difference(self) -> float:
        """Mean difference to the paper."""
        return sum(entry.difference for _, _, entry in self.cells) / len(self.cells)

    def count(self, answer: str) -> int:
        """Cells with this verdict."""
        return sum(entry.against_paper == answer for _, _, entry in self.cells)


class Summary:
    """The content of the report of an experiment.

    Parameters
    ----------
    experiment : Experiment
    store : Store
        Its rows.
    """

    def __init__(self, experiment: Experiment, store: Store) -> None:
        self.experiment = experiment
        self.data = {spec.key: spec for spec in experiment.data}
        self.methods = {method.key: method for method in experiment.methods}
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
        self.planned = sum(count_cells(experiment, task) for task in split_tasks(experiment))
        # Cached per instance, so that the cache is freed with the summary.
        self.table = cache(self._table)

    def _read(self, store: Store) -> Iterator[Mapping[str, Any]]:
        """Yield and count the rows that belong to the current experiment.

        A store may hold others: of an earlier grid, or merged from another store.
        """
        # Settings scored on the test half, and those of cross-validation.
        settings = {
            (spec.key, labels, method.key): [
                {canonical(setting) for setting in settings}
                for settings in (method.settings(labels, spec.key), method.honest_settings(labels, spec.key))
            ]
            for spec in self.experiment.data
            for labels in spec.labels
            for method in self.experiment.methods_for(spec.key)
        }
        penalties = {0.0, *self.experiment.C}
        for row in store.rows():
            known = settings.get((row["data"], row["labels"], row["method"]), [(), ()])[row["fold"] >= 0]
            if row["params"] not in known or row["C"] not in penalties or row["split"] >= self.experiment.repetitions:
                continue
            self.done += 1
            if row["error"] is not None:
                self.failures[row["data"], row["method"], row["error"]] += 1
            yield row

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

    def duels(self, selection: str, metric: str = "map") -> list[tuple[str, str, dict[str, int]]]:
        """For each LDSU method and each other method: number of rows ahead, without clear difference, behind."""
        found = []
        for ours in (method for method in self.column_keys if is_ldsu(method.family)):
            others = [method.key for method in self.column_keys if method.key != ours.key]
            counts = {other: {"ahead": 0, "no clear difference": 0, "behind": 0} for other in others}
            for row in self.table(metric, selection).values():
                rivals = [other for other in others if other in row and ours.key in row]
                pairs = {other: (row[ours.key], row[other]) for other in rivals}
                tested = holm([paired_test(a.choice, b.choice, metric) for a, b in pairs.values()])
                for (other, (a, b)), p in zip(pairs.items(), tested, strict=True):
                    counts[other][verdict(a.mean - b.mean, p)] += 1
            found += [(ours.key, other, answers) for other, answers in counts.items() if sum(answers.values())]
        return found

    def warnings(self) -> list[str]:
        """Warnings about missing results."""
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
            sentences.append("There is no result yet: run the experiment first.")
        return sentences
