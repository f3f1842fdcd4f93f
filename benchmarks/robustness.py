"""How accuracy falls when something is wrong: false labels, classes without a label, classes of unequal size.

Half of the rows are unseen, as in `ldsu.bench.protocol`, and nothing is tuned. Each disturbance is measured against the
undisturbed figure of the same method:

flipped      a tenth of the given labels name a random other class
unknown      a fifth of the classes, drawn at random, have no label, but their rows are there; accuracy is that on test
             rows of the other classes, and the reference is the same task without those rows. How well each score
             separates test rows of known from rows of unknown classes is an area under the ROC curve
fewer        as few rows as the unequal classes have, but equal classes: what the loss of rows alone costs
unequal      class sizes, in both halves, fall geometrically from 1 to 1/100 in a random order, at least two rows a
             class; as many labels per class as before, or all rows of a smaller class
drawn        the same rows and as many labels in all, one per class and the others drawn from all rows

"raw scores" is LDSUClassifier(standardize_scores=False), which does not lean towards classes of similar size.

python benchmarks/robustness.py [--splits 3] [--labels 3 10] [--sets digits ...] [--methods ...] [--kept] [--tiny]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from rows import RESULTS, Rows
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.semi_supervised import LabelSpreading

from ldsu import LDSUClassifier
from ldsu.bench.families import KernelSVC
from ldsu.bench.protocol import Split, few_labels, load_split
from ldsu.bench.spec import DataSpec, Experiment
from ldsu.datasets import DatasetError

FLIPPED, UNKNOWN, IMBALANCE, LEAST_ROWS = 0.1, 0.2, 100, 2
# Data set, preprocessing (None: its first) and rows (None: all).
SETS: dict[str, tuple[str, str | None, int | None]] = {
    "digits": ("digits", None, None),
    "coil20": ("coil20", None, None),
    "usps": ("usps", None, 3000),
    "yaleb": ("yaleb", "local-contrast", None),
}
# Scores as they are, in the tasks that say what unequal classes cost.
RAW, RAW_TASKS = "raw scores", ("undisturbed", "fewer", "unequal", "drawn")
# What a figure is compared with.
REFERENCES = {
    "flipped": "undisturbed",
    "unknown": "without unknown",
    "fewer": "undisturbed",
    "unequal": "undisturbed",
    "drawn": "undisturbed",
}


@dataclass(frozen=True)
class Task:
    """Training rows, their labels (-1 for none), test rows and their classes (-1 for a class without labels)."""

    X: np.ndarray
    few: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray


@dataclass(frozen=True)
class Answer:
    """Labels of the test rows, and scores that should be low where a row is of no known class."""

    labels: np.ndarray
    sure: dict[str, np.ndarray]


def halves(name: str, preprocessing: str | None, rows: int | None, split: int) -> Split | None:
    """A split of a data set as the experiments make it; None where the data are found nowhere."""
    spec = DataSpec(name, name, preprocessing, name, "rbf", (1,), None, rows)
    experiment = Experiment(name, name, "", Path(__file__), (spec,), (), 1, 0, 0.5, (1.0,), 0)
    try:
        return load_split(experiment, name, split)
    except DatasetError as error:
        print(f"{name} left out: {error}")
        return None


def ours(**settings: Any) -> Callable[[Task], Answer]:
    def answer(task: Task) -> Answer:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*far from all training rows")
            model = LDSUClassifier(**settings).fit(task.X, task.few)
            labels = model.predict(task.X_new)
        confidence = model.confidence(task.X_new)
        sure = {"largest probability": model.predict_proba(task.X_new).max(axis=1)}
        return Answer(labels, {**sure, "margin": confidence.margin, "familiarity": confidence.familiarity})

    return answer


def spread(X: np.ndarray, few: np.ndarray, X_new: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Classes, and probabilities of the new rows (q, c) by label spreading: equal ones where no label reaches."""
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LabelSpreading(kernel="knn", n_neighbors=7, alpha=alpha, max_iter=200, tol=1e-3).fit(X, few)
        probabilities = model.predict_proba(X_new)
    return model.classes_, np.where(np.isfinite(probabilities), probabilities, 1 / model.classes_.size)


def spreading(alpha: float) -> Callable[[Task], Answer]:
    def answer(task: Task) -> Answer:
        classes, probabilities = spread(task.X, task.few, task.X_new, alpha)
        return Answer(classes[probabilities.argmax(axis=1)], {"largest probability": probabilities.max(axis=1)})

    return answer


def svm(task: Task) -> Answer:
    model = KernelSVC(C=10.0).fit(task.X, task.few)
    scores = model.decision_function(task.X_new)
    return Answer(model.predict(task.X_new), {"largest score": scores.max(axis=1)})


METHODS: dict[str, Callable[[Task], Answer]] = {
    "LDSUClassifier()": ours(),
    RAW: ours(standardize_scores=False),
    "LabelSpreading 0.2": spreading(0.2),
    "LabelSpreading 0.9": spreading(0.9),
    "SVM": svm,
}


def flipped(split: Split, labels: int, rng: np.random.Generator) -> Task:
    few = few_labels(split, labels)
    given = np.flatnonzero(few >= 0)
    chosen = rng.choice(given, max(1, round(FLIPPED * given.size)), replace=False)
    c = len(split.classes)
    few[chosen] = (few[chosen] + rng.integers(1, c, chosen.size)) % c
    return Task(split.X_train, few, split.X_test, split.y_test)


def unknown(split: Split, labels: int, rng: np.random.Generator) -> tuple[Task, Task]:
    """The task with rows of unknown classes, and the one without."""
    c = len(split.classes)
    hidden = rng.choice(c, max(1, round(UNKNOWN * c)), replace=False)
    few = few_labels(split, labels)
    few[np.isin(split.y_train, hidden)] = -1
    y_new = np.where(np.isin(split.y_test, hidden), -1, split.y_test)
    known = ~np.isin(split.y_train, hidden)
    return (
        Task(split.X_train, few, split.X_test, y_new),
        Task(split.X_train[known], few[known], split.X_test[y_new >= 0], y_new[y_new >= 0]),
    )


def unequal(split: Split, labels: int, rng: np.random.Generator) -> dict[str, Task]:
    """Classes of unequal size with equal and with drawn labels, and equal classes with as few rows."""
    c = len(split.classes)
    shares = rng.permutation(IMBALANCE ** (-np.arange(c) / (c - 1)))
    train = np.flatnonzero(split.order < sizes(split.y_train, shares)[split.y_train])
    rank = np.empty_like(split.y_test)
    for label in range(c):
        members = np.flatnonzero(split.y_test == label)
        rank[members] = rng.permutation(members.size)
    test = np.flatnonzero(rank < sizes(split.y_test, shares)[split.y_test])
    fewer = np.flatnonzero(split.order < max(LEAST_ROWS, round(train.size / c)))
    few = few_labels(split, labels)
    y = split.y_train[train]
    given = split.order[train] == 0
    others = np.flatnonzero(~given)
    given[rng.choice(others, int(np.sum(few[train] >= 0)) - c, replace=False)] = True
    X, X_new, y_new = split.X_train[train], split.X_test[test], split.y_test[test]
    return {
        "fewer": Task(split.X_train[fewer], few[fewer], split.X_test, split.y_test),
        "unequal": Task(X, few[train], X_new, y_new),
        "drawn": Task(X, np.where(given, y, -1), X_new, y_new),
    }


def sizes(y: np.ndarray, shares: np.ndarray) -> np.ndarray:
    return np.maximum(LEAST_ROWS, np.rint(np.bincount(y, minlength=shares.size) * shares)).astype(np.int64)


def tasks(split: Split, labels: int) -> dict[str, Task]:
    # A seed for each disturbance: with more labels the same classes are unknown or small.
    rngs = [np.random.default_rng((split.seed, number)) for number in range(3)]
    with_unknown, without = unknown(split, labels, rngs[1])
    return {
        "undisturbed": Task(split.X_train, few_labels(split, labels), split.X_test, split.y_test),
        "flipped": flipped(split, labels, rngs[0]),
        "without unknown": without,
        "unknown": with_unknown,
        **unequal(split, labels, rngs[2]),
    }


def measure(rows: Rows, name: str, labels: int, repeat: int, split: Split, methods: list[str]) -> None:
    case = f"{name}, {labels} labels per class"
    for what, task in tasks(split, labels).items():
        known = task.y_new >= 0
        truth = task.y_new[known]
        n = len(task.X)
        for method in methods:
            if method == RAW and what not in RAW_TASKS:
                continue
            answer = METHODS[method](task)
            right = answer.labels[known] == truth
            recalls = [right[truth == label].mean() for label in np.unique(truth)]
            rows.add(case, n, f"{what}: {method}", repeat, float(right.mean()), "accuracy")
            rows.add(case, n, f"{what}: {method}", repeat, float(np.mean(recalls)), "balanced accuracy")
            if not known.all():
                for score, values in answer.sure.items():
                    area = float(roc_auc_score(known, values))
                    rows.add(case, n, f"{what}: {method}: {score}", repeat, area, "ROC AUC")


def method_of(row: dict[str, Any]) -> str:
    return str(row["what"]).split(": ")[1]


Values = dict[tuple[str, str, str], list[float]]
TITLES = {
    "undisturbed": "undisturbed",
    "without unknown": "without the classes that get no labels",
    "flipped": "a tenth of the labels false",
    "unknown": "a fifth of the classes without labels",
    "fewer": "fewer rows, equal classes",
    "unequal": "unequal classes, equal labels",
    "drawn": "unequal classes, labels drawn",
}


def read(rows: list[dict[str, Any]]) -> Values:
    """Values over the splits by (case, what, unit)."""
    values: Values = {}
    for row in rows:
        values.setdefault((row["case"], row["what"], row["unit"]), []).append(float(row["value"]))
    return values


def cells(values: Values, cases: list[str], what: str, unit: str) -> str:
    """Mean over cases and splits of every method, with its change against the reference."""
    texts = []
    for method in METHODS:
        if (cases[0], f"{what}: {method}", unit) not in values:
            texts.append("")
            continue
        figure = mean(mean(values[case, f"{what}: {method}", unit]) for case in cases)
        text = f"{figure:.3f}"
        if what in REFERENCES:
            reference = mean(mean(values[case, f"{REFERENCES[what]}: {method}", unit]) for case in cases)
            text += f" ({figure - reference:+.3f})"
        texts.append(text)
    return " | ".join(texts)


def tables(values: Values) -> None:
    """Print every figure by data set, its mean over the data sets, and the areas under the ROC curve."""
    cases = list(dict.fromkeys(case for case, _, _ in values))
    by_labels: dict[str, list[str]] = {}
    for case in cases:
        by_labels.setdefault(case.split(", ")[1], []).append(case)
    wanted = [("accuracy", what) for what in ("undisturbed", "without unknown", *REFERENCES)]
    wanted += [("balanced accuracy", what) for what in ("undisturbed", "fewer", "unequal", "drawn")]
    head = f"{' | '.join(METHODS)} |\n|---|{'---|' * len(METHODS)}"
    for unit, what in wanted:
        against = f" (change against: {TITLES[REFERENCES[what]]})" if what in REFERENCES else ""
        print(f"\n{TITLES[what]}, {unit}{against}\n\n| | {head}")
        for case in cases:
            print(f"| {case} | {cells(values, [case], what, unit)} |")
    print(f"\nmean over the sets (change)\n\n| | {head}")
    for unit, what in wanted:
        for labels, members in by_labels.items():
            print(f"| {TITLES[what]}, {unit}, {labels} | {cells(values, members, what, unit)} |")
    scores = list(dict.fromkeys(what for _, what, unit in values if unit == "ROC AUC"))
    print("\nROC AUC, test rows of known against rows of unknown classes\n")
    print(f"| | {' | '.join(score.removeprefix('unknown: ') for score in scores)} |\n|---|{'---|' * len(scores)}")
    for case in cases:
        areas = [f"{mean(values[case, score, 'ROC AUC']):.3f}" for score in scores]
        print(f"| {case} | {' | '.join(areas)} |")


def place(row: dict[str, Any]) -> tuple[int, int, int]:
    """Where a row stands in the file: by set, labels, method."""
    name, labels = str(row["case"]).split(", ")
    return list(SETS).index(name), int(labels.split()[0]), list(METHODS).index(method_of(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--labels", nargs="+", type=int, default=[3, 10], help="labels per class")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), help="the kept rows of the others stay")
    parser.add_argument("--kept", action="store_true", help="measure nothing: print the tables of the kept rows")
    parser.add_argument("--tiny", action="store_true", help="400 digits, 3 labels per class, one split: a trial")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows("robustness")
    if options.kept or options.methods:
        kept = Rows.kept("robustness", options.out).rows
        rows.rows = [row for row in kept if method_of(row) not in (options.methods or ())]
    if options.kept:
        tables(read(rows.rows))
        return
    options.methods = options.methods or list(METHODS)
    if options.tiny:
        options.sets, options.labels, options.splits = ["digits"], [3], 1
    for name in options.sets:
        source, preprocessing, size = SETS[name]
        for repeat in range(options.splits):
            split = halves(source, preprocessing, 400 if options.tiny else size, repeat)
            if split is None:
                break
            for labels in options.labels:
                measure(rows, name, labels, repeat, split, options.methods)
            print(f"{name}: split {repeat + 1} of {options.splits}", flush=True)
    rows.rows.sort(key=place)
    path = rows.write(options.out)
    tables(read(rows.rows))
    print(f"\nrows in {path}")


if __name__ == "__main__":
    main()
