"""Small charts as SVG text: lines, heat maps, bars. Colors come from the page's style sheet.

Every mark has its row and column (series and position), for keyboard navigation, and the text of its tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

WIDTH, HEIGHT = 420, 280
LINE = 12.5  # minimum distance of two labels


class Point(NamedTuple):
    """A mark: position, half-height of the error bar (NaN for none), and tooltip."""

    x: float
    y: float
    spread: float
    tip: str


class Series(NamedTuple):
    """A line: its name at the right end, its points, and its style class ("s1", "o2", ...)."""

    name: str
    points: Sequence[Point]
    style: str
    dashed: bool = False


class Bar(NamedTuple):
    """A stacked bar: label, (style class, length) of each part, text behind it, and tooltip."""

    label: str
    parts: Sequence[tuple[str, float]]
    text: str
    tip: str


class Axis:
    """Maps values to pixels on a linear or logarithmic scale. On a logarithmic axis 0 is one step left of the rest."""

    def __init__(self, values: Sequence[float], low: float, high: float, *, log: bool = False) -> None:
        self.log = log
        self.zero = -math.inf
        if log:
            logs = sorted(math.log10(value) for value in set(values) if value > 0)
            gap = (logs[-1] - logs[0]) / max(len(logs) - 1, 1) if logs else 1.0
            self.zero = (logs[0] if logs else 0.0) - (gap or 1.0)
        positions = [self._position(value) for value in values]
        self.least, self.most = min(positions), max(positions)
        self.low, self.high = low, high

    def _position(self, value: float) -> float:
        if not self.log:
            return value
        return math.log10(value) if value > 0 else self.zero

    def __call__(self, value: float) -> float:
        """Pixel position of a value."""
        span = self.most - self.least
        share = (self._position(value) - self.least) / span if span else 0.5
        return self.low + share * (self.high - self.low)


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round values within an interval, about `count` of them.

    Examples
    --------
    >>> from ldsu.bench.report.svg import ticks
    >>> ticks(0.61, 0.93)
    [0.7, 0.8, 0.9]
    """
    span = max(high - low, 1e-9)
    power = 10 ** math.floor(math.log10(span / count))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * count >= span * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(step * i, 10) for i in range(first, last + 1)]


def short(value: Any) -> str:
    """Format a parameter value for an axis or a table."""
    if value is None:
        return "all"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    description: str,
    log: bool = False,
    x_names: dict[float, str] | None = None,
    gutter: int = 92,
) -> str:
    """Lines over a common axis, each named at its right end.

    Parameters
    ----------
    title, description : str
        Visible title, and description for screen readers.
    series : sequence of Series
    x_label, y_label : str
    log : bool, default=False
        A logarithmic x axis.
    x_names : dict of float to str, optional
        Names of positions on the x axis; default: the values themselves.
    gutter : int, default=92
        Pixels for the names at the right.

    Returns
    -------
    svg : str
    """
    points = [point for line in series for point in line.points]
    xs = sorted({point.x for point in points})
    least, most = min(point.y for point in points), max(point.y for point in points)
    margin = max(0.05 * (most - least), 0.005)
    least, most = least - margin, most + margin
    left, right, top, bottom = 40, WIDTH - gutter, 30, HEIGHT - 40
    x_axis = Axis(xs, left + 8, right - 8, log=log)
    y_axis = Axis([least, most], bottom, top)
    parts = [_text(4, 15, title, "title"), _text(right, 15, y_label, "axis end")]
    y_ticks = ticks(least, most)
    digits = 2 if len(y_ticks) < 2 or y_ticks[1] - y_ticks[0] > 0.0099 else 3
    for tick in y_ticks:
        y = y_axis(tick)
        parts.append(f'<path class="rule" d="M{left} {y:.1f}H{right}"/>')
        parts.append(_text(left - 6, y + 4, f"{tick:.{digits}f}", "end"))
    names = x_names or {}
    last = -math.inf
    for x in xs:
        name = names.get(x, short(x))
        if x_axis(x) - last >= 7 * len(name) + 4:
            parts.append(_text(x_axis(x), bottom + 15, name, "middle"))
            last = x_axis(x)
        parts.append(f'<path class="rule" d="M{x_axis(x):.1f} {bottom}v4"/>')
    parts.append(_text((left + right) / 2, HEIGHT - 8, x_label, "middle axis"))
    ends = []
    for row, line in enumerate(series):
        at = [(x_axis(point.x), y_axis(point.y)) for point in line.points]
        marks = []
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
        marks.append(f'<path class="line{" dashed" if line.dashed else ""}" d="{path}"/>')
        for column, (point, (x, y)) in enumerate(zip(line.points, at, strict=True)):
            if math.isfinite(point.spread):
                low, high = y_axis(max(point.y - point.spread, least)), y_axis(min(point.y + point.spread, most))
                marks.append(f'<path class="spread" d="M{x:.1f} {low:.1f}V{high:.1f}"/>')
            marks.append(f'<path class="mark" {_shape(x, y, line.style)} {_focus(row, column, point.tip)}/>')
        parts.append(f'<g class="{line.style}{" hollow" if line.dashed else ""}">{"".join(marks)}</g>')
        if line.name:
            ends.append((at[-1], line))
    heights = spread_out([y for (_, y), _ in ends], LINE, top, bottom)
    for ((x, y), line), height in zip(ends, heights, strict=True):
        parts.append(
            f'<g class="{line.style} name{" hollow" if line.dashed else ""}"><path class="leader" '
            f'd="M{x + 5:.1f} {y:.1f}L{right + 8} {height:.1f}"/>'
            f'<path class="mark" {_shape(right + 13, height, line.style)}/>'
            f"{_text(right + 20, height + 4, line.name)}</g>"
        )
    return _svg(WIDTH, HEIGHT, title, description, parts)


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    row_label: str,
    column_label: str,
    description: str,
) -> str:
    """A grid of values, larger is darker; NaN cells are empty.

    Parameters
    ----------
    title, description : str
    rows, columns : sequences of str
        Names of the values.
    values : sequence of rows of float
    row_label, column_label : str

    Returns
    -------
    svg : str
    """
    cell_w, cell_h, left, top = 42, 24, 52, 54
    width, height = left + cell_w * len(columns) + 6, top + cell_h * len(rows) + 6
    finite = [value for row in values for value in row if math.isfinite(value)]
    least, most = min(finite), max(finite)
    parts = [_text(4, 13, title, "title"), _text(left - 6, top - 6, f"{row_label} ↓", "axis end")]
    parts.append(_text(left + 4, top - 20, f"{column_label} →", "axis"))
    for column, name in enumerate(columns):
        parts.append(_text(left + (column + 0.5) * cell_w, top - 6, name, "middle"))
    for row, name in enumerate(rows):
        parts.append(_text(left - 6, top + (row + 0.5) * cell_h + 4, name, "end"))
        for column, value in enumerate(values[row]):
            if not math.isfinite(value):
                continue
            x, y = left + column * cell_w, top + row * cell_h
            share = 100 * (value - least) / (most - least) if most > least else 50.0
            tip = f"{title}\n{row_label} {name}, {column_label} {columns[column]}: {value:.3f}"
            ink = "high" if share > 55 else "low"
            best = " best" if value == most else ""
            parts.append(
                f'<g class="heat {ink}{best}" style="--v:{share:.0f}%" {_focus(row, column, tip)}>'
                f'<rect x="{x}" y="{y}" width="{cell_w - 1}" height="{cell_h - 1}"/>'
                + _text(x + cell_w / 2, y + cell_h / 2 + 4, f"{value:.3f}".lstrip("0"), "middle")
                + "</g>"
            )
    return _svg(width, height, title, description, parts)


def bar_chart(title: str, bars: Sequence[Bar], *, unit: str, description: str) -> str:
    """Horizontal bars on one axis from 0.

    Parameters
    ----------
    title, description : str
    bars : sequence of Bar
    unit : str

    Returns
    -------
    svg : str
    """
    bar_h, left, right, top = 20, 108, WIDTH - 66, 40
    height = top + bar_h * len(bars) + 8
    most = max((sum(length for _, length in bar.parts) for bar in bars), default=0.0) or 1.0
    parts = [
        _text(4, 15, title, "title"),
        _text(4, 31, unit, "axis"),
        f'<path class="rule" d="M{left} {top}V{height}"/>',
    ]
    for row, bar in enumerate(bars):
        y, x = top + row * bar_h, float(left)
        parts.append(_text(left - 6, y + 14, bar.label, "end"))
        hit = f'<rect class="hit" x="{left}" y="{y}" width="{WIDTH - left}" height="{bar_h}"/>'
        parts.append(f'<g class="bar" {_focus(row, 0, bar.tip)}>{hit}')
        for style, length in bar.parts:
            width = (right - left) * length / most
            shape = f'x="{x:.1f}" y="{y + 4}" width="{max(width, 0.5):.1f}" height="{bar_h - 7}"'
            parts.append(f'<rect class="{style}" {shape}/>')
            x += width
        parts.append(_text(x + 5, y + 14, bar.text) + "</g>")
    return _svg(WIDTH, height, title, description, parts)


def spread_out(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions apart to a distance of at least `gap`, as little as possible, within [low, high] if they fit.

    Examples
    --------
    >>> from ldsu.bench.report.svg import spread_out
    >>> spread_out([5.0, 5.0, 50.0], 10.0, 0.0, 100.0)
    [0.0, 10.0, 50.0]
    """
    order = sorted(range(len(positions)), key=positions.__getitem__)
    blocks: list[tuple[float, list[int]]] = []  # center of a run of touching labels, and their indices
    for index in order:
        center, members = positions[index], [index]
        while True:
            half = gap * (len(members) - 1) / 2
            center = min(max(center, low + half), max(high - half, low + half))
            if not blocks or center - half - (blocks[-1][0] + gap * (len(blocks[-1][1]) - 1) / 2) >= gap:
                break
            _, before = blocks.pop()
            members = before + members
            center = sum(positions[i] for i in members) / len(members)
        blocks.append((center, members))
    result = [0.0] * len(positions)
    for center, members in blocks:
        for position, index in enumerate(members):
            result[index] = center + gap * (position - (len(members) - 1) / 2)
    return result


SHAPES = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0",
    "M-3-3H3V3H-3Z",
    "M0-4L4 3H-4Z",
    "M0-4.5L4.5 0L0 4.5L-4.5 0Z",
    "M0 4L4-3H-4Z",
)


def _shape(x: float, y: float, style: str) -> str:
    """Position and outline of a mark; the shape depends on the number of the style, as in other charts."""
    number = int("".join(char for char in style if char.isdigit()) or 1)
    return f'transform="translate({x:.1f} {y:.1f})" d="{SHAPES[(number - 1) % len(SHAPES)]}"'


def _focus(row: int, column: int, tip: str) -> str:
    # The page's script adds role, name and tab stop, which keeps thousands of marks short.
    return f'data-r="{row}" data-c="{column}" data-tip="{escape(tip)}"'


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{f" class={chr(34)}{style}{chr(34)}" if style else ""}>{escape(text)}</text>'


def _svg(width: int, height: int, title: str, description: str, parts: Sequence[str]) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" style="max-width:{width}px" role="group" '
        f'aria-label="{escape(title)}"><desc>{escape(description)}</desc>{"".join(parts)}</svg>'
    )
