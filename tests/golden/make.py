"""Results that must stay as they are: a few numbers of every method, whatever versions it runs on.

``python tests/golden/make.py`` computes them, writes the files whose results changed, and says what the changelog must
name. Numbers are such that signs and rotations of features do not matter: inner products between a few rows,
eigenvalues, scores, labels.
"""

from __future__ import annotations

import csv
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris

from ldsu import LDSU, METHODS, FewLabelKFold, LDSUClassifier, LDSUSearch, load_model, save_model
from ldsu.tables.model import fit_task, prepare
from ldsu.tables.readers import read_table

FOLDER = Path(__file__).parent
# Of the largest number in the same list: numbers that should be zero have no scale of their own.
TOLERANCE = 1e-6
DIGITS = 12
TRAIN, NEW, LABELS = 150, 20, 3
# Three rows that the method was fitted to, two that it never saw.
SHOWN_TRAIN, SHOWN_NEW = [0, 47, 149], [3, 17]
FEW_EIGENVALUES = 8


def samples(train: int = TRAIN) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Digits (train, 64) with `LABELS` labels per class and -1 elsewhere, and new ones (NEW, 64).

    No generator of random numbers has a part in them, and no two distances are equal.
    """
    X, y = load_digits(return_X_y=True)
    X = X[: train + NEW] / 16 + jitter(train + NEW, 64)
    few = np.full(train, -1)
    for digit in range(10):
        few[np.flatnonzero(y[:train] == digit)[:LABELS]] = digit
    return X[:train], few, X[train:]


def jitter(n: int, d: int) -> np.ndarray:
    """Numbers (n, d) from 0 to 0.01 without order, by integers alone: equal to the last bit on every machine."""
    i = np.arange(n * d, dtype=np.int64)
    return ((i * i * 7919 + i * 104729) % 1000003 / 1000003 * 1e-2).reshape(n, d)


def features(model: Any, train: int = TRAIN) -> dict[str, Any]:
    """Inner products of the features of five rows, and the first eigenvalues where there are any."""
    X, few, new = samples(train)
    Z = np.asarray(model.fit(X, few).transform(np.vstack([X[SHOWN_TRAIN], new[SHOWN_NEW]])))
    results = {"shape": list(Z.shape), "inner products": Z @ Z.T}
    if hasattr(model, "eigenvalues_"):
        results["eigenvalues"] = model.eigenvalues_[:FEW_EIGENVALUES]
    if hasattr(model, "get_support"):
        results |= {"columns": np.flatnonzero(model.get_support()), "scores": model.scores_[::7]}
    return results


def decisions(model: LDSUClassifier) -> dict[str, Any]:
    """Labels, scores and doubts of a classifier, before and after a stay in a file."""
    X, few, new = samples()
    model.fit(X, few)
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, Path(folder) / "model.ldsu")
        model = load_model(Path(folder) / "model.ldsu")
    sure = model.confidence(new[SHOWN_NEW])
    return {
        "labels": model.predict(new),
        "labels of training rows": model.transduction_[::5],
        "scores": model.decision_function(new[SHOWN_NEW]),
        "probabilities": model.predict_proba(new[SHOWN_NEW]),
        "margin": sure.margin,
        "familiarity": sure.familiarity,
        "expected accuracy": model.expected_accuracy_,
        "strength and bandwidth": [model.features_.strength_, model.features_.gamma_],
    }


def sparse_labels() -> dict[str, Any]:
    """What the sparse solver decides by default, in single precision: labels, no numbers."""
    X, few, new = samples(600)
    model = LDSUClassifier(LDSU(solver="sparse")).fit(X, few)
    return {"labels": model.predict(new), "labels of training rows": model.transduction_[::20]}


def search() -> dict[str, Any]:
    """The table of a small grid, and what was chosen."""
    X, few, new = samples()
    grid = {"features__strength": [1.0, 100.0], "features__clique_size": [3, 5]}
    found = LDSUSearch(param_grid=grid, cv=FewLabelKFold(3)).fit(X, few)
    return {
        "scores": found.cv_results_["mean_test_score"],
        "chosen": [str(found.best_params_[name]) for name in sorted(grid)],
        "labels": found.predict(new),
    }


def table(rows: list[list[Any]], label: str) -> dict[str, Any]:
    """A table with few labels through its file: columns, points, labels of every row."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
        task = prepare(read_table(path), label, encoder="none")
        model, _ = fit_task(task)
        save_model(model, Path(folder) / "model.ldsu")
        predicted = load_model(Path(folder) / "model.ldsu").predict(path)
    some = slice(None, None, 29)
    return {
        "columns": [f"{column.name}: {column.kind}" for column in task.encoder.columns],
        "shape": list(task.X.shape),
        "squared lengths": np.square(task.X[some]).sum(axis=1),
        "labels": predicted.label[::5],
        "runner-up": predicted.runner_up[some],
        "probability": predicted.probability[some],
        "confidence": predicted.confidence[some],
        "familiarity": predicted.familiarity[some],
    }


def digits_table() -> list[list[Any]]:
    """Digits as whole numbers, two of twenty with a label."""
    X, y = load_digits(return_X_y=True)
    named = [[f"pixel{j}" for j in range(64)] + ["digit"]]
    return named + [
        [*map(int, row), digit if i % 20 < 2 else ""]
        for i, (row, digit) in enumerate(zip(X, y, strict=True))
        if i < 300
    ]


def mixed_table() -> list[list[Any]]:
    """Irises with a category, a day and a text, missing values among the numbers, and a label in every tenth row."""
    X, y = load_iris(return_X_y=True)
    rows: list[list[Any]] = [["sepal", "petal", "colour", "day", "note", "species"]]
    for i, (x, species) in enumerate(zip(X, y, strict=True)):
        words = [
            ("thin", "broad", "long")[species],
            ("stem", "leaf", "bloom", "root")[i % 4],
            f"seen {i % 9} times today",
        ]
        rows.append(
            [
                "" if i % 11 == 3 else x[0],
                x[2],
                ("white", "blue", "violet", "blue")[(i * 7 + species) % 4],
                f"2026-{1 + i % 12:02d}-{1 + i * 5 % 28:02d}",
                " ".join(words),
                ("setosa", "versicolor", "virginica")[species] if i % 10 == 4 else "",
            ]
        )
    return rows


VARIANTS = {
    "LDSU, truncate": LDSU(filter="truncate"),
    "LDSU, heat": LDSU(filter="heat"),
    "LDSU, chi2": LDSU(kernel="chi2"),
    "LDSU, poly": LDSU(kernel="poly", degree=2),
    "LDSU, cosine": LDSU(kernel="cosine"),
    "LDSU, fixed strength": LDSU(strength=10.0, min_anchors=30),
}
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    **{name: lambda method=method: features(method()) for name, method in METHODS.items()},
    **{name: lambda model=model: features(clone(model)) for name, model in VARIANTS.items()},
    # To the end, and so in double precision; by default it stops where single precision serves.
    "LDSU, sparse": lambda: features(LDSU(solver="sparse", tol=1e-10), 600),
    "LDSU, sparse, truncate": lambda: features(LDSU(20, filter="truncate", solver="sparse", tol=1e-10), 600),
    "LDSUClassifier": lambda: decisions(LDSUClassifier()),
    "LDSUClassifier, sparse": sparse_labels,
    "LDSUClassifier, raw scores": lambda: decisions(LDSUClassifier(standardize_scores=False, n_refinements=0)),
    "LDSUSearch": search,
    "TableModel, digits": lambda: table(digits_table(), "digit"),
    "TableModel, mixed": lambda: table(mixed_table(), "species"),
}


def plain(value: Any) -> Any:
    """Results as JSON holds them, numbers to `DIGITS` digits."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.{DIGITS}g}")
    return None if value is None else str(value)


def differences(found: Any, kept: Any, where: str = "") -> Iterator[str]:
    """Say where plain results are not those that were kept; lists of numbers are compared as one."""
    if isinstance(kept, dict) and isinstance(found, dict):
        for name in sorted({*kept, *found}):
            yield from differences(found.get(name), kept.get(name), f"{where}, {name}" if where else name)
        return
    there, here = numbers(kept), numbers(found)
    if there is None or here is None or there.shape != here.shape:
        if found != kept:
            yield f"{where}: {kept} became {found}"
        return
    off = np.abs(here - there).max(initial=0.0)
    scale = np.abs(there).max(initial=0.0)
    if not off <= TOLERANCE * scale:  # also where it is NaN
        yield f"{where}: off by {off:.1e} where the largest is {scale:.1e}"


def numbers(value: Any) -> np.ndarray | None:
    """Lists of numbers as an array, None if all are whole: labels and counts are equal or not."""
    try:
        array = np.array(value)
    except ValueError:  # lists of unequal length
        return None
    return array if array.dtype == np.float64 else None


def golden_file(name: str) -> Path:
    """Where the results of a case are kept."""
    return FOLDER / f"{name.replace(', ', '-').replace(' ', '_')}.json"


def fingerprint() -> str:
    """Eight characters that change with any kept result; the changelog names them."""
    whole = hashlib.sha256()
    for path in sorted(FOLDER.glob("*.json")):
        whole.update(f"{path.name}\n".encode() + path.read_bytes())
    return whole.hexdigest()[:8]


def make() -> list[str]:
    """Write the results that changed; those that agree keep their files, and so the fingerprint. Returns names."""
    written = []
    for path in {*FOLDER.glob("*.json")} - {golden_file(name) for name in CASES}:
        path.unlink()
        written.append(f"{path.stem} (removed)")
    for name, compute in CASES.items():
        path, found = golden_file(name), plain(compute())
        if not path.exists() or any(differences(found, json.loads(path.read_text()))):
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
            path.write_text(f"{{\n{lines}\n}}\n")
            written.append(name)
    return written


if __name__ == "__main__":
    changed = make()
    print(f"changed: {', '.join(changed)}" if changed else "Nothing changed.")
    print(f"CHANGELOG.md must name: golden results {fingerprint()}")
