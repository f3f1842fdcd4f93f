"""`ldsu bench`: experiments, from a TOML file to a report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ldsu.cli.options import (
    FILE,
    FOLDER,
    console,
    examples,
    force_option,
    jobs_option,
    require_consent,
    require_device,
    require_folder,
    require_output,
)
from ldsu.cli.reporter import print_table

if TYPE_CHECKING:
    from ldsu.bench.spec import Experiment
    from ldsu.bench.store import Store


store_option = click.option("--store", "store_path", type=FILE, help="Results file.  [default: runs/NAME.sqlite]")


@click.group()
def bench() -> None:
    """Run experiments, show their progress, report their results."""


@bench.command(
    "run",
    epilog=examples(
        "ldsu bench run experiments/table1-quick.toml",
        "ldsu bench run table1 --jobs 4",
        "ldsu bench run table1 --only usps --only yaleb/log:0",
        'ldsu bench run table1 --only "LDSU truncate"',
        "ldsu bench run table1 --dask tcp://192.0.2.7:8786",
    ),
)
@click.argument("file")
@store_option
@jobs_option
@click.option("--only", multiple=True, metavar="KEY", help="A data set (usps), a split of it (usps:0) or a method.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Where large matrices are decomposed.  [default: cpu]"
)
@click.option("--dask", metavar="ADDRESS", help="Compute on the Dask cluster of the scheduler at this address.")
@click.option("--retry", is_flag=True, help="Retry cells that ended with an error.")
@click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
@click.option("--json", is_flag=True, help="Print events as JSON, one per line.")
def bench_run(file: str, store_path: Path | None, device: str | None, dask: str | None, **options: Any) -> None:
    """Compute the missing cells of an experiment.

    FILE is a TOML file, or the name of one in ./experiments. After an interruption (Ctrl-C, power loss) the
    same command continues where it stopped. Several runs on one machine may share one store; a run that finds all tasks
    claimed waits for the others. On several machines, use one store per machine and join them with `ldsu bench merge`,
    or compute on a Dask cluster (--dask), whose workers need ldsu and the data sets, but not the store.

    Exit code: 0 all cells computed, 1 some failed, 2 usage error, 130 interrupted.
    """
    experiment = _experiment(file)
    require_device(None if dask else device)
    from ldsu.bench import runner

    store_path = store_path or runner.default_store(experiment.name)
    command = ["ldsu", *sys.argv[1:]]
    sys.exit(runner.run(experiment, store_path, device=device, dask=dask, command=command, **options).exit_code)


@bench.command(
    "status",
    epilog=examples(
        "ldsu bench status",
        "ldsu bench status table1-quick",
        "ldsu bench status --store elsewhere/table1.sqlite --json",
    ),
)
@click.argument("file", required=False)
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench_status(file: str | None, store_path: Path | None, as_json: bool) -> None:
    """Show the progress of an experiment, or without FILE of all experiments under ./runs."""
    from ldsu.bench.status import status_of_store, status_of_stores

    if file is not None:
        # Only the name is needed: this avoids importing the libraries that read the experiment.
        store_path = store_path or Path("runs") / f"{_find_experiment(file).stem}.sqlite"
    elif store_path is None:
        stores = sorted(Path("runs").glob("*.sqlite"))
        if not stores:
            raise click.UsageError("No store found under ./runs; create one with `ldsu bench run FILE`.")
        _print_status(status_of_stores(stores), as_json, f"Stores under {Path('runs').resolve().name}/")
        return
    from ldsu.bench.store import Store

    with Store(store_path, read_only=True) as store:
        _print_status(status_of_store(store), as_json, f"{store.meta('experiment') or 'empty'}: {store.path}")
        if not as_json:
            _print_running(store)


@bench.command("merge", epilog=examples("ldsu bench merge table1 elsewhere/usps.sqlite elsewhere/faces.sqlite"))
@click.argument("file")
@click.argument("stores", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@store_option
def bench_merge(file: str, stores: tuple[Path, ...], store_path: Path | None) -> None:
    """Add the cells of other stores with the same protocol to the store of an experiment.

    Existing cells are kept, unless they hold an error and the other store has a score. Cells of data sets that are not
    in the experiment are skipped. Costs of single fits are not copied: they are times of another machine, and
    `ldsu bench run` measures them on this machine.
    """
    experiment = _experiment(file)
    from importlib import import_module

    from ldsu.bench import runner
    from ldsu.bench.status import CellGrid, survey
    from ldsu.bench.store import Store

    with Store(store_path or runner.default_store(experiment.name)) as store:
        store.bind(experiment.name, experiment.path.read_text(encoding="utf-8"), runner.protocol(experiment))
        for path in stores:
            with Store(path, read_only=True) as other:
                added = store.merge(other, [spec.key for spec in experiment.data])
            click.echo(f"{added:,} cells from {path}")
        survey(store, CellGrid(experiment, import_module(runner.ENGINE)))


@bench.command("export", epilog=examples("ldsu bench export table1-quick -o rows.csv"))
@click.argument("file")
@store_option
@click.option("--output", "-o", type=FILE, required=True, help="CSV file.")
@force_option
def bench_export(file: str, store_path: Path | None, output: Path, force: bool) -> None:
    """Write all rows of an experiment to a CSV file, one per cell, with scores, times and memory."""
    name = _find_experiment(file).stem
    require_output(output, force)
    from ldsu.bench.store import Store

    with Store(store_path or Path("runs") / f"{name}.sqlite", read_only=True) as store:
        click.echo(f"{store.export_csv(output):,} rows in {output}")


@bench.command("report", epilog=examples("ldsu bench report table1-quick --out report"))
@click.argument("file")
@store_option
@click.option("--out", type=FOLDER, help="Folder.  [default: runs/NAME]")
@click.option(
    "--pictures/--no-pictures", default=True, help="Draw 2-D plots of the features; takes minutes the first time."
)
@force_option
def bench_report(file: str, store_path: Path | None, out: Path | None, pictures: bool, force: bool) -> None:
    """Write the report of an experiment: HTML, Markdown, CSV and LaTeX.

    It can be written at any time; missing results are omitted. An earlier report of the same experiment is replaced.
    """
    experiment = _experiment(file)
    from ldsu.bench import report, runner
    from ldsu.bench.store import Store, is_writable

    store_path = store_path or runner.default_store(experiment.name)
    if out is not None:
        require_folder(out)
    out = out or runner.default_store(experiment.name).with_suffix("")
    existing = [out / name for name in report.FILES.values() if (out / name).exists()]
    if existing and not report.is_report_of(experiment, out):
        require_consent(f"{existing[0]} exists and does not belong to a report of this experiment", force)
    # Pictures are cached in the store if it is writable.
    with Store(store_path, create=False, read_only=not (pictures and is_writable(store_path))) as store:
        with console(stderr=True).status("") as status:
            written = report.write_report(experiment, store, out, pictures=pictures, progress=status.update)
        report.print_table(experiment, store, console())
    for what, path in written.items():
        click.echo(f"{what:<10} {path}")


def _find_experiment(file: str) -> Path:
    """The path of an experiment file, or of the file with that name under ./experiments."""
    for path in (Path(file), Path("experiments") / f"{file}.toml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in Path("experiments").glob("*.toml")))
    hint = f"./experiments has {known}" if known else "the folder ./experiments does not exist"
    raise click.UsageError(f"Experiment {file} not found; {hint}.")


def _experiment(file: str) -> Experiment:
    path = _find_experiment(file)
    from ldsu.bench.experiment_file import load_experiment

    return load_experiment(path)


def _print_status(rows: Iterable[dict[str, Any]], as_json: bool, title: str) -> None:
    rows = list(rows)
    if as_json:
        click.echo(json.dumps(rows))
        return
    from rich.text import Text

    from ldsu._utils.stages import format_duration

    header = (next(iter(rows[0])) if rows else "data", "cells", "", "failed", "running", "last written")
    cells, styles = [], []
    for row in rows:
        done, total = row["done"], row["total"]
        counts = (f"{done:,} / {total:,}", f"{100 * done // total}%") if total else (f"{done:,}", "")
        written = row["last_written"]
        ago = "" if written is None else f"{format_duration(max(0.0, time.time() - written))} ago"
        cells.append((next(iter(row.values())), *counts, f"{row['failed']:,}", row["running"], ago))
        styles.append("green" if total and done >= total and not row["failed"] else "")
    options = {"title": Text(title), "title_justify": "left", "title_style": "bold"}
    print_table(console(), header, cells, range(1, 6), styles=styles, **options)


def _print_running(store: Store) -> None:
    out = console()
    for claim in store.live_claims():
        doing = f": {claim.doing}" if claim.doing else ""
        split = f", split {claim.task.split}" if claim.task.split >= 0 else ""
        out.print(f"running {claim.task.data}{split}{doing}", markup=False)
    runs = store.runs()
    failures = [f for f in store.failures(runs[-1]["id"]) if f["final"]] if runs else []
    for failure in failures:
        last = failure["error"].strip().splitlines()[-1]
        out.print(f"failed {failure['data']}, split {failure['split']}: {last}", markup=False, style="red")
