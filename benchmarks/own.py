"""`ldsu fit` and `ldsu predict` as a new user runs them: no option but the column of labels, start-up included.

python benchmarks/own.py [--labels 5] [--draws 5]

Accuracy over all rows of the table; the label column has a few labels per class and is empty elsewhere.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from made_tables import TABLES
from rows import RESULTS, Rows


def ldsu(*arguments: object) -> float:
    """Run the command, and give its seconds."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "ldsu", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=5, help="labels per class")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows("own")
    for repeat in range(7):
        rows.add("start", 1, "ldsu --help", repeat, ldsu("--help"), "s")
    print(f"ldsu --help {rows.median('ldsu --help', 1):.2f} s")
    for name in options.tables:
        accuracies = []
        for draw in range(options.draws):
            with tempfile.TemporaryDirectory() as folder:
                table, truth = TABLES[name](Path(folder), options.labels, draw)
                model, output = Path(folder, "model.ldsu"), Path(folder, "labels.csv")
                label = () if table.is_dir() else ("--label", "topic" if "text" in name else "digit")
                fit = ldsu("fit", table, *label, "-o", model, "--quiet")
                predict = ldsu("predict", model, table, "-o", output, "--quiet")
                with output.open() as file:
                    found = np.array([row["label"] for row in csv.DictReader(file)])
                accuracies.append(float(np.mean(found == truth)))
            rows.add(name, truth.size, "accuracy", draw, accuracies[-1], "accuracy")
            rows.add(name, truth.size, "ldsu fit", draw, fit, "s")
            rows.add(name, truth.size, "ldsu predict", draw, predict, "s")
        seconds = rows.median("ldsu fit", truth.size), rows.median("ldsu predict", truth.size)
        print(
            f"{name:48s} {np.mean(accuracies):.3f} ({min(accuracies):.3f} to {max(accuracies):.3f}), "
            f"fit {seconds[0]:.1f} s, predict {seconds[1]:.1f} s",
            flush=True,
        )
    print(rows.write(options.out))


if __name__ == "__main__":
    main()
