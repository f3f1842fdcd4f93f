"""`ldsu label`: a page to label a table, a folder of images or embeddings in, with a model that follows."""

from __future__ import annotations

import tempfile
import threading
import warnings
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ldsu.cli.fit_predict import column_kinds, count_images, table_options
from ldsu.cli.options import FILE, INPUT, command
from ldsu.cli.reporter import Reporter, output_options


@command(
    "ldsu label tickets.csv --text message",
    "ldsu label photos/",
    "ldsu label embeddings.npy --show tickets.csv",
    "ldsu label tickets.csv --merge anna.labels.jsonl",
    "ldsu label tickets.csv --no-browser --port 8700     (on another machine: ssh -L 8700:127.0.0.1:8700 machine)",
)
@click.argument("table", type=INPUT)
@click.option("--show", type=INPUT, metavar="TABLE", help="Table or folder of images to see, with the rows of TABLE.")
@table_options
@click.option("--journal", type=FILE, help="File of your answers.  [default: TABLE.labels.jsonl in this folder]")
@click.option("--merge", multiple=True, type=FILE, help="Add the labels of another journal or labelled table.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the page.  [default: a free one]")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@output_options
def label(
    table: Path,
    show: Path | None,
    label: str | None,
    labels: Path | None,
    unlabelled: Sequence[str],
    scale: str,
    kernel: str,
    encoder: Sequence[str],
    journal: Path | None,
    merge: Sequence[Path],
    port: int | None,
    no_browser: bool,
    reporter: Reporter,
    **columns: Sequence[str],
) -> None:
    """Label the rows of TABLE in a page: a map, the rows to label next, and a model that follows each answer.

    TABLE is what `ldsu fit` reads, with some labels or none: a table, a folder of images, or embeddings. It is never
    written. Each answer is on the disk before the page shows it, in a journal that the same command takes up again. The
    page exports the labelled table, the model, and its predictions, beside the journal.

    The page is served to this machine only, to whoever has the address that is printed. Stop with Ctrl-C.

    Exit code: 0 stopped, 1 not enough memory or disk space, 2 invalid table, journal or options.
    """
    kinds = column_kinds(columns)
    with reporter.spinner(f"reading {table.name}") as progress:
        from ldsu.studio import Session, StudioServer, read_samples
        from ldsu.studio.journal import exports_path, journal_path

        journal = journal or journal_path(table)
        samples = read_samples(
            table,
            show=show,
            labels=labels,
            label=label,
            unlabelled=unlabelled or None,
            kinds=kinds,
            scaling=scale,
            kernel=kernel,
            encoder=encoder,
            progress=count_images(progress),
        )
    for note in (*samples.table.notes, *samples.encoder.notes):
        reporter.info(note)
    warnings.simplefilter("ignore", UserWarning)  # of fits with few labels: the page shows what follows from them
    with Session(samples, journal) as session:
        for path in merge:
            counts = session.merge(path)
            reporter.info(
                f"merged    {path}: {counts['added']:,} labels added, {counts['agreeing']:,} agree, "
                f"{counts['conflicts']:,} conflicts, which the page lists"
            )
        with StudioServer(session, port or 0, exports_path(journal)) as server:
            given = sum(name is not None for name in session.labels_)
            reporter.info(f"{session.n:,} rows, {given:,} labelled; answers are kept in {journal}")
            reporter.info(f"open      {server.address}")
            reporter.finish({"address": server.address, "rows": session.n, "labelled": given, "journal": journal})
            with _opened(None if no_browser else server.address):
                _serve(server)
    reporter.info(f"stopped; ldsu label {table} continues from {journal}")


def _serve(server: Any) -> None:
    """Serve until Ctrl-C."""
    thread = server.start()
    try:
        while thread.is_alive():
            thread.join(1)  # on Windows only a wait that ends is interrupted
    except KeyboardInterrupt:
        server.shutdown()


@contextmanager
def _opened(address: str | None) -> Iterator[None]:
    """Open a browser through a file that only this user can read: others see the commands that run, and the token."""
    if address is None:
        yield
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "ldsu-label.html"
        page.write_text(f'<meta http-equiv="refresh" content="0; url={address}"><a href="{address}">ldsu label</a>')
        threading.Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
        yield
