"""Models as ONNX graphs, for programs without Python: features, labels, probabilities and how sure they are.

Double precision throughout, as in the library: kernel values are nearly dependent, and single precision loses what the
features live on. Only operators that onnxruntime's CPU provider implements for doubles are used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

import ldsu
from ldsu._utils.files import replacing
from ldsu._utils.memory import require_memory
from ldsu.classifier import ISOLATED, ODDS, SMOOTHING, BlockScaler, Forest, LabelledOnly, LDSUClassifier, Supervised
from ldsu.kernels import Kernel, column_means, dense, shifted
from ldsu.methods import METHODS, EnFS
from ldsu.solvers import KernelExpansion, LocalExpansion

if TYPE_CHECKING:
    import onnx

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
# A file of one piece; protobuf knows no larger message.
MAX_BYTES = 2**31 - 2**20
# scikit-learn leaves rows this short as they are when it divides rows by their lengths.
SHORTEST = 10 * float(np.finfo(np.float64).eps)
# A training row is as deep in the data as itself, whichever way its length was rounded.
ROUNDING = 1e-9


def to_onnx(model: BaseEstimator, *, outputs: Iterable[str] | None = None) -> onnx.ModelProto:
    """Write a fitted model as an ONNX graph.

    Its input is "X", doubles of shape (n, d). Its outputs, as far as the model has them:

    - "features", doubles (n, r), as `transform` gives them; of an `LDSUClassifier`, as its `features_` does;
    - "label", (n,), texts or int64 (truth values as 0 and 1);
    - "scores", doubles (n, c), or (n, 1) for two classes, of a linear classifier, standardized where the model does so;
    - "probability", doubles (n, c), "confidence" and "familiarity", doubles (n,): those of an `LDSUClassifier` with
      ``classifier=None``, as its `predict_proba` and `confidence` give them.

    Unlike the model the graph does not check its input: chi2 takes negative values, and NaN gives NaN.

    Parameters
    ----------
    model : estimator
        Fitted: any of `ldsu.METHODS`, an `LDSUClassifier`, or a `Pipeline` of `StandardScaler`, `BlockScaler` and
        these, with a linear classifier at its end, in `LabelledOnly` or not. Kernels: rbf, linear, poly, cosine, chi2.
    outputs : iterable of str, optional
        Which of them to keep, in this order. Default: all there are.

    Returns
    -------
    graph : onnx.ModelProto
    """
    check_is_fitted(model)
    graph = Graph()
    x = graph.input("X", np.float64, (None, int(model.n_features_in_)))
    found = graph_outputs(graph, model, x)
    wanted = list(found) if outputs is None else list(outputs)
    unknown = [name for name in wanted if name not in found]
    if unknown or not wanted:
        raise ValueError(
            f"outputs = {wanted}, but the ONNX graph of {type(model).__name__} has the outputs {', '.join(found)}."
        )
    return graph.finish({name: found[name] for name in wanted}, metadata(model))


def export_onnx(model: BaseEstimator, path: str | os.PathLike[str], *, outputs: Iterable[str] | None = None) -> None:
    """Write a fitted model to an ONNX file, whole or not at all; see `to_onnx` for what can be."""
    write_onnx(to_onnx(model, outputs=outputs), path)


def write_onnx(graph: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Write a graph to a file, whole or not at all; a new one is readable only by its owner."""
    contents = graph.SerializeToString()
    with replacing(path, private=True) as file:  # it contains training rows
        file.write(contents)


class Graph:
    """An ONNX graph under construction: every method gives the name of a value that later ones take.

    Steps may be put before a model: inputs of the user's table, operators that turn them into numbers, the model by
    `graph_outputs`, and `finish`::

        graph = Graph()
        x = graph.input("X", np.float64, (None, 2))
        y = graph.add("MatMul", [x, np.eye(2)])
        model = graph.finish({"Y": y})
    """

    def __init__(self) -> None:
        self.onnx = import_onnx()
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[tuple[object, ...], str] = {}
        self._initializers: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._bytes = 0
        self._count = 0

    def input(self, name: str, dtype: DTypeLike, shape: Sequence[int | str | None]) -> str:
        """Add an input. `dtype` is NumPy's, `str` for texts; None is a length that is not known, that of the batch."""
        self._inputs.append(self._value(name, dtype, shape))
        return name

    def constant(self, array: ArrayLike) -> str:
        """Add an array, or a text, that the graph carries; the same one is carried once."""
        array = np.asarray(array)
        texts = array.dtype.kind in "UO"
        contents = repr(array.tolist()) if texts else np.ascontiguousarray(array).tobytes()
        key = (array.dtype.kind if texts else array.dtype.str, array.shape, contents)
        if key not in self._constants:
            self._bytes += len(contents)
            if self._bytes > MAX_BYTES:
                raise ValueError(
                    f"The model's arrays take more than {MAX_BYTES / 2**30:.0f} GiB, which an ONNX file cannot hold. "
                    "Fit on fewer rows, or save it with ldsu.save_model."
                )
            self._constants[key] = name = self._new("constant")
            plain = array.astype(object) if texts else np.ascontiguousarray(array).reshape(array.shape)
            self._initializers.append(self.onnx.numpy_helper.from_array(plain, name))
        return self._constants[key]

    def add(self, op: str, inputs: Sequence[str | ArrayLike], *, domain: str = "", **attributes: object) -> str:
        """Add an operator; gives the name of its output. A text among the inputs names a value, the rest is constant.

        As a factor beside a matrix product, see `divided`.
        """
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        output = self._new(op)
        self._nodes.append(self.onnx.helper.make_node(op, names, [output], domain=domain, **attributes))
        return output

    def divided(self, x: str, by: ArrayLike) -> str:
        """Divide the columns of doubles x (n, m) by numbers (m,).

        onnxruntime merges a single number that the result of a matrix product, or what goes into one, is multiplied or
        divided by into that product, rounded to single precision. So there is never a single one.
        """
        by = np.asarray(by, dtype=np.float64)
        return self.add("MatMul", [x, 1 / by.reshape(1, 1)]) if by.size == 1 else self.add("Div", [x, by])

    def cast(self, x: str, dtype: DTypeLike) -> str:
        """Values as another type of NumPy's."""
        return self.add("Cast", [x], to=self._type(dtype))

    def body(
        self,
        inputs: Mapping[str, Sequence[int | str | None]],
        build: Callable[..., Sequence[str]],
        dtype: DTypeLike = np.float64,
    ) -> onnx.GraphProto:
        """A graph for the body of a loop with these inputs and their shapes, all of one type.

        `build` is called with their names and gives those of the outputs. It adds to this graph as usual; what it adds
        is the body's. Constants stay outside, where the body sees them.
        """
        outside, self._nodes = self._nodes, []
        names = {self._new(name): shape for name, shape in inputs.items()}
        # An output of a body must be a value of its own.
        results = [self.add("Identity", [name]) for name in build(*names)]
        inner, self._nodes = self._nodes, outside
        given = [self._value(name, dtype, shape) for name, shape in names.items()]
        found = [self._value(name, dtype, None) for name in results]
        return self.onnx.helper.make_graph(inner, self._new("body"), given, found)

    def finish(self, outputs: Mapping[str, str], metadata: Mapping[str, str] | None = None) -> onnx.ModelProto:
        """Close the graph: outputs by the names they shall have, from the names of their values."""
        helper = self.onnx.helper
        self._nodes += [helper.make_node("Identity", [value], [name]) for name, value in outputs.items()]
        results = [self.onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self._nodes, "ldsu", self._inputs, results, self._initializers)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
            ir_version=IR_VERSION,
            producer_name="ldsu",
            producer_version=ldsu.__version__,
        )
        helper.set_model_props(model, dict(metadata or {}))
        # What types and shapes the outputs are of follows from the nodes.
        model = self.onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        self.onnx.checker.check_model(model)
        return model

    def _new(self, what: str) -> str:
        self._count += 1
        return f"{what}_{self._count}"

    def _value(self, name: str, dtype: DTypeLike, shape: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
        lengths = None if shape is None else ["n" if length is None else length for length in shape]
        return self.onnx.helper.make_tensor_value_info(name, self._type(dtype), lengths)

    def _type(self, dtype: DTypeLike) -> int:
        if dtype is str:
            return int(self.onnx.TensorProto.STRING)
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def import_onnx() -> ModuleType:
    """The package onnx, or an `ImportError` that says how to install it."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            "An ONNX file is written with the package onnx, which is not installed. Install it with: "
            "pip install 'ldsu[onnx]'"
        ) from error
    return onnx


def metadata(model: BaseEstimator) -> dict[str, str]:
    """What an ONNX file says of its model: class, version, classes and names of columns, the last two as JSON."""
    classes = getattr(model, "classes_", None)
    names = getattr(model, "feature_names_in_", None)
    said = {"model": type(model).__name__, "ldsu": ldsu.__version__}
    if classes is not None and hasattr(model, "predict"):
        said["classes"] = json.dumps(_onnx_labels(classes).tolist())
    if names is not None:
        said["feature_names"] = json.dumps([str(name) for name in names])
    return said


def graph_outputs(graph: Graph, model: BaseEstimator, x: str) -> dict[str, str]:
    """Add a model to a graph; `x` names its samples, doubles (n, d). Gives the names of its outputs, see `to_onnx`."""
    if isinstance(model, Pipeline):
        outputs = {"features": x}
        for _, step in model.steps:
            if step is not None and step != "passthrough":
                features = outputs["features"]
                outputs = {"features": features, **graph_outputs(graph, step, features)}
        return outputs
    if isinstance(model, LabelledOnly):
        if model._columns is not None:
            raise _no_form("A precomputed kernel")
        return graph_outputs(graph, model.estimator_, x)
    if isinstance(model, LDSUClassifier):
        return _classifier(graph, model, x)
    if isinstance(model, (RidgeClassifier, LogisticRegression, LinearSVC)):
        scores = _linear_scores(graph, model, x)
        return {"label": _label(graph, scores, model.classes_), "scores": scores}
    if isinstance(model, (StandardScaler, BlockScaler)):
        return {"features": _scaled(graph, model, x)}
    if isinstance(model, EnFS):
        return {"features": graph.add("Gather", [x, np.flatnonzero(model.get_support())], axis=1)}
    if type(model) in METHODS.values():
        return {"features": _features(graph, model, x)}
    raise ValueError(
        f"{type(model).__module__}.{type(model).__name__} cannot be exported to ONNX by ldsu. Supported: "
        f"{', '.join(METHODS)}, LDSUClassifier, BlockScaler, and of scikit-learn StandardScaler, RidgeClassifier, "
        "LogisticRegression, LinearSVC and Pipeline."
    )


def _no_form(what: str, instead: str = "fit with one of rbf, laplacian, linear, poly, cosine, chi2") -> ValueError:
    return ValueError(f"{what} is not supported in ONNX; {instead}.")


def _features(graph: Graph, model: Any, x: str) -> str:
    """``k(x, points) @ coefficients - offset``."""
    expansion = model.feature_map_
    if isinstance(expansion, LocalExpansion):
        raise _no_form("The sparse solver's nearest-neighbor search", "fit with solver='exact'")
    if not isinstance(expansion, KernelExpansion):
        raise _no_form(f"The feature map {type(expansion).__name__}")
    points = expansion.points
    origin = None
    if expansion.kernel.name != "precomputed":
        rows, columns = points.shape
        what = f"Writing {rows} points of {columns} columns as ONNX, dense,"
        require_memory(3 * 8 * rows * columns, what, "Fit on fewer rows.")
        origin = column_means(points.astype(np.float64))  # None of sparse points, as the kernel has it
    K = _kernel(graph, expansion.kernel, x, points, origin)
    features = graph.add("MatMul", [K, expansion.coefficients.astype(np.float64)])
    offset = np.asarray(expansion.offset, dtype=np.float64)
    return graph.add("Sub", [features, offset]) if offset.any() else features


def _kernel(graph: Graph, kernel: Kernel, x: str, points: Any, origin: np.ndarray | None) -> str:
    """Kernel values (n, b) of samples and points, by the formulas of `Kernel`."""
    if callable(kernel.name):
        raise _no_form("A kernel given as a function")
    if kernel.name not in ("rbf", "laplacian", "linear", "poly", "cosine", "chi2"):
        raise _no_form(f"A {kernel.name} kernel")
    P = dense(points).astype(np.float64)
    gamma = kernel.gamma or 0.0
    if kernel.name in ("laplacian", "chi2"):
        term = _chi2_term if kernel.name == "chi2" else _absolute_difference
        return graph.add("Exp", [graph.add("Mul", [_sum_over_columns(graph, x, P, term), -gamma])])
    if kernel.name == "cosine":
        norms = _row_norms(graph, x)
        short = graph.add("Less", [norms, SHORTEST])
        x = graph.add("Div", [x, graph.add("Where", [short, 1.0, norms])])
        lengths = np.sqrt(np.einsum("ij,ij->i", P, P))[:, None]
        P = P / np.where(lengths < SHORTEST, 1.0, lengths)
    if kernel.name == "rbf":
        P = shifted(P, origin)
        x = x if origin is None else graph.add("Sub", [x, origin])
    factor = {"rbf": -2.0, "poly": gamma}.get(kernel.name, 1.0)  # here, for the reason in Graph.divided
    products = graph.add("MatMul", [x, np.ascontiguousarray(factor * P.T)])
    if kernel.name == "rbf":
        squares = graph.add("ReduceSumSquare", [x], axes=[1], keepdims=1)
        D2 = graph.add("Add", [graph.add("Add", [products, squares]), np.einsum("ij,ij->i", P, P)[None]])
        D2 = graph.add("Max", [D2, 0.0])
        return graph.add("Exp", [graph.add("Mul", [D2, -gamma])])
    if kernel.name == "poly":
        return graph.add("Pow", [graph.add("Add", [products, float(kernel.coef0)]), float(kernel.degree)])
    return products


def _chi2_term(graph: Graph, x_column: str, p_column: str) -> str:
    """``(x - p)^2 / (x + p)``, 0 where both are 0."""
    both = graph.add("Add", [x_column, p_column])
    none = graph.add("Equal", [both, 0.0])
    difference = graph.add("Sub", [x_column, p_column])
    squared = graph.add("Mul", [difference, difference])
    term = graph.add("Div", [squared, graph.add("Where", [none, 1.0, both])])
    return graph.add("Where", [none, 0.0, term])


def _sum_over_columns(graph: Graph, x: str, P: np.ndarray, term: Callable[[Graph, str, str], str]) -> str:
    """``sum_j term(x_j, p_j)`` (n, b), a column at a time: no array of n x b x d is ever there."""
    columns = graph.add("Transpose", [x], perm=[1, 0])  # (d, n)
    first = graph.add("Slice", [x, *(np.array([place]) for place in (0, 1, 1))])  # (n, 1)
    total = graph.add("Mul", [first, np.zeros((1, P.shape[0]))])  # (n, b) of zeros

    def step(total: str, x_column: str, p_column: str) -> tuple[str]:
        x_column = graph.add("Unsqueeze", [x_column, np.array([1])])
        return (graph.add("Add", [total, term(graph, x_column, p_column)]),)

    body = graph.body({"total": ("n", P.shape[0]), "x": ("n",), "p": (P.shape[0],)}, step)
    return graph.add("Scan", [total, columns, np.ascontiguousarray(P.T)], body=body, num_scan_inputs=2)


def _row_norms(graph: Graph, x: str) -> str:
    """Lengths of rows (n, 1)."""
    return graph.add("Sqrt", [graph.add("ReduceSumSquare", [x], axes=[1], keepdims=1)])


def _scaled(graph: Graph, scaler: Any, x: str) -> str:
    if isinstance(scaler, BlockScaler):
        return graph.divided(x, np.full(scaler.n_features_in_, scaler.scale_))
    if scaler.with_mean:
        x = graph.add("Sub", [x, scaler.mean_.astype(np.float64)])
    if scaler.with_std:
        x = graph.divided(x, scaler.scale_)
    return x


def _linear_scores(graph: Graph, model: Any, x: str) -> str:
    """``x @ coef^T + intercept``, (n, c), or (n, 1) for two classes."""
    coefficients = np.atleast_2d(dense(model.coef_)).astype(np.float64)
    intercept = np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64), coefficients.shape[:1])
    products = graph.add("MatMul", [x, np.ascontiguousarray(coefficients.T)])
    return graph.add("Add", [products, intercept[None]])


def _label(graph: Graph, scores: str, classes: np.ndarray) -> str:
    """The classes that scores decide for."""
    if classes.size > 2:
        places = graph.add("ArgMax", [scores], axis=1, keepdims=0)
    else:
        positive = graph.cast(graph.add("Greater", [scores, 0.0]), np.int64)
        places = graph.add("Squeeze", [positive, np.array([1])])
    return graph.add("Gather", [_onnx_labels(classes), places], axis=0)


def _onnx_labels(classes: np.ndarray) -> np.ndarray:
    """Classes as texts or as int64: a class that is a float is a whole number too."""
    return np.asarray(classes, dtype=object if classes.dtype.kind in "UO" else np.int64)


def _classifier(graph: Graph, model: LDSUClassifier, x: str) -> dict[str, str]:
    c = model.classes_.size
    features = graph_outputs(graph, model.features_, x)["features"]
    Z = _scaled(graph, model.scaler_, features)
    linear = model.classifier_.estimator_ if isinstance(model.classifier_, LabelledOnly) else model.classifier_
    raw = _linear_scores(graph, linear, Z)
    centered = graph.add("Sub", [raw, model.score_center_.astype(np.float64)[None]])
    scores = graph.add("Div", [centered, model.score_scale_.astype(np.float64)[None]])
    supervised = getattr(model, "supervised_", None)
    if supervised is not None:
        scores = graph.add("Add", [scores, _supervised(graph, supervised, x)])
    outputs = {"label": _label(graph, scores, model.classes_)}
    if model.classifier is None:
        probability = _probability(graph, model, Z, scores)
        margin = _margin(graph, probability, c)
        outputs |= {"probability": probability, "confidence": margin, "familiarity": _familiarity(graph, model, Z)}
    return {**outputs, "scores": scores, "features": features}


def _supervised(graph: Graph, model: Supervised, x: str) -> str:
    """As `Supervised.log_odds`: (n, c), or for two classes half of the difference, (n, 1)."""
    centered = graph.add("Sub", [x, model.scaling.center[None]])
    x = graph.divided(centered, np.full(model.scaling.center.size, model.scaling.scale))
    c = model.laplacian.intercept.size
    smooth = graph.add("Add", [graph.add("Mul", [_trees(graph, model.forest, x), 1 - SMOOTHING]), SMOOTHING / c])
    trees = graph.add("Mul", [graph.add("Log", [smooth]), float(model.weights[0])])
    D = _sum_over_columns(graph, x, dense(model.laplacian.points).astype(np.float64), _absolute_difference)
    K = graph.add("Exp", [graph.add("Mul", [D, -model.laplacian.gamma])])
    total = trees
    factors = ODDS * model.weights[1:]  # here, for the reason in Graph.divided
    parts = (
        (K, model.laplacian.coefficients, model.laplacian.intercept),
        (x, model.linear.coefficients, model.linear.intercept),
    )
    for factor, (inputs, coefficients, intercept) in zip(factors, parts, strict=True):
        products = graph.add("MatMul", [inputs, np.ascontiguousarray(factor * coefficients)])
        total = graph.add("Add", [total, graph.add("Add", [products, factor * intercept[None]])])
    return total if c > 2 else graph.add("MatMul", [total, np.array([[-0.5], [0.5]])])


def _absolute_difference(graph: Graph, x_column: str, p_column: str) -> str:
    return graph.add("Abs", [graph.add("Sub", [x_column, p_column])])


def _trees(graph: Graph, forest: Forest, x: str) -> str:
    """Mean class frequencies (n, c) of the trees."""
    nodes = np.arange(forest.left.size)
    trees = np.searchsorted(forest.roots, nodes, side="right") - 1
    is_leaf = forest.left == nodes
    within = nodes - forest.roots[trees]
    leaves, c = nodes[is_leaf], forest.values.shape[1]
    # Sums are in single precision: those of pure leaves are whole numbers, and exact.
    sums = graph.add(
        "TreeEnsembleRegressor",
        [graph.cast(x, np.float32)],
        domain="ai.onnx.ml",
        n_targets=c,
        nodes_treeids=trees.tolist(),
        nodes_nodeids=within.tolist(),
        nodes_featureids=np.where(is_leaf, 0, forest.columns[forest.feature]).tolist(),
        nodes_modes=np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_values=forest.threshold.tolist(),
        nodes_truenodeids=np.where(is_leaf, 0, forest.left - forest.roots[trees]).tolist(),
        nodes_falsenodeids=np.where(is_leaf, 0, forest.right - forest.roots[trees]).tolist(),
        target_treeids=np.repeat(trees[leaves], c).tolist(),
        target_nodeids=np.repeat(within[leaves], c).tolist(),
        target_ids=np.tile(np.arange(c), leaves.size).tolist(),
        target_weights=forest.values[forest.leaf[leaves]].ravel().tolist(),
    )
    return graph.add("Div", [graph.cast(sums, np.float64), float(forest.roots.size)])


def _probability(graph: Graph, model: LDSUClassifier, Z: str, scores: str) -> str:
    """As `LDSUClassifier._probabilities`: a softmax, and nearly equal ones for rows far from everything."""
    c = model.classes_.size
    if c == 2:
        scores = graph.add("Concat", [graph.add("Neg", [scores]), scores], axis=1)
    below = graph.add("Sub", [scores, graph.add("ReduceMax", [scores], axes=[1], keepdims=1)])
    sharp = graph.add("Mul", [below, model._sharpness])
    probability = graph.add("Softmax", [graph.add("Max", [sharp, -1e9])], axis=1)
    shortest = ISOLATED * float(np.median(model._lengths))
    isolated = graph.add("Less", [_row_norms(graph, Z), shortest])
    nearly = graph.add("Add", [graph.add("Mul", [probability, 1e-6]), (1 - 1e-6) / c])
    return graph.add("Where", [isolated, nearly, probability])


def _margin(graph: Graph, probability: str, n_classes: int) -> str:
    """The largest probability of a row less the next one, (n,)."""
    # TopK would say both, but of a batch without rows it ends the process in onnxruntime 1.17 to 1.20.
    place = graph.add("ArgMax", [probability], axis=1, keepdims=1)
    is_first = graph.add("Equal", [np.arange(n_classes)[None], place])
    others = graph.add("Where", [is_first, -1.0, probability])
    first, second = (graph.add("ReduceMax", [values], axes=[1], keepdims=0) for values in (probability, others))
    return graph.add("Sub", [first, second])


def _familiarity(graph: Graph, model: LDSUClassifier, Z: str) -> str:
    """Share of the training rows whose features are no longer."""
    lengths = model._lengths.astype(np.float64)[None] * (1 - ROUNDING)
    no_longer = graph.add("LessOrEqual", [lengths, _row_norms(graph, Z)])
    return graph.add("ReduceMean", [graph.cast(no_longer, np.float64)], axes=[1], keepdims=0)
