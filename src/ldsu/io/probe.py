"""The probe: a few rows a model is tried with, and the answers it gave when it was saved.

A model that answers otherwise is on a machine, or among versions, where it is not the model that was saved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from ldsu._utils.arrays import ignoring_warnings, one_openmp_thread
from ldsu.io.container import Invalid, safe_repr
from ldsu.io.kinds import Array, Either, Sparse
from ldsu.io.schema import JSON, Kind, Reader, Writer, reject_build_errors, schema_of, wrong_value

PROBE_ROWS, PROBE_CANDIDATES = 3, 16
# The features of the probe may differ so much, relative to the largest: rounding, on another machine.
PROBE_TOLERANCE = 1e-6
# A row's farthest neighbor is no matter of rounding where the next is farther by this share.
MIN_GAP = 1e-3
# Of columns without names, and of rows far from everything. No more is ignored than these: scikit-learn, which changes
# the filters of warnings whenever it checks an array, may in another thread put back what is set here.
EXPECTED_WARNINGS = r"X does not have valid feature names|X has feature names|\d+ .* lie far from all training rows"
# Steps of a pipeline through which rows can be traced back.
SCALERS = ("BlockScaler", "StandardScaler")

_ROWS: Kind = Either(Array("f", ("q", "d")), Sparse(("q", "d")))
_ANSWER: Kind = Either(Array("f", ("q",)), Array("f", ("q", "r")))


def probe_rows(model: Any) -> Any:
    """A few rows that a model can be tried with, of its own points where it keeps any; None where there are none."""
    _, schema = schema_of(model, "The model")
    return schema.probe(model) if schema.probe else None


def probe_answers(model: Any, rows: Any) -> dict[str, np.ndarray]:
    """Features and scores of rows, as far as a model gives them."""
    _, schema = schema_of(model, "The model")
    # Processes that are forked after a model was loaded, as servers do, can use OpenMP only if nobody has before.
    with ignoring_warnings(EXPECTED_WARNINGS), np.errstate(all="ignore"), one_openmp_thread():
        if schema.answers:
            return {name: np.asarray(array, np.float64) for name, array in schema.answers(model, rows).items()}
        found = {}
        if hasattr(model, "transform"):
            found["features"] = model.transform(rows)
        if hasattr(model, "decision_function"):
            found["scores"] = model.decision_function(rows)
    return {name: _dense(array) for name, array in found.items()}


def _dense(array: Any) -> np.ndarray:
    return np.asarray(array.toarray() if scipy.sparse.issparse(array) else array, dtype=np.float64)


def save_probe(model: Any, writer: Writer) -> JSON:
    """Rows and answers of a model; None where it has no rows, or no finite answers."""
    rows = probe_rows(model)
    if rows is None:
        return None
    answers = probe_answers(model, rows)
    if not all(np.isfinite(answer).all() for answer in answers.values()):
        return None
    return {
        "rows": _ROWS.save(rows, "probe.rows", writer),
        "answers": {name: _ANSWER.save(answer, f"probe.{name}", writer) for name, answer in answers.items()},
    }


def load_probe(stored: JSON, reader: Reader) -> tuple[Any, dict[str, np.ndarray]] | None:
    """Check what `save_probe` gave."""
    if stored is None:
        return None
    if not isinstance(stored, dict) or set(stored) != {"rows", "answers"} or not isinstance(stored["answers"], dict):
        raise wrong_value("the probe", stored, "rows and answers")
    sizes: dict[str, int] = {}
    rows = _ROWS.load(stored["rows"], "probe.rows", reader, sizes)
    if sizes["q"] > PROBE_ROWS:
        raise Invalid(f"is not a valid model: its probe has {sizes['q']} rows, where {PROBE_ROWS} is the limit.")
    answers = {}
    for name, answer in stored["answers"].items():
        answers[name] = _ANSWER.load(answer, f"probe.{safe_repr(name)}", reader, {"q": sizes["q"]})
    return rows, answers


def find_changed_output(model: Any, probe: tuple[Any, dict[str, np.ndarray]]) -> tuple[str, float] | None:
    """The first answer that is not what it was when the model was saved, and by how much, relative to the largest."""
    rows, before = probe
    with reject_build_errors():
        now = probe_answers(model, rows)
        if set(now) != set(before) or any(now[name].shape != before[name].shape for name in now):
            raise Invalid("is not a valid model: its stored answers are not of its own kind.")
    for name, answer in before.items():
        difference = float(np.abs(now[name] - answer).max(initial=0)) / (float(np.abs(answer).max(initial=0)) or 1.0)
        if not difference <= PROBE_TOLERANCE:
            return name, difference
    return None


def random_rows(model: Any) -> np.ndarray:
    """Rows for a model that keeps no points: any will do."""
    return np.random.default_rng(0).standard_normal((PROBE_ROWS, int(model.n_features_in_)))


def kernel_rows(model: Any) -> Any:
    """Rows of the points that a kernel method keeps, in double precision."""
    from ldsu.solvers import LocalExpansion

    if model.kernel == "precomputed":
        return None
    points = model.feature_map_.points
    if isinstance(model.feature_map_, LocalExpansion):
        return _unambiguous_rows(model.feature_map_)
    n = points.shape[0]
    return points[np.unique([0, n // 2, n - 1])].astype(np.float64)


def _unambiguous_rows(feature_map: Any) -> np.ndarray | None:
    """Own points of a `LocalExpansion` whose nearest neighbors are the same ones on every machine.

    Where the last neighbor and the next one are equally near, rounding decides between them, and the features differ.
    """
    points, n = feature_map.points, feature_map.points.shape[0]
    some = points[np.unique(np.linspace(0, n - 1, PROBE_CANDIDATES).astype(int))]
    k = min(feature_map.n_conditioning + 1, n)
    near = feature_map.index.query(some, min(k + 1, n), points)
    D2 = np.sort(((points[near].astype(np.float64) - some[:, None]) ** 2).sum(axis=2), axis=1)
    gaps = np.ones(len(some)) if k == n else (D2[:, k] - D2[:, k - 1]) / np.maximum(D2[:, k], np.finfo(float).tiny)
    clear = np.argsort(-gaps, kind="stable")[:PROBE_ROWS]
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
        rows = probe_rows(step)
        for scaler in reversed(before) if rows is not None else ():
            rows = rows * scaler.scale_ if type(scaler).__name__ == "BlockScaler" else scaler.inverse_transform(rows)
        return rows
    return random_rows(before[0]) if before else None


def labelled_rows(model: Any) -> Any:
    """Rows of the estimator that was fitted to the labelled samples; None where it is given other columns."""
    return None if model._columns is not None else probe_rows(model.estimator_)
