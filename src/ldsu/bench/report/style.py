"""One look for the report's charts, the gallery and the pictures of the documentation: colors, marks, lines."""

from __future__ import annotations

from typing import Any

# Color by name, on a light and on a dark page. The categorical ones, s1 to s12, are distinct in the common color-vision
# deficiencies, and every use has a shape, a sign or a name beside it; o1 to o5 are ordered.
COLORS = {
    "page": ("#fdfdfc", "#16181b"),
    "raised": ("#ffffff", "#1f2226"),
    "sunk": ("#f2f2ef", "#24282d"),
    "ink": ("#1c1e21", "#e6e7e8"),
    "soft": ("#5c6066", "#a4a9b0"),
    "rule": ("#dcdcd7", "#383c42"),
    "accent": ("#0b5fa5", "#7ab8f0"),
    "behind": ("#b0450a", "#f2a36b"),
    "best": ("#e6f0f9", "#1d3347"),
    "warn": ("#fff4dc", "#3a2f17"),
    "warn-edge": ("#c98a00", "#d9a441"),
    "heat-low": ("#eef4f8", "#22303b"),
    "heat-high": ("#0b4f86", "#9fd0f7"),
    "s1": ("#0b5fa5", "#6db3f2"),
    "s2": ("#c8500a", "#ff9c5a"),
    "s3": ("#117733", "#5fc27e"),
    "s4": ("#9b3d8a", "#df8fd0"),
    "s5": ("#8a6a00", "#dcc05a"),
    "s6": ("#1f8a7c", "#5ad1c1"),
    "s7": ("#82204f", "#e0709f"),
    "s8": ("#5f6b7a", "#a9b4c2"),
    "s9": ("#c0566a", "#f29aa9"),
    "s10": ("#6b7a12", "#b6c653"),
    "s11": ("#3b2d8f", "#a79df2"),
    "s12": ("#444444", "#d5d5d5"),
    "o1": ("#7fb0d9", "#3f6d94"),
    "o2": ("#4a8ec4", "#5a92c0"),
    "o3": ("#1d6aa8", "#7db8e6"),
    "o4": ("#0a4470", "#b5dbfa"),
    "o5": ("#04243d", "#e2f2ff"),
    "sand": ("#e0a13a", "#dcae5a"),
}
SERIES = tuple(name for name in COLORS if name[0] == "s" and name[1:].isdigit())
MARKERS = ("o", "s", "^", "D", "v")


def rc_params(page: str = COLORS["page"][0], *, dark: bool = False) -> dict[str, Any]:
    """Settings for `matplotlib.rcParams` on a background of the color `page`, which is dark or light."""
    from matplotlib.rcsetup import cycler

    ink, soft = COLORS["ink"][dark], COLORS["soft"][dark]
    return {
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor"), ink),
        **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), soft),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), page),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
        "axes.prop_cycle": cycler(color=[COLORS[name][dark] for name in SERIES]),
        "axes.titlesize": 11,
        "font.size": 10,
        "grid.color": COLORS["rule"][dark],
        "lines.dashed_pattern": (4, 3),
        "svg.hashsalt": "ldsu",  # the same figure gives the same file
    }
