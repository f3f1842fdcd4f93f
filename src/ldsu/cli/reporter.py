"""Command output: messages and progress on standard error, data and JSON on standard output."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import groupby
from typing import Any

import click

from ldsu.cli.options import Command, console

# Adjacent similar columns are shown as one row from this number on.
MIN_GROUP = 4
# With more groups than this, similar columns are merged even if they are not adjacent.
MAX_GROUPS = 20


class Reporter:
    """Prints messages to the user.

    Parameters
    ----------
    quiet : bool
        Print only errors.
    as_json : bool
        Print one JSON object at the end, and before it only warnings.
    to_stdout : bool
        Print messages to standard output instead of standard error.
    """

    def __init__(self, quiet: bool, as_json: bool, to_stdout: bool = False) -> None:
        self.silent = quiet or as_json
        self.quiet = quiet
        self.as_json = as_json
        self.console = console(stderr=not to_stdout)

    def info(self, message: str) -> None:
        """Print a message, wrapped to the width of the terminal."""
        if not self.silent:
            # Lines are not wrapped in a log.
            self.console.print(printable(message), markup=False, soft_wrap=not self.console.is_terminal)

    def warn(self, message: str) -> None:
        """Print a warning, with `--json` too."""
        if not self.quiet:
            self.console.print(
                f"Warning: {printable(message)}", markup=False, style="yellow", soft_wrap=not self.console.is_terminal
            )

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
        """Print a table."""
        if self.silent:
            return
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        view = Table(box=SIMPLE_HEAD, pad_edge=False)
        for j, name in enumerate(header):
            view.add_column(name, justify="right" if j in right else "left", overflow="fold")
        for row in rows:
            view.add_row(*(Text(printable(str(cell))) for cell in row))
        self.console.print(view)

    @contextmanager
    def spinner(self, what: str) -> Iterator[Progress]:
        """Show a spinner with the current stage."""
        from ldsu._utils.stages import watching

        if self.silent:
            yield Progress(None)
            return
        from rich.text import Text

        with self.console.status(Text(printable(what))) as status, watching((progress := Progress(status, what)).watch):
            yield progress

    def finish(self, summary: dict[str, Any]) -> None:
        """Print the summary as JSON if `as_json`, paths as text."""
        if self.as_json:
            click.echo(json.dumps(summary, default=os.fspath))


def output_options(command: Command) -> Command:
    """Add `--quiet` and `--json` to a command, which takes the argument `reporter`."""

    @click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
    @click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output.")
    @wraps(command)
    def run(*, quiet: bool, as_json: bool, **options: Any) -> None:
        command(reporter=Reporter(quiet, as_json), **options)

    return run


class Progress:
    """Updates the text of a spinner."""

    def __init__(self, status: Any, what: str = "") -> None:
        self.status = status
        self.what = what

    def stage(self, name: str) -> None:
        """Show the name of a stage."""
        if self.status is not None:
            from rich.text import Text

            self.status.update(Text(printable(f"{self.what}: {name}" if self.what else name)))

    def watch(self, name: str, seconds: float | None) -> None:
        """Callback for stages of the library: `seconds` is None when a stage starts."""
        if seconds is None:
            self.stage(name)

    def images(self, done: int, total: int) -> None:
        """Show the number of images read."""
        self.stage(f"{done:,} of {total:,} images")


def printable(text: str) -> str:
    r"""Replace control characters in a text: column names come from files.

    >>> printable("size\x1b[31m")
    'size?[31m'
    """
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def group_columns(rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Merge similar rows of (column, kind, processing): adjacent rows, or all similar rows if there are many.

    Examples
    --------
    >>> group_columns([("a", "number", "scaled"), *((f"p{i}", "number", "x") for i in range(9))])
    [('a', 'number', 'scaled'), ('p0 ... p8 (9 columns)', 'number', 'x')]
    """
    groups = [list(members) for _, members in groupby(rows, key=lambda row: row[1:])]
    if len(groups) > MAX_GROUPS:
        first = {row[1:]: i for i, row in reversed(list(enumerate(rows)))}
        rows = sorted(rows, key=lambda row: first[row[1:]])
    out: list[tuple[str, str, str]] = []
    for (kind, done), members in groupby(rows, key=lambda row: row[1:]):
        names = [row[0] for row in members]
        if len(names) >= MIN_GROUP:
            out.append((f"{names[0]} ... {names[-1]} ({len(names):,} columns)", kind, done))
        else:
            out += [(name, kind, done) for name in names]
    return out


def format_size(size: int) -> str:
    """Format a number of bytes.

    >>> [format_size(n) for n in (300, 5000, 2_500_000, 3 * 2**30)]
    ['300 bytes', '5 kB', '2.5 MB', '3.2 GB']
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.0f} kB" if size >= 1000 else f"{size} bytes"
