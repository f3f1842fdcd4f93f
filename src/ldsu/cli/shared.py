"""What the commands share: help texts, errors in one sentence, and where words and data go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console


def examples(*lines: str) -> str:
    """The end of a help text; the first sign keeps click from filling the lines."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def console(stderr: bool = False) -> Console:
    """A terminal to print tables to."""
    from rich.console import Console

    return Console(highlight=False, stderr=stderr)


class OneSentenceGroup(click.Group):
    """A group whose commands end with one sentence where our code raises an error meant for the user."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; code 2 for what was asked wrongly, 1 for what the machine refused."""
        try:
            return super().invoke(ctx)
        except (ValueError, OSError, MemoryError, ModuleNotFoundError) as error:
            wrong_module = isinstance(error, ModuleNotFoundError) and "pip install" not in str(error)
            if wrong_module or isinstance(error, BrokenPipeError) or ctx.params.get("debug"):
                raise
            sentence = str(error) or type(error).__name__
            click.echo(f"Error: {sentence}", err=True)
            ctx.exit(2 if isinstance(error, ValueError) else 1)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(130)
