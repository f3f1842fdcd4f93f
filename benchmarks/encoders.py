"""What a pretrained encoder is worth with few labels, and what is best on its vectors.

python benchmarks/encoders.py                 # needs the texts and photos of the data folder, and the packaged encoders
python benchmarks/encoders.py --chart docs/encoders.svg
python benchmarks/encoders.py --made          # two made sets of texts and a made encoder, to try the script

Accuracy and mean average precision on the rows without a label, for TF-IDF or pixels and for each installed encoder.
Vectors have length 1; they are encoded once and kept in the cache of ldsu.
"""

from __future__ import annotations

import argparse
import csv
import io
import time
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rows import RESULTS, Rows, find_data, pyplot_for_svg
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC

from ldsu import LDSUClassifier, mean_average_precision
from ldsu.encoders import PACKAGED, Encoder, embed, find_encoder, key_of
from ldsu.tables.text_features import Words

LABELS = (1, 3, 5, 10, 25)
OURS, LINEAR = "LDSUClassifier()", "logistic regression"
TEXTS = {"trec": "texts/trec.csv", "sst2": "texts/sst2.csv"}
PHOTOS = "photos/cifar10-2000.zip"


def methods(n_labels: int) -> dict[str, Any]:
    """Each with the settings that are usual on vectors of length 1."""
    return {
        OURS: LDSUClassifier(),
        "LDSUClassifier(supervised=False)": LDSUClassifier(supervised=False),
        LINEAR: LogisticRegression(C=10, max_iter=1000),
        "SVC": SVC(C=10),
        "LabelSpreading": LabelSpreading("knn", n_neighbors=10, max_iter=100),
        "k nearest neighbors": KNeighborsClassifier(min(n_labels, 5)),
    }


def texts_and_classes(name: str) -> tuple[list[str], np.ndarray] | None:
    path = find_data(TEXTS[name])
    if path is None:
        return None
    with path.open(encoding="utf-8", newline="") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    return [row[0] for row in rows], np.array([row[1] for row in rows])


def photos_and_classes() -> tuple[list[bytes], np.ndarray] | None:
    path = find_data(PHOTOS)
    if path is None:
        return None
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
        return [archive.read(name) for name in names], np.array([name.split("/")[-2] for name in names])


def opened(data: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def made() -> Iterator[tuple[str, dict[str, np.ndarray], np.ndarray]]:
    """Two sets of made texts, whose encoder counts letters."""
    counts = Encoder("letters", "text", "1", "1", lambda: lambda texts: [[t.count(a) for a in "abcdef"] for t in texts])
    rng = np.random.default_rng(0)
    for name in ("made one", "made two"):
        y = rng.permutation(np.repeat([0, 1], 40))
        texts = [" ".join(rng.choice(["abc", "bcd", "cde"] if c else ["cde", "def", "abc"], 6)) for c in y]
        vectors = embed(counts, [key_of(text.encode()) for text in texts], texts.__getitem__)
        yield name, {"TF-IDF": Words.learn(np.array(texts))(np.array(texts)), "letters": vectors}, y


def measured(rows: Rows, sets: Sequence[str], n_rows: int) -> Iterator[tuple[str, dict[str, np.ndarray], np.ndarray]]:
    """Each data set with its representations; the time of what is encoded here goes into rows."""
    for name in sets:
        found = photos_and_classes() if name == "photos" else texts_and_classes(name)
        if found is None:
            print(f"{name}: not there, left out")
            continue
        items, labels = found
        chosen = np.random.default_rng(0).permutation(len(items))[:n_rows]
        items, y = [items[row] for row in chosen], np.unique(labels[chosen], return_inverse=True)[1]
        if name == "photos":
            plain = {"pixels": np.stack([np.asarray(opened(item)).ravel() / 255 for item in items])}
            contents, kind = items, "image"
        else:
            plain = {"TF-IDF": Words.learn(np.array(items))(np.array(items))}
            contents, kind = [item.encode() for item in items], "text"
        encoded: dict[str, np.ndarray] = {}
        for encoder_name, entry in PACKAGED.items():
            if entry.kind == kind:
                try:
                    encoder = find_encoder(encoder_name)
                    encoder.encode([opened(items[0]) if kind == "image" else items[0]])  # load it
                except ImportError as error:
                    print(error)
                    continue
                start, cpu = time.perf_counter(), time.process_time()
                keys = [key_of(content) for content in contents]
                vectors = embed(encoder, keys, lambda row: opened(items[row]) if kind == "image" else items[row])  # noqa: B023
                wall, cpu = time.perf_counter() - start, time.process_time() - cpu
                rows.add(name, len(items), f"encode (less if cached) by {encoder_name}", 0, cpu, "CPU s")
                print(
                    f"{name}, {encoder_name}: {len(items)} in {wall:.1f} s, {cpu:.1f} s of CPU",
                    flush=True,
                )
                encoded[encoder_name] = vectors
        yield name, encoded | plain, y


def scores_of(model: Any, X: np.ndarray, n_classes: int) -> np.ndarray:
    """Scores (n, c)."""
    by = "predict_proba" if hasattr(model, "predict_proba") else "decision_function"
    scores = np.nan_to_num(np.asarray(getattr(model, by)(X)))  # LabelSpreading divides by 0 for a row without neighbors
    return scores if scores.ndim == 2 else np.column_stack([-scores, scores])[:, :n_classes]


def measure(rows: Rows, case: str, X: np.ndarray, y: np.ndarray, n_labels: int, split: int) -> None:
    """All methods on one draw of labels."""
    rng = np.random.default_rng(split)
    few = np.full(y.size, -1)
    for c in np.unique(y):
        few[rng.permutation(np.flatnonzero(y == c))[:n_labels]] = c
    labelled, rest = few >= 0, few < 0
    for name, model in methods(n_labels).items():
        all_rows = isinstance(model, (LDSUClassifier, LabelSpreading))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X if all_rows else X[labelled], few if all_rows else few[labelled])
            scores = scores_of(model, X[rest], y.max() + 1)
            predicted = model.predict(X[rest])
        rows.add(case, n_labels, f"{name}: accuracy", split, float(np.mean(predicted == y[rest])), "")
        rows.add(
            case,
            n_labels,
            f"{name}: MAP",
            split,
            mean_average_precision(y[rest], scores, classes=np.arange(scores.shape[1])),
            "",
        )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--chart", type=Path, help="draw the kept rows into this SVG, and measure nothing")
    parser.add_argument("--kept", action="store_true", help="measure nothing: print the tables of the kept rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--sets", nargs="+", choices=(*TEXTS, "photos"), default=(*TEXTS, "photos"))
    parser.add_argument("--rows", type=int, default=2000, help="rows of each data set, drawn once")
    parser.add_argument("--labels", type=int, nargs="+", default=LABELS)
    options = parser.parse_args(arguments)
    rows = Rows("encoders")
    if options.chart:
        draw(options.out / "encoders.csv", options.chart)
        return
    if options.kept:
        rows = Rows.kept("encoders", options.out)
        for case in dict.fromkeys(str(row["case"]) for row in rows.rows if ": " in str(row["what"])):
            print_table(rows, case)
        return
    for name, representations, y in made() if options.made else measured(rows, options.sets, options.rows):
        for representation, vectors in representations.items():
            X = normalize(np.asarray(vectors, dtype=np.float64)) if representation != "pixels" else vectors
            for n_labels in options.labels:
                for split in range(options.splits):
                    measure(rows, f"{name}, {representation}", X, y, n_labels, split)
            rows.write(options.out)
            print_table(rows, f"{name}, {representation}")


def draw(kept: Path, chart: Path) -> None:
    """Accuracy against labels per class, a panel for each data set."""
    pyplot = pyplot_for_svg()
    with kept.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["what"].endswith(": accuracy")]
    lines = (
        ("pixels", OURS, "pixels or TF-IDF, ldsu", ":"),
        ("TF-IDF", OURS, "pixels or TF-IDF, ldsu", ":"),
        ("efficientnet-lite0", OURS, "encoder, ldsu", "-"),
        ("sentence-encoder", OURS, "encoder, ldsu", "-"),
        ("efficientnet-lite0", LINEAR, "encoder, logistic regression", "--"),
        ("sentence-encoder", LINEAR, "encoder, logistic regression", "--"),
    )
    names = list(dict.fromkeys(row["case"].partition(", ")[0] for row in rows))
    figure, panels = pyplot.subplots(1, len(names), figsize=(8, 2.8), sharey=True, layout="constrained", squeeze=False)
    for name, axes in zip(names, panels[0], strict=True):
        for representation, method, label, style in lines:
            mine = [r for r in rows if r["case"] == f"{name}, {representation}" and r["what"] == f"{method}: accuracy"]
            labels = sorted({int(row["n"]) for row in mine})
            means = [np.mean([float(row["value"]) for row in mine if int(row["n"]) == m]) for m in labels]
            if mine:
                axes.plot(range(len(labels)), means, style, marker="o", markersize=3, label=label)
                axes.set_xticks(range(len(labels)), labels)
        axes.set(title=name, xlabel="labels per class", ylim=(0, 1))
    panels[0, 0].set_ylabel("accuracy")
    panels[0, 0].legend(fontsize=7, loc="upper left")
    figure.savefig(chart, metadata={"Date": None})


def print_table(rows: Rows, case: str) -> None:
    """Means over the splits, MAP / accuracy."""
    mine = [row for row in rows.rows if row["case"] == case and ": " in str(row["what"])]
    labels = sorted({int(str(row["n"])) for row in mine})
    print(f"\n| {case} | {' | '.join(map(str, labels))} |\n|---|{'---|' * len(labels)}")

    def means(name: str) -> np.ndarray:
        """By labels and metric."""
        return np.array(
            [
                [
                    np.mean([float(str(row["value"])) for row in mine if (row["n"], row["what"]) == place])
                    for place in places
                ]
                for places in [[(m, f"{name}: {metric}") for metric in ("MAP", "accuracy")] for m in labels]
            ]
        )

    def line(name: str, values: np.ndarray, form: str) -> None:
        cells = (" / ".join(f"{value:{form}}".replace("0.", ".", 1) for value in both) for both in values)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)

    for name in methods(1):
        line(name, means(name), ".3f")
    line(f"{OURS} less {LINEAR}", means(OURS) - means(LINEAR), "+.3f")


if __name__ == "__main__":
    main()
