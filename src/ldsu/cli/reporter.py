"""Command output: messages and progress on standard error, data and JSON on standard output."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from ldsu.cli.options import Command, console

if TYPE_CHECKING:
    from rich.console import Console

# Adjacent similar columns are shown as one row from this number on.
MIN_GROUP = 4
# Stages that took as many seconds are printed when they end.
LONG_STAGE = 20.0
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

    def __init__(self, quiet: bool = False, as_json: bool = False, to_stdout: bool = False) -> None:
        self.silent = quiet or as_json
        self.quiet = quiet
        self.as_json = as_json
        self.console = console(stderr=not to_stdout)

    def info(self, message: str) -> None:
        """Print a message, wrapped to the width of the terminal."""
        if not self.silent:
            self._print(message)

    def warn(self, message: str) -> None:
        """Print a warning, with `--json` too."""
        if not self.quiet:
            self._print(f"Warning: {message}", style="yellow")

    def _print(self, message: str, style: str | None = None) -> None:
        # Lines are not wrapped in a log.
        wrap = self.console.is_terminal
        self.console.print(printable(message), markup=False, style=style, soft_wrap=not wrap)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
        """Print a table."""
        if not self.silent:
            from rich.box import SIMPLE_HEAD

            print_table(self.console, header, rows, right, box=SIMPLE_HEAD)

    @contextmanager
    def spinner(self, what: str) -> Iterator[Callable[..., None]]:
        """Show a spinner with the current stage: that of the library, or the text that the result is called with."""
        if self.silent:
            yield lambda stage: None
            return
        from rich.text import Text

        from ldsu._utils.stages import format_duration, watching

        with self.console.status(Text(printable(what))) as status:

            def show(stage: str, seconds: float | None = None) -> None:
                if seconds is None:  # the stage starts
                    status.update(Text(printable(f"{what}: {stage}")))
                elif seconds >= LONG_STAGE:
                    self.info(f"{stage:9s} {format_duration(seconds)}")

            with watching(show):
                yield show

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


def print_table(
    out: Console,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    *,
    styles: Sequence[str] = (),
    **options: Any,
) -> None:
    """Print a table with some columns aligned to the right; styles of rows, and further options of rich's table."""
    from rich.table import Table
    from rich.text import Text

    view = Table(pad_edge=False, **{"box": None, **options})
    for j, name in enumerate(header):
        view.add_column(name, justify="right" if j in right else "left", overflow="fold")
    for row, style in zip(rows, styles or [""] * len(rows), strict=True):
        view.add_row(*(Text(printable(str(cell))) for cell in row), style=style)
    out.print(view)


def printable(text: str) -> str:
    r"""Replace control characters in a text: column names come from files.

    >>> printable("size\x1b[31m")
    'size?[31m'
    """
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def group_columns(rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Merge similar rows of (column, kind, processing): adjacent rows, or all similar rows if there are many.

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
            names = [f"{names[0]} ... {names[-1]} ({len(names):,} columns)"]
        out += [(name, kind, done) for name in names]
    return out
