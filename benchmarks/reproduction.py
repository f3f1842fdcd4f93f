"""The tables of docs/reproduction.md, as Markdown, from the kept results. Measures nothing.

python benchmarks/reproduction.py
"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
PAPER = ("KPCA", "KDA", "KSDA", "KSELF", "KLPP", "EnFS", "LDSU truncate")
METHODS = (*PAPER, "LDSU")
IMAGES = ("COIL-20", "UMIST", "USPS")
FACES = ("Yale B, log", "Yale B, log, wider kernels", "Yale B, local contrast", "Yale B, pixels")
WITHIN = 0.03
# Experiment, data set, labels per class, method, parameter: cells that are read by the values of one parameter.
SWEEPS = (
    ("table1", "umist/distinct", 5, "KLPP", "n_components"),
    ("table1", "umist/distinct", 5, "KLPP", "ridge"),
    ("table1", "usps", 1, "KPCA", "gamma_scale"),
    ("table1", "usps", 1, "KPCA", "n_components"),
    ("table1", "usps", 1, "KSELF", "beta"),
    ("table1", "yaleb/log", 3, "KPCA", "gamma_scale"),
    ("yaleb", "yaleb/log", 3, "KPCA", "gamma_scale"),
    *(
        ("table1", data, 1, "LDSU truncate", "clique_size")
        for data in ("coil20", "umist/distinct", "yaleb/log", "usps")
    ),
    ("table1", "usps", 3, "LDSU truncate", "gamma_scale"),
    ("table1", "yaleb/log", 3, "LDSU", "lam"),
)
# Data set, labels per class and clique size of LDSU truncate, read by theta; the other parameters have these values.
THETAS = (("usps", 3, 3), ("umist/distinct", 3, 20))
FIXED = {"gamma_scale": 2.0, "lam": 1.0, "n_components": 0.5}
# Cells that are read repetition by repetition.
SPLITS = (("USPS", 3, "LDSU truncate"),)
Place = tuple[str, int]
Table = dict[Place, dict[str, dict[str, str]]]


def read(selection: str) -> Table:
    """Rows by (data, labels), then method."""
    table: Table = {}
    for experiment in ("table1", "yaleb"):
        with (RESULTS / experiment / "table.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                title = row["title"]
                if experiment == "yaleb" and title == "Yale B, log":
                    title += ", wider kernels"
                if row["selection"] == selection:
                    table.setdefault((title, int(row["labels"])), {})[row["method"]] = row
    return table


def short(value: float) -> str:
    """Three decimals without the leading zero."""
    return f"{value:.3f}".replace("0.", ".", 1)


def sweep(experiment: str, data: str, labels: int, method: str, parameter: str, **fixed: float) -> str:
    """The best MAP over all parameters that are not fixed, for each value of one."""
    best: dict[float, float] = {}
    with gzip.open(RESULTS / experiment / "settings.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["data"], row["labels"], row["method"]) == (data, str(labels), method):
                params = json.loads(row["params"])
                if all(params[name] == value for name, value in fixed.items()):
                    value = params[parameter]
                    best[value] = max(best.get(value, 0.0), float(row["map_mean"]))
    return ", ".join(f"{value:g}: {best[value]:.4f}" for value in sorted(best))


def agrees(difference: float) -> bool:
    """Whether a figure is within WITHIN of the paper's."""
    return abs(difference) <= WITHIN + 1e-9


def cell(row: dict[str, str] | None) -> str:
    if row is None:
        return ""
    difference = float(row["difference"])
    text = f"{float(row['map_mean']):.3f} {difference:+.3f}".replace("0.", ".")
    return f"**{text}**" if agrees(difference) else text


def above(table: Table, place: Place, methods: tuple[str, ...]) -> bool:
    """Whether one of the methods is at or above the paper's LDSU, in the three decimals that it prints."""
    rows = [table[place][method] for method in methods]
    return max(round(float(row["map_mean"]), 3) for row in rows) >= float(rows[0]["paper_map_mean"])


def print_agreement(table: Table) -> None:
    """Cells of the paper's methods that are within WITHIN of the paper; those of LDSU truncate also above and below."""
    print(f"\nCells of the paper's seven methods within {WITHIN} of the paper, oracle:\n")
    print("| data | all seven: within | LDSU truncate: within | above | below |\n|---|---|---|---|---|")
    for group in (*((data,) for data in (*IMAGES, *FACES)), (*IMAGES, FACES[0])):
        rows = [rows for (data, _), rows in table.items() if data in group]
        within, above, below = (
            {method: sum(test(float(row[method]["difference"])) for row in rows) for method in PAPER}
            for test in (agrees, lambda by: by > 0 and not agrees(by), lambda by: by < 0 and not agrees(by))
        )
        ours = [f"{count['LDSU truncate']} of {len(rows)}" for count in (within, above, below)]
        total = f"{sum(within.values())} of {len(rows) * len(PAPER)}"
        print(f"| {'; '.join(group)} | {total} | {' | '.join(ours)} |")


def print_against_the_paper(table: Table) -> None:
    """Cells at or above the paper's LDSU, for each preparation of the faces."""
    print("\nCells at or above the paper's LDSU on COIL-20, UMIST, USPS and Yale B, oracle:\n")
    print("| Yale B prepared as | LDSU truncate | LDSU | the better of the two |\n|---|---|---|---|")
    choices = (("LDSU truncate",), ("LDSU",), ("LDSU truncate", "LDSU"))
    for faces in FACES:
        places = [place for place in table if place[0] in (*IMAGES, faces)]
        counts = [f"{sum(above(table, place, methods) for place in places)} of {len(places)}" for methods in choices]
        print(f"| {faces.removeprefix('Yale B, ')} | {' | '.join(counts)} |")
    print("\nCells below it:\n")
    for method in ("LDSU truncate", "LDSU"):
        places = [place for place in table if place[0] in (*IMAGES, *FACES)]
        below = [f"{data} {labels}" for data, labels in places if not above(table, (data, labels), (method,))]
        print(f"{method}: {'; '.join(below)}")


def main() -> None:
    oracle = read("oracle")
    for selection, table in (("oracle", oracle), ("honest", read("honest"))):
        print(f"\nMAP, {selection}: ours and its difference to the paper, bold within {WITHIN}.\n")
        print(f"| | labels | {' | '.join(METHODS)} |\n|---|---|{'---|' * len(METHODS)}")
        for (data, labels), rows in table.items():
            print(f"| {data} | {labels} | {' | '.join(cell(rows.get(method)) for method in METHODS)} |")
    print(f"\nMAP in the paper.\n\n| | labels | {' | '.join(PAPER)} |\n|---|---|{'---|' * len(PAPER)}")
    for (data, labels), rows in oracle.items():
        if data in (*IMAGES, "Yale B, log", "ICU 2012"):
            name = {"Yale B, log": "Yale B", "ICU 2012": "MIMIC II"}.get(data, data)
            print(f"| {name} | {labels} | {' | '.join(short(float(rows[m]['paper_map_mean'])) for m in PAPER)} |")
    print_agreement(oracle)
    print_against_the_paper(oracle)
    print("\nMAP by the value of one parameter, the best over the others.\n")
    print("| experiment | data | labels | method | parameter | value: MAP |\n|---|---|---|---|---|---|")
    for place in SWEEPS:
        print(f"| {' | '.join(map(str, place))} | {sweep(*place)} |")
    values = ", ".join(f"{name} = {value:g}" for name, value in FIXED.items())
    print(f"\nMAP of LDSU truncate by theta; {values}.\n")
    print("| data | labels | clique size | theta: MAP |\n|---|---|---|---|")
    for data, labels, size in THETAS:
        maps = sweep("table1", data, labels, "LDSU truncate", "theta", clique_size=size, **FIXED)
        print(f"| {data} | {labels} | {size} | {maps} |")
    print("\nMAP of the best setting in each repetition, and its deviation.\n")
    for data, labels, method in SPLITS:
        row = oracle[data, labels][method]
        splits = " ".join(map(short, json.loads(row["map_splits"])))
        print(f"{data}, {labels}, {method}: {splits}, deviation {short(float(row['map_std']))}; {row['params']}")


if __name__ == "__main__":
    main()
