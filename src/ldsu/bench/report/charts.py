"""The report's charts: lines, heat maps and bars, drawn by matplotlib and written as SVG for the page.

Colors become the page's variables, so that a chart follows its light or dark theme. Every mark has its row and column
(series and position), for keyboard navigation, and the text of its tooltip. A chart has a visible title and a
description for screen readers.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec
from xml.etree import ElementTree

import numpy as np

from ldsu.bench.report.formatting import short
from ldsu.bench.report.style import COLORS, MARKERS, rc_params

if TYPE_CHECKING:
    from matplotlib.artist import Artist

P = ParamSpec("P")
Tip = tuple[int, int, str]  # row, column, text

WIDTH, HEIGHT = 420, 280  # of a line chart, unless it is drawn wider
LETTER = 6.5  # width of a letter in pixels, on average at most
DPI = 72  # a pixel of the chart is a point of matplotlib's SVG
COLOR = {name: light for name, (light, _) in COLORS.items()}
VARIABLE = {light: f"var(--{name})" for name, light in COLOR.items()}
# Colors of the cells of a heat map, by percent.
SHADES = [f"#fe00{percent:02x}" for percent in range(101)]
VARIABLE |= {
    shade: f"color-mix(in oklab, var(--heat-high) {percent}%, var(--heat-low))" for percent, shade in enumerate(SHADES)
}
FORBIDDEN = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # by XML
ATTRIBUTES = ("fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "text-anchor")


class Point(NamedTuple):
    """A mark: position, half-height of the error bar (NaN for none), and tooltip."""

    x: float
    y: float
    spread: float
    tip: str


class Series(NamedTuple):
    """A line: its name in the legend, its points, and the name of its color ("s1", "o2", ...)."""

    name: str
    points: Sequence[Point]
    color: str
    dashed: bool = False


class Bar(NamedTuple):
    """A stacked bar: label, (name of the color, length) of each part, text behind it, and tooltip."""

    label: str
    parts: Sequence[tuple[str, float]]
    text: str
    tip: str


def _styled(draw: Callable[P, str]) -> Callable[P, str]:
    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            from matplotlib import style
        except ImportError as error:
            raise ImportError("Charts need matplotlib. Install it with: pip install 'ldsu[report]'") from error
        plain = {"font.size": 11, "svg.fonttype": "none", "text.parse_math": False, "axes.formatter.useoffset": False}
        # A fixed height of the title saves the measurement of all labels. The user's own settings have no effect.
        with style.context({**rc_params(), **plain, "axes.titley": 1.0}, after_reset=True):
            return draw(*args, **kwargs)

    return styled


class _Chart:
    """A figure of some size with one pair of axes (left, right, top, bottom), in pixels."""

    def __init__(self, title: str, description: str, size: tuple[int, int], box: tuple[int, int, int, int]) -> None:
        from matplotlib.figure import Figure

        self.title, self.description, (self.width, self.height) = title, description, size
        left, right, top, bottom = box
        self.figure = Figure(figsize=(self.width / DPI, self.height / DPI), dpi=DPI)
        self.axes = self.figure.add_axes(
            (left / self.width, 1 - bottom / self.height, (right - left) / self.width, (bottom - top) / self.height)
        )
        self.axes.spines[:].set_visible(False)
        self.axes.tick_params(length=0)
        for background in (self.figure.patch, self.axes.patch):
            background.set_visible(False)
        self.marks: dict[str, tuple[str, list[Tip]]] = {}
        self.text(4, 15, title, "title")

    def text(self, x: float, y: float, text: str, css: str = "axis", **options: Any) -> None:
        """Write a text at pixels from the upper left corner."""
        self.mark([self.figure.text(x / self.width, 1 - y / self.height, text, **options)], css)

    def mark(self, artists: Iterable[Artist], css: str, tips: Sequence[Tip] = ()) -> None:
        """Give artists a class, and their shapes these tooltips, one after the other."""
        waiting = list(tips)
        for artist in artists:
            key = f"mark{len(self.marks)}"
            artist.set_gid(key)
            # Everything is inside, and clip paths would need identifiers that are unique in the page.
            artist.set_clip_on(False)
            self.marks[key] = css, waiting

    def svg(self) -> str:
        """The chart as an element of a page."""
        file = io.StringIO()
        with warnings.catch_warnings():
            # Browsers have glyphs that matplotlib's font lacks.
            warnings.filterwarnings("ignore", "Glyph .* missing from")
            self.figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        text = re.sub(r' xmlns(:xlink)?="[^"]*"|xlink:', "", file.getvalue())
        root = ElementTree.fromstring(re.sub(FORBIDDEN, " ", text))
        shapes = {f"#{path.get('id')}": path.get("d", "") for path in root.iter("path")}
        parts = []
        for group in root.iterfind(".//g[@id]"):
            css, tips = self.marks.get(group.get("id", ""), ("", []))
            markers = group.findall("g/use")
            content = ""
            for leaf in [leaf for leaf in group if leaf.tag in ("path", "text")] + markers:
                # The shapes with tooltips are the markers of a line, or else all.
                content += _leaf(leaf, shapes, tips.pop(0) if tips and (leaf in markers or not markers) else None)
            parts.append(f'<g class="{css}">{content}</g>' if css and content else content)
        return (
            f'<svg class="chart" viewBox="0 0 {self.width} {self.height}" style="max-width:{self.width}px" fill="none" '
            f'role="group" aria-label="{escape(self.title)}"><desc>{escape(self.description)}</desc>{"".join(parts)}'
            "</svg>"
        )


def _leaf(leaf: ElementTree.Element, shapes: dict[str, str], tip: Tip | None) -> str:
    """A path, marker or text as matplotlib wrote it, in the page's colors, without identifiers and fonts."""
    style = dict(part.split(": ", 1) for part in leaf.get("style", "").split("; ") if part)
    values = {name: VARIABLE.get(style[name], style[name]) for name in ATTRIBUTES if style.get(name, "none") != "none"}
    if leaf.tag == "text":
        values |= {name: leaf.get(name, "") for name in ("x", "y")}
    else:
        values["d"] = re.sub(r"\s*([A-Za-z])\s*", r"\1", leaf.get("d") or shapes[leaf.get("href", "")])
    if leaf.tag == "use":
        values["transform"] = f"translate({leaf.get('x')} {leaf.get('y')})"
    written = " ".join(f'{name}="{value}"' for name, value in values.items())
    written = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), written)
    if tip is not None:
        # The page's script adds role, name and tab stop, which keeps thousands of marks short.
        written += f' data-r="{tip[0]}" data-c="{tip[1]}" data-tip="{escape(tip[2])}"'
    return f"<text {written}>{escape(leaf.text or '')}</text>" if leaf.tag == "text" else f"<path {written}/>"


@_styled
def line_chart(
    title: str, series: Sequence[Series], *, x_label: str, y_label: str, log: bool = False, width: int = WIDTH
) -> str:
    """Lines over a common axis, with a legend in the order of their right ends.

    On a logarithmic axis 0 is one step left of the rest.
    """
    height = HEIGHT + (width - WIDTH) // 8
    names = [line.name for line in series if line.name]
    description = f"{title}: {y_label} against {x_label}, a line for each of {', '.join(names)}."
    left, right, top, bottom = 40, width - 44 - min(6 * max(map(len, names), default=0), 180), 30, height - 40
    chart = _Chart(title, description, (width, height), (left, right, top, bottom))
    axes = chart.axes
    chart.text(right, 15, y_label, ha="right")
    chart.text((left + right) / 2, height - 8, x_label, ha="center")
    points = [point for line in series for point in line.points]
    place = _places({point.x for point in points}, log)
    indent = 0.03 * (max(place.values()) - min(place.values())) or 0.5
    least, most = min(point.y for point in points), max(point.y for point in points)
    margin = max(0.05 * (most - least), 0.005)
    least, most = least - margin, most + margin
    axes.set(xlim=(min(place.values()) - indent, max(place.values()) + indent), ylim=(least, most))
    ticks, end = [], -math.inf
    for value, position in place.items():
        x = axes.transData.transform((position, least))[0]
        fits = x - end >= 7 * len(short(value)) + 4
        ticks.append(short(value) if fits else "")
        end = x if fits else end
    axes.set_xticks(list(place.values()), ticks)
    axes.tick_params(axis="x", length=4, color=COLOR["rule"])
    axes.locator_params(axis="y", nbins=8)
    axes.grid(axis="y", clip_on=False)
    named = []
    for row, line in enumerate(series):
        color, page = COLOR[line.color], COLOR["page"]
        number = int(line.color[1:]) if line.color[1:].isdigit() else 1
        marker = MARKERS[(number - 1) % len(MARKERS)]
        x, y, spread = np.array([(place[point.x], point.y, point.spread) for point in line.points]).T
        low, high, known = np.maximum(y - spread, least), np.minimum(y + spread, most), np.isfinite(spread)
        error_bars = axes.vlines(x[known], low[known], high[known], color, alpha=0.5, linewidth=1)
        chart.mark([error_bars], f"{line.color} spread")
        drawn = axes.plot(
            x,
            y,
            color=color,
            linestyle="--" if line.dashed else "-",
            linewidth=1.1 if line.dashed else 2.6 if line.color in ("s1", "s2") else 1.6,
            marker=marker,
            markersize=9 if marker in "^v" else 7,
            markerfacecolor=page if line.dashed else color,
            markeredgecolor=color if line.dashed else page,
        )
        chart.mark(drawn, f"{line.color} line", [(row, column, point.tip) for column, point in enumerate(line.points)])
        named += [(y[-1], drawn[0], line)] if line.name else []
    named.sort(key=lambda entry: -entry[0])
    legend = axes.legend(
        [handle for _, handle, _ in named],
        [line.name for _, _, line in named],
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        handlelength=1.4,
        handletextpad=0.5,
        labelspacing=0.15,
        borderaxespad=0.6,
    )
    for (_, _, line), handle, text in zip(named, legend.get_lines(), legend.get_texts(), strict=True):
        chart.mark([handle, text], f"{line.color} name")
    return chart.svg()


def _places(values: Iterable[float], log: bool) -> dict[float, float]:
    """Position of each value on the axis, in ascending order."""
    ordered = sorted(values)
    if not log:
        return {value: value for value in ordered}
    logs = {value: math.log10(value) for value in ordered if value > 0}
    least, most = min(logs.values(), default=0.0), max(logs.values(), default=0.0)
    step = (most - least) / max(len(logs) - 1, 1) or 1.0
    return {value: logs.get(value, least - step) for value in ordered}


@_styled
def heat_map(
    title: str, rows: Sequence[str], columns: Sequence[str], values: np.ndarray, *, row_label: str, column_label: str
) -> str:
    """A grid of values (rows, columns), larger is darker; NaN cells are empty."""
    from matplotlib.patches import Rectangle

    description = f"{title}: a value for each {row_label} and {column_label}."
    left, top = 52, 54
    right, bottom = left + 42 * len(columns), top + 24 * len(rows)
    chart = _Chart(title, description, (right + 6, bottom + 6), (left, right, top, bottom))
    axes = chart.axes
    chart.text(left - 6, top - 6, f"{row_label} ↓", ha="right")
    chart.text(left + 4, top - 20, f"{column_label} →")
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.xaxis.tick_top()
    least, most = np.nanmin(values), np.nanmax(values)
    for row, column in np.argwhere(np.isfinite(values)).tolist():
        value = values[row, column]
        percent = round(100 * (value - least) / (most - least)) if most > least else 50
        tip = f"{title}\n{row_label} {rows[row]}, {column_label} {columns[column]}: {value:.3f}"
        cell = Rectangle((column, row), 0.98, 0.96, facecolor=SHADES[percent])
        chart.mark([axes.add_patch(cell)], "heat best" if value == most else "heat", [(row, column, tip)])
        ink, text = COLOR["page" if percent > 55 else "ink"], f"{value:.3f}".lstrip("0")
        axes.text(column + 0.5, row + 0.5, text, color=ink, ha="center", va="center_baseline")
    return chart.svg()


@_styled
def bar_chart(title: str, bars: Sequence[Bar], *, unit: str, width: int = WIDTH) -> str:
    """Horizontal bars on one axis from 0."""
    longest = min(max(len(bar.label) for bar in bars), 40)
    left, right, top = max(108, 12 + round(LETTER * longest)), width - 66, 40
    bottom = top + 20 * len(bars)
    chart = _Chart(title, f"{title}: a bar for each method, {unit}.", (width, bottom + 8), (left, right, top, bottom))
    axes, rows = chart.axes, np.arange(len(bars))
    chart.text(4, 31, unit)
    lengths = np.array([[length for _, length in bar.parts] for bar in bars])
    most = lengths.sum(axis=1).max() or 1.0
    pixel = most / (right - left)
    axes.set(xlim=(0, most), ylim=(len(bars) - 0.5, -0.5), xticks=[])
    axes.set_yticks(rows, [bar.label for bar in bars])
    axes.spines["left"].set(visible=True, edgecolor=COLOR["rule"])
    whole = axes.barh(rows, (width - left) * pixel, height=1, color="none")
    chart.mark(whole, "bar", [(row, 0, bar.tip) for row, bar in enumerate(bars)])
    for part, (color, _) in enumerate(bars[0].parts):
        start = lengths[:, :part].sum(axis=1)
        shown = axes.barh(rows, np.maximum(lengths[:, part], pixel / 2), left=start, height=0.65, color=COLOR[color])
        chart.mark(shown, "part")
    axes.bar_label(shown, [bar.text for bar in bars], padding=5)
    return chart.svg()
