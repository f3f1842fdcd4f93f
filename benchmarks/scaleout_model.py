"""What a fit on a Dask cluster costs: a model of each stage, its constants from kept rows, and what it predicts.

python benchmarks/scaleout_model.py [--results benchmarks/results]

Takes the constants from scaleout.csv, sets the model beside every measurement in it and in scaleout-*.csv, and prints a
table for 10^7 to 10^9 rows. Also prints what a second worker brings, and what the death of one costs
(killed_worker.csv). Of n rows, d columns, W workers of one thread, A + q right-hand sides:

- Work of a worker: rows x constant for shards, graphs, factor and features; the same and a look at the centres of all
  cells, of which there are 2.5 sqrt(n), for neighbors; entries x right-hand sides x iterations for the solve, of which
  each costs more where few right-hand sides are solved together: 1 + narrow / width.
- Bytes: every row once for shards; halo rows of shards for neighbors; for the solve the system to each
  worker, or values at the borders of its part, there and back, for each iteration.
- Tasks, which one scheduler hands out one after the other: blocks x shards to sort rows into shards; a few for every
  part, and for every two parts that meet, where the system is in parts.
- Messages that are waited for: five sums over all parts in each iteration where the system is in parts, each up and
  down a tree.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rows import RESULTS

GIB, MIB = 2**30, 2**20
D, ANCHORS, DIRECTIONS, ENTRIES = 54, 21, 50, 41  # of the measurements; entries of G, its transpose and L in a row
COLUMNS = ANCHORS + DIRECTIONS
LINEAR = ("shards", "graphs", "factor", "features")
BLOCK_ROWS = 1_000_000  # of a Parquet file
TASK_SECONDS = 1e-3  # of a scheduler for a task, as Dask's documentation has it
NETWORK = 1e9  # bytes a second of a worker's share of the network
PARTS_MET = 12  # other parts that a part has neighbors in
SUMS = 5  # over all parts, in an iteration
# As in ldsu.dask: shares of a worker's memory for a task, for a part, for a solve and for the whole system; bytes of a
# process; arrays of a solve, and how many columns they may have; bytes of a row of a shard, of a row of a part, and of
# a row of the whole system.
TASK_SHARE, PART_SHARE, SOLVE_SHARE, WHOLE_SHARE = 0.12, 0.3, 0.7, 0.35
PROCESS, ARRAYS, BORDER_ARRAYS, FEWEST, MOST, TOGETHER = 0.5 * GIB, 6, 5, 4, 40, 4
MEASURED_GIB = 3  # of each worker
SHARD_ROW, PART_ROW, WHOLE_ROW = 4112, 8 * ENTRIES, 2208


class Workers(NamedTuple):
    """How many, of one thread and so much memory."""

    count: int
    gib: float


class Cost(NamedTuple):
    """Of one stage."""

    work: float  # seconds of each worker
    sent: float  # bytes of each worker
    tasks: float
    waiting: float = 0.0  # seconds for messages

    @property
    def seconds(self) -> float:
        """Tasks are handed out while others work; what takes longer is what is waited for."""
        return max(self.work + self.sent / NETWORK + self.waiting, self.tasks * TASK_SECONDS)


@dataclass(frozen=True)
class Model:
    """Constants, in seconds of one thread and in bytes."""

    linear: dict[str, float]  # for a row
    neighbors: float  # for a row, but for the look at cells
    entry: dict[bool, float]  # for an entry, a right-hand side and an iteration, whole (False) and in parts (True)
    narrow: float  # columns of a block in which each costs twice what it costs in a very wide one
    iterations: tuple[float, float]  # factor and power of n
    moved: dict[str, float]  # bytes for a row that has to move, of shards and neighbors
    border: float  # rows sent for a part of a million, each way: those at borders
    message: float  # seconds from worker to worker

    def n_iterations(self, n: float) -> float:
        factor, power = self.iterations
        return factor * n**power

    def stages(self, n: float, workers: Workers, *, in_parts: bool | None = None) -> dict[str, Cost]:
        """Cost of each stage."""
        W, memory = workers.count, workers.gib * GIB
        shards = max(2 * W, n * SHARD_ROW / (TASK_SHARE * memory))
        away = 1 - 1 / W  # share of the rows that are wanted on another worker
        costs = {stage: Cost(constant * n / W, 0, 2 * shards) for stage, constant in self.linear.items()}
        blocks = max(1, n / BLOCK_ROWS)
        costs["shards"] = Cost(
            self.linear["shards"] * n / W, self.moved["shards"] * away * n / W, blocks * shards + 4 * blocks
        )
        costs["neighbors"] = Cost(
            (self.neighbors + look_at_cells(n)) * n / W,
            self.moved["neighbors"] * away * n / W,
            shards * (4 + 2 * min(PARTS_MET, shards)),
        )
        if in_parts is None:
            in_parts = n * WHOLE_ROW > WHOLE_SHARE * memory
        rounds = self.n_iterations(n)
        width = width_in_parts(n, workers, self.beyond) if in_parts else width_whole(W)
        work = self.entry[in_parts] * (1 + self.narrow / width) * ENTRIES * COLUMNS * rounds * n / W
        if not in_parts:
            costs["solve"] = Cost(work, 0.5 * WHOLE_ROW * n * (W > 1), 3 * shards * W)
            return costs
        parts = W * np.ceil(max(W, n * PART_ROW / (PART_SHARE * memory)) / W)
        blocks = COLUMNS / width
        tasks = parts * (9 + 4 * min(PARTS_MET, parts - 1)) + blocks * (4 * parts + 3 * shards)
        sent = 2 * self.beyond(n / parts) * parts / W * away * COLUMNS * 4 * rounds
        waiting = SUMS * 2 * np.ceil(np.log2(parts)) * self.message * blocks * rounds
        costs["solve"] = Cost(work, sent, tasks, waiting)
        return costs

    def beyond(self, rows: float) -> float:
        """Halo rows of a part."""
        return self.border * surface(rows)

    def memory(self, n: float, workers: Workers) -> float:
        """GiB of a worker in a solve in parts; samples, landmark features and results may lie on its disk."""
        rows = n / workers.count
        column = column_bytes(rows, self.beyond(rows))
        return (PROCESS + PART_ROW * rows + width_in_parts(n, workers, self.beyond) * column) / GIB


def surface(rows: float) -> float:
    """Of so many rows, in the ten dimensions or so that they fill; 1 for a million."""
    return (rows / 1e6) ** 0.9


def column_bytes(rows: float, beyond: float) -> float:
    """Bytes that a right-hand side takes while it is solved for."""
    return 4 * (ARRAYS * rows + BORDER_ARRAYS * beyond)


def width_whole(workers: int) -> float:
    """Columns that are solved together with the whole system on each worker: as many blocks for each."""
    return COLUMNS / (workers * np.ceil(COLUMNS / (MOST * workers)))


def width_in_parts(n: float, workers: Workers, beyond: Callable[[float], float]) -> float:
    """Columns that are solved together with the system in parts."""
    rows = n / workers.count
    free = SOLVE_SHARE * workers.gib * GIB - PROCESS - PART_ROW * rows
    most = np.clip(free // column_bytes(rows, beyond(rows)), FEWEST, MOST)
    return float(COLUMNS / np.ceil(COLUMNS / (most - most % TOGETHER)))


def look_at_cells(n: float) -> float:
    """Seconds a row for the choice of cells: 32 of a group of 512 rows, each a product with every centre."""
    return float(2.5 * np.sqrt(n) * 32 * D / 512 * 1e-9)


Measured = dict[tuple[int, int], dict[str, float]]


def measured(folder: Path, pattern: str) -> Measured:
    """What was measured, by rows and workers; the median where it was measured again."""
    found: dict[tuple[int, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob(pattern)):
        with path.open() as file:
            for row in csv.DictReader(file):
                key = int(row["n"]), int(row["case"].split()[0])
                found[key][row["what"]].append(float(row["value"]))
    return {
        key: {what: float(np.median(some)) for what, some in values.items()}
        for key, values in found.items()
        if "fit" in values
    }


def geometric_mean(values: Sequence[float] | np.ndarray) -> float:
    """Each measurement counts the same."""
    return float(np.exp(np.mean(np.log(values))))


def fitted(found: Measured) -> Model:
    """Constants from what was measured."""
    apart = {key: values for key, values in found.items() if key[1] > 1}
    in_parts = {key: values for key, values in apart.items() if values["system whole on each worker"] == 1}

    whole = {key: values for key, values in found.items() if values["system whole on each worker"] == 2}

    def sent(values: dict[str, float], stage: str) -> float:
        return values[f"{stage}: sent between workers"] * MIB

    sizes = sorted({(n, values["iterations"]) for (n, _), values in found.items()})
    power = 0.0
    if len(sizes) > 1:
        power = float(np.polyfit(np.log([n for n, _ in sizes]), np.log([i for _, i in sizes]), 1)[0])
    borders = [
        sent(values, "solve") / (2 * w * (1 - 1 / w) * COLUMNS * 4 * values["iterations"]) / surface(n / w)
        for (n, w), values in in_parts.items()
    ]
    border = geometric_mean(borders) if borders else float("nan")

    def costs(some: Measured) -> np.ndarray:
        return np.array([v["solve"] * w / (ENTRIES * COLUMNS * v["iterations"] * n) for (n, w), v in some.items()])

    wide = np.array([width_whole(w) for _, w in whole or found])
    widths = np.array([width_in_parts(n, Workers(w, MEASURED_GIB), lambda r: border * surface(r)) for n, w in in_parts])
    narrow = 0.0
    if len(set(widths)) > 1:
        slope, intercept = np.polyfit(1 / widths, costs(in_parts), 1)
        narrow = max(0.0, float(slope / intercept)) if intercept > 0 else 0.0
    entry = {False: geometric_mean(costs(whole or found) / (1 + narrow / wide))}
    entry[True] = geometric_mean(costs(in_parts) / (1 + narrow / widths)) if in_parts else entry[False]
    return Model(
        linear={stage: geometric_mean([v[stage] * w / n for (n, w), v in found.items()]) for stage in LINEAR},
        neighbors=geometric_mean([v["neighbors"] * w / n - look_at_cells(n) for (n, w), v in found.items()]),
        entry=entry,
        narrow=narrow,
        iterations=(geometric_mean([i / n**power for n, i in sizes]), power),
        moved={
            stage: geometric_mean([sent(v, stage) / (n * (1 - 1 / w)) for (n, w), v in apart.items()])
            for stage in ("shards", "neighbors")
        },
        border=border,
        message=geometric_mean([v["message"] / 1e3 for v in apart.values() if "message" in v]),
    )


def print_measured(found: Measured) -> None:
    """Seconds of each stage, and the largest worker."""
    keys = sorted(found)
    print("| | " + " | ".join(f"{n:,} rows, {w} worker{'s' if w > 1 else ''}" for n, w in keys) + " |")
    print("|---" * (len(keys) + 1) + "|")
    for stage in ("shards", "neighbors", "graphs", "factor", "solve", "features", "transform"):
        cells = [f"{found[key][stage]:.1f} ({found[key][f'{stage}: largest worker']:.1f})" for key in keys]
        print(f"| {stage} | {' | '.join(cells)} |")
    for what in ("fit", "iterations"):
        print(f"| {what} | " + " | ".join(f"{found[key][what]:.0f}" for key in keys) + " |")
    sent = [sum(v for k, v in found[key].items() if k.endswith("sent between workers")) / 1024 for key in keys]
    print("| sent between workers, GiB | " + " | ".join(f"{value:.1f}" for value in sent) + " |")


def print_speedup(path: Path) -> None:
    """How many times as fast two workers are as one with equal rows: run by run, and by the medians."""
    fits: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["what"] == "fit":
                fits[row["n"]][row["case"].split()[0]].append(float(row["value"]))
    for n, seconds in fits.items():
        if "1" in seconds and "2" in seconds:
            runs = ", ".join(f"{one / two:.2f}" for one, two in zip(seconds["1"], seconds["2"], strict=False))
            by_medians = np.median(seconds["1"]) / np.median(seconds["2"])
            print(f"\nTwo workers over one, {int(n):,} rows: {runs} times as fast, {by_medians:.2f} by the medians")


def print_killed(path: Path) -> None:
    """Seconds of a fit and a transform, and how many more if a worker is killed in a stage: medians of the runs."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    changes: dict[str, float] = defaultdict(float)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["unit"] == "s":
                found[row["what"].removeprefix("killed in ")][row["case"]].append(float(row["value"]))
            else:
                stage = row["what"].removeprefix("killed in ").partition(":")[0]
                changes[stage] = max(changes[stage], float(row["value"]))
    forms = list(found["undisturbed"])
    usual = {form: float(np.median(found["undisturbed"][form])) for form in forms}
    print(f"\n| a worker killed in | {' | '.join(forms)} |\n|---{'|---' * len(forms)}|")
    print(f"| no stage | {' | '.join(f'{usual[form]:.1f} s' for form in forms)} |")
    for stage, values in list(found.items())[1:]:
        cells = [f"{np.median(values[form]) - usual[form]:+.1f} s" if form in values else "" for form in forms]
        print(f"| {stage} | {' | '.join(cells)} |")
    listed = ", ".join(f"{stage} {change:.2g}" for stage, change in changes.items())
    print(f"\nLargest change of a feature, relative to the largest (1e-16: none): {listed}")


def duration(seconds: float) -> str:
    """In words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.0f} h"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    folder = parser.parse_args().results
    found = measured(folder, "scaleout.csv")
    print_measured(found)
    print_speedup(folder / "scaleout.csv")
    if (folder / "killed_worker.csv").exists():
        print_killed(folder / "killed_worker.csv")
    model = fitted(found)
    print("\n| constant | value |\n|---|---|")
    for stage, value in {**model.linear, "neighbors": model.neighbors}.items():
        print(f"| {stage}, microseconds a row | {value * 1e6:.1f} |")
    for in_parts, form in enumerate(("whole", "in parts")):
        value = model.entry[bool(in_parts)] * 1e9
        print(f"| solve {form}, nanoseconds an entry, right-hand side and iteration of a wide block | {value:.2f} |")
    print(f"| columns of a block in which each costs twice that | {model.narrow:.1f} |")
    print(f"| iterations | {model.iterations[0]:.1f} n^{model.iterations[1]:.2f} |")
    for stage, value in model.moved.items():
        print(f"| {stage}, bytes sent for a row that moves | {value:.0f} |")
    print(f"| rows sent for a part of a million, each way and iteration | {model.border:,.0f} |")
    print(f"| a message from worker to worker, milliseconds | {model.message * 1e3:.2f} |")
    most = max(w for _, w in found)
    sizes = sorted(n for n, w in found if w == most)
    if len(sizes) > 1:
        slope = np.polyfit(np.log(sizes), [np.log(found[n, most]["fit"]) for n in sizes], 1)[0]
        print(f"\nLog-log slope of the fit with {most} workers, {sizes[0]:,} to {sizes[-1]:,} rows: {slope:.2f}")
    print("\n| rows | workers | measured | model |\n|---|---|---|---|")
    for pattern, where in (("scaleout.csv", ""), ("scaleout-*.csv", ", another machine")):
        for (n, w), values in sorted(measured(folder, pattern).items()):
            parts = values["system whole on each worker"] == 1
            modelled = sum(cost.seconds for cost in model.stages(n, Workers(w, MEASURED_GIB), in_parts=parts).values())
            print(f"| {n:,} | {w}{where} | {values['fit']:.0f} s | {modelled:.0f} s |")
    print("\n| rows | workers | shards | neighbors | factor | solve | fit | sent by each | memory | tasks |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for n, workers in (
        (1e7, Workers(16, 8)),
        (1e8, Workers(64, 16)),
        (1e8, Workers(256, 8)),
        (1e9, Workers(256, 32)),
        (1e9, Workers(1024, 16)),
    ):
        costs = model.stages(n, workers)
        columns = [duration(costs[stage].seconds) for stage in ("shards", "neighbors", "factor", "solve")]
        whole = duration(sum(cost.seconds for cost in costs.values()))
        moved = f"{sum(cost.sent for cost in costs.values()) / GIB:,.0f} GiB"
        tasks = f"{sum(cost.tasks for cost in costs.values()) / 1e6:.2g} million"
        print(
            f"| {n:,.0f} | {workers.count} of {workers.gib} GiB | {' | '.join(columns)} | {whole} | {moved} | "
            f"{model.memory(n, workers):.0f} GiB | {tasks} |"
        )


if __name__ == "__main__":
    main()
