"""The report as one self-contained HTML page."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

from ldsu.bench.report.figures import PARTS, Figure, Panel
from ldsu.bench.report.formatting import (
    NONE,
    chosen_text,
    label_count,
    score_text,
    sentence_case,
    spread_text,
    without_zero,
)
from ldsu.bench.report.pictures import FIT_ROWS
from ldsu.bench.report.style import COLORS
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
from ldsu.bench.spec import DataSpec

PAPER_CONTROL = """<div class="buttons" data-metric="map">
<button type="button" data-control="paper" aria-pressed="true">Paper\u2019s figures</button>
</div>"""
PAPER_LEGEND = """<span data-metric="map">second line: the paper\u2019s mean, and ours against it:
<i class="ahead">▲ clearly ahead</i>, <i class="behind">▼ clearly behind</i>, <i>≈ no clear difference</i></span>"""
COLOR_VARIABLES = " ".join(f"--{name}: light-dark({light}, {dark});" for name, (light, dark) in COLORS.items())
# Metric and selection shown first: those of the paper, and for user data the expected result.
PAPER_VIEW, USER_VIEW = ("map", "oracle"), ("accuracy", "honest")


def render_page(
    summary: Summary, drawn: Sequence[Figure], pictures: Sequence[dict[str, Any]], missing: Sequence[str]
) -> str:
    """The whole page; `pictures` and `missing` are the results of `ldsu.bench.report.pictures.draw_pictures`."""
    experiment = summary.experiment
    compared = bool(summary.agreement("oracle"))
    first = USER_VIEW if any(spec.file is not None for spec in experiment.data) else PAPER_VIEW
    drawn = [figure for figure in drawn if figure.panels or summary.has_paper]
    facts = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in summary.facts().items())
    failures = summary.failure_table()
    links: dict[str, str] = {}  # to the first figure of each title without the method, after the comma
    for figure in drawn:
        if figure.panels:
            links.setdefault(figure.title.split(",")[0], _anchor(figure))
    return Template(_part("page.html")).substitute(
        title=escape(experiment.title),
        heading=_prose(experiment.title),
        description=f'<p class="lead">{_prose(experiment.description)}</p>' if experiment.description else "",
        warnings="\n".join(f'<p class="warn" role="note">{_prose(text)}</p>' for text in summary.warnings()),
        facts=f"<dl>{facts}</dl>",
        links=" ".join(f'<a href="#{anchor}">{escape(name)}</a>' for name, anchor in links.items()),
        metric=first[0],
        selection=first[1],
        **{f"pressed_{value}": str(value in first).lower() for value in (*METRICS, *SELECTIONS)},
        tables="\n".join(_scores(summary, metric, selection, first) for metric in METRICS for selection in SELECTIONS),
        paper_control=PAPER_CONTROL if compared else "",
        paper_legend=PAPER_LEGEND if compared else "",
        statistics=escape(summary.statistics),
        against="Comparison with the paper" if summary.has_paper else "LDSU against the others",
        agreement=_agreement(summary, first),
        figures="\n".join(_figure(figure, first) for figure in drawn),
        pictures=_pictures(pictures, missing),
        failures=f'<section id="failures"><h2>Failures</h2>{_table(failures, texts=3)}</section>' if failures else "",
        # Escaped so that "</script" or "<!--<script" in a text cannot end the element.
        data=json.dumps(list(pictures), separators=(",", ":")).replace("<", "\\u003c"),
        css=f":root {{ {COLOR_VARIABLES} }}\n{_part('page.css')}",
        js=_part("page.js"),
    )


def _prose(text: str) -> str:
    """A text for the page; what stands between backticks is code."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escape(text))


def _part(name: str) -> str:
    return (resources.files("ldsu.bench.report") / name).read_text(encoding="utf-8")


def _view(first: tuple[str, str], selection: str, metric: str = "") -> str:
    """Attributes of an element of one selection, and one metric or all: hidden if another is shown first."""
    hidden = "" if selection == first[1] and metric in ("", first[0]) else " hidden"
    return (f'data-metric="{metric}" ' if metric else "") + f'data-selection="{selection}"{hidden}'


def _scores(summary: Summary, metric: str, selection: str, first: tuple[str, str]) -> str:
    """One table: a row per data set and number of labels, a column per method."""
    heads = ["data", "labels", *(method.key for method in summary.column_keys)]
    head = "".join(
        f'<th scope="col" aria-sort="{"none" if i else "ascending"}"><button type="button">{escape(name)}</button></th>'
        for i, name in enumerate(heads)
    )
    rows, before = [], None
    for r, (spec, labels, entries) in enumerate(summary.lines(metric, selection)):
        cells = "".join(_cell(spec, labels, entry, metric, r, c) for c, entry in enumerate(entries))
        starts = ' class="first"' if spec.key != before else ""
        before = spec.key
        rows.append(
            f'<tr{starts} data-order="{r}"><th scope="row" data-v="{r}">{escape(spec.title)}</th>'
            f'<td class="labels" data-v="{labels}">{labels}</td>{cells}</tr>'
        )
    name = f"{METRIC_NAMES[metric]}, {selection}"
    spelled = {"map": "Mean average precision (MAP)"}.get(metric, METRIC_NAMES[metric])
    caption = f"{spelled} on the test half. {sentence_case(selection)}: {SELECTION_TEXTS[selection]}."
    return (
        f'<div {_view(first, selection, metric)}><p class="caption">{escape(caption)}</p>'
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0"><table class="scores" aria-label="{name}">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></div>"
    )


def _cell(spec: DataSpec, labels: int, entry: Entry | None, metric: str, r: int, c: int) -> str:
    if entry is None:
        return f'<td class="none">{NONE}</td>'
    mark = "◆" if entry.best else "◇" if entry.tied else ""
    spread = without_zero(spread_text(entry.std, "±"))
    spread = f" <small>{spread}</small>" if spread else ""
    paper = ""
    if entry.paper:
        answer = entry.against_paper
        style = f' class="{answer}"' if answer in ("ahead", "behind") else ""
        mean, change = without_zero(f"{entry.paper.mean:.3f}"), without_zero(f"{entry.difference:+.3f}")
        paper = f'<span class="paper">{mean} <i{style}>{SIGNS[answer]} {change}</i></span>'
    return (
        f'<td{" class=best" if entry.best else ""} data-v="{entry.mean:.6f}"><button class="cell" '
        f'data-r="{r}" data-c="{c}" data-tip="{escape(_tip(spec, labels, entry, metric))}">'
        f'<span class="m">{mark}</span><span class="mean">{entry.mean:.3f}</span>{spread}{paper}</button></td>'
    )


def _tip(spec: DataSpec, labels: int, entry: Entry, metric: str) -> str:
    choice = entry.choice
    lines = [
        f"{choice.method}, {spec.title}, {label_count(labels)} {spec.drawn}",
        f"{METRIC_NAMES[metric]} {score_text(entry.mean, entry.std)}, {choice.selection}",
    ]
    if entry.best:
        lines.append("best of its row")
    elif math.isfinite(entry.p_best):
        words = "not clearly behind the best" if entry.tied else "clearly behind the best"
        lines.append(f"{words} of its row (p = {entry.p_best:.2g})")
    if entry.paper:
        p = f" (p = {entry.p_paper:.2g})" if math.isfinite(entry.p_paper) else ""
        lines.append(f"paper {score_text(*entry.paper)}: {entry.difference:+.3f}, {entry.against_paper}{p}")
    lines.append("repetitions: " + "  ".join(f"{score:.3f}" for score in getattr(choice, metric)))
    if choice.missing:
        lines.append(f"without a score: split {', '.join(map(str, choice.missing))}")
    return "\n".join([*lines, f"chosen on: {', '.join(dict.fromkeys(choice.how))}", chosen_text(choice)])


def _table(table: Sequence[Sequence[str]], texts: int = 1) -> str:
    """A table with `texts` columns of text followed by columns of numbers; its first line is the header."""
    header, *rows = table

    def line(tag: str, cells: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if i >= texts else ''}>{_prose(cell)}</{tag}>" for i, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(", ".join(header))}"><table><thead><tr>'
        f"{line('th', header)}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _agreement(summary: Summary, first: tuple[str, str]) -> str:
    parts = []
    for selection in SELECTIONS:
        inner, columns = [], []
        if table := summary.agreement_table(selection):
            inner += [f'<p class="big">{escape(text)}</p>' for text in summary.agreement_sentences(selection)]
            columns.append(f"<div><h3>Methods of the paper</h3>{_table(table)}</div>")
        elif summary.has_paper:
            inner.append("<p>The paper has none of these cells.</p>")
        if far := summary.far_table(selection):
            columns.append(
                f"<div><h3>Cells further away</h3><details{' open' if len(far) <= 13 else ''}><summary>{len(far) - 1} "
                f"cells</summary>{_table(far, texts=3)}</details></div>"
            )
        inner.append(f'<div class="columns">{"".join(columns)}</div>' if columns else "")
        inner.append(_duels(summary, selection))
        caption = f"{sentence_case(selection)}: {SELECTION_TEXTS[selection]}."
        parts.append(f'<div {_view(first, selection)}><p class="caption">{escape(caption)}</p>{"".join(inner)}</div>')
    return "".join(parts)


def _duels(summary: Summary, selection: str) -> str:
    """A table for each LDSU method; folded on a page that compares with the paper first."""
    tables = [
        f"<div><h3>{escape(name)}</h3>{_table(table)}</div>" for name, table in summary.duel_tables(selection).items()
    ]
    if not tables:
        return "" if summary.has_paper else "<p>No row of the results has an LDSU method and another one.</p>"
    found = f'<p>{DUELS}</p><div class="columns">{"".join(tables)}</div>'
    return f"<details><summary>LDSU against the others</summary>{found}</details>" if summary.has_paper else found


def _anchor(figure: Figure) -> str:
    return "figure-" + "".join(char if char.isalnum() else "-" for char in figure.key.lower())


def _chart(panel: Panel, wide: int) -> str:
    """The chart of a panel; with a width also a wider one, of which the page shows the one that fits."""
    if not wide:
        return panel.svg
    return f'<div class="wide">{panel.draw(width=wide)}</div><div class="narrow">{panel.svg}</div>'


def _figure(figure: Figure, first: tuple[str, str]) -> str:
    legend = " ".join(
        f'<span class="key" style="--c: var(--{color})">{escape(name)}</span>'
        for color, name in zip(PARTS, figure.legend, strict=False)
    )
    try:
        panels = "".join(
            f"<div {_view(first, panel.view) if panel.view else ''}>{_chart(panel, figure.wide)}</div>"
            for panel in figure.panels
        )
    except ImportError as error:
        panels = f"<p>{_prose(str(error))}. The numbers are in report.md.</p>"
    box = f'<div class="panels{" small" if figure.small else ""}">{panels}</div>' if panels else ""
    anchor = _anchor(figure)
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title"><h2 id="{anchor}-title">{escape(figure.title)}</h2>'
        f'<p class="caption">{_prose(figure.caption)} {legend}</p>{box}</section>'
    )


def _pictures(pictures: Sequence[dict[str, Any]], missing: Sequence[str]) -> str:
    sentences = "".join(f"<p>{_prose(text)}</p>" for text in missing)
    if not pictures:
        return sentences or "<p>No pictures were made.</p>"
    return (
        '<div id="stage"><p class="caption"><label>Data set <select id="picture-choice"></select></label> '
        't-SNE of <span id="picture-count"></span> points of the test half of the first repetition; features fitted '
        f'on at most {FIT_ROWS:,} of the training half, with <span id="picture-labels"></span> and '
        "the parameters the oracle chose. Color is the class; point at one, or move with the arrow keys, to see what "
        "it is.</p>"
        '<noscript><p>Pictures need JavaScript.</p></noscript><div class="planes"></div>'
        '<p id="picked" class="note" aria-live="polite"></p>'
        f'<div class="classes" role="group" aria-label="Show one class"></div></div>{sentences}'
    )
