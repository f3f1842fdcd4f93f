"""How long a fit on a Dask cluster takes when one of its workers is killed, for each stage that it may happen in.

python benchmarks/killed_worker.py [--rows 100000] [--workers 2] [--memory 3GiB] [--repeats 3]

The rows of benchmarks/scaleout.py are fitted undisturbed, and then with a worker killed (`kill -9`) half way through
each stage, with the system whole on each worker and in parts, and so is a transform of them all. The delay is the
median time above that of the undisturbed. The rows are kept in benchmarks/results/killed_worker.csv.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

import dask.dataframe as dd
import numpy as np
from distributed import Client, LocalCluster
from rows import RESULTS, Rows
from scaleout import few_labels, write_parquet

import dask
from ldsu._utils.stages import watching
from ldsu.dask import LDSU, cluster_problem

STAGES = ("shards", "neighbors", "factor", "solve", "transform")


class Killer:
    """Kills a worker of a cluster when a stage has gone on for some seconds."""

    def __init__(self, cluster: LocalCluster, stage: str = "", after: float = 0.0) -> None:
        self.cluster, self.stage, self.after = cluster, stage, after
        self.seconds: dict[str, float] = defaultdict(float)
        self.killed: list[int] = []

    def watch(self, name: str, seconds: float | None) -> None:
        if seconds is not None:
            self.seconds[name] += seconds
        elif name == self.stage:
            threading.Timer(self.after, self.kill).start()

    def kill(self) -> None:
        pid = next(iter(self.cluster.workers.values())).pid
        os.kill(pid, signal.SIGKILL)
        self.killed.append(pid)


def run(folder: Path, y: np.ndarray, killer: Killer, options: argparse.Namespace) -> tuple[float, np.ndarray]:
    """Seconds of a fit and a transform, and the squared lengths of features."""
    table = dd.read_parquet(folder)
    start = time.perf_counter()
    with watching(killer.watch):
        model = LDSU(solver="sparse", strength=options.strength, min_anchors=1).fit(table, few_labels(y, 3))
    killer.watch("transform", None)
    began = time.perf_counter()
    norms = (model.transform(table) ** 2).sum(axis=1).compute()
    end = time.perf_counter()
    killer.watch("transform", end - began)
    return end - start, norms


def measure(rows: Rows, folder: Path, y: np.ndarray, options: argparse.Namespace) -> None:
    """Each stage, in one form of the system."""
    form = "system in parts" if cluster_problem.WHOLE_SHARE == 0 else "system whole"
    with (
        LocalCluster(
            n_workers=options.workers, threads_per_worker=1, memory_limit=options.memory, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        run(folder, y, Killer(cluster), options)  # what is done once: modules that are read, tables that are made
        undisturbed = []
        for repeat in range(options.repeats):
            watcher = Killer(cluster)
            seconds, expected = run(folder, y, watcher, options)
            undisturbed.append(seconds)
            rows.add(form, y.size, "undisturbed", repeat, seconds, "s")
        usual = float(np.median(undisturbed))
        print(f"{form}: undisturbed {usual:.1f} s", flush=True)
        for stage in options.stages:
            if form == "system in parts" and stage not in ("solve", "transform"):
                continue  # the same as with the system whole
            delays = []
            for repeat in range(options.repeats):
                cluster.scale(options.workers)  # one that was killed as it began its tasks is now and then given up
                client.wait_for_workers(options.workers, timeout=60)
                killer = Killer(cluster, stage, watcher.seconds[stage] / 2)
                seconds, norms = run(folder, y, killer, options)
                assert killer.killed, f"{stage} was over before a worker was killed"
                off = float(np.abs(norms - expected).max() / np.abs(expected).max())
                delays.append(seconds - usual)
                rows.add(form, y.size, f"killed in {stage}", repeat, seconds, "s")
                rows.add(form, y.size, f"killed in {stage}: largest change", repeat, max(off, 1e-16), "relative")
            print(
                f"  killed in {stage} ({watcher.seconds[stage]:.1f} s): {np.median(delays):+.1f} s, "
                f"{', '.join(f'{delay:+.1f}' for delay in delays)}; largest change {off:.1e}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="3GiB", help="of each worker")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--strength", type=float, default=10.0)
    parser.add_argument("--stages", nargs="+", default=STAGES, choices=STAGES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows("killed_worker")
    dask.config.set({"distributed.admin.log-format": "%(message)s"})
    with tempfile.TemporaryDirectory() as folder:
        y = write_parquet(Path(folder), options.rows)
        whole_share = cluster_problem.WHOLE_SHARE
        for share in (whole_share, 0.0):
            cluster_problem.WHOLE_SHARE = share
            measure(rows, Path(folder), y, options)
    print(rows.write(options.out))


if __name__ == "__main__":
    main()
