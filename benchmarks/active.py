"""Active learning from zero labels, in batches of ten: accuracy on a third of the rows, which are never asked for.

`ActiveLearner` with its strategies, beside scikit-activeml (logistic regression) and graphlearning (Laplace learning on
ten neighbors; its first labels are random, with one of each class), if these are installed. The default strategy was
chosen on digits, COIL-20, trec and soybean ("find") and checked on the others. Accuracy is that after each number
of labels; "labels for 90 %" are those at which a mean curve reaches 0.9 times the accuracy of 100 random labels, 200
if it does not.

python benchmarks/active.py [--sets digits ...] [--strategies auto ...] [--draws 10] [--rows 10000] [--jobs 2] [--time]
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rows import RESULTS, Rows, find_data, load, seconds
from scores import table
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from ldsu import LDSU, LDSUClassifier
from ldsu.active import STRATEGIES, ActiveLearner
from ldsu.active._strategies import Pool, choose_rows

FIND = ("digits", "coil20", "trec", "soybean")
CHECK = ("usps", "mnist", "spambase", "waveform5000")
BATCH, QUERIES = 10, 100
SHOWN = (10, 20, 50, 100)
RANDOM = "ours, random"
SKACTIVEML = ("MaxHerding", "TypiClust", "ProbCover", "CoreSet", "margin", "random")
GRAPHLEARNING = ("unc_sampling", "var_opt", "sigma_opt", "model_change")
Curve = list[float]
Methods = dict[str, tuple[Callable[..., Iterator[float]], str]]


def data_set(name: str, most: int) -> tuple[Any, np.ndarray, dict[str, str]] | None:
    """Samples, classes and kernel; None where the data are not there."""
    kernel = {}
    if name == "digits":
        X, y = load_digits(return_X_y=True)
    elif name == "trec":
        path = find_data("texts/trec.csv")
        if path is None:
            return None
        with path.open(encoding="utf-8") as file:
            texts, labels = zip(*list(csv.reader(file))[1:], strict=True)
        X, y = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(texts), np.array(labels)
        kernel = {"kernel": "cosine"}
    elif (path := find_data(f"tables/{name}.csv")) is not None:
        X, y = table(path)
    else:
        loaded = load(f"{name}.npz")
        if loaded is None:
            return None
        X, y = loaded[0].astype(np.float64), loaded[1]
    rows = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:most])
    return X[rows], np.unique(y[rows], return_inverse=True)[1], kernel


def ours(X: Any, y: np.ndarray, test: np.ndarray, kernel: dict[str, str], strategy: str, seed: int) -> Iterator[float]:
    """Accuracies of `ActiveLearner`, batch after batch."""
    model = LDSUClassifier(LDSU(**kernel), standardize_scores=True)
    learner = ActiveLearner(model, strategy=strategy, random_state=seed).fit(X)
    for _ in range(QUERIES // BATCH):
        rows = learner.suggest(BATCH, exclude=np.flatnonzero(test))
        learner.label(rows, y[rows])
        predicted = learner.y_[rows[0]] if learner.model_ is None else learner.model_.transduction_[test]
        yield float(np.mean(predicted == y[test]))


def skactiveml(
    X: Any, y: np.ndarray, test: np.ndarray, kernel: dict[str, str], name: str, seed: int
) -> Iterator[float]:
    """Accuracies of logistic regression with a strategy of scikit-activeml."""
    from skactiveml import pool
    from skactiveml.classifier import SklearnClassifier

    X = X.toarray() if hasattr(X, "toarray") else X
    classes = np.unique(y)
    model = SklearnClassifier(LogisticRegression(max_iter=300), classes=classes, random_state=seed)
    own = {"margin": "UncertaintySampling", "random": "RandomSampling"}.get(name, name)
    options: dict[str, Any] = {"margin": {"method": "margin_sampling"}, "ProbCover": {"n_classes": classes.size}}
    strategy = getattr(pool, own)(random_state=seed, **options.get(name, {}))
    asked = {"clf": model} if name == "margin" else {}
    few, train = np.full(y.size, np.nan), np.flatnonzero(~test)
    for _ in range(QUERIES // BATCH):
        rows = train[strategy.query(X[train], few[train], batch_size=BATCH, **asked)]
        few[rows] = y[rows]
        yield float(np.mean(model.fit(X[train], few[train]).predict(X[test]) == y[test]))


def graphlearning(
    X: Any, y: np.ndarray, test: np.ndarray, kernel: dict[str, str], name: str, seed: int
) -> Iterator[float]:
    """Accuracies of Laplace learning with a strategy of graphlearning."""
    import graphlearning as gl

    X = X.toarray() if hasattr(X, "toarray") else X
    model = gl.ssl.laplace(gl.weightmatrix.knn(X, 10))
    train = np.flatnonzero(~test)
    order = np.random.default_rng(seed).permutation(train)
    rows = np.unique(order[np.sort(np.unique(y[order], return_index=True)[1])])  # one of each class
    count = -(-max(rows.size, BATCH) // BATCH) * BATCH
    rows = np.concatenate([rows, np.setdiff1d(order[: 2 * count], rows, assume_unique=True)])[:count]
    options = {}
    if name != "unc_sampling":
        values, V = model.graph.eigen_decomp(normalization="normalized", k=50)
        options = {"C": np.diag(1 / (values + 1e-11)), "V": V}
    learner = gl.active_learning.active_learner(model, getattr(gl.active_learning, name), rows, y[rows], **options)
    for labels in range(BATCH, QUERIES + 1, BATCH):
        if labels > count:
            left = np.setdiff1d(train, learner.labeled_ind)
            rows = learner.select_queries(batch_size=BATCH, candidate_ind=left)
            learner.update(rows, y[rows])
        yield float(np.mean(learner.u.argmax(axis=1)[test] == y[test])) if labels >= count else np.nan


def curves(
    name: str, draw: int, most: int, methods: dict[str, tuple[Callable[..., Iterator[float]], str]]
) -> dict[str, Curve]:
    """The curve of each method on one draw of a data set."""
    found = data_set(name, most)
    if found is None:
        print(f"{name}: not found in LDSU_DATA or ../shared/data, left out")
        return {}
    X, y, kernel = found
    test = np.zeros(y.size, dtype=bool)
    test[np.random.default_rng(draw).permutation(y.size)[: y.size // 3]] = True
    result = {}
    for what, (run, strategy) in methods.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result[what] = list(run(X, y, test, kernel, strategy, draw))
            except Exception as error:  # of other libraries: one class so far, a graph that is not connected
                if run is ours:
                    raise
                print(f"{name}, draw {draw}, {what}: {type(error).__name__}: {error}", flush=True)
    return result


def labels_needed(curve: np.ndarray, level: float) -> float:
    """Labels at which a curve first reaches a level, between batches by interpolation; 2 QUERIES if it does not."""
    reached = np.flatnonzero(curve >= level)
    if reached.size == 0:
        return 2 * QUERIES
    at = int(reached[0])
    if at == 0:
        return BATCH
    return BATCH * (at + (level - curve[at - 1]) / (curve[at] - curve[at - 1]))


def comparison(rows: Rows) -> None:
    """Print the mean accuracy after some numbers of labels, and the mean labels needed, on both groups of data sets."""
    values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows.rows:
        name, _, rest = str(row["case"]).partition(", ")
        values[str(row["what"]), rest][name].append(float(str(row["value"])))

    def mean(what: str, rest: str, part: str) -> float:
        """NaN unless every data set of the group has a value."""
        names, found = list(values[what, part]), values[what, rest]
        whole = names and all(found[name] for name in names)
        return float(np.mean([np.mean(found[name]) for name in names])) if whole else np.nan

    shown = " / ".join(map(str, SHOWN))
    print(f"| | chosen on: accuracy after {shown} labels | labels | checked on: accuracy | labels |")
    print("|---|---|---|---|---|")
    for what in dict.fromkeys(what for what, rest in values if rest in ("find", "check")):
        cells = []
        for part in ("find", "check"):
            means = [mean(what, f"{m} labels", part) for m in SHOWN]
            cells.append(" ".join("-" if np.isnan(one) else f"{one:.3f}" for one in means))
            cells.append(f"{mean(what, part, part):.0f}")
        print(f"| {what} | {' | '.join(cells)} |")
    took: dict[str, list[float]] = defaultdict(list)
    for row in rows.rows:
        if row["unit"] == "s":
            took[str(row["what"])].append(float(str(row["value"])))
    if took:
        print("\nSeconds at 60,000 rows, 200 features and ten classes, medians:", end=" ")
        print("; ".join(f"{what} {np.median(values):.2g} s" for what, values in took.items()))


def times(rows: Rows, repeats: int) -> None:
    """Seconds of a batch of ten at 60,000 rows, 200 features and ten classes."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((60_000, 200)).astype(np.float32)
    codes = np.full(60_000, -1)
    codes[:100] = np.arange(100) % 10
    P = rng.dirichlet(np.ones(10), 60_000)
    for strategy in STRATEGIES:
        if strategy == "auto":
            continue
        for n in (1, 10):
            pool = Pool(Z, codes, codes < 0, 0.01, np.random.default_rng(0), P, np.ones(10))
            for repeat in range(repeats):
                took = seconds(lambda pool=pool, n=n, strategy=strategy: choose_rows(pool, n, strategy))  # type: ignore[misc]
                rows.add("made features", 60_000, f"{strategy}, {n} row(s)", repeat, took, "s")
            print(f"{strategy:15s} {n:3d} row(s) {took:.3f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=[*FIND, *CHECK])
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=[s for s in STRATEGIES if s != "auto"])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--rows", type=int, default=10_000, help="largest number of rows of a data set")
    parser.add_argument("--jobs", type=int, default=1, help="data sets and draws side by side")
    parser.add_argument("--no-others", action="store_true", help="leave other libraries out")
    parser.add_argument("--time", action="store_true", help="also measure the time at 60,000 rows")
    parser.add_argument("--kept", action="store_true", help="measure nothing: print the table of the kept rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.kept:
        comparison(Rows.kept("active", options.out))
        return
    methods: Methods = {f"ours, {strategy}": (ours, strategy) for strategy in options.strategies}
    for library, run, names in (
        ("skactiveml", skactiveml, SKACTIVEML),
        ("graphlearning", graphlearning, GRAPHLEARNING),
    ):
        if options.no_others or find_spec(library) is None:
            print(f"{library} is left out" + ("" if options.no_others else ": it is not installed"))
        else:
            methods |= {f"{library}, {name}": (run, name) for name in names}
    rows = Rows("active")
    tasks = [(name, draw) for name in options.sets for draw in range(options.draws)]
    found = Parallel(options.jobs)(delayed(curves)(name, draw, options.rows, methods) for name, draw in tasks)
    by_set: dict[str, dict[str, list[Curve]]] = defaultdict(lambda: defaultdict(list))
    for (name, draw), result in zip(tasks, found, strict=True):
        for what, curve in result.items():
            by_set[name][what].append(curve)
            for number, accuracy in enumerate(curve, 1):
                if number * BATCH in SHOWN and accuracy > 0:  # NaN before there is one label per class
                    rows.add(f"{name}, {number * BATCH} labels", options.rows, what, draw, accuracy, "accuracy")
    for name, of_methods in by_set.items():
        part = "find" if name in FIND else "check"
        level = 0.9 * np.mean(of_methods[RANDOM], axis=0)[-1] if RANDOM in of_methods else np.inf
        for what, several in of_methods.items():
            mean = np.mean(several, axis=0)
            needed = labels_needed(mean, level)
            rows.add(f"{name}, {part}", options.rows, what, 0, needed, "labels for 90 %")
    comparison(rows)
    if options.time:
        times(rows, 3)
    print(rows.write(options.out))


if __name__ == "__main__":
    main()
