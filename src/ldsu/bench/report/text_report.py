"""The report as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

import numpy as np

from ldsu.bench.paper import TOLERANCE
from ldsu.bench.report.charts import short
from ldsu.bench.report.figures import Figure
from ldsu.bench.report.summary import MAX_FAILURES, METRIC_NAMES, METRICS, SELECTIONS, Entry, Summary
from ldsu.bench.selection import Choice

SELECTION_TEXTS = {
    "oracle": "parameters with the best mean MAP on the test half: a ceiling, as such papers usually print",
    "honest": "parameters chosen without a test label: by cross-validation on the labelled points where there are "
    "three or more per class and the method has a grid for it, else the method's default",
}
STATISTICS = (
    "Deviations are over repetitions, with n - 1 in the denominator (the paper does not say which it uses). Methods "
    "are compared with the best of their row by paired t-tests over the same splits, corrected for their number "
    "(Holm); with the paper, of which only mean and deviation of five repetitions are known, by Welch's t-test. Clear "
    "means p < 0.05. Three to five repetitions are few: a test over them finds large differences only, and \u201cno "
    "clear difference\u201d does not mean equal. Repetitions share samples, so p-values are, if anything, too small. "
    "Oracle figures are maxima over the settings tried, of which some methods have many more than others; the tests do "
    "not correct for that, nor for the number of comparisons with the paper."
)
SIGNS = {"ahead": "▲", "behind": "▼", "no clear difference": "≈", "": ""}


def when(stamp: float | None) -> str:
    """A time as text, in UTC."""
    return datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%d %H:%M UTC") if stamp else "not finished"


def sentence_case(text: str) -> str:
    """The text with its first letter capitalized."""
    return text[:1].upper() + text[1:]


def facts(summary: Summary) -> list[tuple[str, str]]:
    """Facts about the run as pairs of name and text."""
    experiment = summary.experiment
    cells = (
        f"{summary.done:,}" + (f" of {summary.planned:,}" if summary.planned else "") + f", {summary.failed:,} failed"
    )
    found = [
        ("experiment", experiment.path.name),
        ("cells", cells),
        (
            "protocol",
            f"{experiment.repetitions} repetitions, {experiment.test_fraction:.0%} of the samples unseen, "
            f"seed {experiment.seed}, up to {experiment.folds} folds of cross-validation",
        ),
        ("data", ", ".join(spec.title for spec in experiment.data)),
    ]
    if summary.runs:
        first, last = summary.runs[0], summary.runs[-1]
        ended = max((run["finished_at"] or 0.0 for run in summary.runs), default=0.0)
        ended = max(ended, first["started_at"]) if ended else ended  # the clock may have been adjusted
        count = len(summary.runs)
        found.append(
            ("run", f"{when(first['started_at'])} to {when(ended)}, in {count} part{'s' if count > 1 else ''}")
        )
        versions = {key: value for key, value in last["versions"].items() if key != "platform"}
        found.append(("versions", ", ".join(f"{key} {value}" for key, value in versions.items())))
        machines = list(dict.fromkeys(run["versions"].get("platform", "unknown") for run in summary.runs))
        found.append(("machine", "; ".join(machines)))
    return found


def settings_text(choice: Choice) -> str:
    """The selected parameters: common ones once, the others per split."""
    chosen = [setting.values for setting in choice.settings]
    shared = {name: value for name, value in chosen[0].items() if all(other.get(name) == value for other in chosen)}
    lines = [_settings(shared)] if shared else []
    for split, values in zip(choice.splits, chosen, strict=True):
        varying = {name: value for name, value in values.items() if name not in shared}
        if varying:
            lines.append(f"split {split}: {_settings(varying)}")
    return "\n".join(lines) or "no parameters"


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {short(value)}" for name, value in values.items())


def csv_text(summary: Summary) -> str:
    """One row per data set, number of labels, method and selection."""
    file = io.StringIO()
    writer: Any = None
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
                if writer is None:
                    writer = csv.DictWriter(file, list(row), lineterminator="\n")
                    writer.writeheader()
                writer.writerow(row)
    return file.getvalue()


def settings_csv(summary: Summary) -> str:
    """One line per setting: means over the repetitions. Values of C with equal scores share a line."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = ["map_mean", "map_std", "accuracy_mean", "cv_map_mean"]
    writer.writerow(["data", "labels", "method", "params", "C", "splits", *names])
    for (data, labels, method), group in sorted(summary.groups.items()):
        lines: dict[tuple[str, bytes], tuple[int, list[float]]] = {}
        for number, setting in enumerate(group.settings):
            scores = np.concatenate([group.map[number], group.accuracy[number], group.cv_map[number]])
            lines.setdefault((setting.params, scores.tobytes()), (number, []))[1].append(setting.C)
        for (params, _), (number, penalties) in lines.items():
            scored = np.isfinite(group.map[number])
            if not scored.any():
                continue
            folds = group.cv_map[number][np.isfinite(group.cv_map[number])]
            figures = [
                float(group.map[number][scored].mean()),
                float(group.map[number][scored].std(ddof=1)) if scored.sum() > 1 else math.nan,
                float(group.accuracy[number][scored].mean()),
                float(folds.mean()) if folds.size else math.nan,
            ]
            shown = [f"{figure:.4f}" if math.isfinite(figure) else "" for figure in figures]
            C = " ".join(f"{value:g}" for value in sorted(penalties))
            writer.writerow([data, labels, method, params, C, int(scored.sum()), *shown])
    return file.getvalue()


def _figure(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""


def _json(values: list[Any]) -> str:
    same = all(value == values[0] for value in values) and isinstance(values[0], dict)
    return json.dumps(values[0] if same else values, separators=(",", ":"))


def markdown(summary: Summary, drawn: Sequence[Figure]) -> str:
    """The report as Markdown, with figures as tables."""
    parts = [f"# {_md(summary.experiment.title)}", _md(summary.experiment.description)]
    parts += [f"> **Note.** {_md(sentence)}" for sentence in summary.warnings()]
    parts.append("\n".join(f"- {name}: {_md(text)}" for name, text in facts(summary)))
    for metric, selection in itertools.product(METRICS, SELECTIONS):
        parts.append(f"## {METRIC_NAMES[metric]}, {selection}")
        legend = "Bold: best of the row; ◇: not clearly behind it"
        if metric == "map" and summary.agreement(selection):
            legend += "; in brackets the paper's figure and whether ours is ahead (▲), behind (▼) or neither (≈)"
        parts.append(f"{sentence_case(SELECTION_TEXTS[selection])}. {legend}.")
        table = [["data", "labels", *(method.key for method in summary.column_keys)]]
        for spec, labels, entries in summary.lines(metric, selection):
            table.append([spec.title, str(labels), *(_md_entry(entry) for entry in entries)])
        parts.append(md_table(table))
    parts += [STATISTICS, "## Beside the paper", *_md_agreement(summary)]
    for figure in drawn:
        tables = [panel for panel in figure.panels if panel.table]
        if tables or not figure.panels:
            parts += [f"## {_md(figure.title)}", _md(figure.caption)]
            parts += [f"**{_md(panel.title)}**\n\n{md_table(panel.table)}" for panel in tables]
    if summary.failures:
        parts += ["## Failures", md_table(failure_table(summary))]
    return "\n\n".join(part for part in parts if part) + "\n"


# A table begins with its header, and is empty without rows.


def failure_table(summary: Summary) -> list[list[str]]:
    """The most frequent failures."""
    rows = [[*failure, str(count)] for failure, count in summary.failures.most_common(MAX_FAILURES)]
    return [["data", "method", "error", "cells"], *rows] if rows else []


def agreement_table(summary: Summary, selection: str) -> list[list[str]]:
    """Method, cells within the tolerance, mean difference, and how many are clearly ahead or behind."""
    answers = ("ahead", "no clear difference", "behind")
    rows = [
        [
            agreement.method.key,
            f"{agreement.within} of {len(agreement.cells)}",
            f"{agreement.mean_difference:+.3f}",
            *(str(agreement.count(answer)) for answer in answers),
        ]
        for agreement in summary.agreement(selection)
    ]
    return [["method", f"within {TOLERANCE}", "mean difference", *answers], *rows] if rows else []


def agreement_sentences(summary: Summary, selection: str) -> list[str]:
    """Number of image cells that reach the paper's LDSU, and of cells of the paper's methods that agree."""
    sentences = []
    same = [agreement for agreement in summary.agreement(selection) if agreement.same]
    if same:
        within, cells = sum(a.within for a in same), sum(len(a.cells) for a in same)
        sentences.append(f"Of {cells} cells that the paper has too, {within} are within {TOLERANCE} of its figure.")
    for name, reached, cells in summary.image_cells(selection):
        sentences.append(f"{sentence_case(name)}: at or above the paper's LDSU in {reached} of {cells} image cells.")
    stand_ins = [spec.title for spec in summary.experiment.data if spec.stand_in]
    compared = [spec.key for spec in summary.paper_data]
    others = [d.title for d in summary.experiment.data if d.paper and not d.stand_in and d.key not in compared]
    if stand_ins:
        sentences.append(f"{', '.join(stand_ins)} stands in for the paper's data, which are others: not compared.")
    if others:
        sentences.append(f"Counted once per data set of the paper; not counted: {', '.join(others)}.")
    return sentences


def far_table(summary: Summary, selection: str) -> list[list[str]]:
    """Cells of the paper's methods beyond the tolerance, sorted by distance."""
    far = [
        (-abs(entry.difference), [spec.title, str(labels), agreement.method.key], entry)
        for agreement in summary.agreement(selection)
        if agreement.same
        for spec, labels, entry in agreement.cells
        if abs(entry.difference) > TOLERANCE + 1e-9
    ]
    rows = [
        [*names, f"{entry.mean:.3f}", f"{entry.paper.mean:.3f}", f"{entry.difference:+.3f}"]
        for _, names, entry in sorted(far, key=lambda cell: cell[0])
        if entry.paper
    ]
    return [["data", "labels", "method", "ours", "paper", "difference"], *rows] if rows else []


def duel_table(summary: Summary, selection: str) -> list[list[str]]:
    """LDSU against each other method, counted over rows of the table."""
    rows = [[ours, other, *map(str, answers.values())] for ours, other, answers in summary.duels(selection)]
    return [["method", "against", "ahead", "no clear difference", "behind"], *rows] if rows else []


def _md_agreement(summary: Summary) -> Iterable[str]:
    if not summary.agreement("oracle"):
        yield "The paper has none of these cells."
    for selection in SELECTIONS:
        if table := agreement_table(summary, selection):
            yield f"### {selection.capitalize()}"
            yield " ".join(_md(sentence) for sentence in agreement_sentences(summary, selection))
            yield md_table(table)
            if far := far_table(summary, selection):
                yield f"Further than {TOLERANCE} from the paper:"
                yield md_table(far)
    if duels := duel_table(summary, "oracle"):
        yield "LDSU against the other methods, MAP, oracle, rows of the table:"
        yield md_table(duels)


def md_table(table: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    header, *rows = table
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_md(cell) for cell in line) + " |" for line in lines)


def _md(text: str) -> str:
    """Escape a text for one line of Markdown without HTML, links or images."""
    return " ".join(re.sub(r"[\\|\[]", r"\\\g<0>", escape(text, quote=False)).splitlines())


def _md_entry(entry: Entry | None) -> str:
    if entry is None:
        return "\u2013"
    mean = f"**{entry.mean:.3f}**" if entry.best else f"{entry.mean:.3f}"
    spread = f" ± {entry.std:.3f}" if math.isfinite(entry.std) else ""
    paper = f" ({entry.paper.mean:.3f} {SIGNS[entry.against_paper]})" if entry.paper else ""
    tied = " ◇" if entry.tied else ""
    return f"{mean}{spread}{tied}{paper}"


_TEX_NAMES = ("backslash", "asciicircum", "asciitilde", "less", "greater", "bar")
_TEX = str.maketrans(
    {char: rf"\{char}" for char in "{}$&#%_"}
    | {char: rf"\text{name}{{}}" for char, name in zip("\\^~<>|", _TEX_NAMES, strict=True)}
)


def tex(text: str) -> str:
    r"""Escape a text for LaTeX; non-ASCII characters are dropped.

    Examples
    --------
    >>> from ldsu.bench.report.text_report import tex
    >>> print(tex("50 % of a_b"))
    50 \% of a\_b
    """
    return text.translate(_TEX).encode("ascii", "ignore").decode()


def latex(summary: Summary) -> str:
    r"""Two tables (oracle, honest) of MAP for ``\input``; plain LaTeX, no package needed."""
    methods = summary.column_keys
    parts = ["% MAP on the test half, mean and deviation over repetitions; the paper's figures in the second line."]
    for selection in SELECTIONS:
        text = sentence_case(SELECTION_TEXTS[selection])
        head = " & ".join(["Data", "Labels", *(tex(method.key) for method in methods)])
        lines = [
            r"\begin{table}",
            r"\centering\scriptsize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{tex(summary.experiment.title)}: MAP, {selection}. {tex(text)}.}}",
            rf"\begin{{tabular}}{{lr{'c' * len(methods)}}}",
            r"\hline",
            rf"{head} \\",
            r"\hline",
        ]
        for spec, labels, entries in summary.lines("map", selection):
            lines.append(" & ".join([tex(spec.title), str(labels), *(_tex_entry(entry) for entry in entries)]) + r" \\")
            if any(entry and entry.paper for entry in entries):
                papers = [
                    rf"\textit{{{entry.paper.mean:.3f} $\pm$ {entry.paper.std:.3f}}}" if entry and entry.paper else ""
                    for entry in entries
                ]
                lines.append(" & ".join([r"\textit{paper}", "", *papers]) + r" \\")
        parts.append("\n".join([*lines, r"\hline", r"\end{tabular}", r"\end{table}"]))
    return "\n\n".join(parts) + "\n"


def _tex_entry(entry: Entry | None) -> str:
    if entry is None:
        return "--"
    mean = rf"\textbf{{{entry.mean:.3f}}}" if entry.best else f"{entry.mean:.3f}"
    return mean + (rf" $\pm$ {entry.std:.3f}" if math.isfinite(entry.std) else "")
