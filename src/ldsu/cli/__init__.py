"""The command line. Slow imports are deferred to the command that needs them."""

from __future__ import annotations

from importlib.util import find_spec

import click

from ldsu import __version__
from ldsu.cli.bench import bench
from ldsu.cli.compare import compare
from ldsu.cli.completion import completion
from ldsu.cli.data import data
from ldsu.cli.fit_predict import export, fit, inspect, predict, transform
from ldsu.cli.label import label
from ldsu.cli.options import ErrorHandlingGroup, examples

if find_spec("rich") is None:
    raise ModuleNotFoundError("No module named 'rich'", name="rich")


@click.group(
    cls=ErrorHandlingGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    epilog=examples(
        "ldsu fit table.csv --label species -o model.ldsu",
        "ldsu predict model.ldsu table.csv -o labels.csv",
        "ldsu label table.csv",
        "ldsu compare table.csv --label species --out comparison",
        "ldsu bench run table1-quick",
    ),
)
@click.version_option(__version__, prog_name="ldsu", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def cli(debug: bool) -> None:
    """Label many rows from a few: fit a model to your table, apply it, compare methods, repeat experiments."""


for command in (fit, predict, transform, inspect, label, compare, export, completion, bench, data):
    cli.add_command(command)
