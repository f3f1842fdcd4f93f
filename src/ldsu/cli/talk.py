"""How a command speaks: words and progress to standard error, data and JSON to standard output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import click

from ldsu.cli.options import console

# Columns alike that stand side by side are shown as one from this many on.
ALIKE = 4
# More groups of neighbours than this are too long to read: columns alike are then taken together from anywhere.
MANY = 20


class Talk:
    """Says things to the user, unless asked not to.

    Parameters
    ----------
    quiet : bool
        Say nothing but errors.
    as_json : bool
        Say nothing either, and print one JSON object in the end.
    to_stdout : bool
        What is said is the answer itself.
    """

    def __init__(self, quiet: bool, as_json: bool, to_stdout: bool = False) -> None:
        self.silent = quiet or as_json
        self.quiet = quiet
        self.as_json = as_json
        self.console = console(stderr=not to_stdout)

    def say(self, sentence: str) -> None:
        """A line, folded to the width of the terminal."""
        if not self.silent:
            # In a log a line stays a line.
            self.console.print(printable(sentence), markup=False, soft_wrap=not self.console.is_terminal)

    def warn(self, sentence: str) -> None:
        """Something that may be wrong; said even with `--json`, to standard error."""
        if not self.quiet:
            self.console.print(
                f"Warning: {printable(sentence)}", markup=False, style="yellow", soft_wrap=not self.console.is_terminal
            )

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
        """Rows under a header."""
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
    def working(self, what: str) -> Iterator[Progress]:
        """Show that something is going on, and which stage of it."""
        from ldsu._utils.stages import watching

        if self.silent:
            yield Progress(None)
            return
        from rich.text import Text

        with self.console.status(Text(printable(what))) as status, watching((progress := Progress(status, what)).watch):
            yield progress

    def finish(self, summary: dict[str, Any]) -> None:
        """The summary as JSON, where that was asked for."""
        if self.as_json:
            click.echo(json.dumps(summary))


class Progress:
    """Tells a spinning line what is being done."""

    def __init__(self, status: Any, what: str = "") -> None:
        self.status = status
        self.what = what

    def stage(self, name: str) -> None:
        """A stage begins."""
        if self.status is not None:
            from rich.text import Text

            self.status.update(Text(printable(f"{self.what}: {name}" if self.what else name)))

    def watch(self, name: str, seconds: float | None) -> None:
        """A stage of the library begins, or ends after some seconds."""
        if seconds is None:
            self.stage(name)

    def images(self, done: int, total: int) -> None:
        """Images were read."""
        self.stage(f"{done:,} of {total:,} images")


def printable(text: str) -> str:
    r"""A text without signs that would steer the terminal: names of columns come from files.

    >>> printable("size\x1b[31m")
    'size?[31m'
    """
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


def grouped(rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Rows of (column, kind, what is done), with neighbours alike taken together, or all alike where there are many.

    Examples
    --------
    >>> grouped([("a", "number", "scaled"), *((f"p{i}", "number", "x") for i in range(9))])
    [('a', 'number', 'scaled'), ('p0 ... p8 (9 columns)', 'number', 'x')]
    """
    neighbours = [list(members) for _, members in groupby(rows, key=lambda row: row[1:])]
    if len(neighbours) > MANY:
        first = {row[1:]: i for i, row in reversed(list(enumerate(rows)))}
        rows = sorted(rows, key=lambda row: first[row[1:]])
    out: list[tuple[str, str, str]] = []
    for (kind, done), members in groupby(rows, key=lambda row: row[1:]):
        names = [row[0] for row in members]
        if len(names) >= ALIKE:
            out.append((f"{names[0]} ... {names[-1]} ({len(names):,} columns)", kind, done))
        else:
            out += [(name, kind, done) for name in names]
    return out


def size_in_words(size: int) -> str:
    """Bytes as one says them.

    >>> [size_in_words(n) for n in (300, 5000, 2_500_000, 3 * 2**30)]
    ['300 bytes', '5 kB', '2.5 MB', '3.2 GB']
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.0f} kB" if size >= 1000 else f"{size} bytes"
