"""Which models can be saved, and what each of them is made of.

The entries of `SCHEMAS` are the whole answer: for each class its fields, for each field its kind, and what must hold
between fields that are sound alone. Saving takes a model apart by that table; loading checks every field against it
and puts the model together from what it lists and nothing else. No name from a file is ever looked up anywhere but in
this table. A class is added by an entry there, and one in `MODULES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ldsu.io.container import Invalid, safe_repr
from ldsu.io.kinds import (
    Array,
    Boolean,
    Device,
    Either,
    Integer,
    Json,
    Labelling,
    Labels,
    Number,
    Optional,
    OutputConfig,
    Shape,
    Sparse,
    Strings,
    Text,
    Texts,
    is_nondecreasing,
)
from ldsu.io.probe import (
    SCALERS,
    kernel_rows,
    labelled_rows,
    pipeline_rows,
    probe_answers,
    probe_rows,
    random_rows,
)
from ldsu.io.records import Named, Parameter, Record, Records, Steps
from ldsu.io.schema import SCHEMAS, Field, Schema
from ldsu.kernels import KERNELS

KERNEL_METHODS = ("KDA", "KPCA", "KSDA", "KSELF", "KLPP", "LDSU")
LINEAR = ("RidgeClassifier", "LogisticRegression", "LinearSVC")
TRANSFORMERS = (*KERNEL_METHODS, "EnFS", *SCALERS, "Pipeline")
CLASSIFIERS = (*LINEAR, "LabelledOnly", "LDSUClassifier")

# Where the classes are defined. Each is imported when a model that has it is saved, loaded or described; nothing else
# is imported for a file.
MODULES = {
    "LDSUClassifier": "ldsu.classifier",
    "BlockScaler": "ldsu.classifier",
    "LabelledOnly": "ldsu.classifier",
    "TableModel": "ldsu.tables.model",
    "TableEncoder": "ldsu.tables.encoder",
    "Numbers": "ldsu.tables.encoder",
    "Column": "ldsu.tables.columns",
    "Words": "ldsu.tables.text_features",
    **dict.fromkeys((*KERNEL_METHODS, "EnFS"), "ldsu.methods"),
    "Pipeline": "sklearn.pipeline",
    "StandardScaler": "sklearn.preprocessing",
    "LabelBinarizer": "sklearn.preprocessing",
    "RidgeClassifier": "sklearn.linear_model",
    "LogisticRegression": "sklearn.linear_model",
    "LinearSVC": "sklearn.svm",
    "Kernel": "ldsu.kernels",
    "KernelExpansion": "ldsu.solvers._expansion",
    "LocalExpansion": "ldsu.solvers._local_expansion",
    "NeighborIndex": "ldsu.neighbors._index",
    "CellIndex": "ldsu.neighbors._cells",
}


def _class(name: str) -> Callable[[], type]:
    """What gives a class of `MODULES`, and imports it only then."""
    home = MODULES[name]
    return lambda: getattr(import_module(home), name)


# --- What fits together -----------------------------------------------------------------------------------------------


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


def _check_follows(before: int | None, after: int, what: str) -> None:
    if before is not None and before != after:
        raise Invalid(f"is not a valid model: {what} requires {after} columns, but gets {before}.")


def _check_kernel(kernel: Any, sizes: dict[str, int]) -> None:
    needs = kernel.name in ("rbf", "chi2", "poly")
    if needs != (kernel.gamma is not None) or not isinstance(kernel.params, dict):
        raise Invalid(f"is not a valid model: its {kernel.name} kernel has gamma {kernel.gamma}.")


def _check_expansion(expansion: Any, sizes: dict[str, int]) -> None:
    if (expansion.kernel.name == "precomputed") != (getattr(expansion.points, "ndim", 2) == 1):
        raise Invalid("is not a valid model: its points do not belong to its kernel.")


def _check_method(model: Any, sizes: dict[str, int]) -> None:
    kernel = getattr(model.feature_map_, "kernel", None)
    if kernel is None:
        if model.kernel != "rbf" or model.solver_ != "sparse":
            raise Invalid("is not a valid model: its feature map is not that of its kernel.")
        _check_conditioning(model)
        return
    if kernel.name != model.kernel or model.coef_ is None:
        raise Invalid("is not a valid model: its feature map is not that of its kernel.")
    if kernel.name == "precomputed" and model.feature_map_.points.max(initial=-1) >= model.n_features_in_:
        raise Invalid("is not a valid model: it reads columns that its kernel matrix does not have.")


def _check_conditioning(model: Any) -> None:
    """Refuse more neighbors than `fit` takes: features cost dense systems of that size."""
    from ldsu.solvers import MAX_CONDITIONING

    limit = min(model.n_conditioning, model.feature_map_.points.shape[0] - 1, MAX_CONDITIONING)
    if model.feature_map_.n_conditioning > limit:
        stored = safe_repr(model.feature_map_.n_conditioning)
        raise Invalid(f"is not a valid model: it conditions on {stored} neighbors, where {limit} is the limit.")


def _check_enfs(model: Any, sizes: dict[str, int]) -> None:
    if not np.array_equal(np.sort(model.ranking_), np.arange(1, model.n_features_in_ + 1)):
        raise Invalid("is not a valid model: its ranking does not name every column once.")


def _check_standard_scaler(scaler: Any, sizes: dict[str, int]) -> None:
    complete = (scaler.mean_ is not None or not scaler.with_mean, (scaler.scale_ is not None) == bool(scaler.with_std))
    if not all(complete) or (scaler.scale_ is not None and (scaler.scale_ == 0).any()):
        raise Invalid("is not a valid model: its scaler lacks means or deviations, or one is 0.")


def _check_cells(cells: Any, sizes: dict[str, int]) -> None:
    n = sizes["n"]
    if not is_nondecreasing(cells.starts, n) or cells.order.max(initial=-1) >= n or cells.starts.size < 2:
        raise Invalid("is not a valid model: the cells of its neighbor search are out of range.")


def _check_binarizer(binarizer: Any, sizes: dict[str, int]) -> None:
    if (binarizer.y_type_ == "binary") != (sizes["c"] <= 2):
        raise Invalid(f"is not a valid model: its labels are {binarizer.y_type_}, but it has {sizes['c']} classes.")


def _check_linear(model: Any, sizes: dict[str, int]) -> None:
    c = model.classes_.size
    rows = 1 if c <= 2 else c
    of_classes = 1 if model.coef_.ndim == 1 else model.coef_.shape[0]
    # A ridge classifier learns from a single class, too; the others would look for a second one.
    fewest = 1 if type(model).__name__ == "RidgeClassifier" else 2
    if c < fewest or of_classes != rows or np.size(model.intercept_) not in (1, rows):
        raise Invalid(f"is not a valid model: it has {of_classes} row(s) of coefficients for {c} classes.")


def _check_classifier(model: Any, sizes: dict[str, int]) -> None:
    c = model.classes_.size
    if c < 2 or model.score_center_.size != (1 if c == 2 else c) or (model.score_scale_ == 0).any():
        raise Invalid(f"is not a valid model: it scores {model.score_center_.size} for {c} classes.")
    default_classifier = model.classifier is None
    if default_classifier != hasattr(model, "_sharpness") or default_classifier != hasattr(model, "expected_accuracy_"):
        raise Invalid("is not a valid model: its probabilities do not belong to its classifier.")
    if default_classifier != (type(model.classifier_).__name__ == "RidgeClassifier"):
        raise Invalid("is not a valid model: its classifier is not that of its parameters.")
    if model._lengths.size == 0 or (np.diff(model._lengths) < 0).any():
        raise Invalid("is not a valid model: its lengths are not in order.")
    _check_follows(_n_out(model.features_), model.scaler_.n_features_in_, "its scaler")


def _check_pipeline(model: Any, sizes: dict[str, int]) -> None:
    before: int | None = None
    steps = [(name, step) for name, step in model.steps if step not in (None, "passthrough")]
    for number, (name, step) in enumerate(steps):
        _check_follows(before, int(step.n_features_in_), f"step {safe_repr(name)}")
        before = _n_out(step)
        if before is None and number + 1 < len(steps):
            raise Invalid(f"is not a valid model: step {safe_repr(name)} gives no features to the next.")


def _check_words(words: Any, sizes: dict[str, int]) -> None:
    named = len(words.vocabulary)
    if named and (named != words.idf.size or len(set(words.vocabulary)) != named):
        raise Invalid(f"is not a valid model: it weighs {words.idf.size} words and names {len(set(words.vocabulary))}.")


def _check_numbers(numbers: Any, sizes: dict[str, int]) -> None:
    if not (numbers.scale > 0).all():
        raise Invalid("is not a valid model: it divides a column by zero or less.")


def _check_encoder(encoder: Any, sizes: dict[str, int]) -> None:
    named = len(encoder.of_kind("number", "time"))
    numbers = encoder.matrix_columns + named
    encoded = encoder.numbers.fill.size if encoder.numbers else encoder.counts.idf.size if encoder.counts else 0
    if numbers != encoded or (encoder.numbers is not None and encoder.counts is not None):
        raise Invalid(f"is not a valid model: it has {numbers} columns of numbers and encodes {encoded}.")
    if encoder.numbers and encoder.numbers.flagged.size and encoder.numbers.flagged.max() >= numbers:
        raise Invalid("is not a valid model: it flags a column that does not exist.")
    texts = len(encoder.of_kind("text"))
    with_words = sum(bool(words.vocabulary) for words in encoder.words)
    if not texts == with_words == len(encoder.words):
        raise Invalid(f"is not a valid model: it has {texts} column(s) of text and words for {with_words}.")
    if encoder.image_shape is not None and math.prod(encoder.image_shape) != encoder.matrix_columns:
        raise Invalid(f"is not a valid model: its images do not have {encoder.matrix_columns} pixels.")
    if len({column.name for column in encoder.columns}) != len(encoder.columns):
        raise Invalid("is not a valid model: two of its columns have the same name.")


def _check_table_model(model: Any, sizes: dict[str, int]) -> None:
    _check_follows(model.encoder.n_points_columns, int(model.classifier.n_features_in_), "its classifier")
    if model.classifier.classifier is not None:
        raise Invalid("is not a valid model: its classifier has no probabilities.")
    if not isinstance(model.about, dict):
        raise Invalid("is not a valid model: its 'about' is not a JSON object.")


# --- The table --------------------------------------------------------------------------------------------------------

_COLUMNS = (
    Field("n_features_in_", Integer("d", low=1)),
    Field("feature_names_in_", Strings("d"), missing=True),
)
_OUTPUT = Field("_sklearn_output_config", OutputConfig(), missing=True)


def _method_schema(name: str, *more: Field) -> Schema:
    fields = (
        *_COLUMNS,
        Field("classes_", Labels()),
        Field("coef_", Optional(Array("f", ("b", "r")))),
        Field("eigenvalues_", Array("f", ("r",))),
        Field("gamma_", Optional(Number(0, above=True))),
        Field("timings_", Json()),
        Field("feature_map_", Record("KernelExpansion", "LocalExpansion", d="d", r="r", b="b")),
        *more,
        _OUTPUT,
    )
    return Schema(_class(name), fields, check=_check_method, probe=kernel_rows)


_LINEAR_FIELDS = (
    *_COLUMNS,
    Field("classes_", Labels()),
    Field("coef_", Either(Array("f", ("d",)), Array("f", ("k", "d")))),
    Field("intercept_", Either(Number(), Array("f", ("k",)))),
    Field("n_iter_", Optional(Either(Integer(), Array("i", ("i",)))), missing=True),
)

SCHEMAS.update(
    {
        "LDSUClassifier": Schema(
            _class("LDSUClassifier"),
            (
                *_COLUMNS,
                Field("classes_", Labels()),
                Field("features_", Record(*TRANSFORMERS, d="d")),
                Field("scaler_", Record("BlockScaler", d="r")),
                Field("classifier_", Record("RidgeClassifier", "LabelledOnly", d="r", c="c")),
                Field("score_center_", Array("f", ("k",))),
                Field("score_scale_", Array("f", ("k",))),
                Field("transduction_", Labelling("n")),
                Field("expected_accuracy_", Number(0), missing=True),
                Field("_lengths", Array("f", ("n",))),
                Field("_odds", Number(0, above=True)),
                Field("_sharpness", Number(0, above=True), missing=True),
            ),
            check=_check_classifier,
            probe=lambda model: probe_rows(model.features_),
        ),
        "TableModel": Schema(
            _class("TableModel"),
            (
                Field("encoder", Record("TableEncoder")),
                Field("classifier", Record("LDSUClassifier")),
                Field("label", Text()),
                Field("about", Json()),
                Field("unlabelled", Texts()),
            ),
            constructed=True,
            check=_check_table_model,
            probe=lambda model: probe_rows(model.classifier),
            answers=lambda model, rows: probe_answers(model.classifier, rows),
        ),
        "TableEncoder": Schema(
            _class("TableEncoder"),
            (
                Field("columns", Named("Column")),
                Field("scaling", Text(("each", "common", "counts", "none"))),
                Field("matrix_columns", Integer(low=0)),
                Field("image_shape", Optional(Shape())),
                Field("kernel", Text(("rbf", "cosine", "linear"))),
                Field("numbers", Optional(Record("Numbers"))),
                Field("counts", Optional(Record("Words"))),
                Field("words", Records("Words")),
                Field("notes", Texts()),
                Field("first_index", Optional(Integer(high=1))),
            ),
            constructed=True,
            check=_check_encoder,
        ),
        "Column": Schema(
            _class("Column"),
            (
                Field("name", Text()),
                Field("kind", Text(("number", "time", "category", "text", "ignored"))),
                Field("note", Text()),
                Field("stray", Texts()),
                Field("levels", Texts()),
                Field("rare", Boolean()),
                Field("format", Text()),
            ),
            constructed=True,
        ),
        "Numbers": Schema(
            _class("Numbers"),
            (
                Field("fill", Array("f", ("p",))),
                Field("center", Array("f", ("p",))),
                Field("scale", Array("f", ("p",))),
                Field("flagged", Array("i", ("q",), low=0)),
            ),
            constructed=True,
            check=_check_numbers,
        ),
        "Words": Schema(
            _class("Words"),
            (
                Field("vocabulary", Texts()),
                Field("idf", Array("f", ("v",))),
                Field("directions", Array("f", ("v", "r"))),
            ),
            constructed=True,
            check=_check_words,
        ),
        "LDSU": _method_schema(
            "LDSU",
            Field("strength_", Number(0)),
            Field("noise_", Number(0)),
            Field("selection_", Optional(Json())),
            Field("solver_", Text(("exact", "sparse"))),
            Field("n_iter_", Integer()),
            Field("residual_", Number(0)),
            Field("anchors_", Optional(Array("i", ("a",), low=0))),
            Field("theta_", Number(0)),
            Field("clique_size_", Integer(low=1)),
        ),
        "KDA": _method_schema("KDA"),
        "KPCA": _method_schema("KPCA", Field("offset_", Array("f", ("r",)))),
        "KSDA": _method_schema("KSDA"),
        "KSELF": _method_schema("KSELF"),
        "KLPP": _method_schema("KLPP"),
        "EnFS": Schema(
            _class("EnFS"),
            (
                *_COLUMNS,
                Field("classes_", Labels()),
                Field("weights_", Array("f", ("d", "v"))),
                Field("scores_", Array("f", ("d",))),
                Field("ranking_", Array("i", ("d",), low=1)),
                Field("objective_", Array("f", ("i",))),
                Field("n_iter_", Integer("i")),
                _OUTPUT,
            ),
            check=_check_enfs,
            probe=random_rows,
        ),
        "BlockScaler": Schema(
            _class("BlockScaler"), (*_COLUMNS, Field("scale_", Number(0, above=True)), _OUTPUT), probe=random_rows
        ),
        "LabelledOnly": Schema(
            _class("LabelledOnly"),
            (
                *_COLUMNS,
                Field("classes_", Labels()),
                Field("estimator_", Record(*LINEAR, "LDSUClassifier", "Pipeline", d="d", c="c")),
                Field("_columns", Optional(Array("i", ("d",), low=0))),
            ),
            probe=labelled_rows,
        ),
        "Pipeline": Schema(
            _class("Pipeline"),
            (Field("steps", Steps(*TRANSFORMERS, *CLASSIFIERS)), _OUTPUT),
            stored_as_fields=("steps",),
            retired=("transform_input",),
            only={"memory": None},  # it would name a folder to write to
            check=_check_pipeline,
            probe=pipeline_rows,
        ),
        "StandardScaler": Schema(
            _class("StandardScaler"),
            (
                *_COLUMNS,
                Field("mean_", Optional(Array("f", ("d",)))),
                Field("var_", Optional(Array("f", ("d",)))),
                Field("scale_", Optional(Array("f", ("d",)))),
                Field("n_samples_seen_", Either(Number(0), Array("fi", ("d",)))),
                _OUTPUT,
            ),
            check=_check_standard_scaler,
            probe=random_rows,
        ),
        "RidgeClassifier": Schema(
            _class("RidgeClassifier"),
            (
                *_LINEAR_FIELDS,
                Field("_label_binarizer", Record("LabelBinarizer", c="c")),
                Field("solver_", Text(), missing=True),
            ),
            check=_check_linear,
            probe=random_rows,
        ),
        "LogisticRegression": Schema(
            _class("LogisticRegression"),
            _LINEAR_FIELDS,
            retired=("multi_class", "penalty", "n_jobs"),
            check=_check_linear,
            probe=random_rows,
        ),
        "LinearSVC": Schema(_class("LinearSVC"), _LINEAR_FIELDS, check=_check_linear, probe=random_rows),
        "LabelBinarizer": Schema(
            _class("LabelBinarizer"),
            (
                Field("classes_", Labels()),
                Field("y_type_", Text(("binary", "multiclass"))),
                Field("sparse_input_", Boolean()),
            ),
            check=_check_binarizer,
        ),
        "Kernel": Schema(
            _class("Kernel"),
            (
                Field("name", Text(KERNELS)),
                Field("gamma", Optional(Number(0, above=True))),
                Field("degree", Integer(low=1)),
                Field("coef0", Number(0)),
                Field("params", Parameter()),
            ),
            constructed=True,
            check=_check_kernel,
        ),
        "KernelExpansion": Schema(
            _class("KernelExpansion"),
            (
                Field("kernel", Record("Kernel")),
                Field("points", Either(Array("f", ("b", "d")), Array("i", ("b",), low=0), Sparse(("b", "d")))),
                Field("coefficients", Array("f", ("b", "r"))),
                Field("offset", Either(Number(), Array("f", ("r",)))),
                Field("device", Device()),
            ),
            constructed=True,
            check=_check_expansion,
        ),
        "LocalExpansion": Schema(
            _class("LocalExpansion"),
            (
                Field("origin", Optional(Array("f", ("d",)))),
                Field("unit", Number(0, above=True)),
                Field("points", Array("f", ("n", "d"))),
                Field("gamma", Number(0, above=True)),
                Field("nugget", Number(0, above=True)),
                Field("index", Record("NeighborIndex", n="n", d="d")),
                Field("landmarks", Array("f", ("p", "d"))),
                Field("transform", Array("f", ("p", "q"))),
                Field("P", Array("f", ("n", "q"))),
                Field("global_coefficients", Array("f", ("q", "r"))),
                Field("local", Array("f", ("n", "r"))),
                Field("n_conditioning", Integer(low=1)),
                Field("device", Device()),
            ),
            constructed=True,
        ),
        "NeighborIndex": Schema(
            _class("NeighborIndex"),
            (Field("X", Array("f", ("n", "d"))), Field("cells", Optional(Record("CellIndex", n="n", d="d")))),
            constructed=True,
        ),
        "CellIndex": Schema(
            _class("CellIndex"),
            (
                Field("mean", Array("f", ("d",))),
                Field("axes", Array("f", ("d", "a"))),
                Field("centres", Array("f", ("cells", "a"))),
                Field("starts", Array("i", ("cells+1",), low=0)),
                Field("order", Array("i", ("n",), low=0)),
                Field("rows", Array("f", ("n", "a"))),
            ),
            constructed=True,
            check=_check_cells,
        ),
    }
)
