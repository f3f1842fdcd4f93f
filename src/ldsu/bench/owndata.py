"""An experiment on a user table: a few of the available labels per class, and every method."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ldsu._utils.files import replacing
from ldsu.bench.report import FILES
from ldsu.bench.sources import read_data, write_data
from ldsu.labels import class_counts, encode_labels, sample_labelled_balanced

if TYPE_CHECKING:
    from ldsu.tables.model import Task

STORE = "comparison.sqlite"
METHODS = (
    *("LDSU auto", "LDSU", "LDSU truncate", "KDA", "KPCA", "KSDA", "KSELF", "KLPP", "EnFS"),
    *("SVM-RBF", "LabelSpreading", "SelfTraining"),
)
# Parameter grids for cross-validation on the labelled rows, if there are enough of them.
HONEST: dict[str, dict[str, list[float]]] = {
    "LDSU": {"strength": [1, 10, 100, 1000]},
    "KDA": {"delta": [1e-2, 1]},
    "KPCA": {"n_components": [0.1, 0.3, 1.0]},
    "KSDA": {"alpha": [1e-2, 1]},
    "KLPP": {"n_components": [10, 20, 50]},
    "LabelSpreading": {"n_neighbors": [3, 7, 15]},
}
LABELS = (1, 2, 3, 5, 10, 20)
MAX_LABEL_COUNTS = 4
MIN_LABELS = 4


@dataclass(frozen=True, eq=False)
class Comparison:
    """Data and settings of a comparison."""

    title: str
    source: str
    X: np.ndarray  # (n, d)
    y: np.ndarray  # class numbers, -1 for unlabelled rows
    classes: list[str]
    image_shape: tuple[int, ...]  # empty if rows are not greyscale images
    kernel: str
    labels: tuple[int, ...]  # per class
    methods: tuple[str, ...]
    repetitions: int
    notes: tuple[str, ...]  # what was dropped, and why


def plan_comparison(task: Task, *, repetitions: int, rows: int, seed: int = 0) -> Comparison:
    """Select rows, classes and numbers of labels for a comparison.

    Of more than `rows` rows, labelled ones are used first, balanced over the classes, then unlabelled ones at random.
    Raises a ValueError if fewer than two classes have four labels: half of them are held out for testing.
    """
    codes, classes = encode_labels(task.labels, len(task.labels))
    counts = class_counts(codes)
    kept = np.flatnonzero(counts >= MIN_LABELS)
    if kept.size < 2:
        raise ValueError(
            f"A comparison holds out half of the labels and needs at least two classes with {MIN_LABELS} labels "
            f"or more; in {task.label!r} the classes have {', '.join(map(str, sorted(counts, reverse=True)[:5]))}."
        )
    notes = []
    if kept.size < counts.size:
        dropped = [str(classes[k]) for k in range(counts.size) if k not in kept]
        notes.append(f"Ignored classes with fewer than {MIN_LABELS} labels: {', '.join(dropped[:10])}.")
    number = np.full(counts.size + 1, -1)
    number[kept] = np.arange(kept.size)
    y = number[codes]
    usable = np.flatnonzero((codes < 0) | (y >= 0))  # rows of ignored classes are dropped
    rng = np.random.default_rng(seed)
    if usable.size > rows:
        labelled = sample_labelled_balanced(y, rows, rng)
        others = rng.permutation(np.flatnonzero(codes < 0))[: max(0, rows - labelled.size)]
        notes.append(f"{labelled.size + others.size:,} of {usable.size:,} rows are used (--rows).")
        usable = np.sort(np.concatenate([labelled, others]))
    X, y = task.X[usable], y[usable]
    smallest = int(class_counts(y).min())
    labels = tuple(m for m in LABELS if m <= smallest // 2)
    if len(labels) > MAX_LABEL_COUNTS:
        labels = tuple(labels[i] for i in (0, 2, *range(len(labels) - MAX_LABEL_COUNTS + 2, len(labels))))
    methods = [name for name in METHODS if name != "EnFS" or X.shape[1] <= 2000]
    if len(methods) < len(METHODS):
        notes.append(f"EnFS is skipped: selecting among {X.shape[1]:,} columns is slow.")
    image_shape = task.encoder.image_shape
    return Comparison(
        title=task.table.source.stem,
        source=task.table.source.name,
        X=X,
        y=y.astype(np.int64),
        classes=[str(classes[k]) for k in kept],
        image_shape=image_shape if image_shape is not None and len(image_shape) == 2 else (),
        kernel=task.encoder.kernel,
        labels=labels,
        methods=tuple(methods),
        repetitions=repetitions,
        notes=tuple(notes),
    )


def conflicting_file(plan: Comparison, folder: Path) -> Path | None:
    """A file in the folder that this comparison would replace; None if the comparison is new or can be continued."""
    settings, data = folder / "comparison.toml", folder / "data.npz"
    if data.exists() and not _has_data_of(plan, data):
        return data
    if settings.exists():
        same = settings.read_text(encoding="utf-8", errors="replace") == _experiment_text(plan)
        return None if same else settings
    return next((folder / name for name in (STORE, *FILES.values()) if (folder / name).exists()), None)


def _has_data_of(plan: Comparison, path: Path) -> bool:
    try:
        found = read_data(path, plan.title)
    except ValueError:
        return False
    return np.array_equal(found.X, plan.X) and np.array_equal(found.y, plan.y)


def write_comparison(plan: Comparison, folder: Path) -> Path:
    """Write the data and the experiment file, and return its path; results of another comparison are deleted."""
    if conflicting_file(plan, folder) is not None:
        for ending in ("", "-wal", "-shm"):
            (folder / f"{STORE}{ending}").unlink(missing_ok=True)
    write_data(folder / "data.npz", plan.X, plan.y, plan.classes, plan.image_shape)
    path = folder / "comparison.toml"
    with replacing(path, "w", encoding="utf-8") as file:
        file.write(_experiment_text(plan))
    return path


def _experiment_text(plan: Comparison) -> str:
    labelled = int((plan.y >= 0).sum())
    description = (
        f"{len(plan.y):,} rows of {plan.source}, {labelled:,} of them labelled. Half of the labelled rows are held "
        f"out for testing, {plan.repetitions} times; of the other half the methods see a few labels per class, and "
        "the rest and all rows without a label as unlabelled. Scales, categories and words of the columns were "
        "learned from all rows, which takes no label. LDSU auto is what `ldsu fit` fits, and has nothing to tune."
    )
    protocol = {"repetitions": plan.repetitions, "seed": 0, "test_fraction": 0.5, "labels": list(plan.labels)}
    data = {"file": "data.npz", "name": plan.title, "title": plan.title, "kernel": plan.kernel}
    tables: list[tuple[str, dict[str, Any]]] = [
        ("", {"title": f"Methods on {plan.source}", "description": description}),
        ("\n[protocol]", {**protocol, "C": [0.01, 1.0, 100.0], "folds": 3}),
        ("\n[[data]]", data),
    ]
    for name in plan.methods:
        tables.append(("\n[[method]]", {"name": name}))
        if name in HONEST:
            tables.append(("[method.honest]", HONEST[name]))
    lines = []
    for head, values in tables:
        # JSON strings, numbers and lists of them are valid TOML.
        lines += [head] if head else []
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"
