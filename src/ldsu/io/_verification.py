"""A few rows that a model is tried with after loading, and the outputs it had for them when it was saved.

A model with other outputs is on a machine, or among versions, where it is not the model that was saved. In a record
rows and outputs are its "probe".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from ldsu._utils.arrays import ignoring_warnings, one_openmp_thread
from ldsu.io._fields import JSON, Array, Either, Place, Sparse, Writer
from ldsu.io._objects import reject_build_errors, schema_of
from ldsu.io.container import Invalid, safe_repr

MAX_ROWS, CANDIDATES = 3, 16
# Outputs may differ so much, relative to the largest: rounding, on another machine.
TOLERANCE = 1e-6
# A row's farthest neighbor is no matter of rounding where the next is farther by this share.
MIN_GAP = 1e-3
# Of columns without names, and of rows far from everything. No more is ignored than these: scikit-learn, which changes
# the filters of warnings whenever it checks an array, may in another thread put back what is set here.
EXPECTED_WARNINGS = r"X does not have valid feature names|X has feature names|\d+ .* lie far from all training rows"
# Steps of a pipeline through which rows can be traced back.
SCALERS = ("BlockScaler", "StandardScaler")

_ROWS = Either(Array("f", "q", "d"), Sparse("q", "d"))
_OUTPUT = Either(Array("f", "q"), Array("f", "q", "r"))


def sample_rows(model: Any) -> Any:
    """A few rows that a model can be tried with, of its own points where it keeps any; None where there are none."""
    _, schema = schema_of(model, "The model")
    return schema.rows(model) if schema.rows else None


def compute_outputs(model: Any, rows: Any) -> dict[str, np.ndarray]:
    """Features and scores of rows, as far as a model gives them."""
    _, schema = schema_of(model, "The model")
    outputs: dict[str, Any] = {}
    # Processes that are forked after a model was loaded, as servers do, can use OpenMP only if nobody has before.
    with ignoring_warnings(EXPECTED_WARNINGS), np.errstate(all="ignore"), one_openmp_thread():
        if schema.outputs:
            outputs = schema.outputs(model, rows)
        else:
            if hasattr(model, "transform"):
                outputs["features"] = model.transform(rows)
            if hasattr(model, "decision_function"):
                outputs["scores"] = model.decision_function(rows)
    dense = {name: of.toarray() if scipy.sparse.issparse(of) else of for name, of in outputs.items()}
    return {name: np.asarray(of, dtype=np.float64) for name, of in dense.items()}


def save_outputs(model: Any, writer: Writer) -> JSON:
    """Rows and outputs of a model; None where it has no rows, or no finite outputs."""
    rows = sample_rows(model)
    outputs = {} if rows is None else compute_outputs(model, rows)
    if rows is None or not all(np.isfinite(output).all() for output in outputs.values()):
        return None
    return {
        "rows": _ROWS.save(rows, "probe.rows", writer),
        "answers": {name: _OUTPUT.save(output, f"probe.{name}", writer) for name, output in outputs.items()},
    }


def load_outputs(stored: JSON, place: Place) -> tuple[Any, dict[str, np.ndarray]] | None:
    """Check what `save_outputs` gave."""
    if stored is None:
        return None
    if not isinstance(stored, dict) or set(stored) != {"rows", "answers"} or not isinstance(stored["answers"], dict):
        raise place.wrong(stored, "rows and answers")
    rows = _ROWS.load(stored["rows"], place.inside("rows"))
    n_rows = place.sizes["q"]
    if n_rows > MAX_ROWS:
        raise Invalid(f"is not a valid model: its probe has {n_rows} rows, where {MAX_ROWS} is the limit.")
    outputs = {
        name: _OUTPUT.load(output, replace(place.inside(safe_repr(name)), sizes={"q": n_rows}))
        for name, output in stored["answers"].items()
    }
    return rows, outputs


def check_outputs(model: Any, rows: Any, expected: dict[str, np.ndarray], saved_with: str, loaded_with: str) -> None:
    """Raise `Invalid` if an output is not what it was when the model was saved, with the versions of both sides."""
    with reject_build_errors():
        found = compute_outputs(model, rows)
        if {name: of.shape for name, of in found.items()} != {name: of.shape for name, of in expected.items()}:
            raise Invalid("is not a valid model: its stored answers are not of its own kind.")
    for name, output in expected.items():
        difference = float(np.abs(found[name] - output).max(initial=0)) / (float(np.abs(output).max(initial=0)) or 1.0)
        if not difference <= TOLERANCE:
            raise Invalid(
                f"gives different {safe_repr(name).strip(chr(39))} than when it was saved (by {difference:.0e}): it "
                f"was saved with {saved_with[:110]}; loaded with {loaded_with}. Install those versions, or load it "
                "with check=False."
            )


def random_rows(model: Any) -> np.ndarray:
    """Rows for a model that keeps no points: any will do."""
    return np.random.default_rng(0).standard_normal((MAX_ROWS, int(model.n_features_in_)))


def kernel_rows(model: Any) -> Any:
    """Rows of the points that a kernel method keeps, in double precision."""
    from ldsu.solvers import LocalExpansion

    if model.kernel == "precomputed":
        return None
    if isinstance(model.feature_map_, LocalExpansion):
        return _unambiguous_rows(model.feature_map_)
    points = model.feature_map_.points
    n = points.shape[0]
    return points[np.unique([0, n // 2, n - 1])].astype(np.float64)


def _unambiguous_rows(feature_map: Any) -> np.ndarray | None:
    """Own points of a `LocalExpansion` whose nearest neighbors are the same ones on every machine.

    Where the last neighbor and the next one are equally near, rounding decides between them, and the features differ.
    """
    points, n = feature_map.points, feature_map.points.shape[0]
    some = points[np.unique(np.linspace(0, n - 1, CANDIDATES).astype(int))]
    k = min(feature_map.n_conditioning + 1, n)
    near = feature_map.index.query(some, min(k + 1, n), points)
    D2 = np.sort(((points[near].astype(np.float64) - some[:, None]) ** 2).sum(axis=2), axis=1)
    gaps = np.ones(len(some)) if k == n else (D2[:, k] - D2[:, k - 1]) / np.maximum(D2[:, k], np.finfo(float).tiny)
    clear = np.argsort(-gaps, kind="stable")[:MAX_ROWS]
    clear = clear[gaps[clear] > MIN_GAP]
    origin = 0.0 if feature_map.origin is None else feature_map.origin.astype(np.float64)
    return some[clear].astype(np.float64) * feature_map.unit + origin if clear.size else None


def pipeline_rows(model: Any) -> Any:
    """Rows that the steps before the first with points of its own turn into those."""
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
    return random_rows(before[0]) if before else None
