"""Seven methods on handwritten digits, from 1, 3, 5 and 10 labels a class: a table, a picture and a page to open.

python examples/demo.py [--out demo] [--repeats 3] [--labels 1 3 5 10]

Half of the 1,797 digits that come with scikit-learn are held out. In the other half a few digits of each class keep
their label. Every method learns features from that half with its default parameters, a linear classifier is trained on
the labelled ones, and both are judged on the half they never saw. Nothing is tuned, on test labels or otherwise.
"""

from __future__ import annotations

import argparse
import base64
import csv
import html
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE
from sklearn.model_selection import train_test_split

import ldsu
from ldsu import LDSU, METHODS, LDSUClassifier, mean_average_precision

ROWS = {name: method() for name, method in METHODS.items() if name != "LDSU"}
ROWS["LDSU truncate"] = LDSU(filter="truncate")  # Algorithm 1 of the paper
ROWS["LDSU"] = LDSU()


def split(y: np.ndarray, labels: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, test rows, and the training labels with all but `labels` a class replaced by -1."""
    train, test = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=seed)
    few = np.full(len(train), -1)
    for label in np.unique(y):
        rows = np.flatnonzero(y[train] == label)[:labels]
        few[rows] = label
    return train, test, few


def measure(labels_per_class: list[int], repeats: int, console: Console) -> list[dict]:
    X, y = load_digits(return_X_y=True)
    results = []
    columns = (TextColumn("{task.description:28s}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(ROWS) * len(labels_per_class) * repeats)
        for labels in labels_per_class:
            for seed in range(repeats):
                train, test, few = split(y, labels, seed)
                for name, method in ROWS.items():
                    progress.update(task, description=f"{labels:2d} labels a class, {name}")
                    start = time.perf_counter()
                    model = LDSUClassifier(method).fit(X[train], few)
                    scores = model.decision_function(X[test])
                    results.append(
                        {
                            "method": name,
                            "labels": labels,
                            "repeat": seed,
                            "MAP": mean_average_precision(y[test], scores),
                            "accuracy": float(np.mean(model.predict(X[test]) == y[test])),
                            "seconds": time.perf_counter() - start,
                        }
                    )
                    progress.advance(task)
    return results


def cells(results: list[dict], template: str) -> tuple[list[str], list[list[str]], list[list[bool]]]:
    """Header and rows of the table as text, and which cell is the best MAP of its column."""
    labels = sorted({row["labels"] for row in results})
    means = {
        (name, count): np.array(
            [(r["MAP"], r["accuracy"]) for r in results if r["method"] == name and r["labels"] == count]
        )
        for name in ROWS
        for count in labels
    }
    best = {count: max(ROWS, key=lambda name, c=count: means[name, c][:, 0].mean()) for count in labels}
    table, is_best = [], []
    for name in ROWS:
        seconds = np.mean([r["seconds"] for r in results if r["method"] == name])
        line = [name]
        for count in labels:
            MAP, accuracy = means[name, count].mean(axis=0)
            deviation = means[name, count][:, 0].std()
            line.append(template.format(MAP=MAP, deviation=deviation, accuracy=accuracy))
        table.append([*line, f"{seconds:.2f}"])
        is_best.append([False, *[best[count] == name for count in labels], False])
    header = ["", *[str(c) for c in labels], "seconds"]
    return header, table, is_best


def show(header: list[str], table: list[list[str]], is_best: list[list[bool]], console: Console) -> None:
    title = "Digits: MAP and accuracy on the unseen half, by labels a class"
    view = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in header:
        view.add_column(column, justify="left" if column == header[0] else "right", no_wrap=True)
    for line, marks in zip(table, is_best, strict=True):
        line = [line[0], *[cell.replace("0.", ".") for cell in line[1:-1]], line[-1]]  # to fit 80 columns
        view.add_row(*[f"[bold green]{cell}[/]" if mark else cell for cell, mark in zip(line, marks, strict=True)])
    console.print(view)


def picture(path: Path, labels: int = 3) -> None:
    """Plot unseen digits by t-SNE of their pixels, of kernel PCA and of LDSU features."""
    X, y = load_digits(return_X_y=True)
    train, test, few = split(y, labels, 0)
    panels = {
        "pixels": (X[train], X[test]),
        "kernel PCA features": None,
        f"LDSU features, {labels} labels a class": None,
    }
    for name, method in zip(list(panels)[1:], (METHODS["KPCA"](), LDSU()), strict=True):
        fitted = method.fit(X[train], few)
        panels[name] = (fitted.transform(X[train]), fitted.transform(X[test]))
    colours = plt.get_cmap("tab10")
    figure, axes = plt.subplots(1, 3, figsize=(15, 5.6), layout="constrained")
    for axis, (name, (Z_train, Z_test)) in zip(axes, panels.items(), strict=True):
        labelled = few >= 0
        points = TSNE(init="pca", random_state=0).fit_transform(np.vstack([Z_test, Z_train[labelled]]))
        unseen, known = points[: len(test)], points[len(test) :]
        axis.scatter(*unseen.T, c=colours(y[test]), s=9, linewidths=0, alpha=0.75)
        axis.scatter(*known.T, c=colours(few[labelled]), s=170, marker="*", edgecolors="black", linewidths=0.9)
        axis.set_title(name, fontsize=13)
        axis.set_xticks([])
        axis.set_yticks([])
    keys = [Line2D([], [], marker="o", linestyle="", color=colours(t), label=str(t)) for t in range(10)]
    star = Line2D([], [], marker="*", linestyle="", color="white", markeredgecolor="black", markersize=13)
    star.set_label("labelled")
    figure.legend(handles=[*keys, star], ncols=11, loc="outside lower center", frameon=False, fontsize=11)
    part = path.with_suffix(".part.png")
    figure.savefig(part, dpi=120)
    plt.close(figure)
    part.replace(path)


def report(path: Path, header: list[str], table: list[list[str]], is_best: list[list[bool]], image: Path) -> None:
    """Write one self-contained page: table and picture."""

    def row(line: list[str], marks: list[bool], tag: str = "td") -> str:
        return "<tr>" + "".join(
            f"<{tag}{' class=best' if mark else ''}>{html.escape(cell)}</{tag}>"
            for cell, mark in zip(line, marks, strict=True)
        ) + "</tr>"  # fmt: skip

    body = "\n".join(row(line, marks) for line, marks in zip(table, is_best, strict=True))
    encoded = base64.b64encode(image.read_bytes()).decode()
    write(
        path,
        f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>ldsu: digits from few labels</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: pre; }}
th, td {{ padding: .35rem .8rem; border-bottom: 1px solid #8886; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
.best {{ font-weight: 700; color: light-dark(#17602f, #6fd08c); }}
img {{ max-width: 100%; height: auto; background: white; border-radius: .4rem; }}
</style></head><body>
<h1>Digits from few labels</h1>
<p>Mean average precision ± deviation over repeats, then accuracy, on the half of the digits that no method saw. Every
method has its default parameters; nothing is tuned. Bold: the best MAP of a column. ldsu {ldsu.__version__}.</p>
<div class="wide"><table><thead>{row(["labels a class", *header[1:]], [False] * len(header), "th")}</thead><tbody>
{body}
</tbody></table></div>
<h2>What the features look like</h2>
<p>Unseen digits, placed by t-SNE of their pixels, of kernel PCA features and of LDSU features. Stars are the labelled
digits; colours are the true classes.</p>
<img alt="Three scatter plots of unseen digits; classes are most clearly separated by LDSU features"
src="data:image/png;base64,{encoded}">
</body></html>
""",
    )


def write(path: Path, text: str) -> None:
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder to write to (default: demo)")
    parser.add_argument("--repeats", type=int, default=3, help="random splits (default: 3)")
    parser.add_argument("--labels", type=int, nargs="+", default=[1, 3, 5, 10], help="labels a class")
    options = parser.parse_args()
    console = Console()
    options.out.mkdir(parents=True, exist_ok=True)
    results = measure(options.labels, options.repeats, console)
    show(*cells(results, "{MAP:.3f} {accuracy:.3f}"), console)
    rows = options.out / "rows.csv.part"
    with rows.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(results[0]))
        writer.writeheader()
        writer.writerows(results)
    rows.replace(options.out / "rows.csv")
    with console.status("drawing the features"):
        picture(options.out / "features.png")
    table = cells(results, "{MAP:.3f} ± {deviation:.3f}  {accuracy:.3f}")
    report(options.out / "report.html", *table, options.out / "features.png")
    console.print(f"\nrows     {options.out / 'rows.csv'}\npicture  {options.out / 'features.png'}")
    console.print(f"report   {options.out / 'report.html'}   <- open this in a browser")


if __name__ == "__main__":
    main()
