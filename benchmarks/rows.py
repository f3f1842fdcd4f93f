"""Rows of a benchmark: one per measurement, with date, machine and versions beside it."""

from __future__ import annotations

import csv
import datetime
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy
import scipy
import sklearn

import ldsu

RESULTS = Path(__file__).parent / "results"
FIELDS = ("benchmark", "case", "n", "what", "repeat", "value", "unit", "date", "machine", "versions")


class Rows:
    """Collects measurements and writes them as CSV, atomically."""

    def __init__(self, benchmark: str) -> None:
        self.benchmark = benchmark
        self.rows: list[dict[str, object]] = []

    @classmethod
    def kept(cls, benchmark: str, folder: Path = RESULTS) -> Rows:
        """The rows of an earlier run."""
        rows = cls(benchmark)
        with (folder / f"{benchmark}.csv").open(newline="", encoding="utf-8") as file:
            rows.rows = [{**row, "n": int(row["n"]), "repeat": int(row["repeat"])} for row in csv.DictReader(file)]
        return rows

    def add(self, case: str, n: int, what: str, repeat: int, value: float, unit: str) -> None:
        self.rows.append(
            {
                "benchmark": self.benchmark,
                "case": case,
                "n": n,
                "what": what,
                "repeat": repeat,
                "value": f"{value:.6g}",
                "unit": unit,
                "date": datetime.date.today().isoformat(),
                "machine": f"{os.cpu_count()} cores {platform.machine()}",
                "versions": f"python {platform.python_version()} numpy {numpy.__version__} scipy {scipy.__version__} "
                f"scikit-learn {sklearn.__version__} ldsu {ldsu.__version__}",
            }
        )

    def median(self, what: str, n: int) -> float:
        return median(float(str(row["value"])) for row in self.rows if row["what"] == what and row["n"] == n)

    def write(self, folder: Path = RESULTS) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.benchmark}.csv"
        temporary = path.with_suffix(".part")
        with temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(self.rows)
        temporary.replace(path)
        return path


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def peak_gib() -> float:
    """Largest resident size of this process so far (Linux counts KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def find_data(name: str) -> Path | None:
    """A file or folder of data from LDSU_DATA or ../shared/data; None where neither has it."""
    for folder in (os.environ.get("LDSU_DATA"), Path(__file__).parents[2] / "shared" / "data"):
        if folder and (Path(folder) / name).exists():
            return Path(folder) / name
    return None


def load(name: str) -> tuple[numpy.ndarray, numpy.ndarray] | None:
    """Samples and classes of a real data set; None where it is not there."""
    path = find_data(name)
    if path is None:
        return None
    with numpy.load(path) as arrays:
        return arrays["X"], arrays["y"]


def pyplot_for_svg() -> Any:
    """Matplotlib's pyplot for charts of the documentation, in the look of the gallery; equal rows give equal files."""
    import matplotlib

    from ldsu.bench.report.style import rc_params

    matplotlib.use("svg")
    matplotlib.rcParams.update({**rc_params("#ffffff"), "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    return pyplot
