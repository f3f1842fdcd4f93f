"""Export a model of a table as an ONNX graph with its number and category columns as inputs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ldsu.io.onnx_export import Graph, graph_outputs, metadata
from ldsu.tables.encoder import Numbers, TableEncoder
from ldsu.tables.model import TableModel


def table_to_onnx(model: TableModel) -> Any:
    """Convert a model of a table to an ONNX graph.

    Its inputs are "numbers", doubles (n, p), NaN if missing (for images the pixels from 0 to 255; for times the days
    since 1970), and "categories", stripped strings (n, q), empty if missing, booleans as true and false: the columns in
    the order of the metadata. Its outputs are those of `ldsu.io.onnx_export.to_onnx` for an `LDSUClassifier`.

    Parameters
    ----------
    model : TableModel
        Without texts and counts, which an ONNX graph cannot tokenize.

    Returns
    -------
    graph : onnx.ModelProto
    """
    encoder = model.encoder
    if encoder.photos is not None:
        raise ValueError(
            "A model of images with a pretrained encoder cannot be exported to ONNX. Fit it with --encoder none, or "
            "use the model from Python."
        )
    if encoder.words or encoder.counts is not None:
        raise ValueError(
            "A model with texts or word counts cannot be exported to ONNX, which cannot tokenize text. Drop the "
            "columns (ldsu fit --ignore COLUMN), or use the model from Python."
        )
    graph = Graph()
    blocks = []
    if encoder.numbers is not None:
        N = graph.input("numbers", np.float64, (None, encoder.numbers.fill.size))
        blocks.append(_numbers(graph, encoder, encoder.numbers, N))
    categories = encoder.of_kind("category")
    if categories:
        texts = graph.input("categories", str, (None, len(categories)))
        for j, column in enumerate(categories):
            blocks.append(_levels(graph, texts, j, column.levels))
    X = blocks[0] if len(blocks) == 1 else graph.add("Concat", blocks, axis=1)
    names = {
        "numbers": [column.name for column in encoder.of_kind("number", "time")],
        "categories": [column.name for column in categories],
    }
    column_names = {name: json.dumps(columns) for name, columns in names.items()}
    outputs = graph_outputs(graph, model.classifier, X)
    return graph.finish(outputs, {**metadata(model.classifier), **column_names, "model": "TableModel"})


def _numbers(graph: Graph, encoder: TableEncoder, learned: Numbers, N: str) -> str:
    """As `Numbers`: fill missing values, then ``(x - center) / scale``, and indicators of missing values."""
    if encoder.image_shape is not None:
        N = graph.divided(N, np.full(learned.fill.size, 255.0))
    missing = graph.add("IsNaN", [N])
    filled = graph.add("Where", [missing, graph.constant(learned.fill[None]), N])
    columns = graph.divided(graph.add("Sub", [filled, graph.constant(learned.center)]), learned.scale)
    if not learned.flagged.size:
        return columns
    flags = graph.add("Gather", [missing, graph.constant(learned.flagged.astype(np.int64))], axis=1)
    return str(graph.add("Concat", [columns, graph.cast(flags, np.float64)], axis=1))


def _levels(graph: Graph, texts: str, j: int, levels: tuple[str, ...]) -> str:
    """One-hot encoding of the j-th category; zeros for any other text."""
    column = graph.add("Gather", [texts, graph.constant(np.array(j, dtype=np.int64))], axis=1)
    codes = graph.add(
        "LabelEncoder",
        [column],
        domain="ai.onnx.ml",
        keys_strings=list(levels),
        values_int64s=list(range(len(levels))),
        default_int64=-1,
    )
    codes = graph.add("Unsqueeze", [codes, graph.constant(np.array([1]))])
    is_level = graph.add("Equal", [codes, graph.constant(np.arange(len(levels))[None])])
    return str(graph.cast(is_level, np.float64))
