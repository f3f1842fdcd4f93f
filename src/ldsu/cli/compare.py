"""`ldsu compare`: all methods on a user table, under the few-label protocol."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ldsu.cli.fit_predict import base_name, read_task, table_options
from ldsu.cli.options import (
    FOLDER,
    INPUT,
    command,
    dry_run_option,
    force_option,
    jobs_option,
    require_consent,
    require_folder,
)
from ldsu.cli.reporter import Reporter, output_options


@command(
    "ldsu compare digits.csv --label digit --out comparison",
    "ldsu compare table.csv --label species --repetitions 10 --out comparison",
    "ldsu compare table.csv --label species --dry-run",
)
@click.argument("table", type=INPUT)
@table_options
@click.option("--out", type=FOLDER, help="Report folder.  [default: TABLE-comparison]")
@click.option(
    "--repetitions", type=click.IntRange(2), default=5, help="Random splits of the labelled rows.", show_default=True
)
@click.option(
    "--rows",
    type=click.IntRange(50),
    default=2000,
    help="Maximum number of rows, labelled rows first.",
    show_default=True,
)
@jobs_option
@dry_run_option
@force_option
@output_options
def compare(
    table: Path,
    out: Path | None,
    repetitions: int,
    rows: int,
    jobs: int | None,
    dry_run: bool,
    force: bool,
    reporter: Reporter,
    **options: Any,
) -> None:
    """Compare all methods on the labelled rows of TABLE, and write a report.

    Half of the labelled rows are held out for testing, several times; the methods see a few labels per class of the
    other half and all unlabelled rows. The folder contains index.html, the table as Markdown, CSV and LaTeX, and an
    experiment file for `ldsu bench run`. After an interruption the same command continues where it stopped.

    Exit code: 0 done, 1 some method failed, 2 invalid table or options, 130 interrupted.
    """
    out = out or Path(f"{base_name(table)}-comparison")
    if not dry_run:
        require_folder(out)
    task = read_task(reporter, table, **options)
    from ldsu.bench.owndata import STORE, conflicting_file, plan_comparison, write_comparison

    plan = plan_comparison(task, repetitions=repetitions, rows=rows)
    for note in (*task.table.notes, *task.notes, *task.encoder.notes, *plan.notes):
        reporter.info(note)
    reporter.info(
        f"{len(plan.y):,} rows, {int((plan.y >= 0).sum()):,} labelled, {len(plan.classes)} classes; {repetitions} "
        f"splits, {' and '.join(map(str, plan.labels))} labels per class, {len(plan.methods)} methods"
    )
    summary: dict[str, Any] = {
        "table": table,
        "rows": len(plan.y),
        "labelled": task.counts,
        "labels_per_class": list(plan.labels),
        "methods": list(plan.methods),
        "repetitions": repetitions,
        "out": out,
    }
    if dry_run:
        reporter.finish({**summary, "dry_run": True})
        return
    conflict = conflicting_file(plan, out)
    if conflict is not None:
        require_consent(f"{conflict} exists and does not belong to this comparison", force)
    from ldsu.bench import report, runner
    from ldsu.bench.experiment_file import load_experiment
    from ldsu.bench.store import Store

    experiment = load_experiment(write_comparison(plan, out))
    store_path = out / STORE
    done = runner.run(experiment, store_path, jobs=jobs, quiet=reporter.silent, command=["ldsu", *sys.argv[1:]])
    written: dict[str, Path] = {}
    if not done.interrupted and not done.lost:
        with Store(store_path, create=False) as store:
            with reporter.spinner("writing the report") as show:
                written = report.write_report(experiment, store, out, progress=show)
            if not reporter.silent:
                # With few labels parameters cannot be cross-validated; the table says which selection it shows.
                report.print_table(experiment, store, reporter.console, metric="accuracy", selection="honest")
    for what, path in written.items():
        reporter.info(f"{what:<10} {path}")
    reporter.finish({**summary, "written": written, "exit_code": done.exit_code})
    sys.exit(done.exit_code)
