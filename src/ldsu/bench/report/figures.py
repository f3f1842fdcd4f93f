"""The figures of a report: sweeps, heat maps, learning curves and costs, drawn from the available rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ldsu.bench.paper import is_ldsu, is_papers_method, paper_score
from ldsu.bench.report.summary import Summary
from ldsu.bench.report.svg import Bar, Point, Series, bar_chart, heat_map, line_chart, short
from ldsu.bench.selection import Group, sweep, sweep_pair
from ldsu.bench.spec import DataSpec, MethodSpec
from ldsu.bench.tasks import STAGES

STYLES = 12  # s1 ... s12 in the style sheet


@dataclass(frozen=True)
class Panel:
    """One chart as SVG and as a table. `view` is the selection it belongs to, or empty for all."""

    title: str
    svg: str
    header: list[str]
    rows: list[list[str]]
    view: str = ""


@dataclass(frozen=True)
class Figure:
    """Charts under one heading; without panels the caption gives the reason."""

    key: str
    title: str
    caption: str
    panels: list[Panel] = field(default_factory=list)
    legend: tuple[str, ...] = ()  # names of the styles p1, p2, ...
    small: bool = False  # small panels


def draw_figures(summary: Summary) -> list[Figure]:
    """All figures, in the order of the report.

    Parameters
    ----------
    summary : Summary

    Returns
    -------
    figures : list of Figure
    """
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
            "1 / (1 + strength mu) in place of a cut: not in the paper.",
            log=True,
        ),
        learning_curves(summary),
        cost_figure(summary),
        stage_figure(summary),
    ]


def styles(summary: Summary) -> dict[str, str]:
    """A style class for each method, LDSU methods first."""
    methods = sorted(summary.column_keys, key=lambda method: not is_ldsu(method.family))
    return {method.key: f"s{1 + i % STYLES}" for i, method in enumerate(methods)}


def _ldsu_methods(summary: Summary, parameters: Sequence[str]) -> list[MethodSpec]:
    """LDSU methods whose rows have at least two values of each parameter, the paper's method first."""
    found = []
    for method in summary.column_keys:
        groups = [group for key, group in summary.groups.items() if key[2] == method.key]
        if is_ldsu(method.family) and any(all(len(group.values(p)) > 1 for p in parameters) for group in groups):
            found.append(method)
    return sorted(found, key=lambda method: method.family != "LDSU truncate")


def _score(mean: float, std: float) -> str:
    if not math.isfinite(mean):
        return "\u2013"
    return f"{mean:.3f} ± {std:.3f}" if math.isfinite(std) else f"{mean:.3f}"


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
    methods = _ldsu_methods(summary, [parameter])
    if not methods:
        return [Figure(parameter, title, f"No sweep: the rows have fewer than two values of {parameter}.")]
    made = []
    for method in methods:
        panels = [
            panel
            for spec in summary.experiment.data
            if (panel := _sweep_panel(summary, spec, method, parameter, x_label, log=log)) is not None
        ]
        caption = (
            f"{method.key}: mean MAP on the test half. Solid: the best over the other parameters, among those "
            f"tried with every value; dashed: the others at their defaults ({_defaults(method, parameter)}). {remark} "
        ) + (paper if is_papers_method(method.family) else "")
        made.append(Figure(f"{parameter} {method.key}", f"{title}, {method.key}", caption.strip(), panels))
    return made


def _defaults(method: MethodSpec, *excluded: str) -> str:
    return ", ".join(f"{name} = {short(value)}" for name, value in method.default.items() if name not in excluded)


def _sweep_panel(
    summary: Summary, spec: DataSpec, method: MethodSpec, parameter: str, x_label: str, *, log: bool
) -> Panel | None:
    series, rows = [], []
    for order, labels in enumerate(spec.labels):
        group = summary.groups.get((spec.key, labels, method.key))
        points = sweep(group, parameter, method.default) if group else []
        points = [point for point in points if _number(point.value) is not None and math.isfinite(point.best)]
        if len(points) < 2:
            continue
        name = f"{labels} label{'s' if labels > 1 else ''}"
        style = f"o{min(order, 4) + 1}"
        for dashed in (True, False):
            marks = []
            for point in points:
                mean, std = (point.default, point.default_std) if dashed else (point.best, point.best_std)
                how = "others at their defaults" if dashed else "best over the others"
                tip = f"{spec.title}, {name} a class\n{parameter} = {short(point.value)}: {_score(mean, std)}\n{how}"
                if math.isfinite(mean):
                    marks.append(Point(_number(point.value) or 0.0, mean, math.nan if dashed else std, tip))
            if marks:
                series.append(Series("" if dashed else name, marks, style, dashed))
        rows += [
            [str(labels), short(p.value), _score(p.best, p.best_std), _score(p.default, p.default_std)] for p in points
        ]
    if not series:
        return None
    svg = line_chart(
        spec.title,
        series,
        x_label=x_label,
        y_label="MAP",
        log=log,
        gutter=80,
        description=f"Mean test MAP of {method.key} on {spec.title} against {parameter}, a line a number of labels.",
    )
    return Panel(spec.title, svg, ["labels", parameter, "best over the others", "others at default"], rows)


def pair_figures(summary: Summary, first: str, second: str, title: str, names: tuple[str, str]) -> list[Figure]:
    """Test MAP for each pair of values of two parameters, a panel per data set and number of labels."""
    methods = _ldsu_methods(summary, [first, second])
    if not methods:
        return [Figure(f"{first} {second}", title, f"No map: the rows do not vary both {first} and {second}.")]
    made = []
    for method in methods:
        panels = []
        for spec in summary.experiment.data:
            for labels in spec.labels:
                group = summary.groups.get((spec.key, labels, method.key))
                if group is not None:
                    panels += _pair_panel(spec, labels, group, first, second, names)
        caption = (
            f"{method.key}: mean MAP on the test half, best over the other parameters that were tried with every "
            "pair; the stronger the colour the higher, each panel on its own scale, the best pair framed. The paper "
            "finds no sensitivity to theta, and k best at 3 or 5."
        )
        made.append(Figure(f"{first} {second} {method.key}", f"{title}, {method.key}", caption, panels, small=True))
    return made


def _pair_panel(
    spec: DataSpec, labels: int, group: Group, first: str, second: str, names: tuple[str, str]
) -> list[Panel]:
    rows, columns, best = sweep_pair(group, first, second)
    finite = best[~_is_nan(best)]
    if len(rows) < 2 or len(columns) < 2 or not finite.size:
        return []
    title = f"{spec.title}, {labels} label{'s' if labels > 1 else ''}"
    svg = heat_map(
        title,
        [short(value) for value in rows],
        [short(value) for value in columns],
        best.tolist(),
        row_label=names[0],
        column_label=names[1],
        description=f"Best mean test MAP on {title} a class for each {names[0]} and {names[1]}.",
    )
    header = [f"{names[0]} \\ {names[1]}", *(short(value) for value in columns)]
    table = [
        [short(value), *(_score(x, math.nan) for x in line)] for value, line in zip(rows, best.tolist(), strict=True)
    ]
    return [Panel(title, svg, header, table)]


def _is_nan(values: Any) -> Any:
    return values != values


def learning_curves(summary: Summary) -> Figure:
    """MAP against the number of labels for all methods, a panel per data set and selection."""
    style = styles(summary)
    panels = []
    for selection in ("oracle", "honest"):
        table = summary.table("map", selection)
        for spec in summary.experiment.data:
            series = []
            for method in summary.column_keys:
                entries = {n: table.get((spec.key, n), {}).get(method.key) for n in spec.labels}
                marks = [
                    Point(
                        n,
                        e.mean,
                        e.std,
                        f"{spec.title}, {method.key}\n{n} a class: {_score(e.mean, e.std)} ({selection})",
                    )
                    for n, e in entries.items()
                    if e is not None
                ]
                if marks:
                    series.append(Series(method.key, marks, style[method.key]))
            if not series or max(len(line.points) for line in series) < 2:
                continue
            papers = {n: paper_score(spec.paper, n, "LDSU") for n in spec.labels}
            marks = [
                Point(n, p.mean, math.nan, f"{spec.title}, LDSU in the paper\n{n} a class: {_score(*p)}")
                for n, p in papers.items()
                if p is not None
            ]
            if len(marks) > 1:
                series.append(Series("paper's LDSU", marks, "paper", dashed=True))
            svg = line_chart(
                spec.title,
                series,
                x_label="labels per class, logarithmic",
                y_label="MAP",
                log=True,
                gutter=122,
                description=f"Mean test MAP on {spec.title} against labels per class, a line a method ({selection}).",
            )
            panels.append(Panel(f"{spec.title} ({selection})", svg, [], [], view=selection))
    if not panels:
        return Figure("labels", "Learning curves", "No curves: there are results for one number of labels only.")
    caption = "Mean MAP on the test half over repetitions, with one deviation. Follows the choice of parameters above."
    return Figure("labels", "Learning curves", caption, panels)


def cost_figure(summary: Summary) -> Figure:
    """Seconds and memory of one stand-alone fit, a panel per data set."""
    title = "Time and memory of one fit"
    panels, memory_panels = [], []
    for spec in summary.experiment.data:
        costs = [cost for cost in summary.costs if cost["data"] == spec.key]
        if not costs:
            continue
        labels = max((cost["labels"] for cost in costs), key=[cost["labels"] for cost in costs].count)
        found = {cost["method"]: cost for cost in costs if cost["labels"] == labels}
        ordered = [found[method.key] for method in summary.column_keys if method.key in found]
        where = f"{spec.title}, {labels} label{'s' if labels > 1 else ''} a class"
        table = [
            [
                cost["method"],
                seconds(cost["seconds_fit"]),
                seconds(cost["seconds_transform"]),
                f"{cost['peak_mib']:,.0f}",
            ]
            for cost in ordered
        ]
        time_bars = [
            Bar(
                cost["method"],
                [("p1", cost["seconds_fit"]), ("p2", cost["seconds_transform"])],
                seconds(cost["seconds_fit"] + cost["seconds_transform"]),
                f"{where}, {cost['method']}\nfit {seconds(cost['seconds_fit'])}, "
                f"scores of the test half {seconds(cost['seconds_transform'])}",
            )
            for cost in ordered
        ]
        memory_bars = [
            Bar(
                cost["method"],
                [("p3", cost["peak_mib"])],
                f"{cost['peak_mib']:,.0f}",
                f"{where}, {cost['method']}\npeak memory added {cost['peak_mib']:,.0f} MiB",
            )
            for cost in ordered
        ]
        description = f"A bar for each method: {where}."
        svg = bar_chart(where, time_bars, unit="seconds, fit and scores", description=description)
        memory = bar_chart(where, memory_bars, unit="peak memory added, MiB", description=description)
        panels.append(Panel(where, svg, ["method", "fit", "scores", "peak MiB"], table))
        memory_panels.append(Panel(where, memory, [], []))
    if not panels:
        return Figure("costs", title, "No stand-alone fits were measured in this store.")
    caption = (
        "One fit of features and classifier at the default setting in a process of its own, and the scores of the test "
        "half. Memory is what they add to the peak of that process, beside interpreter and data."
    )
    return Figure("costs", title, caption, [*panels, *memory_panels], ("fit", "scores"))


def stage_figure(summary: Summary) -> Figure:
    """Mean seconds of each stage per row in the shared computation."""
    title = "Time of a setting in the run"
    panels = []
    unshared = STAGES[1:]
    for spec in summary.experiment.data:
        bars, table = [], []
        for method in summary.column_keys:
            times = [
                group.seconds for key, group in summary.groups.items() if (key[0], key[2]) == (spec.key, method.key)
            ]
            times = [row for row in times if math.isfinite(row["shared"])]
            if not times:
                continue
            mean = {stage: sum(row[stage] for row in times) / len(times) for stage in STAGES}
            total = sum(mean[stage] for stage in unshared)
            tip = f"{spec.title}, {method.key}\n" + ", ".join(f"{stage} {seconds(mean[stage])}" for stage in STAGES)
            bars.append(Bar(method.key, [(f"p{i + 1}", mean[s]) for i, s in enumerate(unshared)], seconds(total), tip))
            table.append([method.key, *(seconds(mean[stage]) for stage in STAGES)])
        if bars:
            description = f"Mean seconds per cell on {spec.title}, a bar for each method."
            svg = bar_chart(spec.title, bars, unit="seconds per cell, without the shared work", description=description)
            panels.append(Panel(spec.title, svg, ["method", *STAGES], table))
    if not panels:
        return Figure("stages", title, "There are no rows with times yet.")
    caption = (
        "Mean seconds per cell. Kernel, decomposition and neighbours are computed once and shared by many cells; their "
        "time stands in the tooltip."
    )
    return Figure("stages", title, caption, panels, unshared)


def seconds(value: float) -> str:
    """Format seconds with three significant digits.

    Examples
    --------
    >>> from ldsu.bench.report.figures import seconds
    >>> seconds(0.01234), seconds(2.5), seconds(123.4)
    ('12.3 ms', '2.50 s', '123 s')
    """
    if not math.isfinite(value):
        return "\u2013"
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:,.3g} s" if value < 1000 else f"{value:,.0f} s"
