"""`ldsu fit`, `predict`, `transform`, `inspect` and `export`: models of the user's own tables."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ldsu.cli.options import Command, examples, force_option, require_device, require_output
from ldsu.cli.talk import Talk, grouped, size_in_words

if TYPE_CHECKING:
    from ldsu.tables.columns import Kind
    from ldsu.tables.model import Predictions, TableModel, Task
    from ldsu.tables.table import Table

INPUT = click.Path(path_type=Path)
OUTPUT = click.Path(dir_okay=False, path_type=Path)
MODEL = click.Path(dir_okay=False, path_type=Path)
COLUMNS = ("label", "probability", "confidence", "runner_up", "familiarity")
# Of the way from chance to certainty, less than this is hardly anything.
HARDLY = 0.2


def talk_options(command: Command) -> Command:
    """`--quiet` and `--json`."""
    command = click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output.")(
        command
    )
    return click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")(command)


def table_options(command: Command) -> Command:
    """How a table is read, for the commands that learn from one."""
    options = [
        click.option("--label", "-l", metavar="COLUMN", help="Column of the labels, blank in rows without a label."),
        click.option(
            "--labels",
            "labels_file",
            type=MODEL,
            metavar="FILE",
            help="Labels in a separate file: CSV, .npy or .npz.",
        ),
        click.option("--unlabelled", multiple=True, metavar="VALUE", help="A value that means: no label."),
        click.option("--time", multiple=True, metavar="COLUMN", help="Read a column as dates."),
        click.option("--number", multiple=True, metavar="COLUMN", help="Read a column as numbers."),
        click.option("--category", multiple=True, metavar="COLUMN", help="Read a column as categories."),
        click.option("--text", multiple=True, metavar="COLUMN", help="Read a column as text, word by word."),
        click.option("--ignore", multiple=True, metavar="COLUMN", help="Leave a column out."),
        click.option(
            "--scale",
            type=click.Choice(["auto", "each", "common", "counts", "none"]),
            default="auto",
            help="Numbers: each column by its standard deviation, all by one factor, as word counts, or unchanged.",
            show_default=True,
        ),
        click.option(
            "--kernel",
            type=click.Choice(["rbf", "cosine", "linear"]),
            default="rbf",
            help="Kernel; all but rbf are for some thousand rows.",
            show_default=True,
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def read_task(
    talk: Talk,
    table: Path,
    *,
    label: str | None,
    labels_file: Path | None,
    unlabelled: Sequence[str],
    time: Sequence[str],
    number: Sequence[str],
    category: Sequence[str],
    text: Sequence[str],
    ignore: Sequence[str],
    scale: str,
    kernel: str,
) -> Task:
    """Read a table as its options say."""
    given: dict[str, Kind] = {}
    said = {"time": time, "number": number, "category": category, "text": text, "ignored": ignore}
    for kind, names in said.items():
        for name in names:
            if name in given:
                raise ValueError(f"Column {name!r} has two options: {given[name]} and {kind}. Give one of them.")
            given[name] = kind  # type: ignore[assignment]
    with talk.working(f"reading {table.name}") as progress:
        from ldsu.tables.model import prepare
        from ldsu.tables.readers import read_table

        read = read_table(table, labels=labels_file, progress=progress.images)
        progress.stage("looking at the columns")
        none = unlabelled or None  # without the option the labels themselves tell
        task = prepare(read, label, given=given, scaling=scale, unlabelled=none, kernel=kernel)  # type: ignore[arg-type]
    for warning in task.warnings:
        talk.warn(warning)
    return task


@click.command(
    epilog=examples(
        "ldsu fit digits.csv --label digit -o digits.ldsu",
        "ldsu fit reviews.parquet --label verdict --text comment --ignore reviewer -o reviews.ldsu",
        "ldsu fit photos/ -o photos.ldsu      (a sub-folder for each class, and `unlabelled`)",
        "ldsu fit table.csv --label species --dry-run",
    )
)
@click.argument("table", type=INPUT)
@table_options
@click.option("--output", "-o", type=OUTPUT, help="File of the model.  [default: TABLE.ldsu in this folder]")
@click.option(
    "--solver",
    type=click.Choice(["auto", "exact", "sparse"]),
    default="auto",
    help="Exact up to 3,000 rows, sparse above, unless you choose.",
    show_default=True,
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="Where to compute.", show_default=True
)
@click.option("--dask", metavar="ADDRESS", help="Fit on the Dask cluster of the scheduler at this address.")
@click.option("--unequal", is_flag=True, help="Classes are of very unequal size, though their labels may not be.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and stop.")
@force_option
@talk_options
def fit(
    table: Path,
    output: Path | None,
    solver: str,
    device: str,
    dask: str | None,
    unequal: bool,
    dry_run: bool,
    force: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Learn from TABLE, some of whose rows have a label, and write a model.

    TABLE is CSV, TSV, Parquet, Feather, .xlsx, .npz, .npy, LIBSVM or .mat, or a folder of images with a sub-folder for
    each class and one called `unlabelled`. How each column is read is shown, kept in the model, and repeated by
    `ldsu predict`. The model contains the training rows: a new file is readable only by you.

    Exit code: 0 done, 1 the machine refused (memory, disk), 2 something is wrong with the table or the options, 130
    interrupted.
    """
    talk = Talk(quiet, as_json)
    output = output or Path(f"{own_name(table)}.ldsu")
    if output.is_dir() or (output.exists() and output.suffix != ".ldsu"):
        raise ValueError(f"{output} exists and is not a .ldsu file. Choose another name for the model.")
    if not dry_run:
        require_output(output, force)
        require_device(None if dask else device)
    task = read_task(talk, table, **options)
    from ldsu.tables.estimate import estimate

    expected = estimate(task, solver=solver, device=device)
    summary: dict[str, Any] = {
        "table": str(table),
        "rows": len(task.labels),
        "label": task.label,
        "labelled": task.counts,
        "columns": [dict(zip(("column", "kind", "done"), row, strict=True)) for row in task.encoder.decisions()],
        "notes": [*task.table.notes, *task.notes, *task.encoder.notes],
        "kernel": task.encoder.kernel,
        "solver": expected.solver,
        "expected_seconds": round(expected.seconds, 1),
        "expected_bytes": expected.memory,
    }
    from ldsu.io import require_storable, save_model

    require_storable(task.encoder)
    _say_before(talk, summary, expected.available)
    if dry_run:
        talk.finish({**summary, "dry_run": True})
        return
    from ldsu.tables.model import fit_task

    start = time.perf_counter()
    with talk.working("fitting"):
        model, warnings = fit_task(
            task, solver=solver, device=device, unequal=unequal, dask=dask, about={"notes": summary["notes"]}
        )
    seconds = time.perf_counter() - start
    save_model(model, output, about=model.about)
    selection = model.classifier.features_.selection_
    left_out = selection[0]["accuracy"] if selection else None
    summary |= {
        "model": str(output),
        "bytes": output.stat().st_size,
        "seconds": round(seconds, 2),
        "strength": model.about["strength"],
        "left_out_accuracy": left_out,
        "expected_accuracy": model.about["expected_accuracy"],
        "warnings": [*task.warnings, *warnings],
    }
    for warning in warnings:
        talk.warn(warning)
    chance = 1 / len(task.counts)
    if summary["expected_accuracy"] < chance + HARDLY * (1 - chance):
        talk.warn(
            f"The expected accuracy among {len(task.counts)} classes is {summary['expected_accuracy']:.2f}, hardly "
            "better than guessing. Check how the columns were read and scaled above, or label more rows."
        )
    _say_after(talk, summary, table)
    talk.finish(summary)


def _say_before(talk: Talk, summary: dict[str, Any], available: int) -> None:
    labelled = sum(summary["labelled"].values())
    talk.say(f"{summary['rows']:,} rows, {labelled:,} of them labelled in {summary['label']!r}")
    counts = sorted(summary["labelled"].items(), key=lambda item: (-item[1], item[0]))
    few = [f"{name} {count}" for name, count in counts]
    talk.say("labels    " + ", ".join(few[:20]) + (f" and {len(few) - 20} more classes" if len(few) > 20 else ""))
    rows = [(row["column"], row["kind"], row["done"]) for row in summary["columns"]]
    talk.table(("column", "read as", "what is done"), grouped(rows))
    for note in summary["notes"]:
        talk.say(note)
    smallest = counts[-1]
    if smallest[1] < 3:
        talk.warn(
            f"Class {smallest[0]!r} has {smallest[1]} label(s). Settings are chosen by leave-one-out if most classes "
            "have three labels or more; with fewer, defaults are used and probabilities can be overconfident."
        )
    from ldsu.bench.forecast import in_words

    talk.say(
        f"method    LDSU, {summary['kernel']} kernel, {summary['solver']} solver; "
        f"{'about ' if summary['expected_seconds'] >= 1 else ''}{in_words(summary['expected_seconds'])}, "
        f"{size_in_words(summary['expected_bytes'])} of {size_in_words(available)} of memory"
    )


def _say_after(talk: Talk, summary: dict[str, Any], table: Path) -> None:
    left_out = summary["left_out_accuracy"]
    accuracy = f"; leave-one-out accuracy on your labels: {left_out:.2f}" if left_out is not None else ""
    if sum(summary["labelled"].values()) < summary["rows"]:
        accuracy += f"; expected for rows without a label: {summary['expected_accuracy']:.2f}"
    talk.say(f"done      {summary['seconds']:.1f} s{accuracy}")
    talk.say(f"written   {summary['model']} ({size_in_words(summary['bytes'])}){_readers(Path(summary['model']))}")
    talk.say(f"next      ldsu predict {summary['model']} {table} -o labels.csv")


@click.command(
    epilog=examples(
        "ldsu predict digits.ldsu digits.csv -o labels.csv",
        "ldsu predict digits.ldsu new.parquet -o labels.parquet --keep id",
        "ldsu predict photos.ldsu more-photos/ | head",
    )
)
@click.argument("model", type=MODEL)
@click.argument("table", type=INPUT)
@click.option(
    "--output", "-o", type=OUTPUT, help="CSV, TSV, Parquet, Feather or .npz.  [default: CSV on standard output]"
)
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy a column of TABLE to the output.")
@click.option("--keep-all", is_flag=True, help="Copy all columns of TABLE to the output.")
@force_option
@talk_options
def predict(
    model: Path,
    table: Path,
    output: Path | None,
    keep: Sequence[str],
    keep_all: bool,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Predict the label of each row of TABLE.

    \b
    The output has a row for each of TABLE's, in its order:
      row          its number, from 1; for images `file`
      label        the predicted class
      probability  of that class
      confidence   that probability less the next one's: near 0, two classes are
                   as likely, or the row is far from all training rows
      runner_up    the second most probable class
      familiarity  share of the training rows that lie as far out, or farther: 0 is
                   far from all of them

    If TABLE has the label column, the summary counts the predictions that agree with it.
    """  # noqa: D301  # click reads the backspace
    talk = Talk(quiet, as_json)
    _require_rows_output(output, as_json, force, (model, table))
    fitted, read, missing = _load_and_read(talk, model, table, keep)
    kept = _kept_columns(read, keep, keep_all, ("row", "file", *COLUMNS))
    start = time.perf_counter()
    with talk.working(f"predicting {read.n_rows:,} rows"):
        predictions = fitted.predict(read)
    said = (predictions.label, predictions.probability, predictions.confidence, predictions.runner_up)
    columns = {**_row_names(read), **dict(zip(COLUMNS, (*said, predictions.familiarity), strict=True)), **kept}
    for name in ("probability", "confidence", "familiarity"):
        columns[name] = columns[name].round(6)
    _write(columns, output)
    summary = _prediction_summary(fitted, read, predictions, time.perf_counter() - start)
    summary |= {"model": str(model), "table": str(table), "output": None if output is None else str(output), **missing}
    _say_predictions(talk, summary)
    talk.finish(summary)


@click.command(
    epilog=examples(
        "ldsu transform digits.ldsu digits.csv -o features.npy",
        "ldsu transform digits.ldsu digits.csv -o features.parquet --keep digit",
    )
)
@click.argument("model", type=MODEL)
@click.argument("table", type=INPUT)
@click.option(
    "--output", "-o", type=OUTPUT, help="CSV, TSV, Parquet, Feather, .npz or .npy.  [default: CSV on standard output]"
)
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy a column of TABLE to the output (not to .npy).")
@force_option
@talk_options
def transform(
    model: Path, table: Path, output: Path | None, keep: Sequence[str], force: bool, quiet: bool, as_json: bool
) -> None:
    """Compute the learned features of each row of TABLE, for a classifier of your own."""
    talk = Talk(quiet, as_json)
    as_array = output is not None and output.suffix.lower() == ".npy"
    if as_array and keep:
        raise ValueError(f"{output} holds the features alone: --keep needs an output in CSV, TSV, Parquet or .npz.")
    _require_rows_output(output, as_json, force, (model, table), features=True)
    fitted, read, _ = _load_and_read(talk, model, table, keep)
    with talk.working(f"transforming {read.n_rows:,} rows"):
        features = fitted.transform(read)
    if output is not None and as_array:
        _write_array(features, output)
    else:
        width = len(str(features.shape[1] - 1))
        named = {f"feature{j:0{width}d}": features[:, j] for j in range(features.shape[1])}
        kept = _kept_columns(read, keep, False, ("row", "file", *named))
        _write({**_row_names(read), **named, **kept}, output)
    talk.say(f"{features.shape[0]:,} rows, {features.shape[1]:,} features" + (f" in {output}" if output else ""))
    talk.finish(
        {"rows": features.shape[0], "features": features.shape[1], "output": None if output is None else str(output)}
    )


@click.command(epilog=examples("ldsu inspect digits.ldsu", "ldsu inspect digits.ldsu --json"))
@click.argument("model", type=MODEL)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def inspect(model: Path, as_json: bool) -> None:
    """Show what a model was fitted to, how it reads columns, and what it was made with."""
    from ldsu.io import describe_model

    described = describe_model(model)
    if described["class"] == "TableModel":
        from ldsu.io.container import refusing
        from ldsu.io.schema import sound

        with refusing(model), sound():
            described["about"]["columns"] = _decisions(described["model"]["fields"]["encoder"]["fields"])
    if as_json:
        click.echo(json.dumps(described))
        return
    talk = Talk(False, False, to_stdout=True)
    _say_model(talk, model, described)


@click.command(epilog=examples("ldsu export digits.ldsu -o digits.onnx"))
@click.argument("model", type=MODEL)
@click.option("--output", "-o", type=OUTPUT, required=True, help="File, usually .onnx.")
@force_option
@talk_options
def export(model: Path, output: Path, force: bool, quiet: bool, as_json: bool) -> None:
    """Write a model as ONNX, which runs without Python or ldsu: label, probability, confidence and features.

    Only models of the exact solver (up to 3,000 rows, or `ldsu fit --solver exact`) without text columns can be written
    so. The inputs are `numbers` (rows, number columns, NaN where missing) and `categories` (rows, category columns) in
    the order that `ldsu inspect` shows; for images and matrices `numbers` alone. Categories go in without blanks around
    them, truth values as true and false, dates among the numbers as days since 1970.
    """
    talk = Talk(quiet, as_json)
    require_output(output, force, (model,))
    with talk.working("exporting"):
        from ldsu._utils.files import replacing
        from ldsu.io import load_model
        from ldsu.io.onnx_export import import_onnx, to_onnx
        from ldsu.tables.model import TableModel
        from ldsu.tables.onnx import table_to_onnx

        import_onnx()  # refused before the work where it is not installed
        loaded = load_model(model)
        graph = table_to_onnx(loaded) if isinstance(loaded, TableModel) else to_onnx(loaded)
        with replacing(output, private=True) as file:  # it contains training rows
            file.write(graph.SerializeToString())
    talk.say(f"written   {output} ({size_in_words(output.stat().st_size)}){_readers(output)}")
    talk.finish({"model": str(model), "output": str(output), "bytes": output.stat().st_size})


def _readers(path: Path) -> str:
    """Who may read a model file, which contains training rows; nothing where permissions say nothing, as on Windows."""
    if os.name != "posix":
        return ""
    private = path.stat().st_mode & 0o077 == 0
    who = "readable only by you" if private else f"readable by others (change that with: chmod 600 {path})"
    return f"; it contains the training rows and is {who}"


def own_name(table: Path) -> str:
    """The name of a table without its ending, and without that of a compression before it."""
    name = table.resolve()
    inner = name.with_suffix("") if name.suffix.lower() in (".gz", ".bz2", ".xz") else name
    return (inner.name if name.is_dir() else inner.stem) or "model"


def _load_and_read(
    talk: Talk, model: Path, table: Path, keep: Sequence[str]
) -> tuple[TableModel, Table, dict[str, Any]]:
    """The model, the table with the columns to keep, and how much of the table is missing or was never seen."""
    with talk.working(f"reading {model.name} and {table.name}") as progress:
        from ldsu.io import ModelError, is_model, load_model
        from ldsu.tables.columns import require_column
        from ldsu.tables.model import TableModel

        try:
            fitted = load_model(model)
        except ModelError:
            if is_model(table):
                command = click.get_current_context().info_name
                raise ValueError(
                    f"{table} is a model and {model} is not. Give the model first: ldsu {command} {table} {model}"
                ) from None
            raise
        if not isinstance(fitted, TableModel):
            raise ValueError(
                f"{model.name} holds a {type(fitted).__name__} that was saved from Python and cannot read tables. "
                "Load it there with ldsu.load_model."
            )
        read = fitted.read(table, progress=progress.images)
        for name in keep:
            require_column(read, name)
    for note in read.notes:
        talk.say(note)
    fitted.encoder.check(read)
    unknown = fitted.encoder.unknown_levels(read)
    for column, count in unknown.items():
        talk.warn(f"{count:,} row(s) have a value in {column!r} that no training row had.")
    missing = fitted.encoder.missing_values(read)
    if missing:
        talk.say(f"{missing:,} missing numbers are filled with the medians of the training rows.")
    return fitted, read, {"missing_numbers": missing, "unknown_levels": unknown}


def _require_rows_output(
    output: Path | None, as_json: bool, force: bool, inputs: Sequence[Path], features: bool = False
) -> None:
    if output is None and as_json:
        raise ValueError("With --json standard output holds the summary: name a file for the rows with --output.")
    from ldsu.tables.writers import SUFFIXES

    suffixes = [*SUFFIXES, ".npy"] if features else list(SUFFIXES)
    if output is None:
        return
    if output.suffix.lower() not in suffixes:
        raise ValueError(f"{output} has no known ending: use one of {', '.join(suffixes)}.")
    require_output(output, force, inputs)


def _kept_columns(table: Table, keep: Sequence[str], keep_all: bool, taken: Sequence[str]) -> dict[str, Any]:
    """Columns to copy to the output, under a name that is not `taken` there."""
    names = list(keep)
    if keep_all and table.frame is not None:
        names = table.frame.column_names
    kept: dict[str, Any] = {}
    for name in names:
        new = name
        while new in taken or new in kept:
            new = f"table.{new}"
        assert table.frame is not None
        kept[new] = table.frame[name]
    return kept


def _row_names(table: Table) -> dict[str, Any]:
    if table.row_names is not None:
        return {"file": list(table.row_names)}
    return {"row": range(1, table.n_rows + 1)}


def _write(columns: dict[str, Any], output: Path | None) -> None:
    from ldsu.tables.writers import write_columns

    write_columns(columns, output)


def _write_array(features: Any, output: Path) -> None:
    import numpy as np

    from ldsu._utils.files import replacing

    features = np.ascontiguousarray(features)
    with replacing(output) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(features))
        file.write(features.data)  # np.save would keep to itself that the disk is full


def _prediction_summary(model: TableModel, table: Table, predictions: Predictions, seconds: float) -> dict[str, Any]:
    import numpy as np

    labels, counts = np.unique(predictions.label.astype(str), return_counts=True)
    chosen = [predictions.label == label for label in labels]
    summary: dict[str, Any] = {
        "rows": table.n_rows,
        "seconds": round(seconds, 2),
        "labels": [
            {
                "label": str(label),
                "rows": int(count),
                "mean_probability": round(float(predictions.probability[rows].mean()), 3),
            }
            for label, count, rows in zip(labels, counts, chosen, strict=True)
        ],
        "isolated": predictions.n_isolated,
    }
    if table.frame is not None and model.label in table.frame.column_names:
        from ldsu.tables.columns import labels_of

        known, _ = labels_of(table, model.label, model.unlabelled)
        rows = np.array([label is not None for label in known], dtype=bool)
        met = predictions.label[rows].astype(str) == known[rows].astype(str)
        summary["given"] = {"column": model.label, "rows": int(rows.sum()), "met": int(met.sum())}
    return summary


def _say_predictions(talk: Talk, summary: dict[str, Any]) -> None:
    most = sorted(summary["labels"], key=lambda row: -row["rows"])
    shown = [(row["label"], f"{row['rows']:,}", f"{row['mean_probability']:.2f}") for row in most[:30]]
    if len(most) > 30:
        shown.append((f"{len(most) - 30} more", f"{sum(row['rows'] for row in most[30:]):,}", ""))
    talk.table(("label", "rows", "mean probability"), shown, right=(1, 2))
    if "given" in summary and summary["given"]["rows"]:
        given = summary["given"]
        talk.say(
            f"predictions agree with {given['met']:,} of {given['rows']:,} given labels in {given['column']!r} "
            f"({given['met'] / given['rows']:.1%})"
        )
    if summary["isolated"]:
        talk.warn(f"{summary['isolated']:,} row(s) lie far from all training rows: their labels are guesses.")
    where = f", written to {summary['output']}" if summary["output"] else ""
    talk.say(f"{summary['rows']:,} rows in {summary['seconds']:.1f} s{where}")


def _say_model(talk: Talk, path: Path, described: dict[str, Any]) -> None:
    about = dict(described["about"])
    columns = about.pop("columns", [])
    talk.say(f"{described['class']} in {path.name}, {size_in_words(path.stat().st_size)}")
    talk.say("It contains its training rows, encoded, and their labels: share it only with people who may see them.")
    for name, value in about.items():
        if name == "labelled" and isinstance(value, dict):
            value = ", ".join(f"{label} {count}" for label, count in value.items())
        for line in value if isinstance(value, list) else [value]:
            talk.say(f"{name.replace('_', ' '):<18} {_number(line)}")
    if columns:
        talk.table(("column", "read as", "what is done"), grouped([(row[0], row[1], row[2]) for row in columns]))
    rows: Iterable[tuple[str, Any]] = [
        *((f"{name}", value) for name, value in described.get("parameters", {}).items()),
        ("saved", described.get("saved")),
        ("with", ", ".join(f"{name} {version}" for name, version in described.get("versions", {}).items())),
    ]
    for name, value in rows:
        talk.say(f"{name.replace('_', ' '):<18} {_number(value)}")


def _decisions(encoder: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What a model does with each column, from the description of its encoder."""
    from ldsu.tables.encoder import decisions

    fields = (column["fields"] for column in encoder["columns"])
    columns = ((column["name"], column["kind"], column["note"]) for column in fields)
    return decisions(columns, encoder["scaling"], encoder["matrix_columns"], encoder["image_shape"])


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
