"""Models to files and back: `save_model`, `load_model`, and `describe_model`, which builds nothing."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np

import ldsu
from ldsu.io.container import (
    VERSION,
    Invalid,
    naming_file,
    read_container,
    read_header,
    require_header,
    safe_repr,
    write_container,
)
from ldsu.io.kinds import to_json
from ldsu.io.probe import find_changed_output, load_probe, save_probe
from ldsu.io.records import describe_record, deserialize, serialize
from ldsu.io.schema import JSON, Reader, Writer, reject_build_errors, schema_of


def save_model(model: Any, path: str | PathLike[str], *, about: dict[str, JSON] | None = None) -> None:
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
    schema_of(model, "The model")
    _check_fitted(model)
    writer = Writer()
    record = {
        "versions": _versions(),
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
        "about": to_json(about or {}, "about"),
        "model": serialize(model, "model", writer),
        "probe": save_probe(model, writer),
    }
    write_container(path, record, writer.arrays)


def require_storable(part: Any) -> None:
    """Raise the ValueError of `save_model` for a part of a model whose names and texts are too many for a file.

    Parameters
    ----------
    part : object
        Of a class that model files know, such as `ldsu.tables.encoder.TableEncoder`.
    """
    text = json.dumps(serialize(part, "model", Writer()), separators=(",", ":"))
    require_header(json.dumps(text).encode("ascii"))  # a record is a text within the header


def load_model(path: str | PathLike[str], *, check: bool = True, device: str = "cpu") -> Any:
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
    from ldsu._utils.arrays import arrays_on

    arrays_on(device)  # raises for an unavailable device
    record, arrays = read_container(path)
    with naming_file(path), reject_build_errors():
        reader = Reader(arrays, device)
        _check_record(record)
        model, _ = deserialize(record["model"], "model", reader)
        probe = load_probe(record["probe"], reader)
        unused = sorted(set(arrays) - reader.used)
        if unused:
            raise Invalid(f"is not a valid model: nothing in it uses array {unused[0]}.")
    if check and probe is not None:
        with naming_file(path):
            _check_answers(model, probe, record["versions"])
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
    with naming_file(path), reject_build_errors():
        _check_record(header.record)
        tree = describe_record(header.record["model"], "model", header.entries)
    return {
        "file": str(path),
        "bytes": header.size,
        "saved": header.record["saved"],
        "versions": header.record["versions"],
        "about": header.record["about"],
        "class": tree["class"],
        "parameters": tree["parameters"],
        "changed": tree["changed"],
        "classes": _first(tree, "classes_"),
        "n_features_in": _first(tree, "n_features_in_"),
        "feature_names": _first(tree, "feature_names_in_"),
        "model": tree,
        "arrays": {
            name: {"dtype": entry.code, "shape": list(entry.shape), "bytes": entry.stop - entry.start}
            for name, entry in sorted(header.entries.items())
        },
    }


def _first(tree: Any, name: str) -> Any:
    """The value of a field of this name, nearest to the top."""
    level = [tree]
    while level:
        for record in level:
            if name in record["fields"]:
                return record["fields"][name]
        level = [inner for record in level for inner in _inner_records(record["fields"])]
    return None


def _inner_records(fields: Any) -> Iterator[dict[str, Any]]:
    for value in fields.values() if isinstance(fields, dict) else fields if isinstance(fields, list) else ():
        if isinstance(value, dict) and set(value) == {"class", "parameters", "changed", "fields"}:
            yield value
        elif isinstance(value, (dict, list)):
            yield from _inner_records(value)


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"ldsu": ldsu.__version__, "python": platform.python_version(), **packages}


def _check_fitted(model: Any) -> None:
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted

    if isinstance(model, BaseEstimator):
        check_is_fitted(model)


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


def _check_answers(model: Any, probe: tuple[Any, dict[str, np.ndarray]], versions: dict[str, str]) -> None:
    found = find_changed_output(model, probe)
    if found is not None:
        name, difference = found
        saved_with, loaded_with = (
            ", ".join(f"{key} {number}" for key, number in of.items()) for of in (versions, _versions())
        )
        raise Invalid(
            f"gives different {safe_repr(name).strip(chr(39))} than when it was saved (by {difference:.0e}): it was "
            f"saved with {saved_with[:110]}; loaded with {loaded_with}. Install those versions, or load it with "
            "check=False."
        )
