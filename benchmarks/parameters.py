"""What matters and what does not: one factor at a time, and criteria that choose among settings, on development sets.

Half of each class is unseen and some labels per class are kept in the other half, as in ldsu.bench.protocol. All
factors but one have the defaults that hold where nothing is chosen (gamma_scale 2, strength 100); the choice that
LDSUClassifier() makes from three labels per class on is another factor. MNIST and PCMAC are held back.

OPENBLAS_NUM_THREADS=1 python benchmarks/parameters.py [--splits 2] [--sets digits ...] [--plots docs] [--kept] [--tiny]
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from rows import RESULTS, Rows, pyplot_for_svg
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics.pairwise import additive_chi2_kernel
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from ldsu import LDSU, LDSUClassifier, mean_average_precision
from ldsu.bench.protocol import label_order
from ldsu.datasets import bag_of_words, load
from ldsu.kernels import Kernel, median_gamma
from ldsu.methods._leave_one_out import NOISES, accuracy, choose, leave_one_out, log_likelihoods
from ldsu.methods.ldsu import CANDIDATES, GAMMA_SCALE, NOISE, STRENGTH, log_priors
from ldsu.solvers import Problem, Settings, filtered_labelled_kernel

# Name, preprocessing, rows, kernel, labels per class.
SETS: dict[str, tuple[str, str | None, int | None, str, tuple[int, ...]]] = {
    "Digits": ("digits", None, None, "rbf", (1, 3, 10)),
    "USPS, 3,000 rows": ("usps", None, 3000, "rbf", (1, 3, 10)),
    "COIL-20": ("coil20", None, None, "rbf", (1, 3, 10)),
    "UMIST": ("umist", "distinct", None, "rbf", (1, 3, 10)),
    "Yale B, local contrast": ("yaleb", "local-contrast", None, "rbf", (1, 3, 10)),
    "Yale B, log": ("yaleb", "log", None, "rbf", (1, 3, 10)),
    "ICU 2012": ("icu2012", "balanced", None, "chi2", (25, 100)),
}
TINY_SETS = {"Digits": ("digits", None, 200, "rbf", (1, 3))}
BASE: dict[str, Any] = {"gamma_scale": GAMMA_SCALE, "strength": STRENGTH}
# Of each factor, the values beside the base's; the base's value is in BASE_VALUES.
FACTORS: dict[str, dict[str, dict[str, Any]]] = {
    "gamma_scale": {f"{value:g}": {"gamma_scale": value} for value in (0.1, 0.5, 8.0)},
    "strength": {f"{value:g}": {"strength": value} for value in (0.0, 1.0, 10.0, 1000.0, 10_000.0)},
    "clique_size": {f"{value}": {"clique_size": value} for value in (2, 5, 10)},
    "theta": {f"{value:g}": {"theta": value} for value in (0.01, 1.0, 10.0)},
    # strength x lam, the weight of the local graph, is kept: only the same-class graph gets more or less.
    "lam": {f"{value:g}": {"lam": value, "strength": STRENGTH / value} for value in (0.01, 100.0)},
    "filter": {
        "heat, strength 10": {"filter": "heat", "strength": 10.0},
        "truncate": {"filter": "truncate"},
    },
    "solver": {
        "sparse": {"solver": "sparse"},
        "sparse, purely local": {"solver": "sparse", "landmark_noise": 1e6, "n_landmarks": 0},
    },
    "cliques": {"other space": {}},
    "min_anchors": {f"{value}": {"min_anchors": value} for value in (50, 500)},
    "n_refinements": {f"{value}": {"n_refinements": value} for value in (0, 1, 8)},
    "standardize_scores": {"True": {"standardize_scores": True}, "False": {"standardize_scores": False}},
    "classifier": {
        **{f"ridge, alpha {a:g}": {"classifier": RidgeClassifier(alpha=a)} for a in (0.01, 0.1, 1.0)},
        **{f"linear SVM, C {C:g}": {"classifier": LinearSVC(C=C, random_state=0, max_iter=5000)} for C in (1.0, 100.0)},
    },
    "ridge": {f"{noise:g}": {"noise": noise} for noise in (0.001, 0.1, 1.0)},
}
TINY_FACTORS = ("strength", "n_refinements", "ridge")
BASE_VALUES = {
    "gamma_scale": "2",
    "strength": "100",
    "clique_size": "3",
    "theta": "0.1",
    "lam": "1",
    "min_anchors": "200",
    "n_refinements": "4",
    "ridge": "0.01",
}
ENSEMBLES = {
    "clique_size 3, 5, 10": ("base", "clique_size = 5", "clique_size = 10"),
    "gamma_scale 0.5, 2, 8": ("gamma_scale = 0.5", "base", "gamma_scale = 8"),
}
OUTER = ("classifier", "standardize_scores", "n_refinements")
DEFAULT, BEST, ALWAYS = "LDSUClassifier()", "best of the grid", "always the default"
SHIPPED = "as shipped"


class Fitted(BaseEstimator):
    """Features that are fitted already, with another ridge for the classifier; clones share everything."""

    def __init__(self, features: LDSU, noise: float | None = None, known: dict[int, np.ndarray] | None = None) -> None:
        self.features, self.known = features, {} if known is None else known
        self.noise_ = features.noise_ if noise is None else noise
        self.selection_ = features.selection_

    def __sklearn_clone__(self) -> Self:
        return self

    def with_noise(self, noise: float) -> Fitted:
        return Fitted(self.features, noise, self.known)

    def fit(self, X: Any, y: Any = None) -> Self:
        return self

    def transform(self, X: Any) -> np.ndarray:
        if id(X) not in self.known:
            self.known[id(X)] = self.features.transform(X)
        return self.known[id(X)]


@dataclass
class Half:
    """A split of a data set. chi2 distances are computed once; the kernel is then given as a matrix."""

    X_train: np.ndarray
    X_test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray
    order: np.ndarray
    kernel: str

    def __post_init__(self) -> None:
        self.views: dict[float, tuple[np.ndarray, np.ndarray, dict[str, Any]]] = {}
        if self.kernel == "chi2":
            self.gamma = median_gamma(self.X_train, "chi2")
            self.distances = [-additive_chi2_kernel(X, self.X_train) for X in (self.X_train, self.X_test)]

    def view(self, gamma_scale: float) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """What LDSU is fitted to, what it is tested on, and its kernel parameters."""
        if self.kernel != "chi2":
            return self.X_train, self.X_test, {"kernel": self.kernel, "gamma_scale": gamma_scale}
        if gamma_scale not in self.views:
            train, test = (np.exp(-gamma_scale * self.gamma * D) for D in self.distances)
            self.views[gamma_scale] = train, test, {"kernel": "precomputed"}
        return self.views[gamma_scale]

    def few(self, labels: int) -> np.ndarray:
        return np.where(self.order < labels, self.y_train, -1)


def read_half(name: str, preprocessing: str | None, n_rows: int | None, kernel: str, split: int) -> Half:
    """Divide a data set as repetition `split` of the experiments does."""
    dataset = load(name, preprocessing=preprocessing)
    y = dataset.y
    rows = np.arange(y.shape[0])
    if n_rows is not None:
        rows = np.sort(train_test_split(rows, train_size=n_rows, stratify=y, random_state=0)[0])
    train, test = train_test_split(rows, test_size=0.5, stratify=y[rows], random_state=split)
    X = dataset.X if dataset.documents is None else bag_of_words(dataset.documents, train)
    X_train, X_test = (np.ascontiguousarray(X[some], dtype=np.float64) for some in (train, test))
    return Half(X_train, X_test, y[train], y[test], label_order(y[train], split), kernel)


@dataclass(frozen=True)
class Outcome:
    """Scores of the test rows and of the unlabelled training rows, one column per class (a single one for two)."""

    test: np.ndarray
    unlabelled: np.ndarray
    predicted: np.ndarray


def fit(half: Half, few: np.ndarray, setting: dict[str, Any], features: Any = None) -> tuple[Outcome, Any]:
    """Scores under a setting, and the fitted features; with `features` given these are taken as they are."""
    outer = {key: value for key, value in setting.items() if key in OUTER}
    inner = {**BASE, **{key: value for key, value in setting.items() if key not in (*OUTER, "noise")}}
    X_train, X_test, kernel = half.view(inner.pop("gamma_scale"))
    if features is None:
        features = Fitted(LDSU(**inner, **kernel, store_graphs=True).fit(X_train, few))
    if "noise" in setting:
        features = features.with_noise(setting["noise"])
    return outcome(LDSUClassifier(features, **outer).fit(X_train, few), X_train, X_test, few), features


def outcome(model: LDSUClassifier, X_train: np.ndarray, X_test: np.ndarray, few: np.ndarray) -> Outcome:
    unlabelled: np.ndarray = model.decision_function(X_train)[few < 0]
    return Outcome(model.decision_function(X_test), unlabelled, model.transduction_[few < 0])


def decided(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    labels: np.ndarray = classes[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
    return labels


def measures(half: Half, few: np.ndarray, one: Outcome) -> dict[str, float]:
    classes = np.unique(half.y_train)
    return {
        "MAP": mean_average_precision(half.y_test, one.test, classes=classes),
        "accuracy": float(np.mean(decided(one.test, classes) == half.y_test)),
        "transductive accuracy": float(np.mean(one.predicted == half.y_train[few < 0])),
    }


def factors(half: Half, few: np.ndarray, names: tuple[str, ...]) -> Iterator[tuple[str, Outcome]]:
    """Outcomes of the default, of the base, and of each factor's values in its place."""
    as_it_comes = LDSUClassifier(LDSU(kernel=half.kernel)).fit(half.X_train, few)
    yield DEFAULT, outcome(as_it_comes, half.X_train, half.X_test, few)
    known = {}
    known["base"], base = fit(half, few, {})
    yield "base", known["base"]
    for factor in names:
        for value, changed in FACTORS[factor].items():
            if factor == "solver" and half.kernel != "rbf":
                continue
            what = f"{factor} = {value}"
            if factor == "cliques":
                space = "kernel" if half.kernel == "rbf" else "input"
                model = LDSUClassifier(LDSU(**BASE, kernel=half.kernel, cliques=space)).fit(half.X_train, few)
                yield f"cliques = {space}", outcome(model, half.X_train, half.X_test, few)
                continue
            features = base if set(changed) <= {*OUTER, "noise"} else None
            known[what], _ = fit(half, few, changed, features)
            yield what, known[what]
    classes = np.unique(half.y_train)
    for name, members in ENSEMBLES.items():
        if all(member in known for member in members):
            test = np.mean([known[member].test for member in members], axis=0)
            unlabelled = np.mean([known[member].unlabelled for member in members], axis=0)
            yield f"ensemble = {name}", Outcome(test, unlabelled, decided(unlabelled, classes))


def margin(scores: np.ndarray, codes: np.ndarray) -> float:
    """Mean lead of the own class over the best other."""
    own = np.arange(codes.size), codes
    others = scores.copy()
    others[own] = -np.inf
    return float(np.mean(scores[own] - others.max(axis=1)))


def squared_error(scores: np.ndarray, codes: np.ndarray) -> float:
    """PRESS."""
    Y = np.where(codes[:, None] == np.arange(codes.max() + 1), 1.0, -1.0)
    return float(np.mean((scores - Y) ** 2))


LEFT_OUT: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "log-likelihood": lambda scores, codes: float(log_likelihoods(scores, codes).mean()),
    "accuracy left out": accuracy,
    "squared error (PRESS)": lambda scores, codes: -squared_error(scores, codes),
    "margin": margin,
}


def affinity_ratio(Z: np.ndarray, few: np.ndarray) -> float:
    """Mean cosine between labelled rows of different classes against their mean cosine with all rows."""
    Z = Z / np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1e-300)
    labelled = np.flatnonzero(few >= 0)
    cosines = Z[labelled] @ Z[labelled].T
    different = few[labelled][:, None] != few[labelled]
    return float(cosines[different].mean() / (Z[labelled] @ Z.T).mean())


def selection(half: Half, few: np.ndarray) -> Iterator[tuple[str, float]]:
    """Test MAP of what each criterion picks from the grid of settings and ridges, and of the grid's best."""
    labelled = np.flatnonzero(few >= 0)
    codes = np.unique(few[labelled], return_inverse=True)[1]
    one_each = codes.size == codes.max() + 1
    noises = (NOISE, *(noise for noise in NOISES if noise != NOISE))  # of equals the first wins
    test: dict[tuple[int, float], float] = {}
    criteria: dict[str, dict[tuple[int, float], float]] = defaultdict(dict)
    kernels = []
    for number, (gamma_scale, strength) in enumerate(CANDIDATES):
        setting = {"gamma_scale": gamma_scale, "strength": strength}
        X_train, X_test, _ = half.view(gamma_scale)
        _, features = fit(half, few, setting)
        chi2 = half.kernel == "chi2"  # whose kernel matrix is X_train
        kernel = Kernel("precomputed") if chi2 else Kernel("rbf", features.features.gamma_)
        space = "kernel" if chi2 else "input"
        G = filtered_labelled_kernel(Problem(X_train), kernel, Settings(cliques=space), strength, labelled)
        kernels.append((number, G))
        for noise, (scores, evidence) in zip(noises, leave_one_out(G, codes, noises), strict=True):
            at = number, noise
            criteria["marginal likelihood"][at] = evidence
            for name, criterion in () if one_each else LEFT_OUT.items():
                criteria[name][at] = criterion(scores, codes)
            if not one_each:
                criteria["log-likelihood + evidence / 2"][at] = criteria["log-likelihood"][at] + evidence / 2
            model = LDSUClassifier(features.with_noise(noise)).fit(X_train, few)
            test[at] = mean_average_precision(half.y_test, model.decision_function(X_test), classes=model.classes_)
            if one_each:
                sure = expit(model.decision_function(X_train)[few < 0]).max(axis=1)
                before = LDSUClassifier(features.with_noise(noise), n_refinements=0).fit(X_train, few).transduction_
                criteria["confidence"][at] = float(sure.mean())
                criteria["agreement with refinement"][at] = float(np.mean(before == model.transduction_))
        if one_each:
            Z = features.transform(X_train)
            criteria["affinity of classes"][number, NOISE] = -affinity_ratio(Z, few)
    yield BEST, max(test.values())
    yield ALWAYS, test[0, NOISE]
    yield "any of the grid", float(np.mean(list(test.values())))
    for name, values in criteria.items():
        yield name, test[max(values, key=values.__getitem__)]
    if not one_each:
        priors = log_priors(CANDIDATES, len(np.unique(codes)))
        first = choose(((number, G, priors[number]) for number, G in kernels), codes)[0]
        yield SHIPPED, test[first.number, first.noise]


Table = dict[tuple[str, int], dict[str, float]]


def table_of(path: Path, unit: str) -> Table:
    """Means over the splits, by (data set, labels), then by what was measured."""
    kept: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["unit"] == unit:
                name, labels = row["case"].rsplit(", ", 1)
                kept[name, int(labels.split()[0])][row["what"]].append(float(row["value"]))
    return {place: {what: float(np.mean(v)) for what, v in rows.items()} for place, rows in kept.items()}


def splits_of(path: Path, unit: str) -> dict[tuple[str, int, str], dict[str, float]]:
    """The same without means, by (data set, labels, split)."""
    kept: dict[tuple[str, int, str], dict[str, float]] = defaultdict(dict)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["unit"] == unit:
                name, labels = row["case"].rsplit(", ", 1)
                kept[name, int(labels.split()[0]), row["repeat"]][row["what"]] = float(row["value"])
    return kept


def few_name(place: tuple[str, int]) -> str:
    return f"{place[1]}" if place[1] <= 10 else "ICU"


def print_changes(path: Path) -> None:
    """Mean change of each value against the base, by number of labels, and where MAP falls and rises most."""
    tables = {unit: table_of(path, unit) for unit in ("MAP", "accuracy", "transductive accuracy")}
    table = tables["MAP"]
    groups = sorted({few_name(place) for place in table}, key=lambda name: (name == "ICU", len(name), name))
    print(f"\nchange against the base, x 1000: MAP with {', '.join(groups)} labels; all: MAP, accuracy, transductive\n")
    for what in dict.fromkeys(what for rows in table.values() for what in rows if what != "base"):
        change = {p: 1000 * (rows[what] - rows["base"]) for p, rows in table.items() if what in rows}
        by_group = [[value for p, value in change.items() if few_name(p) == group] for group in groups]
        cells = [f"{np.mean(values):+5.0f}" if values else "    -" for values in by_group]
        means = [np.mean([1000 * (t[p][what] - t[p]["base"]) for p in change]) for t in tables.values()]
        low, high = min(change, key=change.__getitem__), max(change, key=change.__getitem__)
        print(
            f"{what:36s} {' '.join(cells)} | {' '.join(f'{mean:+5.0f}' for mean in means)} | "
            f"{change[low]:+5.0f} {low[0]} {low[1]}, {change[high]:+5.0f} {high[0]} {high[1]}"
        )


def print_places(path: Path) -> None:
    """The default and the base, and the single change that the test half would have chosen."""
    tables = {unit: table_of(path, unit) for unit in ("MAP", "accuracy", "transductive accuracy")}
    print("\nMAP, accuracy, transductive accuracy: default | base | single change with the best test MAP\n")
    for (name, labels), rows in tables["MAP"].items():
        best = max((what for what in rows if what not in (DEFAULT, "base")), key=rows.__getitem__)
        cells = [" ".join(f"{t[name, labels][what]:.3f}" for t in tables.values()) for what in (DEFAULT, "base", best)]
        print(f"{name:24s} {labels:3d} | {' | '.join(cells)} {best}")


def print_regrets(path: Path) -> None:
    """Test MAP lost against the best of the grid."""
    table = table_of(path, "MAP of the pick")
    groups = sorted({few_name(place) for place in table}, key=lambda name: (name == "ICU", len(name), name))
    print(f"\nregret in MAP against the best of the grid, x 1000, with {', '.join(groups)} labels; largest\n")
    for what in dict.fromkeys(what for rows in table.values() for what in rows if what != BEST):
        regret = {p: 1000 * (rows[BEST] - rows[what]) for p, rows in table.items() if what in rows}
        by_group = [[value for p, value in regret.items() if few_name(p) == group] for group in groups]
        cells = [f"{np.mean(values):5.0f}" if values else "    -" for values in by_group]
        worst = max(regret, key=regret.__getitem__)
        print(f"{what:44s} {' '.join(cells)} | {regret[worst]:.0f} {worst[0]} {worst[1]}")


def print_regrets_of_splits(path: Path) -> None:
    """Test MAP that each criterion lost in each split, and how often it was better and worse than the default."""
    splits = splits_of(path, "MAP of the pick")
    print("\nregret split by split, x 1000: better and worse than the default; largest; all\n")
    for what in dict.fromkeys(what for rows in splits.values() for what in rows if what != BEST):
        regret = {place: 1000 * (rows[BEST] - rows[what]) for place, rows in splits.items() if what in rows}
        gains = [splits[place][what] - splits[place][ALWAYS] for place in regret]
        worst = max(regret, key=regret.__getitem__)
        places: dict[str, list[str]] = defaultdict(list)
        for (name, labels, _), value in regret.items():
            places[f"{name} {labels}"].append(f"{value:.0f}")
        print(
            f"{what:44s} {sum(gain > 0 for gain in gains)} of {len(gains)}, {sum(gain < 0 for gain in gains)} of "
            f"{len(gains)}; {regret[worst]:.0f} {worst[0]} {worst[1]}; "
            + "; ".join(f"{place}: {' '.join(values)}" for place, values in places.items())
        )


PLOTS = {
    "strength": "With one label per class a strength near 100 is safe; with more, Yale B (log) and ICU 2012 want less",
    "gamma_scale": "USPS wants a narrow kernel, Yale B (log) a wide one; 2 lies between",
    "clique_size": "Cliques of more than 3 cost MAP nearly everywhere",
    "overview": "Bandwidth, strength and clique size matter; theta, lam and the ridge hardly do",
}


COLORS = {1: "C0", 3: "C1", 10: "C2", 25: "C4", 100: "C3"}


def labels_name(labels: int) -> str:
    return f"{labels} labels per class" if labels > 1 else "1 label per class"


def small_multiples(path: Path, factor: str, title: str, target: Path) -> None:
    """MAP against a factor, a panel a data set, a line for each number of labels."""
    pyplot = pyplot_for_svg()
    table = table_of(path, "MAP")
    names = list(dict.fromkeys(name for name, _ in table))
    values = sorted({*FACTORS[factor], BASE_VALUES[factor]}, key=float)
    figure, axes = pyplot.subplots(2, 4, figsize=(11, 5.4), layout="constrained")
    handles: dict[str, Any] = {}
    for axis, name in zip(axes.flat, names, strict=False):
        handles["value of the base"] = axis.axvline(values.index(BASE_VALUES[factor]), color="0.88", linewidth=7)
        for (other, labels), rows in table.items():
            if other != name:
                continue
            heights = [rows["base" if v == BASE_VALUES[factor] else f"{factor} = {v}"] for v in values]
            (handles[labels_name(labels)],) = axis.plot(
                range(len(values)), heights, "o-", color=COLORS[labels], markersize=3.5, linewidth=1.4
            )
            axis.plot([0, len(values) - 1], [rows[DEFAULT]] * 2, color=COLORS[labels], linestyle=":", linewidth=1.2)
        axis.set_title(name, fontsize=10)
        axis.set_xticks(range(len(values)), [value.replace("10000", "1e4") for value in values])
        axis.grid(axis="y", color="0.92")
    for axis in axes[:, 0]:
        axis.set_ylabel("MAP, unseen half")
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    handles["LDSUClassifier()"] = pyplot.Line2D([], [], color="0.4", linestyle=":")
    order = sorted(handles, key=lambda name: (not name[0].isdigit(), int(name.split()[0]) if name[0].isdigit() else 0))
    axes.flat[-1].legend([handles[name] for name in order], order, loc="center", fontsize=10)
    figure.supxlabel(factor, fontsize=11)
    figure.suptitle(title, fontsize=12)
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)


def overview(path: Path, title: str, target: Path) -> None:
    """Change of MAP against the base: a row a setting, a dot for each data set and number of labels."""
    pyplot = pyplot_for_svg()
    table = table_of(path, "MAP")
    settings = [w for w in dict.fromkeys(w for rows in table.values() for w in rows) if w != "base"]
    settings.sort(key=lambda what: [DEFAULT, *FACTORS, "ensemble"].index(what.split(" = ")[0]))
    figure, axis = pyplot.subplots(figsize=(9, 0.2 * len(settings) + 1.2), layout="constrained")
    factor, shaded = "", False
    for height, what in enumerate(settings):
        if what.split(" = ")[0] != factor:
            factor, shaded = what.split(" = ")[0], not shaded
        if shaded:
            axis.axhspan(height - 0.5, height + 0.5, color="0.95", linewidth=0)
    for labels, shift in {1: -0.2, 3: 0.0, 10: 0.2, 100: 0.0}.items():
        dots = [
            (rows[what] - rows["base"], height + shift)
            for (_, m), rows in table.items()
            for height, what in enumerate(settings)
            if what in rows and (labels == m or (labels == 100 and m == 25))
        ]
        name = labels_name(labels) if labels <= 10 else "ICU 2012, 25 or 100 labels"
        if dots:
            axis.scatter(*np.transpose(dots), s=9, color=COLORS[labels], alpha=0.8, linewidths=0, label=name)
    axis.axvline(0, color="0.4", linewidth=0.8)
    axis.set_xscale("symlog", linthresh=0.05)
    ticks = [-0.2, -0.1, -0.05, -0.02, 0, 0.02, 0.05, 0.1, 0.2]
    axis.set_xticks(ticks, [f"{tick:+g}" if tick else "0" for tick in ticks])
    axis.minorticks_off()
    axis.set_yticks(range(len(settings)), settings)
    axis.set_ylim(len(settings) - 0.5, -0.5)
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("change of MAP on the unseen half against the base (gamma_scale 2, strength 100)")
    figure.legend(loc="outside lower center", ncols=4, fontsize=9, markerscale=1.5)
    figure.suptitle(title, fontsize=11)
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--factors", nargs="*", choices=list(FACTORS), default=list(FACTORS))
    parser.add_argument("--tiny", action="store_true", help="200 rows of digits and three factors: a trial run")
    parser.add_argument("--kept", action="store_true", help="measure nothing: tables and plots of the kept rows")
    parser.add_argument("--plots", type=Path, help="draw parameters-*.svg into this folder (needs matplotlib)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*lie far from all training rows")
    sets = TINY_SETS if options.tiny else {title: SETS[title] for title in options.sets}
    names = TINY_FACTORS if options.tiny else tuple(options.factors)
    rows = Rows("parameters")
    path = options.out / "parameters.csv"
    for split in range(0 if options.kept else 1 if options.tiny else options.splits):
        for title, (name, preprocessing, n_rows, kernel, all_labels) in sets.items():
            half = read_half(name, preprocessing, n_rows, kernel, split)
            for labels in all_labels:
                start = time.perf_counter()
                few, n = half.few(labels), half.y_train.size
                case = f"{title}, {labels} labels per class"
                for what, one in factors(half, few, names):
                    for unit, value in measures(half, few, one).items():
                        rows.add(case, n, what, split, value, unit)
                between = time.perf_counter()
                for what, value in selection(half, few):
                    rows.add(case, n, what, split, value, "MAP of the pick")
                end = time.perf_counter()
                print(f"{case}, split {split}: {between - start:.0f} + {end - between:.0f} s", flush=True)
                path = rows.write(options.out)
    print_changes(path)
    print_regrets(path)
    print_regrets_of_splits(path)
    print_places(path)
    for factor, title in PLOTS.items() if options.plots else ():
        options.plots.mkdir(parents=True, exist_ok=True)
        target = options.plots / f"parameters-{factor.replace('_', '-')}.svg"
        if factor == "overview":
            overview(path, title, target)
        else:
            small_multiples(path, factor, title, target)
    if not options.kept:
        print(f"rows in {path}")


if __name__ == "__main__":
    main()
