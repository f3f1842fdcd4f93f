"""What the commands share: help texts, errors in one sentence, and where words and data go."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

Command = Callable[..., None]
INTERRUPTED = "Interrupted."
# What the libraries map when they are loaded; most of it they never touch.
START_BYTES = 2**30
# How libraries say that memory ran out who do not raise a MemoryError.
SIGNS_OF_NO_MEMORY = (
    "failed to map segment",
    "cannot allocate memory",
    "Cannot allocate memory",
    "can't start new thread",
    "Failed to launch worker thread",
)


def examples(*lines: str) -> str:
    """The end of a help text; the first sign keeps click from filling the lines."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def console(stderr: bool = False) -> Console:
    """A terminal to print tables to."""
    from rich.console import Console

    return Console(highlight=False, stderr=stderr)


def force_option(command: Command) -> Command:
    """`--force`, for the commands that write files."""
    return click.option("--force", "-f", is_flag=True, help="Replace existing output files without asking.")(command)


def require_output(output: Path, force: bool, inputs: Sequence[Path] = ()) -> None:
    """Refuse an output before the work: over an input, in a folder that is not there, or over a file to be kept."""
    for path in inputs:
        if output.resolve() == path.resolve():
            raise ValueError(f"{output} is an input of this command. Choose another name for the output.")
    from ldsu.files import require_writable

    require_writable(output)
    if output.is_file():  # a device or a pipe is not replaced
        require_consent(f"{output} exists", force)


def require_folder(folder: Path) -> None:
    """Refuse a folder of outputs before the work, if it neither can be written nor be created in an existing folder."""
    from ldsu.files import require_writable

    require_writable(folder / "output" if folder.exists() else folder)


def require_consent(what: str, force: bool) -> None:
    """Ask whether to replace what exists, or refuse where nobody can answer."""
    if force:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise ValueError(f"{what}. Choose another name, or replace it with --force.")
    click.confirm(f"{what}. Replace it?", abort=True, err=True)


def require_device(device: str | None) -> None:
    """Refuse a device that this machine lacks, before the work."""
    if device not in (None, "cpu"):
        from ldsu.arrays import arrays_on

        arrays_on(device)


class OneSentenceGroup(click.Group):
    """A group whose commands end with one sentence where our code raises an error meant for the user."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Read the options; an interrupt ends this as it ends the command, and not by click's own code and word."""
        try:
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, io.TextIOWrapper):  # what its encoding lacks is escaped
                    stream.reconfigure(errors="backslashreplace")
            return super().make_context(*args, **options)
        except KeyboardInterrupt:
            click.echo(INTERRUPTED, err=True)
            raise click.exceptions.Exit(130) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; code 2 for what was asked wrongly, 1 for what the machine refused."""
        try:
            _require_room_to_start()
            result = super().invoke(ctx)
            sys.stdout.flush()  # what a full disk refuses is refused here, and not when the interpreter ends
            return result
        except (ValueError, OSError, MemoryError, ImportError, RuntimeError) as error:
            sentence = _sentence(error)
            if sentence is None or ctx.params.get("debug"):
                raise
            click.echo(f"Error: {sentence}", err=True)
            _drop_output()
            ctx.exit(2 if isinstance(error, ValueError) else 1)
        except KeyboardInterrupt:
            click.echo(INTERRUPTED, err=True)
            ctx.exit(130)


def _sentence(error: Exception) -> str | None:
    """What an error says to the user, or None if it is not meant for the user but is raised on."""
    said = str(error)
    own_words = type(error) is MemoryError and said
    if not own_words and (
        isinstance(error, MemoryError)
        or getattr(error, "errno", None) == errno.ENOMEM
        or any(sign in said for sign in SIGNS_OF_NO_MEMORY)
    ):
        why = " ".join(said.split()) or "memory ran out"
        return f"{why.rstrip('.')}. Close other programs, raise the memory limit (ulimit -v), or take fewer rows."
    if isinstance(error, (BrokenPipeError, RuntimeError)):  # a reader gone, click's own exits, faults of ours
        return None
    if isinstance(error, ImportError):
        return said if "pip install" in said else None
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        advice = " Free some space, or write to another disk." if error.errno == errno.ENOSPC else ""
        return f"{where}{error.strerror}.{advice}"
    return said or type(error).__name__


def _drop_output() -> None:
    """Forget what standard output does not take: the interpreter would try once more, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _require_room_to_start() -> None:
    """Refuse to start under a limit (`ulimit -v`) where numerical libraries would crash or hang when loaded."""
    try:
        import resource
    except ImportError:  # Windows knows no such limit
        return
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        from ldsu.memory import require_memory

        # Arrow's own pool sets a gigabyte aside that nobody else gets then.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        require_memory(START_BYTES, "The command", "Raise the memory limit (ulimit -v), or use a larger machine.")
