"""Progress output of a run: a live display, plain lines, JSON lines, or only errors."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from ldsu._utils.stages import format_duration
from ldsu.bench.progress import Progress, TaskProgress, format_time_left
from ldsu.bench.tasks import Task

if TYPE_CHECKING:
    from ldsu.bench.spec import Experiment


class Display:
    """Prints only errors; base class of the other displays, which override `show` and `show_progress`."""

    # Seconds between two calls of `show_progress`.
    interval = math.inf

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    def start(self, experiment: Experiment, path: Path, run: int, progress: Progress, threads: int) -> None:
        """The run starts."""
        self.next = time.monotonic() + self.interval
        self.show(
            "start",
            start_message(experiment, path, progress, threads),
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
        """Show the progress if the interval has passed. Called several times a second."""
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + self.interval
            self.show_progress(progress)

    def task_done(self, task: Task, progress: TaskProgress, seconds: float) -> None:
        """A task is finished."""
        text = f"✓ {task}: {progress.total:,} cells in {format_duration(seconds)}"
        self.show("task_done", text, data=task.data, split=task.split, cells=progress.total, seconds=round(seconds, 3))

    def note(self, message: str) -> None:
        """Print a note."""
        self.show("note", message, text=message)

    def error(self, message: str, task: Task | None = None) -> None:
        """Print an error."""
        where = {"data": task.data, "split": task.split} if task else {}
        self.show("error", f"Error: {message}", error=message, **where)

    def end(self, progress: Progress, path: Path) -> None:
        """The run ends."""
        self.show(
            "end",
            end_message(progress, path),
            **progress_fields(progress),
            cells_failed=progress.failed,
            interrupted=progress.interrupted,
            exit_code=progress.exit_code,
        )

    def show(self, event: str, message: str, **details: Any) -> None:
        """Print an event: its name, a message for people, and details for programs."""
        if event == "error":
            print(message, file=self.stream, flush=True)

    def show_progress(self, progress: Progress) -> None:
        """Print the progress."""


class Plain(Display):
    """A line at intervals, for a log."""

    interval = 30.0

    def show(self, event: str, message: str, **details: Any) -> None:
        """Print a line, but not for every task."""
        if event != "task_done":
            print(message, file=self.stream, flush=True)

    def show_progress(self, progress: Progress) -> None:
        """Print a line."""
        times = format_duration(progress.elapsed), format_time_left(progress.left)
        others, doing = describe_other_runs(progress), "; ".join(progress.doing.values())
        self.show("progress", " | ".join(filter(None, (describe_progress(progress), *times, others, doing))))


class Live(Display):
    """A progress bar and a line per worker, updated in place (needs rich)."""

    styles: ClassVar = {"note": "yellow", "error": "red"}

    def start(self, experiment: Experiment, path: Path, run: int, progress: Progress, threads: int) -> None:
        """Open the display."""
        from rich.console import Console
        from rich.live import Live as RichLive
        from rich.spinner import Spinner

        self.console = Console(file=self.stream, highlight=False)
        super().start(experiment, path, run, progress, threads)
        self.progress = progress
        self.spinner = Spinner("dots", style="cyan")
        self.live = RichLive(console=self.console, refresh_per_second=4, transient=True, get_renderable=self.render)
        self.live.start()

    def render(self) -> Any:
        """The current state of the display."""
        from rich.console import Group
        from rich.markup import escape
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        progress = self.progress
        head = Table.grid(padding=(0, 1))
        share = f"{100 * progress.done / max(progress.total, 1):3.0f}%"
        times = " · ".join(filter(None, (format_duration(progress.elapsed), format_time_left(progress.left))))
        bar = ProgressBar(progress.total, progress.done, width=24)
        head.add_row(bar, share, describe_progress(progress), Text(times, "dim"))
        lines: list[Any] = [head]
        # Called from another thread: copy the items in one step.
        for _, doing in sorted(progress.doing.items()):
            idle = doing.startswith(("waiting", "starting"))
            line = Table.grid(padding=(0, 1))
            line.add_column(width=1)
            line.add_column(no_wrap=True, overflow="ellipsis")
            line.add_row(Text("·", "dim") if idle else self.spinner, f"[dim]{escape(doing)}" if idle else escape(doing))
            lines.append(line)
        if progress.other_tasks:
            lines.append(Text(f"  {describe_other_runs(progress)}", "dim"))
        return Group(*lines)

    def show(self, event: str, message: str, **details: Any) -> None:
        """Print a line above the display; the last one in its place."""
        from rich.text import Text

        style = self.styles.get(event)
        if event == "end":
            self.live.stop()
            style = "yellow" if details["exit_code"] else "green"
        text = Text(message, style or "")
        if event == "task_done":
            text.stylize("green", 0, 1)
        self.console.print(text)


class Json(Display):
    """One JSON object per line on standard output."""

    interval = 2.0

    def __init__(self) -> None:
        super().__init__(sys.stdout)

    def show(self, event: str, message: str, **details: Any) -> None:
        """Print the event."""
        print(json.dumps({"event": event, **details}), file=self.stream, flush=True)

    def show_progress(self, progress: Progress) -> None:
        """Print the event ``progress``."""
        doing = list(progress.doing.values())
        self.show("progress", "", **progress_fields(progress), doing=doing, elsewhere=progress.other_tasks)


def make_display(*, quiet: bool, json: bool) -> Display:
    """The requested display; live on a terminal if rich is installed."""
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


def progress_fields(progress: Progress) -> dict[str, Any]:
    """Progress of a run as JSON fields."""
    left = progress.left
    return {
        "cells_done": progress.done,
        "cells_total": progress.total,
        "cells_computed": progress.computed,
        "elapsed_s": round(progress.elapsed, 1),
        "left_s": None if left is None else round(left),
    }


def start_message(experiment: Experiment, path: Path, progress: Progress, threads: int) -> str:
    """The first message of a run."""
    if all(task.finished for task in progress.tasks.values()):
        return f"{experiment.name}: all {progress.total:,} cells are in {path}."
    existing = f", {progress.done:,} of them already computed" if progress.done else ""
    workers = f"{_number(progress.jobs, 'worker')} with {_number(threads, 'thread')} each"
    return f"{experiment.name}: {progress.total:,} cells{existing}; {workers}; results in {path}"


def describe_progress(progress: Progress) -> str:
    """Number of cells done, in total and failed."""
    failed = f", {progress.failed:,} failed" if progress.failed else ""
    return f"{progress.done:,} of {progress.total:,} cells{failed}"


def describe_other_runs(progress: Progress) -> str:
    """Tasks of other runs."""
    return f"other runs are computing {_number(progress.other_tasks, 'task')}" if progress.other_tasks else ""


def end_message(progress: Progress, path: Path) -> str:
    """The last message of a run: outcome and remedy."""
    duration = f"{progress.computed:,} computed in {format_duration(progress.elapsed)}"
    present = f"{progress.done:,} of {progress.total:,} cells"
    if progress.lost:
        return f"No cells were saved ({duration})."
    if progress.interrupted:
        return f"Interrupted with {present} in {path} ({duration}). Run the same command to continue."
    if progress.exit_code == 0:
        return f"All {progress.total:,} cells are in {path} ({duration})."
    parts = [f"{present} are in {path} ({duration})."]
    if progress.failed:
        parts.append(f"{_number(progress.failed, 'cell')} failed; use --retry to compute them again.")
    if progress.errors:
        parts.append(f"{_number(len(progress.errors), 'error')} above; run the same command to try again.")
    return " ".join(parts)


def _number(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
