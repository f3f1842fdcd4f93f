"""The report as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from ldsu.bench.paper import TOLERANCE
from ldsu.bench.report.figures import Figure
from ldsu.bench.report.formatting import NONE, sentence_case, spread_text
from ldsu.bench.report.summary import (
    DUELS,
    METRIC_NAMES,
    METRICS,
    SELECTION_TEXTS,
    SELECTIONS,
    SIGNS,
    Entry,
    Summary,
)


def csv_text(summary: Summary) -> str:
    """One row per data set, number of labels, method and selection."""
    rows = []
    for selection in SELECTIONS:
        maps, accuracies = summary.table("map", selection), summary.table("accuracy", selection)
        for spec, labels in summary.row_keys:
            for method, entry in maps[spec.key, labels].items():
                choice, accuracy = entry.choice, accuracies[spec.key, labels][method]
                row = {
                    "data": spec.key,
                    "title": spec.title,
                    "labels": labels,
                    "method": method,
                    "selection": selection,
                    "splits": len(choice.splits),
                    "settings_tried": len(summary.groups[spec.key, labels, method].settings),
                    "map_mean": _figure(entry.mean),
                    "map_std": _figure(entry.std),
                    "accuracy_mean": _figure(accuracy.mean),
                    "accuracy_std": _figure(accuracy.std),
                    "best_of_row": int(entry.best),
                    "p_against_best": _figure(entry.p_best),
                    "paper_map_mean": entry.paper.mean if entry.paper else "",
                    "paper_map_std": entry.paper.std if entry.paper else "",
                    "difference": _figure(entry.difference),
                    "p_against_paper": _figure(entry.p_paper),
                    "against_paper": entry.against_paper,
                    "chosen_on": " ".join(dict.fromkeys(choice.how)),
                    "params": _json([setting.values for setting in choice.settings]),
                    "map_splits": _json([round(score, 6) for score in choice.map]),
                    "accuracy_splits": _json([round(score, 6) for score in choice.accuracy]),
                }
                rows.append(row)
    return _csv([list(rows[0]), *(row.values() for row in rows)]) if rows else ""


def settings_csv(summary: Summary) -> str:
    """One line per setting: means over the repetitions. Values of C with equal scores share a line."""
    names = ["map_mean", "map_std", "accuracy_mean", "cv_map_mean"]
    rows: list[list[Any]] = [["data", "labels", "method", "params", "C", "splits", *names]]
    for key, group in sorted(summary.groups.items()):
        lines: dict[tuple[str, bytes], tuple[int, list[float]]] = {}
        for number, setting in enumerate(group.settings):
            scores = np.concatenate([group.map[number], group.accuracy[number], group.cv_map[number]])
            lines.setdefault((setting.params, scores.tobytes()), (number, []))[1].append(setting.C)
        for (params, _), (number, penalties) in lines.items():
            scored, folds = np.isfinite(group.map[number]), group.cv_map[number]
            if not scored.any():
                continue
            maps, folds = group.map[number][scored], folds[np.isfinite(folds)]
            figures = [
                maps.mean(),
                maps.std(ddof=1) if maps.size > 1 else math.nan,
                group.accuracy[number][scored].mean(),
                folds.mean() if folds.size else math.nan,
            ]
            C = " ".join(f"{value:g}" for value in sorted(penalties))
            rows.append([*key, params, C, maps.size, *(_figure(figure, ".4f") for figure in figures)])
    return _csv(rows)


def _csv(rows: Iterable[Iterable[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def _figure(value: float, form: str = ".6g") -> str:
    return format(value, form) if math.isfinite(value) else ""


def _json(values: list[Any]) -> str:
    same = all(value == values[0] for value in values) and isinstance(values[0], dict)
    return json.dumps(values[0] if same else values, separators=(",", ":"))


def markdown(summary: Summary, drawn: Sequence[Figure]) -> str:
    """The report as Markdown, with figures as tables."""
    return "\n\n".join(part for part in _markdown_parts(summary, drawn) if part) + "\n"


def _markdown_parts(summary: Summary, drawn: Sequence[Figure]) -> Iterator[str]:
    yield f"# {_md(summary.experiment.title)}"
    yield _md(summary.experiment.description)
    yield from (f"> **Note.** {_md(sentence)}" for sentence in summary.warnings())
    yield "\n".join(f"- {name}: {_md(text)}" for name, text in summary.facts().items())
    for metric, selection in itertools.product(METRICS, SELECTIONS):
        yield f"## {METRIC_NAMES[metric]}, {selection}"
        legend = "Bold: best of the row; ◇: not clearly behind it"
        if metric == "map" and summary.agreement(selection):
            legend += "; in brackets the paper's figure and whether ours is ahead (▲), behind (▼) or neither (≈)"
        yield f"{sentence_case(SELECTION_TEXTS[selection])}. {legend}."
        table = [["data", "labels", *(method.key for method in summary.column_keys)]]
        for spec, labels, entries in summary.lines(metric, selection):
            table.append([spec.title, str(labels), *map(_md_entry, entries)])
        yield md_table(table)
    yield _md(summary.statistics)
    if summary.has_paper:
        yield "## Comparison with the paper"
        if not summary.agreement("oracle"):
            yield "The paper has none of these cells."
    for selection in SELECTIONS:
        if table := summary.agreement_table(selection):
            yield f"### {selection.capitalize()}"
            yield " ".join(_md(sentence) for sentence in summary.agreement_sentences(selection))
            yield md_table(table)
            if far := summary.far_table(selection):
                yield f"Further than {TOLERANCE} from the paper:"
                yield md_table(far)
    if duels := summary.duel_tables("oracle"):
        yield "## LDSU against the others"
        yield f"{DUELS} Oracle."
        yield from (f"**{_md(name)}**\n\n{md_table(table)}" for name, table in duels.items())
    for figure in drawn:
        tables = [panel for panel in figure.panels if panel.table]
        if tables or not figure.panels:
            yield f"## {_md(figure.title)}"
            yield _md(figure.caption)
            yield from (f"**{_md(panel.title)}**\n\n{md_table(panel.table)}" for panel in tables)
    if summary.failures:
        yield "## Failures"
        yield md_table(summary.failure_table())


def md_table(table: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; its first line is the header."""
    header, *rows = table
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_md(cell) for cell in line) + " |" for line in lines)


def _md(text: str) -> str:
    """Escape a text for one line of Markdown without HTML, links or images."""
    return " ".join(re.sub(r"[\\|\[]", r"\\\g<0>", escape(text, quote=False)).splitlines())


def _md_entry(entry: Entry | None) -> str:
    if entry is None:
        return NONE
    mean = f"**{entry.mean:.3f}**" if entry.best else f"{entry.mean:.3f}"
    paper = f" ({entry.paper.mean:.3f} {SIGNS[entry.against_paper]})" if entry.paper else ""
    return f"{mean}{spread_text(entry.std)}{' ◇' if entry.tied else ''}{paper}"


_TEX_NAMES = ("backslash", "asciicircum", "asciitilde", "less", "greater", "bar")
_TEX = str.maketrans(
    {char: rf"\{char}" for char in "{}$&#%_"}
    | {char: rf"\text{name}{{}}" for char, name in zip("\\^~<>|", _TEX_NAMES, strict=True)}
)


def tex(text: str) -> str:
    r"""Escape a text for LaTeX; non-ASCII characters are dropped.

    >>> print(tex("50 % of a_b"))
    50 \% of a\_b
    """
    return text.translate(_TEX).encode("ascii", "ignore").decode()


def latex(summary: Summary) -> str:
    r"""Two tables (oracle, honest) of MAP for ``\input``; plain LaTeX, no package needed."""
    methods = [tex(method.key) for method in summary.column_keys]
    parts = ["% MAP on the test half, mean and deviation over repetitions; the paper's figures in the second line."]
    for selection in SELECTIONS:
        rows = []
        for spec, labels, entries in summary.lines("map", selection):
            rows.append([tex(spec.title), str(labels), *map(_tex_entry, entries)])
            papers = [entry.paper if entry else None for entry in entries]
            if any(papers):
                scores = [rf"\textit{{{p.mean:.3f} $\pm$ {p.std:.3f}}}" if p else "" for p in papers]
                rows.append([r"\textit{paper}", "", *scores])
        header, *lines = (" & ".join(row) + r" \\" for row in [["Data", "Labels", *methods], *rows])
        caption = f"{summary.experiment.title}: MAP, {selection}. {sentence_case(SELECTION_TEXTS[selection])}."
        parts.append(
            "\n".join(
                [
                    r"\begin{table}",
                    r"\centering\scriptsize\setlength{\tabcolsep}{3pt}",
                    rf"\caption{{{tex(caption)}}}",
                    rf"\begin{{tabular}}{{lr{'c' * len(methods)}}}",
                    *(r"\hline", header, r"\hline", *lines, r"\hline"),
                    r"\end{tabular}",
                    r"\end{table}",
                ]
            )
        )
    return "\n\n".join(parts) + "\n"


def _tex_entry(entry: Entry | None) -> str:
    if entry is None:
        return "--"
    mean = rf"\textbf{{{entry.mean:.3f}}}" if entry.best else f"{entry.mean:.3f}"
    return mean + spread_text(entry.std, r" $\pm$ ")
