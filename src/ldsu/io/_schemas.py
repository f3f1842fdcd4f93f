"""Which models can be saved, and what each of them is made of.

The entries of `SCHEMAS` are the whole answer: for each class where it is defined, its fields, for each field its type,
and what must hold between fields that are sound alone; the parameters of an estimator are those of its signature.
Saving takes a model apart by that table; loading checks every field against it and puts the model together from what it
lists and nothing else. No name from a file is ever looked up anywhere but in this table. A class is added by an entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ldsu.io._fields import (
    BOOLEAN,
    IMAGE_SHAPE,
    OUTPUT_CONFIG,
    TEXTS,
    Array,
    Device,
    Either,
    FieldType,
    IfSet,
    Labels,
    Optional,
    Plain,
    RowLabels,
    Sparse,
    Strings,
    integer,
    is_nondecreasing,
    number,
    text,
)
from ldsu.io._objects import SCHEMAS, NamedObjects, Object, Objects, Parameter, Schema, Steps
from ldsu.io._verification import (
    SCALERS,
    compute_outputs,
    kernel_rows,
    pipeline_rows,
    random_rows,
    sample_rows,
)
from ldsu.io.container import safe_repr
from ldsu.kernels import KERNELS

KERNEL_METHODS = ("KDA", "KPCA", "KSDA", "KSELF", "KLPP", "LDSU")
LINEAR = ("RidgeClassifier", "LogisticRegression", "LinearSVC")
TRANSFORMERS = (*KERNEL_METHODS, "EnFS", *SCALERS, "Pipeline")
CLASSIFIERS = (*LINEAR, "LabelledOnly", "LDSUClassifier")


# --- What fits together -----------------------------------------------------------------------------------------------

Checks: TypeAlias = Iterator[tuple[Any, str]]


def _n_out(model: Any) -> int | None:
    """How many features a transformer gives; None for what is no transformer of `SCHEMAS`."""
    name = type(model).__name__
    if name in SCALERS:
        return int(model.n_features_in_)
    if name == "EnFS":
        return int(model.get_support().sum())
    if name == "Pipeline":
        return _n_out(model.steps[-1][1])
    return int(model.eigenvalues_.shape[0]) if name in KERNEL_METHODS else None


def _follows(before: int | None, after: int, what: str) -> tuple[bool, str]:
    return before in (None, after), f"{what} requires {after} columns, but gets {before}"


def _check_kernel(kernel: Any) -> Checks:
    fits = (kernel.name in ("rbf", "chi2", "poly")) == (kernel.gamma is not None) and isinstance(kernel.params, dict)
    yield fits, f"its {kernel.name} kernel has gamma {kernel.gamma}"


def _check_expansion(expansion: Any) -> Checks:
    of_columns = getattr(expansion.points, "ndim", 2) == 1
    yield (expansion.kernel.name == "precomputed") == of_columns, "its points do not belong to its kernel"


def _check_method(model: Any) -> Checks:
    from ldsu.solvers import MAX_CONDITIONING

    kernel = getattr(model.feature_map_, "kernel", None)
    if kernel is None:
        yield model.kernel == "rbf" and model.solver_ == "sparse", "its feature map is not that of its kernel"
        # Features cost dense systems of that size.
        stored = model.feature_map_.n_conditioning
        limit = min(model.n_conditioning, model.feature_map_.points.shape[0] - 1, MAX_CONDITIONING)
        yield stored <= limit, f"it conditions on {safe_repr(stored)} neighbors, where {limit} is the limit"
        return
    yield kernel.name == model.kernel and model.coef_ is not None, "its feature map is not that of its kernel"
    if kernel.name == "precomputed":
        in_range = model.feature_map_.points.max(initial=-1) < model.n_features_in_
        yield in_range, "it reads columns that its kernel matrix does not have"


def _check_enfs(model: Any) -> Checks:
    ranks = np.arange(1, model.n_features_in_ + 1)
    yield np.array_equal(np.sort(model.ranking_), ranks), "its ranking does not name every column once"


def _check_standard_scaler(scaler: Any) -> Checks:
    centers = scaler.mean_ is not None or not scaler.with_mean
    divides = scaler.scale_ is not None and (scaler.scale_ != 0).all() if scaler.with_std else scaler.scale_ is None
    yield centers and divides, "its scaler lacks means or deviations, or one is 0"


def _check_cells(cells: Any) -> Checks:
    n = cells.order.size
    in_range = is_nondecreasing(cells.starts, n) and cells.order.max(initial=-1) < n and cells.starts.size >= 2
    yield in_range, "the cells of its neighbor search are out of range"


def _check_binarizer(binarizer: Any) -> Checks:
    c, labels = binarizer.classes_.size, binarizer.y_type_
    yield (labels == "binary") == (c <= 2), f"its labels are {labels}, but it has {c} classes"


def _check_linear(model: Any) -> Checks:
    c = model.classes_.size
    rows = 1 if c <= 2 else c
    found = 1 if model.coef_.ndim == 1 else model.coef_.shape[0]
    # A ridge classifier learns from a single class, too; the others would look for a second one.
    fewest = 1 if type(model).__name__ == "RidgeClassifier" else 2
    fits = c >= fewest and found == rows and np.size(model.intercept_) in (1, rows)
    yield fits, f"it has {found} row(s) of coefficients for {c} classes"


def _check_classifier(model: Any) -> Checks:
    c, n_scores = model.classes_.size, model.score_center_.size
    fits = c >= 2 and n_scores == (1 if c == 2 else c) and (model.score_scale_ != 0).all()
    yield fits, f"it scores {n_scores} for {c} classes"
    default = model.classifier is None
    fits = default == hasattr(model, "_sharpness") == hasattr(model, "expected_accuracy_")
    yield fits, "its probabilities do not belong to its classifier"
    fits = default == (type(model.classifier_).__name__ == "RidgeClassifier")
    yield fits, "its classifier is not that of its parameters"
    yield model._lengths.size and (np.diff(model._lengths) >= 0).all(), "its lengths are not in order"
    yield _follows(_n_out(model.features_), model.scaler_.n_features_in_, "its scaler")


def _check_pipeline(model: Any) -> Checks:
    before: int | None = None
    steps = [(name, step) for name, step in model.steps if step not in (None, "passthrough")]
    for i, (name, step) in enumerate(steps, start=1):
        yield _follows(before, int(step.n_features_in_), f"step {safe_repr(name)}")
        before = _n_out(step)
        yield before is not None or i == len(steps), f"step {safe_repr(name)} gives no features to the next"


def _check_words(words: Any) -> Checks:
    named, weighed = len(set(words.vocabulary)), words.idf.size
    fits = not words.vocabulary or len(words.vocabulary) == weighed == named
    yield fits, f"it weighs {weighed} words and names {named}"


def _check_numbers(numbers: Any) -> Checks:
    yield (numbers.scale > 0).all(), "it divides a column by zero or less"


def _check_encoder(encoder: Any) -> Checks:
    numbers = encoder.matrix_columns + len(encoder.of_kind("number", "time"))
    encoded = encoder.numbers.fill.size if encoder.numbers else encoder.counts.idf.size if encoder.counts else 0
    fits = numbers == encoded and (encoder.numbers is None or encoder.counts is None)
    yield fits, f"it has {numbers} columns of numbers and encodes {encoded}"
    exists = encoder.numbers is None or encoder.numbers.flagged.max(initial=-1) < numbers
    yield exists, "it flags a column that does not exist"
    texts = len(encoder.of_kind("text"))
    with_words = sum(bool(words.vocabulary) for words in encoder.words)
    fits = texts == with_words == len(encoder.words)
    yield fits, f"it has {texts} column(s) of text and words for {with_words}"
    fits = encoder.image_shape is None or math.prod(encoder.image_shape) == encoder.matrix_columns
    yield fits, f"its images do not have {encoder.matrix_columns} pixels"
    unique = len({column.name for column in encoder.columns}) == len(encoder.columns)
    yield unique, "two of its columns have the same name"


def _check_table_model(model: Any) -> Checks:
    yield _follows(model.encoder.n_points_columns, int(model.classifier.n_features_in_), "its classifier")
    yield model.classifier.classifier is None, "its classifier has no probabilities"
    yield isinstance(model.about, dict), "its 'about' is not a JSON object"


# --- The table --------------------------------------------------------------------------------------------------------

_POSITIVE = number(0, above=True)
_COLUMNS: dict[str, FieldType] = {
    "n_features_in_": integer("d", low=1),
    "feature_names_in_": IfSet(Strings("d")),
}
_OUTPUT: dict[str, FieldType] = {"_sklearn_output_config": IfSet(OUTPUT_CONFIG)}


def _method(**more: FieldType) -> Schema:
    fields: dict[str, FieldType] = {
        **_COLUMNS,
        "classes_": Labels(),
        "coef_": Optional(Array("f", "b", "r")),
        "eigenvalues_": Array("f", "r"),
        "gamma_": Optional(_POSITIVE),
        "timings_": Plain(),
        "feature_map_": Object("KernelExpansion", "LocalExpansion", d="d", r="r", b="b"),
        **more,
        **_OUTPUT,
    }
    return Schema("ldsu.methods", fields, check=_check_method, rows=kernel_rows)


def _linear(module: str, retired: tuple[str, ...] = (), **more: FieldType) -> Schema:
    fields: dict[str, FieldType] = {
        **_COLUMNS,
        "classes_": Labels(),
        "coef_": Either(Array("f", "d"), Array("f", "k", "d")),
        "intercept_": Either(number(), Array("f", "k")),
        "n_iter_": IfSet(Optional(Either(integer(), Array("i", "i")))),
        **more,
    }
    return Schema(module, fields, retired=retired, check=_check_linear, rows=random_rows)


def _data(module: str, check: Callable[[Any], Checks] | None = None, **fields: FieldType) -> Schema:
    return Schema(module, fields, constructed=True, check=check)


SCHEMAS |= {
    "LDSUClassifier": Schema(
        "ldsu.classifier",
        {
            **_COLUMNS,
            "classes_": Labels(),
            "features_": Object(*TRANSFORMERS, d="d"),
            "scaler_": Object("BlockScaler", d="r"),
            "classifier_": Object("RidgeClassifier", "LabelledOnly", d="r", c="c"),
            "score_center_": Array("f", "k"),
            "score_scale_": Array("f", "k"),
            "transduction_": RowLabels("n"),
            "expected_accuracy_": IfSet(number(0)),
            "_lengths": Array("f", "n"),
            "_odds": _POSITIVE,
            "_sharpness": IfSet(_POSITIVE),
        },
        check=_check_classifier,
        rows=lambda model: sample_rows(model.features_),
    ),
    "TableModel": Schema(
        "ldsu.tables.model",
        {
            "encoder": Object("TableEncoder"),
            "classifier": Object("LDSUClassifier"),
            "label": text(),
            "about": Plain(),
            "unlabelled": TEXTS,
        },
        constructed=True,
        check=_check_table_model,
        rows=lambda model: sample_rows(model.classifier),
        outputs=lambda model, rows: compute_outputs(model.classifier, rows),
    ),
    "TableEncoder": _data(
        "ldsu.tables.encoder",
        _check_encoder,
        columns=NamedObjects("Column"),
        scaling=text("each", "common", "counts", "none"),
        matrix_columns=integer(),
        image_shape=Optional(IMAGE_SHAPE),
        kernel=text("rbf", "cosine", "linear"),
        numbers=Optional(Object("Numbers")),
        counts=Optional(Object("Words")),
        words=Objects("Words"),
        notes=TEXTS,
        first_index=Optional(integer(high=1)),
    ),
    "Column": _data(
        "ldsu.tables.columns",
        name=text(),
        kind=text("number", "time", "category", "text", "ignored"),
        note=text(),
        stray=TEXTS,
        levels=TEXTS,
        rare=BOOLEAN,
        format=text(),
    ),
    "Numbers": _data(
        "ldsu.tables.encoder",
        _check_numbers,
        fill=Array("f", "p"),
        center=Array("f", "p"),
        scale=Array("f", "p"),
        flagged=Array("i", "q", low=0),
    ),
    "Words": _data(
        "ldsu.tables.text_features",
        _check_words,
        vocabulary=TEXTS,
        idf=Array("f", "v"),
        directions=Array("f", "v", "r"),
    ),
    "LDSU": _method(
        strength_=number(0),
        noise_=number(0),
        selection_=Optional(Plain()),
        solver_=text("exact", "sparse"),
        n_iter_=integer(),
        residual_=number(0),
        anchors_=Optional(Array("i", "a", low=0)),
        theta_=number(0),
        clique_size_=integer(low=1),
    ),
    "KDA": _method(),
    "KPCA": _method(offset_=Array("f", "r")),
    "KSDA": _method(),
    "KSELF": _method(),
    "KLPP": _method(),
    "EnFS": Schema(
        "ldsu.methods",
        {
            **_COLUMNS,
            "classes_": Labels(),
            "weights_": Array("f", "d", "v"),
            "scores_": Array("f", "d"),
            "ranking_": Array("i", "d", low=1),
            "objective_": Array("f", "i"),
            "n_iter_": integer("i"),
            **_OUTPUT,
        },
        check=_check_enfs,
        rows=random_rows,
    ),
    "BlockScaler": Schema("ldsu.classifier", {**_COLUMNS, "scale_": _POSITIVE, **_OUTPUT}, rows=random_rows),
    "LabelledOnly": Schema(
        "ldsu.classifier",
        {
            **_COLUMNS,
            "classes_": Labels(),
            "estimator_": Object(*LINEAR, "LDSUClassifier", "Pipeline", d="d", c="c"),
            "_columns": Optional(Array("i", "d", low=0)),
        },
        rows=lambda model: None if model._columns is not None else sample_rows(model.estimator_),
    ),
    "Pipeline": Schema(
        "sklearn.pipeline",
        {"steps": Steps(*TRANSFORMERS, *CLASSIFIERS), **_OUTPUT},
        retired=("transform_input",),
        fixed={"memory": None},  # it would name a folder to write to
        check=_check_pipeline,
        rows=pipeline_rows,
    ),
    "StandardScaler": Schema(
        "sklearn.preprocessing",
        {
            **_COLUMNS,
            **dict.fromkeys(("mean_", "var_", "scale_"), Optional(Array("f", "d"))),
            "n_samples_seen_": Either(number(0), Array("fi", "d")),
            **_OUTPUT,
        },
        check=_check_standard_scaler,
        rows=random_rows,
    ),
    "RidgeClassifier": _linear(
        "sklearn.linear_model", _label_binarizer=Object("LabelBinarizer", c="c"), solver_=IfSet(text())
    ),
    "LogisticRegression": _linear("sklearn.linear_model", ("multi_class", "penalty", "n_jobs")),
    "LinearSVC": _linear("sklearn.svm"),
    "LabelBinarizer": Schema(
        "sklearn.preprocessing",
        {"classes_": Labels(), "y_type_": text("binary", "multiclass"), "sparse_input_": BOOLEAN},
        check=_check_binarizer,
    ),
    "Kernel": _data(
        "ldsu.kernels",
        _check_kernel,
        name=text(*KERNELS),
        gamma=Optional(_POSITIVE),
        degree=integer(low=1),
        coef0=number(0),
        params=Parameter(),
    ),
    "KernelExpansion": _data(
        "ldsu.solvers",
        _check_expansion,
        kernel=Object("Kernel"),
        points=Either(Array("f", "b", "d"), Array("i", "b", low=0), Sparse("b", "d")),
        coefficients=Array("f", "b", "r"),
        offset=Either(number(), Array("f", "r")),
        device=Device(),
    ),
    "LocalExpansion": _data(
        "ldsu.solvers",
        origin=Optional(Array("f", "d")),
        unit=_POSITIVE,
        points=Array("f", "n", "d"),
        gamma=_POSITIVE,
        nugget=_POSITIVE,
        index=Object("NeighborIndex", n="n", d="d"),
        landmarks=Array("f", "p", "d"),
        transform=Array("f", "p", "q"),
        P=Array("f", "n", "q"),
        global_coefficients=Array("f", "q", "r"),
        local=Array("f", "n", "r"),
        n_conditioning=integer(low=1),
        device=Device(),
    ),
    "NeighborIndex": _data(
        "ldsu.neighbors._index", X=Array("f", "n", "d"), cells=Optional(Object("CellIndex", n="n", d="d"))
    ),
    "CellIndex": _data(
        "ldsu.neighbors._cells",
        _check_cells,
        mean=Array("f", "d"),
        axes=Array("f", "d", "a"),
        centres=Array("f", "cells", "a"),
        starts=Array("i", "cells+1", low=0),
        order=Array("i", "n", low=0),
        rows=Array("f", "n", "a"),
    ),
}
