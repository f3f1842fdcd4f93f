"""Shared by the commands: help texts, output checks and error handling."""

from __future__ import annotations

import ast
import errno
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

Command = Callable[..., None]
INTERRUPTED = "Interrupted."
# Address space that the libraries map when loaded; most of it is never used.
STARTUP_BYTES = 2**30
# Messages of libraries that run out of memory without raising a MemoryError.
OUT_OF_MEMORY_MESSAGES = (
    "failed to map segment",
    "cannot allocate memory",
    "Cannot allocate memory",
    "can't start new thread",
    "Failed to launch worker thread",
)


def examples(*lines: str) -> str:
    """Examples for the end of a help text; the backspace keeps click from rewrapping the lines."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def command(*lines: str) -> Callable[[Command], click.Command]:
    """A click command with examples at the end of its help text."""
    return click.command(epilog=examples(*lines))


def console(stderr: bool = False) -> Console:
    """A rich console on standard output or standard error."""
    from rich.console import Console

    return Console(highlight=False, stderr=stderr)


# Types of arguments and options, and options of several commands.
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
INPUT = click.Path(path_type=Path)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show the plan and exit.")
force_option = click.option("--force", "-f", is_flag=True, help="Replace existing output files without asking.")
jobs_option = click.option(
    "--jobs", "-j", type=click.IntRange(min=1), help="Worker processes.  [default: number of cores]"
)


def documented_option(
    name: str, module: str, *, help: str, parameter: str = "", values: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """An option with the values (or only `values`) and the default of a parameter that is documented in a module.

    They are read from the docstring in the source, ``name : {values}, default=value``: help and completion do not wait
    for the import of the numerical libraries.
    """
    source = files("ldsu").joinpath(module).read_text(encoding="utf-8")
    line = rf"^ *{parameter or name.removeprefix('--')} : {{(.*)}}, default=(.*)$"
    (documented,) = re.findall(line, source, re.MULTILINE)
    allowed, default = ast.literal_eval("[{}], {}".format(*documented))
    return click.option(name, type=click.Choice(values or allowed), default=default, help=help, show_default=True)


def require_output(output: Path, force: bool, inputs: Sequence[Path] = ()) -> None:
    """Check an output path early: not an input, in an existing folder, and not an existing file without consent."""
    for path in inputs:
        if output.resolve() == path.resolve():
            raise ValueError(f"{output} is an input of this command. Choose another name for the output.")
    from ldsu._utils.files import require_writable

    require_writable(output)
    if output.is_file():  # devices and pipes are not replaced
        require_consent(f"{output} exists", force)


def require_folder(folder: Path) -> None:
    """Check early that an output folder is writable, or can be created in an existing folder."""
    from ldsu._utils.files import require_writable

    require_writable(folder / "output" if folder.exists() else folder)


def require_consent(what: str, force: bool) -> None:
    """Ask whether to replace existing files; raise an error if standard input is not a terminal."""
    if force:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise ValueError(f"{what}. Choose another name, or replace it with --force.")
    click.confirm(f"{what}. Replace it?", abort=True, err=True)


def require_device(device: str | None) -> None:
    """Check early that a device is available."""
    if device not in (None, "cpu"):
        from ldsu._utils.arrays import arrays_on

        arrays_on(device)


class ErrorHandlingGroup(click.Group):
    """A command group that prints expected errors as one message instead of a traceback."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Parse the options; an interrupt exits as it does during the command, not with click's code and message."""
        try:
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, io.TextIOWrapper):  # escape characters that the encoding lacks
                    stream.reconfigure(errors="backslashreplace")
            return super().make_context(*args, **options)
        except KeyboardInterrupt:
            click.echo(INTERRUPTED, err=True)
            raise click.exceptions.Exit(130) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; exit code 2 for invalid input, 1 for failures of the machine (memory, disk)."""
        try:
            _require_startup_memory()
            result = super().invoke(ctx)
            sys.stdout.flush()  # raise errors of a full disk here, not at interpreter shutdown
            return result
        except (ValueError, OSError, MemoryError, ImportError, RuntimeError) as error:
            message = _error_message(error)
            if message is None or ctx.params.get("debug"):
                raise
            click.echo(f"Error: {message}", err=True)
            _discard_output()
            ctx.exit(2 if isinstance(error, ValueError) else 1)
        except KeyboardInterrupt:
            click.echo(INTERRUPTED, err=True)
            ctx.exit(130)


def _error_message(error: Exception) -> str | None:
    """The message of an error for the user, or None if the error is to be re-raised."""
    message = str(error)
    has_message = type(error) is MemoryError and message
    if not has_message and (
        isinstance(error, MemoryError)
        or getattr(error, "errno", None) == errno.ENOMEM
        or any(text in message for text in OUT_OF_MEMORY_MESSAGES)
    ):
        why = " ".join(message.split()) or "out of memory"
        return f"{why.rstrip('.')}. Close other programs, raise the memory limit (ulimit -v), or use fewer rows."
    if isinstance(error, (BrokenPipeError, RuntimeError)):  # closed pipes, click's exits, internal errors
        return None
    if isinstance(error, ImportError):
        return message if "pip install" in message else None
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        advice = " Free disk space, or write to another disk." if error.errno == errno.ENOSPC else ""
        return f"{where}{error.strerror}.{advice}"
    return message or type(error).__name__


def _discard_output() -> None:
    """Discard unwritable standard output: the interpreter would retry at shutdown and print an error."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _require_startup_memory() -> None:
    """Raise an error under a memory limit (`ulimit -v`) too low to load the numerical libraries without a crash."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        from ldsu._utils.memory import require_memory

        # Arrow's default pool reserves a gigabyte of address space.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        require_memory(STARTUP_BYTES, "The command", "Raise the memory limit (ulimit -v), or use a larger machine.")
