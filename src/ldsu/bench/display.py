"""What a run says while it works: a live display, plain lines, JSON lines, or nothing but errors."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ldsu.bench.forecast import Progress, TaskProgress, in_words, left_in_words
from ldsu.bench.tasks import Task

if TYPE_CHECKING:
    from ldsu.bench.spec import Experiment
    from ldsu.bench.tasks import Summary


class Display:
    """Says nothing but errors; the others say more."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    def start(self, experiment: Experiment, path: Path, run: int, progress: Progress, threads: int) -> None:
        """The run starts."""

    def update(self, progress: Progress) -> None:
        """Time has passed. Called several times a second."""

    def task_done(self, task: Task, progress: TaskProgress, seconds: float) -> None:
        """A task is finished."""

    def note(self, sentence: str) -> None:
        """Something the user may want to know."""

    def error(self, sentence: str, task: Task | None = None) -> None:
        """Something went wrong."""
        print(f"Error: {sentence}", file=self.stream, flush=True)

    def end(self, progress: Progress, summary: Summary, path: Path) -> None:
        """The run is over."""


class Plain(Display):
    """A line now and then, for a log."""

    every = 30.0

    def start(self, experiment: Experiment, path: Path, run: int, progress: Progress, threads: int) -> None:
        """The run starts."""
        self.next = time.monotonic() + self.every
        self.say(opening(experiment, path, progress, threads))

    def update(self, progress: Progress) -> None:
        """A line if it is time."""
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + self.every
            doing = "; ".join(progress.doing.values())
            parts = [
                how_far(progress),
                in_words(progress.elapsed),
                left_in_words(progress.left),
                elsewhere(progress),
                doing,
            ]
            self.say(" | ".join(part for part in parts if part))

    def note(self, sentence: str) -> None:
        """The sentence."""
        self.say(sentence)

    def end(self, progress: Progress, summary: Summary, path: Path) -> None:
        """The run is over."""
        self.say(closing(summary, path))

    def say(self, line: str) -> None:
        """Write a line."""
        print(line, file=self.stream, flush=True)


class Live(Display):
    """A bar for all, and a line for each worker, that stay where they are (needs rich)."""

    def start(self, experiment: Experiment, path: Path, run: int, progress: Progress, threads: int) -> None:
        """Open the display."""
        from rich.console import Console
        from rich.live import Live as Screen
        from rich.spinner import Spinner

        self.console = Console(file=self.stream, highlight=False)
        self.console.print(opening(experiment, path, progress, threads), markup=False)
        self.progress = progress
        self.spinner = Spinner("dots", style="cyan")
        self.screen = Screen(console=self.console, refresh_per_second=4, transient=True, get_renderable=self.render)
        self.screen.start()

    def render(self) -> Any:
        """The display of this moment."""
        from rich.console import Group
        from rich.markup import escape
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        progress = self.progress
        head = Table.grid(padding=(0, 1))
        share = f"{100 * progress.done / max(progress.total, 1):3.0f}%"
        times = " · ".join(part for part in (in_words(progress.elapsed), left_in_words(progress.left)) if part)
        head.add_row(ProgressBar(progress.total, progress.done, width=24), share, how_far(progress), Text(times, "dim"))
        lines: list[Any] = [head]
        # This is called from a thread of its own: take what is there in one step.
        for _, doing in sorted(progress.doing.items()):
            idle = doing.startswith(("waiting", "starting"))
            line = Table.grid(padding=(0, 1))
            line.add_column(width=1)
            line.add_column(no_wrap=True, overflow="ellipsis")
            line.add_row(Text("·", "dim") if idle else self.spinner, f"[dim]{escape(doing)}" if idle else escape(doing))
            lines.append(line)
        if progress.elsewhere:
            lines.append(Text(f"  {elsewhere(progress)}", "dim"))
        return Group(*lines)

    def task_done(self, task: Task, progress: TaskProgress, seconds: float) -> None:
        """A line above the display."""
        self.console.print(
            f"[green]✓[/] {task.data}, split {task.split}: {progress.total:,} cells in {in_words(seconds)}"
        )

    def note(self, sentence: str) -> None:
        """A line above the display."""
        self.console.print(sentence, markup=False, style="yellow")

    def error(self, sentence: str, task: Task | None = None) -> None:
        """A red line above the display."""
        self.console.print(f"Error: {sentence}", markup=False, style="red")

    def end(self, progress: Progress, summary: Summary, path: Path) -> None:
        """Close the display and say how it went."""
        self.screen.stop()
        self.console.print(closing(summary, path), markup=False, style="green" if summary.exit_code == 0 else "yellow")


class Json(Display):
    """One JSON object a line on standard output."""

    every = 2.0

    def __init__(self) -> None:
        super().__init__(sys.stdout)

    def start(self, experiment: Experiment, path: Path, run: int, progress: Progress, threads: int) -> None:
        """Event ``start``."""
        self.next = time.monotonic() + self.every
        self.say(
            "start",
            experiment=experiment.name,
            store=str(path),
            run=run,
            tasks=len(progress.tasks),
            cells_done=progress.done,
            cells_total=progress.total,
            jobs=progress.jobs,
            threads=threads,
        )

    def update(self, progress: Progress) -> None:
        """Event ``progress`` if it is time."""
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + self.every
            self.say("progress", **figures(progress), doing=list(progress.doing.values()), elsewhere=progress.elsewhere)

    def task_done(self, task: Task, progress: TaskProgress, seconds: float) -> None:
        """Event ``task_done``."""
        self.say("task_done", data=task.data, split=task.split, cells=progress.total, seconds=round(seconds, 3))

    def note(self, sentence: str) -> None:
        """Event ``note``."""
        self.say("note", text=sentence)

    def error(self, sentence: str, task: Task | None = None) -> None:
        """Event ``error``."""
        where = {"data": task.data, "split": task.split} if task else {}
        self.say("error", error=sentence, **where)

    def end(self, progress: Progress, summary: Summary, path: Path) -> None:
        """Event ``end``."""
        self.say(
            "end",
            **figures(progress) | {"cells_done": summary.done},
            cells_failed=summary.failed,
            interrupted=summary.interrupted,
            exit_code=summary.exit_code,
        )

    def say(self, event: str, **details: Any) -> None:
        """Write a line."""
        print(json.dumps({"event": event, **details}), file=self.stream, flush=True)


def make_display(*, quiet: bool, json: bool) -> Display:
    """The display asked for; live on a terminal, if rich is there."""
    if json:
        return Json()
    if quiet:
        return Display()
    if sys.stderr.isatty():
        try:
            import rich  # noqa: F401

            return Live()
        except ImportError:
            pass
    return Plain()


def figures(progress: Progress) -> dict[str, Any]:
    """The figures of a run for a machine."""
    left = progress.left
    return {
        "cells_done": progress.done,
        "cells_total": progress.total,
        "cells_computed": progress.computed,
        "elapsed_s": round(progress.elapsed, 1),
        "left_s": None if left is None else round(left),
    }


def opening(experiment: Experiment, path: Path, progress: Progress, threads: int) -> str:
    """What is run where."""
    left = sum(not task.finished for task in progress.tasks.values())
    if not left:
        return f"{experiment.name}: all {progress.total:,} cells are in {path}."
    there = f", {progress.done:,} of them there already" if progress.done else ""
    workers = f"{_number(progress.jobs, 'worker')} with {_number(threads, 'thread')} each"
    return f"{experiment.name}: {progress.total:,} cells{there}; {workers}; results in {path}"


def how_far(progress: Progress) -> str:
    """Cells done of all."""
    failed = f", {progress.failed_cells:,} failed" if progress.failed_cells else ""
    return f"{progress.done:,} of {progress.total:,} cells{failed}"


def elsewhere(progress: Progress) -> str:
    """What other runs do."""
    return f"other runs work on {_number(progress.elsewhere, 'task')}" if progress.elsewhere else ""


def closing(summary: Summary, path: Path) -> str:
    """How it went, and what to do now."""
    took = f"{summary.computed:,} computed in {in_words(summary.seconds)}"
    if summary.lost:
        return f"No cell is kept ({took})."
    if summary.interrupted:
        return (
            f"Interrupted with {summary.done:,} of {summary.total:,} cells in {path} ({took}). "
            "Give the same command to continue."
        )
    if summary.exit_code == 0:
        return f"All {summary.total:,} cells are in {path} ({took})."
    parts = [f"{summary.done:,} of {summary.total:,} cells are in {path} ({took})."]
    if summary.failed:
        parts.append(f"{_number(summary.failed, 'cell')} failed; --retry tries them again.")
    if summary.errors:
        parts.append(f"{_number(len(summary.errors), 'error')} above; give the same command to try again.")
    return " ".join(parts)


def _number(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
