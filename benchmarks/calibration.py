"""How far probabilities can be trusted, and what the two numbers of `LDSUClassifier.confidence` tell apart.

On the unseen half, as in `ldsu.bench.protocol`, with nothing tuned: expected calibration error of the predicted class
(15 bins of equal width), mean confidence against accuracy, Brier score (sum over the classes, 0 to 2) and log loss
(probabilities below 1e-6 count as 1e-6), with label spreading's probabilities beside them. Then rows made up from test
rows: far (100 standard deviations of every column are added), noise (uniform between the least and the largest value
of the training half) and between (halfway between two test rows of different classes).

python benchmarks/calibration.py [--splits 3] [--sets digits ...] [--plot docs/calibration.svg] [--kept] [--tiny]
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from robustness import Values, halves, read, spread
from rows import RESULTS, Rows, pyplot_for_svg
from sklearn.metrics import roc_auc_score

from ldsu import LDSU, LDSUClassifier
from ldsu.bench.protocol import Split, few_labels

BINS, LEAST = 15, 1e-6
# Bins with fewer rows, over all splits, are not drawn.
DRAWN_ROWS = 10
OURS, SPREADING = "LDSUClassifier()", {"LabelSpreading 0.2": 0.2, "LabelSpreading 0.9": 0.9}
COLORS = ("C1", "C0", "C2")
UNITS = ("accuracy", "mean confidence", "calibration error", "Brier score", "log loss")
KINDS = ("real", "far", "noise", "between")


@dataclass(frozen=True)
class Data:
    """A data set, its preprocessing (None: the first), rows (None: all), kernel and labels per class."""

    name: str
    title: str
    preprocessing: str | None = None
    rows: int | None = None
    kernel: str = "rbf"
    labels: tuple[int, ...] = (1, 3, 10)


SETS = {
    "digits": Data("digits", "digits"),
    "coil20": Data("coil20", "COIL-20"),
    "umist": Data("umist", "UMIST", "distinct"),
    "usps": Data("usps", "USPS, 3,000 rows", rows=3000),
    "yaleb-contrast": Data("yaleb", "Yale B, local contrast", "local-contrast"),
    "yaleb-log": Data("yaleb", "Yale B, log", "log"),
    "icu2012": Data("icu2012", "ICU 2012, chi2", kernel="chi2", labels=(25, 100)),
}


def bins(confidence: np.ndarray) -> np.ndarray:
    return np.minimum((confidence * BINS).astype(np.int64), BINS - 1)


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Mean over the bins, by their rows, of the distance between mean confidence and accuracy."""
    gaps = np.bincount(bins(confidence), weights=confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / right.size)


def quality(probabilities: np.ndarray, classes: np.ndarray, y: np.ndarray) -> dict[str, float]:
    columns = np.searchsorted(classes, y)
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == columns
    of_true = probabilities[np.arange(y.size), columns]
    brier = 1 - 2 * of_true + np.sum(probabilities**2, axis=1)
    figures = right.mean(), confidence.mean(), calibration_error(confidence, right), brier.mean()
    return dict(zip(UNITS, map(float, (*figures, -np.log(np.maximum(of_true, LEAST)).mean())), strict=True))


def made_up(split: Split) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(split.seed)
    X, X_new, y_new = split.X_train, split.X_test, split.y_test
    first = rng.permutation(y_new.size)
    second = rng.permutation(first)
    different = y_new[first] != y_new[second]
    return {
        "real": X_new,
        "far": X_new + 100 * X.std(axis=0),
        "noise": rng.uniform(X.min(), X.max(), X_new.shape),
        "between": (X_new[first] + X_new[second])[different] / 2,
    }


def describe(model: LDSUClassifier, split: Split) -> dict[str, dict[str, float]]:
    """For each kind of rows: median margin and familiarity, how well each tells them from real rows, share isolated."""
    found: dict[str, dict[str, float]] = {}
    real = None
    for kind, X in made_up(split).items():
        confidence = model.confidence(X)
        real = real or confidence
        largest = model.predict_proba(X).max(axis=1)
        found[kind] = {"share isolated": float(np.mean(largest * model.classes_.size - 1 < 1e-4))}
        for score, values, of_real in zip(confidence._fields, confidence, real, strict=True):
            found[kind][f"median {score}"] = float(np.median(values))
            if kind != "real":
                is_real = np.repeat([1, 0], [len(of_real), len(values)])
                found[kind][f"ROC AUC of {score}"] = float(roc_auc_score(is_real, np.concatenate([of_real, values])))
    return found


def measure(rows: Rows, key: str, labels: int, splits: list[Split]) -> None:
    """A row for each figure of each split, and for each bin of all splits together."""
    case = f"{key}, {labels} labels per class"
    confidences, rights = [], []
    for repeat, split in enumerate(splits):
        few = few_labels(split, labels)
        n = few.size
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*far from all training rows")
            model = LDSUClassifier(LDSU(kernel=SETS[key].kernel)).fit(split.X_train, few)
        probabilities = model.predict_proba(split.X_test)
        answers = {OURS: (model.classes_, probabilities)}
        answers |= {name: spread(split.X_train, few, split.X_test, alpha) for name, alpha in SPREADING.items()}
        for method, (classes, p) in answers.items():
            for unit, value in quality(p, classes, split.y_test).items():
                rows.add(case, n, method, repeat, value, unit)
        rows.add(case, n, OURS, repeat, model.expected_accuracy_, "expected accuracy")
        for kind, figures in describe(model, split).items():
            for unit, value in figures.items():
                rows.add(case, n, f"{kind} rows", repeat, value, unit)
        confidences.append(probabilities.max(axis=1))
        rights.append(model.classes_[probabilities.argmax(axis=1)] == split.y_test)
    confidence, right = np.concatenate(confidences), np.concatenate(rights)
    for number in np.unique(bins(confidence)):
        members = bins(confidence) == number
        what = f"bin {number:02d}"
        rows.add(case, int(members.sum()), what, 0, float(confidence[members].mean()), "confidence in bin")
        rows.add(case, int(members.sum()), what, 0, float(right[members].mean()), "accuracy in bin")


def tables(values: Values) -> None:
    """Print the quality of the probabilities, and the confidence in real and made-up rows."""
    cases = list(dict.fromkeys(case for case, _, _ in values))
    methods = (OURS, *SPREADING)
    print(f"\nquality of the probabilities: {' / '.join(methods)}\n")
    print(f"| | expected accuracy | {' | '.join(UNITS)} |\n|---|---|{'---|' * len(UNITS)}")
    for case in cases:
        found = [f"{mean(values[case, OURS, 'expected accuracy']):.3f}"]
        found += [" / ".join(f"{mean(values[case, method, unit]):.3f}" for method in methods) for unit in UNITS]
        print(f"| {case} | {' | '.join(found)} |")
    print("\nmedian margin / median familiarity, share isolated (ROC AUC of both against real rows)\n")
    print(f"| | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
    for case in cases:
        cells = []
        for kind in KINDS:
            figures = {u: mean(v) for (c, what, u), v in values.items() if c == case and what == f"{kind} rows"}
            cell = f"{figures['median margin']:.2f} / {figures['median familiarity']:.2f}"
            cell += f", {figures['share isolated']:.2f}"
            if kind != "real":
                cell += f" ({figures['ROC AUC of margin']:.2f} / {figures['ROC AUC of familiarity']:.2f})"
            cells.append(cell)
        print(f"| {case} | {' | '.join(cells)} |")


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Reliability diagrams, one for each data set with a line for each number of labels."""
    pyplot = pyplot_for_svg()
    points: dict[str, dict[int, dict[str, dict[str, tuple[float, int]]]]] = {}
    for row in rows:
        if str(row["what"]).startswith("bin "):
            key, labels = str(row["case"]).removesuffix(" labels per class").split(", ")
            bin_ = points.setdefault(key, {}).setdefault(int(labels), {}).setdefault(str(row["what"]), {})
            bin_[str(row["unit"])] = float(row["value"]), int(row["n"])
    columns = min(4, len(points))
    lines = -(-len(points) // columns)
    figure, axes = pyplot.subplots(
        lines,
        columns,
        figsize=(2.3 * columns, 2.35 * lines),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    shared: list[int] = []
    for place, (panel, (key, by_labels)) in enumerate(zip(axes.flat, points.items(), strict=False)):
        panel.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--", zorder=1)
        for color, (labels, by_bin) in zip(COLORS, sorted(by_labels.items()), strict=False):
            drawn = [b for b in by_bin.values() if b["accuracy in bin"][1] >= DRAWN_ROWS]
            x, y = ([b[unit][0] for b in drawn] for unit in ("confidence in bin", "accuracy in bin"))
            areas = np.array([b["accuracy in bin"][1] for b in drawn])
            panel.plot(x, y, color=color, lw=1.2, label=f"{labels} label{'s' * (labels > 1)} per class")
            panel.scatter(x, y, s=4 + 50 * areas / areas.sum(), color=color, lw=0, alpha=0.8, zorder=3)
        panel.set_title(SETS[key].title, fontsize=9)
        limits = (-0.03, 1.03)
        panel.set(xlim=limits, ylim=limits, aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        panel.tick_params(labelsize=8, labelbottom=place + columns >= len(points))
        panel.grid(alpha=0.25)
        if sorted(by_labels) != shared:  # one legend for all panels with the same numbers of labels
            spare = place == 0 and len(points) < axes.size
            legend = axes.flat[-1] if spare else panel
            legend.legend(*panel.get_legend_handles_labels(), fontsize=8 if spare else 6, loc="center" if spare else 4)
            shared = shared or sorted(by_labels)
    for panel in axes.flat[len(points) :]:
        panel.set_axis_off()
    figure.supxlabel("probability of the predicted class", fontsize=9)
    figure.supylabel("share of right predictions", fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw reliability diagrams here (needs matplotlib)")
    parser.add_argument("--kept", action="store_true", help="measure nothing: tables and diagrams of the kept rows")
    parser.add_argument("--tiny", action="store_true", help="400 digits, one split: a trial")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows("calibration")
    if options.kept:
        rows = Rows.kept("calibration", options.out)
        options.sets = []
    if options.tiny:
        options.sets, options.splits = ["digits"], 1
    for key in options.sets:
        data = SETS[key]
        found = (
            halves(data.name, data.preprocessing, 400 if options.tiny else data.rows, s) for s in range(options.splits)
        )
        splits = [split for split in found if split is not None]
        for labels in data.labels if splits else ():
            measure(rows, key, labels, splits)
            print(f"{key}, {labels} labels per class", flush=True)
    tables(read(rows.rows))
    if not options.kept:
        print(f"\nrows in {rows.write(options.out)}")
    if options.plot:
        plot(rows.rows, options.plot)


if __name__ == "__main__":
    main()
