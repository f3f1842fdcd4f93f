"""Which library reads users' tables: pyarrow, polars and pandas on CSV, with what their import and their files cost.

Each reading runs in a process of its own, so that imports and peaks of memory are those of one library alone.
`read_table` beside them is the whole reader of ldsu: encoding, separator, header, missing values, lines.

python benchmarks/readers.py [--repeats 3] [--tiny]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

LIBRARIES = ("pyarrow", "polars", "pandas")
MODULES = {"pyarrow": "pyarrow.csv", "polars": "polars", "pandas": "pandas", "read_table": "ldsu.tables"}
OURS = frozenset({"numpy", "scipy", "scikit-learn", "joblib", "threadpoolctl", "psutil"})
MISSING = ["", "NA", "NaN", "null", "?"]


def write_numbers(path: Path, n: int) -> None:
    np.savetxt(
        path,
        np.random.default_rng(0).standard_normal((n, 50)),
        "%.6g",
        ",",
        header=",".join(map("c{}".format, range(50))),
        comments="",
    )


def write_mixed(path: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    numbers, kinds, days = rng.standard_normal(n), rng.integers(0, 20, n), rng.integers(1, 29, n)
    with path.open("w") as file:
        file.write("id,value,kind,text,day,label\n")
        for row in range(n):
            value = "NA" if row % 10 == 0 else f"{numbers[row]:.4f}"
            kind, day, label = kinds[row], days[row], "" if row % 3 else "yes"
            file.write(f'{row},{value},kind {kind},"a text, number {row} of many",2020-01-{day:02},{label}\n')


def write_libsvm(path: Path, n: int) -> None:
    values = np.random.default_rng(0).standard_normal((n, 50))
    with path.open("w") as file:
        for row, numbers in enumerate(values):
            file.write(
                f"{row % 10} " + " ".join(f"{place}:{value:.6g}" for place, value in enumerate(numbers, 1)) + "\n"
            )


def write_parquet(path: Path, n: int) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    values = np.random.default_rng(0).standard_normal((50, n))
    parquet.write_table(arrow.table(list(values), names=list(map("c{}".format, range(50)))), path)


# How each file is written, its name and its rows.
FILES: dict[str, tuple[Callable[[Path, int], None], str, int]] = {
    "numbers": (write_numbers, "numbers.csv", 100_000),
    "mixed": (write_mixed, "mixed.csv", 200_000),
    "libsvm": (write_libsvm, "numbers.libsvm", 100_000),
    "parquet": (write_parquet, "numbers.parquet", 100_000),
}
UNITS = {"import": "s", "first": "s", "read": "s", "before": "MiB", "peak": "MiB"}
COMPARED = ("numbers", "mixed")


def by_pyarrow(module: Any, path: Path, is_number: bool) -> Any:
    arrow = import_module("pyarrow")
    with path.open() as file:
        names = file.readline().strip().split(",")
    conversion = module.ConvertOptions(
        column_types=dict.fromkeys(names, arrow.string()), null_values=MISSING, strings_can_be_null=True
    )
    frame = module.read_csv(path, convert_options=conversion)
    return np.column_stack([column.cast("float64").to_numpy() for column in frame.columns]) if is_number else frame


def by_polars(module: Any, path: Path, is_number: bool) -> Any:
    frame = module.read_csv(path, infer_schema_length=0, null_values=MISSING)
    return frame.cast(module.Float64).to_numpy() if is_number else frame


def by_pandas(module: Any, path: Path, is_number: bool) -> Any:
    frame = module.read_csv(path, dtype=str, na_values=MISSING)
    return frame.astype("float64").to_numpy() if is_number else frame


def by_read_table(module: Any, path: Path, is_number: bool) -> Any:
    table = module.read_table(path)
    if not (is_number and table.is_text):
        return table
    return np.column_stack([column.cast("float64").to_numpy() for column in table.frame.columns])


READERS = {"pyarrow": by_pyarrow, "polars": by_polars, "pandas": by_pandas, "read_table": by_read_table}


def peak_mib() -> float:
    """Largest resident size of this process (on Linux); the usual counter starts with what the parent had."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) / 2**10


class WithoutPandas:
    """Keeps pandas from being imported, as pyarrow does in passing where it is there."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


def work(library: str, case: str, path: Path) -> dict[str, float]:
    """Import a library, read ten rows and then a file with it, each timed: what a process of its own does."""
    if library != "pandas":
        sys.meta_path.insert(0, WithoutPandas())
    start = time.perf_counter()
    module = import_module(MODULES[library])
    imported = time.perf_counter()
    # What a library imports and starts only when it reads is no part of what a file costs.
    READERS[library](module, path.with_name(f"small-{path.name}"), case == "numbers")
    before, started = peak_mib(), time.perf_counter()
    READERS[library](module, path, case == "numbers")
    seconds = {"import": imported - start, "first": started - imported, "read": time.perf_counter() - started}
    return {**seconds, "before": before, "peak": peak_mib()}


def packages(library: str) -> set[str]:
    """A library and what it needs, less what ldsu needs anyway."""
    found, waiting = set(), [library]
    while waiting:
        name = waiting.pop()
        found.add(name)
        for line in importlib.metadata.requires(name) or []:
            needed = re.split(r"[^\w.-]", line, maxsplit=1)[0].lower()
            # Conditions are those of other systems, and of extras.
            if ";" not in line and needed not in found and needed not in OURS:
                waiting.append(needed)
    return found


def installed_mib(library: str) -> float:
    """What the files of a library and of what it needs take on disk."""
    files = [file for name in packages(library) for file in importlib.metadata.files(name) or []]
    paths = [Path(str(file.locate())) for file in files if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="a hundred times fewer rows, once")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        library, case, path = options.worker
        print(json.dumps(work(library, case, Path(path))))
        return

    # Not at the top: it imports scikit-learn, and that pandas, of which a worker must know nothing.
    from rows import RESULTS, Rows

    rows = Rows("readers")
    for library in LIBRARIES:
        rows.add("installed", 1, library, 0, installed_mib(library), "MiB")
        names = ", ".join(sorted(packages(library)))
        print(f"{library:10} {installed_mib(library):6.0f} MiB installed ({names})")
    with tempfile.TemporaryDirectory() as folder:
        for case, (write, name, full) in FILES.items():
            n = full // 100 if options.tiny else full
            path = Path(folder) / name
            write(path, n)
            write(path.with_name(f"small-{name}"), 10)
            size = path.stat().st_size / 2**20
            rows.add(case, n, "file", 0, size, "MiB")
            print(f"{case}, {n:,} rows, {size:.1f} MiB")
            libraries = READERS if case in COMPARED else ("read_table",)
            found: dict[str, list[dict[str, float]]] = {library: [] for library in libraries}
            for repeat in range(1 if options.tiny else options.repeats):
                for library in libraries:  # side by side, so that a slow moment hits all of them
                    command = [sys.executable, __file__, "--worker", library, case, str(path)]
                    done = subprocess.run(command, capture_output=True, text=True, check=True)
                    measured = json.loads(done.stdout)
                    found[library].append(measured)
                    for what, unit in UNITS.items():
                        rows.add(case, n, f"{library}, {what}", repeat, measured[what], unit)
            for library, measurements in found.items():
                middle = {what: median(one[what] for one in measurements) for what in measurements[0]}
                print(
                    f"  {library:10} import {middle['import']:5.2f} s, first rows {middle['first']:5.2f} s, file "
                    f"{middle['read']:6.3f} s, memory "
                    f"{(middle['peak'] - middle['before']) / size:5.1f} bytes a byte of the file"
                )
    print(f"rows in {rows.write(options.out or RESULTS)}")


if __name__ == "__main__":
    main()
