"""The report of an experiment: HTML, Markdown, CSV and LaTeX, and a table for the terminal."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldsu._utils.files import replacing
from ldsu.bench.report.figures import draw_figures
from ldsu.bench.report.formatting import NONE, spread_text, without_zero
from ldsu.bench.report.page import render_page
from ldsu.bench.report.pictures import draw_pictures
from ldsu.bench.report.summary import METRIC_NAMES, SIGNS, Entry, Summary
from ldsu.bench.report.text_report import csv_text, latex, markdown, settings_csv
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
    """Write the `FILES` of a report, each atomically, and return their paths.

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
    """
    progress = progress or (lambda _: None)
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
    paths = {kind: Path(out_dir) / FILES[kind] for kind in texts}
    for kind, path in paths.items():
        content = texts[kind].encode()
        with replacing(path) as file:
            # Without a time in its header, equal content gives an equal file.
            file.write(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return paths


def is_report_of(experiment: Experiment, folder: Path) -> bool:
    """Whether a folder holds an earlier report of an experiment, by the title of its page."""
    page = folder / FILES["html"]
    title = f"<title>{escape(experiment.title)}</title>"
    return page.is_file() and title in page.read_text(encoding="utf-8", errors="replace")


def print_table(
    experiment: Experiment, store: Store, console: Any, *, metric: str = "map", selection: str = "oracle"
) -> None:
    """Print a table for each data set to a rich console: methods as rows, labels as columns."""
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
    for spec in experiment.data:
        counts = [labels for labels in spec.labels if table.get((spec.key, labels))]
        if not counts:
            continue
        view = Table(box=SIMPLE_HEAD, title=f"{spec.title}: {METRIC_NAMES[metric]}, {selection}", title_justify="left")
        view.add_column(f"labels {spec.drawn}", no_wrap=True)
        for labels in counts:
            view.add_column(str(labels), justify="left", no_wrap=True)
        for method in summary.column_keys:
            entries = [table[spec.key, labels].get(method.key) for labels in counts]
            if any(entries):
                view.add_row(method.key, *(Text.assemble(*_parts(entry, console.width)) for entry in entries))
        console.print(view)
    if summary.agreement(selection) and metric == "map":
        console.print(
            "against the paper: ▲ clearly ahead, ▼ clearly behind, ≈ no clear difference; bold: best", style="dim"
        )


def _parts(entry: Entry | None, width: int) -> list[tuple[str, str]]:
    """Texts and styles of an entry; without the deviation beside the paper's score in a narrow terminal."""
    if entry is None:
        return [(NONE, "dim")]
    spread = "" if entry.paper and width < 100 else spread_text(entry.std, "±")
    paper = f" {SIGNS[entry.against_paper]}{entry.difference:+.3f}" if entry.paper else ""
    mean = without_zero(f"{entry.mean:.3f}"), "bold" if entry.best else ""
    return [mean, (without_zero(spread), "dim"), (without_zero(paper), "dim")]
