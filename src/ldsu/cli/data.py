"""`ldsu data`: public data sets."""

from __future__ import annotations

import click

from ldsu.cli.options import console, examples
from ldsu.cli.reporter import print_table


@click.group()
def data() -> None:
    """List and fetch public data sets."""


@data.command("list")
def data_list() -> None:
    """List the data sets with size, preprocessings and licence."""
    from ldsu.datasets import DATASETS

    rows = [
        (name, f"{sum(info.class_sizes):,}", str(len(info.class_sizes)), ", ".join(info.preprocessings), info.licence)
        for name, info in DATASETS.items()
    ]
    print_table(console(), ("name", "samples", "classes", "preprocessings", "licence"), rows, right=(1, 2))


@data.command("fetch", epilog=examples("ldsu data fetch usps umist"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def data_fetch(names: tuple[str, ...]) -> None:
    """Load data sets, downloading those that are neither in LDSU_DATA nor in the cache."""
    from ldsu.datasets import DATASETS, load

    unknown = [name for name in names if name not in DATASETS]
    if unknown:
        raise ValueError(f"Unknown data set {unknown[0]!r}. Available: {', '.join(DATASETS)}.")
    for name in names:
        dataset = load(name)
        click.echo(f"{name}: {len(dataset.y):,} samples of {len(dataset.classes)} classes")
