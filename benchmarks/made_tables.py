"""Tables such as users have, made of what comes with the dependencies: digits in four forms, and texts."""

from __future__ import annotations

import csv
import importlib
import inspect
import re
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
MODULES = ("stats", "signal", "special", "sparse", "ndimage", "optimize")


def few(names: np.ndarray, labels: int, seed: int) -> np.ndarray:
    """The names with all but a few per class made empty."""
    rng = np.random.default_rng(seed)
    kept = np.full(names.size, "", dtype=object)
    for name in np.unique(names):
        rows = rng.choice(np.flatnonzero(names == name), labels, replace=False)
        kept[rows] = name
    return kept


def digits_csv(folder: Path, labels: int, seed: int) -> tuple[Path, np.ndarray]:
    """Pixels 0 to 16 in columns p0 ... p63, and `digit`, a word in a few rows."""
    X, y = load_digits(return_X_y=True)
    path = folder / "digits.csv"
    shown = few(NAMES[y], labels, seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"p{j}" for j in range(64)), "digit"])
        writer.writerows([*row.astype(int).tolist(), label] for row, label in zip(X, shown, strict=True))
    return path, NAMES[y]


def digits_parquet(folder: Path, labels: int, seed: int) -> tuple[Path, np.ndarray]:
    """The same with one value in twenty missing, and every fifth pixel a word: white, grey or black."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    missing = rng.random(X.shape) < 0.05
    columns: dict[str, object] = {}
    for j in range(64):
        values: np.ndarray = X[:, j].astype(object)
        if j % 5 == 2:
            values = np.array(["white", "grey", "black"], dtype=object)[np.digitize(X[:, j], [4, 12])]
        columns[f"p{j}"] = pa.array(
            [None if gone else value for value, gone in zip(values, missing[:, j], strict=True)]
        )
    columns["digit"] = pa.array([label or None for label in few(NAMES[y], labels, seed)])
    path = folder / "digits.parquet"
    pq.write_table(pa.table(columns), path)
    return path, NAMES[y]


def digits_images(folder: Path, labels: int, seed: int) -> tuple[Path, np.ndarray]:
    """PNG files: a few in a folder of their class, the others in `unlabelled`. Truth in the order of the file names."""
    from PIL import Image

    X, y = load_digits(return_X_y=True)
    path = folder / "digits"
    truth = {}
    for i, (row, label) in enumerate(zip(X, few(NAMES[y], labels, seed), strict=True)):
        name = f"{label or 'unlabelled'}/{i:04d}.png"
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((row.reshape(8, 8) * 255 / 16).astype(np.uint8)).save(path / name)
        truth[name] = NAMES[y[i]]
    return path, np.array([truth[name] for name in sorted(truth)])


def docstrings() -> tuple[np.ndarray, np.ndarray]:
    """Texts and their topics: what SciPy's functions say of themselves, without references and examples, by module."""
    texts, topics = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for topic in MODULES:
            module = importlib.import_module(f"scipy.{topic}")
            seen = set()
            for name in sorted(module.__all__):
                text = inspect.getdoc(getattr(module, name, None)) or ""
                text = re.split(r"\n(?:References|Examples|See Also)\n-+", text)[0]
                text = re.sub(r"\s+", " ", text)[:1500]
                if len(text.split()) > 15 and text not in seen:
                    seen.add(text)
                    texts.append(text)
                    topics.append(topic)
    return np.array(texts, dtype=object), np.array(topics)


def docstrings_csv(folder: Path, labels: int, seed: int) -> tuple[Path, np.ndarray]:
    """`docstrings` with a column of text and one of topics."""
    texts, topics = docstrings()
    return _texts_csv(folder / "docstrings.csv", texts, topics, labels, seed), topics


def tickets_csv(folder: Path, labels: int, seed: int) -> tuple[Path, np.ndarray]:
    """Made-up tickets of five topics: words of the topic among words of all, drawn at random."""
    rng = np.random.default_rng(seed)
    topics = {
        "delivery": "parcel courier late address tracking doorstep lost shipped delay driver warehouse depot missing",
        "payment": "card invoice charged twice refund bank amount declined receipt price currency overdue transfer",
        "account": "password login locked email reset username profile security code verify forgotten session device",
        "product": "broken screen battery button scratched faulty warranty replacement noise size colour charger loose",
        "praise": "thank wonderful helpful friendly quick excellent love great happy recommend perfect kind pleased",
    }
    common = (
        "hello I the my you your please and was with it have not but since last week order still would like "
        "to know about this again yesterday could someone regards told me when we is for of on in has been "
        "very one more time "
    )
    texts, labels_of_texts = [], []
    for topic, words in topics.items():
        for _ in range(300):
            own = rng.choice(words.split(), rng.integers(3, 7))
            text = [*own, *rng.choice(common.split(), rng.integers(10, 20))]
            texts.append(" ".join(rng.permutation(text)))
            labels_of_texts.append(topic)
    order = rng.permutation(len(texts))
    topic_of = np.array(labels_of_texts)[order]
    return _texts_csv(folder / "tickets.csv", np.array(texts, dtype=object)[order], topic_of, labels, seed), topic_of


def _texts_csv(path: Path, texts: np.ndarray, topics: np.ndarray, labels: int, seed: int) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "topic"])
        shown = few(topics, labels, seed)
        writer.writerows((f"T{i:05d}", *row) for i, row in enumerate(zip(texts, shown, strict=True)))
    return path


TABLES = {
    "digits, CSV": digits_csv,
    "digits, images": digits_images,
    "digits, Parquet, categories and missing values": digits_parquet,
    "tickets (made up), CSV with text": tickets_csv,
    "docstrings, CSV with text": docstrings_csv,
}
