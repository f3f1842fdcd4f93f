"""`ldsu fit`, `predict`, `transform`, `inspect` and `export`: models of user tables."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ldsu.cli.options import (
    FILE,
    INPUT,
    Command,
    command,
    documented_option,
    dry_run_option,
    force_option,
    require_device,
    require_output,
)
from ldsu.cli.reporter import Reporter, group_columns, output_options

if TYPE_CHECKING:
    from ldsu.tables.model import Predictions, TableModel, Task
    from ldsu.tables.table import Table

COLUMN_HEADER = ("column", "read as", "processing")
# Options that set the kind of a column.
KIND_OPTIONS = {
    "time": "Read a column as dates.",
    "number": "Read a column as numbers.",
    "category": "Read a column as categories.",
    "text": "Read a column as text, word by word.",
    "ignore": "Ignore a column.",
}
# Warn if an estimated accuracy covers less than this share of the way from chance to 1, or if so many labels have the
# leave-one-out accuracy by chance with more than 5 %: it exceeds chance by less than so many standard deviations.
NEAR_CHANCE, DEVIATIONS = 0.2, 1.64


def table_options(function: Command) -> Command:
    """Options that control how a table is read."""
    options: list[Callable[[Command], Command]] = [
        click.option("--label", "-l", metavar="COLUMN", help="Label column, blank in unlabelled rows."),
        click.option("--labels", type=FILE, metavar="FILE", help="Labels in a separate file: CSV, .npy, .npz or .mat."),
        click.option("--unlabelled", multiple=True, metavar="VALUE", help="Label value that means unlabelled."),
        *(click.option(f"--{kind}", multiple=True, metavar="COLUMN", help=text) for kind, text in KIND_OPTIONS.items()),
        documented_option(
            "--scale",
            "tables/model.py",
            parameter="scaling",
            help="Numbers: each column by its standard deviation, all by one factor, as word counts, or unchanged.",
        ),
        click.option(
            "--encoder",
            multiple=True,
            metavar="NAME",
            default=("auto",),
            show_default="installed ones",
            help="Pretrained encoder of texts or of a folder of images: sentence-encoder, efficientnet-lite0, "
            "onnx:FILE, timm:MODEL, ... or none. One of each kind.",
        ),
        documented_option("--kernel", "tables/model.py", help="Kernel; cosine and linear are for a few thousand rows."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def read_task(
    reporter: Reporter,
    table: Path,
    *,
    label: str | None,
    labels: Path | None,
    unlabelled: Sequence[str],
    scale: str,
    kernel: str,
    encoder: Sequence[str],
    **columns: Sequence[str],
) -> Task:
    """Read a table with the values of `table_options`."""
    kinds = column_kinds(columns)
    with reporter.spinner(f"reading {table.name}") as show:
        from ldsu.tables.embedded import resolve_encoders
        from ldsu.tables.model import prepare
        from ldsu.tables.readers import read_table

        pixels = not (table.is_dir() and "image" in resolve_encoders(encoder))
        read = read_table(table, labels=labels, progress=count_images(show), pixels=pixels)
        show("inspecting the columns")
        none = unlabelled or None  # without the option, detected from the labels
        task = prepare(
            read,
            label,
            kinds=kinds,
            scaling=scale,  # type: ignore[arg-type]
            unlabelled=none,
            kernel=kernel,
            encoder=encoder,
        )
    for warning in task.warnings:
        reporter.warn(warning)
    return task


def column_kinds(columns: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Kind by column, from the options of `KIND_OPTIONS`."""
    kinds: dict[str, Any] = {}
    for option in KIND_OPTIONS:
        kind = "ignored" if option == "ignore" else option
        for name in columns[option]:
            if name in kinds:
                raise ValueError(f"Column {name!r} has two options: {kinds[name]} and {kind}. Use only one.")
            kinds[name] = kind
    return kinds


def _parse_shares(text: str) -> str | dict[str, float]:
    """The option --class-shares: a word, or shares by class."""
    if text in ("auto", "equal", "labels"):
        return text
    try:
        pairs = [part.rpartition("=") for part in text.split(",")]
        return {name.strip(): float(share) for name, _, share in pairs}
    except ValueError:
        raise ValueError(
            f"--class-shares {text!r} is not auto, equal, labels, or NAME=SHARE,... such as yes=0.9,no=0.1."
        ) from None


def count_images(show: Callable[[str], None]) -> Callable[[int, int], None]:
    """A function that shows how many images were read."""
    return lambda done, total: show(f"{done:,} of {total:,} images")


@command(
    "ldsu fit digits.csv --label digit -o digits.ldsu",
    "ldsu fit reviews.parquet --label verdict --text comment --ignore reviewer -o reviews.ldsu",
    "ldsu fit photos/ -o photos.ldsu      (a sub-folder per class, and `unlabelled`)",
    "ldsu fit table.csv --label species --dry-run",
)
@click.argument("table", type=INPUT)
@table_options
@click.option("--output", "-o", type=FILE, help="Model file.  [default: TABLE.ldsu in this folder]")
@documented_option("--solver", "methods/ldsu.py", help="auto is exact up to 3,000 rows and sparse above.")
@documented_option("--device", "methods/ldsu.py", values=("cpu", "cuda"), help="Device to compute on.")
@click.option("--dask", metavar="ADDRESS", help="Fit on the Dask cluster of the scheduler at this address.")
@click.option("--unequal", is_flag=True, help="Classes have very unequal sizes, even if their label counts do not.")
@click.option(
    "--class-shares",
    metavar="SHARES",
    default="auto",
    show_default=True,
    help="Shares of the classes among all rows, if you know them: equal, labels (as your labels), or NAME=SHARE,...",
)
@dry_run_option
@force_option
@output_options
def fit(
    table: Path,
    output: Path | None,
    solver: str,
    device: str,
    dask: str | None,
    unequal: bool,
    class_shares: str,
    dry_run: bool,
    force: bool,
    reporter: Reporter,
    **options: Any,
) -> None:
    """Fit a model to TABLE, in which some rows have a label, and write it to a file.

    TABLE is CSV, TSV, Parquet, Feather, .xlsx, .npz, .npy, LIBSVM or .mat, or a folder of images with a sub-folder per
    class and one called `unlabelled`. How each column is read is shown, stored in the model, and repeated by
    `ldsu predict`. The model contains the training rows: a new file is readable only by you.

    Exit code: 0 done, 1 not enough memory or disk space, 2 invalid table or options, 130 interrupted.
    """
    output = output or Path(f"{base_name(table)}.ldsu")
    if output.is_dir() or (output.exists() and output.suffix != ".ldsu"):
        raise ValueError(f"{output} exists and is not a .ldsu file. Choose another name for the model.")
    if not dry_run:
        require_output(output, force)
        require_device(None if dask else device)
    shares = _parse_shares(class_shares)
    task = read_task(reporter, table, **options)
    from ldsu.tables.estimate import estimate

    with reporter.spinner("estimating"):
        expected = estimate(task, solver=solver, device=device)
    summary: dict[str, Any] = {
        "table": table,
        "rows": len(task.labels),
        "label": task.label,
        "labelled": task.counts,
        "columns": [dict(zip(("column", "kind", "done"), row, strict=True)) for row in task.encoder.decisions()],
        "notes": [*task.table.notes, *task.notes, *task.encoder.notes],
        "kernel": task.encoder.kernel,
        "solver": expected.solver,
        "expected_seconds": round(expected.seconds, 1),
        "expected_bytes": expected.memory,
        "expected_disk_bytes": expected.disk,
    }
    from ldsu.io import require_storable, save_model

    require_storable(task.encoder)
    _print_plan(reporter, summary, expected.available)
    if dry_run:
        reporter.finish({**summary, "dry_run": True})
        return
    from ldsu._utils.temporary import require_disk
    from ldsu.tables.model import fit_task

    if dask is None:
        require_disk(expected.disk, f"A fit to {len(task.labels):,} rows")
        folder = str(output.absolute().parent)
        require_disk(expected.model, f"The model of {len(task.labels):,} rows", folder, "Free disk space, or set -o.")

    start = time.perf_counter()
    with reporter.spinner("fitting"):
        model, warnings = fit_task(
            task,
            solver=solver,
            device=device,
            unequal=unequal,
            class_shares=shares,
            dask=dask,
            about={"notes": summary["notes"]},
        )
    seconds = time.perf_counter() - start
    save_model(model, output, about=model.about)
    left_out = model.about["leave_one_out_accuracy"]
    summary |= {
        "model": output,
        "bytes": output.stat().st_size,
        "seconds": round(seconds, 2),
        "strength": model.about["strength"],
        "left_out_accuracy": left_out,
        "expected_accuracy": model.about["expected_accuracy"],
        "pooled": model.about["pooled"],
        "class_shares": model.about["class_shares"],
        "warnings": [*task.warnings, *warnings],
    }
    for warning in warnings:
        reporter.warn(warning)
    chance = 1 / len(task.counts)
    accuracy = f"; leave-one-out accuracy on your labels: {left_out:.2f}" if left_out is not None else ""
    estimates = [summary["expected_accuracy"]] + ([] if left_out is None else [left_out])
    by_chance = DEVIATIONS * (chance * (1 - chance) / sum(task.counts.values())) ** 0.5
    if min(estimates) < chance + NEAR_CHANCE * (1 - chance) or (left_out is not None and left_out < chance + by_chance):
        reporter.warn(
            f"The accuracy is estimated at {min(estimates):.2f} among {len(task.counts)} classes, hardly better than "
            "chance. Check how the columns were read and scaled above, or label more rows."
        )
    if sum(task.counts.values()) < len(task.labels):
        accuracy += f"; expected for rows without a label: {summary['expected_accuracy']:.2f}"
    if model.classifier.supervised_ is not None:
        weights = ", ".join(
            f"{row['classifier']} {row['weight']:.2f}" for row in model.about["pooled"] if row["weight"]
        )
        reporter.info(f"pooled    {weights} (weights; ldsu inspect says why)")
    reporter.info(f"done      {seconds:.1f} s{accuracy}")
    _print_written(reporter, output)
    reporter.info(f"next      ldsu predict {output} {table} -o labels.csv")
    reporter.finish(summary)


def _print_plan(reporter: Reporter, summary: dict[str, Any], available: int) -> None:
    from rich.filesize import decimal

    from ldsu._utils.stages import format_duration
    from ldsu.tables.table import listed

    labelled = sum(summary["labelled"].values())
    reporter.info(f"{summary['rows']:,} rows, {labelled:,} of them labelled in {summary['label']!r}")
    counts = sorted(summary["labelled"].items(), key=lambda item: (-item[1], item[0]))
    reporter.info(f"labels    {listed((f'{name} {count}' for name, count in counts), 20, 'classes')}")
    reporter.table(COLUMN_HEADER, group_columns([tuple(row.values()) for row in summary["columns"]]))
    for note in summary["notes"]:
        reporter.info(note)
    smallest = counts[-1]
    if smallest[1] < 2:
        reporter.warn(
            f"Class {smallest[0]!r} has {smallest[1]} label. Settings are chosen by leave-one-out if most classes "
            "have two labels or more; with fewer, defaults are used and probabilities can be overconfident."
        )
    reporter.info(
        f"method    LDSU, {summary['kernel']} kernel, {summary['solver']} solver; "
        f"{'about ' if summary['expected_seconds'] >= 1 else ''}{format_duration(summary['expected_seconds'])}, "
        f"{decimal(summary['expected_bytes'])} of {decimal(available)} of memory"
    )
    if summary["expected_disk_bytes"]:
        from ldsu._utils.temporary import temporary_folder

        reporter.info(
            f"files     {decimal(summary['expected_disk_bytes'])} of temporary files in {temporary_folder()}, since "
            "the rows do not fit into memory; they are gone when the command ends, in any way"
        )


@command(
    "ldsu predict digits.ldsu digits.csv -o labels.csv",
    "ldsu predict digits.ldsu new.parquet -o labels.parquet --keep id",
    "ldsu predict photos.ldsu more-photos/ | head",
)
@click.argument("model", type=FILE)
@click.argument("table", type=INPUT)
@click.option(
    "--output", "-o", type=FILE, help="CSV, TSV, Parquet, Feather or .npz.  [default: CSV on standard output]"
)
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy a column of TABLE to the output.")
@click.option("--keep-all", is_flag=True, help="Copy all columns of TABLE to the output.")
@force_option
@output_options
def predict(
    model: Path,
    table: Path,
    output: Path | None,
    keep: Sequence[str],
    keep_all: bool,
    force: bool,
    reporter: Reporter,
) -> None:
    """Predict the label of each row of TABLE.

    \b
    The output has one row per row of TABLE, in the same order:
      row          row number, from 1; for images `file`
      label        predicted class
      probability  probability of that class
      confidence   difference to the second highest probability: near 0, two
                   classes are equally likely, or the row is far from all
                   training rows
      runner_up    second most probable class
      familiarity  share of the training rows that are at least as far out: 0 is
                   far from all of them

    If TABLE has the label column, the summary counts the predictions that agree with it.
    """  # noqa: D301  # click reads the backspace
    _require_rows_output(output, reporter.as_json, force, (model, table))
    fitted, read, missing = _load_and_read(reporter, model, table, keep)
    start = time.perf_counter()
    with reporter.spinner(f"predicting {read.n_rows:,} rows"):
        predictions = fitted.predict(read)
    from ldsu.tables.writers import write_rows

    write_rows(read, predictions.columns(), read.column_names if keep_all else keep, output)
    summary = _prediction_summary(fitted, read, predictions, time.perf_counter() - start)
    summary |= {"model": model, "table": table, "output": output, **missing}
    _print_predictions(reporter, summary)
    reporter.finish(summary)


@command(
    "ldsu transform digits.ldsu digits.csv -o features.npy",
    "ldsu transform digits.ldsu digits.csv -o features.parquet --keep digit",
)
@click.argument("model", type=FILE)
@click.argument("table", type=INPUT)
@click.option(
    "--output", "-o", type=FILE, help="CSV, TSV, Parquet, Feather, .npz or .npy.  [default: CSV on standard output]"
)
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy a column of TABLE to the output (not to .npy).")
@force_option
@output_options
def transform(
    model: Path, table: Path, output: Path | None, keep: Sequence[str], force: bool, reporter: Reporter
) -> None:
    """Compute the learned features of each row of TABLE, for use in another classifier."""
    as_array = output is not None and output.suffix.lower() == ".npy"
    if as_array and keep:
        raise ValueError(f"{output} holds only the features: --keep needs an output in CSV, TSV, Parquet or .npz.")
    _require_rows_output(output, reporter.as_json, force, (model, table), features=True)
    fitted, read, _ = _load_and_read(reporter, model, table, keep)
    with reporter.spinner(f"transforming {read.n_rows:,} rows"):
        features = fitted.transform(read)
    n, r = features.shape
    if output is not None and as_array:
        from ldsu.tables.writers import write_array

        write_array(features, output)
    else:
        named = {f"feature{j:0{len(str(r - 1))}d}": features[:, j] for j in range(r)}
        from ldsu.tables.writers import write_rows

        write_rows(read, named, keep, output)
    reporter.info(f"{n:,} rows, {r:,} features" + (f" in {output}" if output else ""))
    reporter.finish({"rows": n, "features": r, "output": output})


@command("ldsu inspect digits.ldsu", "ldsu inspect digits.ldsu --json")
@click.argument("model", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def inspect(model: Path, as_json: bool) -> None:
    """Show the training data of a model, how it reads columns, and the versions it was fitted with."""
    from ldsu.io import describe_model, reading_model

    described = describe_model(model)
    if described["class"] == "TableModel":
        from ldsu.tables.encoder import decisions

        with reading_model(model):
            encoder = described["model"]["fields"]["encoder"]["fields"]
            fields = (column["fields"] for column in encoder["columns"])
            columns = ((of["name"], of["kind"], of["note"]) for of in fields)
            described["about"]["columns"] = decisions(
                columns,
                encoder["scaling"],
                encoder["matrix_columns"],
                encoder["image_shape"],
                embedded=[_stored_embedding(words) for words in encoder["words"]],
                photos=_stored_embedding(encoder.get("photos")),
            )
    if as_json:
        click.echo(json.dumps(described))
    else:
        _print_model(Reporter(to_stdout=True), model, described)


def _stored_embedding(stored: dict[str, Any] | None) -> str:
    """What a model file says of an encoder; empty for words."""
    from ldsu.tables.embedded import describe_embedding

    if stored is None or stored["class"] != "Embedding":
        return ""
    return describe_embedding(stored["fields"]["encoder"], stored["fields"]["version"])


@command("ldsu export digits.ldsu -o digits.onnx")
@click.argument("model", type=FILE)
@click.option("--output", "-o", type=FILE, required=True, help="File, usually .onnx.")
@force_option
@output_options
def export(model: Path, output: Path, force: bool, reporter: Reporter) -> None:
    """Write a model as ONNX, which runs without Python or ldsu: label, probability, confidence and features.

    Only models of the exact solver (up to 3,000 rows, or `ldsu fit --solver exact`) without text columns can be
    exported. The inputs are `numbers` (rows, number columns, NaN where missing) and `categories` (rows, category
    columns) in the order of `ldsu inspect`; for images and matrices only `numbers`. Categories are passed without
    surrounding blanks, booleans as true and false, dates among the numbers as days since 1970.
    """
    require_output(output, force, (model,))
    with reporter.spinner("exporting"):
        from ldsu.io import load_model
        from ldsu.io.onnx_export import import_onnx, to_onnx, write_onnx
        from ldsu.tables.model import TableModel
        from ldsu.tables.onnx import table_to_onnx

        import_onnx()  # raises early if it is not installed
        loaded = load_model(model)
        write_onnx(table_to_onnx(loaded) if isinstance(loaded, TableModel) else to_onnx(loaded), output)
    _print_written(reporter, output)
    reporter.finish({"model": model, "output": output, "bytes": output.stat().st_size})


def _print_written(reporter: Reporter, path: Path) -> None:
    """Size of a model file, which contains training rows, and who can read it (not on Windows)."""
    from rich.filesize import decimal

    status, access = path.stat(), ""
    if os.name == "posix":
        private = status.st_mode & 0o077 == 0
        who = "readable only by you" if private else f"readable by others (change that with: chmod 600 {path})"
        access = f"; it contains the training rows and is {who}"
    reporter.info(f"written   {path} ({decimal(status.st_size)}){access}")


def base_name(table: Path) -> str:
    """The name of a table without its suffix and without a compression suffix."""
    name = table.resolve()
    inner = name.with_suffix("") if name.suffix.lower() in (".gz", ".bz2", ".xz") else name
    return (inner.name if name.is_dir() else inner.stem) or "model"


def _load_and_read(
    reporter: Reporter, model: Path, table: Path, keep: Sequence[str]
) -> tuple[TableModel, Table, dict[str, Any]]:
    """Load the model and the table; count missing values and unknown levels."""
    with reporter.spinner(f"reading {model.name} and {table.name}") as show:
        from ldsu.io import ModelError, is_model, load_model
        from ldsu.tables.columns import require_column
        from ldsu.tables.model import TableModel

        try:
            fitted = load_model(model)
        except ModelError:
            if is_model(table):
                name = click.get_current_context().info_name
                raise ValueError(
                    f"{table} is a model and {model} is not. Give the model first: ldsu {name} {table} {model}"
                ) from None
            raise
        if not isinstance(fitted, TableModel):
            raise ValueError(
                f"{model.name} holds a {type(fitted).__name__} that was saved from Python and cannot read tables. "
                "Load it in Python with ldsu.load_model."
            )
        read = fitted.read(table, progress=count_images(show))
        for name in keep:
            require_column(read, name)
    for note in read.notes:
        reporter.info(note)
    fitted.encoder.check(read)
    unknown = fitted.encoder.unknown_levels(read)
    for column, count in unknown.items():
        reporter.warn(f"{count:,} row(s) have a value in {column!r} that is in no training row.")
    missing = fitted.encoder.missing_values(read)
    if missing:
        reporter.info(f"{missing:,} missing numbers are filled with the medians of the training rows.")
    return fitted, read, {"missing_numbers": missing, "unknown_levels": unknown}


def _require_rows_output(
    output: Path | None, as_json: bool, force: bool, inputs: Sequence[Path], features: bool = False
) -> None:
    if output is None:
        if as_json:
            raise ValueError(
                "With --json the summary is printed to standard output: write the rows to a file with --output."
            )
        return
    from ldsu.tables.writers import SUFFIXES

    suffixes = (*SUFFIXES, ".npy") if features else SUFFIXES
    if output.suffix.lower() not in suffixes:
        raise ValueError(f"{output} has an unknown suffix: use one of {', '.join(suffixes)}.")
    require_output(output, force, inputs)


def _prediction_summary(model: TableModel, table: Table, predictions: Predictions, seconds: float) -> dict[str, Any]:
    import numpy as np

    names = predictions.label.astype(str)
    probabilities = {name: predictions.probability[names == name] for name in np.unique(names).tolist()}
    summary: dict[str, Any] = {
        "rows": table.n_rows,
        "seconds": round(seconds, 2),
        "labels": [
            {"label": name, "rows": values.size, "mean_probability": round(float(values.mean()), 3)}
            for name, values in probabilities.items()
        ],
        "isolated": predictions.n_isolated,
    }
    if model.label in table.column_names:
        from ldsu.tables.columns import labels_of

        known, _ = labels_of(table, model.label, model.unlabelled)
        rows = np.array([label is not None for label in known], dtype=bool)
        agrees = names[rows] == known[rows].astype(str)
        summary["given"] = {"column": model.label, "rows": int(rows.sum()), "met": int(agrees.sum())}
    return summary


def _print_predictions(reporter: Reporter, summary: dict[str, Any]) -> None:
    by_count = sorted(summary["labels"], key=lambda row: -row["rows"])
    shown = [(row["label"], f"{row['rows']:,}", f"{row['mean_probability']:.2f}") for row in by_count[:30]]
    if len(by_count) > 30:
        shown.append((f"{len(by_count) - 30} more", f"{sum(row['rows'] for row in by_count[30:]):,}", ""))
    reporter.table(("label", "rows", "mean probability"), shown, right=(1, 2))
    if "given" in summary and summary["given"]["rows"]:
        agreement = summary["given"]
        reporter.info(
            f"predictions agree with {agreement['met']:,} of {agreement['rows']:,} given labels in "
            f"{agreement['column']!r} ({agreement['met'] / agreement['rows']:.1%})"
        )
    if summary["isolated"]:
        reporter.warn(f"{summary['isolated']:,} row(s) are far from all training rows: their labels are unreliable.")
    where = f", written to {summary['output']}" if summary["output"] else ""
    reporter.info(f"{summary['rows']:,} rows in {summary['seconds']:.1f} s{where}")


def _pooled(row: dict[str, Any]) -> str:
    """One line for a pooled classifier: what it weighs, and why."""
    evaluated = "" if row["accuracy"] is None else f", leave-one-out accuracy {row['accuracy']:.2f}"
    return f"{row['classifier']}: weight {row['weight']:.2f} (prior {row['prior']:.2f}{evaluated})"


def _print_model(reporter: Reporter, path: Path, described: dict[str, Any]) -> None:
    from rich.filesize import decimal

    def print_lines(values: dict[str, Any]) -> None:
        for name, value in values.items():
            for line in value if isinstance(value, list) else [value]:
                shown = f"{line:.4g}" if isinstance(line, float) else line
                reporter.info(f"{name.replace('_', ' '):<22} {shown}")

    about = dict(described["about"])
    columns = about.pop("columns") if described["class"] == "TableModel" else []
    for name in ("labelled", "class_shares"):
        if isinstance(about.get(name), dict):
            about[name] = ", ".join(f"{label} {count:.3g}" for label, count in about[name].items())
    if isinstance(about.get("pooled"), list):
        about["pooled"] = [_pooled(row) for row in about["pooled"]]
    reporter.info(f"{described['class']} in {path.name}, {decimal(described['bytes'])}")
    reporter.info(
        "It contains its training rows, encoded, and their labels: share it only with people who may see them."
    )
    print_lines(about)
    if columns:
        reporter.table(COLUMN_HEADER, group_columns(columns))
    versions = ", ".join(f"{name} {version}" for name, version in described["versions"].items())
    print_lines({**described["parameters"], "saved": described["saved"], "with": versions})
