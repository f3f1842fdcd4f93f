"""The figures of a report: sweeps, heat maps, learning curves and costs, drawn from the available rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from ldsu.bench.paper import is_ldsu, is_papers_method, paper_score
from ldsu.bench.report.charts import Bar, Point, Series, bar_chart, heat_map, line_chart
from ldsu.bench.report.formatting import label_count, memory, score_text, seconds, settings_text, short
from ldsu.bench.report.style import SERIES
from ldsu.bench.report.summary import SELECTIONS, Summary, Table
from ldsu.bench.selection import sweep, sweep_pair
from ldsu.bench.spec import DataSpec, MethodSpec
from ldsu.bench.tasks import STAGES

WIDE = {1: 1080, 2: 580}  # width of a chart by the number of panels in a row
PARTS = ("s1", "sand", "s8")  # colors of the parts of a bar


@dataclass(frozen=True)
class Panel:
    """One chart and its table, header first. `view` is the selection it belongs to, or empty for all."""

    title: str
    draw: Callable[..., str]  # takes the width in pixels, unless the figure is small
    table: Table = field(default_factory=list)
    view: str = ""

    @cached_property
    def svg(self) -> str:
        """The chart; raises an ImportError without matplotlib."""
        return self.draw()


@dataclass(frozen=True)
class Figure:
    """Charts under one heading; without panels the caption gives the reason."""

    key: str
    title: str
    caption: str
    panels: list[Panel] = field(default_factory=list)
    legend: tuple[str, ...] = ()  # names of the parts of a bar
    small: bool = False  # small panels

    @property
    def wide(self) -> int:
        """Width of the charts of one or two panels on a wide page; 0 if the usual width fills it."""
        views = {panel.view for panel in self.panels}
        side_by_side = max((sum(panel.view == view for panel in self.panels) for view in views), default=0)
        return 0 if self.small else WIDE.get(side_by_side, 0)


def draw_figures(summary: Summary) -> list[Figure]:
    """All figures, in the order of the report."""
    return [
        *sweep_figures(
            summary,
            "n_components",
            "Features kept (r)",
            "share of the features kept",
            paper="The paper's figure 1. There, COIL-20 stands at 0.860 with all features and peaks at 0.867 with 70 % "
            "of them; labels per class and C are not given.",
        ),
        *sweep_figures(
            summary,
            "lam",
            "Weight of the local graph (lambda)",
            "lambda, logarithmic",
            "With one label per class there is no same-class graph for lambda to weigh against, and it is not swept.",
            paper="The paper's figure 2.",
            log=True,
        ),
        *pair_figures(summary, "theta", "clique_size", "Clique ridge and clique size (theta x k)", ("theta", "k")),
        *sweep_figures(
            summary,
            "strength",
            "Strength of the smooth filter",
            "strength, logarithmic",
            "The filter is 1 / (1 + strength mu) instead of a cut.",
            log=True,
        ),
        learning_curves(summary),
        cost_figure(summary),
        stage_figure(summary),
    ]


def _ldsu_methods(summary: Summary, *parameters: str) -> list[MethodSpec]:
    """LDSU methods whose rows have at least two values of each parameter, the paper's method first."""
    varied = {
        key[2] for key, group in summary.groups.items() if all(len(group.values(name)) > 1 for name in parameters)
    }
    found = [method for method in summary.column_keys if is_ldsu(method.family) and method.key in varied]
    return sorted(found, key=lambda method: method.family != "LDSU truncate")


def _number(value: Any) -> float | None:
    """Position of a value on an axis: "all" features are a fraction of 1; None if it has no position."""
    if value is None:
        return 1.0
    return float(value) if isinstance(value, int | float) else None


def sweep_figures(
    summary: Summary,
    parameter: str,
    title: str,
    x_label: str,
    remark: str = "",
    *,
    paper: str = "",
    log: bool = False,
) -> list[Figure]:
    """Test MAP against one parameter: one figure per LDSU method, a panel per data set, a line per number of labels."""
    made = []
    for method in _ldsu_methods(summary, parameter):
        panels = []
        for spec in summary.experiment.data:
            series, table = _sweep(summary, spec, method, parameter)
            draw = partial(line_chart, spec.title, series, x_label=x_label, y_label="MAP", log=log)
            panels += [Panel(spec.title, draw, table)] if series else []
        defaults = settings_text({name: value for name, value in method.default.items() if name != parameter})
        caption = (
            f"{method.key}: mean MAP on the test half. Solid: the best over the other parameters, among those "
            f"tried with every value; dashed: the others at their defaults ({defaults}). {remark} "
        ) + (paper if summary.has_paper and is_papers_method(method.family) else "")
        made.append(Figure(f"{parameter} {method.key}", f"{title}, {method.key}", caption.strip(), panels))
    return made or [Figure(parameter, title, f"No sweep: the rows have fewer than two values of {parameter}.")]


def _sweep(summary: Summary, spec: DataSpec, method: MethodSpec, parameter: str) -> tuple[list[Series], Table]:
    """Two lines for each number of labels (others at their defaults, best over the others), and the table."""
    series, table = [], [["labels", parameter, "best over the others", "others at default"]]
    for order, labels in enumerate(spec.labels):
        group = summary.groups.get((spec.key, labels, method.key))
        points = sweep(group, parameter, method.default) if group else []
        points = [point for point in points if _number(point.value) is not None and math.isfinite(point.best)]
        if len(points) < 2:
            continue
        where, color = f"{spec.title}, {label_count(labels)} {spec.drawn}", f"o{min(order, 4) + 1}"
        lines: dict[str, list[Point]] = {"others at their defaults": [], "best over the others": []}
        for point in points:
            x, value = _number(point.value) or 0.0, short(point.value)
            scores = (point.default, point.default_std), (point.best, point.best_std)
            for (how, marks), (mean, std) in zip(lines.items(), scores, strict=True):
                tip = f"{where}\n{parameter} = {value}: {score_text(mean, std)}\n{how}"
                if math.isfinite(mean):
                    marks.append(Point(x, mean, std if marks is lines["best over the others"] else math.nan, tip))
            table.append([str(labels), value, score_text(*scores[1]), score_text(*scores[0])])
        default, best = lines.values()
        series += [Series("", default, color, dashed=True)] if default else []
        series.append(Series(label_count(labels), best, color))
    return series, table


def pair_figures(summary: Summary, first: str, second: str, title: str, names: tuple[str, str]) -> list[Figure]:
    """Test MAP for each pair of values of two parameters, a panel per data set and number of labels."""
    made = []
    for method in _ldsu_methods(summary, first, second):
        keys = [(spec, labels) for spec in summary.experiment.data for labels in spec.labels]
        panels = []
        for spec, labels in keys:
            group = summary.groups.get((spec.key, labels, method.key))
            rows, columns, best = sweep_pair(group, first, second) if group else ([], [], np.empty((0, 0)))
            if len(rows) < 2 or len(columns) < 2 or not np.isfinite(best).any():
                continue
            where = f"{spec.title}, {label_count(labels)}"
            row_names, column_names = [short(value) for value in rows], [short(value) for value in columns]
            draw = partial(heat_map, where, row_names, column_names, best, row_label=names[0], column_label=names[1])
            table = [[f"{names[0]} \\ {names[1]}", *column_names]]
            for name, line in zip(row_names, best.tolist(), strict=True):
                table.append([name, *map(score_text, line)])
            panels.append(Panel(where, draw, table))
        caption = (
            f"{method.key}: mean MAP on the test half, best over the other parameters that were tried with every "
            "pair; the stronger the color the higher, each panel on its own scale, the best pair framed."
        ) + (" The paper finds no sensitivity to theta, and k best at 3 or 5." if summary.has_paper else "")
        made.append(Figure(f"{first} {second} {method.key}", f"{title}, {method.key}", caption, panels, small=True))
    reason = f"No map: the rows do not vary both {first} and {second}."
    return made or [Figure(f"{first} {second}", title, reason)]


def learning_curves(summary: Summary) -> Figure:
    """MAP against the number of labels for all methods, a panel per data set and selection."""
    # LDSU methods first, in the first colors.
    methods = sorted(summary.column_keys, key=lambda method: not is_ldsu(method.family))
    colors = {method.key: SERIES[i % len(SERIES)] for i, method in enumerate(methods)}
    panels = []
    for selection in SELECTIONS:
        table = summary.table("map", selection)
        for spec in summary.experiment.data:
            series = []
            for method in summary.column_keys:
                entries = [(n, table.get((spec.key, n), {}).get(method.key)) for n in spec.labels]
                scores = {n: (entry.mean, entry.std) for n, entry in entries if entry is not None}
                marks = _curve(spec, method.key, scores, f" ({selection})")
                series += [Series(method.key, marks, colors[method.key])] if marks else []
            if max((len(line.points) for line in series), default=0) < 2:
                continue
            papers = {n: score for n in spec.labels if (score := paper_score(spec.paper, n, "LDSU"))}
            marks = [mark._replace(spread=math.nan) for mark in _curve(spec, "LDSU in the paper", papers)]
            series += [Series("paper's LDSU", marks, "soft", dashed=True)] if len(marks) > 1 else []
            x_label = f"labels {spec.drawn}, logarithmic"
            draw = partial(line_chart, spec.title, series, x_label=x_label, y_label="MAP", log=True)
            panels.append(Panel(f"{spec.title} ({selection})", draw, view=selection))
    if not panels:
        return Figure("labels", "Learning curves", "No curves: there are results for one number of labels only.")
    caption = "Mean MAP on the test half over repetitions, with one deviation. Follows the choice of parameters above."
    return Figure("labels", "Learning curves", caption, panels)


def _curve(spec: DataSpec, name: str, scores: Mapping[int, tuple[float, float]], note: str = "") -> list[Point]:
    """A mark for each number of labels."""
    return [
        Point(n, mean, std, f"{spec.title}, {name}\n{label_count(n)} {spec.drawn}: {score_text(mean, std)}{note}")
        for n, (mean, std) in scores.items()
    ]


def cost_figure(summary: Summary) -> Figure:
    """Seconds and memory of one stand-alone fit, a panel per data set."""
    title = "Time and memory of one fit"
    panels, memory_panels = [], []
    order = [method.key for method in summary.column_keys]
    for spec in summary.experiment.data:
        costs = [cost for cost in summary.costs if cost["data"] == spec.key and cost["method"] in order]
        if not costs:
            continue
        labels = max((cost["labels"] for cost in costs), key=[cost["labels"] for cost in costs].count)
        found = [cost for cost in costs if cost["labels"] == labels]
        where = f"{spec.title}, {label_count(labels)} {spec.drawn}"
        times, peaks, table = [], [], [["method", "fit", "scores", "peak MiB"]]
        for cost in sorted(found, key=lambda cost: order.index(cost["method"])):
            method, fit, scores = cost["method"], cost["seconds_fit"], cost["seconds_transform"]
            peak = memory(cost["peak_mib"])
            table.append([method, seconds(fit), seconds(scores), peak])
            tip = f"{where}, {method}\nfit {seconds(fit)}, scores of the test half {seconds(scores)}"
            times.append(Bar(method, [(PARTS[0], fit), (PARTS[1], scores)], seconds(fit + scores), tip))
            unit = " MiB" if peak[0].isdigit() else ""
            tip = f"{where}, {method}\npeak memory added: {peak}{unit}"
            peaks.append(Bar(method, [(PARTS[2], cost["peak_mib"])], peak, tip))
        panels.append(Panel(where, partial(bar_chart, where, times, unit="seconds, fit and scores"), table))
        memory_panels.append(Panel(where, partial(bar_chart, where, peaks, unit="peak memory added, MiB")))
    if not panels:
        return Figure("costs", title, "No stand-alone fits were measured in this store.")
    caption = (
        "One fit of features and classifier at the default setting, and the scores of the test half, in a separate "
        "process. Memory is what they add to the peak that loading the libraries and the data had reached; a fit that "
        "stays below that peak is not measurable."
    )
    return Figure("costs", title, caption, [*panels, *memory_panels], ("fit", "scores"))


def stage_figure(summary: Summary) -> Figure:
    """Mean seconds of each stage per row in the shared computation."""
    title = "Time of a setting in the run"
    panels = []
    unshared = STAGES[1:]
    for spec in summary.experiment.data:
        bars, table = [], [["method", *STAGES]]
        for method in (method.key for method in summary.column_keys):
            groups = [group for key, group in summary.groups.items() if (key[0], key[2]) == (spec.key, method)]
            times = [group.seconds for group in groups if math.isfinite(group.seconds["shared"])]
            if not times:
                continue
            mean = {stage: sum(row[stage] for row in times) / len(times) for stage in STAGES}
            texts = {stage: seconds(value) for stage, value in mean.items()}
            tip = f"{spec.title}, {method}\n" + ", ".join(f"{stage} {text}" for stage, text in texts.items())
            parts = [(color, mean[stage]) for color, stage in zip(PARTS, unshared, strict=True)]
            bars.append(Bar(method, parts, seconds(sum(mean[stage] for stage in unshared)), tip))
            table.append([method, *texts.values()])
        if bars:
            draw = partial(bar_chart, spec.title, bars, unit="seconds per cell, without the shared work")
            panels.append(Panel(spec.title, draw, table))
    if not panels:
        return Figure("stages", title, "There are no rows with times yet.")
    caption = (
        "Mean seconds per cell. Kernel, decomposition and neighbors are computed once and shared by many cells; their "
        "time stands in the tooltip."
    )
    return Figure("stages", title, caption, panels, unshared)
