"""Which models can be saved, and what each of them is made of.

The entries of `SCHEMAS` are the whole answer: for each class where it is defined, its fields, for each field its kind,
what must hold between fields that are sound alone, and the rows that a model is tried with; the parameters of an
estimator are those of its signature. Saving takes a model apart by that table; loading checks every field against it
and puts the model together from what it lists and nothing else. No name from a file is ever looked up anywhere but in
this table. A class is added by an entry, a fitted attribute by a line; `if_set`, where files written before lack it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse

from ldsu.io._fields import (
    ANYTHING,
    BOOLEAN,
    IMAGE_SHAPE,
    OUTPUT_CONFIG,
    TEXTS,
    Array,
    Either,
    Kind,
    Labels,
    Optional,
    RowLabels,
    Samples,
    Sparse,
    arrays,
    if_set,
    integer,
    is_nondecreasing,
    number,
    strings,
    text,
)
from ldsu.io._objects import SCHEMAS, Checks, NamedObjects, Object, Objects, Parameter, Schema, Steps, schema_of
from ldsu.io.container import safe_repr
from ldsu.kernels import GAMMA_KERNELS, KERNELS
from ldsu.sample_kernels import SAMPLE_KERNELS

Check: TypeAlias = Callable[[Any], Checks]
Rows: TypeAlias = Callable[[Any], Any]
KERNEL_METHODS = ("KDA", "KPCA", "KSDA", "KSELF", "KLPP", "LDSU")
SCALERS = ("BlockScaler", "StandardScaler")
LINEAR = ("RidgeClassifier", "LogisticRegression", "LinearSVC")
TRANSFORMERS = (*KERNEL_METHODS, "EnFS", *SCALERS, "Pipeline")
CLASSIFIERS = (*LINEAR, "LabelledOnly", "LDSUClassifier")
# Rows that a model is tried with, and those of a `LocalExpansion` among which they are chosen.
MAX_ROWS, CANDIDATES = 3, 16
# A row's farthest neighbor is no matter of rounding where the next is farther by this share.
MIN_GAP = 1e-3


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


def _follows(before: int | None, after: int, what: str) -> tuple[bool, str]:
    return before in (None, after), f"{what} requires {after} columns, but gets {before}"


def _check_kernel(kernel: Any) -> Checks:
    fits = (kernel.name in GAMMA_KERNELS) == (kernel.gamma is not None) and isinstance(kernel.params, dict)
    yield fits, f"its {kernel.name} kernel has gamma {kernel.gamma}"


def _check_expansion(expansion: Any) -> Checks:
    of_columns = getattr(expansion.points, "ndim", 2) == 1
    yield (expansion.kernel.name == "precomputed") == of_columns, "its points do not belong to its kernel"


def _check_method(model: Any) -> Checks:
    from ldsu.solvers import MAX_CONDITIONING

    kernel = getattr(model.feature_map_, "kernel", None)
    if kernel is None:
        same = model.kernel == model.feature_map_.kernel_name
        yield same and model.solver_ == "sparse", "its feature map is not that of its kernel"
        # Features cost dense systems of that size.
        stored = model.feature_map_.n_conditioning
        limit = min(model.n_conditioning, model.feature_map_.points.shape[0] - 1, MAX_CONDITIONING)
        yield stored <= limit, f"it conditions on {safe_repr(stored)} neighbors, where {limit} is the limit"
        return
    yield kernel.name == model.kernel and model.coef_ is not None, "its feature map is not that of its kernel"
    if kernel.name == "precomputed":
        in_range = model.feature_map_.points.max(initial=-1) < model.n_features_in_
        yield in_range, "it reads columns that its kernel matrix does not have"


def _check_local(expansion: Any) -> Checks:
    parts = (expansion.points, expansion.landmarks, expansion.index.X)
    yield len({scipy.sparse.issparse(part) for part in parts}) == 1, "some of its samples are sparse, others are not"
    q, first = expansion.transform.shape[1], expansion.P.shape[1]
    yield first <= q, f"its samples have {first} landmark features, new rows {q}"


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


def _check_supervised(supervised: Any) -> Checks:
    columns, d = supervised.forest.columns, supervised.scaling.center.size
    yield columns.size and columns.max() < d, "its trees read columns that do not exist"
    yield supervised.weights.size == 3, "it does not weigh three classifiers"


def _check_forest(forest: Any) -> Checks:
    n, nodes = forest.left.size, np.arange(forest.left.size)
    leaves = (forest.left == nodes) & (forest.right == nodes)
    # Children come after their parents, so every way ends.
    forward = (forest.left > nodes) & (forest.right > nodes) & (forest.left < n) & (forest.right < n)
    yield n and forest.roots.size and forest.roots.max() < n and (leaves | forward).all(), "its trees are not trees"
    fits = forest.feature.max() < forest.columns.size and forest.leaf.max() < forest.values.shape[0]
    yield fits, "its trees name columns or leaves that do not exist"
    yield (forest.values >= 0).all() and (forest.values <= 1).all(), "its trees have no probabilities"


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


def _check_encoder(encoder: Any) -> Checks:
    numbers = encoder.matrix_columns + len(encoder.of_kind("number", "time"))
    encoded = encoder.numbers.fill.size if encoder.numbers else encoder.counts.idf.size if encoder.counts else 0
    fits = numbers == encoded and (encoder.numbers is None or encoder.counts is None)
    yield fits, f"it has {numbers} columns of numbers and encodes {encoded}"
    exists = encoder.numbers is None or encoder.numbers.flagged.max(initial=-1) < numbers
    yield exists, "it flags a column that does not exist"
    texts = len(encoder.of_kind("text"))
    with_words = sum(bool(getattr(words, "vocabulary", True)) for words in encoder.words)
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


# --- Rows that a model is tried with ----------------------------------------------------------------------------------


def sample_rows(model: Any) -> Any:
    """A few rows that a model can be tried with, of its own points where it keeps any; None where there are none."""
    return schema_of(model)[1].rows(model)


def _random_rows(model: Any) -> np.ndarray:
    """Rows for a model that keeps no points: any will do."""
    return np.random.default_rng(0).standard_normal((MAX_ROWS, int(model.n_features_in_)))


def _kernel_rows(model: Any) -> Any:
    """Rows of the points that a kernel method keeps, in double precision."""
    if model.kernel == "precomputed":
        return None
    if type(model.feature_map_).__name__ == "LocalExpansion":
        return _unambiguous_rows(model.feature_map_)
    points = model.feature_map_.points
    n = points.shape[0]
    return points[np.unique([0, n // 2, n - 1])].astype(np.float64)


def _unambiguous_rows(feature_map: Any) -> Any:
    """Points of a `LocalExpansion` with the same neighbors on every machine: rounding decides between equally near."""
    points, n = feature_map.points, feature_map.points.shape[0]
    some = points[np.unique(np.linspace(0, n - 1, CANDIDATES).astype(int))]
    k, kernel = min(feature_map.n_conditioning + 1, n), feature_map.sample_kernel
    near = feature_map.index.query(some, min(k + 1, n), points, kernel=kernel)
    listed = points[near.reshape(-1)].astype(np.float64)
    D2 = kernel.distances_to(listed, np.arange(near.size).reshape(near.shape), some.astype(np.float64))
    D2.sort(axis=1)
    gaps = np.ones(len(near)) if k == n else (D2[:, k] - D2[:, k - 1]) / np.maximum(D2[:, k], np.finfo(float).tiny)
    clear = np.argsort(-gaps, kind="stable")[:MAX_ROWS]
    clear = clear[gaps[clear] > MIN_GAP]
    return feature_map.frame.input_rows(some[clear]) if clear.size else None


def _pipeline_rows(model: Any) -> Any:
    """Rows that the scalers before the first step with points of its own turn into those."""
    before: list[Any] = []
    for _, step in model.steps:
        if step is None or step == "passthrough":
            continue
        if type(step).__name__ in SCALERS:
            before.append(step)
            continue
        rows = sample_rows(step)
        for scaler in reversed(before) if rows is not None else ():
            rows = rows * scaler.scale_ if type(scaler).__name__ == "BlockScaler" else scaler.inverse_transform(rows)
        return rows
    return _random_rows(before[0]) if before else None


# --- The table --------------------------------------------------------------------------------------------------------

_POSITIVE = number(0, above=True)


def _estimator(module: str, rows: Rows, check: Check = Schema.check, /, **fields: Kind) -> Schema:
    """An estimator of columns, whose output `set_output` may have set."""
    fields["n_features_in_"] = integer("d", low=1)
    fields["feature_names_in_"] = if_set(strings("d"))
    fields["_sklearn_output_config"] = if_set(OUTPUT_CONFIG)
    return Schema(module, fields, rows=rows, check=check)


def _method(**fields: Kind) -> Schema:
    return _estimator(
        "ldsu.methods",
        _kernel_rows,
        _check_method,
        classes_=Labels(),
        coef_=Optional(Array("f", "b r")),
        eigenvalues_=Array("f", "r"),
        gamma_=Optional(_POSITIVE),
        timings_=ANYTHING,
        feature_map_=Object("KernelExpansion", "LocalExpansion", d="d", r="r", b="b"),
        **fields,
    )


def _linear(module: str, /, **fields: Kind) -> Schema:
    return _estimator(
        module,
        _random_rows,
        _check_linear,
        classes_=Labels(),
        coef_=Either(Array("f", "d"), Array("f", "k d")),
        intercept_=Either(number(), Array("f", "k")),
        n_iter_=if_set(Optional(Either(integer(), Array("i", "i")))),
        **fields,
    )


def _data(module: str, check: Check = Schema.check, /, **fields: Kind) -> Schema:
    return Schema(module, fields, constructed=True, check=check)


SCHEMAS |= {
    "LDSUClassifier": _estimator(
        "ldsu.classifier",
        lambda model: sample_rows(model.features_),
        _check_classifier,
        classes_=Labels(),
        features_=Object(*TRANSFORMERS, d="d"),
        scaler_=Object("BlockScaler", d="r"),
        classifier_=Object("RidgeClassifier", "LabelledOnly", d="r", c="c"),
        transduction_=RowLabels("n"),
        expected_accuracy_=if_set(number(0)),
        class_shares_=if_set(Optional(Array("f", "c"))),
        _odds=_POSITIVE,
        _sharpness=if_set(_POSITIVE),
        selection_=if_set(Optional(ANYTHING)),
        leave_one_out_accuracy_=if_set(Optional(number(0))),
        supervised_=if_set(Optional(Object("Supervised", d="d", c="c"))),
        **arrays("f", score_center_="k", score_scale_="k", _lengths="n"),
    ),
    "Supervised": _data(
        "ldsu.classifier",
        _check_supervised,
        scaling=Object("Scaling", d="d"),
        forest=Object("Forest", c="c"),
        laplacian=Object("LaplacianRidge", d="d", c="c"),
        linear=Object("LinearRidge", d="d", c="c"),
        weights=Array("f", "w"),
    ),
    "LaplacianRidge": _data(
        "ldsu.classifier",
        points=Either(Array("f", "b d"), Sparse("b", "d")),
        gamma=_POSITIVE,
        **arrays("f", coefficients="b c", intercept="c"),
    ),
    "LinearRidge": _data("ldsu.classifier", **arrays("f", coefficients="d c", intercept="c")),
    "Scaling": _data("ldsu.classifier", center=Array("f", "d"), scale=_POSITIVE),
    "Forest": _data(
        "ldsu.classifier",
        _check_forest,
        **arrays("i", low=0, columns="u", roots="t", feature="nodes", left="nodes", right="nodes", leaf="nodes"),
        **arrays("f", threshold="nodes", values="leaves c"),
    ),
    "TableModel": Schema(
        "ldsu.tables.model",
        {
            "encoder": Object("TableEncoder"),
            "classifier": Object("LDSUClassifier"),
            "label": text(),
            "about": ANYTHING,
            "unlabelled": TEXTS,
        },
        constructed=True,
        check=_check_table_model,
        rows=lambda model: sample_rows(model.classifier),
        tried=attrgetter("classifier"),
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
        words=Objects("Words", "Embedding"),
        notes=TEXTS,
        first_index=Optional(integer(high=1)),
        photos=if_set(Optional(Object("Embedding"))),
    ),
    "Column": _data(
        "ldsu.tables.columns",
        kind=text("number", "time", "category", "text", "ignored"),
        rare=BOOLEAN,
        **dict.fromkeys(("name", "note", "format"), text()),
        **dict.fromkeys(("stray", "levels"), TEXTS),
    ),
    "Numbers": _data(
        "ldsu.tables.encoder",
        lambda numbers: [((numbers.scale > 0).all(), "it divides a column by zero or less")],
        **arrays("f", fill="p", center="p", scale="p"),
        **arrays("i", low=0, flagged="q"),
    ),
    "Embedding": _data(
        "ldsu.tables.embedded",
        **dict.fromkeys(("encoder", "version", "fingerprint"), text()),
        center=Array("f", "r"),
        scale=_POSITIVE,
    ),
    "Words": _data(
        "ldsu.tables.text_features", _check_words, vocabulary=TEXTS, **arrays("f", idf="v", directions="v r")
    ),
    "LDSU": _method(
        solver_=text("exact", "sparse"),
        selection_=Optional(ANYTHING),
        anchors_=Optional(Array("i", "a", low=0)),
        n_iter_=integer(),
        clique_size_=integer(low=1),
        **dict.fromkeys(("strength_", "noise_", "residual_", "theta_"), number(0)),
    ),
    "KDA": _method(),
    "KPCA": _method(offset_=Array("f", "r")),
    "KSDA": _method(),
    "KSELF": _method(),
    "KLPP": _method(),
    "EnFS": _estimator(
        "ldsu.methods",
        _random_rows,
        _check_enfs,
        classes_=Labels(),
        ranking_=Array("i", "d", low=1),
        n_iter_=integer("i"),
        **arrays("f", weights_="d v", scores_="d", objective_="i"),
    ),
    "BlockScaler": _estimator("ldsu.classifier", _random_rows, scale_=_POSITIVE),
    "LabelledOnly": _estimator(
        "ldsu.classifier",
        lambda model: None if model._columns is not None else sample_rows(model.estimator_),
        classes_=Labels(),
        estimator_=Object(*LINEAR, "LDSUClassifier", "Pipeline", d="d", c="c"),
        _columns=Optional(Array("i", "d", low=0)),
    ),
    "Pipeline": Schema(
        "sklearn.pipeline",
        {"steps": Steps(*TRANSFORMERS, *CLASSIFIERS), "_sklearn_output_config": if_set(OUTPUT_CONFIG)},
        retired=("transform_input",),
        fixed={"memory": None},  # it would name a folder to write to
        check=_check_pipeline,
        rows=_pipeline_rows,
    ),
    "StandardScaler": _estimator(
        "sklearn.preprocessing",
        _random_rows,
        _check_standard_scaler,
        n_samples_seen_=Either(number(0), Array("fi", "d")),
        **dict.fromkeys(("mean_", "var_", "scale_"), Optional(Array("f", "d"))),
    ),
    "RidgeClassifier": _linear(
        "sklearn.linear_model", _label_binarizer=Object("LabelBinarizer", c="c"), solver_=if_set(text())
    ),
    "LogisticRegression": replace(_linear("sklearn.linear_model"), retired=("multi_class", "penalty", "n_jobs")),
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
        points=Either(Array("f", "b d"), Array("i", "b", low=0), Sparse("b", "d")),
        coefficients=Array("f", "b r"),
        offset=Either(number(), Array("f", "r")),
        device=text(),
    ),
    "LocalExpansion": _data(
        "ldsu.solvers",
        _check_local,
        points=Samples("n", "d"),
        landmarks=Samples("p", "d"),
        **arrays("f", transform="p q", P="n e", global_coefficients="q r", local="n r"),
        origin=Optional(Array("f", "d")),
        index=Object("NeighborIndex", n="n", d="d"),
        n_conditioning=integer(low=1),
        device=text(),
        **dict.fromkeys(("unit", "gamma", "nugget"), _POSITIVE),
        kernel_name=if_set(text(*SAMPLE_KERNELS)),
        degree=if_set(integer(low=1)),
        coef0=if_set(number(0)),
    ),
    "NeighborIndex": _data("ldsu.neighbors", X=Samples("n", "d"), cells=Optional(Object("CellIndex", n="n", d="d"))),
    "CellIndex": _data(
        "ldsu.neighbors",
        _check_cells,
        **arrays("f", mean="d", axes="d a", centres="cells a", rows="n a"),
        **arrays("i", low=0, starts="cells+1", order="n"),
    ),
}
