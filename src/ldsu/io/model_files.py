"""Models to files and back: `save_model`, `load_model`, and `describe_model`, which builds nothing."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
import scipy.sparse
import sklearn
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import ldsu
from ldsu._utils.arrays import arrays_on, ignoring_warnings, one_openmp_thread
from ldsu.io._fields import JSON, Array, Either, Place, Sparse, to_json
from ldsu.io._objects import load_object, save_object, schema_of
from ldsu.io._schemas import MAX_ROWS, sample_rows
from ldsu.io.container import (
    CODES,
    VERSION,
    Invalid,
    read_container,
    read_header,
    reading_model,
    require_header,
    safe_repr,
    write_container,
)

if TYPE_CHECKING:
    from ldsu.tables.model import TableModel

# Outputs may differ so much, relative to the largest: rounding, on another machine.
TOLERANCE = 1e-6
# Of columns without names, and of rows far from everything. No more is ignored than these: scikit-learn, which changes
# the filters of warnings whenever it checks an array, may in another thread put back what is set here.
EXPECTED_WARNINGS = r"X does not have valid feature names|X has feature names|\d+ .* lie far from all training rows"
ROWS = Either(Array("f", "q d"), Sparse("q", "d"))
OUTPUT = Either(Array("f", "q"), Array("f", "q r"))


def save_model(
    model: BaseEstimator | TableModel, path: str | PathLike[str], *, about: dict[str, JSON] | None = None
) -> None:
    """Save a fitted model to a file of numbers and strings, without code.

    The file also contains package versions and a probe: a few rows with their features, by which `load_model` detects a
    machine or version on which the model gives different results.

    Parameters
    ----------
    model : estimator
        Fitted: any of `ldsu.METHODS`, `LDSUClassifier`, `LabelledOnly`, `BlockScaler`, `ldsu.tables.TableModel`, a
        scikit-learn `Pipeline` of these, `StandardScaler`, `RidgeClassifier`, `LogisticRegression` or `LinearSVC`.
        Graphs stored by ``store_graphs=True`` are not saved. Models of `ldsu.dask` are gathered first.
    path : path-like
        Written atomically; the folder is created if needed.
    about : dict, optional
        Additional JSON data about the model, returned by `describe_model`.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from ldsu import KPCA
    >>> from ldsu.io import load_model, save_model
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = KPCA(n_components=2).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, f"{folder}/iris.ldsu")
    ...     again = load_model(f"{folder}/iris.ldsu")
    >>> bool(np.all(again.transform(X) == model.transform(X)))
    True
    """
    if isinstance(model, type):
        raise ValueError(f"{model.__name__} is a class: fit a model first, for example {model.__name__}().fit(X, y).")
    if hasattr(model, "to_local"):  # one that lies on a cluster
        model = model.to_local()
    schema_of(model)
    if isinstance(model, BaseEstimator):
        check_is_fitted(model)
    place = Place("model", saving=True)
    record = {
        "versions": _versions(),
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
        "about": to_json(about or {}, "about"),
        "model": save_object(model, place),
        "probe": _save_probe(model, replace(place, path="probe", sizes={})),
    }
    write_container(path, record, place.arrays)


def require_storable(part: object) -> None:
    """Raise the ValueError of `save_model` for a part of a model whose names and texts are too many for a file.

    Parameters
    ----------
    part : object
        Of a class that model files know, such as `ldsu.tables.encoder.TableEncoder`.
    """
    text = json.dumps(save_object(part, Place("model", saving=True)), separators=(",", ":"))
    require_header(json.dumps(text).encode("ascii"))  # a record is a text within the header


def load_model(path: str | PathLike[str], *, check: bool = True, device: str = "cpu") -> BaseEstimator | TableModel:
    """Load a model saved by `save_model`. No code in the file is run, and all contents are validated.

    Parameters
    ----------
    path : path-like
    check : bool, default=True
        Whether to compute the features of a few stored rows and compare them with those at saving.
    device : str, default="cpu"
        Device on which features are computed, as in `LDSU`. Replaces the parameter `device` of the model.

    Returns
    -------
    model : estimator
        The model as saved.

    Raises
    ------
    ldsu.io.ModelError
        If the file is not a model, is damaged, or gives different features than when it was saved.
    """
    arrays_on(device)  # raises for an unavailable device
    record, arrays = read_container(path)
    place = Place("model", arrays, device)
    with reading_model(path):
        _check_record(record)
        model, _ = load_object(record["model"], place)
        probe = _load_probe(record["probe"], replace(place, path="probe"))
        unused = sorted(set(arrays) - place.used)
        if unused:
            raise Invalid(f"is not a valid model: nothing in it uses array {unused[0]}.")
        if check and probe is not None:
            _check_probe(model, *probe, saved_with=record["versions"])
    return model


def describe_model(path: str | PathLike[str]) -> dict[str, Any]:
    """Describe a model file without building the model, reading its arrays or verifying their checksum.

    Returns
    -------
    description : dict
        - "file", "bytes", "saved", "versions", "about";
        - "class", "parameters" (what differs from its default under "changed"), "classes", "n_features_in",
          "feature_names" (None where there are none);
        - "model": the tree of records, arrays as "float64 (1797, 64)";
        - "arrays": for each its "dtype", "shape" and "bytes".
    """
    header = read_header(path)
    with reading_model(path):
        _check_record(header.record)
        tree, _ = load_object(header.record["model"], Place("model", header.entries))
        nearest = {name: _nearest(tree, f"{name}_") for name in ("classes", "n_features_in", "feature_names_in")}
    return {
        "file": str(path),
        "bytes": header.size,
        **{key: header.record[key] for key in ("saved", "versions", "about")},
        **{key: tree[key] for key in ("class", "parameters", "changed")},
        "classes": nearest["classes"],
        "n_features_in": nearest["n_features_in"],
        "feature_names": nearest["feature_names_in"],
        "model": tree,
        "arrays": {
            name: {"dtype": CODES[entry.dtype], "shape": list(entry.shape), "bytes": entry.stop - entry.start}
            for name, entry in sorted(header.entries.items())
        },
    }


def _save_probe(model: Any, place: Place) -> JSON:
    """A few rows and their outputs, by which a load detects another model; None without rows or finite outputs."""
    rows = sample_rows(model)
    outputs = {} if rows is None else _outputs(model, rows)
    if rows is None or not all(np.isfinite(output).all() for output in outputs.values()):
        return None
    return {
        "rows": ROWS.save(rows, place.inside("rows")),
        "answers": {
            name: OUTPUT.save(output, replace(place.inside(name), sizes={})) for name, output in outputs.items()
        },
    }


def _load_probe(stored: JSON, place: Place) -> tuple[Any, dict[str, np.ndarray]] | None:
    if stored is None:
        return None
    stored_rows, answers = place.parts(stored, "rows and answers", "rows", "answers")
    if not isinstance(answers, dict):
        raise place.wrong(stored, "rows and answers")
    rows = ROWS.load(stored_rows, place.inside("rows"))
    n_rows = place.sizes["q"]
    if n_rows > MAX_ROWS:
        raise Invalid(f"is not a valid model: its probe has {n_rows} rows, where {MAX_ROWS} is the limit.")
    places = {name: replace(place.inside(safe_repr(name)), sizes={"q": n_rows}) for name in answers}
    return rows, {name: OUTPUT.load(output, places[name]) for name, output in answers.items()}


def _check_probe(model: Any, rows: Any, expected: dict[str, np.ndarray], saved_with: dict[str, str]) -> None:
    """Raise `Invalid` if an output is not what it was when the model was saved."""
    found = _outputs(model, rows)
    if {name: of.shape for name, of in found.items()} != {name: of.shape for name, of in expected.items()}:
        raise Invalid("is not a valid model: its stored answers are not of its own kind.")
    for name, output in expected.items():
        difference = float(np.abs(found[name] - output).max(initial=0)) / (float(np.abs(output).max(initial=0)) or 1.0)
        if not difference <= TOLERANCE:
            raise Invalid(
                f"gives different {safe_repr(name).strip(chr(39))} than when it was saved (by {difference:.0e}): it "
                f"was saved with {_listed(saved_with)[:110]}; loaded with {_listed(_versions())}. Install those "
                "versions, or load it with check=False."
            )


def _outputs(model: Any, rows: Any) -> dict[str, np.ndarray]:
    """Features and scores of rows, as far as a model gives them."""
    model = schema_of(model)[1].tried(model)
    methods = {"features": "transform", "scores": "decision_function"}
    # Processes that are forked after a model was loaded, as servers do, can use OpenMP only if nobody has before.
    with ignoring_warnings(EXPECTED_WARNINGS), np.errstate(all="ignore"), one_openmp_thread():
        found = {name: getattr(model, method)(rows) for name, method in methods.items() if hasattr(model, method)}
    dense = {name: of.toarray() if scipy.sparse.issparse(of) else of for name, of in found.items()}
    return {name: np.asarray(of, dtype=np.float64) for name, of in dense.items()}


def _nearest(tree: dict[str, Any], name: str) -> Any:
    """The value of a field of this name, nearest to the top of a description."""
    level = [tree]
    while level:
        for part in level:
            if name in part["fields"]:
                return part["fields"][name]
        level = [inner for part in level for of in part["fields"].values() for inner in _objects_in(of)]
    return None


def _objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """The uppermost descriptions of objects within a value."""
    if isinstance(value, dict) and set(value) == {"class", "parameters", "changed", "fields"}:
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _objects_in(part)


def _versions() -> dict[str, str]:
    packages = {"numpy": np.__version__, "scipy": scipy.__version__, "scikit-learn": sklearn.__version__}
    return {"ldsu": ldsu.__version__, "python": platform.python_version(), **packages}


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _check_record(record: dict[str, Any]) -> None:
    """The record's own parts; those of the model are checked by its schema."""
    if set(record) != {"versions", "saved", "about", "model", "probe"}:
        raise Invalid(f"is not a valid model: its record has the parts {safe_repr(', '.join(record))}.")
    versions = record["versions"]
    numbered = isinstance(versions, dict) and all(
        VERSION.fullmatch(name) and isinstance(number, str) and VERSION.fullmatch(number)
        for name, number in versions.items()
    )
    when = record["saved"]
    if not numbered or not isinstance(when, str) or not re.fullmatch(r"[0-9T:+-]{10,40}", when):
        raise Invalid("is not a valid model: its versions or its date are invalid.")
    if not isinstance(record["about"], dict):
        raise Invalid("is not a valid model: its 'about' is not a JSON object.")
