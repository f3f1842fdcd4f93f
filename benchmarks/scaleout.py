"""LDSU on a Dask cluster: time, memory of the workers and bytes moved, stage by stage, for more rows and more workers.

python benchmarks/scaleout.py [--sizes 500000 5000000] [--workers 1 2] [--memory 3GiB] [--labels 3]

Covertype, standardized, rows again and again with a jitter, is written as Parquet files and read from them by workers
of a real cluster of processes with one thread each. Each size is fitted with the most workers, the first size with
every number of them; then the rows of the first file are transformed. The rows are kept in
benchmarks/results/scaleout.csv.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import psutil
from distributed import Client, LocalCluster, Worker
from rows import RESULTS, Rows, load

import dask
from ldsu._utils.stages import watching
from ldsu.dask import LDSU
from ldsu.dask.cluster import Cluster as ClusterOf
from ldsu.dask.task_group import MemberTask, Peers, run_group

CLASSES = 7
PART = 250_000
SUMS, COLUMNS = 500, 16  # to measure the time of a message


def write_parquet(folder: Path, n: int) -> np.ndarray:
    """N jittered rows of Covertype as Parquet files, and their labels; blobs of its shape where it is not there."""
    found = load("covtype.npz")
    rng = np.random.default_rng(0)
    if found is None:
        y = rng.integers(CLASSES, size=20_000)
        X = rng.standard_normal((CLASSES, 54))[y] + rng.standard_normal((y.size, 54))
    else:
        X, y = found
    X = X.astype(np.float32)
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-6)
    names, labels = [f"x{i}" for i in range(X.shape[1])], []
    for number, start in enumerate(range(0, n, PART)):
        rows = rng.integers(len(X), size=min(PART, n - start))
        jitter = 0.1 * rng.standard_normal((rows.size, X.shape[1]), dtype=np.float32)
        pd.DataFrame(X[rows] + jitter, columns=names).to_parquet(folder / f"part{number:04}.parquet")
        labels.append(y[rows])
    return np.concatenate(labels)


def few_labels(y: np.ndarray, per_class: int) -> np.ndarray:
    few = np.full(y.size, -1)
    for label in np.unique(y):
        few[np.flatnonzero(y == label)[:per_class]] = label
    return few


def _bytes_sent_by(dask_worker: Worker) -> int:
    """Results that others asked for, and messages between members of task groups, counted where they arrive."""
    return int(dask_worker.transfer_outgoing_bytes_total + MemberTask.bytes_received)


def message_milliseconds(client: Client, workers: int) -> float:
    """How long a small array takes from one worker to another, from sums over all of them."""
    cluster = ClusterOf(client)
    futures = run_group(cluster, "sums", add_up, [[]] * workers, [(SUMS,)] * workers)
    return max(cluster.collect(futures)) / SUMS / (2 * np.ceil(np.log2(workers))) * 1e3


def add_up(peers: Peers, times: int) -> float:
    """Seconds for so many sums."""
    peers.total(np.zeros(COLUMNS))
    start = time.perf_counter()
    for _ in range(times):
        peers.total(np.zeros(COLUMNS))
    return time.perf_counter() - start


class Meter:
    """Seconds, largest memory of a worker and bytes sent between workers, for each stage."""

    def __init__(self, client: Client, cluster: LocalCluster) -> None:
        self.client, self.cluster = client, cluster
        self.seconds: dict[str, float] = defaultdict(float)
        self.memory: dict[str, float] = defaultdict(float)
        self.sent: dict[str, float] = defaultdict(float)
        self.stage, self.over, self.before = "", False, 0.0

    def bytes_sent(self) -> float:
        return float(sum(self.client.run(_bytes_sent_by).values()))

    def watch(self, name: str, seconds: float | None) -> None:
        if seconds is None:
            self.stage = name
            return
        sent = self.bytes_sent()
        self.seconds[name] += seconds
        self.sent[name] += sent - self.before
        self.before, self.stage = sent, ""
        print(
            f"    {name}: {seconds:.1f} s, {self.memory[name]:.2f} GiB, {self.sent[name] / 2**20:.0f} MiB", flush=True
        )

    def sample(self) -> None:
        while not self.over:
            for worker in list(self.cluster.workers.values()):
                try:
                    held = psutil.Process(worker.pid).memory_info().rss / 2**30
                except (psutil.Error, AttributeError, TypeError):
                    continue
                self.memory[self.stage] = max(self.memory[self.stage], held)
            time.sleep(0.2)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        thread = threading.Thread(target=self.sample, daemon=True)
        thread.start()
        self.before = self.bytes_sent()
        try:
            with watching(self.watch):
                yield
        finally:
            self.over = True
            thread.join()


def measure(rows: Rows, folder: Path, y: np.ndarray, workers: int, options: argparse.Namespace) -> float:
    """Fit and transform once; seconds of the fit."""
    n, case = y.size, f"{workers} worker(s)"
    print(f"{n:,} rows, {case}", flush=True)
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, memory_limit=options.memory, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        meter = Meter(client, cluster)
        table = dd.read_parquet(folder)
        model = LDSU(solver="sparse", strength=options.strength, min_anchors=options.min_anchors)
        with meter.measuring():
            start = time.perf_counter()
            model.fit(table, few_labels(y, options.labels))
            fit = time.perf_counter() - start
            meter.watch("transform", None)
            new = table.partitions[[0]]
            start = time.perf_counter()
            features = model.transform(new)
            norms = (features**2).sum(axis=1).compute()
            meter.watch("transform", time.perf_counter() - start)
        assert np.isfinite(norms).all()
        rows.add(case, n, "fit", 0, fit, "s")
        rows.add(case, n, "iterations", 0, model.n_iter_, "iterations")
        rows.add(case, n, "number of shards", 0, model.feature_map_.shards.directory.n_shards, "shards")
        rows.add(case, n, "rows transformed", 0, norms.size, "rows")
        rows.add(case, n, "system whole on each worker", 0, 1 + model.replicated_, "1 no, 2 yes")
        if workers > 1:
            rows.add(case, n, "message", 0, message_milliseconds(client, workers), "ms")
        for stage, seconds in meter.seconds.items():
            rows.add(case, n, stage, 0, max(seconds, 1e-6), "s")
            rows.add(case, n, f"{stage}: largest worker", 0, meter.memory[stage] or 1e-6, "GiB")
            rows.add(case, n, f"{stage}: sent between workers", 0, max(meter.sent[stage], 1) / 2**20, "MiB")
        print(f"  fit {fit:.1f} s, {model.n_iter_} iterations, system in parts: {not model.replicated_}", flush=True)
    return fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[500_000, 1_000_000, 2_000_000, 5_000_000])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--memory", default="3GiB", help="of each worker")
    parser.add_argument("--labels", type=int, default=3, help="of each class")
    parser.add_argument("--min-anchors", type=int, default=1)
    parser.add_argument("--strength", type=float, default=100.0)
    parser.add_argument("--name", default="scaleout", help="of the file of rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows(options.name)
    most = max(options.workers)
    times: dict[int, float] = {}
    dask.config.set({"distributed.admin.log-format": "%(message)s"})
    for number, n in enumerate(options.sizes):
        with tempfile.TemporaryDirectory() as folder:
            y = write_parquet(Path(folder), n)
            by_workers = {
                workers: measure(rows, Path(folder), y, workers, options)
                for workers in (options.workers if number == 0 else [most])
            }
            times[n] = by_workers[most]
            for workers, seconds in by_workers.items():
                if workers > min(by_workers):
                    ratio = by_workers[min(by_workers)] / seconds
                    rows.add(f"{workers} worker(s)", n, f"speed-up over {min(by_workers)}", 0, ratio, "times")
                    print(f"  {ratio:.2f} times as fast as with {min(by_workers)}", flush=True)
        rows.write(options.out)
    if len(times) > 1:
        slope = float(np.polyfit(np.log(list(times)), np.log(list(times.values())), 1)[0])
        rows.add(f"{most} worker(s)", max(times), "log-log slope of fit", 0, slope, "")
        print(f"log-log slope of fit: {slope:.2f}")
    print(rows.write(options.out))


if __name__ == "__main__":
    main()
