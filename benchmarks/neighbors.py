"""Approximate nearest neighbors on two threads: our cells against the libraries, each case in a process of its own.

python benchmarks/neighbors.py [--sizes 10000 60000 500000] [--data mnist covtype] [--methods cells faiss-ivf ...]

For the 31 nearest other rows of each row: seconds to build and search (on the clock, and of processor time, which other
work on the machine disturbs less), seconds for the 16 nearest of a tenth as many new rows, recall on 1,000 rows (by
distance, so that ties count), memory added to that of the data, whether a second run gives the same indices (at the
smallest size of the last data set), and how much each library installs beyond what scikit-learn needs. The libraries'
settings are chosen for each data set, to reach a recall of 0.95; ours are the same for all. A case over --limit seconds
is stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
from rows import RESULTS, Rows, load
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from ldsu.neighbors import cell_index, cell_neighbors

K, K_NEW, THREADS = 31, 16, 2
Query = Callable[[np.ndarray], np.ndarray]
Search = tuple[np.ndarray, Query]  # neighbors of each row (itself perhaps among them), and a search for new rows
EXACT_UP_TO = 60_000


def brute(X: np.ndarray) -> Search:
    search = NearestNeighbors(algorithm="brute", n_jobs=THREADS).fit(X)
    return search.kneighbors(n_neighbors=K)[1], lambda Q: search.kneighbors(Q, K_NEW)[1]


def cells(X: np.ndarray) -> Search:
    index = cell_index(X, seed=0, n_jobs=THREADS)
    return (
        cell_neighbors(index, X, X, K, exclude_self=True, n_jobs=THREADS),
        lambda Q: cell_neighbors(index, X, Q, K_NEW, n_jobs=THREADS),
    )


def faiss_flat(X: np.ndarray) -> Search:
    return faiss_search(X, lambda faiss, d: faiss.IndexFlatL2(d))


def faiss_ivf(X: np.ndarray) -> Search:
    return faiss_search(X, lambda faiss, d: ivf(faiss, d, *X.shape))


def ivf(faiss, d: int, n: int, columns: int):  # type: ignore[no-untyped-def]
    index = faiss.index_factory(d, f"IVF{int(4 * n**0.5)},Flat")
    index.nprobe = 8 if columns < 100 else 16 if n < 20_000 else 32
    return index


def train(index, X: np.ndarray) -> None:  # type: ignore[no-untyped-def]
    """From 50 rows a list, few for faiss; with all rows the training takes longer than the search."""
    index.train(X[: 50 * getattr(index, "nlist", 1)])


def faiss_hnsw(X: np.ndarray) -> Search:
    def make(faiss, d: int):  # type: ignore[no-untyped-def]
        index = faiss.IndexHNSWFlat(d, 32)
        index.hnsw.efConstruction, index.hnsw.efSearch = 64, 64
        return index

    return faiss_search(X, make)


def faiss_search(X: np.ndarray, make: Callable) -> Search:
    import faiss

    faiss.omp_set_num_threads(THREADS)
    index = make(faiss, X.shape[1])
    train(index, X)
    index.add(X)
    return index.search(X, K + 1)[1], lambda Q: index.search(Q, K_NEW)[1]


def faiss_pca_ivf(X: np.ndarray) -> Search:
    import faiss

    faiss.omp_set_num_threads(THREADS)
    d = min(X.shape[1], 64)
    turn = faiss.PCAMatrix(X.shape[1], d)
    turn.train(X[:20_000])
    Z = turn.apply(X)
    index = ivf(faiss, d, *X.shape)
    train(index, Z)
    index.add(Z)

    def ranked(Q: np.ndarray, k: int) -> np.ndarray:
        near = index.search(turn.apply(Q), 2 * k)[1]
        out = np.empty((Q.shape[0], k), dtype=np.int64)
        step = max(1, 2**18 // (2 * k * X.shape[1]))
        for start in range(0, Q.shape[0], step):
            these = near[start : start + step]
            difference = X[these] - Q[start : start + step, None]
            order = np.einsum("ijd,ijd->ij", difference, difference).argsort(axis=1)[:, :k]
            out[start : start + step] = np.take_along_axis(these, order, axis=1)
        return out

    return ranked(X, K + 1), lambda Q: ranked(Q, K_NEW)


def usearch(X: np.ndarray) -> Search:
    from usearch.index import Index

    index = Index(ndim=X.shape[1], metric="l2sq", dtype="f32", connectivity=32, expansion_add=128, expansion_search=96)
    index.add(np.arange(X.shape[0]), X, threads=THREADS)

    def keys(Q: np.ndarray, k: int) -> np.ndarray:
        return index.search(Q, k, threads=THREADS).keys.astype(np.int64)

    return keys(X, K + 1), lambda Q: keys(Q, K_NEW)


def hnswlib(X: np.ndarray) -> Search:
    import hnswlib

    index = hnswlib.Index("l2", X.shape[1])
    index.set_num_threads(THREADS)
    index.init_index(X.shape[0], M=32, ef_construction=64, random_seed=0)
    index.add_items(X)
    index.set_ef(64)
    return index.knn_query(X, K + 1)[0].astype(np.int64), lambda Q: index.knn_query(Q, K_NEW)[0].astype(np.int64)


def pynndescent(X: np.ndarray) -> Search:
    from pynndescent import NNDescent

    index = NNDescent(X, n_neighbors=K + 1, random_state=0, n_jobs=THREADS)
    return index.neighbor_graph[0], lambda Q: index.query(Q, k=K_NEW)[0]


METHODS: dict[str, tuple[Callable[[np.ndarray], Search], str | None]] = {  # and the package to install
    "cells": (cells, None),
    "faiss-ivf": (faiss_ivf, "faiss-cpu"),
    "faiss-pca-ivf": (faiss_pca_ivf, "faiss-cpu"),
    "pynndescent": (pynndescent, "pynndescent"),
    "faiss-hnsw": (faiss_hnsw, "faiss-cpu"),
    "usearch": (usearch, "usearch"),
    "hnswlib": (hnswlib, "hnswlib"),
    "faiss-flat": (faiss_flat, "faiss-cpu"),
    "brute": (brute, None),
}


def prepare(name: str, n: int, folder: Path) -> None:
    """Write the rows, the new rows, and the distance of the K-th true neighbor of 1,000 rows."""
    data = load_digits(return_X_y=True) if name == "digits" else load(f"{name}.npz")
    if data is None:
        sys.exit(f"{name}.npz is neither in LDSU_DATA nor in ../shared/data")
    X = data[0].astype(np.float32)
    if name == "mnist":
        X /= 255
    else:
        X = X[np.random.default_rng(0).permutation(X.shape[0])]
        spread = X.std(axis=0, dtype=np.float64)
        X = ((X - X.mean(axis=0, dtype=np.float64)) / np.where(spread > 0, spread, 1)).astype(np.float32)
    start = 60_000 if name == "mnist" else n
    X, new = X[:n], X[start : start + n // 10]
    asked = np.random.default_rng(1).choice(n, min(n, 1000), replace=False)
    squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    bound = []
    for rows in np.array_split(asked, 10):
        D2 = squares - 2 * (X[rows] @ X.T)
        D2[np.arange(rows.size), rows] = np.inf
        near = np.argpartition(D2, 2 * K, axis=1)[:, : 2 * K]
        bound.append(np.sort(squared_distances(X, rows, near), axis=1)[:, K - 1])
    np.save(folder / "X.npy", X)
    np.save(folder / "new.npy", new)
    np.savez(folder / "truth.npz", asked=asked, bound=np.concatenate(bound))


def squared_distances(X: np.ndarray, rows: np.ndarray, near: np.ndarray) -> np.ndarray:
    return np.sum((X[rows].astype(np.float64)[:, None] - X[near]) ** 2, axis=2)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def measure(method: str, folder: Path) -> dict[str, float]:
    """One method in this process; its indices of the rows asked for go to the folder."""
    X, new = np.load(folder / "X.npy"), np.load(folder / "new.npy")
    base = peak_mib()
    figures = {}
    search = METHODS[method][0]
    start = time.perf_counter()
    search(X[:2000])[1](new[:100])  # imports and, for pynndescent, compiles
    figures["first call on 2000 rows"] = time.perf_counter() - start
    start = time.perf_counter()
    used = time.process_time()
    near, query = search(X)
    figures["build and self search"] = time.perf_counter() - start
    figures["build and self search, processor"] = time.process_time() - used
    start = time.perf_counter()
    query(new)
    figures["new rows"] = time.perf_counter() - start
    figures["memory"] = peak_mib() - base
    with np.load(folder / "truth.npz") as truth:
        asked, bound = truth["asked"], truth["bound"]
    D2 = squared_distances(X, asked, near[asked])
    D2[near[asked] == asked[:, None]] = np.inf
    figures["recall"] = float(np.mean(np.sort(D2, axis=1)[:, :K] <= bound[:, None] * (1 + 1e-5) + 1e-9))
    np.save(folder / f"near-{time.time_ns()}.npy", near)
    return figures


def installed_mib(package: str) -> float:
    """Files of the package and of what it needs beyond scikit-learn."""
    seen = {"numpy", "scipy", "scikit-learn", "joblib", "threadpoolctl"}
    queue, size = [package], 0
    while queue:
        name = queue.pop().lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        paths = [Path(str(file.locate())) for file in found.files or []]
        size += sum(path.stat().st_size for path in paths if path.exists() and path.suffix != ".pyc")
        needs = (need for need in found.requires or [] if "extra ==" not in need)
        queue += [re.split(r"[^A-Za-z0-9._-]", need, maxsplit=1)[0] for need in needs]
    return size / 2**20


def child(*arguments: object, limit: float) -> dict[str, float] | None:
    threads = {f"{name}_NUM_THREADS": str(THREADS) for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    try:
        done = subprocess.run(
            command, env=os.environ | threads, stdout=subprocess.PIPE, timeout=limit, check=True, text=True
        )
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 60_000, 500_000])
    parser.add_argument("--data", nargs="+", choices=("mnist", "covtype", "digits"), default=["mnist", "covtype"])
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS))
    parser.add_argument("--limit", type=float, default=300, help="seconds for a case")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        if options.child[0] == "prepare":
            prepare(options.child[1], int(options.child[2]), Path(options.child[3]))
            print("{}")
        else:
            print(json.dumps(measure(options.child[0], Path(options.child[1]))))
        return
    rows = Rows("neighbors")
    for package in sorted({package for name in options.methods if (package := METHODS[name][1])}):
        rows.add("installed", 0, f"{package} {metadata.version(package)}", 0, installed_mib(package), "MiB")
        print(f"{package} {metadata.version(package)}: {installed_mib(package):.0f} MiB")
    for n in options.sizes:
        for name in options.data:
            if name == "mnist" and n > 60_000:
                continue
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                child("prepare", name, n, folder, limit=600)
                for method in options.methods:
                    if n > EXACT_UP_TO and method in ("brute", "faiss-flat"):
                        continue
                    for repeat in range(2 if n == min(options.sizes) and name == options.data[-1] else 1):
                        figures = child(method, folder, limit=options.limit)
                        if figures is None:
                            print(f"{name} {n} {method}: over {options.limit:.0f} s", flush=True)
                            rows.add(name, n, f"{method}: over the limit of", repeat, options.limit, "s")
                            break
                        for what, value in figures.items():
                            unit = {"recall": "1", "memory": "MiB"}.get(what, "s")
                            rows.add(name, n, f"{method}: {what}", repeat, value, unit)
                        print(f"{name} {n} {method}:", {what: round(v, 4) for what, v in figures.items()}, flush=True)
                    runs = [np.load(path, mmap_mode="r") for path in folder.glob("near-*.npy")]
                    if len(runs) == 2:
                        same = float(np.array_equal(*runs))
                        rows.add(name, n, f"{method}: same twice", 0, same, "1")
                        print(f"{name} {n} {method}: {'the same' if same else 'not the same'} twice", flush=True)
                    for path in folder.glob("near-*.npy"):
                        path.unlink()
                    rows.write(options.out)


if __name__ == "__main__":
    main()
