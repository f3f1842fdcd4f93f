"""The default LDSU beside the literal algorithm and its peers, from a few thousand rows to half a million; and beyond.

python benchmarks/scale.py [--parts usps kpca mnist umap covertype growth texts] [--repeats 3] [--chart docs/scale.svg]
python benchmarks/scale.py --parts ten-million [--sizes 1000000 3000000 10000000] [--ways parquet npy] [--folder /tmp]

The last part, not among those of a plain call, writes Covertype again and again with a jitter to a file in a temporary
folder, and measures `ldsu fit` of a Parquet file ("parquet") or ``LDSU().fit`` of an array mapped into memory ("npy"):
seconds, and the largest memory of the process without pages of files (which the system can take back), and with them.

Each part measures ours and the others in one run. Every measurement runs in a process of its own, so that its peak
memory is its own. ``--tiny`` shrinks everything for a trial. "texts" are word counts of made topics, weighted by
tf-idf, as a sparse matrix of 50,000 columns: the classifier with the cosine kernel beside a logistic regression of the
labelled rows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from exact import literal_algorithm
from rows import RESULTS, Rows, load, pyplot_for_svg
from sklearn.decomposition import KernelPCA
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from ldsu import LDSU, BlockScaler, LDSUClassifier
from ldsu.kernels import median_gamma
from ldsu.model_selection import mean_average_precision

PARTS = ("usps", "kpca", "mnist", "umap", "covertype", "growth", "texts")
TEXTS = (20_000, 100_000)
MILLIONS = (1_000_000, 3_000_000, 10_000_000)
CHUNK = 250_000
GROWTH = (10_000, 30_000, 100_000, 523_000)


def few(y: np.ndarray, per_class: int = 10) -> np.ndarray:
    labels = np.full(len(y), -1)
    rng = np.random.default_rng(0)
    for label in np.unique(y):
        labels[rng.permutation(np.flatnonzero(y == label))[:per_class]] = label
    return labels


def data(name: str, n: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and new rows with labels, float32; random blobs of the same shape where the data set is not there."""
    found = load(f"{name}.npz")
    if found is None:
        rng = np.random.default_rng(0)
        d = {"usps": 256, "mnist": 784, "covtype": 54}[name]
        y = rng.integers(0, 7, n + new)
        X = (rng.standard_normal((7, d))[y] + rng.standard_normal((n + new, d))).astype(np.float32)
        return X[:n], y[:n], X[n:], y[n:]
    X, y = found
    X = X.reshape(len(X), -1)
    if name == "covtype":
        X = X.astype(np.float32)
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-6)
    elif name == "mnist":
        X = X.astype(np.float32) / 255
    if n + new > len(X):  # more than there are: rows again, jittered by a tenth of their spread
        rng = np.random.default_rng(1)
        again = rng.choice(len(X), n + new - len(X))
        copies = X[again] + 0.1 * X.std() * rng.standard_normal((again.size, X.shape[1]))
        X, y = np.vstack([X, copies]), np.concatenate([y, y[again]])
    order = np.arange(len(X)) if name == "mnist" else np.random.default_rng(0).permutation(len(X))
    train, test = order[: min(n, len(order) - new)], order[len(order) - new :]
    return X[train].astype(np.float32), y[train], X[test].astype(np.float32), y[test]


def texts(n: int, d: int = 50_000, topics: int = 20, words: int = 100) -> tuple[Any, np.ndarray]:
    """Word counts (n, d) of made texts, and their topics: common words by Zipf's law, and some of the topic's own."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, topics, n)
    lengths = np.maximum(10, rng.lognormal(np.log(words), 0.6, n).astype(int))
    rows = np.repeat(np.arange(n), lengths)
    own = rng.random(rows.size) < rng.beta(1.2, 6, n)[rows]  # a share of each text
    zipf = np.cumsum(1 / np.arange(1, d + 1) ** 1.05)
    columns = np.searchsorted(zipf / zipf[-1], rng.random(rows.size))
    for topic in range(topics):
        words_of_topic = rng.choice(np.arange(200, d), 1000, replace=False)
        weights = np.cumsum(rng.pareto(1.2, 1000) + 0.05)
        at = np.flatnonzero(own & (y[rows] == topic))
        columns[at] = words_of_topic[np.searchsorted(weights / weights[-1], rng.random(at.size))]
    X = scipy.sparse.coo_array((np.ones(rows.size, np.float32), (rows, np.minimum(columns, d - 1))), shape=(n, d))
    return X.tocsr(), y


def one_of_texts(what: str, n: int, new: int) -> dict[str, float]:
    """One measurement with sparse samples: seconds and peak memory of fit and prediction, MAP and accuracy."""
    X, y = texts(n + new)
    X = TfidfTransformer(sublinear_tf=True).fit_transform(X)
    labels, X_new, y_new = few(y[:n]), X[n:], y[n:]
    X = X[:n]
    start, cpu = time.perf_counter(), time.process_time()
    if what == "logistic":
        model = LogisticRegression(C=10.0, max_iter=1000).fit(X[labels >= 0], labels[labels >= 0])
    else:
        model = LDSUClassifier(LDSU(kernel="cosine")).fit(X, labels)
    result = {"n": n, "fit": time.perf_counter() - start, "fit, CPU": time.process_time() - cpu}
    if what != "logistic":
        result |= {f"stage {stage}": seconds for stage, seconds in model.features_.timings_.items()}
    start = time.perf_counter()
    scores = model.decision_function(X_new)
    result["predict"] = time.perf_counter() - start
    result["peak GiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    result["MAP"] = float(mean_average_precision(y_new, scores, classes=model.classes_))
    return result | {"accuracy": float(np.mean(model.classes_[scores.argmax(axis=1)] == y_new))}


def ranking(Z: np.ndarray, Z_new: np.ndarray, labels: np.ndarray, y_new: np.ndarray) -> float:
    scaler = BlockScaler().fit(Z)
    known = labels >= 0
    classifier = RidgeClassifier(alpha=0.1).fit(scaler.transform(Z[known]), labels[known])
    rows = np.isin(y_new, classifier.classes_)  # at tiny size a class may have no labelled row
    scores = classifier.decision_function(scaler.transform(Z_new[rows]))
    return float(mean_average_precision(y_new[rows], scores, classes=classifier.classes_))


def one(what: str, name: str, n: int, new: int) -> dict[str, float]:
    """One measurement, in this process: seconds of fit and transform, peak memory, MAP and stages."""
    if name == "texts":
        return one_of_texts(what, n, new)
    X, y, X_new, y_new = data(name, n, new)
    labels = few(y)
    result: dict[str, float] = {"n": len(X)}
    start = time.perf_counter()
    if what == "literal":
        gamma = median_gamma(X, "rbf", 2.0)
        a = literal_algorithm(X.astype(np.float64), labels, gamma, 3, 0.1, 1.0, len(X) // 2)
        result["fit"] = time.perf_counter() - start
        start = time.perf_counter()
        kernel = lambda A: np.exp(-gamma * ((A**2).sum(1)[:, None] + (X**2).sum(1) - 2 * A @ X.T)) @ a  # noqa: E731
        Z, Z_new = kernel(X), kernel(X_new)
    elif what.startswith("kpca"):
        gamma = median_gamma(X, "rbf", 2.0)
        model = KernelPCA(50, kernel="rbf", gamma=gamma, eigen_solver=what.split()[1], random_state=0).fit(X)
        result["fit"] = time.perf_counter() - start
        start = time.perf_counter()
        Z, Z_new = model.transform(X), model.transform(X_new)
    elif what == "umap":
        import umap

        model = umap.UMAP(random_state=None, n_jobs=2).fit(X, labels)
        result["fit"] = time.perf_counter() - start
        start = time.perf_counter()
        Z, Z_new = model.embedding_, model.transform(X_new)
    else:
        model = LDSU(50).fit(X, labels) if what == "ldsu 50" else LDSU().fit(X, labels)
        result["fit"] = time.perf_counter() - start
        result |= {f"stage {stage}": seconds for stage, seconds in model.timings_.items()}
        result["iterations"] = model.n_iter_
        start = time.perf_counter()
        Z_new = model.transform(X_new)
    result["transform"] = time.perf_counter() - start
    result["peak GiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if what.startswith("ldsu"):
        known = labels >= 0
        Z = model.transform(X[known])
        result["MAP"] = ranking(Z, Z_new, labels[known], y_new)
    else:
        result["MAP"] = ranking(Z, Z_new, labels, y_new)
    return result


def measure(rows: Rows, case: str, what: str, name: str, n: int, new: int, repeats: int) -> dict[str, float]:
    """Run `one` in a process of its own, as often as asked for; the medians."""
    runs = []
    for repeat in range(repeats):
        command = [sys.executable, __file__, "--one", what, name, str(n), str(new)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{what} failed: {done.stderr[-2000:]}")
        runs.append(json.loads(done.stdout.splitlines()[-1]))
        for key, value in runs[-1].items():
            if key != "n":
                unit = {"MAP": "MAP", "accuracy": "accuracy", "iterations": "iterations", "peak GiB": "GiB"}.get(
                    key, "s"
                )
                rows.add(case, int(runs[-1]["n"]), f"{what}: {key}", repeat, value, unit)
    medians = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
    print(f"{case:10s} {what:18s} " + "  ".join(f"{k} {v:.4g}" for k, v in medians.items()), flush=True)
    return medians


def write_tiled(folder: Path, n: int, way: str) -> list[str]:
    """Covertype again and again with a jitter, ten labels per class, as a file; the command that fits a model to it."""
    X, y, _, _ = data("covtype", min(n, 500_000), 1000)
    rng = np.random.default_rng(2)
    spread = np.float32(0.1 * X.std())
    d = X.shape[1]
    labels = np.full(n, -1, dtype=np.int64)
    writer: Any = None
    matrix = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (n, d)) if way == "npy" else None
    for start in range(0, n, CHUNK):
        size = min(CHUNK, n - start)
        rows = (start + np.arange(size)) % len(X)
        part = X[rows] + spread * rng.standard_normal((size, d), dtype=np.float32)
        if start == 0:
            labels[:size] = few(y[rows])
        if matrix is not None:
            matrix[start : start + size] = part
            continue
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = pa.array([None if label < 0 else f"class {label}" for label in labels[start : start + size].tolist()])
        columns = {**{f"x{j}": part[:, j] for j in range(d)}, "kind": names.cast(pa.string())}
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(folder / "x.parquet", table.schema)
        writer.write_table(table)
    if way == "parquet":
        writer.close()
        return ["-m", "ldsu", "fit", str(folder / "x.parquet"), "--label", "kind", "-o", str(folder / "x.ldsu")]
    np.save(folder / "y.npy", labels)
    program = (
        "import sys, numpy as np; from ldsu import LDSU; folder = sys.argv[1]; "
        "model = LDSU(verbose=True).fit(np.load(folder + '/x.npy', mmap_mode='r'), np.load(folder + '/y.npy')); "
        "print(model.n_iter_, 'iterations', file=sys.stderr)"
    )
    return ["-c", program, str(folder)]


def watch(command: list[str], folder: Path) -> dict[str, float]:
    """Seconds and largest memory of a command with Python; its temporary files are in the folder."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, *command], env=environment) as process:
        peak: dict[str, float] = {}
        while process.poll() is None:
            with suppress(OSError, ValueError):
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                status = dict(line.split(":", 1) for line in lines)
                for key, name in (("RssAnon", "peak GiB"), ("VmRSS", "peak GiB with files")):
                    peak[name] = max(peak.get(name, 0.0), int(status.get(key, "0 kB").split()[0]) / 2**20)
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return {"seconds": time.perf_counter() - start, **peak}


def ten_million(rows: Rows, sizes: list[int], ways: list[str], folder: Path | None) -> None:
    """Time and memory of each size, and how time grows."""
    for way in ways:
        times = []
        for n in sizes:
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                measured = watch(write_tiled(Path(temporary), n, way), Path(temporary))
            times.append(measured["seconds"])
            for what, value in measured.items():
                rows.add("ten-million", n, f"{way}: {what}", 0, value, "s" if what == "seconds" else "GiB")
            print(f"{way} {n:,} rows  " + "  ".join(f"{k} {v:.4g}" for k, v in measured.items()), flush=True)
        if len(sizes) > 1:
            slope = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
            rows.add("ten-million", 0, f"{way}: log-log slope", 0, slope, "")
            print(f"{way} log-log slope from {min(sizes):,} to {max(sizes):,} rows: {slope:.2f}", flush=True)


def chart(rows: Rows, path: Path) -> None:
    """Seconds of fit against rows, both logarithmic."""
    pyplot = pyplot_for_svg()
    names = {
        "literal": "Algorithm 1, literal",
        "umap": "umap-learn (y = -1)",
        "kpca randomized": "KernelPCA, randomized",
    }
    names |= {"kpca dense": "KernelPCA, dense", "ldsu": "LDSU", "ldsu 50": "LDSU"}
    sets = {"usps": "USPS", "kpca": "USPS", "mnist": "MNIST", "covertype": "Covertype", "growth": "Covertype"}
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows.rows:
        what, _, key = str(row["what"]).partition(": ")
        if key == "fit":
            label = f"{names[what]}, {sets[str(row['case'])]}"
            lines.setdefault(label, []).append((int(str(row["n"])), float(str(row["value"]))))
    figure, axes = pyplot.subplots(figsize=(7.2, 4.6))
    for label, points in sorted(lines.items()):
        ours = label.startswith("LDSU")
        axes.loglog(*zip(*sorted(points), strict=True), "o-" if ours else "s--", label=label, lw=2 if ours else 1)
    axes.set(xlabel="training rows", ylabel="seconds of fit, 2 cores")
    axes.grid(which="both", alpha=0.25)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=(*PARTS, "ten-million"), default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--sizes", nargs="+", type=int, default=list(MILLIONS), help="rows of the part ten-million")
    parser.add_argument("--ways", nargs="+", choices=("parquet", "npy"), default=["parquet"])
    parser.add_argument("--folder", type=Path, help="where the part ten-million writes its files")
    parser.add_argument("--tiny", action="store_true", help="a few hundred rows of everything")
    parser.add_argument("--chart", type=Path, help="draw seconds against rows here (needs matplotlib)")
    parser.add_argument("--kept", action="store_true", help="measure nothing: draw the chart of the kept rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        what, name, n, new = options.one
        print(json.dumps(one(what, name, int(n), int(new))))
        return
    rows = Rows("scale")
    if options.kept:
        rows = Rows.kept("scale", options.out)
        options.parts = []
    repeats = options.repeats
    covertype: dict[str, float] = {}

    def run(case: str, what: str, name: str, n: int, new: int) -> dict[str, float]:
        n, new = (min(n, 300), min(new, 100)) if options.tiny else (n, new)
        return measure(rows, case, what, name, n, new, repeats)

    def compare(case: str, ours: float, theirs: float, what: str) -> None:
        rows.add(case, 0, f"ratio: {what}", 0, theirs / ours, "times")
        print(f"{case:10s} {what}: {theirs / ours:.1f} times")

    if "usps" in options.parts:
        ours = run("usps", "ldsu", "usps", 4649, 4649)
        compare("usps", ours["fit"], run("usps", "literal", "usps", 4649, 4649)["fit"], "fit against Algorithm 1")
    if "kpca" in options.parts:
        ours = run("kpca", "ldsu 50", "usps", 10_000, 1000)
        for solver in ("randomized", "dense"):
            theirs = run("kpca", f"kpca {solver}", "usps", 10_000, 1000)
            compare("kpca", ours["fit"], theirs["fit"], f"fit against KernelPCA, {solver}")
    if "mnist" in options.parts or "umap" in options.parts:
        ours = run("mnist", "ldsu", "mnist", 60_000, 10_000)
        if "umap" in options.parts:
            theirs = run("mnist", "umap", "mnist", 60_000, 10_000)
            compare("mnist", ours["fit"], theirs["fit"], "fit against umap-learn")
            compare("mnist", ours["transform"], theirs["transform"], "transform against umap-learn")
    if "covertype" in options.parts:
        covertype = run("covertype", "ldsu", "covtype", 523_000, 58_000)
    if "texts" in options.parts:
        for n in TEXTS:
            for what in ("ldsu cosine", "logistic"):
                run("texts", what, "texts", n, 5000)
    if "growth" in options.parts:
        sizes = [100, 200, 300] if options.tiny else GROWTH
        measured = {523_000: covertype["fit"]} if covertype else {}
        times = [measured.get(n) or run("growth", "ldsu", "covtype", n, 1000)["fit"] for n in sizes]
        slope = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
        if not options.tiny:  # a trial's times say nothing of growth
            rows.add("growth", 0, "log-log slope of fit", 0, slope, "")
        print(f"growth     log-log slope of fit from {sizes[0]:,} to {sizes[-1]:,} rows: {slope:.2f}")
    if "ten-million" in options.parts:
        ten_million(rows, [300, 400] if options.tiny else options.sizes, options.ways, options.folder)
    if options.parts == ["ten-million"]:  # the rows of the others are kept
        rows.benchmark = "ten_million"
    if not options.kept:
        print(rows.write(options.out))
    if options.chart:
        chart(rows, options.chart)


if __name__ == "__main__":
    main()
