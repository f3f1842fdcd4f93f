"""Draw the pictures of the pages, each from data, once for a light page and once for a dark one.

``python docs/pictures.py FOLDER`` writes them; the site's build does the same. Nothing in them is drawn manually: every
number is computed by the library from two moons or from scikit-learn's digits.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from sklearn.datasets import load_digits, make_moons
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from ldsu import LDSU, LabelledOnly, LDSUClassifier
from ldsu.bench.report.style import COLORS, MARKERS, SERIES, rc_params
from ldsu.graphs import class_laplacian, clique_grams, clique_weights, mean_clique_scatter
from ldsu.neighbors import cliques, input_neighbors
from ldsu.solvers._exact import heat, tikhonov


class Theme:
    """Colors of a page, and those of the two moons and five digits on it."""

    def __init__(self, name: str, page: str) -> None:
        dark = name == "dark"
        self.name, self.page, self.settings = name, page, rc_params(page, dark=dark)
        self.ink, self.soft, *self.classes = (COLORS[color][dark] for color in ("ink", "soft", *SERIES[:5]))

    @property
    def between(self) -> LinearSegmentedColormap:
        """From the first class through the page to the second."""
        return LinearSegmentedColormap.from_list("between", [self.classes[0], self.page, self.classes[1]])

    @property
    def upward(self) -> LinearSegmentedColormap:
        """From the page to the first class."""
        return LinearSegmentedColormap.from_list("upward", [self.page, self.classes[0]])


THEMES = (Theme("light", "#ffffff"), Theme("dark", "#14181e"))
# Digits that are easily taken for each other, and how often labels are drawn anew.
ALIKE = (1, 3, 5, 8, 9)
DRAWS = 4
# Rows of docs/results.md, and what the default classifier is called in them.
RESULTS, OURS = Path(__file__).parents[1] / "results" / "fewlabels", "LDSU auto"


def few_labels(y: np.ndarray, a_class: int, seed: int = 0) -> np.ndarray:
    """Keep so many labels of each class; the others become -1."""
    rng = np.random.default_rng(seed)
    few = np.full_like(y, -1)
    for label in np.unique(y):
        few[rng.choice(np.flatnonzero(y == label), a_class, replace=False)] = label
    return few


@cache
def moons() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two moons, which point lies on which, and two labels for each."""
    X, y = make_moons(240, noise=0.08, random_state=0)
    return X, y, few_labels(y, 2, seed=3)


def draw_moons(ax: Axes, theme: Theme, size: float = 14, alpha: float = 1.0) -> None:
    """The points in the colors of their moon, the labelled ones large."""
    X, y, few = moons()
    for label, color in enumerate(theme.classes[:2]):
        rows = y == label
        ax.scatter(*X[rows].T, s=size, color=color, marker=MARKERS[label], alpha=alpha, linewidths=0)
        labelled = few == label
        ax.scatter(*X[labelled].T, s=110, color=color, marker=MARKERS[label], edgecolors=theme.ink, zorder=4)
    frame(ax)


def frame(ax: Axes) -> None:
    """No ticks: the units of the moons say nothing."""
    ax.set(xticks=[], yticks=[], xlim=(-1.6, 2.6), ylim=(-1.1, 1.6), aspect="equal")
    ax.spines[["left", "bottom"]].set_visible(False)


def plane_of_digits(theme: Theme) -> Figure:
    """Five digits that look alike, by their pixels and by their features."""
    X, y = load_digits(return_X_y=True)
    rows = np.isin(y, ALIKE)
    X, y = X[rows], y[rows]
    few = few_labels(y, 3)
    Z = LDSU().fit(X, few).transform(X)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    for ax, points, title in zip(axes, (X, Z), ("pixels", "LDSU features"), strict=True):
        plane = PCA(2).fit_transform(points)
        for digit, color in zip(ALIKE, theme.classes, strict=True):
            ax.scatter(*plane[y == digit].T, s=26, marker=f"${digit}$", color=color, linewidths=0.3)
        ax.scatter(*plane[few >= 0].T, s=150, facecolors="none", edgecolors=theme.ink, linewidths=1.4)
        ax.set(title=f"{title}, first two principal components", xticks=[], yticks=[])
    return figure


def kernel(theme: Theme) -> Figure:
    """Similarity to one point in the plane, and between all pairs."""
    X, y, few = moons()
    gamma = float(LDSU().fit(X, few).gamma_)
    chosen = int(np.flatnonzero(few == 0)[0])
    order = np.lexsort((X[:, 0], y))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), width_ratios=(1.5, 1), layout="constrained")
    similarity = rbf_kernel(X, X[[chosen]], gamma=gamma)[:, 0]
    dots = left.scatter(
        *X.T, c=similarity, cmap=theme.upward, vmin=0, vmax=1, s=28, edgecolors=theme.soft, linewidths=0.4
    )
    left.scatter(*X[chosen], s=150, marker="*", color=theme.classes[1], edgecolors=theme.ink, zorder=3)
    frame(left)
    left.set_title("similarity to the starred point")
    right.imshow(rbf_kernel(X[order], gamma=gamma), cmap=theme.upward, vmin=0, vmax=1)
    right.set(title="similarity of every pair, moon by moon", xticks=[60, 180], yticks=[60, 180])
    right.set_xticklabels(["upper", "lower"])
    right.set_yticklabels(["upper", "lower"], rotation=90, va="center")
    figure.colorbar(dots, ax=right, label="k(a, b)", shrink=0.8)
    return figure


def graphs(theme: Theme) -> Figure:
    """The same-class graph has a few long edges, the cliques have many short ones."""
    X, _, few = moons()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    joined = class_laplacian(few).tocoo()
    members = cliques(input_neighbors(X, 2)[1])
    pairs = {
        left: [(i, j) for i, j, v in zip(joined.row, joined.col, joined.data, strict=True) if v < 0],
        right: [(int(row[0]), int(other)) for row in members for other in row[1:]],
    }
    for ax, edges in pairs.items():
        lines = [[X[i], X[j]] for i, j in edges]
        ax.add_collection(LineCollection(lines, colors=theme.ink, linewidths=1.2 if ax is left else 0.7))
        draw_moons(ax, theme, alpha=0.45)
    left.set_title("same-class graph: labelled points of a class")
    right.set_title("cliques: each point and its two nearest neighbors")
    return figure


def clique(theme: Theme) -> Figure:
    """Two features on one clique: one that follows the positions, one that does not, and what each costs."""
    X, _, few = moons()
    grams = clique_grams(X, members := cliques(input_neighbors(X, 4)[1]))
    theta = 0.1 * mean_clique_scatter(grams)
    at = int(np.flatnonzero(few == 1)[0])
    points = X[members[at]] - X[members[at]].mean(axis=0)
    along = points @ np.linalg.svd(points)[2][0]
    order = np.argsort(along)
    L = clique_weights(grams[[at]], theta)[0]
    follows = along / np.linalg.norm(along)
    jumps = np.where(np.arange(along.size) % 2 == 0, 1.0, -1.0)[np.argsort(order)]
    jumps = (jumps - jumps.mean()) / np.linalg.norm(jumps - jumps.mean())
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), sharey=True, layout="constrained")
    for ax, values, title in zip(axes, (follows, jumps), ("follows the positions", "does not"), strict=True):
        # The best straight local rule, with ridge theta: its residuals are the cost.
        rule = float(along @ values / (along @ along + theta))
        ax.plot(along[order], rule * along[order], color=theme.soft, label="best straight line in the clique")
        ax.vlines(along, rule * along, values, color=theme.classes[1], linewidth=1.5, label="residual")
        ax.scatter(along, values, s=70, color=theme.classes[0], zorder=3, label="the feature")
        ax.set(title=f"{title}: cost {theta * values @ L @ values:.2f}", xlabel="position along the clique")
    axes[0].set_ylabel("value of the feature")
    axes[0].legend(loc="upper left", fontsize=9)
    return figure


@cache
def moon_kernels() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The kernel of the moons, the same after the filter, and the joint graph, all (n, n)."""
    X, _, few = moons()
    model = LDSU(strength=1000, gamma_scale=8, min_anchors=X.shape[0], store_graphs=True).fit(X, few)
    K = rbf_kernel(X, gamma=model.gamma_)
    Z = model.transform(X)
    M = (model.class_laplacian_ + model.lam * model.clique_laplacian_).toarray()
    return K, Z @ Z.T, M


def directions(theme: Theme) -> Figure:
    """The leading directions of the kernel, and of the filtered one, as colors on the moons."""
    X, _, _ = moons()
    K, filtered, M = moon_kernels()
    figure, axes = plt.subplots(2, 4, figsize=(10, 4.1), layout="constrained")
    for row, matrix, name in zip(axes, (K, filtered), ("kernel alone", "kernel and graphs"), strict=True):
        H = np.eye(len(X)) - 1 / len(X)
        vectors = np.linalg.eigh(H @ matrix @ H)[1][:, ::-1]
        for number, ax in enumerate(row):
            v = vectors[:, number]
            limit = np.abs(v).max()
            ax.scatter(
                *X.T, c=v, cmap=theme.between, vmin=-limit, vmax=limit, s=11, edgecolors=theme.soft, linewidths=0.15
            )
            frame(ax)
            ax.set_title(f"roughness {v @ M @ v:.4f}", fontsize=10)
        row[0].set_ylabel(name)
    return figure


def filters(theme: Theme) -> Figure:
    """How much of a direction each filter keeps, against its roughness, with the directions there are."""
    X, y = some_digits()
    mu = LDSU(None, filter="truncate").fit(X, few_labels(y, 3)).eigenvalues_
    cut, mu = np.median(mu), mu[mu > 1e-3]
    grid = np.geomspace(mu.min(), mu.max(), 400)
    figure, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
    ax.semilogx(grid, tikhonov(grid, 100), color=theme.classes[0], label="tikhonov, strength 100 (the default)")
    ax.semilogx(grid, tikhonov(grid, 1000), color=theme.classes[0], ls="--", label="tikhonov, strength 1000")
    ax.semilogx(grid, heat(grid, 10), color=theme.classes[2], ls="-.", label="heat, strength 10")
    ax.plot([mu.min(), cut, cut, mu.max()], [1, 1, 0, 0], color=theme.classes[1], ls=":", lw=2, label="truncate, half")
    ax.vlines(mu, -0.12, -0.05, color=theme.soft, linewidth=0.5)
    ax.set(xlabel="roughness of a direction (each tick is a direction of 500 digits)", ylabel="share kept")
    ax.set_yticks([0, 0.5, 1])
    ax.legend(loc="upper right", fontsize=9)
    return figure


@cache
def some_digits() -> tuple[np.ndarray, np.ndarray]:
    """The first 500 digits, in the order of their classes."""
    X, y = load_digits(return_X_y=True)
    order = np.argsort(y[:500], kind="stable")
    return X[order], y[order]


def correlations(K: np.ndarray) -> np.ndarray:
    """Cosines between rows about their mean, from inner products K (n, n)."""
    H = np.eye(len(K)) - 1 / len(K)
    centered = H @ K @ H
    lengths = np.sqrt(np.diag(centered))
    return centered / np.outer(lengths, lengths)


def similarities(theme: Theme) -> Figure:
    """All pairs of 500 digits, by the kernel and by the features."""
    X, y = some_digits()
    model = LDSU().fit(X, few_labels(y, 3))
    Z = model.transform(X)
    ticks = [float(np.flatnonzero(y == digit).mean()) for digit in range(10)]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained")
    before = rbf_kernel(X, gamma=model.gamma_)
    for ax, K, title in zip(axes, (before, Z @ Z.T), ("kernel", "features from 30 labels"), strict=True):
        image = ax.imshow(correlations(K), cmap=theme.upward, vmin=0, vmax=1, interpolation="antialiased")
        ax.set(title=title, xticks=ticks, yticks=ticks, xticklabels=range(10), yticklabels=range(10))
        ax.tick_params(length=0)
    figure.colorbar(image, ax=axes, label="similarity", shrink=0.8)
    return figure


@cache
def accuracy_of_steps() -> tuple[list[str], np.ndarray]:
    """Names of the steps, and the accuracy after each: (steps, one or three labels per class, draws)."""
    X, y = load_digits(return_X_y=True)
    steps = {
        "SVM on the labels": lambda: LabelledOnly(SVC(C=10)),
        "features and ridge": lambda: LDSUClassifier(standardize_scores=False, n_refinements=0),
        "+ standardized": lambda: LDSUClassifier(n_refinements=0),
        "+ refined": LDSUClassifier,
    }
    scores = np.zeros((len(steps), 2, DRAWS))
    for draw in range(DRAWS):
        X_fit, X_new, y_fit, y_new = train_test_split(X, y, test_size=0.5, stratify=y, random_state=draw)
        for column, a_class in enumerate((1, 3)):
            few = few_labels(y_fit, a_class, seed=draw)
            for row, make in enumerate(steps.values()):
                scores[row, column, draw] = make().fit(X_fit, few).score(X_new, y_new)
    return list(steps), scores


def decisions(theme: Theme) -> Figure:
    """Accuracy on unseen digits after each step from features to labels."""
    steps, scores = accuracy_of_steps()
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.2), sharey=True, layout="constrained")
    for column, (ax, a_class) in enumerate(zip(axes, ("one label", "three labels"), strict=True)):
        for row in range(len(steps)):
            values = scores[row, column]
            color = theme.soft if row == 0 else theme.classes[0]
            ax.scatter(values, np.full(DRAWS, row), color=color, alpha=0.5, s=24)
            ax.scatter(values.mean(), row, marker="|", s=400, color=color, linewidths=2.5)
            ax.annotate(f"{values.mean():.2f}", (values.mean(), row), (0, 14), textcoords="offset points", ha="center")
        ax.set(title=f"{a_class} per class", xlabel="accuracy on unseen digits", xlim=(0.4, 1), ylim=(3.5, -0.7))
    axes[0].set_yticks(range(len(steps)), steps)
    return figure


def strength(theme: Theme) -> Figure:
    """Decisions of the graph on the moons: strength from left to right, bandwidth from top to bottom."""
    X, y, few = moons()
    xs, ys = np.linspace(-1.6, 2.6, 121), np.linspace(-1.1, 1.6, 81)
    grid = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
    scales, strengths = (0.5, 2.0, 8.0), (0, 100, 1000)
    figure, axes = plt.subplots(3, 3, figsize=(10, 6.6), layout="constrained")
    for row, scale in zip(axes, scales, strict=True):
        for ax, value in zip(row, strengths, strict=True):
            # Without pooled classifiers, which would hide what the graph does.
            model = LDSUClassifier(LDSU(strength=value, gamma_scale=scale), supervised=False).fit(X, few)
            shares = model.predict_proba(grid)[:, 1].reshape(ys.size, xs.size)
            ax.pcolormesh(xs, ys, shares, cmap=theme.between, vmin=0, vmax=1, alpha=0.75, rasterized=True)
            ax.contour(xs, ys, shares, levels=[0.5], colors=theme.ink, linewidths=1)
            draw_moons(ax, theme, size=7)
            ax.set_title(f"strength {value}: {model.score(X[few < 0], y[few < 0]):.0%} right", fontsize=10)
        row[0].set_ylabel(f"gamma_scale {scale:g}")
    return figure


def gains(theme: Theme) -> Figure:
    """Accuracy on unseen rows from the kept results: the default classifier, an SVM, and the best of ten others."""
    with (RESULTS / "table.csv").open(encoding="utf-8") as file:
        honest = [row for row in csv.DictReader(file) if row["selection"] == "honest" and row["method"] != "LDSU"]
    accuracies: dict[str, dict[int, dict[str, float]]] = {}
    for row in honest:
        by_labels = accuracies.setdefault(row["title"], {})
        by_labels.setdefault(int(row["labels"]), {})[row["method"]] = float(row["accuracy_mean"])
    figure, axes = plt.subplots(1, 3, figsize=(10, 4.4), sharey=True, layout="constrained")
    names = [name + (" (25; 50; 100 labels)" if min(rows) > 1 else "") for name, rows in accuracies.items()]
    for number, ax in enumerate(axes):
        for height, by_labels in enumerate(accuracies.values()):
            methods = by_labels[sorted(by_labels)[(0, 1, -1)[number]]]
            others = max(value for name, value in methods.items() if name != OURS)
            ax.plot([methods["SVM-RBF"], methods[OURS]], [height, height], color=theme.soft, linewidth=1, zorder=0)
            ax.scatter(methods["SVM-RBF"], height, marker="x", color=theme.soft, label="SVM" if not height else None)
            ax.scatter(
                others, height, marker="|", s=170, color=theme.classes[1], label=None if height else "best other"
            )
            ax.scatter(methods[OURS], height, color=theme.classes[0], label=None if height else "LDSUClassifier()")
        ax.set(
            title=f"{('one label', 'three labels', 'ten labels')[number]} per class",
            xlim=(0.1, 1.05),
            xlabel="accuracy",
        )
        ax.grid(axis="x", color=theme.soft, alpha=0.2)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def choice(theme: Theme) -> Figure:
    """Four questions, and what to use for each answer."""
    questions = (
        ("Are there unlabelled rows of the same kind?", "no", "SVC, KDA: there is no graph to learn from"),
        ("Are there hundreds of labels per class?", "yes", "your usual classifier: the graph adds little"),
        ("Are near rows mostly of the same class?", "no", "three labels per class or more, or better columns"),
        ("Do you want features for your own classifier?", "yes", "LDSU, BlockScaler, LabelledOnly"),
    )
    figure, ax = plt.subplots(figsize=(9, 3.9), layout="constrained")
    box = {"boxstyle": "round,pad=0.5", "facecolor": theme.page, "edgecolor": theme.soft}
    answer = {**box, "edgecolor": theme.classes[0], "linewidth": 1.6}
    arrow = {"arrowstyle": "-|>", "color": theme.soft}
    last = -len(questions)
    for height, (question, reply, advice) in enumerate(questions):
        ax.text(0, -height, question, bbox=box, ha="center", va="center")
        ax.text(1, -height, advice, bbox=answer, ha="left", va="center")
        ax.annotate("", (0.96, -height), (0.66, -height), arrowprops=arrow)
        ax.text(0.8, -height + 0.12, reply, color=theme.soft, ha="center")
        ax.annotate("", (0, -height - 0.68), (0, -height - 0.3), arrowprops=arrow)
        ax.text(0.05, -height - 0.56, "no" if reply == "yes" else "yes", color=theme.soft)
    ax.text(0, last, "LDSUClassifier()", bbox=answer, ha="center", va="center", weight="bold")
    ax.set(xlim=(-0.75, 2.3), ylim=(last - 0.4, 0.4))
    ax.axis("off")
    return figure


PICTURES: dict[str, Callable[[Theme], Figure]] = {
    "plane-of-digits": plane_of_digits,
    "kernel": kernel,
    "graphs": graphs,
    "clique": clique,
    "directions": directions,
    "filters": filters,
    "similarities": similarities,
    "decisions": decisions,
    "strength": strength,
    "gains": gains,
    "choice": choice,
}


def draw_all(folder: Path) -> None:
    """Write every picture in both themes, as NAME-THEME.svg, where it is not newer than this file."""
    folder.mkdir(parents=True, exist_ok=True)
    for theme in THEMES:
        for name, draw in PICTURES.items():
            path = folder / f"{name}-{theme.name}.svg"
            if path.exists() and path.stat().st_mtime > Path(__file__).stat().st_mtime:
                continue
            with plt.rc_context(theme.settings):
                figure = draw(theme)
                figure.savefig(path, dpi=150, metadata={"Date": None})
                plt.close(figure)


def reset(gallery_conf: dict[str, Any], name: str) -> None:
    """Give every example of the gallery the same style. (sphinx-gallery calls this before each.)"""
    plt.rcdefaults()
    plt.rcParams.update(rc_params("#ffffff"))
    plt.rcParams.update({"figure.figsize": (6.4, 3.9), "figure.constrained_layout.use": True})
    # Large enough to be read in a thumbnail, a third of the size.
    plt.rcParams.update({"font.size": 12, "axes.titlesize": 13, "legend.fontsize": 11})


if __name__ == "__main__":
    plt.switch_backend("Agg")
    draw_all(Path(sys.argv[1]))
