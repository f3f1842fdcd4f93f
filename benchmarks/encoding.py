"""How a table's numbers are scaled and its words read: the choices of `ldsu fit` beside the alternatives.

python benchmarks/encoding.py [--labels 3 5 10] [--splits 5]

Accuracy on all rows without a label, which the methods saw (transduction), the mean over draws of labels.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import made_tables
import numpy as np
import scipy.sparse
from rows import RESULTS, Rows
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer

from ldsu import LDSU, LDSUClassifier
from ldsu.bench.protocol import label_order
from ldsu.tables.encoder import Numbers, TableEncoder
from ldsu.tables.table import Table
from ldsu.tables.text_features import Words

NUMBER_TABLES = {"iris": load_iris, "wine": load_wine, "breast-cancer": load_breast_cancer, "digits": load_digits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", nargs="+", type=int, default=[3, 5, 10])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="one small table, for a test of this script")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows("encoding")
    for name, loader in NUMBER_TABLES.items():
        if options.tiny and name != "iris":
            continue
        X, y = loader(return_X_y=True)
        auto = TableEncoder.learn(Table(Path(name), matrix=X)).scaling
        own_unit = np.zeros(X.shape[1], dtype=bool)
        ways = {scaling: Numbers.learn([X], scaling, own_unit, flag=False)(X) for scaling in ("each", "common", "none")}
        judge(rows, name, {f"{w}{' (auto)' * (w == auto)}": (Z, "rbf") for w, Z in ways.items()}, y, options)
    if not options.tiny:
        from ldsu.datasets import load

        data = load("pcmac", preprocessing="none")
        counts = scipy.sparse.csr_array(data.X)
        words = Words.learn_from_counts(counts).of_counts(counts)
        rare = scipy.sparse.csr_matrix(TfidfTransformer(sublinear_tf=True).fit_transform(counts))
        ways = {
            "counts, cosine": (scipy.sparse.csr_matrix(counts), "cosine"),
            "weighted, cosine": (rare, "cosine"),
            "100 directions, cosine": (words, "cosine"),
            "100 directions, rbf (auto)": (words, "rbf"),
        }
        judge(rows, "pcmac", ways, data.y, options)
        texts, topics = made_tables.docstrings()
        words = Words.learn(texts)(texts)
        rare = TfidfVectorizer(min_df=2, sublinear_tf=True).fit_transform(texts)
        ways = {
            "weighted, cosine": (rare, "cosine"),
            "100 directions, cosine": (words, "cosine"),
            "100 directions, rbf (auto)": (words, "rbf"),
        }
        judge(rows, "docstrings", ways, np.unique(topics, return_inverse=True)[1], options)
    rows.write(options.out)


def judge(rows: Rows, name: str, ways: dict[str, tuple[Any, str]], y: np.ndarray, options: argparse.Namespace) -> None:
    for labels in options.labels:
        for way, (X, kernel) in ways.items():
            found = []
            for split in range(options.splits):
                few = np.where(label_order(y, split) < labels, y, -1)
                model = LDSUClassifier(LDSU(kernel=kernel)).fit(X, few)
                unlabelled = few < 0
                found.append(float(np.mean(model.transduction_[unlabelled] == y[unlabelled])))
                rows.add(name, labels, way, split, found[-1], "accuracy")
            print(f"{name:14s} {labels:2d} labels  {way:30s} {np.mean(found):.3f}", flush=True)


if __name__ == "__main__":
    main()
