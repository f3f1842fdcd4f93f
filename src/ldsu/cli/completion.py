"""`ldsu completion`: the shell completion script for commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ldsu.cli.options import command


@command(
    "ldsu completion bash > ~/.local/share/bash-completion/completions/ldsu",
    "ldsu completion zsh > ~/.zfunc/_ldsu",
    "ldsu completion fish > ~/.config/fish/completions/ldsu.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL for commands, options and file names."""
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "ldsu", "_LDSU_COMPLETE").source())
