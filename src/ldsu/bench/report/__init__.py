"""The report of an experiment: HTML, Markdown, CSV and LaTeX, and a table for the terminal."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldsu._utils.files import replacing
from ldsu.bench.report.figures import draw_figures
from ldsu.bench.report.page import render_page
from ldsu.bench.report.pictures import draw_pictures
from ldsu.bench.report.summary import METRIC_NAMES, Entry, Summary
from ldsu.bench.report.text_report import SIGNS, csv_text, latex, markdown, settings_csv
from ldsu.bench.spec import Experiment

if TYPE_CHECKING:
    from ldsu.bench.store import Store

__all__ = ["FILES", "is_report_of", "print_table", "write_report"]

# Files of a report.
FILES = {
    "html": "index.html",
    "markdown": "report.md",
    "csv": "table.csv",
    "latex": "table.tex",
    "settings": "settings.csv.gz",
}


def write_report(
    experiment: Experiment,
    store: Store,
    out_dir: str | os.PathLike[str],
    *,
    pictures: bool = True,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Path]:
    """Write ``index.html``, ``report.md``, ``table.csv``, ``table.tex``, ``settings.csv.gz``, each atomically.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    store : Store
        Its results; pictures are cached in it.
    out_dir : path-like
        Created if it does not exist.
    pictures : bool, default=True
        Draw 2-D plots of the features. This may load data and take minutes the first time.
    progress : callable, optional
        Called with a description of the current step.

    Returns
    -------
    paths : dict of str to Path
        Keys "html", "markdown", "csv", "latex" and "settings".
    """
    progress = progress or (lambda _: None)
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    progress("reading rows")
    summary = Summary(experiment, store)
    progress("drawing figures")
    drawn = draw_figures(summary)
    made, missing = draw_pictures(summary, store, progress) if pictures else ([], [])
    progress("writing")
    texts = {
        "html": render_page(summary, drawn, made, missing),
        "markdown": markdown(summary, drawn),
        "csv": csv_text(summary),
        "latex": latex(summary),
        "settings": settings_csv(summary),
    }
    return {kind: _write(folder / FILES[kind], text.encode()) for kind, text in texts.items()}


def is_report_of(experiment: Experiment, folder: Path) -> bool:
    """Whether a folder holds an earlier report of an experiment, by the title of its page."""
    page = folder / FILES["html"]
    title = f"<title>{escape(experiment.title)}</title>"
    return page.is_file() and title in page.read_text(encoding="utf-8", errors="replace")


def _write(path: Path, content: bytes) -> Path:
    with replacing(path) as file:
        # Without a time in its header, equal content gives an equal file.
        file.write(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def print_table(
    experiment: Experiment, store: Store, console: Any, *, metric: str = "map", selection: str = "oracle"
) -> None:
    """Print a table for each data set: methods as rows, labels as columns.

    Parameters
    ----------
    experiment : Experiment
    store : Store
    console : rich.console.Console
    metric : {"map", "accuracy"}, default="map"
    selection : {"oracle", "honest"}, default="oracle"
    """
    try:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text
    except ImportError as error:
        raise ImportError("Tables in the terminal need rich. Install it with: pip install 'ldsu[cli]'") from error
    summary = Summary(experiment, store)
    for sentence in summary.warnings():
        console.print(Text(sentence, style="yellow"))
    table = summary.table(metric, selection)
    narrow = console.width < 100
    for spec in experiment.data:
        counts = [labels for labels in spec.labels if table.get((spec.key, labels))]
        if not counts:
            continue
        view = Table(box=SIMPLE_HEAD, title=f"{spec.title}: {METRIC_NAMES[metric]}, {selection}", title_justify="left")
        view.add_column("labels per class", no_wrap=True)
        for labels in counts:
            view.add_column(str(labels), justify="left", no_wrap=True)
        for method in summary.column_keys:
            entries = [table[spec.key, labels].get(method.key) for labels in counts]
            if any(entries):
                view.add_row(method.key, *(_rich(Text, entry, narrow) for entry in entries))
        console.print(view)
    if summary.agreement(selection) and metric == "map":
        console.print(
            "against the paper: ▲ clearly ahead, ▼ clearly behind, ≈ no clear difference; bold: best", style="dim"
        )


def _rich(text: Any, entry: Entry | None, narrow: bool) -> Any:
    """An entry for the terminal; without the deviation if the paper's score is shown and the terminal is narrow."""
    if entry is None:
        return text("\u2013", style="dim")
    parts = [(f"{entry.mean:.3f}".replace("0.", ".", 1), "bold" if entry.best else "")]
    if math.isfinite(entry.std) and not (narrow and entry.paper):
        parts.append((f"±{entry.std:.3f}".replace("0.", ".", 1), "dim"))
    if entry.paper:
        parts.append((f" {SIGNS[entry.against_paper]}{entry.difference:+.3f}".replace("0.", ".", 1), "dim"))
    return text.assemble(*parts)
