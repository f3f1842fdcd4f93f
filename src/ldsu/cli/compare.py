"""`ldsu compare`: every method on the user's own table, under the few-label protocol."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ldsu.cli.options import console, examples, force_option, require_consent, require_folder
from ldsu.cli.own import INPUT, own_name, read_task, table_options, talk_options
from ldsu.cli.talk import Talk


@click.command(
    epilog=examples(
        "ldsu compare digits.csv --label digit --out comparison",
        "ldsu compare table.csv --label species --repetitions 10 --out comparison",
        "ldsu compare table.csv --label species --dry-run",
    )
)
@click.argument("table", type=INPUT)
@table_options
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder of the report.  [default: TABLE-comparison]"
)
@click.option(
    "--repetitions", type=click.IntRange(min=2), default=5, help="Divisions of the labelled rows.", show_default=True
)
@click.option(
    "--rows",
    type=click.IntRange(min=50),
    default=2000,
    help="Rows to take at most, the labelled ones first.",
    show_default=True,
)
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Worker processes.  [default: number of cores]")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and stop.")
@force_option
@talk_options
def compare(
    table: Path,
    out: Path | None,
    repetitions: int,
    rows: int,
    jobs: int | None,
    dry_run: bool,
    force: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare all methods on the labelled rows of TABLE, and write a report.

    Half of the labelled rows are held out for testing, several times; the methods see a few labels per class of the
    other half and every row without a label. The folder gets index.html to open, the table as Markdown, CSV and LaTeX,
    and an experiment file for `ldsu bench run`. Interrupted, the same command continues where it was.

    Exit code: 0 done, 1 some method failed, 2 something is wrong with the table or the options, 130 interrupted.
    """
    talk = Talk(quiet, as_json)
    out = out or Path(f"{own_name(table)}-comparison")
    if not dry_run:
        require_folder(out)
    task = read_task(talk, table, **options)
    from ldsu.bench.owndata import conflicting_file, plan_comparison, write_comparison

    plan = plan_comparison(task, repetitions=repetitions, rows=rows)
    for note in (*task.table.notes, *task.notes, *task.encoder.notes, *plan.notes):
        talk.say(note)
    talk.say(
        f"{len(plan.y):,} rows, {int((plan.y >= 0).sum()):,} labelled, {len(plan.classes)} classes; {repetitions} "
        f"divisions, {' and '.join(map(str, plan.labels))} labels per class, {len(plan.methods)} methods"
    )
    summary: dict[str, Any] = {
        "table": str(table),
        "rows": len(plan.y),
        "labelled": task.counts,
        "labels_per_class": list(plan.labels),
        "methods": list(plan.methods),
        "repetitions": repetitions,
        "out": str(out),
    }
    if dry_run:
        talk.finish({**summary, "dry_run": True})
        return
    conflict = conflicting_file(plan, out)
    if conflict is not None:
        require_consent(f"{conflict} exists and is not of this comparison", force)
    experiment_file = write_comparison(plan, out)
    code, written = _run(experiment_file, out, jobs, talk)
    for what, path in written.items():
        talk.say(f"{what:<10} {path}")
    talk.finish({**summary, "written": {what: str(path) for what, path in written.items()}, "exit_code": code})
    sys.exit(code)


def _run(experiment_file: Path, out: Path, jobs: int | None, talk: Talk) -> tuple[int, dict[str, Path]]:
    from ldsu.bench import report, runner
    from ldsu.bench.experiment_file import load_experiment
    from ldsu.bench.owndata import STORE
    from ldsu.bench.store import Store

    experiment = load_experiment(experiment_file)
    store_path = out / STORE
    done = runner.run(experiment, store_path, jobs=jobs, quiet=talk.silent, command=["ldsu", *sys.argv[1:]])
    if done.interrupted or done.lost:
        return done.exit_code, {}
    with Store(store_path, create=False) as store:
        with talk.working("writing the report") as progress:
            written = report.write_report(experiment, store, out, progress=progress.stage)
        if not talk.silent:
            # With few labels there may be no honest choice of parameters; what is shown says which it is.
            report.print_table(experiment, store, console(stderr=True), metric="accuracy", selection="honest")
    return done.exit_code, written
