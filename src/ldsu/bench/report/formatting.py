"""Numbers, names and times as the report writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ldsu.bench.selection import Choice

NONE = "\u2013"  # in place of a missing number


def score_text(mean: float, std: float = math.nan) -> str:
    """A mean with its deviation, if it has one."""
    return f"{mean:.3f}{spread_text(std)}" if math.isfinite(mean) else NONE


def spread_text(std: float, sign: str = " ± ") -> str:
    """A deviation behind its sign; empty if there is none."""
    return f"{sign}{std:.3f}" if math.isfinite(std) else ""


def without_zero(text: str) -> str:
    """A number below 1 without its leading zero.

    >>> without_zero("0.123"), without_zero("+0.001"), without_zero("1.000")
    ('.123', '+.001', '1.000')
    """
    return text.replace("0.", ".", 1)


def short(value: Any) -> str:
    """A parameter value for an axis or a table."""
    if value is None:
        return "all"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def settings_text(values: Mapping[str, Any], sign: str = " = ") -> str:
    """Parameters and their values."""
    return ", ".join(f"{name}{sign}{short(value)}" for name, value in values.items())


def label_count(labels: int) -> str:
    """A number of labels as text."""
    return f"{labels} label{'s' if labels > 1 else ''}"


def seconds(value: float) -> str:
    """Seconds with three significant digits.

    >>> seconds(0.01234), seconds(2.5), seconds(123.4)
    ('12.3 ms', '2.50 s', '123 s')
    """
    if not math.isfinite(value):
        return NONE
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:,.3g} s" if value < 1000 else f"{value:,.0f} s"


def memory(mib: float) -> str:
    """Peak memory in MiB; no figure where the fit stayed below the peak that the process had reached before it.

    >>> memory(0.0), memory(3.21), memory(1234.5)
    ('not measurable', '3.2', '1,234')
    """
    if not mib > 0:
        return "not measurable"
    return f"{mib:.1g}" if mib < 0.1 else f"{mib:.1f}" if mib < 10 else f"{mib:,.0f}"


def when(stamp: float | None) -> str:
    """A time as text, in UTC."""
    return datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%d %H:%M UTC") if stamp else "not finished"


def sentence_case(text: str) -> str:
    """The text with its first letter capitalized."""
    return text[:1].upper() + text[1:]


def chosen_text(choice: Choice) -> str:
    """The selected parameters: common ones once, the others per split."""
    chosen = [setting.values for setting in choice.settings]
    shared = {name: value for name, value in chosen[0].items() if all(other.get(name) == value for other in chosen)}
    lines = [settings_text(shared)] if shared else []
    for split, values in zip(choice.splits, chosen, strict=True):
        varying = {name: value for name, value in values.items() if name not in shared}
        if varying:
            lines.append(f"split {split}: {settings_text(varying)}")
    return "\n".join(lines) or "no parameters"
